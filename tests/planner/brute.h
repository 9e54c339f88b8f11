/* tests/planner/brute.h: every split of a small plan, priced whole by mcp_estimate(). */
#ifndef TESTS_PLANNER_BRUTE_H
#define TESTS_PLANNER_BRUTE_H

#include "planner/split.h"

struct tried {
    int64_t time_ns, bytes;
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

/* INT64_MAX where nothing fits, or is wanted. */
int64_t brute_best(const struct brute *brute, const struct mcp_split_options *options);

/* Time and memory of one split. */
struct tried brute_price(struct brute *brute, const struct mcp_chunk *chunks);

#endif
