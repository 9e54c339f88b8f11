/* sim/check.h: can it be played at all?
 *
 * Asked of questions that come from files: links of a byte a second, steps of a billion
 * microbatches. MCP_INVALID with a sentence. */
#ifndef MCP_SIM_CHECK_H
#define MCP_SIM_CHECK_H

#include "sim/sim.h"

#define MCP_SIM_MOST_SLOTS (1 << 19) /* of all pipeline stages */

/* Before the program is built: the slots of one step. The plan must be legal. */
enum mcp_status mcp_sim_check_size(const struct mcp_plan *plan, const struct mcp_job *job,
                                   struct mcp_error *err);

/* Before it is played: all its work, one op after the other and as slow as the options
 * can make it, stays within what integer nanoseconds hold (292 years). */
enum mcp_status mcp_sim_check_time(const struct mcp_question *question,
                                   const struct mcp_program *program,
                                   const struct mcp_sim_options *options, struct mcp_error *err);

#endif
