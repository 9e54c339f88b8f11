/* tests/planner/test_space.c: what is enumerated, and what numbers cannot mean. */
#include "planner/space.h"
#include "tests/planner/question.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

/* Candidates by loops that know nothing of lists. */
struct case_count {
    char name[48], model[24], cluster[16];
    int batch, experts;
};
ParameterizedTestParameters(space, layouts)
{
    static struct case_count cases[] = {
        {"one GPU", "gpt2", "dgx-h100:1", 8, 0},
        {"dense on 16", "llama-3.1-8b", "dgx-a100:2", 64, 0},
        {"odd nodes", "llama-3.1-8b", "dgx-a100:3", 48, 0},
        {"experts on 16", "mixtral-8x7b", "dgx-h100:2", 64, 8},
    };
    return cr_make_param_array(struct case_count, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_count *c, space, layouts)
{
    struct loaded l;
    struct mcp_layout *layouts;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, c->model, c->cluster, c->batch, 2048);
    int gpus = mcp_cluster_gpus(&l.cluster), expected = 0;
    for (int t = 1; t <= gpus; t++)
        for (int x = 1; t * x <= gpus; x++)
            for (int p = 1; t * x * p <= gpus; p++) {
                int d = gpus / (t * x * p), ranks = t * x * d;
                if (t * x * p * d != gpus)
                    continue;
                for (int e = 1; e <= (c->experts > 0 ? c->experts : 1); e++)
                    expected += c->experts == 0 || (c->experts % e == 0 && ranks % e == 0);
            }
    int count = mcp_space_layouts(l.arena, &l.question, &space, &layouts);
    cr_expect(eq(int, count, expected), "%s", c->name);
    for (int i = 0; i < count; i++)
        cr_expect(eq(int,
                     layouts[i]
                         .tensor_parallel *layouts[i]
                         .context_parallel *layouts[i]
                         .pipeline_parallel *layouts[i]
                         .data_parallel,
                     gpus));
    mcp_arena_free(l.arena);
}

/* Every candidate is another plan, within what was asked for. */
Test(space, candidates_differ)
{
    struct loaded l;
    struct mcp_choices choices;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "llama-3.1-8b", "dgx-h100:4", 64, 4096);
    const struct mcp_layout layout = {2, 2, 4, 2, 1};
    mcp_space_choices(l.arena, &l.question, &space, &layout, &choices);
    int64_t count = mcp_choices_count(&choices);
    /* kinds 3, SP 2, (v=1: gpipe, 1f1b; v = 2, 3, 4, 8), b 1 2 4 8 16 32, ZeRO 5, recompute 3 */
    cr_assert(eq(i64, count, INT64_C(3) * 2 * 6 * 6 * 5 * 3 * choices.rank_orders.count));
    cr_expect(gt(int, choices.rank_orders.count, 4));
    cr_expect(lt(int, choices.rank_orders.count, MCP_NUM_RANK_ORDERS));
    for (int64_t i = 0; i + 1 < count; i++) {
        struct mcp_plan a, b;
        bool differ = false;
        mcp_choices_plan(&choices, i, &a);
        mcp_choices_plan(&choices, i + 1, &b);
        for (int k = 0; k < MCP_NUM_KNOBS; k++)
            differ |= mcp_knob_value((enum mcp_knob)k, &a) != mcp_knob_value((enum mcp_knob)k, &b);
        cr_expect(differ, "candidate %lld", (long long)i);
    }
    mcp_arena_free(l.arena);
}

