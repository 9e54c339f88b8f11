/* tests/exec/ranks_numbers.c: fp16 whose gradients overflow, on ranks and on one; the loss by
 * forwards alone beside the step's. */
#include "tests/exec/ranks_numbers.h"

#include "exec/save.h"
#include "step/pool.h"
#include "step/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FP16(model, t, p, d, e, sequence_parallel, zero, schedule)                                 \
    {                                                                                              \
        RANKS_##model, t, 1, p, d, e, sequence_parallel, MCP_CONTEXT_RING, zero, zero == 3,        \
            schedule, 1, 1, MCP_RECOMPUTE_NONE                                                     \
    }
static const struct ranks_case halves[] = {
    FP16(LLAMA, 2, 1, 1, 1, true, 0, MCP_1F1B), FP16(GPT2, 1, 2, 1, 1, false, 0, MCP_1F1B),
    FP16(GPT2, 1, 1, 2, 1, false, 2, MCP_1F1B), FP16(LLAMA, 2, 2, 1, 1, true, 0, MCP_ZB_H1),
    FP16(MOE, 1, 1, 4, 2, false, 3, MCP_1F1B),
};
enum { NUM_HALVES = sizeof halves / sizeof *halves };

struct story {
    double losses[RANKS_STEPS], skips[RANKS_STEPS], scales[RANKS_STEPS];
    double beyond; /* bytes that live at once, and were not planned */
};

static void tell(FILE *out, const char *name, double value)
{
    if (out != NULL)
        fprintf(out, "numbers %s %.9g\n", name, value);
}

static double beyond(struct run *run)
{
    const struct mcp_rank *rank = mcp_trainer_rank(run->trainer);
    struct mcp_pricer *pricer = mcp_pricer_new(run->arena, &run->question);
    mcp_estimate(pricer, &run->plan, &run->prediction);
    int64_t had = mcp_pool_peak_bytes(mcp_interpreter_pool(mcp_trainer_interpreter(run->trainer)));
    return fabs(
        (double)(had - mcp_memory_allocated(&run->prediction.stages[rank->at.pipeline].memory)));
}

static void train_half(struct mcp_cpu_world *world, const struct ranks_case *c, bool alone,
                       struct story *story)
{
    struct mcp_error refused = {"a case of fp16 is not legal"};
    struct mcp_step_report report;
    struct run run;
    if (!plan_case(&run, c))
        stop(&refused, "numbers");
    run.job.precision = MCP_PRECISION_FP16;
    run.loss_scale = 0x1p24; /* too much by far */
    build_program(&run);
    begin(&run, world, alone, 0);
    for (int step = 0; step < RANKS_STEPS; step++) {
        train_step(&run, step, &report);
        story->losses[step] = report.loss;
        story->skips[step] = report.skipped;
        story->scales[step] = report.loss_scale;
    }
    story->beyond = beyond(&run);
    end(&run);
}

static double count(const double skips[RANKS_STEPS])
{
    double sum = 0;
    for (int i = 0; i < RANKS_STEPS; i++)
        sum += skips[i];
    return sum;
}

/* Steps that one rank of the world skips and another does not, or one rank alone does not. */
static double skips_apart(struct mcp_cpu_world *world, const struct story *many,
                          const struct story *one)
{
    double apart = memcmp(many->scales, one->scales, sizeof one->scales) != 0;
    for (int i = 0; i < RANKS_STEPS; i++) {
        double least = many->skips[i], most = many->skips[i];
        CHECK(mcp_cpu_world_agree(world, &least, 1, '<', &err));
        CHECK(mcp_cpu_world_agree(world, &most, 1, '>', &err));
        apart += !(least == one->skips[i] && most == one->skips[i]);
    }
    return apart;
}

static void compare_half(struct mcp_cpu_world *world, const struct ranks_case *c, FILE *out)
{
    const struct ranks_case alone = ranks_alone(c->model);
    struct story one, many;
    train_half(world, &alone, true, &one);
    train_half(world, c, false, &many);
    tell(out, "fp16_skips", count(many.skips));
    tell(out, "fp16_skips_apart", skips_apart(world, &many, &one));
    tell(out, "fp16_losses_apart", worst_of(many.losses, one.losses));
    tell(out, "fp16_learnt", many.losses[RANKS_STEPS - 1] / many.losses[0]);
    tell(out, "fp16_bytes_beyond", many.beyond);
}

