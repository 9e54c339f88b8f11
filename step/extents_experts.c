/* step/extents_experts.c: rows of experts: how many there can be, beside where they lie.
 *
 * A rank's tokens are those whose chances its router writes; each chooses experts_per_token. Where
 * a rank holds all experts it has as many rows; else all_to_all_v fails where more come than the
 * buffer that it writes has room for: others hold as many. */
#include "step/extents_parts.h"

/* The type's first op of a function that writes, to `to` unless that is NULL; NULL: none. */
static const struct mcp_op *writer_of(const struct mcp_layer_type *type, enum mcp_function function,
                                      const struct mcp_operand *to)
{
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
        for (int i = 0; i < type->blocks[role].num_ops; i++) {
            const struct mcp_op *op = &type->blocks[role].ops[i];
            if (op->function == function && op->num_writes > 0 &&
                (to == NULL || mcp_same_operand(op->writes[0], *to)))
                return op;
        }
    return NULL;
}

int64_t mcp_tokens_routed(const struct mcp_judged *at)
{
    const struct mcp_op *router = writer_of(at->type, MCP_FN_ROUTER_TOP_K, NULL);
    const int64_t experts = at->type->facts.num_experts;
    return router == NULL || experts < 1
               ? 0
               : mcp_judged_buffer(at, router->writes[0])->capacity_bytes / 8 / experts;
}

double mcp_rows_chosen(const struct mcp_judged *at)
{
    return (double)mcp_tokens_routed(at) * (double)at->type->facts.experts_per_token;
}

/* Where rows arrive; 0: this is no such op. */
static int64_t rows_arriving(const struct mcp_judged *at, const struct mcp_op *op)
{
    if (op->function != MCP_FN_ALL_TO_ALL_V || op->delta <= 0 || op->num_writes < 1 ||
        op->dims[2] < 1)
        return 0;
    return (int64_t)((double)mcp_judged_buffer(at, op->writes[0])->capacity_bytes /
                     ((double)op->dims[2] * mcp_dtype_bytes((enum mcp_dtype)op->dtype)));
}

double mcp_rows_held(const struct mcp_judged *at)
{
    int64_t held = 0;
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
        for (int i = 0; i < at->type->blocks[role].num_ops; i++) {
            const int64_t rows = rows_arriving(at, &at->type->blocks[role].ops[i]);
            held = rows > held ? rows : held;
        }
    return held > 0 ? (double)held : mcp_rows_chosen(at);
}

static enum mcp_status check_written_by(const struct mcp_judged *at, int read,
                                        enum mcp_function function)
{
    MCP_TRY(mcp_check_count(at, read + 1, 0));
    const struct mcp_operand *operand = &at->op->reads[read];
    if (writer_of(at->type, function, operand) != NULL)
        return MCP_OK;
    return mcp_extents_fail(at, "reads '%s', which no %s of the layer writes",
                            mcp_judged_buffer(at, *operand)->name, mcp_functions[function].name);
}

enum mcp_status mcp_check_are_sizes(const struct mcp_judged *at, int read)
{
    return check_written_by(at, read, MCP_FN_EXPERT_COUNTS);
}

/* Chances of all tokens, and no more: who reads them counts tokens by their bytes. */
static enum mcp_status check_router(const struct mcp_judged *at)
{
    const int64_t *d = at->op->dims;
    MCP_TRY(mcp_check_count(at, 1, 1));
    const struct mcp_buffer *routing = mcp_judged_buffer(at, at->op->writes[0]);
    if (d[0] == mcp_tokens_routed(at) &&
        (double)routing->capacity_bytes == 8.0 * (double)d[0] * (double)d[1])
        return MCP_OK;
    return mcp_extents_fail(at,
                            "chances of %lld tokens for %lld experts in '%s', which has %lld "
                            "bytes",
                            (long long)d[0], (long long)d[1], routing->name,
                            (long long)routing->capacity_bytes);
}

