/* tests/cuda/test_processes.c: several processes of mcpplan-exec-cuda, a fake GPU each: they train
 * as CPUs do, go on from each other's checkpoints, and one of them tells. */
#include "core/json.h"
#include "core/text.h"
#include "tests/cuda/processes.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMON " --data @/text.tokens --learning-rate 3e-3 --warmup-steps 2 --timeout-s 40 "
#define CPU "train @/one.json" COMMON

/* A plan for so many ranks, and its program. */
static void make_plan(const struct place *at, const char *name, int ranks, const char *options)
{
    place_must(at, mcp_format(at->arena,
                              "plan --model @/model.json --cluster dgx-a100 --gpus %d "
                              "--global-batch-size 4 --sequence-length 16 --precision fp32 "
                              "--stack mcpplan-cpu --attention flash2 --microbatch-size 1 %s "
                              "-o @/%s.json --dump-program @/%s.program",
                              ranks, options, name, name));
}

static struct place new_place(void)
{
    struct place at = place_new();
    make_plan(&at, "one", 1, "");
    return at;
}

enum { MAX_STEPS = 16 };

/* Losses by step; a step that is there twice or not in order ends the test. Returns how many. */
static int losses(const struct place *at, const char *name, double out[MAX_STEPS])
{
    int count = 0, step;
    for (const char *line = place_content(at, name); *line != '\0'; line = strchr(line, '\n') + 1) {
        cr_assert(count < MAX_STEPS && strchr(line, '\n') != NULL);
        cr_assert(sscanf(line, "{\"step\":%d,\"loss\":%lf", &step, &out[count]) == 2, "%s", line);
        cr_assert(eq(int, step, count++), "%s", name);
    }
    return count;
}

static void expect_within(const struct place *at, const char *name, const char *other, int steps,
                          double tolerance)
{
    double a[MAX_STEPS], b[MAX_STEPS];
    cr_assert(eq(int, losses(at, name, a), steps), "%s", name);
    cr_assert(eq(int, losses(at, other, b), steps), "%s", other);
    for (int i = 0; i < steps; i++)
        cr_expect(fabs(a[i] - b[i]) <= tolerance * b[i], "%s step %d: %g, not %g", name, i, a[i],
                  b[i]);
    cr_expect(a[steps - 1] < a[0], "%s: it has not learnt", name);
}

static void expect_alike(const struct place *at, const char *name, const char *other, int steps)
{
    expect_within(at, name, other, steps, 1e-5);
}

static void expect_well(struct processes *p)
{
    const bool well = processes_succeed(p);
    cr_assert(well, "%s", processes_sentences(p));
    cr_expect(eq(str, (char *)processes_sentences(p), ""));
}

/* --- layouts --- */

/* What rank 0 has written tells of all ranks, and compare reads it. */
static void check_timeline(const struct place *at, int ranks)
{
    const char *timeline = place_content(at, "timeline");
    for (int r = 0; r < ranks; r++)
        cr_expect(strstr(timeline, mcp_format(at->arena, "\"rank\":%d,", r)) != NULL,
                  "rank %d is not in the timeline", r);
    place_must(at, "compare @/plan.json @/timeline --json -o @/comparison");
    cr_expect(strstr(place_content(at, "comparison"), "\"exposed_comm_frac\"") != NULL);
}

Test(processes, train_as_a_cpu_does)
{
    static const struct {
        const char *name, *options;
        int ranks;
    } plans[] = {
        {"data", "--data-parallel 2 --zero-stage 1", 2},
        {"tensor", "--tensor-parallel 2", 2},
        {"pipeline", "--pipeline-parallel 2", 2},
        {"both", "--data-parallel 2 --pipeline-parallel 2 --zero-stage 0", 4},
    };
    struct place at = new_place();
    place_must(&at, CPU "--steps 3 --metrics @/cpu.jsonl");
    for (size_t i = 0; i < MCP_COUNT_OF(plans); i++) {
        struct processes p = processes_new(&at, plans[i].ranks);
        make_plan(&at, "plan", plans[i].ranks, plans[i].options);
        processes_begin(&p, mcp_format(at.arena,
                                       "--program @/plan.program" COMMON
                                       "--steps 3 --metrics @/%s.jsonl --timeline @/timeline",
                                       plans[i].name));
        expect_well(&p);
        expect_alike(&at, mcp_format(at.arena, "%s.jsonl", plans[i].name), "cpu.jsonl", 3);
        check_timeline(&at, plans[i].ranks);
    }
    place_leave(&at);
}

/* --- checkpoints --- */

#define SAVE " --checkpoint-dir @/saved --resume --metrics @/parts.jsonl "
#define EVALUATE "--eval-data @/other.tokens --eval-steps 2 "

