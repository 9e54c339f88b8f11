/* step/extents_shapes.c: what kernels touch where it depends on which operands there are, or on how
 * large they are: exec/shapes.c. */
#include "step/extents_parts.h"

#include "step/weights.h"

/* Numbers, and so many of them. */
static enum mcp_status check_numbers(const struct mcp_judged *at, struct mcp_operand operand,
                                     double wanted)
{
    MCP_TRY(mcp_check_format(at, operand, MCP_FORMAT_NUMBERS));
    return mcp_check_room(at, operand, wanted, mcp_judged_elements(at, operand));
}

/* The same behind the start of the op's part. */
static enum mcp_status check_part(const struct mcp_judged *at, struct mcp_operand operand,
                                  double wanted)
{
    MCP_TRY(mcp_check_format(at, operand, MCP_FORMAT_NUMBERS));
    return mcp_check_room(at, operand, wanted, mcp_judged_part_elements(at, operand, 0));
}

/* --- norms --- */

/* Rows as far apart as their buffer is large: of one norm, or of heads beside something else. */
struct norm {
    bool back, weighted;
    int64_t stride;
};

static bool has_head_columns(const struct mcp_judged *at)
{
    const struct mcp_layer_facts *f = &at->type->facts;
    return (double)at->op->dims[1] ==
           ((double)f->heads + (double)f->kv_heads) * (double)f->head_dim;
}

static double norm_weights(const struct mcp_judged *at, const struct norm *n)
{
    const struct mcp_weight *part = &at->type->weights[at->op->weight];
    const int64_t columns = at->op->dims[1];
    if (n->stride == columns || part->columns == columns)
        return (double)columns * (part->rows > 1 ? 2 : 1);
    const int64_t rows = part->rows / 2 + 1 + (part->rows > 2);
    return (double)rows * (double)at->type->facts.head_dim;
}

static enum mcp_status check_norm_rows(const struct mcp_judged *at, const struct norm *n)
{
    const struct mcp_op *op = at->op;
    const double wanted = (double)op->dims[0] * (double)n->stride;
    for (int i = 0; i < op->num_reads; i++)
        if (!n->weighted || i != 1 + n->back)
            MCP_TRY(check_numbers(at, op->reads[i], wanted));
    return check_numbers(at, op->writes[0], wanted);
}

static enum mcp_status check_norm(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    struct norm n = {op->function == MCP_FN_NORM_BACKWARD, op->weight != MCP_NO_WEIGHT, 0};
    MCP_TRY(mcp_check_count(at, 1 + n.back + n.weighted, 1 + (n.back && n.weighted)));
    n.stride = mcp_judged_elements(at, op->reads[n.back]) / op->dims[0];
    if (n.stride < op->dims[1] || (n.stride > op->dims[1] && !has_head_columns(at)))
        return mcp_extents_fail(
            at, "%lld rows of %lld numbers of '%s', which has room for rows of %lld",
            (long long)op->dims[0], (long long)op->dims[1],
            mcp_judged_buffer(at, op->reads[n.back])->name, (long long)n.stride);
    MCP_TRY(check_norm_rows(at, &n));
    if (n.weighted)
        MCP_TRY(check_part(at, op->reads[1 + n.back], norm_weights(at, &n)));
    return n.back && n.weighted ? check_part(at, op->writes[1], norm_weights(at, &n)) : MCP_OK;
}

/* --- an MLP's activation --- */

/* Operands: what comes back if backward; one or two inputs; sizes of an expert's rows; a bias. */
struct inputs {
    bool back, weighted, biased;
    int count, halves, sizes;
    double elements; /* of one half */
};

static struct inputs inputs_of(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    struct inputs in = {.weighted = op->weight != MCP_NO_WEIGHT,
                        .halves = at->type->facts.gated != 0 ? 2 : 1,
                        .sizes = mcp_op_expert_sizes(at->program, at->type, op)};
    const struct mcp_operand last = op->reads[op->num_reads - 1];
    in.back = op->function == MCP_FN_GELU_BACKWARD || op->function == MCP_FN_SWIGLU_BACKWARD;
    in.biased =
        in.weighted && mcp_operand_buffer(at->program, at->type, last)->kind == MCP_BUFFER_WEIGHT;
    in.count = op->num_reads - in.back - (in.sizes >= 0) - in.biased;
    in.elements = (in.sizes >= 0 ? mcp_rows_held(at) : (double)op->dims[0]) * (double)op->dims[1];
    return in;
}

