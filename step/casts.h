/* step/casts.h: operands of 8 bit products, as casts leave them and products read them.
 *
 * A cast of a matrix [rows][columns], both multiples of MCP_CAST_MULTIPLE: an fp32 scale at the
 * start, from MCP_CAST_HEADER_BYTES on a byte a number, as the matrix lies or transposed. A number
 * is its byte's times the scale. Tensor cores take operands of 8 bits only where what they sum over
 * is contiguous: y = x w^T reads rows of both, dx = dy w columns of w, dw = dy^T x columns of both.
 *
 * Bytes are E4M3, or of gradients E5M2 (Micikevicius et al. 2022, arXiv 2209.05433; OCP OFP8), to
 * nearest, ties to even. The scale is of the tensor as a rank holds it: the least power of two under
 * which its largest magnitude fits. A number's bits do not depend on it then, unless the number is
 * small beside that: ranks that hold shards agree with one that holds all. A tensor with a number
 * that is none has no number at all: its scale is NaN. */
#ifndef MCP_STEP_CASTS_H
#define MCP_STEP_CASTS_H

#include "step/program.h"

#define MCP_CAST_MULTIPLE 16 /* cuBLASLt: 16-byte aligned rows */
#define MCP_CAST_HEADER_BYTES 256

/* Can a matrix of these sizes be cast? */
static inline bool mcp_cast_fits(int64_t rows, int64_t columns)
{
    return rows % MCP_CAST_MULTIPLE == 0 && columns % MCP_CAST_MULTIPLE == 0;
}

static inline int64_t mcp_cast_bytes(int64_t rows, int64_t columns)
{
    return MCP_CAST_HEADER_BYTES + rows * columns;
}

/* Does the product read casts? And is its operand `read` one of gradients? */
bool mcp_op_reads_casts(const struct mcp_op *op);
bool mcp_op_reads_gradients(const struct mcp_op *op, int read);

struct mcp_question;
/* Does the program itself cast what 8 bit products read? */
bool mcp_casts_operands(const struct mcp_question *question);
/* Of the FLOPs of one forward's products the share that is multiplied in 8 bits; 0 where a layer
 * has none. The plan must be legal. */
double mcp_cast_flops_frac(const struct mcp_question *question, const struct mcp_plan *plan);

/* Where a part's cast begins in MCP_LAYER_CAST_WEIGHTS, and in MCP_LAYER_CAST_COLUMNS; of part
 * num_weights: the bytes of either. */
int64_t mcp_cast_weight_offset(const struct mcp_layer_type *type, int part);

#endif
