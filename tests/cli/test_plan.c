/* tests/cli/test_plan.c: mcpplan plan as its users meet it: options, exit codes,
 * sentences, plan.json. */
#include "core/arena.h"
#include "core/cluster.h"
#include "core/json.h"
#include "core/plan.h"
#include "core/stack.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* stdout of "mcpplan plan OPTIONS", stderr too when `both`. */
static char *plan(struct mcp_arena *arena, const char *options, bool both, int *status)
{
    const char *program = getenv("MCPPLAN");
    struct mcp_text out = mcp_text_new(arena);
    char block[4096];
    size_t got;
    FILE *pipe = popen(mcp_format(arena, "LC_ALL=C COLUMNS=100 %s plan %s 2>%s </dev/null",
                                  program ? program : "build/release/mcpplan", options,
                                  both ? "&1" : "/dev/null"),
                       "r");
    cr_assert(pipe != NULL);
    mcp_text_append(&out, "", 0);
    while ((got = fread(block, 1, sizeof block, pipe)) > 0)
        mcp_text_append(&out, block, got);
    int wait_status = pclose(pipe);
    *status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128;
    return out.data;
}

struct case_says {
    char name[48];
    char options[200];
    int status;
    char says[3][80];
};
ParameterizedTestParameters(plan, says)
{
    static struct case_says cases[] = {
        {"a search",
         "--model llama-3.1-8b --cluster dgx-h100 --global-batch-size 64",
         0,
         {"an iteration", "proven best of ", "candidates however layers are split"}},
        {"no model", "--cluster dgx-h100 --global-batch-size 64", 2, {"plan needs --model"}},
        {"no batch", "--model gpt2 --cluster dgx-h100", 2, {"plan needs --global-batch-size"}},
        {"degree 0",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 8 --tensor-parallel 0",
         2,
         {"tensor-parallel"}},
        {"degree 2^31",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 8 --tensor-parallel 2147483648",
         2,
         {"tensor-parallel"}},
        {"degree 2^31 - 1",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 8 --virtual-stages 2147483647",
         5,
         {"virtual_stages=2147483647", "exceeds num_layers=12"}},
        {"world not divisible",
         "--model llama-3.1-8b --cluster dgx-h100:2 --global-batch-size 64 --tensor-parallel 3",
         5,
         {"tensor_parallel=3 does not divide 16 GPUs (16 = 3 x 5 + 1)", "nearest: 2 and 4"}},
        {"degrees that are too many together",
         "--model llama-3.1-8b --cluster dgx-h100:2 --global-batch-size 64 --tensor-parallel 8 "
         "--pipeline-parallel 4",
         5,
         {"= 32 does not divide 16 GPUs", "nearest number of GPUs is 32"}},
        {"batch not divisible",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 12 --data-parallel 8",
         5,
         {"data_parallel=8 does not divide global_batch_size=12", "16"}},
        {"a microbatch that no replica can have",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 9 --microbatch-size 2",
         5,
         {"microbatch_size=2 does not divide global_batch_size=9", "nearest: 1 and 3"}},
        {"more stages than layers",
         "--model llama-3.1-8b --cluster dgx-h100:8 --global-batch-size 64 --pipeline-parallel 64",
         5,
         {"pipeline_parallel=64", "exceeds num_layers=32", "nearest legal pipeline_parallel=32"}},
        {"more GPUs than the named nodes have",
         "--model gpt2 --cluster dgx-h100:2 --global-batch-size 64 --gpus 24",
         5,
         {"24 GPUs", "16"}},
        {"as many nodes as the GPUs need",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 64 --gpus 16",
         0,
         {"2 nodes of dgx-h100", "on 16 x"}},
        {"too large",
         "--model llama-3.1-405b --cluster dgx-h100 --global-batch-size 64",
         6,
         {"no plan: the smallest plan needs", "GiB more than", "- gpus=128 instead of 8: "}},
        {"everything pinned that does not fit is predicted",
         "--model llama-3.1-405b --cluster dgx-h100 --global-batch-size 64 --tensor-parallel 8 "
         "--microbatch-size 1 --zero-stage 0 --recompute full",
         0,
         {"does not fit:", "GiB too much", "Where the time goes"}},
        {"sizes that 8 bits do not have",
         "--model gpt2 --cluster dgx-h100 --gpus 1 --stack mcpplan-cuda --precision fp8 "
         "--global-batch-size 1 --sequence-length 1000",
         0,
         {"multiplied in 8 bits: 0 % of the products' FLOPs", "no multiple of 16"}},
        {"the article's rule of thumb",
         "--model article-34b --cluster dgx-a100:8 --global-batch-size 1024 --method rule",
         6,
         {"96 ranks, the cluster has 64 GPUs",
          "tensor_parallel=6 does not divide num_attention_heads", "data = floor(64 / 96)"}},
        {"a rule of thumb that is legal",
         "--model gpt2 --cluster pcie-box --global-batch-size 4 --method rule",
         0,
         {"context = pipeline = ceil(sqrt(4 / 1)) = 2", "context 2 x pipeline 2"}},
        {"degrees and the rule of thumb",
         "--model article-34b --cluster dgx-a100:8 --global-batch-size 1024 --method rule "
         "--tensor-parallel 8",
         2,
         {"--method rule chooses tensor_parallel itself"}},
        {"a program on the standard output",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 8 --dump-program -",
         2,
         {"--dump-program needs a file's name"}},
        {"learned positions end",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 8 --sequence-length 2048",
         5,
         {"sequence_length=2048 exceeds the 1024 learned positions"}},
        {"a pinned degree lifts its rule with a note",
         "--model llama-3.1-8b --cluster dgx-h100 --global-batch-size 64 --pipeline-parallel 8 "
         "--tensor-parallel 1",
         0,
         {"note: pipeline_parallel=8 is pinned"}},
        {"uniform stages",
         "--model llama-3.1-70b --cluster dgx-h100:4 --global-batch-size 64 --uniform-stages",
         0,
         {"proven best of ", "with layers spread evenly, all with one recompute"}},
        {"a requirement narrows the space",
         "--model llama-3.1-8b --cluster dgx-h100 --global-batch-size 64 --require "
         "'data_parallel<=2' --require 'pipeline_parallel=1'",
         0,
         {"required: data_parallel<=2, pipeline_parallel=1", "an iteration"}},
        {"a requirement that is none",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 8 --require 'pipelin_parallel<=2'",
         2,
         {"nothing is called \"pipelin_parallel\"; did you mean pipeline_parallel?"}},
        {"a requirement that only a price can judge",
         "--model llama-3.1-8b --cluster dgx-h100 --global-batch-size 64 --require "
         "'peak_memory_frac<=0.5' --require 'recomputed_stages<=0'",
         0,
         {"recompute none", "candidates that meet what is required", "fits:"}},
        {"requirements that no plan meets",
         "--model llama-3.1-8b --cluster dgx-h100 --global-batch-size 64 --require "
         "'num_microbatches>=100' --require 'tensor_parallel in 1,8'",
         6,
         {"everything that is required", "without num_microbatches>=100", "required"}},
        {"requirements that leave nothing",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 8 --tensor-parallel 1..2 --require "
         "'tensor_parallel>=4'",
         5,
         {"tensor_parallel>=4 contradicts the bounds 1..2"}},
        {"what saves memory",
         "--model llama-3.1-70b --cluster dgx-h100:8 --global-batch-size 512 --memory-waterfall",
         0,
         {"What saves memory here", "+ full recompute", "+ ZeRO 3 weights"}},
        {"what would change it",
         "--model llama-3.1-8b --cluster dgx-h100 --global-batch-size 64 --sensitivity",
         0,
         {"all links twice as fast", "memory +20 %", "twice the devices"}},
        {"against a file that is not there",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 8 --against nowhere.json",
         3,
         {"nowhere.json"}},
        {"how much more memory would do",
         "--model llama-3.1-70b --cluster dgx-h100 --global-batch-size 64",
         6,
         {"GiB more memory on each device:", "What would change that, each found by a search"}},
        {"an unknown schedule",
         "--model gpt2 --cluster dgx-h100 --global-batch-size 8 --schedule 1f2b",
         2,
         {"1f1b"}},
        {"a precision the GPU lacks",
         "--model gpt2 --cluster dgx-a100 --global-batch-size 8 --precision fp8",
         5,
         {"has no known rate in precision fp8"}},
    };
    return cr_make_param_array(struct case_says, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_says *c, plan, says)
{
    struct mcp_arena *arena = mcp_arena_new();
    int status;
    const char *out = plan(arena, c->options, true, &status);
    cr_expect(eq(int, status, c->status), "%s: %s", c->name, out);
    for (int i = 0; i < 3; i++)
        cr_expect(strstr(out, c->says[i]) != NULL, "%s: no \"%s\" in: %s", c->name, c->says[i],
                  out);
    mcp_arena_free(arena);
}

static struct mcp_json *parse(struct mcp_arena *arena, const char *text)
{
    struct mcp_json *json;
    struct mcp_error err;
    cr_assert(mcp_json_parse(arena, "stdout", text, strlen(text), &json, &err) == MCP_OK, "%s",
              err.text);
    return json;
}

static struct mcp_json *member(struct mcp_json *json, const char *key)
{
    struct mcp_json *object;
    struct mcp_error err;
    cr_assert(mcp_json_object(json, key, &object, &err) == MCP_OK, "%s", err.text);
    return object;
}

/* All of a plan's inputs come back from its file: nothing else is needed. */
Test(plan, json_is_complete)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_plan read;
    struct mcp_error err;
    int status;
    struct mcp_json *json =
        parse(arena, plan(arena,
                          "--model mixtral-8x7b --cluster dgx-h100:2 --global-batch-size 64 "
                          "--json",
                          false, &status));
    cr_assert(eq(int, status, 0));
    cr_expect(mcp_model_from_json(arena, member(json, "model"), &model, &err) == MCP_OK, "%s",
              err.text);
    cr_expect(mcp_cluster_from_json(arena, member(json, "cluster"), &cluster, &err) == MCP_OK, "%s",
              err.text);
    cr_expect(mcp_job_from_json(arena, member(json, "job"), &job, &err) == MCP_OK, "%s", err.text);
    cr_expect(mcp_stack_from_json(arena, member(json, "stack"), &stack, &err) == MCP_OK, "%s",
              err.text);
    cr_assert(mcp_plan_from_json(arena, json, &read, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(int, mcp_plan_world(&read), 16));
    cr_expect(eq(int, mcp_cluster_gpus(&cluster), 16));
    cr_expect(eq(i64, job.global_batch_size, 64));
    cr_expect(eq(int, model.num_layers, 32));
    mcp_arena_free(arena);
}

/* Two kinds of machines: each alone beside both together. */
Test(plan, mixed_in_json)
{
    struct mcp_arena *arena = mcp_arena_new();
    int status;
    struct mcp_json *json =
        parse(arena, plan(arena,
                          "--model llama-3.1-8b --cluster dgx-a100:1+dgx-h100:1 "
                          "--global-batch-size 64 --top 1 --json",
                          false, &status));
    struct mcp_json *mixed = member(member(json, "search"), "mixed"), *parts;
    struct mcp_error err;
    const char *text;
    cr_assert(mcp_json_string(mixed, "text", &text, &err) == MCP_OK);
    cr_expect(strstr(text, "1 node of dgx-h100 alone takes") != NULL, "%s", text);
    cr_assert(mcp_json_array(mixed, "parts", &parts, &err) == MCP_OK);
    cr_assert(eq(sz, mcp_json_count(parts), 2));
    double together, alone;
    cr_assert(mcp_json_double(member(json, "predicted"), "iteration_s", &together, &err) == MCP_OK);
    for (size_t i = 0; i < 2; i++) {
        struct mcp_json *part = mcp_json_at(parts, i);
        int gpus;
        cr_assert(mcp_json_int(part, "gpus", &gpus, &err) == MCP_OK);
        cr_expect(eq(int, gpus, 8));
        cr_assert(mcp_json_double(member(part, "best"), "iteration_s", &alone, &err) == MCP_OK);
        cr_expect(gt(dbl, alone, together));
    }
    mcp_arena_free(arena);
}

Test(plan, search_record_adds_up)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err;
    int64_t candidates, bounded, priced, fitting, sum = 0;
    bool proven = false;
    int status;
    struct mcp_json *search = member(
        parse(arena, plan(arena,
                          "--model llama-3.1-70b --cluster dgx-h100:8 --global-batch-size 96 "
                          "--json",
                          false, &status)),
        "search");
    struct mcp_json *refused = member(search, "refused");
    cr_assert(mcp_json_int64(search, "candidates", &candidates, &err) == MCP_OK);
    cr_assert(mcp_json_int64(search, "bounded", &bounded, &err) == MCP_OK);
    cr_assert(mcp_json_int64(search, "priced", &priced, &err) == MCP_OK);
    cr_assert(mcp_json_bool(search, "proven_optimal", &proven, &err) == MCP_OK);
    cr_assert(mcp_json_int64(search, "fitting", &fitting, &err) == MCP_OK);
    for (size_t i = 0; i < mcp_json_count(refused); i++) {
        int count;
        const char *rule;
        mcp_json_member(refused, i, &rule);
        cr_assert(mcp_json_int(refused, rule, &count, &err) == MCP_OK);
        sum += count;
    }
    struct mcp_json *refuted = member(search, "refuted"), *rules;
    int memory, by_memory = 0;
    cr_assert(mcp_json_int(refused, "memory", &memory, &err) == MCP_OK);
    for (size_t i = 0; i < mcp_json_count(refuted); i++) {
        int count;
        const char *part;
        mcp_json_member(refuted, i, &part);
        cr_assert(mcp_json_int(refuted, part, &count, &err) == MCP_OK);
        by_memory += count;
    }
    cr_expect(by_memory > 0 && by_memory <= memory);
    cr_assert(mcp_json_array(search, "rules", &rules, &err) == MCP_OK);
    cr_assert(mcp_json_count(rules) > 0);
    cr_expect(gt(sz, mcp_json_count(member(mcp_json_at(rules, 0), "best_refused")), 2));
    bool interrupted = true;
    cr_assert(mcp_json_bool(search, "interrupted", &interrupted, &err) == MCP_OK);
    cr_expect(not(interrupted));
    cr_expect(eq(i64, candidates, sum + bounded + fitting));
    cr_expect(lt(i64, fitting, priced));
    cr_expect(proven);
    mcp_arena_free(arena);
}

