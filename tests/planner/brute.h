/* tests/planner/brute.h: every split of a small plan, priced whole by mcp_estimate(). */
#ifndef TESTS_PLANNER_BRUTE_H
#define TESTS_PLANNER_BRUTE_H

#include "planner/split.h"
#include "tests/step/random_plan.h"

struct tried {
    int64_t time_ns, bytes;
    int64_t pool_bytes[MCP_MAX_POOLS]; /* of the fullest rank in each */
    bool uses[MCP_NUM_RECOMPUTES];
    int recomputed_stages; /* ranks */
    bool uniform;          /* as mcp_plan_uniform_chunks() spreads the layers */
};

struct brute {
    struct mcp_arena *arena;
    struct mcp_pricer *pricer;
    struct mcp_plan plan;
    int num_layers;
    struct mcp_prediction *prediction;
    struct tried *tried;
    size_t count, room;
};

/* v = 1: every cut, every recompute of every layer. v > 1: larger chunks first on each
 * rank, and so many of its layers full, so many selective, spread evenly. */
void brute_try_all(struct brute *brute);

/* Every rank within options->limit_bytes and what its own GPUs may hold? */
bool brute_fits(const struct brute *brute, const struct tried *tried,
                const struct mcp_split_options *options);

/* INT64_MAX where nothing fits, or is wanted. */
int64_t brute_best(const struct brute *brute, const struct mcp_split_options *options);

/* Time and memory of one split. */
struct tried brute_price(struct brute *brute, const struct mcp_chunk *chunks);

/* A random problem, small enough for brute force. */
struct problem {
    struct random_plan drawn;
    bool mixed;
    struct mcp_cluster *pools[2]; /* where mixed */
    struct brute brute;
};

struct brute_kind {
    bool interleaved, mixed; /* on two pools of different GPUs */
    int most_layers;
    double most_splits;
};

/* Draws until the problem is of that kind. Returns the next seed. */
uint64_t brute_draw(struct problem *problem, uint64_t seed, const struct brute_kind *kind);

#endif
