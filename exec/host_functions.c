/* exec/host_functions.c: a batch's ids, and the scalars of a step. */
#include "exec/host_functions.h"

#include "exec/flats.h"
#include "step/batch.h"

#include <math.h>
#include <string.h>

void mcp_batch_ids(const struct mcp_launch *launch, int32_t *out)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    const struct mcp_batch *batch = launch->rank->batch;
    const struct mcp_rank *rank = launch->rank;
    for (int64_t b = 0; b < facts->microbatch_size; b++) {
        const int64_t index =
            mcp_microbatch_sequence(rank->program, rank->rank, launch->microbatch, b);
        const int32_t *ids = batch->sequence(batch->context, index);
        for (int64_t i = 0; i < facts->sequence_local; i++)
            *out++ = ids[mcp_position_of(launch, i) + launch->op->dims[2]];
    }
}

struct mcp_step_reads mcp_step_reads_of(const struct mcp_launch *launch)
{
    bool has_norm = launch->op->num_reads > 1;
    return (struct mcp_step_reads){has_norm ? 0 : -1, has_norm ? 1 : 0};
}

void mcp_set_step_scalars(const struct mcp_launch *launch, float squares, float loss,
                          float *scalars)
{
    const struct mcp_step_inputs *inputs = &launch->rank->inputs;
    struct mcp_step_outputs *outputs = &launch->rank->outputs;
    double norm = sqrt((double)squares) / inputs->loss_scale;
    double factor = 1 / inputs->loss_scale;
    if (launch->op->dims[0] == 0 && inputs->clip_norm > 0 && norm > inputs->clip_norm)
        factor *= inputs->clip_norm / (norm + 1e-6);
    outputs->loss = (double)loss / (double)inputs->tokens;
    outputs->grad_norm = norm;
    outputs->skipped = !isfinite(norm);
    memset(scalars, 0, (size_t)launch->write_bytes[0]);
    scalars[MCP_SCALAR_FACTOR] = outputs->skipped ? 0 : (float)factor;
    scalars[MCP_SCALAR_SKIPPED] = outputs->skipped;
}
