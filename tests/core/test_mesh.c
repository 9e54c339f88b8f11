/* tests/core/test_mesh.c: ranks, coordinates and groups, against counting by hand. */
#include "core/mesh.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

#define MAX_WORLD 256

struct case_mesh {
    int tensor, context, pipeline, data, expert;
    enum mcp_axis order[4];
};
static struct criterion_test_params mesh_cases(void)
{
    static struct case_mesh cases[] = {
        {1, 1, 1, 1, 1, {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE}},
        {8, 1, 4, 2, 4, {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE}},
        {2, 4, 3, 4, 16, {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE}},
        {3, 2, 2, 5, 6, {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE}},
        {4, 1, 4, 8, 8, {MCP_TENSOR, MCP_PIPELINE, MCP_DATA, MCP_CONTEXT}},
        {4, 1, 2, 6, 6, {MCP_TENSOR, MCP_PIPELINE, MCP_DATA, MCP_CONTEXT}},
        {2, 2, 4, 2, 2, {MCP_PIPELINE, MCP_DATA, MCP_TENSOR, MCP_CONTEXT}},
        {2, 2, 1, 4, 8, {MCP_CONTEXT, MCP_TENSOR, MCP_PIPELINE, MCP_DATA}},
    };
    return cr_make_param_array(struct case_mesh, cases, sizeof cases / sizeof *cases);
}

ParameterizedTestParameters(mesh, groups)
{
    return mesh_cases();
}
ParameterizedTestParameters(mesh, domains)
{
    return mesh_cases();
}

static struct mcp_plan plan_of(const struct case_mesh *c)
{
    struct mcp_plan plan = {0};
    plan.tensor_parallel = c->tensor;
    plan.context_parallel = c->context;
    plan.pipeline_parallel = c->pipeline;
    plan.data_parallel = c->data;
    plan.expert_parallel = c->expert;
    for (int i = 0; i < 4; i++)
        plan.rank_order[i] = c->order[i];
    return plan;
}

static int world_of(const struct mcp_plan *plan)
{
    return plan->tensor_parallel * plan->context_parallel * plan->pipeline_parallel *
           plan->data_parallel;
}

/* A rank's number in tensor x context x data, in rank order. */
static int plane_index(const struct mcp_plan *plan, struct mcp_coordinate at)
{
    int index = 0;
    for (int i = 3; i >= 0; i--) {
        if (plan->rank_order[i] == MCP_TENSOR)
            index = index * plan->tensor_parallel + at.tensor;
        if (plan->rank_order[i] == MCP_CONTEXT)
            index = index * plan->context_parallel + at.context;
        if (plan->rank_order[i] == MCP_DATA)
            index = index * plan->data_parallel + at.data;
    }
    return index;
}

/* Whether two ranks differ in nothing but `axes`, from the definitions. */
static bool same_group(const struct mcp_plan *plan, unsigned axes, int a, int b)
{
    struct mcp_coordinate x = mcp_mesh_coordinate(plan, a), y = mcp_mesh_coordinate(plan, b);
    int last = plan->pipeline_parallel - 1, e = plan->expert_parallel;
    if (axes & MCP_ENDS)
        return (x.pipeline == 0 || x.pipeline == last) && (y.pipeline == 0 || y.pipeline == last) &&
               x.tensor == y.tensor && x.context == y.context && x.data == y.data;
    if (!(axes & MCP_PIPELINE) && x.pipeline != y.pipeline)
        return false;
    if (axes & MCP_EXPERT)
        return plane_index(plan, x) / e == plane_index(plan, y) / e;
    if (axes & MCP_EXPERT_DATA)
        return plane_index(plan, x) % e == plane_index(plan, y) % e;
    return ((axes & MCP_TENSOR) || x.tensor == y.tensor) &&
           ((axes & MCP_CONTEXT) || x.context == y.context) &&
           ((axes & MCP_DATA) || x.data == y.data);
}

