/* tests/planner/test_choice.c: the last choice by one programme: as good as the search
 * where nothing is required, and right where something is. */
#include "core/text.h"
#include "planner/choice.h"
#include "tests/planner/question.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdlib.h>

static const struct mcp_choice_options pool = {.top = 3, .pool_frac = 0.02};

static struct mcp_requirements require(struct mcp_arena *arena, const char *const *texts, int count)
{
    struct mcp_error err = {""};
    struct mcp_requirements list = {count, MCP_ARRAY(arena, count, struct mcp_requirement)};
    for (int i = 0; i < count; i++)
        cr_assert(mcp_requirement_parse(arena, texts[i], &list.items[i], &err) == MCP_OK, "%s",
                  err.text);
    return list;
}

static struct mcp_answer choose(struct loaded *l, const char *const *texts, int count)
{
    struct mcp_answer answer;
    struct mcp_error err = {""};
    struct mcp_plan_space space = mcp_space_default();
    const struct mcp_requirements list = require(l->arena, texts, count);
    cr_assert(mcp_require_bound(&list, &space, &err) == MCP_OK, "%s", err.text);
    mcp_choose(l->arena, &l->question, &space, &list, &pool, &answer);
    return answer;
}

static struct mcp_answer search(struct loaded *l)
{
    struct mcp_answer answer;
    const struct mcp_plan_space space = mcp_space_default();
    const struct mcp_search_options options = {.top = 3, .num_threads = 2};
    mcp_search(l->arena, &l->question, &space, &options, &answer);
    return answer;
}

struct case_question {
    char model[24], cluster[16];
    int batch, length;
};
ParameterizedTestParameters(choice, agrees_with_the_search)
{
    static struct case_question cases[] = {{"llama-3.1-8b", "dgx-h100:1", 64, 4096},
                                           {"llama-3.1-8b", "dgx-h100:2", 32, 8192},
                                           {"gpt-22b", "dgx-a100:4", 64, 2048},
                                           {"mixtral-8x7b", "dgx-h100:2", 64, 4096},
                                           {"llama-3.1-70b", "dgx-h100:4", 64, 4096}};
    return cr_make_param_array(struct case_question, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_question *c, choice, agrees_with_the_search)
{
    struct loaded l;
    load_question(&l, c->model, c->cluster, c->batch, c->length);
    struct mcp_answer chosen = choose(&l, NULL, 0), searched = search(&l);
    cr_assert(gt(int, chosen.count, 0));
    cr_assert(chosen.record.proven_optimal);
    cr_expect(eq(dbl, chosen.found[0].iteration_s, searched.found[0].iteration_s), "%s", c->model);
    mcp_arena_free(l.arena);
}

/* What is required holds, and costs. */
struct case_required {
    char text[40];
    int name;
    double low, high;
};
ParameterizedTestParameters(choice, requirements_hold)
{
    static struct case_required cases[] = {
        {"tensor_parallel in 1,8", MCP_KNOB_TENSOR, 8, 8},
        {"microbatch_size!=1", MCP_KNOB_MICROBATCH, 2, 1e9},
        {"num_microbatches<=8", MCP_REQUIRE_NUM_MICROBATCHES, 1, 8},
        {"recomputed_stages<=0", MCP_REQUIRE_RECOMPUTED_STAGES, 0, 0},
        {"peak_memory_frac<=0.7", MCP_REQUIRE_PEAK_MEMORY_FRAC, 0, 0.7},
        {"bubble_frac<=0.03", MCP_REQUIRE_BUBBLE_FRAC, 0, 0.03},
        {"peak_memory_frac>=0.92", MCP_REQUIRE_PEAK_MEMORY_FRAC, 0.92, 0.94},
    };
    return cr_make_param_array(struct case_required, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_required *c, choice, requirements_hold)
{
    struct loaded l;
    const char *const texts[] = {c->text};
    load_question(&l, "llama-3.1-70b", "dgx-h100:4", 64, 4096);
    struct mcp_answer free = choose(&l, NULL, 0), answer = choose(&l, texts, 1);
    struct mcp_prediction *p = MCP_NEW(l.arena, struct mcp_prediction);
    cr_assert(gt(int, answer.count, 0), "%s", c->text);
    for (int i = 0; i < answer.count; i++) {
        const struct mcp_plan *plan = &answer.found[i].plan;
        mcp_estimate(mcp_pricer_new(l.arena, &l.question), plan, p);
        double value = mcp_require_value(&l.question, (enum mcp_require_name)c->name, plan, p);
        cr_expect(ge(dbl, value, c->low), "%s", c->text);
        cr_expect(le(dbl, value, c->high), "%s", c->text);
        cr_expect(p->fits);
        cr_expect(eq(dbl, p->iteration_s, answer.found[i].iteration_s));
        if (i > 0)
            cr_expect(ge(dbl, p->iteration_s, answer.found[i - 1].iteration_s));
    }
    cr_expect(ge(dbl, answer.found[0].iteration_s, free.found[0].iteration_s));
    mcp_arena_free(l.arena);
}

/* Runners-up have other degrees. */
Test(choice, runners_up_differ)
{
    struct loaded l;
    load_question(&l, "llama-3.1-8b", "dgx-h100:2", 64, 4096);
    struct mcp_answer answer = choose(&l, NULL, 0);
    cr_assert(gt(int, answer.count, 1));
    for (int i = 0; i < answer.count; i++)
        for (int k = 0; k < i; k++) {
            int differ = 0;
            for (int knob = MCP_KNOB_TENSOR; knob <= MCP_KNOB_EXPERT; knob++)
                differ += mcp_knob_value((enum mcp_knob)knob, &answer.found[i].plan) !=
                          mcp_knob_value((enum mcp_knob)knob, &answer.found[k].plan);
            cr_expect(gt(int, differ, 0));
        }
    mcp_arena_free(l.arena);
}

/* Nothing can meet it: no plan, and the record says why. */
Test(choice, nothing_meets_it)
{
    static const char *const texts[] = {"num_microbatches>=100000", "tensor_parallel in 2,8"};
    struct loaded l;
    load_question(&l, "llama-3.1-8b", "dgx-h100:1", 64, 4096);
    struct mcp_answer answer = choose(&l, texts, 2);
    cr_expect(eq(int, answer.count, 0));
    cr_expect(answer.record.proven_optimal);
    cr_expect(gt(i64, mcp_search_refused(&answer.record, mcp_rule_required), 0));
    mcp_arena_free(l.arena);
}
