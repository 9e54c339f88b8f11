/* exec/extents.c: sizes of ops beside those of what they read and write. */
#include "exec/extents.h"

#include "core/minmax.h"

/* Operands of a product: as many as it must have, and rows and columns of each. `part`: the one
 * that lies in weights or their gradients, after the rows before its first. */
struct extents {
    int num_reads, num_writes;
    int64_t reads[2][2], writes[2][2];
    int part; /* of reads; -1: of writes */
};

/* False: no such product. */
static bool find_extents(const struct mcp_op *op, struct extents *out)
{
    const int64_t m = op->dims[0], n = op->dims[1], k = op->dims[2];
    switch (op->function) {
    case MCP_FN_MATMUL_NT:
    case MCP_FN_MATMUL_NT_BIAS:
        *out = (struct extents){2, 1, {{m, k}, {n, k}}, {{m, n}}, 1};
        return true;
    case MCP_FN_MATMUL_NT_GELU:
        *out = (struct extents){2, 2, {{m, k}, {n, k}}, {{m, n}, {m, n}}, 1};
        return true;
    case MCP_FN_MATMUL_NN:
        *out = (struct extents){2, 1, {{m, k}, {k, n}}, {{m, n}}, 1};
        return true;
    case MCP_FN_MATMUL_TN_ACCUMULATE:
        *out = (struct extents){2, 1, {{k, m}, {k, n}}, {{m, n}}, -1};
        return true;
    default:
        return false;
    }
}

/* In double, as products of dimensions may be too large for anything else. */
static enum mcp_status check_one(const struct mcp_launch *launch, struct mcp_operand operand,
                                 int64_t there, const int64_t shape[2], struct mcp_error *err)
{
    if ((double)shape[0] * (double)shape[1] <= (double)there)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "%lld x %lld numbers of '%s', where its buffer has %lld: the program's sizes "
                    "contradict each other",
                    (long long)shape[0], (long long)shape[1],
                    mcp_operand_buffer(launch->rank->program, launch->type, operand)->name,
                    (long long)mcp_max_int64(there, 0));
}

/* Elements behind the start of an operand, or of the op's part in it. */
static int64_t elements_of(const struct mcp_launch *launch, bool written, int index, bool in_part)
{
    if (written)
        return in_part ? mcp_gradient_view(launch, index, 0).elements
                       : mcp_write_view(launch, index).elements;
    return in_part ? mcp_weight_view(launch, index, 0).elements
                   : mcp_read_view(launch, index).elements;
}

static enum mcp_status check_bias(const struct mcp_launch *launch, struct mcp_error *err)
{
    const struct mcp_op *op = launch->op;
    const bool fused =
        op->function == MCP_FN_MATMUL_NT_BIAS || op->function == MCP_FN_MATMUL_NT_GELU;
    if (!fused || op->dims[5] == 0)
        return MCP_OK;
    const int64_t there = mcp_read_view(launch, 1).elements -
                          mcp_weight_offset(launch->type, (int)op->dims[5] - 1, 0);
    return check_one(launch, op->reads[1], there, (const int64_t[]){op->dims[4] + op->dims[1], 1},
                     err);
}

static enum mcp_status check_product(const struct mcp_launch *launch, struct extents e,
                                     struct mcp_error *err)
{
    const struct mcp_op *op = launch->op;
    if (op->num_reads < e.num_reads || op->num_writes < e.num_writes)
        return mcp_fail(err, MCP_INVALID, "%d operands read and %d written, where it has %d and %d",
                        op->num_reads, op->num_writes, e.num_reads, e.num_writes);
    if (e.part < 0)
        e.writes[0][0] += op->dims[4];
    else
        e.reads[e.part][0] += op->dims[4];
    for (int i = 0; i < e.num_reads; i++)
        MCP_TRY(check_one(launch, op->reads[i], elements_of(launch, false, i, i == e.part),
                          e.reads[i], err));
    for (int i = 0; i < e.num_writes; i++)
        MCP_TRY(check_one(launch, op->writes[i], elements_of(launch, true, i, e.part < 0 && i == 0),
                          e.writes[i], err));
    return check_bias(launch, err);
}

/* Rows and columns are elements of some operand. Of experts they are expected, not found. */
static bool has_rows(const struct mcp_launch *launch)
{
    switch (launch->op->function) {
    case MCP_FN_NORM_FORWARD:
    case MCP_FN_NORM_BACKWARD:
    case MCP_FN_BIAS_FORWARD:
    case MCP_FN_BIAS_BACKWARD:
    case MCP_FN_RESIDUAL_FORWARD:
    case MCP_FN_RESIDUAL_BACKWARD:
    case MCP_FN_GELU_FORWARD:
    case MCP_FN_GELU_BACKWARD:
    case MCP_FN_SWIGLU_FORWARD:
    case MCP_FN_SWIGLU_BACKWARD:
    case MCP_FN_EMBEDDING_FORWARD:
    case MCP_FN_EMBEDDING_BACKWARD:
    case MCP_FN_ZERO:
    case MCP_FN_SUM_SQUARES:
    case MCP_FN_ADAM:
        return mcp_launch_sizes(launch) == NULL;
    default:
        return false;
    }
}

static enum mcp_status check_rows(const struct mcp_launch *launch, struct mcp_error *err)
{
    const int64_t *d = launch->op->dims;
    int64_t largest = 0;
    for (int i = 0; i < launch->op->num_reads; i++)
        largest = mcp_max_int64(largest, mcp_read_view(launch, i).elements);
    for (int i = 0; i < launch->op->num_writes; i++)
        largest = mcp_max_int64(largest, mcp_write_view(launch, i).elements);
    if ((double)d[0] * (double)d[1] <= (double)largest)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "%lld rows of %lld numbers, where none of its buffers has more than %lld: the "
                    "program's sizes contradict each other",
                    (long long)d[0], (long long)d[1], (long long)largest);
}

enum mcp_status mcp_extents_check(const struct mcp_launch *launch, struct mcp_error *err)
{
    struct extents e;
    if (find_extents(launch->op, &e))
        return check_product(launch, e, err);
    return has_rows(launch) ? check_rows(launch, err) : MCP_OK;
}