static const unsigned all_axes[] = {
    0,
    MCP_TENSOR,
    MCP_CONTEXT,
    MCP_DATA,
    MCP_PIPELINE,
    MCP_CONTEXT | MCP_DATA,
    MCP_TENSOR | MCP_DATA,
    MCP_TENSOR | MCP_CONTEXT | MCP_DATA,
    MCP_TENSOR | MCP_CONTEXT | MCP_DATA | MCP_PIPELINE,
    MCP_TENSOR | MCP_PIPELINE,
    MCP_EXPERT,
    MCP_EXPERT_DATA,
    MCP_EXPERT | MCP_PIPELINE,
    MCP_ENDS,
};
#define NUM_AXES (sizeof all_axes / sizeof *all_axes)

static void check_members(const struct mcp_plan *plan, unsigned axes, int rank)
{
    int members[MAX_WORLD], want = 0, found = 0;
    int count = mcp_group_members(plan, axes, rank, members);
    cr_expect(eq(int, count, mcp_group_size(plan, axes)), "axes %u", axes);
    for (int other = 0; other < world_of(plan); other++)
        want += same_group(plan, axes, rank, other);
    for (int i = 0; i < count; i++)
        found += same_group(plan, axes, rank, members[i]);
    cr_expect(eq(int, count, want), "axes %u of rank %d", axes, rank);
    cr_expect(eq(int, found, want), "axes %u of rank %d", axes, rank);
    for (int i = 1; i < count; i++)
        cr_expect(members[i] > members[i - 1] || plan->rank_order[3] != MCP_PIPELINE,
                  "axes %u of rank %d is not ascending", axes, rank);
}

ParameterizedTest(struct case_mesh *c, mesh, groups)
{
    struct mcp_plan plan = plan_of(c);
    for (int rank = 0; rank < world_of(&plan); rank++) {
        struct mcp_coordinate at = mcp_mesh_coordinate(&plan, rank);
        cr_expect(eq(int, mcp_mesh_rank(&plan, at), rank));
        for (size_t i = 0; i < NUM_AXES; i++)
            if (!(all_axes[i] & MCP_ENDS) || at.pipeline == 0 || at.pipeline == c->pipeline - 1)
                check_members(&plan, all_axes[i], rank);
    }
}

/* The fewest members that a group has in a domain that it meets. */
static int counted_in_domain(const struct mcp_plan *plan, unsigned axes, int domain)
{
    int least = MAX_WORLD, members[MAX_WORLD];
    for (int rank = 0; rank < world_of(plan); rank++) {
        int count = mcp_group_members(plan, axes, rank, members), here = 0;
        if ((axes & MCP_ENDS) && mcp_mesh_coordinate(plan, rank).pipeline != 0)
            continue;
        for (int i = 0; i < count; i++)
            here += members[i] / domain == rank / domain;
        least = here < least ? here : least;
    }
    return least;
}

ParameterizedTest(struct case_mesh *c, mesh, domains)
{
    struct mcp_plan plan = plan_of(c);
    for (int domain = 1; domain <= 2 * world_of(&plan); domain++) {
        if (domain < world_of(&plan) && world_of(&plan) % domain != 0)
            continue; /* domains fill evenly */
        for (size_t i = 0; i < NUM_AXES; i++) {
            int got = mcp_group_in_domain(&plan, all_axes[i], domain);
            int want = counted_in_domain(&plan, all_axes[i], domain);
            cr_expect(got >= 1 && got <= want, "axes %u in %d: %d, counted %d", all_axes[i], domain,
                      got, want);
        }
    }
}

