/* planner/split.h: the inner problem: which layers on which stage, and what each
 * recomputes, for given degrees, microbatch and switches.
 *
 * The space. v = 1: every cut of the decoder layers into p contiguous stages (the
 * first may hold the embedding alone, the last the head alone), every recompute of
 * every layer. v > 1: chunks of floor or ceil(L / p v) layers, each rank's larger
 * chunks first, recompute by rank: so many full, so many selective, spread evenly
 * over its chunks. Memory: each rank's peak by step/, with its own frames in flight.
 *
 * Where layers of other kinds come first, as dense ones before experts, it depends on
 * which of the first chunks are larger what each holds: up to four such chunks each
 * choice of larger ones is a programme of its own. Elsewhere layers that are not alike
 * are spread as mcp_plan_uniform_chunks() does, and little is proven.
 *
 * On a mixed cluster a stage is priced in, and limited by, the pool that
 * plan->stage_pool gives it.
 *
 * The proof. Each path through the slots of a step is a lower bound of its time, and
 * linear in the columns that stages are chosen from: GLPK minimises the longest of
 * those known. Its answer is priced exactly (step/stage.h), the longest path of that
 * answer becomes a row, and the programme is solved again until bound >= incumbent.
 * A programme that GLPK cannot finish in few nodes ends the proof: `proven` is false
 * then, and `bound_ns` says how far. Solutions count only as step/ prices them.
 */
#ifndef MCP_PLANNER_SPLIT_H
#define MCP_PLANNER_SPLIT_H

#include "core/arena.h"
#include "step/stage.h"

#include <stdbool.h>
#include <stdint.h>

struct mcp_split_options {
    int64_t limit_bytes;    /* of each rank, reserve included; where its own GPUs may hold
                            less (mcp_stage_limit_bytes()), that counts */
    int64_t better_than_ns; /* splits that take this long or longer are not wanted */
    bool recompute[MCP_NUM_RECOMPUTES]; /* those that may be used */
    bool uneven;               /* false: layers as mcp_plan_uniform_chunks() spreads them */
    int max_recomputed_stages; /* -1: any number */
    int max_milps; /* give up proving after so many; 0: no such limit, but see above; -1: none */
};

struct mcp_split {
    bool found;               /* a split fits and beats better_than_ns */
    struct mcp_chunk *chunks; /* [p v], in the caller's arena */
    int64_t time_ns;          /* of the whole step */
    int64_t bound_ns;         /* nothing in the space takes less; INT64_MAX: nothing fits */
    bool proven;              /* found ? bound_ns >= time_ns : bound_ns >= better_than_ns */
    int milps, nodes;
};

/* `plan` needs no chunks. The pricer is turned to it. */
void mcp_split_best(struct mcp_arena *arena, struct mcp_pricer *pricer, const struct mcp_plan *plan,
                    const struct mcp_split_options *options, struct mcp_split *out);

#endif
