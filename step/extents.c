/* step/extents.c: sizes of ops beside those of what they read and write. */
#include "step/extents_parts.h"

#include "core/arena.h"
#include "core/minmax.h"
#include "step/casts.h"
#include "step/weights.h"

#include <stdarg.h>
#include <stdio.h>

#define OTHER_STACK ": plan for a stack with casts_operands, as mcpplan-cpu and mcpplan-cuda have"

enum mcp_status mcp_extents_fail(const struct mcp_judged *at, const char *format, ...)
{
    char text[384];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return mcp_fail(at->err, MCP_INVALID,
                    "layer type '%s': %s: %s: the program's sizes contradict each other",
                    at->type->name, mcp_functions[at->op->function].name, text);
}

/* The next layer's X or DX is of the layer type that the next layer has, whichever that is. */
const struct mcp_buffer *mcp_judged_buffer(const struct mcp_judged *at, struct mcp_operand operand)
{
    const struct mcp_buffer *buffer = mcp_operand_buffer(at->program, at->type, operand);
    const struct mcp_buffer *least = NULL;
    if (operand.layer_offset == 0)
        return buffer;
    for (int t = 0; t < at->program->num_types; t++) {
        const struct mcp_layer_type *type = &at->program->types[t];
        if (operand.index >= type->num_buffers[MCP_SPACE_FRAME])
            continue;
        const struct mcp_buffer *other = &type->buffers[MCP_SPACE_FRAME][operand.index];
        if (other->bytes > 0 && (least == NULL || other->bytes < least->bytes))
            least = other;
    }
    return least != NULL ? least : buffer;
}

int64_t mcp_judged_elements(const struct mcp_judged *at, struct mcp_operand operand)
{
    const struct mcp_buffer *buffer = mcp_judged_buffer(at, operand);
    return (int64_t)((double)buffer->capacity_bytes /
                     mcp_dtype_bytes((enum mcp_dtype)buffer->dtype));
}

int64_t mcp_judged_part_elements(const struct mcp_judged *at, struct mcp_operand operand, int copy)
{
    const int part = at->op->weight;
    const bool alone = part == MCP_NO_WEIGHT || operand.space == MCP_SPACE_FRAME ||
                       operand.space == MCP_SPACE_BLOCK;
    return mcp_judged_elements(at, operand) - (alone ? 0 : mcp_weight_offset(at->type, part, copy));
}

/* --- what checks share --- */

enum mcp_status mcp_check_count(const struct mcp_judged *at, int reads, int writes)
{
    const struct mcp_op *op = at->op;
    if (op->num_reads >= reads && op->num_writes >= writes)
        return MCP_OK;
    return mcp_extents_fail(at, "%d operands read and %d written, where it has %d and %d",
                            op->num_reads, op->num_writes, reads, writes);
}

enum mcp_status mcp_check_format(const struct mcp_judged *at, struct mcp_operand operand,
                                 int formats)
{
    const struct mcp_buffer *buffer = mcp_judged_buffer(at, operand);
    if ((formats >> buffer->dtype & 1) != 0)
        return MCP_OK;
    const bool is_cast = mcp_dtype_is_low((enum mcp_dtype)buffer->dtype);
    return mcp_extents_fail(at, "'%s' is in %s, which it cannot read or write%s", buffer->name,
                            mcp_dtype_names[buffer->dtype], is_cast ? OTHER_STACK : "");
}

enum mcp_status mcp_check_room(const struct mcp_judged *at, struct mcp_operand operand,
                               double wanted, int64_t there)
{
    if (wanted <= (double)there)
        return MCP_OK;
    return mcp_extents_fail(at, "%.0f numbers of '%s', where its buffer has %lld", wanted,
                            mcp_judged_buffer(at, operand)->name,
                            (long long)mcp_max_int64(there, 0));
}

/* --- products --- */

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
static enum mcp_status check_one(const struct mcp_judged *at, struct mcp_operand operand,
                                 int64_t there, const int64_t shape[2])
{
    MCP_TRY(mcp_check_format(at, operand, MCP_FORMAT_NUMBERS));
    if ((double)shape[0] * (double)shape[1] <= (double)there)
        return MCP_OK;
    return mcp_extents_fail(at, "%lld x %lld numbers of '%s', where its buffer has %lld",
                            (long long)shape[0], (long long)shape[1],
                            mcp_judged_buffer(at, operand)->name,
                            (long long)mcp_max_int64(there, 0));
}

