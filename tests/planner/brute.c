/* tests/planner/brute.c: every split of a small plan, one after the other. */
#include "tests/planner/brute.h"

#include <math.h>
#include <string.h>

enum { MAX_STAGES = 16, MAX_LAYERS = 16 };

struct attempt {
    int sizes[MAX_STAGES];                    /* by virtual stage */
    enum mcp_recompute recompute[MAX_LAYERS]; /* by layer of the model */
};

struct tried brute_price(struct brute *brute, const struct mcp_chunk *chunks)
{
    struct tried tried = {.uniform = true};
    int p = brute->plan.pipeline_parallel, stages = p * brute->plan.virtual_stages;
    bool recomputes[MAX_STAGES] = {false};
    struct mcp_chunk copy[MAX_STAGES];
    memcpy(copy, chunks, (size_t)stages * sizeof *chunks);
    brute->plan.chunks = copy;
    mcp_estimate(brute->pricer, &brute->plan, brute->prediction);
    tried.time_ns = (int64_t)llround(brute->prediction->iteration_s * 1e9);
    tried.bytes = 0;
    for (int r = 0; r < p; r++) {
        int pool = brute->plan.stage_pool ? brute->plan.stage_pool[r] : 0;
        int64_t bytes = mcp_memory_total(&brute->prediction->stages[r].memory);
        tried.bytes = bytes > tried.bytes ? bytes : tried.bytes;
        if (bytes > tried.pool_bytes[pool])
            tried.pool_bytes[pool] = bytes;
    }
    for (int k = 0; k < stages; k++) {
        int even = brute->num_layers / stages + (k < brute->num_layers % stages);
        tried.uniform = tried.uniform && copy[k].num_layers == even;
        for (int i = 0; i < copy[k].num_runs; i++) {
            tried.uses[copy[k].runs[i].recompute] = true;
            recomputes[k % p] |= copy[k].runs[i].recompute != MCP_RECOMPUTE_NONE;
        }
    }
    for (int r = 0; r < p; r++)
        tried.recomputed_stages += recomputes[r];
    return tried;
}

static void price(struct brute *brute, const struct attempt *attempt)
{
    int stages = brute->plan.pipeline_parallel * brute->plan.virtual_stages, layer = 0;
    struct mcp_chunk chunks[MAX_STAGES];
    struct mcp_recompute_run runs[MAX_LAYERS];
    for (int k = 0; k < stages; k++) {
        chunks[k] = (struct mcp_chunk){layer, attempt->sizes[k], attempt->sizes[k], &runs[layer]};
        for (int i = 0; i < attempt->sizes[k]; i++, layer++)
            runs[layer] = (struct mcp_recompute_run){attempt->recompute[layer], 1};
    }
    brute->tried =
        mcp_grow(brute->arena, brute->tried, brute->count, &brute->room, sizeof *brute->tried);
    brute->tried[brute->count++] = brute_price(brute, chunks);
}

static void each_recompute(struct brute *brute, struct attempt *attempt, int layer)
{
    if (layer == brute->num_layers) {
        price(brute, attempt);
        return;
    }
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
        attempt->recompute[layer] = (enum mcp_recompute)r;
        each_recompute(brute, attempt, layer + 1);
    }
}

static void each_cut(struct brute *brute, struct attempt *attempt, int stage, int left)
{
    int p = brute->plan.pipeline_parallel;
    bool end = p > 1 && (stage == 0 || stage == p - 1);
    if (stage == p - 1) {
        attempt->sizes[stage] = left;
        if (left > 0 || end)
            each_recompute(brute, attempt, 0);
        return;
    }
    for (int size = end ? 0 : 1; size <= left; size++) {
        attempt->sizes[stage] = size;
        each_cut(brute, attempt, stage + 1, left - size);
    }
}

/* `count` things dealt out over v piles, round and round. */
static void deal(int count, int v, int *piles)
{
    memset(piles, 0, (size_t)v * sizeof *piles);
    for (int i = 0; i < count; i++)
        piles[i % v]++;
}

/* Of rank r, the lowest layers of each chunk do full, the next selective. */
static void set_rank(const struct brute *brute, struct attempt *attempt, int r, int full,
                     int selective)
{
    int p = brute->plan.pipeline_parallel, v = brute->plan.virtual_stages;
    int fulls[MAX_STAGES], either[MAX_STAGES];
    deal(full, v, fulls);
    deal(full + selective, v, either);
    for (int k = 0, layer = 0; k < p * v; layer += attempt->sizes[k++])
        for (int i = 0; k % p == r && i < attempt->sizes[k]; i++)
            attempt->recompute[layer + i] = i < fulls[k / p]    ? MCP_RECOMPUTE_FULL
                                            : i < either[k / p] ? MCP_RECOMPUTE_SELECTIVE
                                                                : MCP_RECOMPUTE_NONE;
}

static void each_share(struct brute *brute, struct attempt *attempt, int r)
{
    int p = brute->plan.pipeline_parallel, v = brute->plan.virtual_stages, layers = 0;
    if (r == p) {
        price(brute, attempt);
        return;
    }
    for (int c = 0; c < v; c++)
        layers += attempt->sizes[c * p + r];
    for (int full = 0; full <= layers; full++)
        for (int selective = 0; full + selective <= layers; selective++) {
            set_rank(brute, attempt, r, full, selective);
            each_share(brute, attempt, r + 1);
        }
}