static enum mcp_status check_rows(const struct mcp_judged *at, struct mcp_operand operand,
                                  int64_t columns)
{
    MCP_TRY(mcp_check_format(at, operand, MCP_FORMAT_NUMBERS));
    return mcp_check_room(at, operand, mcp_rows_held(at) * (double)columns,
                          mcp_judged_elements(at, operand));
}

/* The last expert's [rows][columns], behind the rows before the first one that the op uses. */
static enum mcp_status check_weights(const struct mcp_judged *at, struct mcp_operand operand,
                                     int64_t rows, int64_t columns)
{
    const double wanted = ((double)at->op->dims[4] + (double)rows) * (double)columns;
    MCP_TRY(mcp_check_format(at, operand, MCP_FORMAT_NUMBERS));
    return mcp_check_room(at, operand, wanted,
                          mcp_judged_part_elements(at, operand, (int)at->op->dims[3] - 1));
}

static enum mcp_status check_grouped(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    const int64_t *d = op->dims;
    const int sizes = mcp_op_expert_sizes(at->program, at->type, op);
    MCP_TRY(mcp_check_count(at, 3, 1));
    if (sizes < 0 || d[3] != at->type->facts.local_experts)
        return mcp_extents_fail(at, "rows of %lld experts%s, where the layer has %lld",
                                (long long)d[3], sizes < 0 ? " without their sizes" : "",
                                (long long)at->type->facts.local_experts);
    MCP_TRY(mcp_check_are_sizes(at, sizes));
    if (op->function == MCP_FN_GROUPED_TN_ACCUMULATE) {
        MCP_TRY(check_rows(at, op->reads[0], d[0]));
        MCP_TRY(check_rows(at, op->reads[1], d[1]));
        return check_weights(at, op->writes[0], d[0], d[1]);
    }
    const bool by_rows = op->function == MCP_FN_GROUPED_NT;
    MCP_TRY(check_rows(at, op->reads[0], d[2]));
    MCP_TRY(check_weights(at, op->reads[1], d[by_rows ? 1 : 2], d[by_rows ? 2 : 1]));
    return check_rows(at, op->writes[0], d[1]);
}

/* What is sent; for what comes there is room, or the run ends with a sentence. */
static enum mcp_status check_sent(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    const double rows = op->delta > 0 ? mcp_rows_chosen(at) : mcp_rows_held(at);
    const double each = mcp_dtype_bytes((enum mcp_dtype)op->dtype);
    MCP_TRY(mcp_check_are_sizes(at, 1));
    if (op->dims[2] < 1)
        return mcp_extents_fail(at, "rows of no columns");
    return mcp_check_room(
        at, op->reads[0], rows * (double)op->dims[2],
        (int64_t)((double)mcp_judged_buffer(at, op->reads[0])->capacity_bytes / each));
}

enum mcp_status mcp_check_experts(const struct mcp_judged *at)
{
    switch (at->op->function) {
    case MCP_FN_ROUTER_TOP_K:
        return check_router(at);
    case MCP_FN_EXPERT_COUNTS:
        return check_written_by(at, 0, MCP_FN_ROUTER_TOP_K);
    case MCP_FN_ROUTER_TOP_K_BACKWARD:
    case MCP_FN_PERMUTE:
    case MCP_FN_PERMUTE_BACKWARD:
    case MCP_FN_UNPERMUTE:
    case MCP_FN_UNPERMUTE_BACKWARD:
        return check_written_by(at, 1, MCP_FN_ROUTER_TOP_K);
    case MCP_FN_GROUPED_NT:
    case MCP_FN_GROUPED_NN:
    case MCP_FN_GROUPED_TN_ACCUMULATE:
        return check_grouped(at);
    case MCP_FN_ALL_TO_ALL_V:
        return check_sent(at);
    default:
        return MCP_OK;
    }
}
