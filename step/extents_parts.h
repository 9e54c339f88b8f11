/* step/extents_parts.h: what checks of extents share. Private to step/. */
#ifndef MCP_STEP_EXTENTS_PARTS_H
#define MCP_STEP_EXTENTS_PARTS_H

#include "step/extents.h"

struct mcp_judged {
    const struct mcp_program *program;
    const struct mcp_layer_type *type;
    const struct mcp_op *op;
    struct mcp_error *err;
};

/* MCP_INVALID: "layer type 'T': FUNCTION: what `format` says: ..." */
enum mcp_status mcp_extents_fail(const struct mcp_judged *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The buffer of an operand; of the next layer's X or DX the least that any type has. */
const struct mcp_buffer *mcp_judged_buffer(const struct mcp_judged *at, struct mcp_operand operand);
/* Numbers in it; behind the start of the op's part, of local expert `copy`: one in a frame or in
 * scratch lies alone. */
int64_t mcp_judged_elements(const struct mcp_judged *at, struct mcp_operand operand);
int64_t mcp_judged_part_elements(const struct mcp_judged *at, struct mcp_operand operand, int copy);

/* Sets of formats that a kernel reads or writes: bit 1 << enum mcp_dtype. */
enum {
    MCP_FORMAT_NUMBERS = 1 << MCP_F32 | 1 << MCP_BF16 | 1 << MCP_F16,
    MCP_FORMAT_FLOATS = 1 << MCP_F32,
    MCP_FORMAT_INTS = 1 << MCP_I32
};
enum mcp_status mcp_check_format(const struct mcp_judged *at, struct mcp_operand operand,
                                 int formats);
/* `wanted` numbers of an operand that has `there`; and as many operands. */
enum mcp_status mcp_check_room(const struct mcp_judged *at, struct mcp_operand operand,
                               double wanted, int64_t there);
enum mcp_status mcp_check_count(const struct mcp_judged *at, int reads, int writes);

/* A transfer's elements, of the op's dtype, beside its buffers: exec/backend.h. */
enum mcp_status mcp_check_transfer(const struct mcp_judged *at);
/* Of a map, reduction, attention or host function each operand: exec/shapes.h, exec/flats.h. */
enum mcp_status mcp_check_operands(const struct mcp_judged *at);
/* The same where it depends on which operands there are, or on how large they are. */
enum mcp_status mcp_check_shape(const struct mcp_judged *at);
/* Products of experts, and tokens on their way to them and back. */
enum mcp_status mcp_check_experts(const struct mcp_judged *at);

/* Rows that a rank's experts can have; that its tokens choose; its tokens. 0: nobody routes. */
double mcp_rows_held(const struct mcp_judged *at);
double mcp_rows_chosen(const struct mcp_judged *at);
int64_t mcp_tokens_routed(const struct mcp_judged *at);
/* Are they what the layer's expert_counts wrote? */
enum mcp_status mcp_check_are_sizes(const struct mcp_judged *at, int read);

/* Are the facts possible that the op's kernels divide by, or size their own arrays by? */
enum mcp_status mcp_check_op_facts(const struct mcp_judged *at);
/* Are those of the type, whatever its ops, and do its weights lie within their buffers? */
enum mcp_status mcp_check_type_facts(const struct mcp_program *program,
                                     const struct mcp_layer_type *type, struct mcp_error *err);
/* Have the frames that layers hand on one size? */
enum mcp_status mcp_check_handed_on(const struct mcp_program *program, struct mcp_error *err);

#endif