static void each_larger(struct brute *brute, struct attempt *attempt, int r, int left)
{
    int p = brute->plan.pipeline_parallel, v = brute->plan.virtual_stages;
    int base = brute->num_layers / (p * v);
    if (r == p && left == 0)
        each_share(brute, attempt, 0);
    for (int larger = 0; r < p && larger <= v && larger <= left; larger++) {
        for (int c = 0; c < v; c++)
            attempt->sizes[c * p + r] = base + (c < larger);
        each_larger(brute, attempt, r + 1, left - larger);
    }
}

void brute_try_all(struct brute *brute)
{
    struct attempt attempt = {0};
    int stages = brute->plan.pipeline_parallel * brute->plan.virtual_stages;
    if (brute->plan.virtual_stages > 1)
        each_larger(brute, &attempt, 0, brute->num_layers % stages);
    else
        each_cut(brute, &attempt, 0, brute->num_layers);
}

bool brute_fits(const struct brute *brute, const struct tried *tried,
                const struct mcp_split_options *options)
{
    for (int r = 0; r < brute->plan.pipeline_parallel; r++) {
        int pool = brute->plan.stage_pool ? brute->plan.stage_pool[r] : 0;
        if (tried->pool_bytes[pool] > mcp_stage_limit_bytes(brute->pricer, &brute->plan, r) ||
            tried->pool_bytes[pool] > options->limit_bytes)
            return false;
    }
    return true;
}

static bool wanted(const struct brute *brute, const struct tried *tried,
                   const struct mcp_split_options *options)
{
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        if (tried->uses[r] && !options->recompute[r])
            return false;
    if (options->max_recomputed_stages >= 0 &&
        tried->recomputed_stages > options->max_recomputed_stages)
        return false;
    return (options->uneven || tried->uniform) && brute_fits(brute, tried, options);
}

int64_t brute_best(const struct brute *brute, const struct mcp_split_options *options)
{
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < brute->count; i++)
        if (brute->tried[i].time_ns < best && wanted(brute, &brute->tried[i], options))
            best = brute->tried[i].time_ns;
    return best;
}

/* --- random problems --- */

/* Splits that brute force would look at. */
static double size_of(const struct random_plan *drawn)
{
    const struct mcp_plan *plan = &drawn->plan;
    int p = plan->pipeline_parallel, layers = drawn->model.num_layers;
    double size = 1;
    if (plan->virtual_stages > 1) {
        int rank = (layers + p - 1) / p;
        for (int r = 0; r < p; r++)
            size *= (rank + 1) * (rank + 2) / 2.0;
        return size * (1 + layers % (p * plan->virtual_stages));
    }
    for (int i = 0; i < layers; i++)
        size *= 3;
    for (int i = 1; i < p; i++)
        size *= (double)(layers + 2 - i) / i;
    return size;
}

/* The first stages on one kind of GPUs, the others on another, in either order of pools. */
static bool mix(struct mcp_arena *arena, uint64_t seed, struct problem *problem)
{
    static const char *const names[3] = {"dgx-a100:512", "dgx-h100:512", "dgx-b200:512"};
    struct mcp_plan *plan = &problem->drawn.plan;
    int p = plan->pipeline_parallel, ranks = mcp_plan_world(plan) / p;
    int cut = 1 + (int)(seed % (uint64_t)(p > 1 ? p - 1 : 1)), turn = (int)(seed / 3 % 2);
    int kinds[2] = {(int)(seed % 3), (int)(seed + 1 + seed / 7 % 2) % 3};
    int *stage_pool = MCP_ARRAY(arena, p, int);
    struct mcp_error err;
    problem->pools[0] = &problem->drawn.cluster;
    problem->pools[1] = MCP_NEW(arena, struct mcp_cluster);
    for (int i = 0; i < 2; i++)
        if (mcp_cluster_load(arena, names[kinds[i]], problem->pools[i], &err) != MCP_OK ||
            mcp_cluster_take(problem->pools[i], ranks * (i == turn ? cut : p - cut), &err) !=
                MCP_OK)
            return false;
    problem->pools[0]->next = problem->pools[1];
    for (int r = 0; r < p; r++)
        stage_pool[r] = r < cut ? turn : !turn;
    plan->stage_pool = stage_pool;
    const enum mcp_axis usual[4] = {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE};
    memcpy(plan->rank_order, usual, sizeof usual);
    return p > 1;
}

static bool suits(struct mcp_arena *arena, uint64_t seed, struct problem *problem,
                  const struct brute_kind *kind)
{
    struct random_plan *drawn = &problem->drawn;
    struct mcp_plan *plan = &drawn->plan;
    struct mcp_refusals refusals;
    if (drawn->model.num_layers > kind->most_layers)
        drawn->model.num_layers = kind->most_layers;
    if ((plan->virtual_stages > 1) != kind->interleaved ||
        drawn->model.num_layers < plan->pipeline_parallel * plan->virtual_stages ||
        size_of(drawn) > kind->most_splits)
        return false;
    problem->mixed = kind->mixed;
    if (kind->mixed && !mix(arena, seed, problem))
        return false;
    mcp_plan_uniform_chunks(arena, plan, drawn->model.num_layers, MCP_RECOMPUTE_NONE);
    return mcp_legal(arena, &drawn->question, plan, &refusals);
}

uint64_t brute_draw(struct problem *problem, uint64_t seed, const struct brute_kind *kind)
{
    for (;; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan *drawn = &problem->drawn;
        random_plan_draw(arena, seed, drawn);
        if (suits(arena, seed, problem, kind)) {
            problem->brute = (struct brute){.arena = arena,
                                            .pricer = mcp_pricer_new(arena, &drawn->question),
                                            .plan = drawn->plan,
                                            .num_layers = drawn->model.num_layers,
                                            .prediction = MCP_NEW(arena, struct mcp_prediction)};
            return seed + 1;
        }
        mcp_arena_free(arena);
    }
}