/* The same question gives the same bytes, on stdout and with -o. */
Test(plan, same_bytes)
{
    static const char question[] =
        "--model llama-3.1-8b --cluster dgx-h100:2 --global-batch-size 64";
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text file;
    struct mcp_error err;
    char path[] = "/tmp/mcpplan-test-XXXXXX";
    int status, descriptor = mkstemp(path);
    cr_assert(descriptor >= 0);
    close(descriptor);
    const char *first = plan(arena, mcp_format(arena, "%s --json", question), false, &status);
    const char *again =
        plan(arena, mcp_format(arena, "%s --json -o %s", question, path), false, &status);
    cr_expect(eq(int, status, 0));
    cr_expect(mcp_same(first, again));
    cr_assert(mcp_file_read(arena, path, MCP_MAX_FILE_BYTES, &file, &err) == MCP_OK, "%s",
              err.text);
    cr_expect(mcp_same(file.data, first));
    unlink(path);
    mcp_arena_free(arena);
}

/* The article's own example, to the byte, up to what a search finds instead. */
Test(plan, rule_golden)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text golden;
    struct mcp_error err;
    int status;
    const char *out = plan(arena,
                           "--model article-34b --cluster dgx-a100:8 --global-batch-size "
                           "1024 --method rule",
                           false, &status);
    cr_assert(mcp_file_read(arena, "tests/cli/golden/plan_rule_34b.txt", MCP_MAX_FILE_BYTES,
                            &golden, &err) == MCP_OK,
              "%s", err.text);
    cr_expect(mcp_starts_with(out, golden.data), "%s", out);
    cr_expect(strstr(out, "method=search instead of rule: ") != NULL);
    mcp_arena_free(arena);
}

