/* sim/steps.h: the program's entries as events with prices. Private to sim/. */
#ifndef MCP_SIM_STEPS_H
#define MCP_SIM_STEPS_H

#include "sim/sim.h"

enum mcp_sim_kind {
    MCP_SIM_COMPUTE,
    MCP_SIM_GATHER,
    MCP_SIM_REDUCE,
    MCP_SIM_SEND,
    MCP_SIM_RECEIVE
};

/* Messages that a rank receives queue by neighbour, and by the kind of chunk (step/program.h:
 * streams of chunks that run back are apart). */
enum { MCP_SIM_MAILS = 4 };

/* One entry of a list. */
struct mcp_sim_step {
    enum mcp_sim_kind kind;
    int cell;               /* compute, gather: of weights on their way, [layer][copy]; -1: none */
    int side;               /* messages: 0 with the previous stage, 1 with the next */
    enum mcp_stream stream; /* ... */
    int mail;               /* ... sent or received: which of MCP_SIM_MAILS of the receiver */
    int entry;              /* in its list */
    int64_t time_ns;        /* on the compute stream; receive: `back` of sim.h */
    int64_t stretch_ns;     /* of it, what a slow rank stretches: no transfers, no host */
    int64_t data_ns;        /* gather, reduce: on the data stream */
    int64_t alone_ns;       /* ... and what of it nothing hides */
    int64_t delay_ns;       /* send */
    const struct mcp_block_price *price;
};

struct mcp_sim_list {
    int num_steps;
    struct mcp_sim_step *steps;
};

struct mcp_sim_class {
    int64_t head_ns, tail_ns; /* transfers of once a step that nothing hides */
    int64_t update_ns;
    double update_cost_s[MCP_NUM_COSTS], update_comm_s[MCP_NUM_COSTS];
};

struct mcp_sim_steps {
    const struct mcp_question *question;
    const struct mcp_program *program;
    int num_copies;
    struct mcp_block_price *prices; /* [pool][type][role] */
    struct mcp_sim_list *lists;     /* the program's; each is of one class, as layers are */
    struct mcp_sim_class *classes;
    int64_t agreement_ns, broadcast_ns, overhead_ns;
    const struct mcp_sim_steps *slow; /* through options->slow_port; NULL: none */
};

struct mcp_sim_steps *mcp_sim_steps_new(struct mcp_arena *arena,
                                        const struct mcp_question *question,
                                        const struct mcp_program *program);

/* sim/sim.h, from prices made before. */
void mcp_sim_play_steps(struct mcp_arena *arena, const struct mcp_sim_steps *steps,
                        const struct mcp_sim_options *options, struct mcp_sim_result *out);

/* Room for a result; and, once its stages' ends and costs but for the last bubble
 * (-end) are known, all else. */
void mcp_sim_result_new(struct mcp_arena *arena, const struct mcp_program *program,
                        struct mcp_sim_result *out);
void mcp_sim_finish(const struct mcp_sim_steps *steps, struct mcp_sim_result *out);

/* The question as the GPUs of a class see it. */
struct mcp_question mcp_sim_question_of(const struct mcp_question *question,
                                        const struct mcp_plan *plan, int class);

#endif
