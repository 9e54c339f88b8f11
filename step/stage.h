/* step/stage.h: one chunk of layers on its place in the pipeline, priced alone.
 *
 * What mcp_estimate() adds up, in pieces, for searches that try many splits: a
 * stage is priced once and put together with others. Time and memory of stages
 * put together equal those of mcp_estimate() on the plan with these chunks. */
#ifndef MCP_STEP_STAGE_H
#define MCP_STEP_STAGE_H

#include "step/estimate.h"
#include "step/stage_memory.h"

struct mcp_stage {
    /* one microbatch */
    struct mcp_slot_price forward, backward; /* messages and data transfers included */
    struct mcp_slot_price backward_input, backward_weight; /* where the schedule splits it */
    int64_t forward_ns, backward_ns; /* compute; backward with recompute, in parts if split */
    bool splits_backward;
    int64_t lead_ns;                         /* of backward: needs no message */
    int64_t message_ns, beside_ns, moved_ns; /* sent; data transfers exposed, and all */
    double cost_s[MCP_NUM_COSTS], comm_s[MCP_NUM_COSTS];
    /* what a whole backward in a schedule that splits it has more than one in parts */
    struct mcp_stage_difference {
        int64_t beside_ns, moved_ns;
        double cost_s[MCP_NUM_COSTS], comm_s[MCP_NUM_COSTS];
    } whole;
    double recompute_flops;
    struct mcp_chunk_memory memory;
    int64_t x_bytes; /* residual stream between two layers */
    /* one step */
    int64_t gather_ns, reduce_ns, update_ns;
    int64_t bottom_gather_ns, bottom_reduce_ns; /* of its first layer */
    double update_cost_s[MCP_NUM_COSTS], update_comm_s[MCP_NUM_COSTS];
    int64_t weights_bytes, gradients_bytes, optimizer_bytes; /* held between steps */
    int64_t gathered_bytes, largest_gathered, largest_transient;
    int64_t largest_dense;            /* parameters of a decoder layer */
    const struct mcp_layer_type *top; /* of its last layer: message shapes */
};

/* All that the stack can hide. */
struct mcp_overlap mcp_stack_overlap(const struct mcp_stack *stack);

/* Says that stages of another plan follow: other degrees, microbatch or switches.
 * mcp_estimate() says so too: turn again after it. */
void mcp_pricer_turn(struct mcp_pricer *pricer);

/* `chunk` on virtual stage k of p v. The first holds the embedding too and starts at
 * layer 0; the last holds the head and MTP modules too and ends at the last layer. */
void mcp_stage_price(struct mcp_pricer *pricer, const struct mcp_plan *plan, int k,
                     const struct mcp_chunk *chunk, struct mcp_stage *out);

/* What rank `rank` pays once a step for its data-parallel group, from its chunks[v]: before
 * its first forward, after its last backward; and those transfers, hidden or not. */
struct mcp_rank_edges {
    int64_t head_ns, tail_ns, moved_ns;
};
void mcp_rank_edges(const struct mcp_question *question, const struct mcp_plan *plan, int rank,
                    const struct mcp_stage *const *chunks, struct mcp_rank_edges *out);

/* What that says of one decoder layer on an inner stage, for bounds: its messages left out, and
 * what its seconds are. */
struct mcp_layer_alone {
    int64_t forward_ns, backward_ns, lead_ns; /* compute of one microbatch; lead: of backward */
    int64_t gather_ns, reduce_ns, update_ns;  /* one step */
    int64_t weights_bytes, gradients_bytes, optimizer_bytes, gathered_bytes, transient_bytes;
    int64_t kept_bytes, backward_bytes; /* struct mcp_chunk_memory */
};
void mcp_layer_alone_price(struct mcp_pricer *pricer, const struct mcp_plan *plan, int k, int kind,
                           enum mcp_recompute recompute, struct mcp_layer_alone *out);

/* The same of the embedding, and of MTP modules and head together, without their memory; and
 * messages from the first stage to the second, from the last to the one before, where all
 * stages lie in one pool: else, and where there is one stage, they take nothing. */
struct mcp_ends_alone {
    struct mcp_layer_alone ends[2];
    struct mcp_slot_price messages[2];
};
void mcp_ends_alone_price(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                          struct mcp_ends_alone *out);

/* The step's nanoseconds: as mcp_estimate()'s iteration_s. stages[p v] by virtual
 * stage; entries may be the same object. */
int64_t mcp_stages_time_ns(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                           const struct mcp_stage *const *stages);
/* What that time adds to the pipeline and its edges, whatever the split. */
int64_t mcp_step_fixed_ns(struct mcp_pricer *pricer, const struct mcp_plan *plan);

/* Peak bytes of pipeline rank `rank`, reserve included, from its chunks
 * stages[rank], stages[rank + p] ... */
int64_t mcp_stages_bytes(struct mcp_pricer *pricer, const struct mcp_plan *plan, int rank,
                         const struct mcp_stage *const *stages);

/* What a rank of stage `rank` may hold: memory_limit_frac of its own pool's GPUs. */
int64_t mcp_stage_limit_bytes(const struct mcp_pricer *pricer, const struct mcp_plan *plan,
                              int rank);

#endif