/* A plan held against itself loses nothing; against another, what it loses adds up. */
Test(plan, against)
{
    static const char question[] = "--model llama-3.1-8b --cluster dgx-h100 --global-batch-size 64";
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *list;
    char path[] = "/tmp/mcpplan-test-XXXXXX";
    int status, descriptor = mkstemp(path);
    cr_assert(descriptor >= 0);
    close(descriptor);
    plan(arena,
         mcp_format(arena, "%s --tensor-parallel 8 --microbatch-size 1 --zero-stage 0 -o %s",
                    question, path),
         false, &status);
    cr_assert(eq(int, status, 0));
    const char *out =
        plan(arena, mcp_format(arena, "%s --against %s", question, path), false, &status);
    cr_expect(strstr(out, "slower than this plan") != NULL, "%s", out);
    cr_expect(strstr(out, "+ tensor") != NULL, "%s", out);
    struct mcp_json *json =
        parse(arena, plan(arena, mcp_format(arena, "%s --json --against %s", question, path), false,
                          &status));
    cr_assert(mcp_json_array(json, "against", &list, &err) == MCP_OK, "%s", err.text);
    struct mcp_json *difference = member(mcp_json_at(list, 0), "difference");
    struct mcp_json *cost = member(difference, "cost_ns");
    double whole = 0, sum = 0;
    cr_assert(mcp_json_double(difference, "iteration_ns", &whole, &err) == MCP_OK, "%s", err.text);
    for (size_t i = 0; i < mcp_json_count(cost); i++) {
        const char *name;
        double part = 0;
        cr_assert(mcp_json_as_double(mcp_json_member(cost, i, &name), &part, &err) == MCP_OK);
        sum += part;
    }
    cr_expect(gt(dbl, whole, 0));
    cr_expect(eq(dbl, sum, whole));
    out = plan(arena,
               mcp_format(arena,
                          "%s --tensor-parallel 8 --microbatch-size 1 --zero-stage 0 "
                          "--against %s",
                          question, path),
               false, &status);
    cr_expect(strstr(out, "as fast as this plan") != NULL, "%s", out);
    unlink(path);
    mcp_arena_free(arena);
}