/* From a CPU to GPUs, to another layout, and back. */
Test(processes, go_on_from_any_checkpoint)
{
    static const struct {
        const char *options;
        int ranks, steps;
    } parts[] = {
        {"--data-parallel 2 --zero-stage 3", 2, 4},
        {"--tensor-parallel 2 --pipeline-parallel 2", 4, 6},
    };
    struct place at = new_place();
    place_must(&at, CPU "--steps 8 --metrics @/whole.jsonl");
    place_must(&at, CPU "--steps 2" SAVE);
    for (size_t i = 0; i < MCP_COUNT_OF(parts); i++) {
        struct processes p = processes_new(&at, parts[i].ranks);
        make_plan(&at, "plan", parts[i].ranks, parts[i].options);
        processes_begin(&p,
                        mcp_format(at.arena, "--program @/plan.program" COMMON "--steps %d" SAVE,
                                   parts[i].steps));
        expect_well(&p);
    }
    place_must(&at, CPU "--steps 8" SAVE);
    expect_alike(&at, "parts.jsonl", "whole.jsonl", 8);
    place_leave(&at);
}

/* --- mcpplan train --- */

/* A copy of the program beside the executor: it looks there first. */
static const char *copy_program(const struct place *at)
{
    const char *copy = mcp_format(at->arena, "cp %s @/mcpplan && cp %s @/mcpplan-exec-cuda",
                                  at->program, place_program(at, "tests/cuda/executor"));
    cr_assert(place_shell(at, copy) == 0);
    return mcp_format(at->arena, "%s/mcpplan", at->folder);
}

/* In the executor's place. */
static void put_script(const struct place *at, const char *script)
{
    const char *path = mcp_format(at->arena, "%s/mcpplan-exec-cuda", at->folder);
    cr_assert(mcp_file_replace(path, script, strlen(script), NULL) == MCP_OK);
    cr_assert(place_shell(at, "chmod +x @/mcpplan-exec-cuda") == 0);
}

/* The plan's rank 0 on the second GPU. */
static void turn_ranks(const struct place *at)
{
    cr_assert(place_shell(at, "sed -i '0,/\"parallel\"/s//\"gpu_of_rank\": [1, 0], &/' "
                              "@/plan.json") == 0);
}

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (; (text = strstr(text, what)) != NULL; text += strlen(what))
        count++;
    return count;
}

/* Rank 0 of the plan lies on the launcher's second GPU: there one process says what came of the
 * run, and files are written once. */
Test(processes, the_plans_rank_0_tells)
{
    struct place at = new_place();
    struct processes p = processes_new(&at, 2);
    make_plan(&at, "plan", 2, "--pipeline-parallel 2");
    turn_ranks(&at);
    place_must(&at, "data tokenize examples/text/fables.txt -o @/other.tokens");
    place_must(&at, "train @/plan.json --dry-run --backend cuda --json");
    cr_expect(strstr(place_content(&at, "out"), "\"launched_as\": 1") != NULL, "%s",
              place_content(&at, "out"));
    place_must(&at, CPU "--steps 2 --metrics @/cpu.jsonl " EVALUATE "--json");
    p.program = copy_program(&at);
    processes_set(&p, -1, "TORCHELASTIC_RUN_ID", "run7");
    processes_set(&p, 0, "FAKE_DEVICE_BYTES", "90000000000");
    processes_begin(&p, "train @/plan.json --backend cuda" COMMON
                        "--steps 2 --metrics @/mapped.jsonl " EVALUATE "--json");
    const bool well = processes_succeed(&p);
    cr_assert(well, "%s", processes_sentences(&p));
    expect_alike(&at, "mapped.jsonl", "cpu.jsonl", 2);
    cr_expect(strstr(place_content(&at, "said0"), "1 of 2 ranks, the first of them rank 0, have "
                                                  "1.0 GiB of memory") != NULL,
              "%s", place_content(&at, "said0"));
    cr_expect(eq(str, (char *)place_content(&at, "out0"), ""));
    cr_expect(eq(int, count_of(place_content(&at, "out1"), "\"eval_loss\""), 1));
    cr_expect(eq(int, count_of(place_content(&at, "said0"), "step "), 0), "%s",
              place_content(&at, "said0"));
    cr_expect(eq(int, count_of(place_content(&at, "said1"), "step 2/2"), 1), "%s",
              place_content(&at, "said1"));
    place_leave(&at);
}

