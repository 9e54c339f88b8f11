/* tests/cli/test_rooflines.c: mcpplan-exec-cuda --rooflines on a fake GPU: every op of a program is
 * timed, and what is wrong is said. Times mean nothing there. */
#include "core/arena.h"
#include "core/json.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const char *program_path(void)
{
    const char *given = getenv("MCPPLAN");
    return given != NULL ? given : "build/release/mcpplan";
}

struct run {
    struct mcp_arena *arena;
    const char *folder;
    int status;
};

/* $p plans, $e is the executor, $d a folder with a model. */
static void run(struct run *run, const char *commands)
{
    const char *program = program_path(), *slash = strrchr(program, '/');
    cr_assert(slash != NULL);
    int status = system(mcp_format(
        run->arena,
        "d=%s; p=%s; e=%.*s/tests/cuda/executor; small='--product-size 16 --copy-bytes 4096 "
        "--flush-bytes 4096'; export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; "
        "{ sed s/200,/300,/ tests/exec/models/gpt2-tiny.json > $d/model.json; %s; } > $d/out "
        "2> $d/said",
        run->folder, program, (int)(slash - program), program, commands));
    run->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static struct run begin(void)
{
    struct run run = {.arena = mcp_arena_new()};
    char *folder = mcp_strdup(run.arena, "/tmp/mcpplan-rooflines-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    run.folder = folder;
    return run;
}

static void end(struct run *run)
{
    cr_expect(eq(int, system(mcp_format(run->arena, "rm -r %s", run->folder)), 0));
    mcp_arena_free(run->arena);
}

static const char *text_of(const struct run *run, const char *name)
{
    struct mcp_text text = mcp_text_new(run->arena);
    mcp_file_read(run->arena, mcp_format(run->arena, "%s/%s", run->folder, name), 1 << 20, &text,
                  NULL);
    return text.data;
}

#define PLAN                                                                                       \
    "$p plan --model $d/model.json --cluster dgx-h100 --global-batch-size 4 --sequence-length 16 " \
    "--stack mcpplan-cuda --dump-program $d/step.json > $d/planned "

/* Of two microbatches: what runs in each is launched twice as often as what runs in a step. */
Test(rooflines_cuda, every_op_of_a_step_is_timed)
{
    static const char *const functions[] = {"matmul_nt",
                                            "matmul_nn",
                                            "matmul_tn_accumulate",
                                            "attention_forward",
                                            "attention_backward",
                                            "norm_forward",
                                            "norm_backward",
                                            "gelu_forward",
                                            "residual_forward",
                                            "embedding_forward",
                                            "embedding_backward",
                                            "loss_forward",
                                            "loss_backward",
                                            "sum_squares",
                                            "adam",
                                            "zero"};
    struct run r = begin();
    struct mcp_error err = {""};
    struct mcp_json *json, *list;
    run(&r, PLAN "--gpus 1 --microbatch-size 2 && $e --rooflines --program $d/step.json --output "
                 "$d/rooflines.json --repeats 2 $small");
    cr_assert(eq(int, r.status, 0), "%s", text_of(&r, "said"));
    const char *table = text_of(&r, "out");
    for (size_t i = 0; i < MCP_COUNT_OF(functions); i++)
        cr_expect(strstr(table, mcp_format(r.arena, "\n  %s ", functions[i])) != NULL,
                  "no %s in %s", functions[i], table);
    cr_assert(mcp_json_read(r.arena, mcp_format(r.arena, "%s/rooflines.json", r.folder), &json,
                            &err) == MCP_OK,
              "%s", err.text);
    cr_assert(mcp_json_array(json, "ops", &list, &err) == MCP_OK, "%s", err.text);
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        struct mcp_json *op = mcp_json_at(list, i);
        const char *name;
        int launches;
        double least_s, median_s;
        cr_assert(mcp_json_string(op, "function", &name, &err) == MCP_OK);
        cr_assert(mcp_json_int(op, "launches", &launches, &err) == MCP_OK);
        cr_assert(mcp_json_double(op, "min_s", &least_s, &err) == MCP_OK);
        cr_assert(mcp_json_double(op, "median_s", &median_s, &err) == MCP_OK);
        cr_expect(least_s > 0 && median_s >= least_s, "%s: %g, %g s", name, least_s, median_s);
        if (mcp_same(name, "attention_forward"))
            cr_expect(eq(int, launches, 4 * 2)); /* layers, microbatches */
        if (mcp_same(name, "loss_forward"))
            cr_expect(eq(int, launches, 2));
    }
    end(&r);
}

struct fault_case {
    char name[40];
    char command[384];
    int status;
    char says[96];
};

ParameterizedTestParameters(rooflines_cuda, faults)
{
    static struct fault_case cases[] = {
        {"no program", "$e --rooflines", 2, "--program is needed"},
        {"an unknown option", "$e --rooflines --programm x", 2, "no option '--programm'"},
        {"no value", "$e --rooflines --program", 2, "--program needs a value"},
        {"no repeats", "$e --rooflines --repeats 0 --program x", 2, "--repeats 0: not a number"},
        {"a size that is none", "$e --rooflines --product-size 1e9 --program x", 2,
         "--product-size 1e9: not a number"},
        {"no such file", "$e --rooflines --program $d/none", 3, "none"},
        {"nowhere to write", "$e --rooflines --program x --output $d/none/x", 3, "none/x"},
        {"two ranks", PLAN "--gpus 2 && $e --rooflines --program $d/step.json", 5,
         "the program is for 2 ranks: plan with --gpus 1"},
        {"more than the device has",
         PLAN "--gpus 1 && $e --rooflines --program $d/step.json --copy-bytes 2000000000", 7,
         "bytes free, and 2000000000 more are needed"},
    };
    return cr_make_param_array(struct fault_case, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct fault_case *c, rooflines_cuda, faults)
{
    struct run r = begin();
    run(&r, c->command);
    const char *said = text_of(&r, "said");
    cr_expect(eq(int, r.status, c->status), "%s: %s", c->name, said);
    cr_expect(strstr(said, "mcpplan-exec-cuda: ") != NULL, "%s: %s", c->name, said);
    cr_expect(strstr(said, c->says) != NULL, "%s: %s", c->name, said);
    end(&r);
}
