/* step/measured.c: ops as samples of a calibration. */
#include "step/measured.h"

#include "core/mesh.h"
#include "core/stack.h"
#include "step/price_parts.h"

#include <math.h>

static bool compute_sample(const struct mcp_op *op, struct mcp_sample *out)
{
    const int64_t *d = op->dims;
    int code = mcp_op_code(op);
    out->dtype = mcp_dtype_names[op->dtype];
    out->sizes[0] = fmax(1, (double)d[0]); /* what an op has no use for is 0 */
    out->sizes[1] = fmax(1, (double)d[1]);
    if (code == MCP_MATMUL || code == MCP_ATTENTION || code == MCP_SCAN) {
        out->sizes[2] = fmax(1, (double)d[2]);
        out->sizes[3] = fmax(1, (double)(code == MCP_ATTENTION ? d[4] : d[3]));
        out->work = mcp_op_flops(op);
    } else {
        out->work = fmax(mcp_op_moved_bytes(op), out->sizes[0] * out->sizes[1]);
    }
    return out->work > 0;
}

bool mcp_op_sample(const struct mcp_op *op, const struct mcp_plan *plan, struct mcp_sample *out)
{
    *out = (struct mcp_sample){.function = mcp_functions[op->function].name, .dtype = ""};
    for (int i = 0; i < MCP_SAMPLE_SIZES; i++)
        out->sizes[i] = 1;
    if (mcp_op_code(op) == MCP_HOST || mcp_op_code(op) == MCP_RECEIVE)
        return false;
    if (!mcp_op_is_transfer(op))
        return compute_sample(op, out);
    out->work = (double)op->dims[0] * mcp_dtype_bytes((enum mcp_dtype)op->dtype);
    if (mcp_op_code(op) == MCP_SEND) {
        *out = mcp_message_sample(out->work);
        return out->work > 0;
    }
    out->sizes[0] = out->work;
    out->sizes[1] = mcp_group_size(plan, op->group);
    return out->work > 0 && out->sizes[1] > 1;
}

struct mcp_sample mcp_message_sample(double bytes)
{
    return (struct mcp_sample){.function = mcp_functions[MCP_FN_SEND].name,
                               .dtype = "",
                               .sizes = {bytes, 1, 1, 1, 1},
                               .work = bytes};
}

bool mcp_op_measured(const struct mcp_pricing *pricing, const struct mcp_op *op, double *seconds)
{
    const struct mcp_calibration *calibration = pricing->question->stack->calibration;
    struct mcp_sample sample;
    return calibration != NULL && mcp_op_sample(op, pricing->plan, &sample) &&
           mcp_calibration_seconds(calibration, &sample, seconds);
}

bool mcp_message_measured(const struct mcp_pricing *pricing, double bytes, double *seconds)
{
    const struct mcp_calibration *calibration = pricing->question->stack->calibration;
    const struct mcp_sample sample = mcp_message_sample(bytes);
    return calibration != NULL && bytes > 0 &&
           mcp_calibration_seconds(calibration, &sample, seconds);
}
