/* exec/extents.c: sizes of products beside those of what they read and write. */
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

enum mcp_status mcp_extents_check(const struct mcp_launch *launch, struct mcp_error *err)
{
    const struct mcp_op *op = launch->op;
    struct extents e;
    if (!find_extents(op, &e))
        return MCP_OK;
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