/* --- evaluation --- */

static const struct ranks_case evaluated[] = {
    {RANKS_GPT2, 1, 1, 1, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 2,
     MCP_RECOMPUTE_FULL},
    {RANKS_LLAMA, 1, 2, 1, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 2,
     MCP_RECOMPUTE_NONE},
    {RANKS_GPT2, 1, 1, 2, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_ZB_V, 2, 1,
     MCP_RECOMPUTE_NONE},
    {RANKS_GPT2, 2, 1, 1, 2, 1, false, MCP_CONTEXT_RING, 2, false, MCP_1F1B, 1, 2,
     MCP_RECOMPUTE_SELECTIVE},
    {RANKS_LLAMA, 1, 1, 2, 2, 1, false, MCP_CONTEXT_RING, 3, true, MCP_INTERLEAVED, 2, 1,
     MCP_RECOMPUTE_NONE},
    {RANKS_MOE, 1, 1, 2, 2, 2, false, MCP_CONTEXT_RING, 1, false, MCP_ZB_H1, 1, 1,
     MCP_RECOMPUTE_FULL},
};
enum { NUM_EVALUATED = sizeof evaluated / sizeof *evaluated, EVALUATED_STEPS = 3 };

/* Bytes that the forwards need beyond the step's own. */
static double forwards_beyond(struct run *run)
{
    const int stage = mcp_trainer_rank(run->trainer)->at.pipeline;
    const struct mcp_interpreter *in = mcp_trainer_interpreter(run->trainer);
    struct mcp_pool *forwards;
    CHECK(mcp_pool_new(run->arena, run->evaluation, stage, &forwards, &err));
    return fmax(0, (double)(mcp_pool_bytes(forwards) - mcp_pool_bytes(mcp_interpreter_pool(in))));
}

/* With an evaluation before each step on what the step will see, or with none. */
static void train_evaluated(struct mcp_cpu_world *world, const struct ranks_case *c, bool evaluates,
                            double losses[2][EVALUATED_STEPS], double *beyond_bytes)
{
    struct mcp_error refused = {"a case of evaluation is not legal"};
    struct mcp_program forwards;
    struct mcp_step_report report;
    struct run run;
    if (!plan_case(&run, c))
        stop(&refused, "numbers");
    build_program(&run);
    mcp_program_build_evaluation(run.arena, &run.question, &run.plan, &forwards);
    CHECK(mcp_program_verify(run.arena, &forwards, &err));
    run.evaluation = &forwards;
    begin(&run, world, false, 0);
    for (int step = 0; step < EVALUATED_STEPS; step++) {
        run.data.step = step;
        if (evaluates)
            CHECK(mcp_trainer_evaluate(run.trainer, &run.batch, &losses[0][step], &err));
        train_step(&run, step, &report);
        losses[1][step] = report.loss;
    }
    *beyond_bytes = forwards_beyond(&run);
    end(&run);
}

static void compare_evaluated(struct mcp_cpu_world *world, const struct ranks_case *c, FILE *out)
{
    double with[2][EVALUATED_STEPS], without[2][EVALUATED_STEPS], bytes;
    train_evaluated(world, c, false, without, &bytes);
    train_evaluated(world, c, true, with, &bytes);
    tell(out, "eval_differs", memcmp(with[0], with[1], sizeof with[0]) != 0);
    tell(out, "eval_changes", memcmp(with[1], without[1], sizeof with[1]) != 0);
    CHECK(mcp_cpu_world_agree(world, &bytes, 1, '>', &err));
    tell(out, "eval_bytes_beyond", bytes);
}

/* --- embeddings in fp32 beside weights in bf16 --- */

