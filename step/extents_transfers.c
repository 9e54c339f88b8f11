/* step/extents_transfers.c: what transfers send and receive beside the buffers that hold it. */
#include "step/extents_parts.h"

#include "core/mesh.h"
#include "core/minmax.h"

/* Elements [first, first + count) of an operand; in double, as their sum may be too large. */
static enum mcp_status check_range(const struct mcp_judged *at, struct mcp_operand operand,
                                   int64_t first, int64_t count)
{
    const struct mcp_buffer *buffer = mcp_judged_buffer(at, operand);
    const double each = mcp_dtype_bytes((enum mcp_dtype)at->op->dtype);
    if (((double)first + (double)count) * each <= (double)buffer->capacity_bytes)
        return MCP_OK;
    return mcp_extents_fail(at, "%lld numbers of %s from %lld of '%s' on, which has %lld bytes",
                            (long long)count, mcp_dtype_names[at->op->dtype], (long long)first,
                            buffer->name, (long long)buffer->capacity_bytes);
}

/* What is added up on the way is added up as it lies. */
static enum mcp_status check_sum(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    const struct mcp_operand operands[] = {op->reads[0], op->writes[0]};
    for (int i = 0; i < 2; i++) {
        const struct mcp_buffer *buffer = mcp_judged_buffer(at, operands[i]);
        if (buffer->dtype != op->dtype)
            return mcp_extents_fail(at,
                                    "adds up numbers of %s in '%s', which holds %s: gradients "
                                    "travel as they are held, so plan for a stack whose "
                                    "gradient_reduce_bytes fit its gradient_bytes",
                                    mcp_dtype_names[op->dtype], buffer->name,
                                    mcp_dtype_names[buffer->dtype]);
    }
    return MCP_OK;
}

/* From the whole to shards, or back: the last shard may be short, its buffer is not. */
static enum mcp_status check_shards(const struct mcp_judged *at, struct mcp_operand whole,
                                    struct mcp_operand shard)
{
    const struct mcp_op *op = at->op;
    const int64_t ranks = mcp_group_size(&at->program->plan, op->group);
    MCP_TRY(check_range(at, whole, op->dims[2], op->dims[0]));
    if (mcp_same_operand(op->reads[0], op->writes[0])) /* in place */
        return MCP_OK;
    return check_range(at, shard, op->dims[3], op->dims[0] / ranks + (op->dims[0] % ranks != 0));
}

/* The whole buffer, or each tensor rank's share of it. */
static enum mcp_status check_message(const struct mcp_judged *at, struct mcp_operand operand)
{
    const struct mcp_buffer *buffer = mcp_judged_buffer(at, operand);
    const double each = mcp_dtype_bytes((enum mcp_dtype)at->op->dtype);
    const int64_t n = at->op->dims[0], ranks = at->program->plan.tensor_parallel;
    const bool whole = (double)n * each >= (double)buffer->bytes;
    return check_range(at, operand, whole ? 0 : (ranks - 1) * mcp_min_int64(n, buffer->bytes), n);
}

static enum mcp_status check_both(const struct mcp_judged *at, int64_t first, int64_t count)
{
    MCP_TRY(check_range(at, at->op->reads[0], first, count));
    return check_range(at, at->op->writes[0], first, count);
}

enum mcp_status mcp_check_transfer(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    const int64_t *d = op->dims;
    MCP_TRY(mcp_check_count(at, op->function != MCP_FN_RECEIVE, op->function != MCP_FN_SEND));
    if (op->function == MCP_FN_ALL_REDUCE || op->function == MCP_FN_REDUCE_SCATTER)
        MCP_TRY(check_sum(at));
    switch (op->function) {
    case MCP_FN_ALL_REDUCE:
    case MCP_FN_ALL_REDUCE_MAX:
        return check_both(at, d[2], mcp_max_int64(d[0], d[4]));
    case MCP_FN_REDUCE_SCATTER:
        return check_shards(at, op->reads[0], op->writes[0]);
    case MCP_FN_ALL_GATHER:
        return check_shards(at, op->writes[0], op->reads[0]);
    case MCP_FN_ALL_TO_ALL:
    case MCP_FN_SHIFT:
    case MCP_FN_ALL_TO_ALL_V: /* rows that are expected: those that come have room, or fail */
        return check_both(at, 0, d[0]);
    case MCP_FN_SEND:
        return check_message(at, op->reads[0]);
    default:
        return check_message(at, op->writes[0]);
    }
}