static enum mcp_status check_is_cast(const struct mcp_judged *at, struct mcp_operand operand)
{
    const struct mcp_buffer *buffer = mcp_operand_buffer(at->program, at->type, operand);
    if (buffer->dtype == at->op->dtype)
        return MCP_OK;
    return mcp_extents_fail(at, "reads '%s' in %s, which no op has cast" OTHER_STACK, buffer->name,
                            mcp_dtype_names[buffer->dtype]);
}

/* The matrix is a cast behind `offset` bytes of its buffer. */
static enum mcp_status check_cast(const struct mcp_judged *at, struct mcp_operand operand,
                                  int64_t offset, const int64_t shape[2])
{
    const struct mcp_buffer *buffer = mcp_operand_buffer(at->program, at->type, operand);
    const long long rows = shape[0], columns = shape[1], bytes = buffer->capacity_bytes;
    if (!mcp_cast_fits(rows, columns))
        return mcp_extents_fail(
            at, "a cast of %lld x %lld numbers in '%s': both must be multiples of %d", rows,
            columns, buffer->name, MCP_CAST_MULTIPLE);
    if ((double)(offset + MCP_CAST_HEADER_BYTES) + (double)rows * (double)columns <= (double)bytes)
        return MCP_OK;
    return mcp_extents_fail(at, "a cast of %lld x %lld numbers in '%s', which has %lld bytes", rows,
                            columns, buffer->name, bytes);
}

/* Weights are cast part by part, whole. */
static enum mcp_status check_cast_weight(const struct mcp_judged *at, struct mcp_operand operand,
                                         const int64_t rows_columns[2])
{
    const struct mcp_op *op = at->op;
    const struct mcp_weight *part = &at->type->weights[op->weight];
    if (op->weight == MCP_NO_WEIGHT || !part->cast)
        return mcp_extents_fail(at, "weights that are not cast");
    const double rows = (double)op->dims[4] + (double)rows_columns[0];
    if (rows > (double)part->rows || rows_columns[1] > part->columns)
        return mcp_extents_fail(at, "%.0f x %lld numbers of '%s', which has %lld x %lld", rows,
                                (long long)rows_columns[1], part->name, (long long)part->rows,
                                (long long)part->columns);
    return check_cast(at, operand, mcp_cast_weight_offset(at->type, op->weight),
                      (const int64_t[]){part->rows, part->columns});
}

static enum mcp_status check_cast_reads(const struct mcp_judged *at, const struct extents *e)
{
    for (int i = 0; i < e->num_reads; i++)
        MCP_TRY(check_is_cast(at, at->op->reads[i]));
    for (int i = 0; i < e->num_reads; i++)
        MCP_TRY(i == e->part ? check_cast_weight(at, at->op->reads[i], e->reads[i])
                             : check_cast(at, at->op->reads[i], 0, e->reads[i]));
    return MCP_OK;
}

static enum mcp_status check_reads(const struct mcp_judged *at, const struct extents *e)
{
    for (int i = 0; i < e->num_reads; i++)
        MCP_TRY(check_one(at, at->op->reads[i],
                          i == e->part ? mcp_judged_part_elements(at, at->op->reads[i], 0)
                                       : mcp_judged_elements(at, at->op->reads[i]),
                          e->reads[i]));
    return MCP_OK;
}

static enum mcp_status check_bias(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    if (!mcp_op_has_epilogue(op) || op->dims[5] == 0)
        return MCP_OK;
    const int64_t there = mcp_judged_elements(at, op->reads[1]) -
                          mcp_weight_offset(at->type, (int)op->dims[5] - 1, 0);
    return check_one(at, op->reads[1], there, (const int64_t[]){op->dims[4] + op->dims[1], 1});
}

static enum mcp_status check_product(const struct mcp_judged *at, struct extents e)
{
    const struct mcp_op *op = at->op;
    MCP_TRY(mcp_check_count(at, e.num_reads, e.num_writes));
    if (mcp_op_reads_casts(op))
        MCP_TRY(check_cast_reads(at, &e));
    if (e.part < 0)
        e.writes[0][0] += op->dims[4];
    else
        e.reads[e.part][0] += op->dims[4];
    if (!mcp_op_reads_casts(op))
        MCP_TRY(check_reads(at, &e));
    for (int i = 0; i < e.num_writes; i++)
        MCP_TRY(check_one(at, op->writes[i],
                          e.part < 0 && i == 0 ? mcp_judged_part_elements(at, op->writes[i], 0)
                                               : mcp_judged_elements(at, op->writes[i]),
                          e.writes[i]));
    return check_bias(at);
}

