/* exec/cuda_launch_update.c: what happens once a step: clearing, the norm of gradients, AdamW,
 * and 1-bit Adam's signs. */
#include "exec/cuda_launch.h"
#include "exec/flats.h"

/* 0 of any format is bytes of 0. */
void mcp_cuda_launch_zero(const struct mcp_cuda_call *call)
{
    const int64_t *d = call->launch->op->dims;
    mcp_cuda_fill(mcp_cuda_array_of(mcp_cleared_view(call->launch)), d[0] * d[1], 0, call->queue);
}

void mcp_cuda_launch_sum_squares(const struct mcp_cuda_call *call)
{
    const struct mcp_squares squares = mcp_squares_of(call->launch);
    if (squares.elements > 0)
        mcp_cuda_add_sum_squares(mcp_cuda_array_of(squares.view), squares.elements, squares.factor,
                                 call->launch->writes[0], call->queue);
}

void mcp_cuda_launch_clear_scalars(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    for (int i = 0; i < launch->op->num_writes; i++)
        mcp_cuda_fill((struct mcp_cuda_array){launch->writes[i], MCP_CUDA_F32},
                      launch->write_bytes[i] / 4, 0, call->queue);
}

/* --- AdamW --- */

enum { RANGES = 64 }; /* that one launch takes */

/* Weights that decay alike, one behind the other, are one range. */
static bool continues(const struct mcp_cuda_range *last, const struct mcp_range *next)
{
    return last->first + last->count == next->first && !(last->decay < next->decay) &&
           !(last->decay > next->decay);
}

static void update(const struct mcp_cuda_call *call, const struct mcp_share *share,
                   const struct mcp_cuda_adam *common,
                   void (*launcher)(const struct mcp_cuda_adam *, const struct mcp_cuda_queue *))
{
    struct mcp_cuda_range ranges[RANGES];
    struct mcp_cuda_adam op = *common;
    struct mcp_range next = {0};
    op.ranges = ranges;
    while (mcp_next_range(call->launch, share, &next)) {
        int64_t count = next.last - next.first;
        if (op.num_ranges > 0 && continues(&ranges[op.num_ranges - 1], &next)) {
            ranges[op.num_ranges - 1].count += count;
            continue;
        }
        if (op.num_ranges == RANGES) {
            launcher(&op, call->queue);
            op.num_ranges = 0;
        }
        ranges[op.num_ranges++] = (struct mcp_cuda_range){next.first, count, next.decay};
    }
    if (op.num_ranges > 0)
        launcher(&op, call->queue);
}

static struct mcp_cuda_adam adam_of(const struct mcp_cuda_call *call, const struct mcp_share *share,
                                    const float *scalars)
{
    const struct mcp_update u = mcp_update_of(call->launch, share);
    return (struct mcp_cuda_adam){.weights = mcp_cuda_array_of(u.weights),
                                  .master = u.master,
                                  .first = u.first,
                                  .second = u.second,
                                  .scalars = scalars,
                                  .beta1 = u.beta1,
                                  .beta2 = u.beta2,
                                  .epsilon = u.epsilon,
                                  .rate = u.rate,
                                  .correction1 = u.correction1,
                                  .correction2 = u.correction2};
}

/* reads gradients, state, scalars; writes weights, state */
void mcp_cuda_launch_adam(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    struct mcp_operand gradients = launch->op->reads[0];
    const struct mcp_share share = mcp_share_of(launch, gradients);
    struct mcp_cuda_adam op = adam_of(call, &share, launch->reads[2]);
    op.gradients = mcp_cuda_array_of(mcp_own_view(&share, gradients, mcp_read_view(launch, 0)));
    update(call, &share, &op, mcp_cuda_adam);
}

/* reads state, scalars; writes weights, state */
void mcp_cuda_launch_adam_frozen(const struct mcp_cuda_call *call)
{
    const struct mcp_share share = mcp_share_of(call->launch, call->launch->op->writes[0]);
    const struct mcp_cuda_adam op = adam_of(call, &share, call->launch->reads[1]);
    update(call, &share, &op, mcp_cuda_adam_frozen);
}

/* --- 1-bit Adam (step/layer_data.h): before and after signs travel --- */

/* reads gradients, state, scalars; writes state: the first moment by this rank's own gradient,
 * as a share of the mean that its group is to have */
void mcp_cuda_launch_momentum(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    const struct mcp_step_inputs *inputs = &launch->rank->inputs;
    const struct mcp_share share = mcp_share_of(launch, launch->op->reads[0]);
    const struct mcp_cuda_momentum op = {
        .gradients = mcp_cuda_array_of(mcp_view_at(mcp_read_view(launch, 0), share.first)),
        .moment = mcp_moment_of(launch, &share),
        .scalars = launch->reads[2],
        .elements = share.elements,
        .beta = (float)inputs->beta1,
        .factor = (float)(mcp_reducing_ranks(launch) / inputs->loss_scale)};
    mcp_cuda_momentum(&op, call->queue);
}

/* reads a value, errors, scalars; writes errors: their sum */
void mcp_cuda_launch_add_error(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    const int64_t *d = launch->op->dims;
    const struct mcp_span span = mcp_span_of(launch, launch->op->reads[1]);
    const struct mcp_cuda_signs op = {.value = (const float *)launch->reads[0] + d[3],
                                      .error = (float *)launch->writes[0] + d[2],
                                      .scalars = launch->reads[2],
                                      .elements = span.elements,
                                      .real = span.real};
    mcp_cuda_add_error(&op, call->queue);
}

/* reads errors with what they were added to, state, scalars; writes signs, scale, errors */
void mcp_cuda_launch_compress_signs(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    const int64_t *d = launch->op->dims;
    const struct mcp_span span = mcp_span_of(launch, launch->op->reads[0]);
    const struct mcp_cuda_signs op = {.variance =
                                          (const float *)launch->reads[1] + d[3] + span.first,
                                      .error = (float *)launch->writes[2] + d[2],
                                      .signs = launch->writes[0],
                                      .scale = launch->writes[1],
                                      .scalars = launch->reads[2],
                                      .elements = span.elements,
                                      .real = span.real};
    mcp_cuda_compress_signs(&op, call->queue);
}

/* reads signs [ranks][own / 8], scales [ranks]; writes their mean [own] */
void mcp_cuda_launch_average_signs(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    const struct mcp_cuda_votes op = {.signs = launch->reads[0],
                                      .scales = launch->reads[1],
                                      .out = launch->writes[0],
                                      .own = launch->op->dims[0],
                                      .ranks = launch->op->dims[1]};
    mcp_cuda_average_signs(&op, call->queue);
}

/* reads signs of all averages, a scale from each rank, state, scalars; writes the state's first
 * moments */
void mcp_cuda_launch_decompress_signs(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    int64_t ranks = launch->read_bytes[1] / 4;
    const struct mcp_cuda_votes op = {.signs = launch->reads[0],
                                      .scales = launch->reads[1],
                                      .out = (float *)launch->writes[0] + launch->op->dims[2],
                                      .scalars = launch->reads[3],
                                      .own = launch->read_bytes[0] * 8 / ranks,
                                      .ranks = ranks,
                                      .elements = launch->op->dims[0]};
    mcp_cuda_decompress_signs(&op, call->queue);
}
