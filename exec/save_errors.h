/* exec/save_errors.h: what signs of 1-bit Adam left out so far (step/layer_data.h), as parts of
 * a checkpoint.
 *
 * Errors are each rank's own, of its own gradients: they mean something to the rank of the same
 * number that holds the same pieces of tensors among as many ranks, and to no other. Their
 * names say so: layers.L.errors.I.rank.R.SUM, where SUM is a CRC-32C of the layout. A run that
 * goes on in another layout finds none, and begins them with 0, as DeepSpeed does always. */
#ifndef MCP_EXEC_SAVE_ERRORS_H
#define MCP_EXEC_SAVE_ERRORS_H

#include "exec/init.h"
#include "exec/save.h"

struct mcp_kept_errors {
    struct mcp_piece piece; /* one row */
    void *memory;           /* fp32, in the backend's */
};
enum { MCP_KEPT_ERRORS = MCP_LAYER_CAST_WEIGHTS - MCP_NUM_LAYER_BUFFERS };

/* Those of a layer that the rank runs; returns how many. */
int mcp_kept_errors(struct mcp_arena *arena, const struct mcp_saved_rank *saved, int layer,
                    struct mcp_kept_errors errors[MCP_KEPT_ERRORS]);

/* Has the layer's update begun to send signs? Before, errors are 0. */
bool mcp_sends_signs(const struct mcp_flat_place *places, int count);

#endif
