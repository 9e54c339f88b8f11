/* exec/train.h: the loop above the seam: steps of training on one rank of a run.
 *
 * AdamW (Loshchilov and Hutter 2019) over a learning rate that warms up from 0 and then
 * stays, or falls to its floor along a line or half a cosine. Every rank of the run calls
 * the same functions in the same order. */
#ifndef MCP_EXEC_TRAIN_H
#define MCP_EXEC_TRAIN_H

#include "exec/interpret.h"
#include "step/batch.h"

enum mcp_decay { MCP_DECAY_CONSTANT, MCP_DECAY_LINEAR, MCP_DECAY_COSINE, MCP_NUM_DECAYS };
extern const char *const mcp_decay_names[MCP_NUM_DECAYS];

struct mcp_learning_rate {
    double peak, floor;
    int64_t warmup_steps; /* step s of them runs at peak x (s + 1) / warmup_steps */
    int64_t decay_steps;  /* after those: until the floor is reached */
    enum mcp_decay decay;
};
double mcp_learning_rate_at(const struct mcp_learning_rate *rate, int64_t step);

struct mcp_train_options {
    struct mcp_learning_rate rate;
    double beta1, beta2, epsilon, weight_decay;
    double clip_norm; /* 0: none */
    /* Of programs that store fp16: what the loss is multiplied with at first, so that small
     * gradients do not vanish; halved after a step whose gradients overflow, doubled after
     * `loss_scale_window` steps without one (Micikevicius et al. 2018, section 3.2). */
    double initial_loss_scale;
    int64_t loss_scale_window;
    uint64_t seed;
    /* 1-bit Adam: the program of its frozen phase and that phase's first step, from 1 on.
     * NULL: Adam alone. */
    const struct mcp_program *frozen;
    int64_t freeze_step;
    /* What mcp_trainer_evaluate() runs (step/build.h); NULL: it is not asked. */
    const struct mcp_program *evaluation;
    struct mcp_interpret_options interpret;
};
/* Rate 5e-5 after 5000 steps, then constant; 0.9, 0.999, 1e-8; decay 0.01; clip 2; a loss scale
 * of 65536, over 2000 steps. */
struct mcp_train_options mcp_train_options_default(void);

/* What goes on from step to step beside weights and moments; alike on all ranks. */
struct mcp_trainer_state {
    int64_t step;             /* the next one */
    int64_t updates;          /* steps that moved weights; of them ... */
    int64_t variance_updates; /* ... those that went into second moments */
    double loss_scale;        /* of the next step; 0: the program stores no fp16 */
    int64_t steps_since_skip; /* under this loss scale */
};

struct mcp_step_report { /* alike on all ranks but for seconds */
    int64_t step, tokens;
    double loss, grad_norm, learning_rate, loss_scale;
    double step_s;
    double data_wait_s;                    /* set by the trainer's owner, as the next two are */
    double bubble_frac, exposed_comm_frac; /* means over ranks; step/account.h */
    bool skipped;
    bool scaled_down; /* a smaller loss scale may mend it: the step is tried with less */
    bool evaluated;   /* set by the trainer's owner, as eval_loss: on data of its own */
    double eval_loss;
    int first_bad_rank; /* whose own loss was not finite; -1: none's */
};

struct mcp_trainer;

/* Rank `rank` of the program, its memory taken and its weights new. MCP_INVALID: the
 * backend lacks a function, or the frozen phase cannot follow. All must outlive the trainer. */
enum mcp_status mcp_trainer_new(struct mcp_arena *arena, const struct mcp_program *program,
                                int rank, const struct mcp_backend_calls *calls,
                                struct mcp_backend *backend, const struct mcp_batch *batch,
                                const struct mcp_train_options *options, struct mcp_trainer **out,
                                struct mcp_error *err);

/* Where it stands, between steps; and to go on from there, in a new run. One that stores fp16
 * after one that did not begins with the initial loss scale. */
struct mcp_trainer_state mcp_trainer_state(const struct mcp_trainer *trainer);
void mcp_trainer_go_on(struct mcp_trainer *trainer, const struct mcp_trainer_state *state);
/* The next step. */
enum mcp_status mcp_trainer_step(struct mcp_trainer *trainer, struct mcp_step_report *report,
                                 struct mcp_error *err);

/* The loss of a batch at the weights as they are, between steps: a mean over its tokens, on
 * every rank. Changes nothing that lasts but gradients. */
enum mcp_status mcp_trainer_evaluate(struct mcp_trainer *trainer, const struct mcp_batch *batch,
                                     double *loss, struct mcp_error *err);

const struct mcp_interpreter *mcp_trainer_interpreter(const struct mcp_trainer *trainer);
const struct mcp_rank *mcp_trainer_rank(const struct mcp_trainer *trainer);

#endif