/* What is cast lies as weights do, or alone. */
static enum mcp_status check_casting(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    const int part = op->weight, writes = op->function == MCP_FN_CAST_BOTH ? 2 : 1;
    const int64_t offset = part == MCP_NO_WEIGHT ? 0 : mcp_cast_weight_offset(at->type, part);
    MCP_TRY(mcp_check_count(at, 1, writes));
    MCP_TRY(check_one(at, op->reads[0], mcp_judged_part_elements(at, op->reads[0], 0), op->dims));
    for (int i = 0; i < writes; i++)
        MCP_TRY(check_cast(at, op->writes[i], offset, op->dims));
    return MCP_OK;
}

/* No kernel is there to loop over many rows of nothing. Flat buffers can be empty. */
static enum mcp_status check_least_dims(const struct mcp_judged *at)
{
    const int code = mcp_functions[at->op->function].code;
    const bool flat = (at->op->function >= MCP_FN_ZERO && at->op->function <= MCP_FN_ADAM_FROZEN) ||
                      at->op->function == MCP_FN_SUM_SQUARES;
    const int count = code == MCP_MATMUL                                    ? 3
                      : (code == MCP_MAP || code == MCP_REDUCTION) && !flat ? 2
                                                                            : 0;
    for (int i = 0; i < count; i++)
        if (at->op->dims[i] < 1)
            return mcp_extents_fail(at, "dimension %d is 0", i);
    return MCP_OK;
}

static enum mcp_status check_op(const struct mcp_judged *at)
{
    struct extents e;
    MCP_TRY(check_least_dims(at));
    MCP_TRY(mcp_check_op_facts(at));
    if (at->op->function >= MCP_FN_CAST_ROWS && at->op->function <= MCP_FN_CAST_BOTH)
        return check_casting(at);
    if (mcp_op_is_transfer(at->op))
        MCP_TRY(mcp_check_transfer(at));
    if (find_extents(at->op, &e))
        return check_product(at, e);
    MCP_TRY(mcp_check_experts(at));
    MCP_TRY(mcp_check_operands(at));
    return mcp_check_shape(at);
}

/* [types][roles]: does an entry run the block? Layers at an end have some that nobody runs, of
 * values that they lack. */
static bool *run_blocks(struct mcp_arena *scratch, const struct mcp_program *program)
{
    bool *runs = MCP_ARRAY(scratch, program->num_types * MCP_NUM_BLOCK_ROLES, bool);
    for (int l = 0; l < program->num_lists; l++)
        for (int i = 0; i < program->lists[l].num_entries; i++) {
            const struct mcp_entry *entry = &program->lists[l].entries[i];
            runs[entry->type * MCP_NUM_BLOCK_ROLES + entry->role] = true;
        }
    return runs;
}

static enum mcp_status check_block(const struct mcp_program *program,
                                   const struct mcp_layer_type *type, const struct mcp_block *block,
                                   struct mcp_error *err)
{
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_judged at = {program, type, &block->ops[i], err};
        MCP_TRY(check_op(&at));
    }
    return MCP_OK;
}

/* runs: [roles] of the type */
static enum mcp_status check_type(const struct mcp_program *program,
                                  const struct mcp_layer_type *type, const bool *runs,
                                  struct mcp_error *err)
{
    MCP_TRY(mcp_check_type_facts(program, type, err));
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
        if (runs[role])
            MCP_TRY(check_block(program, type, &type->blocks[role], err));
    return MCP_OK;
}

enum mcp_status mcp_program_check_extents(const struct mcp_program *program, struct mcp_error *err)
{
    struct mcp_arena *scratch = mcp_arena_new();
    const bool *runs = run_blocks(scratch, program);
    enum mcp_status status = mcp_check_handed_on(program, err);
    for (int t = 0; t < program->num_types && status == MCP_OK; t++, runs += MCP_NUM_BLOCK_ROLES)
        status = check_type(program, &program->types[t], runs, err);
    mcp_arena_free(scratch);
    return status;
}
