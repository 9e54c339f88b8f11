/* planner/space_order.c: where ranks lie: orders of the axes, pools on a mixed cluster. */
#include "planner/space.h"

#include "core/mesh.h"

#include <assert.h>
#include <string.h>

static const enum mcp_axis axes[4] = {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE};

const char *const mcp_rank_order_names[MCP_NUM_RANK_ORDERS] = {
    "tensor-context-data-pipeline", "tensor-context-pipeline-data", "tensor-data-context-pipeline",
    "tensor-data-pipeline-context", "tensor-pipeline-context-data", "tensor-pipeline-data-context",
    "context-tensor-data-pipeline", "context-tensor-pipeline-data", "context-data-tensor-pipeline",
    "context-data-pipeline-tensor", "context-pipeline-tensor-data", "context-pipeline-data-tensor",
    "data-tensor-context-pipeline", "data-tensor-pipeline-context", "data-context-tensor-pipeline",
    "data-context-pipeline-tensor", "data-pipeline-tensor-context", "data-pipeline-context-tensor",
    "pipeline-tensor-context-data", "pipeline-tensor-data-context", "pipeline-context-tensor-data",
    "pipeline-context-data-tensor", "pipeline-data-tensor-context", "pipeline-data-context-tensor",
};

/* The index-th of the orders of four, in lexicographic order. */
static void permutation(int index, int out[4])
{
    int left[4] = {0, 1, 2, 3};
    for (int i = 0, factorial = 6; i < 4; i++) {
        int at = index / factorial;
        index %= factorial;
        out[i] = left[at];
        memmove(left + at, left + at + 1, (size_t)(3 - i - at) * sizeof *left);
        factorial /= i < 2 ? 3 - i : 1;
    }
}

void mcp_rank_order(int index, enum mcp_axis out[4])
{
    int order[4];
    assert(index >= 0 && index < MCP_NUM_RANK_ORDERS);
    permutation(index, order);
    for (int i = 0; i < 4; i++)
        out[i] = axes[order[i]];
}

int mcp_rank_order_index(const enum mcp_axis order[4])
{
    enum mcp_axis other[4];
    int index = 0;
    for (mcp_rank_order(0, other); memcmp(other, order, sizeof other) != 0;)
        mcp_rank_order(++index, other); /* which asserts that there are so many */
    return index;
}

/* How the groups that send anything lie on the tiers: equal prices where equal. */
enum { NUM_GROUPS = 7 };
struct lie {
    int members[MCP_MAX_TIERS][NUM_GROUPS];
};

static struct lie lie_of(const struct mcp_cluster *cluster, const struct mcp_plan *plan)
{
    static const unsigned groups[NUM_GROUPS] = {
        MCP_TENSOR,      MCP_CONTEXT, (unsigned)MCP_CONTEXT | MCP_DATA, MCP_PIPELINE, MCP_EXPERT,
        MCP_EXPERT_DATA, MCP_ENDS};
    struct lie lie = {{{0}}};
    for (int tier = 0; tier < cluster->num_tiers - 1; tier++)
        for (int g = 0; g < NUM_GROUPS; g++)
            lie.members[tier][g] = mcp_group_in_domain(plan, groups[g], cluster->tiers[tier].ranks);
    return lie;
}

/* Degrees that no order makes sense of are left to legality. */
static bool has_orders(const struct mcp_question *question, const struct mcp_plan *plan)
{
    int64_t plane = (int64_t)plan->tensor_parallel * plan->context_parallel * plan->data_parallel;
    return question->cluster->next == NULL &&
           plane * plan->pipeline_parallel == mcp_cluster_gpus(question->cluster) &&
           plane % plan->expert_parallel == 0;
}

/* Pools follow each other along the pipeline: an order that has it last, if any is allowed. */
static int order_of_pools(int low, int high)
{
    enum mcp_axis order[4];
    for (int i = low; i <= high; i++) {
        mcp_rank_order(i, order);
        if (order[3] == MCP_PIPELINE)
            return i;
    }
    return low;
}

static void add_orders(struct mcp_arena *arena, const struct mcp_question *question,
                       const struct mcp_plan_space *space, struct mcp_choices *out)
{
    const struct mcp_interval *asked = &space->knobs[MCP_KNOB_RANK_ORDER];
    struct lie lies[MCP_NUM_RANK_ORDERS];
    struct mcp_plan plan = out->base;
    int low = asked->given ? asked->low : 0;
    int high = asked->given ? asked->high : space->usual_order ? 0 : MCP_NUM_RANK_ORDERS - 1;
    struct mcp_values *orders = &out->rank_orders;
    *orders = (struct mcp_values){1, MCP_ARRAY(arena, high - low + 1, int)};
    orders->items[0] = question->cluster->next != NULL ? order_of_pools(low, high) : low;
    if (low == high || !has_orders(question, &plan))
        return;
    for (int i = low; i <= high; i++) {
        int same = 0, count = i == low ? 0 : orders->count;
        mcp_rank_order(i, plan.rank_order);
        lies[count] = lie_of(question->cluster, &plan);
        while (same < count && memcmp(&lies[same], &lies[count], sizeof *lies) != 0)
            same++;
        if (same == count) {
            orders->items[count] = i;
            orders->count = count + 1;
        }
    }
}

/* Pools one after the other along the pipeline; NULL when stages do not fill them. */
static const int *place_pools(struct mcp_arena *arena, const struct mcp_cluster *cluster,
                              const struct mcp_plan *plan, const int *order)
{
    int *stage_pool = MCP_ARRAY(arena, plan->pipeline_parallel, int), stage = 0;
    int64_t ranks = (int64_t)plan->tensor_parallel * plan->context_parallel * plan->data_parallel;
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++) {
        int gpus = mcp_pool_gpus(mcp_cluster_pool(cluster, order[i]));
        if (gpus % ranks != 0 || stage + gpus / ranks > plan->pipeline_parallel)
            return NULL;
        for (int64_t k = 0; k < gpus / ranks; k++)
            stage_pool[stage++] = order[i];
    }
    return stage == plan->pipeline_parallel ? stage_pool : NULL;
}

static void add_placements(struct mcp_arena *arena, const struct mcp_question *question,
                           struct mcp_choices *out)
{
    int pools = mcp_cluster_num_pools(question->cluster), order[4];
    out->placements = MCP_ARRAY(arena, MCP_NUM_RANK_ORDERS, const int *);
    for (int i = 0; pools > 1 && i < MCP_NUM_RANK_ORDERS; i++) {
        permutation(i, order);
        bool uses_all = true; /* permutations of the first `pools` numbers alone */
        for (int k = 0; k < pools; k++)
            uses_all = uses_all && order[k] < pools;
        bool first = true; /* once each: the rest in ascending order */
        for (int k = pools; k + 1 < 4; k++)
            first = first && order[k] < order[k + 1];
        const int *placement =
            uses_all && first ? place_pools(arena, question->cluster, &out->base, order) : NULL;
        if (placement != NULL)
            out->placements[out->num_placements++] = placement;
    }
    if (out->num_placements == 0) /* one kind, or left to legality */
        out->num_placements = 1;
}

void mcp_choices_place(struct mcp_arena *arena, const struct mcp_question *question,
                       const struct mcp_plan_space *space, struct mcp_choices *out)
{
    add_placements(arena, question, out);
    add_orders(arena, question, space, out);
}