/* mpirun starts the ranks; one fails in the middle, and the run goes on from its checkpoint. */
Test(processes, begin_again)
{
    struct place at = new_place();
    make_plan(&at, "plan", 2, "--data-parallel 2");
    place_must(&at, CPU "--steps 4 --metrics @/cpu.jsonl");
    at.program = copy_program(&at);
    setenv("FAKE_FOLDER", at.folder, 1);
    setenv("FAKE_DEVICES", "2", 1);
    setenv("FAKE_FAIL_KERNEL", "500", 1);
    place_must(&at, "train @/plan.json --backend cuda" COMMON
                    "--steps 4 --metrics @/again.jsonl --checkpoint-dir @/saved "
                    "--checkpoint-every 1 --max-restarts 1");
    const char *said = place_content(&at, "said");
    cr_expect(eq(int, count_of(said, "restart 1 of 1 from the newest checkpoint"), 1), "%s", said);
    cr_expect(eq(int, count_of(said, "CUDA says: an illegal memory access"), 1), "%s", said);
    expect_alike(&at, "again.jsonl", "cpu.jsonl", 4);
    place_leave(&at);
}

/* Measured, planned by that, trained; the same plan on CPUs; and a GPU that has none. */
Test(processes, products_in_8_bits)
{
#define EIGHT "--global-batch-size 4 --sequence-length 16 --precision fp8 "
    struct place at = place_new();
    const char *cpu = place_program(&at, "mcpplan-exec-cpu");
    cr_assert(place_shell(&at, mcp_format(at.arena, "cp %s @", cpu)) == 0);
    at.program = copy_program(&at);
    setenv("FAKE_FOLDER", at.folder, 1);
    place_must(&at, "calibrate --backend cuda --cluster dgx-h100 --ranks 1 --model @/model.json "
                    "--steps 2 --repeats 1 -o @/calibration.json " EIGHT);
    place_must(&at, "plan --model @/model.json --cluster this --calibration @/calibration.json "
                    "--microbatch-size 1 -o @/plan.json " EIGHT);
    place_must(&at, "train @/plan.json --steps 3 --metrics @/cpu.jsonl" COMMON);
    place_must(&at, "train @/plan.json --backend cuda --steps 3 --metrics @/cuda.jsonl" COMMON);
    expect_within(&at, "cuda.jsonl", "cpu.jsonl", 3, 2e-4);
    setenv("FAKE_CAPABILITY", "80", 1);
    cr_expect(eq(int, place_run(&at, "train @/plan.json --backend cuda --steps 3" COMMON),
                 MCP_RUN_FAILURE));
    const char *said = place_content(&at, "said");
    cr_expect(eq(int,
                 count_of(said, "Fake H100 has no products in 8 bits, which the plan's "
                                "precision fp8 needs: its compute capability is 8.0, and 8.9 "
                                "and later have them; plan with --precision bf16\n"),
                 1),
              "%s", said);
    place_leave(&at);
}

/* mpirun knows its own numbers alone. */
Test(processes, ranks_are_named_as_the_plan_does)
{
    static const char script[] =
        "#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 0 ] && sleep 0.5 && kill -9 $$\nsleep 9\n";
    struct place at = place_new();
    make_plan(&at, "plan", 2, "--pipeline-parallel 2");
    turn_ranks(&at);
    at.program = copy_program(&at);
    put_script(&at, script);
    cr_expect(eq(int,
                 place_run(&at, "train @/plan.json --backend cuda --data @/text.tokens --steps 1"),
                 MCP_RUN_FAILURE));
    cr_expect(strstr(place_content(&at, "said"), "mcpplan: rank 1 was ended by signal 9") != NULL,
              "%s", place_content(&at, "said"));
    place_leave(&at);
}

/* Each start has a meeting of its own, so that what is late from the last one finds nobody. */
Test(processes, restarts_meet_apart)
{
    static const char script[] =
        "#!/bin/sh\n"
        "echo $MASTER_PORT $MCP_TOKEN >> ${0%/*}/met$OMPI_COMM_WORLD_RANK\n"
        "echo \"mcpplan-exec-cuda: again $MCP_RESTART\" >&2; exit 7\n";
    struct place at = place_new();
    int port[2];
    char token[2][64];
    make_plan(&at, "plan", 2, "--data-parallel 2");
    at.program = copy_program(&at);
    put_script(&at, script);
    cr_expect(eq(int,
                 place_run(&at, "train @/plan.json --backend cuda --data @/text.tokens --steps 1 "
                                "--checkpoint-dir @/saved --max-restarts 1"),
                 MCP_RUN_FAILURE));
    cr_expect(strstr(place_content(&at, "said"), "mcpplan: again 1") != NULL, "%s",
              place_content(&at, "said"));
    cr_assert(sscanf(place_content(&at, "met0"), "%d %63s %d %63s", &port[0], token[0], &port[1],
                     token[1]) == 4);
    cr_expect(ne(int, port[0], port[1]));
    cr_expect(ne(str, token[0], token[1]));
    cr_expect(eq(str, (char *)place_content(&at, "met0"), (char *)place_content(&at, "met1")));
    place_leave(&at);
}
