/* exec/cuda_transfer.h: the transfers of exec/backend.h as calls of exec/cuda_nccl.h.
 *
 * Shards of one length are NCCL's own all-gather and reduce-scatter; where the last is short,
 * a group of broadcasts or reduces, one for each shard. All-to-alls and shifts are groups of
 * sends and receives. A reduce_scatter that adds goes by a workspace, sized when the channels
 * are opened.
 *
 * Messages between stages. NCCL takes calls of one communicator in the order they are made,
 * whatever their streams: every link of the pipeline and direction has one of its own, of two
 * ranks, so that no message waits for another way's. A message is copied before it is sent:
 * its memory is free again when the copy is done, or a stage that reuses it would wait for the
 * receiver, who may wait for this stage. As many copies are kept as stages lie in the
 * pipeline, or the step has messages if those are fewer. */
#ifndef MCP_EXEC_CUDA_TRANSFER_H
#define MCP_EXEC_CUDA_TRANSFER_H

#include "exec/backend.h"
#include "exec/cuda_nccl.h"
#include "exec/interpret.h"

/* All groups of ranks that programs' ops need, as one rank sees them. */
struct mcp_cuda_channels;

struct mcp_cuda_channels_setting {
    struct mcp_nccl_world *world;
    /* the rank's own, then those it may turn to; NULL: none */
    const struct mcp_program *programs[1 + MCP_INTERPRET_OTHERS];
    int rank;
};
/* Makes the communicators: all ranks call it together, with equal programs. Memory is the
 * arena's. */
enum mcp_status mcp_cuda_channels_open(struct mcp_arena *arena,
                                       const struct mcp_cuda_channels_setting *setting,
                                       struct mcp_cuda_channels **out, struct mcp_error *err);

/* Queues what `launch` asks for on `stream`. `sizes`, on the host: of all_to_all_v. A send is
 * over on `stream` when it is copied. */
enum mcp_status mcp_cuda_transfer(struct mcp_cuda_channels *channels,
                                  const struct mcp_launch *launch, const int32_t *sizes,
                                  void *stream, struct mcp_error *err);
/* sizes[experts] of this rank to what each member has for its experts, sizes[experts ..], on the
 * device: exec/backend.h, all_to_all_v. */
enum mcp_status mcp_cuda_exchange_counts(struct mcp_cuda_channels *channels, int32_t *sizes,
                                         int64_t experts, void *stream, struct mcp_error *err);
/* Have all messages left? */
enum mcp_status mcp_cuda_messages_left(struct mcp_cuda_channels *channels, bool *left,
                                       struct mcp_error *err);

#endif
