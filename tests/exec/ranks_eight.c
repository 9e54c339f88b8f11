/* tests/exec/ranks_eight.c: products of 8 bits, on ranks and on one; and beside bf16. */
#include "tests/exec/ranks_eight.h"

#include "step/verify.h"

#include <math.h>

#define EVEN "tests/exec/models/llama-even.json"
#define RING MCP_CONTEXT_RING
#define NONE MCP_RECOMPUTE_NONE
#define SELECTIVE MCP_RECOMPUTE_SELECTIVE
#define FULL MCP_RECOMPUTE_FULL

/* Sizes of the tiny models are multiples of 16 unless tensor ranks cut them; Llama's are not. */
struct eight {
    bool rounds_elsewhere; /* than one rank does: before a product, not in sums of gradients */
    const char *model;     /* NULL: the layout's */
    struct ranks_case layout;
};
static const struct eight cases[] = {
    {false, EVEN, {RANKS_LLAMA, 1, 1, 1, 1, 1, false, RING, 3, true, MCP_1F1B, 1, 2, FULL}},
    {true, EVEN, {RANKS_LLAMA, 2, 1, 1, 1, 1, true, RING, 0, false, MCP_1F1B, 1, 1, SELECTIVE}},
    {true, EVEN, {RANKS_LLAMA, 1, 2, 1, 1, 1, false, RING, 1, false, MCP_1F1B, 1, 1, NONE}},
    {false, EVEN, {RANKS_LLAMA, 1, 1, 2, 1, 1, false, RING, 0, false, MCP_INTERLEAVED, 2, 1, FULL}},
    {false, NULL, {RANKS_GPT2, 1, 1, 2, 1, 1, false, RING, 0, false, MCP_ZB_H1, 1, 1, NONE}},
    {false, NULL, {RANKS_GPT2, 1, 1, 1, 2, 1, false, RING, 3, false, MCP_1F1B, 1, 2, NONE}},
    {false, NULL, {RANKS_MOE, 1, 1, 1, 2, 2, false, RING, 2, false, MCP_1F1B, 1, 2, SELECTIVE}},
    {true, EVEN, {RANKS_LLAMA, 2, 1, 2, 1, 1, true, RING, 0, false, MCP_ZB_V, 2, 1, NONE}},
    {true, EVEN, {RANKS_LLAMA, 4, 1, 1, 1, 1, true, RING, 0, false, MCP_1F1B, 1, 2, FULL}},
    {false, NULL, {RANKS_MOE, 1, 1, 2, 2, 2, false, RING, 3, true, MCP_1F1B, 1, 1, NONE}},
    {true,
     EVEN,
     {RANKS_LLAMA, 2, 1, 2, 2, 1, true, RING, 3, true, MCP_INTERLEAVED, 2, 1, SELECTIVE}},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

struct story {
    double losses[RANKS_STEPS];
    double first_norm; /* of all gradients together */
    double evaluated;  /* steps before which forwards alone found another loss */
    double beyond;     /* bytes that live at once, and were not planned */
};

static void tell(FILE *out, const char *name, double value)
{
    if (out != NULL)
        fprintf(out, "eight %s %.9g\n", name, value);
}

static double beyond_of(struct run *run)
{
    const int stage = mcp_trainer_rank(run->trainer)->at.pipeline;
    mcp_estimate(mcp_pricer_new(run->arena, &run->question), &run->plan, &run->prediction);
    return (double)(mcp_interpreter_peak_bytes(mcp_trainer_interpreter(run->trainer)) -
                    mcp_memory_allocated(&run->prediction.stages[stage].memory));
}

static void plan(struct run *run, const struct ranks_case *layout, const char *model,
                 enum mcp_precision precision)
{
    struct mcp_error refused = {"a case of 8 bits is not legal"};
    if (!plan_precision(run, layout, model, precision) || !build_program(run))
        stop(&refused, "eight");
}

static void learn(struct run *run, int step, struct story *story)
{
    struct mcp_step_report report;
    train_step(run, step, &report);
    story->losses[step] = report.loss;
    if (step == 0)
        story->first_norm = report.grad_norm;
}

/* Weights are cast for each step: an evaluation before it is to see the same. */
static void train_many(struct mcp_cpu_world *world, const struct eight *c, struct story *story)
{
    struct mcp_program forwards;
    struct run run;
    plan(&run, &c->layout, c->model, MCP_PRECISION_FP8);
    mcp_program_build_evaluation(run.arena, &run.question, &run.plan, &forwards);
    CHECK(mcp_program_verify(run.arena, &forwards, &err));
    run.evaluation = &forwards;
    begin(&run, world, false, 0);
    story->evaluated = 0;
    for (int step = 0; step < RANKS_STEPS; step++) {
        double loss = NAN;
        run.data.step = step;
        CHECK(mcp_trainer_evaluate(run.trainer, &run.batch, &loss, &err));
        learn(&run, step, story);
        story->evaluated += loss != story->losses[step];
    }
    story->beyond = beyond_of(&run);
    CHECK(mcp_cpu_world_agree(world, &story->beyond, 1, '>', &err));
    end(&run);
}

/* On the first rank, which is who tells. */
static void train_one(struct mcp_cpu_world *world, const struct eight *c,
                      enum mcp_precision precision, struct story *story)
{
    const struct ranks_case alone = ranks_alone(c->layout.model);
    struct run run;
    plan(&run, &alone, c->model, precision);
    begin(&run, world, true, 0);
    for (int step = 0; step < RANKS_STEPS && mcp_cpu_world_rank(world) == 0; step++)
        learn(&run, step, story);
    end(&run);
}

/* What one rank makes of a model. */
struct reference {
    bool made;
    struct story eight, half;
};

static const struct reference *reference_of(struct mcp_cpu_world *world, const struct eight *c,
                                            struct reference all[RANKS_MODELS])
{
    struct reference *one = &all[c->layout.model];
    if (one->made)
        return one;
    one->made = true;
    train_one(world, c, MCP_PRECISION_FP8, &one->eight);
    train_one(world, c, MCP_PRECISION_BF16, &one->half);
    return one;
}

static double learnt(const double losses[RANKS_STEPS])
{
    return losses[0] - losses[RANKS_STEPS - 1];
}

static double apart(double a, double b)
{
    return fabs(a / b - 1);
}

/* One loss is not the other's: what another order of sums has moved by a bit of 16 bits, 8 bits
 * may round to the other neighbour, 16 or 32 times as far away. So layouts differ by as much as
 * one rank does from itself in bf16; by less, where nothing that is cast is summed otherwise. */
static void compare(struct mcp_cpu_world *world, const struct eight *c, const struct reference *one,
                    FILE *out)
{
    struct story many;
    train_many(world, c, &many);
    tell(out, "first_loss_apart", apart(many.losses[0], one->eight.losses[0]));
    tell(out, "first_norm_apart", apart(many.first_norm, one->eight.first_norm));
    tell(out, c->rounds_elsewhere ? "losses_apart" : "same_losses_apart",
         worst_of(many.losses, one->eight.losses));
    tell(out, "beside_bf16", worst_of(one->eight.losses, one->half.losses));
    tell(out, "learnt", learnt(many.losses) / learnt(one->half.losses));
    tell(out, "eval_differs", many.evaluated);
    tell(out, "bytes_beyond", many.beyond);
}

void run_eight(struct mcp_cpu_world *world, FILE *out)
{
    struct reference all[RANKS_MODELS] = {{.made = false}};
    for (int i = 0; i < NUM_CASES; i++)
        if (ranks_world(&cases[i].layout) == mcp_cpu_world_size(world))
            compare(world, &cases[i], reference_of(world, &cases[i], all), out);
}
