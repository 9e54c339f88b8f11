/* tests/planner/test_require.c: requirements as people write them. */
#include "core/text.h"
#include "planner/require.h"
#include "tests/planner/question.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

struct case_parse {
    char text[64];
    int name, op; /* -1: refused */
    int count;
    double values[3];
    char says[80];
};
ParameterizedTestParameters(require, parse)
{
    static struct case_parse cases[] = {
        {"pipeline_parallel<=8", MCP_KNOB_PIPELINE, MCP_AT_MOST, 1, {8}, ""},
        {"  pipeline-parallel  <=  8 ", MCP_KNOB_PIPELINE, MCP_AT_MOST, 1, {8}, ""},
        {"tensor_parallel in 4,8", MCP_KNOB_TENSOR, MCP_ONE_OF, 2, {4, 8}, ""},
        {"tensor_parallel=4", MCP_KNOB_TENSOR, MCP_ONE_OF, 1, {4}, ""},
        {"tensor_parallel==4", MCP_KNOB_TENSOR, MCP_ONE_OF, 1, {4}, ""},
        {"tensor_parallel!=4, 2", MCP_KNOB_TENSOR, MCP_NONE_OF, 2, {4, 2}, ""},
        {"zero_stage<2", MCP_KNOB_ZERO_STAGE, MCP_BELOW, 1, {2}, ""},
        {"microbatch_size>1", MCP_KNOB_MICROBATCH, MCP_ABOVE, 1, {1}, ""},
        {"schedule=1f1b", MCP_KNOB_SCHEDULE, MCP_ONE_OF, 1, {MCP_1F1B}, ""},
        {"recompute in none,full", MCP_KNOB_RECOMPUTE, MCP_ONE_OF, 2, {0, 2}, ""},
        {"sequence_parallel=off", MCP_KNOB_SEQUENCE_PARALLEL, MCP_ONE_OF, 1, {0}, ""},
        {"recomputed_stages<=2", MCP_REQUIRE_RECOMPUTED_STAGES, MCP_AT_MOST, 1, {2}, ""},
        {"peak_memory_frac>=0.9", MCP_REQUIRE_PEAK_MEMORY_FRAC, MCP_AT_LEAST, 1, {0.9}, ""},
        {"peak_memory_frac >= 90 %", MCP_REQUIRE_PEAK_MEMORY_FRAC, MCP_AT_LEAST, 1, {0.9}, ""},
        {"peak_memory_bytes<=1GiB", MCP_REQUIRE_PEAK_MEMORY_BYTES, MCP_AT_MOST, 1, {1 << 30}, ""},
        {"iteration_s<=1500ms", MCP_REQUIRE_ITERATION_S, MCP_AT_MOST, 1, {1.5}, ""},
        {"iteration_s<=1.5", MCP_REQUIRE_ITERATION_S, MCP_AT_MOST, 1, {1.5}, ""},
        {"pipelin_parallel<=8", -1, 0, 0, {0}, "did you mean pipeline_parallel?"},
        {"xyzzy<=8", -1, 0, 0, {0}, "what can be required is tensor_parallel"},
        {"pipeline_parallel", -1, 0, 0, {0}, "is no requirement"},
        {"<=8", -1, 0, 0, {0}, "is no requirement"},
        {"", -1, 0, 0, {0}, "is no requirement"},
        {"pipeline_parallel<=", -1, 0, 0, {0}, "needs a whole number, not \"\""},
        {"pipeline_parallel<=8,4", -1, 0, 0, {0}, "needs a whole number, not \"8,4\""},
        {"pipeline_parallel<=-1", -1, 0, 0, {0}, "needs a whole number"},
        {"pipeline_parallel<=1e9", -1, 0, 0, {0}, "needs a whole number"},
        {"pipeline_parallel in 4,,8", -1, 0, 0, {0}, "not \"\""},
        {"pipeline_parallel in4", -1, 0, 0, {0}, "is no requirement"},
        {"recompute<=full", -1, 0, 0, {0}, "recompute has no order"},
        {"recompute=ful", -1, 0, 0, {0}, "did you mean full"},
        {"peak_memory_frac>=lots", -1, 0, 0, {0}, "needs a share"},
        {"peak_memory_frac>=nan", -1, 0, 0, {0}, "needs a share"},
        {"peak_memory_bytes<=60 seconds", -1, 0, 0, {0}, "needs bytes"},
    };
    return cr_make_param_array(struct case_parse, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_parse *c, require, parse)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_requirement r = {0};
    struct mcp_error err = {""};
    enum mcp_status status = mcp_requirement_parse(arena, c->text, &r, &err);
    cr_expect(eq(int, (int)status, c->name < 0 ? MCP_USAGE : MCP_OK), "%s: %s", c->text, err.text);
    cr_expect(strstr(err.text, c->says) != NULL, "%s: %s", c->text, err.text);
    if (status == MCP_OK) {
        cr_expect(eq(int, (int)r.name, c->name));
        cr_expect(eq(int, (int)r.op, c->op));
        cr_expect(eq(int, r.count, c->count));
        for (int i = 0; i < c->count; i++)
            cr_expect(ieee_ulp_eq(dbl, r.values[i], c->values[i], 2), "%s", c->text);
    }
    mcp_arena_free(arena);
}

static struct mcp_requirements read_all(struct mcp_arena *arena, const char *const *texts,
                                        int count)
{
    struct mcp_error err = {""};
    struct mcp_requirements list = {count, MCP_ARRAY(arena, count, struct mcp_requirement)};
    for (int i = 0; i < count; i++)
        cr_assert(mcp_requirement_parse(arena, texts[i], &list.items[i], &err) == MCP_OK, "%s",
                  err.text);
    return list;
}

