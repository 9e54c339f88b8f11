/* step/estimate_parts.h: the state of one estimate. Private to step/. */
#ifndef MCP_STEP_ESTIMATE_PARTS_H
#define MCP_STEP_ESTIMATE_PARTS_H

#include "step/estimate.h"
#include "step/layer_price.h"
#include "step/price_parts.h"
#include "step/stage.h"

/* (kind, MTP, recompute, direction) of every layer a plan can have */
#define MCP_NUM_MEMOS ((MCP_MAX_LAYER_KINDS + 2) * 2 * MCP_NUM_RECOMPUTES * 2)

struct layer_run {
    int count;
    const struct mcp_layer_price *layer;
    const struct mcp_layer_step_price *step;
};

/* The question as one pool of the cluster sees it, and prices there. */
struct priced_pool {
    struct mcp_question question;
    struct mcp_price_cache *cache;
    uint64_t memo_plan[MCP_NUM_MEMOS];
    struct layer_run memo[MCP_NUM_MEMOS];
};

struct mcp_pricer {
    struct mcp_arena *scratch;
    const struct mcp_question *question;
    bool sums_only;
    double forward_flops; /* of the model, one step */
    uint64_t plans;       /* priced so far: tells whose a memo is */
    int num_pools;
    struct priced_pool *pools;
};

/* The pool of pipeline stage `stage`. */
struct priced_pool *mcp_stage_pool(const struct mcp_pricer *pricer, const struct mcp_plan *plan,
                                   int stage);

struct estimate {
    const struct mcp_stage **stages;           /* [pipeline x virtual] */
    struct mcp_slot_price *forward, *backward; /* likewise, as the next */
    struct mcp_slot_price *backward_input, *backward_weight;
    int *whole_backwards;            /* likewise: microbatches, in schedules that split others */
    struct mcp_pipeline_rank *ranks; /* [pipeline], as all below */
    int64_t *head_ns, *tail_ns;      /* data-parallel edges of the step */
    int64_t *update_ns;
    int64_t *message_ns;                       /* pipeline messages of one microbatch */
    int64_t *beside_ns;                        /* exposed data transfers of one microbatch */
    int64_t *moved_ns;                         /* data transfers of one microbatch, hidden or not */
    int64_t *moved_once_ns;                    /* ... and those of the edges */
    int64_t *whole_beside_ns, *whole_moved_ns; /* of one step: what whole backwards have more */
    int64_t end_ns, broadcast_ns, agreement_ns, overhead_ns, step_ns;
};

struct estimate *mcp_estimate_room(struct mcp_arena *scratch, int ranks, int stages);
void mcp_estimate_times(const struct mcp_pricer *pricer, const struct mcp_plan *plan, int m,
                        const struct estimate *e, struct mcp_prediction *out);
void mcp_estimate_memory(const struct mcp_pricer *pricer, const struct mcp_plan *plan,
                         const struct estimate *e, struct mcp_prediction *out);

/* The rules of composition, shared with whoever plays the program. Exposed part of
 * data-parallel transfers beside `compute_ns` of compute: the stack hides its share of
 * those that the plan asks it to hide at best, and no more than there is compute. */
struct mcp_data_moves {
    int64_t gather_ns, reduce_ns; /* of weights, of gradients */
};
int64_t mcp_data_exposed_ns(const struct mcp_question *question, const struct mcp_plan *plan,
                            const struct mcp_data_moves *moves, int64_t compute_ns);
/* Those of once a step, chunk by chunk from the rank's first on: gathers before the first
 * forward, reductions after the last backward. A chunk's go beside one microbatch of its
 * own and, where no rows say the order, all p that the rank runs of each chunk before it
 * (in backward: after it). Exposed are alone_ns + late_ns. */
struct mcp_data_once {
    struct mcp_data_moves moves; /* so far */
    int64_t alone_ns;            /* of them nothing hides */
    int64_t late_ns, between_ns; /* no compute was left for; compute of chunks so far */
};
void mcp_data_once_add(const struct mcp_question *question, const struct mcp_plan *plan,
                       struct mcp_data_moves moves, int64_t compute_ns, struct mcp_data_once *once);

/* One message from `stage`: returns its time, of which slot->send_ns keeps the sender
 * busy and slot->delay_ns does not. */
int64_t mcp_message_price(const struct mcp_question *question, const struct mcp_plan *plan,
                          const struct mcp_layer_type *type, int stage, bool forward,
                          struct mcp_slot_price *slot);

#endif
