/* tests/core/test_rank_map.c: ranks on GPUs in any order, against counting by hand. */
#include "core/rank_map.h"

#include "core/mesh.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

enum { WORLD = 32 };

/* 4 nodes of 8 in two sites. */
static struct mcp_cluster two_sites(void)
{
    struct mcp_cluster cluster = {.num_nodes = 4, .gpus_per_node = 8, .num_tiers = 3};
    cluster.tiers[0].ranks = 8;
    cluster.tiers[1].ranks = 16;
    cluster.tiers[2].ranks = 32;
    return cluster;
}

static struct mcp_plan plan_of(int t, int d, int p)
{
    struct mcp_plan plan = mcp_plan_default();
    plan.tensor_parallel = t;
    plan.data_parallel = d;
    plan.pipeline_parallel = p;
    return plan;
}

static const unsigned sets[] = {MCP_TENSOR, MCP_DATA, MCP_PIPELINE, MCP_ENDS,
                                (unsigned)MCP_TENSOR | MCP_CONTEXT | MCP_DATA | MCP_PIPELINE};

/* Ranks on their own numbers lie as they do without a map. */
Test(rank_map, identity_is_no_map)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_cluster cluster = two_sites();
    const int shapes[][3] = {{8, 2, 2}, {2, 4, 4}, {1, 1, 32}, {4, 8, 1}};
    int gpu_of_rank[WORLD];
    for (int i = 0; i < WORLD; i++)
        gpu_of_rank[i] = i;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct mcp_error err = {""};
        struct mcp_plan plan = plan_of(shapes[i][0], shapes[i][1], shapes[i][2]), placed = plan;
        cr_assert(eq(int, (int)mcp_plan_place(arena, &placed, &cluster, gpu_of_rank, &err), 0));
        for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
            for (int tier = 0; tier < cluster.num_tiers; tier++) {
                int domain = cluster.tiers[tier].ranks;
                cr_expect(eq(int, mcp_group_in_domain(&placed, sets[s], domain),
                             mcp_group_in_domain(&plan, sets[s], domain)),
                          "shape %zu, axes %u, domain %d", i, sets[s], domain);
            }
        for (int stage = 0; stage + 1 < shapes[i][2]; stage++)
            cr_expect(eq(int, mcp_stages_in_domain(&placed, stage, stage + 1, 8),
                         mcp_stages_in_domain(&plan, stage, stage + 1, 8)));
    }
    mcp_arena_free(arena);
}

/* Tensor pairs torn over the two sites, one rank after the other. */
Test(rank_map, the_worst_group_counts)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cluster cluster = two_sites();
    struct mcp_plan plan = plan_of(2, 16, 1);
    int gpu_of_rank[WORLD];
    for (int i = 0; i < WORLD; i++)
        gpu_of_rank[i] = i / 2 + i % 2 * 16;
    cr_assert(eq(int, (int)mcp_plan_place(arena, &plan, &cluster, gpu_of_rank, &err), 0));
    cr_expect(eq(int, mcp_group_in_domain(&plan, MCP_TENSOR, 8), 1));
    cr_expect(eq(int, mcp_group_in_domain(&plan, MCP_TENSOR, 16), 1));
    cr_expect(eq(int, mcp_group_in_domain(&plan, MCP_TENSOR, 32), 2));
    cr_expect(eq(int, mcp_group_in_domain(&plan, MCP_DATA, 8), 8));
    cr_expect(eq(int, mcp_group_in_domain(&plan, MCP_DATA, 16), 16));
    cr_expect(eq(int, mcp_group_in_domain(&plan, MCP_CONTEXT, 8), 1));
    cr_expect(eq(int, mcp_group_in_domain(&plan, MCP_DATA, 4), 4), "a domain of no tier");
    gpu_of_rank[3] = 5; /* and one more group is torn otherwise: the fewest of all */
    gpu_of_rank[10] = 17;
    cr_assert(eq(int, (int)mcp_plan_place(arena, &plan, &cluster, gpu_of_rank, &err), 0), "%s",
              err.text);
    cr_expect(eq(int, mcp_group_in_domain(&plan, MCP_DATA, 16), 1));
    mcp_arena_free(arena);
}

Test(rank_map, scrambling_is_a_permutation_by_seed)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cluster cluster = two_sites();
    struct mcp_plan plan = plan_of(8, 2, 2), other = plan;
    int *a = mcp_rank_map_scrambled(arena, WORLD, 1, 7);
    int *b = mcp_rank_map_scrambled(arena, WORLD, 1, 8);
    int *again = mcp_rank_map_scrambled(arena, WORLD, 1, 7);
    cr_expect(eq(int, memcmp(a, again, WORLD * sizeof *a), 0));
    cr_assert(eq(int, (int)mcp_plan_place(arena, &plan, &cluster, a, &err), 0), "%s", err.text);
    cr_assert(eq(int, (int)mcp_plan_place(arena, &other, &cluster, b, &err), 0), "%s", err.text);
    cr_expect(ne(u32, plan.rank_map->id, other.rank_map->id));
    int *nodes = mcp_rank_map_scrambled(arena, WORLD, 8, 7);
    cr_assert(eq(int, (int)mcp_plan_place(arena, &plan, &cluster, nodes, &err), 0), "%s", err.text);
    cr_expect(eq(int, mcp_group_in_domain(&plan, MCP_TENSOR, 8), 8), "nodes stay whole");
    mcp_arena_free(arena);
}

struct case_list {
    char list[96];
    char says[64];
};

ParameterizedTestParameters(rank_map, read)
{
    static struct case_list cases[] = {
        {"[3, 1, 2, 0]", ""},
        {"[3, 1, 2]", "3 GPUs for the plan's 4 ranks"},
        {"[3, 1, 1, 0]", "ranks 1 and 2 both lie on GPU 1"},
        {"[4, 1, 2, 0]", "rank 0 lies on GPU 4; the plan's are 0 to 3"},
        {"[\"a\", 1, 2, 0]", "gpu_of_rank"},
    };
    return cr_make_param_array(struct case_list, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_list *c, rank_map, read)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json;
    struct mcp_plan plan = plan_of(2, 2, 1);
    const char *text = mcp_format(arena, "{\"gpu_of_rank\": %s}", c->list);
    cr_assert(eq(int, (int)mcp_json_parse(arena, "p.json", text, strlen(text), &json, &err), 0));
    enum mcp_status status = mcp_rank_map_from_json(arena, json, &plan, &err);
    cr_expect(eq(int, status == MCP_OK, c->says[0] == '\0'), "%s: %s", c->list, err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->list, err.text);
    if (status == MCP_OK) {
        struct mcp_json *out = mcp_json_new_object(arena);
        mcp_rank_map_to_json(&plan, out);
        cr_expect(ne(ptr, strstr(mcp_json_text(arena, out), "gpu_of_rank"), NULL));
        cr_expect(eq(int, plan.rank_map->gpu_of_rank[0], 3));
    }
    mcp_arena_free(arena);
}
