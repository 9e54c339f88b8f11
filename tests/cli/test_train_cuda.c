/* tests/cli/test_train_cuda.c: train --backend cuda starts the executor of GPUs, one a rank, and
 * tells it how ranks meet and what was planned. A script stands in its place, or the executor
 * itself on a fake GPU. */
#include "core/arena.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const char script[] =
    "#!/bin/sh\n"
    "echo \"$MASTER_ADDR $MASTER_PORT $MCP_TOKEN $*\" > ${0%/*}/rank$OMPI_COMM_WORLD_RANK\n"
    "env | grep -e ^RANK= -e ^WORLD_SIZE= -e ^LOCAL_ > ${0%/*}/numbers\n"
    "[ $OMPI_COMM_WORLD_RANK = 0 ] || exit 0\n"
    "echo 'mcpplan-exec-cuda: note: one GPU is another' >&2\n"
    "echo 'mcpplan-exec-cuda: no CUDA device: too old a driver' >&2\n"
    "exit 7\n";

static const char *program_path(void)
{
    const char *given = getenv("MCPPLAN");
    return given != NULL ? given : "build/release/mcpplan";
}

/* A copy of the program in a new folder: beside itself it looks first. */
static const char *new_folder(struct mcp_arena *arena)
{
    char *folder = mcp_strdup(arena, "/tmp/mcpplan-cuda-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    const char *command = mcp_format(arena, "cp %s %s/mcpplan", program_path(), folder);
    cr_assert(eq(int, system(command), 0), "%s", command);
    return folder;
}

static const char unloaded[] =
    "#!/bin/sh\n"
    "echo \"$0: error while loading shared libraries: libnccl.so.2: gone\" >&2\n"
    "exit 127\n";

static void put_script(struct mcp_arena *arena, const char *folder, const char *text)
{
    const char *path = mcp_format(arena, "%s/mcpplan-exec-cuda", folder);
    cr_assert(eq(int, (int)mcp_file_replace(path, text, strlen(text), NULL), MCP_OK));
    cr_assert(eq(int, system(mcp_format(arena, "chmod +x %s", path)), 0));
}

static const char *text_of(struct mcp_arena *arena, const char *folder, const char *name)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_file_read(arena, mcp_format(arena, "%s/%s", folder, name), 1 << 20, &text, NULL);
    return text.data;
}

static bool holds(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

Test(train_cuda, ranks_are_told_how_to_meet)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *folder = new_folder(arena);
    put_script(arena, folder, script);
    const char *command = mcp_format(
        arena,
        "cd %s && export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 && ./mcpplan plan --model "
        "gpt2 --cluster dgx-h100 --gpus 2 --global-batch-size 4 --sequence-length 32 "
        "--tensor-parallel 2 -o plan.json > out 2>&1; ./mcpplan data tokenize plan.json -o x > "
        "out; "
        "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 " /* a shell's, and nobody's */
        "./mcpplan train plan.json --backend cuda --data x --steps 3 > out 2> said",
        folder);
    int status = system(command);
    const char *first = text_of(arena, folder, "rank0"), *second = text_of(arena, folder, "rank1");
    const char *said = text_of(arena, folder, "said");
    cr_expect(eq(int, WIFEXITED(status) ? WEXITSTATUS(status) : 128, MCP_RUN_FAILURE), "%s", said);
    cr_expect(holds(said, "mcpplan: no CUDA device: too old a driver\n"), "%s", said);
    cr_expect(holds(said, "note: one GPU is another\n"), "%s", said);
    cr_expect(holds(first, "127.0.0.1 ") && holds(first, "--steps 3"), "%s", first);
    cr_expect(holds(first, "--planned-gpu h100-sxm-80gb"), "%s", first);
    cr_expect(holds(first, "--planned-gpus-per-node 2"), "%s", first);
    const size_t meeting = strcspn(first, "-"); /* address, port and token */
    cr_expect(meeting > sizeof "127.0.0.1 " + 32, "%s", first);
    cr_expect(eq(int, strncmp(first, second, meeting), 0), "%s %s", first, second);
    cr_expect(eq(str, (char *)(void *)(uintptr_t)text_of(arena, folder, "numbers"), ""));
    cr_expect(eq(int, system(mcp_format(arena, "rm -r %s", folder)), 0));
    mcp_arena_free(arena);
}