/* Ranges narrow the space, together with what it had. */
Test(require, bounds)
{
    static const char *const texts[] = {"pipeline_parallel<=8", "pipeline_parallel>1",
                                        "tensor_parallel in 8,4", "zero_stage!=2"};
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_plan_space space = mcp_space_default();
    struct mcp_requirements list = read_all(arena, texts, 4);
    space.knobs[MCP_KNOB_PIPELINE] = (struct mcp_interval){true, 1, 4};
    cr_assert(mcp_require_bound(&list, &space, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(int, space.knobs[MCP_KNOB_PIPELINE].low, 2));
    cr_expect(eq(int, space.knobs[MCP_KNOB_PIPELINE].high, 4));
    cr_expect(eq(int, space.knobs[MCP_KNOB_TENSOR].low, 4));
    cr_expect(eq(int, space.knobs[MCP_KNOB_TENSOR].high, 8));
    cr_expect(not(space.knobs[MCP_KNOB_ZERO_STAGE].given));
    cr_expect(not(space.knobs[MCP_KNOB_DATA].given));
    mcp_arena_free(arena);
}

struct case_contradicts {
    char first[40], second[40];
    char says[64];
};
ParameterizedTestParameters(require, contradictions)
{
    static struct case_contradicts cases[] = {
        {"pipeline_parallel<=2", "pipeline_parallel>=4", "contradicts the bounds 1..2"},
        {"pipeline_parallel<1", "pipeline_parallel<=8", "leaves pipeline_parallel no value"},
        {"zero_stage>3", "pipeline_parallel<=8", "it is 0 to 3"},
        {"schedule=1f1b", "schedule=gpipe", "contradicts the bounds"},
    };
    return cr_make_param_array(struct case_contradicts, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_contradicts *c, require, contradictions)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    const char *const texts[] = {c->first, c->second};
    struct mcp_plan_space space = mcp_space_default();
    struct mcp_requirements list = read_all(arena, texts, 2);
    cr_expect(eq(int, (int)mcp_require_bound(&list, &space, &err), MCP_INVALID));
    cr_expect(strstr(err.text, c->says) != NULL, "%s", err.text);
    mcp_arena_free(arena);
}

struct case_more {
    char text[40];
    bool more;
};
ParameterizedTestParameters(require, more_than_bounds)
{
    static struct case_more cases[] = {
        {"pipeline_parallel<=8", false},  {"pipeline_parallel=8", false},
        {"zero_stage in 2,1", false},     {"tensor_parallel in 4,8", true},
        {"tensor_parallel!=4", true},     {"num_microbatches>=8", true},
        {"peak_memory_frac>=0.9", true},  {"recomputed_stages<=2", true},
        {"recompute in none,full", true}, {"recompute in none,selective", false},
    };
    return cr_make_param_array(struct case_more, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_more *c, require, more_than_bounds)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *const texts[] = {c->text};
    struct mcp_requirements list = read_all(arena, texts, 1);
    cr_expect(eq(int, mcp_require_more(&list), c->more), "%s", c->text);
    mcp_arena_free(arena);
}

/* What a plan has: two stages of four, of which the second recomputes half. */
Test(require, values_of_a_plan)
{
    struct loaded l;
    struct mcp_recompute_run runs[2][2] = {{{MCP_RECOMPUTE_NONE, 15}},
                                           {{MCP_RECOMPUTE_FULL, 8}, {MCP_RECOMPUTE_NONE, 9}}};
    struct mcp_chunk chunks[2] = {{0, 15, 1, runs[0]}, {15, 17, 2, runs[1]}};
    load_question(&l, "llama-3.1-8b", "dgx-h100:1", 64, 4096);
    struct mcp_plan plan = mcp_plan_default();
    plan.pipeline_parallel = 2;
    plan.data_parallel = 4;
    plan.microbatch_size = 2;
    plan.chunks = chunks;
    struct mcp_prediction *p = MCP_NEW(l.arena, struct mcp_prediction);
    mcp_estimate(mcp_pricer_new(l.arena, &l.question), &plan, p);
    const struct mcp_question *q = &l.question;
    cr_expect(eq(dbl, mcp_require_value(q, MCP_REQUIRE_NUM_MICROBATCHES, &plan, NULL), 8));
    cr_expect(eq(dbl, mcp_require_value(q, MCP_REQUIRE_RECOMPUTED_STAGES, &plan, NULL), 1));
    cr_expect(eq(dbl, mcp_require_value(q, MCP_REQUIRE_RECOMPUTED_LAYERS, &plan, NULL), 8));
    cr_expect(eq(dbl, mcp_require_value(q, MCP_REQUIRE_MOST_LAYERS, &plan, NULL), 17));
    cr_expect(eq(dbl, mcp_require_value(q, MCP_REQUIRE_ITERATION_S, &plan, p), p->iteration_s));
    static const char *const texts[] = {"num_microbatches>=8", "recompute in none,full",
                                        "recomputed_layers<8", "most_layers<=16"};
    struct mcp_requirements list = read_all(l.arena, texts, 4);
    cr_expect(mcp_require_broken(&list, q, &plan) == NULL);
    cr_expect(mcp_require_broken_priced(&list, q, &plan, p) == &list.items[2]);
    list.items += 3;
    list.count = 1;
    cr_expect(mcp_require_broken_priced(&list, q, &plan, p) == &list.items[0]);
    mcp_arena_free(l.arena);
}