static const struct ranks_case embedded[] = {
    {RANKS_GPT2, 1, 1, 1, 1, 1, false, MCP_CONTEXT_RING, 3, true, MCP_1F1B, 1, 2,
     MCP_RECOMPUTE_NONE},
    {RANKS_GPT2, 1, 1, 2, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_ZB_H1, 1, 1,
     MCP_RECOMPUTE_NONE},
    {RANKS_GPT2, 2, 1, 1, 2, 1, false, MCP_CONTEXT_RING, 3, true, MCP_1F1B, 1, 2,
     MCP_RECOMPUTE_NONE},
    {RANKS_GPT2, 1, 1, 2, 2, 1, false, MCP_CONTEXT_RING, 2, false, MCP_1F1B, 1, 1,
     MCP_RECOMPUTE_NONE},
};
enum { NUM_EMBEDDED = sizeof embedded / sizeof *embedded, EXACT_STEPS = 3 };

static void train_embedded(struct mcp_cpu_world *world, const struct ranks_case *c, bool alone,
                           int64_t steps, struct story *story)
{
    struct mcp_error refused = {"a case of embeddings is not legal"};
    struct run run;
    if (!plan_case(&run, c))
        stop(&refused, "numbers");
    run.job.precision = MCP_PRECISION_BF16;
    run.job.fp32_embedding_steps = steps;
    build_program(&run);
    begin(&run, world, alone, 0);
    train_losses(&run, story->losses);
    story->beyond = beyond(&run);
    end(&run);
}

static void compare_embedded(struct mcp_cpu_world *world, const struct ranks_case *c, FILE *out)
{
    const struct ranks_case alone = ranks_alone(c->model);
    struct story one, many, plain;
    train_embedded(world, &alone, true, EXACT_STEPS, &one);
    train_embedded(world, &alone, true, 0, &plain);
    train_embedded(world, c, false, EXACT_STEPS, &many);
    tell(out, "embed_losses_apart", worst_of(many.losses, one.losses));
    tell(out, "embed_plain_differs", memcmp(one.losses, plain.losses, sizeof one.losses) != 0);
    tell(out, "embed_learnt", many.losses[RANKS_STEPS - 1] / many.losses[0]);
    tell(out, "embed_bytes_beyond", many.beyond);
}

/* --- 1-bit Adam that goes on from a checkpoint --- */

static const struct ranks_case frozen_cases[] = {
    {RANKS_GPT2, 1, 1, 1, 2, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 2,
     MCP_RECOMPUTE_NONE},
    {RANKS_MOE, 1, 2, 1, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 2,
     MCP_RECOMPUTE_NONE},
    {RANKS_LLAMA, 2, 1, 1, 2, 1, true, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 2,
     MCP_RECOMPUTE_NONE},
};
enum { NUM_FROZEN = sizeof frozen_cases / sizeof *frozen_cases, FREEZE = 3, STOP = 6 };

static void begin_frozen(struct run *run, struct mcp_program *frozen, const struct ranks_case *c,
                         struct mcp_cpu_world *world)
{
    struct mcp_error refused = {"a case of 1-bit Adam is not legal"};
    if (!plan_case(run, c))
        stop(&refused, "numbers");
    run->job.optimizer = MCP_OPTIMIZER_ONE_BIT_ADAM;
    run->job.phase = MCP_PHASE_FROZEN;
    build_program(run);
    *frozen = run->program;
    run->job.phase = MCP_PHASE_WARM;
    build_program(run);
    run->frozen = frozen;
    run->freeze_step = FREEZE;
    begin(run, world, false, 0);
}

static struct mcp_saved_rank saved_of(const struct run *run)
{
    const struct mcp_rank *rank = mcp_trainer_rank(run->trainer);
    struct mcp_votes *votes = MCP_NEW(run->arena, struct mcp_votes);
    *votes = (struct mcp_votes){.calls = &run->calls,
                                .backend = run->backend,
                                .rank = rank->rank,
                                .world = mcp_plan_world(&run->plan)};
    return (struct mcp_saved_rank){mcp_trainer_interpreter(run->trainer), rank, &run->calls,
                                   run->backend, votes};
}

