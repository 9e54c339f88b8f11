/* tests/cli/test_capacity.c: mcpplan capacity as its users meet it. */
#include "tests/cli/child.h"

#include "core/json.h"
#include "core/text.h"
#include "core/units.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is asked in vain: a tiny question and one wrong word. */
#define ASK "capacity", "--model=tiny", "--cluster=dgx-h100", "--tokens=1T", "--global-batch-size=8"
ParameterizedTestParameters(capacity_cli, refusals)
{
    static struct child_case cases[] = {
        {"nothing to train", {"capacity", "~"}, MCP_USAGE, "", "capacity needs --model: "},
        {"no tokens",
         {"capacity", "--model=tiny", "--cluster=dgx-h100", "--global-batch-size=8", "~"},
         MCP_USAGE,
         "",
         "capacity needs --tokens: "},
        {"tokens in words",
         {"capacity", "--model=tiny", "--cluster=dgx-h100", "--tokens=many",
          "--global-batch-size=8", "~"},
         MCP_USAGE,
         "",
         "option --tokens: 'many' is no number of tokens"},
        {"too many tokens",
         {"capacity", "--model=tiny", "--cluster=dgx-h100", "--tokens=2000000T",
          "--global-batch-size=8", "~"},
         MCP_USAGE,
         "",
         "from 1 to 1e18"},
        {"an empty name",
         {"capacity", "--model=tiny", "--cluster=dgx-h100,,", "--tokens=1T",
          "--global-batch-size=8", "~"},
         MCP_USAGE,
         "",
         "empty name between commas"},
        {"a misspelt cluster",
         {"capacity", "--model=tiny", "--cluster=dgx-h10", "--tokens=1T", "--global-batch-size=8",
          "~"},
         MCP_IO,
         "",
         "did you mean 'dgx-h100'?"},
        {"no days", {ASK, "--deadline=0", "~"}, MCP_USAGE, "", "--deadline: '0' is not"},
        {"a budget without a price",
         {ASK, "--budget=5", "~"},
         MCP_INVALID,
         "",
         "--price dgx-h100=X states it"},
        {"a budget of nothing", {ASK, "--budget=0", "~"}, MCP_USAGE, "", "--budget: '0' is not"},
        {"a power in words", {ASK, "--power=lots", "~"}, MCP_USAGE, "", "option --power: "},
        {"no power", {ASK, "--power=0", "~"}, MCP_USAGE, "", "option --power: '0' is not above 0"},
        {"a power that nobody knows",
         {"capacity", "--model=tiny", "--cluster=tpu-v5p", "--tokens=1T", "--global-batch-size=8",
          "--power=1MW", "~"},
         MCP_INVALID,
         "",
         "power_watts, which is unknown for tpu-v5p"},
        {"sizes in words", {ASK, "--gpus=all", "~"}, MCP_USAGE, "", "--gpus: 'all' is neither"},
        {"a size twice", {ASK, "--gpus=8,8", "~"}, MCP_USAGE, "", "8 is given twice"},
        {"an empty range", {ASK, "--gpus=16..8", "~"}, MCP_USAGE, "", "'16..8' is neither"},
        {"no size in the range", {ASK, "--gpus=9..15", "~"}, MCP_INVALID, "", "9..15 GPUs"},
        {"a price of nothing there",
         {ASK, "--price=dgx-a100=1", "~"},
         MCP_USAGE,
         "",
         "of --cluster dgx-h100 is called 'dgx-a100'"},
        {"half a price", {ASK, "--price=dgx-h100", "~"}, MCP_USAGE, "", "is not NAME=X"},
        {"a negative price", {ASK, "--price=dgx-h100=-1", "~"}, MCP_USAGE, "", "is not NAME=X"},
        {"failures of no fleet",
         {ASK, "--failures=dedicatd", "~"},
         MCP_USAGE,
         "",
         "did you mean dedicated?"},
        {"a sure quantile", {ASK, "--spare-quantile=1", "~"}, MCP_USAGE, "", "is not below 1"},
        {"a repair of years", {ASK, "--repair=400d", "~"}, MCP_USAGE, "", "not from 0 to a year"},
        {"a stall without end", {ASK, "--checkpoint-stall=1e16", "~"}, MCP_USAGE, "", "to a year"},
        {"a site that makes power",
         {ASK, "--site-power-factor=0.5", "~"},
         MCP_USAGE,
         "",
         "from 1 to 100"},
        {"jobs and a model",
         {"capacity", "--jobs=x.json", "--model=tiny", "~"},
         MCP_USAGE,
         "",
         "leave out --model"},
        {"jobs and a pin",
         {"capacity", "--jobs=x.json", "--tensor-parallel=8", "~"},
         MCP_USAGE,
         "",
         "leave out what pins tensor_parallel"},
        {"jobs and a deadline",
         {"capacity", "--jobs=x.json", "--deadline=3", "~"},
         MCP_USAGE,
         "",
         "leave out --deadline"},
        {"jobs and a report of no kind",
         {"capacity", "--jobs=x.json", "--report=x.pdf", "~"},
         MCP_USAGE,
         "",
         "end it in .html or .md"},
        {"a report of no kind", {ASK, "--report=x", "~"}, MCP_USAGE, "", "end it in .html or .md"},
        {"jobs of no file", {"capacity", "--jobs=/none.json", "~"}, MCP_IO, "", "/none.json"},
    };
    return cr_make_param_array(struct child_case, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct child_case *c, capacity_cli, refusals)
{
    child_check(c, NULL);
}

/* Answers, also those that are no. */
ParameterizedTestParameters(capacity_cli, answers)
{
    static struct child_case cases[] = {
        {"a table", {ASK, "--gpus=8,16", "~"}, MCP_OK, "GPUs: ", ""},
        {"under a cap", {ASK, "--gpus=8,16", "--power=15kW", "~"}, MCP_OK, "over power", ""},
        {"watts without a unit", {ASK, "--gpus=8", "--power=15000", "~"}, MCP_OK, "8 GPUs: ", ""},
        {"a cap below one node",
         {ASK, "--power=5kW", "~"},
         MCP_INFEASIBLE,
         "no size meets that",
         "draws 11.2 kW and costs an unknown price"},
        {"a size that divides nothing",
         {ASK, "--gpus=3", "~"},
         MCP_INFEASIBLE,
         "3: no layout divides",
         "no size that was tried has a plan"},
        {"a precision that the machine has not",
         {"capacity", "--model=tiny", "--cluster=dgx-a100", "--tokens=1B", "--global-batch-size=8",
          "--precision=fp8", "--gpus=8", "~"},
         MCP_INFEASIBLE,
         "no size meets that",
         "a100-sxm4-80gb has no known rate in precision fp8"},
        {"a pin", {ASK, "--gpus=8", "--tensor-parallel=2", "~"}, MCP_OK, "2x1x", ""},
        {"what is pinned is said",
         {ASK, "--gpus=8", "--microbatch-size=1..2", "~"},
         MCP_OK,
         "every plan has microbatch_size 1..2, as asked",
         ""},
        {"pins for machines",
         {ASK, "--gpus=8", "--zero-stage=2", "--json", "~"},
         MCP_OK,
         "\"zero_stage\": [",
         ""},
        {"a pin beyond a size",
         {ASK, "--gpus=2,8", "--tensor-parallel=4", "~"},
         MCP_OK,
         "2: tensor_parallel",
         ""},
        {"nothing fails",
         {ASK, "--gpus=8", "--failures=none", "~"},
         MCP_OK,
         "nothing fails; checkpoints are",
         ""},
        {"more than there are",
         {"capacity", "--model=tiny", "--cluster=dgx-h100:1", "--tokens=1B",
          "--global-batch-size=8", "--gpus=8,16", "~"},
         MCP_OK,
         "16: there are 8",
         ""},
        {"a mix",
         {"capacity", "--model=tiny", "--cluster=dgx-h100:1+dgx-a100:1", "--tokens=1B",
          "--global-batch-size=32", "--gpus=16,24", "--pipeline-rule=off", "~"},
         MCP_OK,
         "24: 24 GPUs are no multiple of 16",
         ""},
    };
    return cr_make_param_array(struct child_case, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct child_case *c, capacity_cli, answers)
{
    child_check(c, NULL);
}

static double number(struct mcp_json *object, const char *key)
{
    double value = (double)NAN;
    struct mcp_error err = {""};
    cr_assert(mcp_json_double(object, key, &value, &err) == MCP_OK, "%s", err.text);
    return value;
}

static struct mcp_json *parse(struct child *child)
{
    struct mcp_json *json;
    struct mcp_error err = {""};
    cr_assert(child->status == MCP_OK, "%s", child->err);
    cr_assert(mcp_json_parse(child->arena, "stdout", child->out, strlen(child->out), &json, &err) ==
                  MCP_OK,
              "%s", err.text);
    return json;
}

/* The facts agree with one another, and what is unknown is null. */
Test(capacity_cli, json_adds_up)
{
    struct child child = {.arena = mcp_arena_new()};
    char words[][WORD] = {"capacity",
                          "--model=llama-3.1-8b",
                          "--cluster=dgx-h100",
                          "--tokens=1T",
                          "--deadline=30",
                          "--global-batch-size=64",
                          "--gpus=32,64",
                          "--json",
                          "~"};
    struct mcp_json *rows;
    struct mcp_error err = {""};
    child_settle_environment();
    child_run(&child, words, NULL);
    struct mcp_json *json = parse(&child);
    const char *schema;
    cr_assert(mcp_json_string(json, "schema", &schema, &err) == MCP_OK);
    cr_expect(mcp_same(schema, "mcpplan.capacity/1"));
    cr_assert(mcp_json_array(json, "rows", &rows, &err) == MCP_OK && mcp_json_count(rows) == 2);
    for (size_t i = 0; i < 2; i++) {
        struct mcp_json *row = mcp_json_at(rows, i);
        double ettr = number(row, "ettr"), busy_s = number(row, "busy_s");
        double time_s = number(row, "time_s"), iteration_s = number(row, "iteration_s");
        cr_expect(fabs(busy_s - number(row, "steps") * iteration_s) <= 1e-9 * busy_s);
        cr_expect(fabs(time_s - busy_s / ettr) <= 1e-9 * time_s);
        cr_expect(number(row, "time_low_s") < time_s && time_s < number(row, "time_high_s"));
        cr_expect(fabs(number(row, "goodput") - number(row, "model_flops_utilization") * ettr) <
                  1e-12);
        cr_expect(number(row, "site_watts") == 2 * number(row, "device_watts"));
        cr_expect(!mcp_json_has(row, "price"));
    }
    mcp_arena_free(child.arena);
}

/* Same question, same bytes; and a file that holds what is printed. */
Test(capacity_cli, prints_the_same_twice)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct child once = {.arena = arena}, again = {.arena = arena};
    char words[][WORD] = {ASK, "--gpus=8..32", "--json", "~"};
    char more[][WORD] = {ASK, "--gpus=8..32", "--json", "~"};
    child_settle_environment();
    child_run(&once, words, NULL);
    child_run(&again, more, NULL);
    cr_expect(once.status == MCP_OK && strcmp(once.out, again.out) == 0);
    mcp_arena_free(arena);
}

/* Jobs files */

#define POOL "\"pools\":[{\"cluster\":\"dgx-h100\",\"num_nodes\":4}]"
#define JOB "{\"model\":\"tiny\",\"tokens\":\"1B\",\"global_batch_size\":8"
#define HEAD "{\"schema\":\"mcpplan.jobs/1\","

struct case_jobs {
    char file[320];
    struct child_case run;
};
ParameterizedTestParameters(capacity_cli, jobs)
{
    static struct case_jobs cases[] = {
        {HEAD POOL ",\"jobs\":[" JOB ",\"deadline\":\"30d\"}]}",
         {"one job", {"capacity", "--jobs=@", "~"}, MCP_OK, "1 of 1 jobs within 30.0 days", ""}},
        {HEAD POOL ",\"jobs\":[" JOB "}," JOB "}],\"horizon\":\"10d\",\"slots\":2}",
         {"two jobs", {"capacity", "--jobs=@", "~"}, MCP_OK, "2 of 2 jobs", ""}},
        {HEAD POOL ",\"jobs\":[" JOB ",\"deadline\":\"1s\"}]}",
         {"too late",
          {"capacity", "--jobs=@", "~"},
          MCP_INFEASIBLE,
          "left out",
          "meets its deadline on no size of any pool"}},
        {HEAD POOL ",\"jobs\":[" JOB "}]}",
         {"no end", {"capacity", "--jobs=@", "~"}, MCP_FORMAT, "", "needs a horizon"}},
        {HEAD POOL ",\"jobs\":[]}",
         {"no jobs", {"capacity", "--jobs=@", "~"}, MCP_FORMAT, "", "0 jobs; 1 to 32"}},
        {HEAD "\"jobs\":[" JOB "}]}",
         {"no pools", {"capacity", "--jobs=@", "~"}, MCP_FORMAT, "", "pools"}},
        {HEAD POOL ",\"jobs\":[" JOB ",\"dedline\":\"3d\"}]}",
         {"a misspelt key", {"capacity", "--jobs=@", "~"}, MCP_FORMAT, "", "deadline"}},
        {HEAD POOL ",\"jobs\":[" JOB ",\"weight\":0}],\"horizon\":\"9d\"}",
         {"no weight", {"capacity", "--jobs=@", "~"}, MCP_FORMAT, "", "weight=0"}},
        {HEAD POOL ",\"jobs\":[" JOB "}],\"horizon\":\"9d\",\"slots\":0}",
         {"no slots", {"capacity", "--jobs=@", "~"}, MCP_FORMAT, "", "slots=0 is not from 1"}},
        {HEAD "\"pools\":[{\"cluster\":\"dgx-h100+dgx-a100\",\"num_nodes\":4}],\"jobs\":[" JOB
              "}],\"horizon\":\"9d\"}",
         {"a mix as a pool", {"capacity", "--jobs=@", "~"}, MCP_FORMAT, "", "is a mix"}},
        {HEAD POOL ",\"jobs\":[{\"model\":\"tiny\",\"tokens\":0,\"global_batch_size\":8}],"
                   "\"horizon\":\"9d\"}",
         {"no tokens", {"capacity", "--jobs=@", "~"}, MCP_FORMAT, "", "tokens '0' is no number"}},
        {"{\"schema\":\"mcpplan.plan/1\"}",
         {"another schema", {"capacity", "--jobs=@", "~"}, MCP_FORMAT, "", "mcpplan.jobs/1"}},
    };
    return cr_make_param_array(struct case_jobs, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_jobs *c, capacity_cli, jobs)
{
    char path[TEMPORARY_PATH];
    child_write_file(path, c->file, strlen(c->file));
    for (size_t i = 0; c->run.words[i][0] != '~'; i++)
        if (strcmp(c->run.words[i], "--jobs=@") == 0)
            snprintf(c->run.words[i], WORD, "--jobs=%s", path);
    child_check(&c->run, path);
    remove(path);
}

/* One file of jobs, priced; the answer as JSON, and the file that --report wrote, which goes. */
static struct mcp_json *run_jobs(struct mcp_arena *arena, const char *suffix, const char **report)
{
    static const char file[] =
        HEAD "\"pools\":[{\"name\":\"a<b\",\"cluster\":\"dgx-h100\",\"num_nodes\":4,"
             "\"price_per_gpu_hour\":2}],\"jobs\":[" JOB ",\"name\":\"one\"}," JOB
             ",\"name\":\"a name with no room beside a bar\"}],\"horizon\":\"10d\",\"slots\":2,"
             "\"energy_price_per_kwh\":0.5}";
    char jobs[TEMPORARY_PATH], out[TEMPORARY_PATH];
    char words[][WORD] = {"capacity", "--jobs", "@", "--json", "--report", "", "~"};
    struct child child = {.arena = arena};
    struct mcp_text text;
    struct mcp_error err = {""};
    child_write_file(jobs, file, strlen(file));
    child_write_file(out, "", 0);
    snprintf(words[5], WORD, "%s%s", out, suffix);
    child_settle_environment();
    child_run(&child, words, jobs);
    struct mcp_json *json = parse(&child);
    cr_assert(mcp_file_read(arena, words[5], MCP_MAX_FILE_BYTES, &text, &err) == MCP_OK, "%s",
              err.text);
    *report = text.data;
    remove(jobs);
    remove(out);
    remove(words[5]);
    return json;
}

Test(capacity_cli, jobs_add_up)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *jobs, *pools;
    const char *report;
    struct mcp_json *json = run_jobs(arena, ".md", &report);
    cr_assert(mcp_json_array(json, "jobs", &jobs, &err) == MCP_OK && mcp_json_count(jobs) == 2);
    cr_assert(mcp_json_array(json, "pools", &pools, &err) == MCP_OK && mcp_json_count(pools) == 1);
    double energy_kwh = 0, node_s = 0;
    for (size_t i = 0; i < 2; i++) {
        struct mcp_json *job = mcp_json_at(jobs, i);
        double time_s = number(job, "time_s");
        energy_kwh += number(job, "energy_joules") / 3.6e6;
        node_s += (number(job, "nodes") + number(job, "spare_nodes")) * time_s;
        cr_expect(number(job, "start_s") + time_s <= number(job, "due_s"));
        cr_expect(number(job, "time_low_s") < time_s && time_s < number(job, "time_high_s"));
    }
    struct mcp_json *pool = mcp_json_at(pools, 0);
    double nodes = number(pool, "reserved_nodes"), price = number(pool, "price");
    cr_expect(fabs(price - nodes * 8 * 2 * 240) < 1e-6, "240 hours of 8 GPUs each at 2");
    cr_expect(fabs(number(json, "price") - price - 0.5 * energy_kwh) < 1e-6 * price);
    cr_expect(fabs(number(pool, "busy_frac") - node_s / (nodes * 864000)) < 1e-9);
    mcp_arena_free(arena);
}

/* Both kinds of report say what the JSON says. */
Test(capacity_cli, jobs_reports_say_what_the_json_says)
{
    static const char *const suffixes[] = {".md", ".html"};
    struct mcp_arena *arena = mcp_arena_new();
    for (size_t i = 0; i < MCP_COUNT_OF(suffixes); i++) {
        const char *report;
        struct mcp_json *json = run_jobs(arena, suffixes[i], &report);
        const char *facts[] = {"2 of 2 jobs within 10.0 days",
                               "a name with no room beside a bar",
                               "job 2",
                               "a&lt;b",
                               "energy costs 0.5 a kWh",
                               "419 unexpected of 466",
                               mcp_show_count(arena, number(json, "price"))};
        for (size_t k = 0; k < MCP_COUNT_OF(facts); k++)
            cr_expect(strstr(report, facts[k]) != NULL, "%s: '%s' is missing", suffixes[i],
                      facts[k]);
        cr_expect(strstr(report, "tiny") != NULL, "%s: the model is missing", suffixes[i]);
    }
    mcp_arena_free(arena);
}

Test(capacity_cli, jobs_left_out_leave_no_report)
{
    static const char file[] = HEAD POOL ",\"jobs\":[" JOB ",\"deadline\":\"1s\"}]}";
    char jobs[TEMPORARY_PATH], out[TEMPORARY_PATH];
    char words[][WORD] = {"capacity", "--jobs", "@", "--report", "", "~"};
    struct mcp_arena *arena = mcp_arena_new();
    struct child child = {.arena = arena};
    child_write_file(jobs, file, strlen(file));
    child_write_file(out, "", 0);
    snprintf(words[4], WORD, "%s.html", out);
    child_settle_environment();
    child_run(&child, words, jobs);
    cr_expect(child.status == MCP_INFEASIBLE, "%s", child.err);
    cr_expect(remove(words[4]) != 0, "a refusal leaves no file");
    remove(jobs);
    remove(out);
    mcp_arena_free(arena);
}
