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
    tried.bytes = brute->prediction->peak_memory_bytes;
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

static bool wanted(const struct tried *tried, const struct mcp_split_options *options)
{
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        if (tried->uses[r] && !options->recompute[r])
            return false;
    if (options->max_recomputed_stages >= 0 &&
        tried->recomputed_stages > options->max_recomputed_stages)
        return false;
    return tried->bytes <= options->limit_bytes && (options->uneven || tried->uniform);
}

int64_t brute_best(const struct brute *brute, const struct mcp_split_options *options)
{
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < brute->count; i++)
        if (brute->tried[i].time_ns < best && wanted(&brute->tried[i], options))
            best = brute->tried[i].time_ns;
    return best;
}