/* The system's loader ends what lacks a library, and says which: one rank or two, and calibrate. */
Test(train_cuda, a_missing_library_is_named)
{
    static const char want[] = "libnccl.so.2: gone\n";
    struct mcp_arena *arena = mcp_arena_new();
    const char *folder = new_folder(arena);
    put_script(arena, folder, unloaded);
    for (int run = 0; run < 3; run++) {
        const char *command = mcp_format(
            arena,
            "cd %s && export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 && ./mcpplan plan --model "
            "gpt2 --cluster dgx-h100 --gpus %d --global-batch-size 4 --sequence-length 32 "
            "-o plan.json > out 2>&1; ./mcpplan data tokenize plan.json -o x > out; "
            "./mcpplan %s > out 2> said",
            folder, run == 1 ? 2 : 1,
            run < 2 ? "train plan.json --backend cuda --data x --steps 3"
                    : "calibrate --backend cuda --cluster dgx-h100:1 --ranks 1");
        const int status = system(command);
        const char *said = text_of(arena, folder, "said");
        cr_expect(eq(int, WIFEXITED(status) ? WEXITSTATUS(status) : 128, MCP_RUN_FAILURE));
        cr_expect(holds(said, want) && !holds(strstr(said, want) + strlen(want), "\n"), "%s", said);
        cr_expect(not(holds(said, "cannot start")), "%s", said);
    }
    cr_expect(eq(int, system(mcp_format(arena, "rm -r %s", folder)), 0));
    mcp_arena_free(arena);
}

/* Where it was not built: one sentence, whatever the number of ranks. */
Test(train_cuda, a_missing_executor_is_named)
{
    static const char want[] = "mcpplan: cannot start mcpplan-exec-cuda: it is neither beside";
    struct mcp_arena *arena = mcp_arena_new();
    const char *folder = new_folder(arena);
    for (int gpus = 1; gpus <= 2; gpus++) {
        const char *command = mcp_format(
            arena,
            "cd %s && ./mcpplan plan --model gpt2 --cluster dgx-h100 --gpus %d "
            "--global-batch-size 4 --sequence-length 32 -o plan.json > out 2>&1; "
            "./mcpplan data tokenize plan.json -o x > out; "
            "./mcpplan train plan.json --backend cuda --data x --steps 3 --warmup-steps 3 "
            "> out 2> said",
            folder, gpus);
        const int status = system(command);
        const char *said = text_of(arena, folder, "said");
        cr_expect(eq(int, WIFEXITED(status) ? WEXITSTATUS(status) : 128, MCP_RUN_FAILURE));
        cr_expect(eq(int, strncmp(said, want, sizeof want - 1), 0), "%s", said);
        cr_expect(eq(sz, strcspn(said, "\n") + 1, strlen(said)), "%s", said);
        cr_expect(eq(str, (char *)(void *)(uintptr_t)text_of(arena, folder, "out"), (char *)""));
    }
    cr_expect(eq(int, system(mcp_format(arena, "rm -r %s", folder)), 0));
    mcp_arena_free(arena);
}

/* --- the executor on a fake GPU --- */

enum { STEPS = 3 };

static void read_losses(struct mcp_arena *arena, const char *folder, const char *name,
                        double losses[STEPS])
{
    const char *at = text_of(arena, folder, name);
    for (int i = 0; i < STEPS; i++) {
        at = strstr(at, "\"loss\":");
        cr_assert(at != NULL, "%s: %s", name, text_of(arena, folder, "said"));
        at += strlen("\"loss\":");
        losses[i] = strtod(at, NULL);
    }
}

enum { NUMBERS = 2000 };

/* All that stand behind `key`, and how many. */
static int read_numbers(const char *text, const char *key, double numbers[NUMBERS])
{
    int count = 0;
    for (const char *at = strstr(text, key); at != NULL && count < NUMBERS; at = strstr(at, key)) {
        at += strlen(key);
        numbers[count++] = strtod(at, NULL);
    }
    return count;
}

