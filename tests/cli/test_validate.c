/* tests/cli/test_validate.c: mcpplan validate as its users meet it: a table in; exit
 * code, text and JSON out.
 *
 * MCPPLAN names the program, by default build/release/mcpplan. The runs are
 * invented: what is tested is what becomes of a row, not how good a prediction is. */
#include "core/json.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COLUMNS                                                                                    \
    "id,source,gpu,gpus,model,layers,hidden,heads,kv_heads,ffn_hidden,vocab,seq,tp,cp,pp,vpp,dp,"  \
    "mbs,gbs,recompute,precision,attention,iteration_time_s,complete,trust\n"
#define MODEL "H100-SXM-80GB,8,Llama,32,4096,32,8,14336,128256,8192,"
static const char runs_table[] =
    COLUMNS "one,invented," MODEL "1,1,1,1,8,1,64,none,bf16,fused,6.0,1,A\n"
            "two,invented," MODEL "2,1,1,1,4,1,64,none,bf16,fused,6.2,1,A\n"
            "three,invented," MODEL "4,1,1,1,2,1,64,none,bf16,fused,6.9,1,A\n"
            "lost,invented," MODEL "4,1,1,1,2,,64,none,bf16,fused,6.9,0,B\n"
            "timeless,invented," MODEL "8,1,1,1,1,1,64,none,bf16,fused,,0,B\n";
static const char memory_table[] =
    "id,source,gpu,gpus,model,layers,hidden,heads,kv_heads,ffn_hidden,vocab,seq,tp,cp,pp,vpp,dp,"
    "mbs,gbs,recompute,precision,attention,rank_or_stage,quantity,value,unit\n"
    "m1,invented," MODEL "2,1,1,1,4,1,64,none,bf16,fused,rank 3,max_allocated,60,GiB\n"
    "m2,invented," MODEL "2,1,1,1,4,1,64,none,bf16,fused,,room temperature,20,C\n";

struct run {
    int status;
    char *out;
};

/* Writes `table` to a file of its own and runs validate on it; stderr joins stdout. */
static struct run validate(struct mcp_arena *arena, const char *table, const char *options)
{
    char path[] = "/tmp/mcpplan-validate-XXXXXX";
    const char *program = getenv("MCPPLAN");
    const int file = mkstemp(path);
    cr_assert(file >= 0);
    cr_assert(eq(sz, (size_t)write(file, table, strlen(table)), strlen(table)));
    close(file);
    FILE *pipe = popen(mcp_format(arena, "%s validate %s %s 2>&1",
                                  program ? program : "build/release/mcpplan", path, options),
                       "r");
    cr_assert(ne(ptr, pipe, NULL));
    struct mcp_text text = mcp_text_new(arena);
    char block[4096];
    size_t got;
    while ((got = fread(block, 1, sizeof block, pipe)) > 0)
        mcp_text_append(&text, block, got);
    const int status = pclose(pipe);
    unlink(path);
    return (struct run){WIFEXITED(status) ? WEXITSTATUS(status) : -1, text.data};
}

struct case_validate {
    char name[48];
    char table[8]; /* runs, memory, or the text itself */
    char options[64];
    int status;
    char says[80];
};

ParameterizedTestParameters(validate, answers)
{
    static struct case_validate cases[] = {
        {"errors come first", "runs", "", 0, "3 of 5 rows predicted and compared"},
        {"a lost row has its reason", "runs", "", 0, "mbs is not stated"},
        {"layouts are ranked", "runs", "", 0, "Kendall tau"},
        {"fitted numbers are counted", "runs", "", 0, "fitted numbers: "},
        {"a limit that holds", "runs", "--max-mean-error 1", 0, "predicted and compared"},
        {"a limit that does not", "runs", "--max-mean-error 0", 1, "exceeds the limit"},
        {"the median's limit", "runs", "--max-median-error 0", 1, "the median error"},
        {"no such source", "runs", "--source elsewhere", 5,
         "no row whose source contains elsewhere"},
        {"readings of memory", "memory", "", 0, "1 of 2 memory readings predicted and compared"},
        {"an unknown quantity", "memory", "", 0, "\"room temperature\" is not modelled"},
        {"not a table of runs", "a,b\n", "", 4, "no column \"id\""},
    };
    return cr_make_param_array(struct case_validate, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_validate *c, validate, answers)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *table = strcmp(c->table, "runs") == 0     ? runs_table
                        : strcmp(c->table, "memory") == 0 ? memory_table
                                                          : c->table;
    const struct run run = validate(arena, table, c->options);
    cr_expect(eq(int, run.status, c->status), "%s: %s", c->name, run.out);
    cr_expect(ne(ptr, strstr(run.out, c->says), NULL), "%s: %s", c->name, run.out);
    mcp_arena_free(arena);
}

/* The rows are three layouts of one question: their mean and their ranking follow. */
static void check_summary(struct mcp_json *rows, struct mcp_json *summary, struct mcp_json *group)
{
    struct mcp_error err = {{0}};
    double measured[3], predicted[3], error, sum = 0, tau = 0, got;
    for (size_t i = 0; i < 3; i++) {
        struct mcp_json *row = mcp_json_at(rows, i);
        cr_assert(
            eq(int, (int)mcp_json_double(row, "measured_iteration_s", &measured[i], &err), 0));
        cr_assert(
            eq(int, (int)mcp_json_double(row, "predicted_iteration_s", &predicted[i], &err), 0));
        cr_assert(eq(int, (int)mcp_json_double(row, "error_frac", &error, &err), 0));
        cr_expect(epsilon_eq(dbl, error, predicted[i] / measured[i] - 1, 1e-12));
        sum += fabs(error);
        for (size_t j = 0; j < i; j++)
            tau += (measured[i] < measured[j]) == (predicted[i] < predicted[j]) ? 1 : -1;
    }
    cr_assert(eq(int, (int)mcp_json_double(summary, "mean_abs_error_frac", &got, &err), 0));
    cr_expect(epsilon_eq(dbl, got, sum / 3, 1e-12));
    cr_assert(eq(int, (int)mcp_json_double(group, "kendall_tau", &got, &err), 0));
    cr_expect(epsilon_eq(dbl, got, tau / 3, 1e-12));
}

Test(validate, json_has_every_row_once)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct run run = validate(arena, runs_table, "--json");
    struct mcp_json *json, *rows, *refused, *summary, *groups;
    struct mcp_error err = {{0}};
    cr_assert(eq(int, run.status, 0));
    cr_assert(
        eq(int, (int)mcp_json_parse(arena, "answer", run.out, strlen(run.out), &json, &err), 0),
        "%s", err.text);
    cr_assert(eq(int, (int)mcp_json_array(json, "rows", &rows, &err), 0));
    cr_assert(eq(int, (int)mcp_json_array(json, "refused", &refused, &err), 0));
    cr_assert(eq(int, (int)mcp_json_object(json, "summary", &summary, &err), 0));
    cr_assert(eq(int, (int)mcp_json_array(summary, "groups", &groups, &err), 0));
    cr_expect(eq(sz, mcp_json_count(rows), 3));
    cr_expect(eq(sz, mcp_json_count(refused), 2));
    cr_expect(eq(sz, mcp_json_count(groups), 1));
    check_summary(rows, summary, mcp_json_at(groups, 0));
    mcp_arena_free(arena);
}
