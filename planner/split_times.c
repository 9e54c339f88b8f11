/* planner/split_times.c: what single layers cost, in each pool of the cluster. */
#include "planner/split_parts.h"

#include <math.h>

/* The first virtual stage with layers 0 .. count - 1, where layer `at` does `recompute`
 * and the others none. */
static struct mcp_stage price_first(struct mcp_splitter *s, const struct mcp_plan *plan, int count,
                                    int at, enum mcp_recompute recompute)
{
    struct mcp_recompute_run runs[3] = {
        {MCP_RECOMPUTE_NONE, at}, {recompute, 1}, {MCP_RECOMPUTE_NONE, count - at - 1}};
    const struct mcp_chunk chunk = {0, count, count > 0 ? 3 : 0, runs};
    struct mcp_stage stage;
    mcp_stage_price(s->pricer, plan, 0, &chunk, &stage);
    return stage;
}

static void price_extra(struct mcp_splitter *s, const struct mcp_plan *plan, int count, int at,
                        struct mcp_layer_times *out)
{
    int kind = s->question->model->layer_kind[at];
    int64_t kept = out->kept_bytes[kind][MCP_RECOMPUTE_NONE];
    struct mcp_stage none = price_first(s, plan, count, at, MCP_RECOMPUTE_NONE);
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
        struct mcp_stage some = price_first(s, plan, count, at, (enum mcp_recompute)r);
        out->extra_ns[kind][r] =
            some.forward_ns + some.backward_ns - none.forward_ns - none.backward_ns;
        out->kept_bytes[kind][r] = kept + some.memory.kept_bytes - none.memory.kept_bytes;
    }
}

/* A lone stage always holds all layers: it is priced whole, then changed. */
static void price_alone(struct mcp_splitter *s, struct mcp_layer_times *out)
{
    const struct mcp_model *model = s->question->model;
    int layers = model->num_layers;
    struct mcp_stage whole = price_first(s, s->plan, layers, 0, MCP_RECOMPUTE_NONE);
    s->base_ns[0] = whole.forward_ns + whole.backward_ns;
    /* MTP modules would keep less after a last layer that recomputes */
    s->base_kept_bytes = model->num_mtp_layers > 0 ? 0 : whole.memory.kept_bytes;
    for (int i = 0; i < layers; i++)
        if (i == 0 || model->layer_kind[i] != model->layer_kind[i - 1])
            price_extra(s, s->plan, layers, i, out);
}

/* As if all stages were of one pool. */
static void price_in_pool(struct mcp_splitter *s, int pool, struct mcp_layer_times *out)
{
    const struct mcp_model *model = s->question->model;
    bool seen[MCP_MAX_LAYER_KINDS] = {false};
    struct mcp_plan plan = *s->plan;
    int *pools = MCP_ARRAY(s->arena, plan.pipeline_parallel, int);
    for (int r = 0; r < plan.pipeline_parallel; r++)
        pools[r] = pool;
    plan.stage_pool = pools;
    for (int i = 0; i < model->num_layers; i++) {
        int kind = model->layer_kind[i];
        if (seen[kind])
            continue;
        seen[kind] = true;
        struct mcp_stage with = price_first(s, &plan, i + 1, i, MCP_RECOMPUTE_NONE);
        struct mcp_stage without = price_first(s, &plan, i, 0, MCP_RECOMPUTE_NONE);
        out->layer_ns[kind] =
            with.forward_ns + with.backward_ns - without.forward_ns - without.backward_ns;
        out->kept_bytes[kind][MCP_RECOMPUTE_NONE] =
            with.memory.kept_bytes - without.memory.kept_bytes;
        price_extra(s, &plan, i + 1, i, out);
    }
}

static void price_ends(struct mcp_splitter *s)
{
    int stages = s->plan->pipeline_parallel * s->plan->virtual_stages;
    for (int end = 0; end < 2; end++) {
        const struct mcp_chunk empty = {end == 0 ? 0 : s->question->model->num_layers, 0, 0, NULL};
        struct mcp_stage stage;
        mcp_stage_price(s->pricer, s->plan, end == 0 ? 0 : stages - 1, &empty, &stage);
        s->base_ns[end] = stage.forward_ns + stage.backward_ns;
    }
}

void mcp_layer_times(struct mcp_splitter *s)
{
    int p = s->plan->pipeline_parallel;
    unsigned priced = 0;
    if (p * s->plan->virtual_stages == 1) {
        price_alone(s, &s->times[mcp_pool_of(s, 0)]);
        return;
    }
    for (int r = 0; r < p; r++) {
        int pool = mcp_pool_of(s, r);
        if ((priced >> pool & 1) == 0)
            price_in_pool(s, pool, &s->times[pool]);
        priced |= 1u << pool;
    }
    price_ends(s);
}

static int64_t layer_in_best_ns(const struct mcp_splitter *s, unsigned pools, int kind)
{
    int64_t least = INT64_MAX;
    for (int pool = 0; pool < MCP_MAX_POOLS; pool++)
        if ((pools >> pool & 1) != 0 && s->times[pool].layer_ns[kind] < least)
            least = s->times[pool].layer_ns[kind];
    return least;
}

const int64_t *mcp_layers_ns(struct mcp_splitter *s, int first_rank, int last_rank)
{
    const struct mcp_model *model = s->question->model;
    unsigned pools = 0;
    for (int r = first_rank; r <= last_rank; r++)
        pools |= 1u << mcp_pool_of(s, r);
    int64_t **sums = &s->layers_ns[pools];
    if (*sums != NULL)
        return *sums;
    *sums = MCP_ARRAY(s->arena, model->num_layers + 1, int64_t);
    for (int i = 0; i < model->num_layers; i++)
        (*sums)[i + 1] = (*sums)[i] + layer_in_best_ns(s, pools, model->layer_kind[i]);
    return *sums;
}

/* How much longer layers take than on rank 0, at least. */
static double slowness(const struct mcp_splitter *s, int rank)
{
    const struct mcp_model *model = s->question->model;
    const struct mcp_layer_times *own = &s->times[mcp_pool_of(s, rank)];
    const struct mcp_layer_times *first = &s->times[mcp_pool_of(s, 0)];
    double least = INFINITY;
    if (own == first)
        return 1;
    for (int i = 0; i < model->num_layers; i++) {
        int kind = model->layer_kind[i];
        least = fmin(least, (double)own->layer_ns[kind] / (double)first->layer_ns[kind]);
    }
    return least;
}

int64_t mcp_share_ns(struct mcp_splitter *s)
{
    int p = s->plan->pipeline_parallel;
    int first = mcp_pool_of(s, 0), layers = s->question->model->num_layers;
    double work = (double)mcp_layers_ns(s, 0, 0)[layers], speed = 0;
    for (int r = 0; r < p; r++) {
        bool same = mcp_pool_of(s, r) == first;
        double slow = same ? 1 : slowness(s, r);
        work += ((r == 0 ? (double)s->base_ns[0] : 0) + (r == p - 1 ? (double)s->base_ns[1] : 0)) /
                slow;
        speed += 1 / slow;
    }
    return (int64_t)(work / speed) - 1;
}
