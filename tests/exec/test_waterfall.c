/* tests/exec/test_waterfall.c: what each way to save memory saves, beside published figures: by
 * the plan, and by the places that the executor takes. */
#include "core/text.h"
#include "step/build.h"
#include "step/estimate.h"
#include "step/pool.h"
#include "tests/step/setup.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

enum { RANKS = 8, LENGTH = 256, SEQUENCES = 16, LAYERS = 24 };

struct step {
    int recomputed; /* of the layers, in full */
    int zero_stage, bits;
    double saved_frac;     /* of the step before */
    double published_frac; /* the same of a model of 70 B; 0: not compared */
};

static void make_plan(struct setup *s, const struct step *step)
{
    struct mcp_recompute_run *runs;
    setup_load(s, "tests/exec/models/llama-deep.json", "dgx-a100", "mcpplan-cpu");
    s->job.precision = MCP_PRECISION_BF16;
    s->job.attention = "flash2";
    s->job.sequence_length = LENGTH;
    s->job.saved_activation_bits = step->bits;
    s->plan.data_parallel = RANKS;
    s->plan.microbatch_size = SEQUENCES;
    s->plan.zero_stage = step->zero_stage;
    s->plan.reshard_after_forward = step->zero_stage == 3;
    setup_finish(s, 1, MCP_RECOMPUTE_NONE);
    runs = MCP_ARRAY(s->arena, 2, struct mcp_recompute_run);
    runs[0] = (struct mcp_recompute_run){MCP_RECOMPUTE_FULL, step->recomputed};
    runs[1] = (struct mcp_recompute_run){MCP_RECOMPUTE_NONE, LAYERS - step->recomputed};
    if (step->recomputed % LAYERS != 0) {
        s->plan.chunks[0].runs = runs;
        s->plan.chunks[0].num_runs = 2;
    } else if (step->recomputed == LAYERS) {
        mcp_plan_uniform_chunks(s->arena, &s->plan, LAYERS, MCP_RECOMPUTE_FULL);
    }
}

/* Bytes that live at once on a rank: planned, and as the executor places them. */
static double bytes_of(const struct step *step)
{
    struct setup s;
    struct mcp_error err = {""};
    struct mcp_program program;
    struct mcp_pool *pool;
    make_plan(&s, step);
    struct mcp_prediction *planned = MCP_NEW(s.arena, struct mcp_prediction);
    mcp_estimate(mcp_pricer_new(s.arena, &s.question), &s.plan, planned);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    cr_assert(eq(int, (int)mcp_pool_new(s.arena, &program, 0, &pool, &err), 0), "%s", err.text);
    const int64_t bytes = mcp_pool_peak_bytes(pool);
    cr_expect(eq(i64, mcp_memory_allocated(&planned->stages[0].memory), bytes));
    mcp_arena_free(s.arena);
    return (double)bytes;
}

static void check_steps(const struct step *steps, size_t count)
{
    double before = bytes_of(&steps[0]);
    for (size_t i = 1; i < count; i++) {
        const double bytes = bytes_of(&steps[i]), saved = 1 - bytes / before;
        const double published = steps[i].published_frac;
        cr_log_info("%.1f MB, then %.1f MB: %.1f %%\n", before / 1e6, bytes / 1e6, 100 * saved);
        cr_expect(fabs(saved - steps[i].saved_frac) < 0.005, "step %zu saves %.1f %%", i,
                  100 * saved);
        cr_expect(published <= 0 || fabs(saved - published) < 0.03, "step %zu saves %.1f %%", i,
                  100 * saved);
        before = bytes;
    }
}

/* Three quarters of the layers recomputed, then ZeRO 3, then 8 bits: 46, 45 and 35 % published. */
Test(waterfall, some_layers_recomputed)
{
    static const struct step steps[] = {
        {0, 0, 0, 0, 0},
        {18, 0, 0, 0.473, 0.46},
        {18, 3, 0, 0.474, 0.45},
        {18, 3, 8, 0.333, 0.35},
    };
    check_steps(steps, MCP_COUNT_OF(steps));
}

/* All of them: only inputs are left to be kept in 8 bits. */
Test(waterfall, all_layers_recomputed)
{
    static const struct step steps[] = {
        {0, 0, 0, 0, 0},
        {LAYERS, 0, 0, 0.627, 0},
        {LAYERS, 3, 0, 0.671, 0},
        {LAYERS, 3, 8, 0.152, 0},
    };
    check_steps(steps, MCP_COUNT_OF(steps));
}
