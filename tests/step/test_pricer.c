/* tests/step/test_pricer.c: what a pricer keeps changes nothing of what it says. */
#include "step/estimate.h"
#include "tests/step/random_plan.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

enum { NUM_PLANS = 120 };

/* The same ranks in all orders of the four axes that fill the same GPUs: the i-th of 24. */
static void reorder(struct mcp_plan *plan, int i)
{
    enum mcp_axis axes[4] = {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE};
    for (int place = 0; place < 4; place++) {
        int left = 4 - place, at = place + i % left;
        i /= left;
        plan->rank_order[place] = axes[at];
        memmove(axes + place + 1, axes + place, (size_t)(at - place) * sizeof *axes);
    }
}

static void expect_sums(const struct mcp_prediction *a, const struct mcp_prediction *b,
                        const char *what, const char *name)
{
    cr_expect(eq(dbl, a->iteration_s, b->iteration_s), "%s: %s", name, what);
    cr_expect(eq(i64, a->peak_memory_bytes, b->peak_memory_bytes), "%s: %s", name, what);
    cr_expect(eq(int, a->fits, b->fits), "%s: %s", name, what);
}

/* A machine with slower links, and the pricer of the first beside. */
static void expect_beside(struct mcp_arena *arena, const struct random_plan *drawn,
                          const struct mcp_pricer *pricer, const char *name)
{
    struct mcp_cluster slower = drawn->cluster;
    struct mcp_question question = drawn->question;
    struct mcp_prediction *own = MCP_NEW(arena, struct mcp_prediction);
    struct mcp_prediction *shared = MCP_NEW(arena, struct mcp_prediction);
    const struct mcp_pricer_options options = {.sums_only = true, .beside = pricer};
    question.cluster = &slower;
    for (int tier = 0; tier < slower.num_tiers; tier++)
        slower.tiers[tier].bandwidth_bytes_per_s /= 3;
    mcp_estimate(mcp_pricer_new(arena, &question), &drawn->plan, own);
    mcp_estimate(mcp_pricer_with(arena, &question, &options), &drawn->plan, shared);
    expect_sums(shared, own, "beside another", name);
}

static void expect_same(struct mcp_arena *arena, struct random_plan *drawn, const char *name)
{
    const struct mcp_pricer_options sums = {.sums_only = true};
    struct mcp_pricer *one = mcp_pricer_new(arena, &drawn->question);
    struct mcp_pricer *lean = mcp_pricer_with(arena, &drawn->question, &sums);
    struct mcp_prediction *kept = MCP_NEW(arena, struct mcp_prediction);
    struct mcp_prediction *fresh = MCP_NEW(arena, struct mcp_prediction);
    for (int i = 0; i < 24; i += 5) {
        reorder(&drawn->plan, i);
        mcp_estimate(mcp_pricer_new(arena, &drawn->question), &drawn->plan, fresh);
        mcp_estimate(one, &drawn->plan, kept);
        expect_sums(kept, fresh, "after other orders", name);
        for (int cost = 0; cost < MCP_NUM_COSTS; cost++) {
            cr_expect(eq(dbl, kept->cost_s[cost], fresh->cost_s[cost]), "%s: order %d", name, i);
            cr_expect(eq(dbl, kept->comm_s[cost], fresh->comm_s[cost]), "%s: order %d", name, i);
        }
        mcp_estimate(lean, &drawn->plan, kept);
        expect_sums(kept, fresh, "sums alone", name);
        if (i == 10)
            mcp_pricer_rest(lean);
    }
    expect_beside(arena, drawn, one, name);
}

Test(pricer, keeps_what_it_says)
{
    int priced = 0;
    for (uint64_t seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        random_plan_draw_any(arena, seed, &drawn);
        if (drawn.cluster.next == NULL && drawn.plan.rank_map == NULL) {
            expect_same(arena, &drawn, random_plan_describe(arena, &drawn));
            priced++;
        }
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, priced, NUM_PLANS / 2));
}