static enum mcp_status check_inputs(const struct mcp_judged *at, const struct inputs *in)
{
    const struct mcp_op *op = at->op;
    if (in->count < 1 || in->count > in->halves)
        return mcp_extents_fail(at, "%d operands to activate, where a layer with gated=%lld has %d",
                                in->count, (long long)at->type->facts.gated, in->halves);
    for (int i = 0; i < in->back + in->count; i++) {
        const bool is_both = i >= in->back && in->count < in->halves;
        MCP_TRY(check_numbers(at, op->reads[i], in->elements * (is_both ? 2 : 1)));
    }
    return MCP_OK;
}

static enum mcp_status check_activation(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    MCP_TRY(mcp_check_count(at, 1, 1));
    const struct inputs in = inputs_of(at);
    const double bias = (double)in.halves * (double)op->dims[1];
    MCP_TRY(mcp_check_count(at, 1, 1 + (in.back && in.weighted)));
    if (in.sizes >= 0)
        MCP_TRY(mcp_check_are_sizes(at, in.sizes));
    MCP_TRY(check_inputs(at, &in));
    MCP_TRY(check_numbers(at, op->writes[0], in.elements * (in.back ? in.halves : 1)));
    if (in.biased)
        MCP_TRY(check_part(at, op->reads[op->num_reads - 1], bias));
    return in.back && in.weighted ? check_part(at, op->writes[1], bias) : MCP_OK;
}

/* --- others --- */

/* Bytes are copied from the one to the other. */
static enum mcp_status check_alike(const struct mcp_judged *at)
{
    const struct mcp_buffer *from = mcp_judged_buffer(at, at->op->reads[0]);
    const struct mcp_buffer *to = mcp_judged_buffer(at, at->op->writes[0]);
    if (from->dtype == to->dtype)
        return MCP_OK;
    return mcp_extents_fail(at, "'%s' is in %s, and '%s' in %s", from->name,
                            mcp_dtype_names[from->dtype], to->name, mcp_dtype_names[to->dtype]);
}

static enum mcp_status check_exchange(const struct mcp_judged *at)
{
    const int64_t *d = at->op->dims;
    if (d[2] < 1 || d[3] > d[1] || d[1] % d[2] != 0 || d[3] % d[2] != 0)
        return mcp_extents_fail(at, "%lld columns, the first %lld by themselves, for %lld ranks",
                                (long long)d[1], (long long)d[3], (long long)d[2]);
    return check_alike(at);
}

/* Learned positions lie in the last operand. */
static enum mcp_status check_positions(const struct mcp_judged *at, struct mcp_operand last)
{
    const struct mcp_layer_facts *f = &at->type->facts;
    if (f->positions_part == 0)
        return MCP_OK;
    MCP_TRY(mcp_check_format(at, last, MCP_FORMAT_NUMBERS));
    return mcp_check_room(at, last, (double)f->sequence_length * (double)at->op->dims[1],
                          mcp_judged_elements(at, last) -
                              mcp_weight_offset(at->type, (int)f->positions_part - 1, 0));
}

/* Every element has a scale: that of the rank that averaged it. */
static enum mcp_status check_averages(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    const int64_t ranks = mcp_judged_elements(at, op->reads[1]);
    const int64_t own = mcp_judged_buffer(at, op->reads[0])->capacity_bytes * 8 / ranks;
    return mcp_check_room(at, op->reads[0], (double)op->dims[0], own * ranks);
}

enum mcp_status mcp_check_shape(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    switch (op->function) {
    case MCP_FN_NORM_FORWARD:
    case MCP_FN_NORM_BACKWARD:
        return check_norm(at);
    case MCP_FN_GELU_FORWARD:
    case MCP_FN_GELU_BACKWARD:
    case MCP_FN_SWIGLU_FORWARD:
    case MCP_FN_SWIGLU_BACKWARD:
        return check_activation(at);
    case MCP_FN_PACK_HEADS:
    case MCP_FN_UNPACK_HEADS:
        return check_exchange(at);
    case MCP_FN_PERMUTE:
        return check_alike(at);
    case MCP_FN_EMBEDDING_FORWARD:
    case MCP_FN_EMBEDDING_MIXED_FORWARD:
        return check_positions(at, op->reads[op->num_reads - 1]);
    case MCP_FN_EMBEDDING_BACKWARD:
        return check_positions(at, op->writes[op->num_writes - 1]);
    case MCP_FN_DECOMPRESS_SIGNS:
        return check_averages(at);
    default:
        return MCP_OK;
    }
}
