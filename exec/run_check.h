/* exec/run_check.h: what a run reads and where it writes, looked at before anything is done.
 *
 * A wrong name is told before ranks start or memory is taken. Nothing is made, changed or kept;
 * what takes long (checksums, the ids themselves) is left to the run, which asks again. */
#ifndef MCP_EXEC_RUN_CHECK_H
#define MCP_EXEC_RUN_CHECK_H

#include "exec/checkpoint.h"
#include "exec/run_options.h"

/* The program's files, data and weights to begin with: what every rank reads. `program` is what
 * runs; NULL: it is in a file that is not read yet, and nothing is compared with it. */
enum mcp_status mcp_run_check_sources(const struct mcp_run_options *options,
                                      const struct mcp_program *program, struct mcp_error *err);

/* Where files go, and what lies there: of the first rank, or of who starts it. */
enum mcp_status mcp_run_check_places(const struct mcp_run_options *options, struct mcp_error *err);

/* The order of data is the checkpoint's: MCP_INVALID where another seed is asked for, which
 * would be without effect. */
enum mcp_status mcp_run_check_seed(const struct mcp_run_options *options,
                                   const struct mcp_checkpoint_state *state, struct mcp_error *err);

#endif
