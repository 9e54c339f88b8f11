/* sim/ops_parts.h: the state of a step that is played op by op. Private to sim/ops*.c. */
#ifndef MCP_SIM_OPS_PARTS_H
#define MCP_SIM_OPS_PARTS_H

#include "sim/activity.h"
#include "sim/blocks.h"
#include "sim/ops.h"
#include "sim/unequal.h"

struct mcp_sim_message {
    int64_t sent_ns, arrival_ns, delay_ns;
};

struct mcp_sim_mail {
    struct mcp_sim_message *items;
    int posted, read;
};

struct mcp_sim_transfer {
    int slot;
    const struct mcp_sim_step *step;
};

enum mcp_sim_wait { MCP_SIM_WAIT_NOTHING, MCP_SIM_WAIT_WEIGHTS, MCP_SIM_WAIT_MESSAGE };

/* One stage of the pipeline being played. */
struct mcp_sim_rank {
    int slot, step, phase; /* phase: of the step, after its timers */
    enum mcp_sim_wait wait;
    int64_t wait_since_ns, step_start_ns, slot_start_ns;
    struct mcp_sim_stretch stretch; /* of the slot */
    struct mcp_sim_slot_time *times;
    /* block at work */
    const struct mcp_sim_block *block;
    int *left_before; /* [largest block] */
    int ops_left;
    bool folded;                 /* one event stands for all of its ops */
    int messages[MCP_MAX_TIERS]; /* under way on the tier, in and out */
    int64_t extra_ns;            /* by which shared links slowed its slowest transfer */
    enum mcp_cost extra_cost;
    /* data stream: first in, first out */
    struct mcp_sim_transfer *queue; /* [transfers of the class] */
    int queued, moved;
    bool moving;
    struct mcp_sim_phase *phases; /* of the one under way */
    int *pending;                 /* [cell] gathers on their way */
    int64_t *alone_ns;            /* [cell] */
    struct mcp_sim_mail mail[MCP_SIM_MAILS];
    int64_t end_ns, data_end_ns;
    double cost_s[MCP_NUM_COSTS], comm_s[MCP_NUM_COSTS], busy_s;
};

struct mcp_sim_ops_play {
    const struct mcp_sim_steps *steps;
    const struct mcp_program *program;
    const struct mcp_sim_ops_options *options;
    struct mcp_sim_unequal unequal;
    int cell;                                    /* the pipeline at hand */
    struct mcp_sim_blocks *blocks, *slow_blocks; /* slow: through the slow port */
    struct mcp_sim_activities *activities;
    struct mcp_sim_rank *ranks; /* [classes] */
    int64_t *ends_ns;           /* [cells x classes] of the last slots */
    int64_t worst_ns;
    struct mcp_sim_result *out;
};

static inline double mcp_sim_seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

static inline int64_t mcp_sim_ops_now(const struct mcp_sim_ops_play *play)
{
    return mcp_sim_now(play->activities);
}

const struct mcp_sim_block *mcp_sim_ops_block(const struct mcp_sim_ops_play *play, int c, int slot,
                                              const struct mcp_sim_step *step);
/* To the sink, if there is one and the span is longer than nothing. */
void mcp_sim_ops_emit(const struct mcp_sim_ops_play *play, const struct mcp_sim_span *span);
void mcp_sim_ops_timer(const struct mcp_sim_ops_play *play, int c, int64_t ns);

/* Goes on with the rank's own stream until it must wait (ops.c). */
void mcp_sim_ops_advance(struct mcp_sim_ops_play *play, int c);
void mcp_sim_ops_end_activity(struct mcp_sim_ops_play *play,
                              const struct mcp_sim_activity *activity);

/* Blocks as one event each (ops_fold.c). May the rank's block at hand be one? Then starts it. */
bool mcp_sim_ops_fold(const struct mcp_sim_ops_play *play, int c);
/* A message comes to the rank's port: a folded block that still needs it goes on op by op. */
void mcp_sim_ops_unfold(const struct mcp_sim_ops_play *play, int c, int tier);

/* Where all ops of the block have ended before the host has launched them. */
void mcp_sim_ops_await_launches(const struct mcp_sim_ops_play *play, int c);
void mcp_sim_ops_start_op(const struct mcp_sim_ops_play *play, int c, int index,
                          int64_t elapsed_ns);
/* The data stream (ops_data.c). */
void mcp_sim_ops_queue_transfer(struct mcp_sim_ops_play *play, int c,
                                const struct mcp_sim_step *step);
void mcp_sim_ops_end_transfer(struct mcp_sim_ops_play *play,
                              const struct mcp_sim_activity *activity);

/* What is played as a sum, op by op (ops_end.c): clearing, agreement on the norm and the
 * optimizer follow the last slot; transfers of once a step of which nothing is hidden stand
 * at its edges. Their ops are laid one after the other where those sums lie. */
void mcp_sim_ops_head_spans(const struct mcp_sim_ops_play *play);
void mcp_sim_ops_end_spans(const struct mcp_sim_ops_play *play);

#endif