struct case_bound {
    char name[48];
    enum mcp_knob knob;
    int low, high;
    int values[8]; /* that are left, ascending; 0 ends */
};
ParameterizedTestParameters(space, bounds)
{
    static struct case_bound cases[] = {
        {"a pinned tensor degree", MCP_KNOB_TENSOR, 4, 4, {4}},
        {"bounded tensor degrees", MCP_KNOB_TENSOR, 2, 7, {2, 4}},
        {"bounded data degrees", MCP_KNOB_DATA, 4, 16, {4, 8, 16}},
        {"a pinned microbatch", MCP_KNOB_MICROBATCH, 2, 2, {2}},
        {"bounded microbatches", MCP_KNOB_MICROBATCH, 3, 9, {4, 8}},
        {"bounded virtual stages are all looked at", MCP_KNOB_VIRTUAL_STAGES, 3, 5, {3, 4, 5}},
        {"a pinned ZeRO stage", MCP_KNOB_ZERO_STAGE, 1, 1, {1}},
        {"full recompute", MCP_KNOB_RECOMPUTE, MCP_RECOMPUTE_FULL, MCP_RECOMPUTE_FULL, {2}},
        {"a pinned value no plan can have stays", MCP_KNOB_MICROBATCH, 5, 5, {5}},
    };
    return cr_make_param_array(struct case_bound, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_bound *c, space, bounds)
{
    struct loaded l;
    struct mcp_layout *layouts;
    struct mcp_plan_space space = mcp_space_default();
    bool seen[64] = {false};
    load_question(&l, "llama-3.1-8b", "dgx-h100:2", 64, 4096);
    space.knobs[c->knob] = (struct mcp_interval){true, c->low, c->high};
    int num_layouts = mcp_space_layouts(l.arena, &l.question, &space, &layouts);
    for (int i = 0; i < num_layouts; i++) {
        struct mcp_choices choices;
        mcp_space_choices(l.arena, &l.question, &space, &layouts[i], &choices);
        for (int64_t k = 0; k < mcp_choices_count(&choices); k++) {
            struct mcp_plan plan;
            mcp_choices_plan(&choices, k, &plan);
            if (!mcp_illegal_rule(&l.question, &plan) || c->low == 5)
                seen[mcp_knob_value(c->knob, &plan)] = true;
        }
    }
    for (int value = 0, next = 0; value < 64; value++) {
        bool wanted = next < 8 && c->values[next] == value && value > 0;
        next += wanted;
        cr_expect(eq(int, seen[value], wanted), "%s: %d", c->name, value);
    }
    mcp_arena_free(l.arena);
}

/* Indices, names and orders belong together. */
Test(space, rank_orders)
{
    static const char *const axes[] = {"tensor", "context", "data", "pipeline"};
    for (int i = 0; i < MCP_NUM_RANK_ORDERS; i++) {
        enum mcp_axis order[4];
        const char *name = mcp_rank_order_names[i];
        mcp_rank_order(i, order);
        cr_expect(eq(int, (int)(order[0] | order[1] | order[2] | order[3]), 15));
        cr_expect(eq(int, mcp_rank_order_index(order), i));
        for (int k = 0; k < 4; k++) {
            int axis = 0;
            while (order[k] != (enum mcp_axis)(1 << axis))
                axis++;
            cr_expect(eq(int, strncmp(name, axes[axis], strlen(axes[axis])), 0), "%d", i);
            name += strlen(axes[axis]) + 1;
        }
    }
    const struct mcp_plan usual = mcp_plan_default();
    cr_expect(eq(int, mcp_rank_order_index(usual.rank_order), 0));
}

struct case_check {
    char name[40];
    int degrees[4]; /* tensor, context, pipeline, data; 0: free */
    int microbatch;
    char says[3][72];
};
ParameterizedTestParameters(space, check)
{
    static struct case_check cases[] = {
        {"free", {0, 0, 0, 0}, 0, {""}},
        {"all right", {8, 1, 2, 1}, 4, {""}},
        {"not a divisor",
         {3, 0, 0, 0},
         0,
         {"tensor_parallel=3 does not divide 16 GPUs", "16 = 3 x 5 + 1", "nearest: 2 and 4"}},
        {"more than there are",
         {0, 0, 32, 0},
         0,
         {"pipeline_parallel=32", "16 GPUs", "nearest: 16"}},
        {"too large together",
         {8, 0, 4, 0},
         0,
         {"tensor_parallel=8 x pipeline_parallel=4 = 32 does not divide 16 GPUs", "is 32"}},
        {"another world",
         {2, 2, 2, 1},
         0,
         {"= 8 ranks, but there are 16 GPUs", "leave data_parallel out", "--gpus 8"}},
        {"batch not divisible",
         {0, 0, 0, 16},
         0,
         {"data_parallel=16 does not divide global_batch_size=72", "remainder 8", "80"}},
        {"whole batch not divisible",
         {0, 0, 0, 0},
         7,
         {"microbatch_size=7 does not divide global_batch_size=72", "nearest: 6 and 8"}},
        {"replica not divisible",
         {0, 0, 0, 8},
         2,
         {"microbatch_size=2 does not divide a replica's batch, 72 / 8 = 9", "nearest: 1 and 3"}},
    };
    return cr_make_param_array(struct case_check, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_check *c, space, check)
{
    struct loaded l;
    struct mcp_error err = {""};
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "llama-3.1-8b", "dgx-h100:2", 72, 4096);
    for (int i = 0; i < 4; i++)
        if (c->degrees[i] > 0)
            mcp_space_pin(&space, (enum mcp_knob)(MCP_KNOB_TENSOR + i), c->degrees[i]);
    if (c->microbatch > 0)
        mcp_space_pin(&space, MCP_KNOB_MICROBATCH, c->microbatch);
    enum mcp_status want = c->says[0][0] == '\0' ? MCP_OK : MCP_INVALID;
    enum mcp_status got = mcp_space_check(&l.question, &space, &err);
    cr_expect(eq(int, (int)got, (int)want), "%s: %s", c->name, err.text);
    for (int i = 0; i < 3; i++)
        cr_expect(ne(ptr, strstr(err.text, c->says[i]), NULL), "%s: %s", c->name, err.text);
    mcp_arena_free(l.arena);
}
