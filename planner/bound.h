/* planner/bound.h: what no split of a plan's layers can beat, and whether any can fit.
 *
 * A floor holds what a plan's parts cost at least: one layer of each kind, both ends
 * of the model, a message. From it follow, for every stage s of a pipeline, lines
 * below the step's time T in the number n of layers on s:
 *
 *     T >= all work of one microbatch, up and down the pipeline
 *          + (m - 1) backwards of s + (m - p + s) forwards of s         1F1B
 *     T >= way up to s and back + m slots of s                          all schedules
 *     T >= first gather, m slots of s, last reduction
 *
 * and, where n layers without recompute are more than s can hold, the same with the
 * cheapest recompute per byte that must go. A time is out of reach when the most
 * layers under all lines, summed over stages, are fewer than there are.
 *
 * Of other schedules, whose backwards come in two parts or whose order rows say, the floor
 * knows the mean of all ranks' slots alone, and what is held between steps.
 *
 * Cheap: no chunk is priced. Admissible for every split of planner/split.h, which is
 * every split and every recompute without virtual stages: tests/planner/test_bound.c
 * compares with exact prices. */
#ifndef MCP_PLANNER_BOUND_H
#define MCP_PLANNER_BOUND_H

#include "step/stage.h"

#include <stdint.h>

struct mcp_layer_floor { /* of one layer, or one end of the model */
    int num_layers;      /* of this kind */
    /* one microbatch, with the cheapest recompute allowed and exposed data transfers */
    double forward_ns, backward_ns;
    double lead_ns; /* recompute in it */
    /* one step */
    double gather_ns, reduce_ns, update_ns;
    double weights_bytes, gradients_bytes, optimizer_bytes;
    double gathered_bytes, transient_bytes;
    /* activations: of the cheapest recompute, of the lightest, beside them at work */
    double kept_bytes, least_kept_bytes, working_bytes;
    /* Time for which recompute gives back x bytes: at least ns_per_byte x, and at least
     * last_ns_per_byte x - last_ns, which is more once all layers do the cheaper one. */
    double ns_per_byte, last_ns_per_byte, last_ns;
    double saved_bytes; /* of every recompute, summed */
    double given_bytes[MCP_NUM_RECOMPUTES], extra_ns[MCP_NUM_RECOMPUTES]; /* by each; or 0 */
    double slowest_ns; /* what the slowest recompute adds; INFINITY: not known */
};

struct mcp_floor {
    int p, v, num_layers; /* decoder layers */
    int64_t m;
    enum mcp_schedule schedule;
    bool any_order; /* the schedule is none of the three with whole backwards */
    int num_kinds, num_pools;
    const unsigned char *layer_kind;    /* the model's */
    int kind_of[MCP_MAX_LAYER_KINDS];   /* of the model's kinds, here; -1: has no layers */
    int layers_of[MCP_MAX_LAYER_KINDS]; /* of the kinds here */
    const int *stage_pool;              /* the plan's */
    double room[MCP_MAX_POOLS];     /* bytes of a rank for what is counted; INFINITY: no limit */
    struct mcp_layer_floor ends[2]; /* embedding; MTP modules and head */
    double hop_forward_ns, hop_backward_ns; /* a message to the next stage */
    double send_ns;                         /* in which it keeps a slot busy */
    double fixed_ns;                        /* whatever the split */
    bool gathers_once, reduces_once;        /* beside the pipeline's edges, not its slots */
    double exposed_frac;                    /* of those */
    bool gathers_all;                       /* ZeRO-3 that keeps what it gathered */
    double memory_factor;                   /* of activations */
    /* large, and mostly empty: mcp_floor_copy() */
    struct mcp_layer_floor least[MCP_MAX_LAYER_KINDS]; /* times in the best of pools */
    struct mcp_layer_floor kinds[MCP_MAX_POOLS][MCP_MAX_LAYER_KINDS]; /* that have layers */
};

enum mcp_floor_detail {
    MCP_FLOOR_SLOTS, /* slots alone: edges of the step cost nothing */
    MCP_FLOOR_STEP,  /* and what a step pays once */
    MCP_FLOOR_ALL    /* and every recompute allowed, within the GPUs' memory */
};

/* The floor of `plan`, which needs no chunks. recompute: those allowed. */
void mcp_floor_load(struct mcp_pricer *pricer, const struct mcp_plan *plan, const bool *recompute,
                    enum mcp_floor_detail detail, struct mcp_floor *out);

/* From MCP_FLOOR_STEP to MCP_FLOOR_ALL: the same plan, with the pricer as it was left. */
void mcp_floor_complete(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                        const bool *recompute, struct mcp_floor *floor);

/* What there is of it. */
void mcp_floor_copy(const struct mcp_floor *floor, struct mcp_floor *out);

/* Another limit of each rank, reserve included. */
void mcp_floor_limit(struct mcp_floor *floor, const struct mcp_question *question,
                     int64_t limit_bytes);
/* The fullest rank, as step/ names it, holds no more than `bytes`. */
void mcp_floor_limit_fullest(struct mcp_floor *floor, const struct mcp_question *question,
                             int64_t bytes);

/* Can any split take `time_ns`, as far as the floor tells? */
bool mcp_floor_reaches(const struct mcp_floor *floor, double time_ns);
/* A quick one of the same: layers cut as finely as one likes, memory without limit. */
double mcp_floor_fluid_ns(const struct mcp_floor *floor);
/* The least time that cannot be ruled out; INT64_MAX: memory rules out all. */
int64_t mcp_floor_ns(const struct mcp_floor *floor);
/* Bytes that the fullest rank needs at least, reserve included. */
int64_t mcp_floor_bytes(const struct mcp_floor *floor, const struct mcp_question *question);
/* NULL when some split may fit, else what alone is too much: "weights", "gradients",
 * "optimizer" (each with those before), "activations". */
const char *mcp_floor_refute(const struct mcp_floor *floor);

/* Chunks in flight at the first backward of rank s; of so many, those of one chunk of the
 * rank: the first has most, the last fewest. */
int mcp_bound_in_flight(enum mcp_schedule schedule, int p, int v, int64_t m, int s);
int mcp_bound_in_flight_of(int p, int v, int count, int chunk);

/* Nanoseconds of the whole step, at least; `plan`'s own rank order, no chunks. */
int64_t mcp_bound_ns(struct mcp_pricer *pricer, const struct mcp_plan *plan);

#endif