static void save(const struct run *run, const char *folder)
{
    const struct mcp_trainer_state state = mcp_trainer_state(run->trainer);
    const struct mcp_checkpoint_state kept = {.step = state.step,
                                              .updates = state.updates,
                                              .variance_updates = state.variance_updates,
                                              .loss_scale = state.loss_scale};
    const struct mcp_saved_rank saved = saved_of(run);
    CHECK(mcp_save_run(&saved, folder, &kept, &err));
}

static void load(const struct run *run, const char *folder)
{
    const struct mcp_saved_rank saved = saved_of(run);
    const struct mcp_checkpoint *checkpoint = NULL;
    struct mcp_text passed_over = mcp_text_new(run->arena);
    CHECK(mcp_load_newest(run->arena, &saved, folder, &checkpoint, &passed_over, &err));
    CHECK(mcp_load_rank(&saved, checkpoint, &err));
    const struct mcp_checkpoint_state state = mcp_checkpoint_state(checkpoint);
    mcp_trainer_go_on(run->trainer,
                      &(struct mcp_trainer_state){.step = state.step,
                                                  .updates = state.updates,
                                                  .variance_updates = state.variance_updates,
                                                  .loss_scale = state.loss_scale});
}

static void train_from(struct run *run, int first, double losses[RANKS_STEPS])
{
    struct mcp_step_report report;
    for (int step = first; step < RANKS_STEPS; step++) {
        train_step(run, step, &report);
        losses[step] = report.loss;
    }
}

/* Ten steps; and six of them, then four more of another run that goes on. */
static void compare_frozen(struct mcp_cpu_world *world, const struct ranks_case *c,
                           const char *folder, FILE *out)
{
    struct run whole, part, rest;
    struct mcp_program frozen[3];
    struct mcp_step_report report;
    double losses[RANKS_STEPS], again[RANKS_STEPS] = {0};
    begin_frozen(&whole, &frozen[0], c, world);
    train_from(&whole, 0, losses);
    end(&whole);
    begin_frozen(&part, &frozen[1], c, world);
    for (int step = 0; step < STOP; step++)
        train_step(&part, step, &report);
    save(&part, folder);
    end(&part);
    begin_frozen(&rest, &frozen[2], c, world);
    load(&rest, folder);
    train_from(&rest, STOP, again);
    end(&rest);
    size_t bytes = (RANKS_STEPS - STOP) * sizeof *losses;
    tell(out, "frozen_differs", memcmp(losses + STOP, again + STOP, bytes) != 0);
    tell(out, "frozen_has_norm", report.grad_norm > 0);
}

/* The ranks of a test have a folder of the first one's. */
static void run_frozen(struct mcp_cpu_world *world, FILE *out)
{
    double number = mcp_cpu_world_rank(world) == 0 ? (double)getpid() : 0;
    char folder[64], command[96];
    CHECK(mcp_cpu_world_agree(world, &number, 1, '+', &err));
    snprintf(folder, sizeof folder, "/tmp/mcpplan-frozen-%.0f", number);
    for (int i = 0; i < NUM_FROZEN; i++)
        if (ranks_world(&frozen_cases[i]) == mcp_cpu_world_size(world))
            compare_frozen(world, &frozen_cases[i], folder, out);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (mcp_cpu_world_rank(world) == 0 && system(command) != 0)
        tell(out, "frozen_left_files", 1);
}

void run_numbers(struct mcp_cpu_world *world, FILE *out)
{
    for (int i = 0; i < NUM_EVALUATED; i++)
        if (ranks_world(&evaluated[i]) == mcp_cpu_world_size(world))
            compare_evaluated(world, &evaluated[i], out);
    for (int i = 0; i < NUM_HALVES; i++)
        if (ranks_world(&halves[i]) == mcp_cpu_world_size(world))
            compare_half(world, &halves[i], out);
    for (int i = 0; i < NUM_EMBEDDED; i++)
        if (ranks_world(&embedded[i]) == mcp_cpu_world_size(world))
            compare_embedded(world, &embedded[i], out);
    run_frozen(world, out);
}