struct case_domain {
    struct case_mesh mesh;
    unsigned axes;
    int domain, want;
};
ParameterizedTestParameters(mesh, known_domains)
{
#define ORDER                                                                                      \
    {                                                                                              \
        MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE                                            \
    }
    static struct case_domain cases[] = {
        {{8, 1, 8, 4, 1, ORDER}, MCP_TENSOR, 8, 8},
        {{16, 1, 8, 2, 1, ORDER}, MCP_TENSOR, 8, 8},
        {{2, 2, 1, 16, 1, ORDER}, MCP_CONTEXT, 8, 2},
        {{2, 1, 1, 16, 1, ORDER}, MCP_DATA, 8, 4},
        {{2, 2, 1, 16, 1, ORDER}, MCP_CONTEXT | MCP_DATA, 8, 4},
        {{1, 1, 4, 64, 64, ORDER}, MCP_EXPERT, 8, 8},
        {{1, 1, 4, 64, 4, ORDER}, MCP_EXPERT_DATA, 8, 2},
        {{8, 1, 8, 1, 1, ORDER}, MCP_PIPELINE, 8, 1},
        {{2, 1, 4, 1, 1, ORDER}, MCP_PIPELINE, 8, 4},
        {{2, 1, 4, 1, 1, ORDER}, MCP_ENDS, 8, 2},
        {{6, 1, 1, 4, 1, ORDER}, MCP_TENSOR, 8, 2},
        {{8, 1, 1, 8, 1, ORDER}, MCP_TENSOR | MCP_DATA, 64, 64},
        {{1, 1, 1, 4, 1, ORDER}, MCP_DATA, 8, 4},
    };
#undef ORDER
    return cr_make_param_array(struct case_domain, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_domain *c, mesh, known_domains)
{
    struct mcp_plan plan = plan_of(&c->mesh);
    cr_expect(eq(int, mcp_group_in_domain(&plan, c->axes, c->domain), c->want), "axes %u in %d",
              c->axes, c->domain);
}

/* Every group's members, in order, have the indices 0, 1 .. */
Test(mesh, index_of_members)
{
    static const unsigned axes[] = {MCP_TENSOR, MCP_CONTEXT | MCP_DATA, MCP_PIPELINE,
                                    MCP_EXPERT, MCP_EXPERT_DATA,        MCP_TENSOR | MCP_PIPELINE,
                                    MCP_ENDS};
    struct mcp_plan plan = mcp_plan_default();
    plan.tensor_parallel = 2;
    plan.context_parallel = 3;
    plan.data_parallel = 2;
    plan.pipeline_parallel = 3;
    plan.expert_parallel = 4;
    plan.rank_order[2] = MCP_PIPELINE;
    plan.rank_order[3] = MCP_DATA;
    int members[64];
    for (size_t a = 0; a < MCP_COUNT_OF(axes); a++)
        for (int rank = 0; rank < mcp_plan_world(&plan); rank++) {
            int count = mcp_group_members(&plan, axes[a], rank, members);
            for (int i = 0; i < count; i++)
                cr_expect(eq(int, mcp_group_index(&plan, axes[a], members[i]), i), "axes %u",
                          axes[a]);
        }
    struct mcp_coordinate middle = {.pipeline = 1};
    cr_expect(eq(int, mcp_group_index(&plan, MCP_ENDS, mcp_mesh_rank(&plan, middle)), -1));
}

/* Every rank's place and groups: of one world, in other degrees, order or expert groups. */
Test(mesh, is_same)
{
    struct mcp_plan plans[5];
    for (int i = 0; i < 5; i++) {
        plans[i] = mcp_plan_default();
        plans[i].tensor_parallel = 2;
        plans[i].data_parallel = 4;
    }
    plans[1].tensor_parallel = 4;
    plans[1].data_parallel = 2;
    plans[2].expert_parallel = 2;
    plans[3].rank_order[0] = plans[0].rank_order[2];
    plans[3].rank_order[2] = plans[0].rank_order[0];
    plans[4].data_parallel = 2;
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++)
            cr_expect(eq(int, mcp_mesh_is_same(&plans[a], &plans[b]), a == b), "%d and %d", a, b);
}
