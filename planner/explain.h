/* planner/explain.h: why this plan and not that one, and what would change the answer.
 *
 * Differences are taken account by account, in whole nanoseconds and bytes: the
 * parts sum to the whole exactly. What would change is found by searching again
 * with the question changed, never by scaling a term. */
#ifndef MCP_PLANNER_EXPLAIN_H
#define MCP_PLANNER_EXPLAIN_H

#include "planner/search.h"

/* What `to` has more than `from`; negative: less. */
struct mcp_difference {
    int64_t iteration_ns;
    int64_t cost_ns[MCP_NUM_COSTS]; /* sums to iteration_ns */
    int64_t peak_memory_bytes;
    struct mcp_memory memory; /* of the fullest stages; its total is peak_memory_bytes */
};
void mcp_explain_difference(const struct mcp_prediction *from, const struct mcp_prediction *to,
                            struct mcp_difference *out);

/* Kinds of time by size of the difference, largest first; returns how many differ. */
int mcp_difference_order(const struct mcp_difference *difference,
                         enum mcp_cost order[MCP_NUM_COSTS]);

/* Another plan, held against the answer. */
struct mcp_rival {
    const char *name;     /* where it comes from: a file */
    const char *made_for; /* the question it was made for, where that is another; else NULL */
    struct mcp_plan plan;
    struct mcp_refusals refusals; /* of meaning, or memory */
    bool priced;                  /* meaning refuses nothing: prediction is filled */
    struct mcp_prediction prediction;
};
/* Judges rival->plan under `question`: rules, or price and memory. */
void mcp_rival_judge(struct mcp_arena *arena, const struct mcp_question *question,
                     struct mcp_rival *rival);

/* A cluster that may be changed, pool by pool: pools[0]. */
void mcp_explain_copy_pools(const struct mcp_cluster *cluster,
                            struct mcp_cluster pools[MCP_MAX_POOLS]);

/* --- What if? (explain_what_if.c) --- */

enum mcp_what_if_kind {
    MCP_IF_LINKS_FASTER,   /* every tier's bandwidth twice */
    MCP_IF_NO_LATENCY,     /* every tier's latency 0 */
    MCP_IF_MORE_MEMORY,    /* a fifth more on each GPU */
    MCP_IF_MEMORY_FASTER,  /* a fifth more bandwidth of it */
    MCP_IF_HIGHER_CLOCK,   /* products a tenth faster */
    MCP_IF_TWICE_THE_GPUS, /* more nodes of the same kind */
    MCP_IF_HALF_THE_GPUS,
    MCP_IF_TWICE_THE_BATCH,
    MCP_IF_HALF_THE_BATCH,
    MCP_IF_TWICE_THE_LENGTH, /* of sequences, the batch halved: as many tokens */
    MCP_NUM_WHAT_IFS
};
extern const char *const mcp_what_if_names[MCP_NUM_WHAT_IFS]; /* "links_faster" ... */
extern const char *const mcp_what_if_texts[MCP_NUM_WHAT_IFS]; /* "links twice as fast" ... */

struct mcp_what_if {
    enum mcp_what_if_kind kind;
    bool possible; /* such a question can be asked */
    bool fits;     /* and has an answer: found is filled */
    struct mcp_found found;
    double tokens_per_s;
    double speed_up; /* tokens per second over those of `now` */
};

/* All of them, each by a search of its own. `now`: the answer. Knobs that hold
 * the changed number of GPUs or sequences together are set free where pinned. */
void mcp_what_ifs(struct mcp_arena *arena, const struct mcp_question *question,
                  const struct mcp_plan_space *space, const struct mcp_search_options *options,
                  const struct mcp_found *now, struct mcp_what_if out[MCP_NUM_WHAT_IFS]);

/* --- What would make it fit? (explain_remedy.c) --- */

struct mcp_remedy {
    const char *name; /* "memory_bytes", "sequence_length", "global_batch_size", "gpus" */
    const char *text; /* "16 GiB more memory on each device" */
    double value;     /* of what the name says */
    struct mcp_found found;
};
enum { MCP_MOST_REMEDIES = 4, MCP_MOST_DOUBLINGS = 6 };

/* Other questions of which a plan fits, each changed in one thing and by as little as
 * searches find: sequence length and batch, halved until one fits; devices, doubled until
 * one fits, then by eighths of the last doubling; memory of a device, to the GiB.
 * least_bytes: of the plan that needs least memory. Returns how many were found. */
int mcp_remedies(struct mcp_arena *arena, const struct mcp_question *question,
                 const struct mcp_plan_space *space, const struct mcp_search_options *options,
                 int64_t least_bytes, struct mcp_remedy out[MCP_MOST_REMEDIES]);

/* --- Memory, step by step (explain_memory.c) --- */

/* One way to save memory, on top of all before it: no recompute and no ZeRO, then
 * selective and full recompute, then ZeRO stage 1, 2, 3. */
struct mcp_memory_step {
    const char *name; /* "recompute_none", "recompute_full", "zero_1" ... */
    struct mcp_plan plan;
    const char *refused; /* the rule that refuses it, else NULL and priced */
    struct mcp_prediction prediction;
};
enum { MCP_NUM_MEMORY_STEPS = 6 };

/* Of `plan`'s degrees, layers per chunk and microbatch. */
void mcp_memory_steps(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_plan *plan,
                      struct mcp_memory_step out[MCP_NUM_MEMORY_STEPS]);

#endif
