/* exec/run_logs.h: what rank 0 writes about each step: run.jsonl, event files, alarms. */
#ifndef MCP_EXEC_RUN_LOGS_H
#define MCP_EXEC_RUN_LOGS_H

#include "exec/run.h"
#include "exec/run_log.h"
#include "exec/watch.h"

struct mcp_run_logs {
    struct mcp_monitor *monitor;
    struct mcp_run_log *log;       /* NULL: not asked for */
    struct mcp_events *events;     /* NULL: not asked for */
    int64_t parameters;            /* of the model */
    int64_t peak_memory_bytes;     /* of the fullest rank; set by the owner */
    const struct mcp_watch *watch; /* of this step; NULL: not looked at */
};

/* Goes on from `first_step`. */
enum mcp_status mcp_run_logs_open(struct mcp_arena *arena, const struct mcp_run_setting *setting,
                                  int64_t first_step, struct mcp_run_logs *out,
                                  struct mcp_error *err);
enum mcp_status mcp_run_logs_step(struct mcp_run_logs *logs, const struct mcp_run_setting *setting,
                                  const struct mcp_step_report *report, struct mcp_error *err);

/* Weights of the model that a program trains, each once; padding left out. */
int64_t mcp_program_parameters(const struct mcp_program *program);

#endif
