/* exec/evaluate.h: the loss on data that nothing is learnt from, by the program's forwards.
 *
 * Each time the first batches of the data, in its order: what one evaluation says compares
 * with the next one, and a run that goes on needs to remember nothing. */
#ifndef MCP_EXEC_EVALUATE_H
#define MCP_EXEC_EVALUATE_H

#include "exec/run.h"

struct mcp_evaluation;

/* NULL where setting->options name no data for it. MCP_INVALID: fewer sequences than asked
 * for, and how many steps there are. */
enum mcp_status mcp_evaluation_open(struct mcp_arena *arena, const struct mcp_run_setting *setting,
                                    struct mcp_trainer *trainer, struct mcp_evaluation **out,
                                    struct mcp_error *err);

/* Steps of `batch` sequences that an evaluation of so many sequences has: as many as asked for,
 * or as there are. MCP_INVALID: fewer than that. */
enum mcp_status mcp_evaluation_steps(const struct mcp_run_options *options, int64_t sequences,
                                     int64_t batch, int64_t *steps, struct mcp_error *err);

/* Is the model evaluated once `steps` steps are done? Every eval_every, and at the end. */
bool mcp_evaluation_is_due(const struct mcp_evaluation *evaluation, int64_t steps);

/* The mean over all batches, alike on all ranks; between steps, on every rank. */
enum mcp_status mcp_evaluation_run(struct mcp_evaluation *evaluation, double *loss,
                                   struct mcp_error *err);

#endif
