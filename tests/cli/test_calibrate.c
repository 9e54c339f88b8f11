/* tests/cli/test_calibrate.c: what calibrate measures, what it makes of it, and plans by it. */
#include "core/calibration_file.h"
#include "core/text.h"
#include "tests/cli/child.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

ParameterizedTestParameters(calibrate, options)
{
    static struct child_case cases[] = {
        {"more ranks than cores", {"calibrate", "--ranks=99999", "~"}, MCP_USAGE, "", "cores"},
        {"no such model", {"calibrate", "--model=no", "~"}, MCP_IO, "", "no"},
        {"nowhere to write", {"calibrate", "-o", "none/c.json", "~"}, MCP_IO, "", "none/c.json"},
        {"no tokens",
         {"calibrate", "--model=tiny", "--ranks=1", "--global-batch-size=1", "--sequence-length=0",
          "~"},
         MCP_USAGE,
         "",
         "sequence-length"},
        {"cores of another machine",
         {"calibrate", "--cluster=dgx-h200", "~"},
         MCP_USAGE,
         "",
         "it goes with --backend cuda"},
        {"GPUs of several machines",
         {"calibrate", "--backend=cuda", "--cluster=dgx-h200:2", "~"},
         MCP_INVALID,
         "",
         "it has 16 GPUs on several machines"},
        {"more ranks than GPUs",
         {"calibrate", "--backend=cuda", "--cluster=dgx-h200", "--ranks=9", "~"},
         MCP_USAGE,
         "",
         "this machine has 8 GPUs"},
        {"a precision that the GPU lacks",
         {"calibrate", "--backend=cuda", "--cluster=dgx-v100", "~"},
         MCP_INVALID,
         "",
         "--precision bf16: v100-sxm3-32gb has no rate for it"},
        {"calibration of another machine",
         {"plan", "--model=tiny", "--cluster=dgx-a100", "--global-batch-size=8",
          "--calibration=x.json", "~"},
         MCP_USAGE,
         "",
         "--cluster this"},
        {"a calibration that is none",
         {"plan", "--model=tiny", "--cluster=this", "--global-batch-size=8",
          "--calibration=models/tiny.json", "~"},
         MCP_FORMAT,
         "",
         "mcpplan.calibration/1"},
    };
    return cr_make_param_array(struct child_case, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct child_case *c, calibrate, options)
{
    child_check(c, NULL);
}

static double answer(struct mcp_arena *arena, const char *calibration, const char *method)
{
    char words[MAX_WORDS][WORD] = {"plan",
                                   "--model=tiny",
                                   "--cluster=this",
                                   "--global-batch-size=8",
                                   "--sequence-length=64",
                                   "--calibration",
                                   "@",
                                   "",
                                   "--json",
                                   "~"};
    struct child child = {.arena = arena};
    struct mcp_json *json, *predicted;
    struct mcp_error err = {""};
    double iteration_s = NAN;
    strncat(words[7], method, WORD - 1);
    child_run(&child, words, (char *)(void *)(uintptr_t)calibration);
    cr_assert(eq(int, child.status, MCP_OK), "%s", child.err);
    cr_assert(mcp_json_parse(arena, "plan", child.out, strlen(child.out), &json, &err) == MCP_OK);
    cr_assert(mcp_json_object(json, "predicted", &predicted, &err) == MCP_OK);
    cr_assert(mcp_json_double(predicted, "iteration_s", &iteration_s, &err) == MCP_OK);
    return iteration_s;
}

/* Searches stay exact when ops cost what was measured, however uneven that is: the tensor
 * group's transfers are dear, products of 64 rows cheap for their size. */
Test(calibrate, the_best_of_measured_plans_is_found)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_cluster cluster;
    struct mcp_stack stack;
    struct mcp_error err = {""};
    static struct mcp_sample samples[] = {
        {"matmul_nt", "f32", {512, 64, 64, 1, 1}, 4.2e6, 3e-4},
        {"matmul_nt", "f32", {64, 64, 64, 1, 1}, 5.2e5, 1e-5},
        {"matmul_nn", "f32", {256, 64, 64, 1, 1}, 2.1e6, 1e-4},
        {"all_reduce", "", {16384, 2, 1, 1, 1}, 16384, 5e-3},
        {"send", "", {16384, 1, 1, 1, 1}, 16384, 1e-5},
        {"adam", "f32", {1000, 1, 1, 1, 1}, 36000, 1e-5},
    };
    struct mcp_calibration calibration = {MCP_COUNT_OF(samples), samples};
    char path[TEMPORARY_PATH];
    cr_assert(mcp_cluster_load(arena, "dgx-a100", &cluster, &err) == MCP_OK);
    cr_assert(mcp_gpu_load(arena, "cpu", &cluster.gpu, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cluster_take(&cluster, 4, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_stack_load(arena, "mcpplan-cpu", &stack, &err) == MCP_OK);
    double without = 0;
    mcp_calibration_sort(&calibration);
    for (int with = 0; with < 2; with++) {
        stack.calibration = with ? &calibration : NULL;
        const char *text = mcp_json_text(arena, mcp_calibration_file_json(arena, &cluster, &stack));
        child_write_file(path, text, strlen(text));
        double searched = answer(arena, path, "--method=search");
        double all = answer(arena, path, "--method=exhaustive");
        unlink(path);
        cr_expect(searched == all, "%.9g by search, %.9g of all", searched, all);
        cr_expect(with == 0 || fabs(searched / without - 1) > 0.01, "the samples change nothing");
        without = searched;
    }
    mcp_arena_free(arena);
}

/* One rank needs no mpirun. */
Test(calibrate, a_rank_is_measured_and_planned_for)
{
    struct mcp_arena *arena = mcp_arena_new();
    char words[MAX_WORDS][WORD] = {"calibrate",
                                   "--model=tiny",
                                   "--ranks=1",
                                   "--global-batch-size=4",
                                   "--sequence-length=64",
                                   "--steps=2",
                                   "--repeats=1",
                                   "--json",
                                   "~"};
    struct child child = {.arena = arena};
    struct mcp_cluster cluster;
    struct mcp_stack stack;
    struct mcp_error err = {""};
    char path[TEMPORARY_PATH];
    const char *sanitizer = getenv("ASAN_OPTIONS");
    setenv("ASAN_OPTIONS", /* Open MPI leaks */
           mcp_format(arena, "%s:detect_leaks=0", sanitizer != NULL ? sanitizer : ""), 1);
    child_run(&child, words, NULL);
    if (strstr(child.err, "cannot start mcpplan-exec-cpu") != NULL) {
        cr_log_warn("mcpplan-exec-cpu is not built here: nothing is calibrated");
        mcp_arena_free(arena);
        return;
    }
    cr_assert(eq(int, child.status, MCP_OK), "%s", child.err);
    child_write_file(path, child.out, strlen(child.out));
    cr_assert(mcp_calibration_file_load(arena, path, &cluster, &stack, &err) == MCP_OK, "%s",
              err.text);
    cr_expect(eq(int, mcp_cluster_gpus(&cluster), 1));
    cr_assert(stack.calibration != NULL);
    bool products = false, attention = false, update = false;
    for (int i = 0; i < stack.calibration->num_samples; i++) {
        const struct mcp_sample *sample = &stack.calibration->samples[i];
        products = products || mcp_same(sample->function, "matmul_tn_accumulate");
        attention = attention || mcp_same(sample->function, "attention_backward");
        update = update || mcp_same(sample->function, "adam");
    }
    cr_expect(products && attention && update);
    double planned_s = answer(arena, path, "--method=search");
    cr_expect(planned_s > 0 && planned_s < 10, "%g", planned_s);
    unlink(path);
    mcp_arena_free(arena);
}

/* --- runs that do not end well --- */

/* `calibrate WORDS`, its temporary files below `folder`, what it says in folder.said. */
static pid_t begin(struct mcp_arena *arena, const char *folder, const char *words)
{
    const char *program = getenv("MCPPLAN");
    const char *line = mcp_format(
        arena,
        "export TMPDIR=%s ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; exec %s calibrate %s "
        "> /dev/null 2> %s.said",
        folder, program ? program : "build/release/mcpplan", words, folder);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return child;
}

/* How many of our folders are in the folder: a run's own, or with `name` those that have it. */
static int count_in(struct mcp_arena *arena, const char *folder, const char *name)
{
    int count = 0;
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        const char *path = mcp_format(arena, "%s/%s/%s", folder, entry->d_name, name);
        count += strncmp(entry->d_name, "mcpplan-", 8) == 0 && access(path, F_OK) == 0;
    }
    if (listing != NULL)
        closedir(listing);
    return count;
}

/* Interrupted when its first run has begun, or refused before anything is written: one sentence,
 * and nothing is left behind. */
Test(calibrate, leaves_nothing_behind)
{
    static const struct {
        const char *words, *says;
        int code;
        bool interrupt;
    } cases[] = {
        {"--model tiny --ranks 1 --steps 1000000", "ended by signal 2 (Interrupt), as asked",
         MCP_RUN_FAILURE, true},
        {"--model $TMPDIR.json --ranks 1", "no backend can train layers", MCP_INVALID, false},
        {"--model tiny --ranks 1 --sequence-length 99999999", "smaller --sequence-length",
         MCP_INFEASIBLE, false},
    };
    for (size_t i = 0; i < MCP_COUNT_OF(cases); i++) {
        struct mcp_arena *arena = mcp_arena_new();
        char folder[] = "/tmp/mcpplan-calibrate-XXXXXX";
        struct mcp_text said = mcp_text_new(arena);
        int status = 0;
        cr_assert(mkdtemp(folder) != NULL);
        status = system(mcp_format(arena,
                                   "sed 's/\"attention\":/\"qk_norm\": true, "
                                   "\"attention_bias\": true, &/' models/tiny.json > %s.json",
                                   folder));
        cr_assert(status == 0);
        pid_t child = begin(arena, folder, cases[i].words);
        for (int tries = 0; cases[i].interrupt && count_in(arena, folder, "log") == 0; tries++) {
            cr_assert(tries < 3000, "no run begins");
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        }
        if (cases[i].interrupt)
            cr_assert(kill(child, SIGINT) == 0);
        waitpid(child, &status, 0);
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
        cr_expect(eq(int, code, cases[i].code));
        const char *path = mcp_format(arena, "%s.said", folder);
        cr_assert(mcp_file_read(arena, path, 1 << 20, &said, NULL) == MCP_OK);
        if (strstr(said.data, "cannot start mcpplan-exec-cpu") == NULL)
            cr_expect(strstr(said.data, cases[i].says) != NULL, "%s", said.data);
        cr_expect(eq(int, count_in(arena, folder, ""), 0));
        unlink(path);
        unlink(mcp_format(arena, "%s.json", folder));
        cr_expect(system(mcp_format(arena, "rm -rf %s", folder)) == 0); /* Open MPI's own */
        mcp_arena_free(arena);
    }
}