/* A plan for other machines is refused with the rules it breaks, and that is an answer. */
Test(plan, against_what_is_refused)
{
    struct mcp_arena *arena = mcp_arena_new();
    char path[] = "/tmp/mcpplan-test-XXXXXX";
    int status, descriptor = mkstemp(path);
    cr_assert(descriptor >= 0);
    close(descriptor);
    plan(arena,
         mcp_format(arena,
                    "--model llama-3.1-70b --cluster dgx-h100:4 --global-batch-size 64 -o %s",
                    path),
         false, &status);
    const char *out = plan(
        arena,
        mcp_format(arena,
                   "--model llama-3.1-8b --cluster dgx-h100 --global-batch-size 64 --against %s",
                   path),
        false, &status);
    cr_expect(eq(int, status, 0));
    cr_expect(strstr(out, "refused: ") != NULL, "%s", out);
    cr_expect(strstr(out, "world_equals_gpus") != NULL, "%s", out);
    cr_expect(strstr(out, "made for llama-3.1-70b, batch 64 x 4,096 tokens") != NULL, "%s", out);
    unlink(path);
    mcp_arena_free(arena);
}

/* A refused question is answered in JSON too, and writes no file. */
Test(plan, refusals_in_json)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_json *list;
    struct mcp_error err;
    bool world = false, heads = false;
    int status;
    struct mcp_json *json =
        parse(arena, plan(arena,
                          "--model article-34b --cluster dgx-a100:8 --global-batch-size 1024 "
                          "--method rule --json -o /nonexistent/plan.json",
                          false, &status));
    cr_expect(eq(int, status, 6));
    cr_assert(mcp_json_array(json, "refusals", &list, &err) == MCP_OK);
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        const char *rule;
        cr_assert(mcp_json_string(mcp_json_at(list, i), "rule", &rule, &err) == MCP_OK);
        world |= mcp_same(rule, "world_equals_gpus");
        heads |= mcp_same(rule, "tensor_parallel_divides_heads");
    }
    cr_expect(world);
    cr_expect(heads);
    cr_expect(not(mcp_json_has(json, "predicted")));
    mcp_arena_free(arena);
}

/* How much of it is in 8 bits, for machines too; of other plans nothing. */
Test(plan, json_tells_the_share_of_8_bits)
{
    static const char *const precisions[] = {"fp8", "bf16"};
    for (int i = 0; i < 2; i++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct mcp_error err;
        int status;
        double frac = 0;
        struct mcp_json *json =
            parse(arena, plan(arena,
                              mcp_format(arena,
                                         "--model gpt2 --cluster dgx-h100 --gpus 2 --stack "
                                         "mcpplan-cuda --global-batch-size 8 --json --precision %s",
                                         precisions[i]),
                              false, &status));
        struct mcp_json *predicted = member(json, "predicted");
        cr_expect(eq(int, status, 0));
        cr_assert(eq(int, mcp_json_has(predicted, "cast_flops_frac"), i == 0));
        if (i == 0)
            cr_assert(mcp_json_double(predicted, "cast_flops_frac", &frac, &err) == MCP_OK);
        cr_expect(eq(int, frac > 0.6 && frac < 0.8, i == 0), "%g", frac);
        mcp_arena_free(arena);
    }
}
