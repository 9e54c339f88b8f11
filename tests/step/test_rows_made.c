/* tests/step/test_rows_made.c: rows made of a plan's prices are legal, fit, and take no less than is
 * said to be the least. */
#include "step/rows.h"
#include "tests/step/random_plan.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <string.h>

struct tally {
    int made, judged, full;
};

static void judge(struct mcp_arena *arena, const struct random_plan *drawn, struct mcp_plan plan,
                  struct tally *tally)
{
    struct mcp_error err = {""};
    struct mcp_refusals refusals;
    struct mcp_pricer *pricer = mcp_pricer_new(arena, &drawn->question);
    struct mcp_prediction *prediction = MCP_NEW(arena, struct mcp_prediction);
    mcp_plan_uniform_chunks(arena, &plan, drawn->model.num_layers, MCP_RECOMPUTE_NONE);
    struct mcp_rows_problem problem = mcp_rows_problem(arena, pricer, &plan, false);
    if (mcp_schedule_is_made(plan.schedule) &&
        mcp_plan_make_rows(arena, pricer, &plan, &err) != MCP_OK) {
        cr_expect(problem.synthesis.limit_bytes == NULL, "%s", err.text);
        return;
    }
    cr_assert(mcp_legal(arena, &drawn->question, &plan, &refusals), "%s: %s",
              mcp_schedule_names[plan.schedule], refusals.items[0].text);
    mcp_estimate(pricer, &plan, prediction);
    if (problem.synthesis.limit_bytes == NULL) {
        cr_expect(prediction->fits == false);
        return;
    }
    tally->made++;
    tally->full += prediction->fits == false;
    if (!prediction->fits)
        return;
    tally->judged++;
    cr_expect(problem.bound_ns <= llround(prediction->iteration_s * 1e9), "%s: %lld, %.0f",
              mcp_schedule_names[plan.schedule], (long long)problem.bound_ns,
              prediction->iteration_s * 1e9);
}

Test(rows_made, fit_and_take_no_less_than_their_bound)
{
    static const enum mcp_schedule schedules[] = {MCP_ZB_H1,  MCP_ZB_H2, MCP_ZB_V,
                                                  MCP_V_HALF, MCP_V_MIN, MCP_DUALPIPE_V};
    struct tally tally = {0};
    for (uint64_t seed = 1; seed <= 250; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        random_plan_draw(arena, seed, &drawn);
        struct mcp_plan plan = drawn.plan;
        plan.schedule = schedules[seed % 6];
        plan.virtual_stages = mcp_schedule_placement(plan.schedule) == MCP_PLACEMENT_V ? 2 : 1;
        plan.rows = NULL;
        const char *rule = mcp_illegal_rule(&drawn.question, &plan);
        bool rows_alone = rule != NULL && strcmp(rule, "schedule_has_rows") == 0;
        if (plan.pipeline_parallel > 1 && (rule == NULL || rows_alone))
            judge(arena, &drawn, plan, &tally);
        mcp_arena_free(arena);
    }
    cr_log_info("%d made, %d judged, %d too full", tally.made, tally.judged, tally.full);
    cr_expect(gt(int, tally.judged, 30));
    cr_expect(lt(int, tally.full, tally.made / 4));
}
