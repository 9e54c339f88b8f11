/* step/kernel_bytes.c: what one kernel an op must read and write, where prices count otherwise. */
#include "step/price.h"

static double element_bytes(const struct mcp_op *op)
{
    return mcp_dtype_bytes((enum mcp_dtype)op->dtype);
}

static double operand_bytes(const struct mcp_program *program, const struct mcp_layer_type *type,
                            struct mcp_operand operand)
{
    return mcp_dtype_bytes((enum mcp_dtype)mcp_operand_buffer(program, type, operand)->dtype);
}

/* Both moments and an fp32 weight are read and written; what is stored in 16 bits beside that
 * is written. Of a weight in fp32 there is no other. */
static double adam_bytes(const struct mcp_program *program, const struct mcp_layer_type *type,
                         const struct mcp_op *op)
{
    const double gradient = operand_bytes(program, type, op->reads[0]);
    const double weight = operand_bytes(program, type, op->writes[0]);
    return gradient + 24 + (weight < 4 ? weight : 0);
}

double mcp_op_kernel_bytes(const struct mcp_program *program, const struct mcp_layer_type *type,
                           const struct mcp_op *op)
{
    const double rows = (double)op->dims[0], elements = rows * (double)op->dims[1];
    const bool has_positions = type->facts.positions_part > 0;
    switch (op->function) {
    case MCP_FN_EMBEDDING_FORWARD:
        return elements * element_bytes(op) * (has_positions ? 3 : 2);
    case MCP_FN_EMBEDDING_BACKWARD:
        return elements * element_bytes(op) * (has_positions ? 5 : 3);
    case MCP_FN_LOSS_MAX: /* of a row of logits, which a bias changes */
        return rows * (double)op->dims[2] * element_bytes(op) *
               (op->weight == MCP_NO_WEIGHT ? 1 : 2);
    case MCP_FN_LOSS_SUMS:
        return rows * 12;
    case MCP_FN_LOSS_FORWARD:
    case MCP_FN_LOSS_BACKWARD:
        return elements * element_bytes(op) * 2;
    case MCP_FN_SUM_SQUARES:
        return elements * operand_bytes(program, type, op->reads[0]);
    case MCP_FN_ADAM:
        return elements * adam_bytes(program, type, op);
    default:
        return mcp_op_moved_bytes(op);
    }
}
