/* tests/exec/ranks_run.h: a plan's program and its trainer on one rank of a test. */
#ifndef TESTS_EXEC_RANKS_RUN_H
#define TESTS_EXEC_RANKS_RUN_H

#include "exec/cpu_backend.h"
#include "exec/train.h"
#include "step/build.h"
#include "step/estimate.h"
#include "tests/exec/ranks.h"

enum { SEQUENCE = 32, BATCH = 8 };

struct data {
    int64_t step;
    int vocabulary;
    int32_t ids[SEQUENCE + 1];
};

/* An op that has been launched. */
struct launched {
    const struct mcp_op *op;
    int layer, microbatch;
};

struct run {
    struct mcp_arena *arena;
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_question question;
    struct mcp_plan plan;
    struct mcp_program program;
    const struct mcp_program *frozen; /* of steps from freeze_step on; NULL: none */
    int64_t freeze_step;
    const struct mcp_program *evaluation; /* NULL: none */
    double clip_norm, loss_scale;         /* loss_scale: the first one of fp16; 0: the usual */
    struct mcp_prediction prediction;
    struct mcp_backend *backend;
    struct mcp_backend_calls calls;
    struct data data;
    struct mcp_batch batch;
    struct mcp_trainer *trainer;
    struct launched *launched; /* of the last step */
    size_t num_launched, launched_capacity;
};

/* Ends the process with the sentence. */
void stop(const struct mcp_error *err, const char *what);
#define CHECK(call)                                                                                \
    do {                                                                                           \
        struct mcp_error err = {""};                                                               \
        if ((call) != MCP_OK)                                                                      \
            stop(&err, #call);                                                                     \
    } while (0)

/* The question and the plan of a case, legal; then its program, verified. False: refused, or
 * nothing that can be trained. */
bool plan_case(struct run *run, const struct ranks_case *c);
/* The same of a model in a file of its own (NULL: the case's), and of sequences so long: SEQUENCE
 * at most. */
bool plan_model(struct run *run, const struct ranks_case *c, const char *model,
                int64_t sequence_length);
/* The same in another precision, on GPUs that have all of them. */
bool plan_precision(struct run *run, const struct ranks_case *c, const char *model,
                    enum mcp_precision precision);
bool build_program(struct run *run);
/* How it is trained, whatever the backend; sets the run's batch. */
struct mcp_train_options train_options(struct run *run);
/* Its rank with new weights; `alone`: a program of one rank, whatever the world is. Transfers
 * start `delay_s` later than they could. */
void begin(struct run *run, struct mcp_cpu_world *world, bool alone, double delay_s);
void end(struct run *run);

/* One step; checks that ops were launched in the program's order. */
void train_step(struct run *run, int step, struct mcp_step_report *report);
/* Losses of all steps. */
void train_losses(struct run *run, double losses[RANKS_STEPS]);
/* The largest relative difference; what NaN fails. */
double worst_of(const double *a, const double *b);

/* What others are compared with: the model on one rank, nothing saved or made again. */
static inline struct ranks_case ranks_alone(int model)
{
    return (struct ranks_case){model,    1,
                               1,        1,
                               1,        1,
                               false,    MCP_CONTEXT_RING,
                               0,        false,
                               MCP_1F1B, 1,
                               1,        MCP_RECOMPUTE_NONE};
}

#endif
