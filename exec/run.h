/* exec/run.h: one rank of a training run, from its options to its last step.
 *
 * Every rank of the run calls these with equal options. */
#ifndef MCP_EXEC_RUN_H
#define MCP_EXEC_RUN_H

#include "exec/run_options.h"

/* Told after each step, on every rank. */
struct mcp_run_observer {
    void (*step)(void *context, const struct mcp_step_report *report);
    /* A sentence for the user, from rank 0: an alarm, a checkpoint that is passed over. */
    void (*note)(void *context, const char *sentence);
    /* Is the run to end after this step, on this rank? All ranks then end. */
    bool (*stop)(void *context);
    /* Seconds since 1970, for event files. */
    double (*wall_s)(void *context);
    void *context;
};

struct mcp_run_setting {
    const struct mcp_run_options *options;
    const struct mcp_program *program;
    const struct mcp_program *frozen;     /* of 1-bit Adam's second phase; NULL: none */
    const struct mcp_program *evaluation; /* NULL: nothing is evaluated */
    int rank;
    const struct mcp_backend_calls *calls;
    struct mcp_backend *backend;
    struct mcp_run_observer observer;
};

/* Reads a program file, and verifies it unless the options say not to. */
enum mcp_status mcp_run_load(struct mcp_arena *arena, const struct mcp_run_options *options,
                             struct mcp_program *out, struct mcp_error *err);
/* The same of a further one, options->frozen_program or eval_program; NULL where path is. */
enum mcp_status mcp_run_load_other(struct mcp_arena *arena, const struct mcp_run_options *options,
                                   const char *path, const struct mcp_program **out,
                                   struct mcp_error *err);

/* Takes the rank's memory, opens data and logs, goes on from the newest checkpoint if the
 * options say so. Where one rank fails all do, with one reason. */
struct mcp_run;
enum mcp_status mcp_run_open(struct mcp_arena *arena, const struct mcp_run_setting *setting,
                             struct mcp_run **out, struct mcp_error *err);

/* Trains until options->steps steps are done, checkpoints included; writes a checkpoint at
 * the end, and on rank 0 the timeline of the fastest step. */
enum mcp_status mcp_run_steps(struct mcp_run *run, struct mcp_error *err);

#endif
