/* exec/watch.h: what a monitor asks of all ranks' memory: the norms of every part of every
 * layer, and the residual stream. Every rank of the run calls the same functions. */
#ifndef MCP_EXEC_WATCH_H
#define MCP_EXEC_WATCH_H

#include "exec/events.h"
#include "exec/interpret.h"
#include "exec/monitor.h"
#include "exec/save.h"

struct mcp_watch;

/* Groups are the parts of the program's layers, "layers.L.PART". With `histograms` those of
 * weights and gradients are counted too. */
struct mcp_watch *mcp_watch_new(struct mcp_arena *arena, const struct mcp_program *program,
                                bool histograms);
/* For struct mcp_interpret_options: sums up what forwards of microbatch 0 read, in steps
 * that are watched. */
void mcp_watch_op(void *watch, enum mcp_block_role role, const struct mcp_launch *launch);

/* Before a step that is to be watched. */
void mcp_watch_begin(struct mcp_watch *watch, const struct mcp_saved_rank *rank);
/* After it: adds up over all ranks. Needs host memory for one part of a layer.
 *   grad_norm    before clipping, without the loss scale; NaN where 1-bit Adam keeps none
 *   update_norm  from the optimizer's state: AdamW's step can be taken back; 0 if skipped
 *   weight_norm  NaN of biases, which begin at 0: their update ratio says nothing
 * An activation's layer is the one that it leaves; ranks that hold the same count alike. */
enum mcp_status mcp_watch_end(struct mcp_watch *watch, struct mcp_error *err);

/* Into the numbers of a step, from the last mcp_watch_end(); valid until the next. */
void mcp_watch_fill(const struct mcp_watch *watch, struct mcp_step_metrics *metrics);

/* Its histograms, "weights/GROUP" and "gradients/GROUP"; the caller flushes. */
void mcp_watch_histograms(const struct mcp_watch *watch, struct mcp_events *events);

#endif
