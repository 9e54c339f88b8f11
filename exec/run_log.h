/* exec/run_log.h: what steps were: a line of run.jsonl each, and TensorBoard's values.
 *
 * A line is written whole or, when the process dies, not at all or cut: what reads the
 * file drops a last line without its end. */
#ifndef MCP_EXEC_RUN_LOG_H
#define MCP_EXEC_RUN_LOG_H

#include "core/text.h"
#include "exec/events.h"
#include "exec/monitor.h"

struct mcp_run_log;
/* Could it be opened? Nothing is made or changed. */
enum mcp_status mcp_run_log_check(struct mcp_arena *arena, const char *path, struct mcp_error *err);
/* Opens `path` to go on from `first_step`: lines of that and later steps, and a cut one,
 * are cut off first. MCP_INVALID: a file that is no such log. */
enum mcp_status mcp_run_log_open(struct mcp_arena *arena, const char *path, int64_t first_step,
                                 struct mcp_run_log **out, struct mcp_error *err);
enum mcp_status mcp_run_log_step(struct mcp_run_log *log, const struct mcp_step_metrics *metrics,
                                 const struct mcp_alarm *alarms, int num_alarms,
                                 struct mcp_error *err);

/* The line, with its end; unknown numbers are null. */
void mcp_run_line(struct mcp_text *out, const struct mcp_step_metrics *metrics,
                  const struct mcp_alarm *alarms, int num_alarms);
/* The same numbers as scalars, those that are known; the caller flushes. */
void mcp_run_scalars(struct mcp_events *events, const struct mcp_step_metrics *metrics);

#endif