/* What was watched of groups and activations: added up by a GPU's kernels, or from memory. */
static void compare_watched(struct mcp_arena *arena, const char *folder)
{
    static const char *const keys[] = {
        "\"grad_norm\":", "\"update_ratio\":", "\"mean\":", "\"variance\":"};
    static double numbers[2][NUMBERS];
    const char *cpu = text_of(arena, folder, "cpu"), *cuda = text_of(arena, folder, "cuda");
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const int count = read_numbers(cpu, keys[k], numbers[0]);
        cr_expect(gt(int, count, STEPS), "%s", keys[k]);
        cr_expect(eq(int, read_numbers(cuda, keys[k], numbers[1]), count), "%s", keys[k]);
        for (int i = 0; i < count; i++) {
            const double want = numbers[0][i], away = numbers[1][i] - want;
            cr_expect(le(dbl, away < 0 ? -away : away, 1e-10 + 1e-4 * (want < 0 ? -want : want)),
                      "%s %d: %g, not %g", keys[k], i, numbers[1][i], want);
        }
    }
}

/* A plan of one rank with these options, trained on a CPU and on the fake GPU; what is said last
 * is the GPU's. */
static void train_both(struct mcp_arena *arena, const char *folder, const char *plan_options,
                       double losses[2][STEPS])
{
    const char *program = program_path(), *slash = strrchr(program, '/');
    cr_assert(slash != NULL);
    const char *command = mcp_format(
        arena,
        "d=%s; p=%s; export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 OMP_NUM_THREADS=1; "
        "cp %.*s/tests/cuda/executor $d/mcpplan-exec-cuda && seq 900 > $d/text && "
        "$p data tokenize $d/text -o $d/tokens > $d/said 2>&1 && "
        "sed s/200,/300,/ tests/exec/models/gpt2-tiny.json > $d/model.json && "
        "$p plan --model $d/model.json %s --global-batch-size 2 --sequence-length 16 "
        "-o $d/plan.json > $d/said 2>&1 && "
        "$p train $d/plan.json --data $d/tokens --steps 3 --metrics $d/cpu 2> $d/said && "
        "$d/mcpplan train $d/plan.json --data $d/tokens --steps 3 --metrics $d/cuda "
        "--timeline $d/timeline --checkpoint-dir $d/saved --backend cuda 2> $d/said",
        folder, program, (int)(slash - program), program, plan_options);
    int status = system(command);
    cr_assert(eq(int, status, 0), "%s", text_of(arena, folder, "said"));
    read_losses(arena, folder, "cpu", losses[0]);
    read_losses(arena, folder, "cuda", losses[1]);
}

Test(train_cuda, one_rank_trains_as_on_a_cpu)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *folder = new_folder(arena);
    double losses[2][STEPS];
    train_both(arena, folder, "--cluster this --stack mcpplan-cpu --precision fp32", losses);
    const char *said = text_of(arena, folder, "said");
    for (int i = 0; i < STEPS; i++)
        cr_expect(epsilon_eq(dbl, losses[1][i], losses[0][i], 1e-5 * losses[0][i]));
    compare_watched(arena, folder);
    cr_expect(holds(said, "note: 1 of 1 ranks, the first of them rank 0, have a Fake H100"), "%s",
              said);
    cr_expect(holds(text_of(arena, folder, "timeline"), "attention_forward"));
    cr_expect(eq(int, system(mcp_format(arena, "rm -r %s", folder)), 0));
    mcp_arena_free(arena);
}

/* Of two losses that were rounded in other places. */
Test(train_cuda, one_rank_trains_in_16_bits)
{
    static const char *const precisions[] = {"bf16", "fp16"};
    for (int p = 0; p < 2; p++) {
        struct mcp_arena *arena = mcp_arena_new();
        const char *folder = new_folder(arena);
        double losses[2][STEPS];
        train_both(arena, folder,
                   mcp_format(arena, "--cluster dgx-h100 --gpus 1 --precision %s", precisions[p]),
                   losses);
        for (int i = 0; i < STEPS; i++)
            cr_expect(epsilon_eq(dbl, losses[1][i], losses[0][i], 2e-4 * losses[0][i]),
                      "%s step %d", precisions[p], i);
        cr_expect(eq(int, system(mcp_format(arena, "rm -r %s", folder)), 0));
        mcp_arena_free(arena);
    }
}
