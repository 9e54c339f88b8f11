/* step/builder.c: emitting ops, declaring values and weights, linear layers. */
#include "step/builder.h"

#include "core/stack.h"
#include "step/casts.h"
#include "step/constants.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

double mcp_bytes_of(int64_t rows, int64_t columns, enum mcp_dtype dtype)
{
    return (double)rows * (double)columns * mcp_dtype_bytes(dtype);
}

static struct mcp_ref place(enum mcp_space space, int index, int layer_offset)
{
    struct mcp_ref ref = {.set = true};
    ref.operand.space = (unsigned char)space;
    ref.operand.index = (unsigned short)index;
    ref.operand.layer_offset = (signed char)layer_offset;
    return ref;
}

struct mcp_ref mcp_x(int layer_offset)
{
    return place(MCP_SPACE_FRAME, MCP_FRAME_X, layer_offset);
}

struct mcp_ref mcp_dx(int layer_offset)
{
    return place(MCP_SPACE_FRAME, MCP_FRAME_DX, layer_offset);
}

struct mcp_ref mcp_layer_buffer(int index)
{
    return place(MCP_SPACE_LAYER, index, 0);
}

struct mcp_ref mcp_rank_buffer(int index)
{
    return place(MCP_SPACE_RANK, index, 0);
}

static int add_buffer(struct mcp_builder *b, enum mcp_space space, const char *name, double bytes,
                      enum mcp_dtype dtype)
{
    int index = b->type->num_buffers[space]++;
    assert(index < MCP_MAX_TYPE_BUFFERS);
    struct mcp_buffer *buffer = &b->buffers[space][index];
    snprintf(buffer->name, sizeof buffer->name, "%s", name);
    buffer->bytes = (int64_t)ceil(bytes);
    buffer->capacity_bytes = buffer->bytes;
    buffer->dtype = (unsigned char)dtype;
    buffer->kind = space == MCP_SPACE_BLOCK ? MCP_BUFFER_SCRATCH : MCP_BUFFER_ACTIVATION;
    return index;
}

struct mcp_value mcp_scratch(struct mcp_builder *b, const char *name, double bytes,
                             enum mcp_dtype dtype)
{
    struct mcp_value value = {0};
    value.block = place(MCP_SPACE_BLOCK, add_buffer(b, MCP_SPACE_BLOCK, name, bytes, dtype), 0);
    return value;
}

struct mcp_value mcp_saved(struct mcp_builder *b, const char *name, double bytes,
                           enum mcp_dtype dtype, unsigned module)
{
    struct mcp_value value = mcp_scratch(b, name, bytes, dtype);
    int frame = add_buffer(b, MCP_SPACE_FRAME, name, bytes, dtype);
    value.frame = place(MCP_SPACE_FRAME, frame, 0);
    value.kept = !b->drop_all && (module & b->dropped) == 0;
    b->twin[frame] = value.block.operand.index;
    b->kept[frame] = value.kept;
    return value;
}

struct mcp_value mcp_saved_ids(struct mcp_builder *b, const char *name)
{
    struct mcp_value ids = mcp_saved(b, name, mcp_bytes_of(b->tokens, 1, MCP_I32), MCP_I32, 0);
    ids.kept = b->kept[ids.frame.operand.index] = true;
    return ids;
}

void mcp_load_ids(struct mcp_builder *b, struct mcp_value ids, int ahead)
{
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_LOAD_MICROBATCH,
                                  .dtype = MCP_I32,
                                  .has_dtype = true,
                                  .writes = {mcp_at(b, ids)},
                                  .dims = {b->tokens, 1, ahead}});
}

struct mcp_ref mcp_at(const struct mcp_builder *b, struct mcp_value value)
{
    if (!value.frame.set || (b->in_forward && !value.kept))
        return value.block;
    return value.frame;
}

struct mcp_value mcp_saved_activation(struct mcp_builder *b, const char *name, int64_t rows,
                                      int64_t columns, unsigned module)
{
    double bytes = mcp_bytes_of(rows, columns, b->activation);
    struct mcp_value value = mcp_saved(b, name, bytes, b->activation, module);
    b->columns[value.frame.operand.index] = columns;
    return value;
}

struct mcp_value mcp_saved_input(struct mcp_builder *b, const char *name, int64_t rows,
                                 int64_t columns, unsigned module)
{
    if (b->matmul == b->activation || mcp_casts_operands(b->question))
        return mcp_saved_activation(b, name, rows, columns, module);
    double bytes = (double)rows * (double)columns * MCP_QUANTISED_INPUT_BYTES;
    return mcp_saved(b, name, bytes, MCP_F8, module);
}

struct mcp_ref mcp_scratch_activation(struct mcp_builder *b, const char *name, int64_t rows,
                                      int64_t columns)
{
    return mcp_scratch(b, name, mcp_bytes_of(rows, columns, b->activation), b->activation).block;
}

/* Those that are set, in order; returns their number. */
static unsigned char take_refs(const struct mcp_ref *refs, int limit, struct mcp_operand *out)
{
    int count = 0;
    for (int i = 0; i < limit; i++)
        if (refs[i].set)
            out[count++] = refs[i].operand;
    return (unsigned char)count;
}

void mcp_emit(struct mcp_builder *b, struct mcp_call call)
{
    assert(b->num_ops < b->max_ops);
    struct mcp_op *op = &b->ops[b->num_ops++];
    memset(op, 0, sizeof *op);
    op->function = (unsigned char)call.function;
    op->stream = (unsigned char)call.stream;
    op->dtype = (unsigned char)(call.has_dtype ? call.dtype : b->activation);
    op->group = (unsigned char)call.group;
    op->delta = (signed char)call.delta;
    op->weight = (unsigned char)(call.weight > 0 ? call.weight - 1 : MCP_NO_WEIGHT);
    op->hiding = (unsigned char)call.hiding;
    op->num_reads = take_refs(call.reads, MCP_MAX_READS, op->reads);
    op->num_writes = take_refs(call.writes, MCP_MAX_WRITES, op->writes);
    memcpy(op->dims, call.dims, sizeof op->dims);
}

void mcp_map(struct mcp_builder *b, enum mcp_function function, int64_t rows, int64_t columns,
             const struct mcp_ref reads[3], const struct mcp_ref writes[2])
{
    struct mcp_call call = {.function = function, .dims = {rows, columns}};
    memcpy(call.reads, reads, 3 * sizeof *reads);
    memcpy(call.writes, writes, 2 * sizeof *writes);
    mcp_emit(b, call);
}

void mcp_residual_declare(struct mcp_builder *b, struct mcp_residual *residual, const char *name,
                          int norms)
{
    memset(residual, 0, sizeof *residual);
    residual->norms = norms;
    if (norms > 0) {
        residual->norm_weight = mcp_norm_part(b, "branch_norm", norms, b->hidden);
        residual->branch =
            mcp_saved_activation(b, "branch", b->sharded_tokens, norms * b->hidden, 0);
    }
    if (b->question->job->dropout)
        residual->mask =
            mcp_saved(b, name, mcp_bytes_of(b->sharded_tokens, b->hidden, MCP_U8), MCP_U8, 0);
}

static int add_weight(struct mcp_builder *b, const char *name, const struct mcp_weight *shape)
{
    int index = b->type->num_weights++;
    assert(index < MCP_MAX_TYPE_WEIGHTS);
    b->weights[index] = *shape;
    snprintf(b->weights[index].name, sizeof b->weights[index].name, "%s", name);
    return index + 1;
}

int mcp_weight_part(struct mcp_builder *b, const char *name, int64_t rows, int64_t columns,
                    bool replicated)
{
    struct mcp_weight shape = {
        .rows = rows, .columns = columns, .copies = 1, .replicated = replicated};
    return add_weight(b, name, &shape);
}

int mcp_expert_weight_part(struct mcp_builder *b, const char *name, int64_t rows, int64_t columns,
                           int copies)
{
    struct mcp_weight shape = {.rows = rows, .columns = columns, .copies = copies, .expert = true};
    return add_weight(b, name, &shape);
}

struct mcp_weight *mcp_part(struct mcp_builder *b, int part)
{
    assert(part > 0 && part <= b->type->num_weights);
    return &b->weights[part - 1];
}

int mcp_bias_part(struct mcp_builder *b, const char *name, int64_t rows, bool replicated)
{
    int part = mcp_weight_part(b, name, rows, 1, replicated);
    mcp_part(b, part)->init = MCP_INIT_ZERO;
    return part;
}

int mcp_norm_part(struct mcp_builder *b, const char *name, int count, int64_t columns)
{
    int rows = mcp_model_norm_rows(b->model) * count;
    if (rows == 0)
        return 0;
    int part = mcp_weight_part(b, name, rows, columns, true);
    mcp_part(b, part)->init = MCP_INIT_NORM;
    return part;
}

int64_t mcp_layer_type_parameters(const struct mcp_layer_type *type, bool expert)
{
    int64_t total = 0;
    for (int i = 0; i < type->num_weights; i++) {
        const struct mcp_weight *w = &type->weights[i];
        if (w->expert == expert)
            total += w->rows * w->columns * w->copies;
    }
    return total;
}

struct mcp_ref mcp_weights_of(const struct mcp_builder *b, int part)
{
    if (part == 0)
        return (struct mcp_ref){0};
    if (b->weights[part - 1].shared)
        return mcp_rank_buffer(MCP_RANK_TIED_WEIGHTS);
    return mcp_layer_buffer(b->weights[part - 1].expert ? MCP_LAYER_EXPERT_WEIGHTS
                                                        : MCP_LAYER_WEIGHTS);
}

struct mcp_ref mcp_gradients_of(const struct mcp_builder *b, int part)
{
    if (part == 0)
        return (struct mcp_ref){0};
    if (b->weights[part - 1].shared)
        return mcp_rank_buffer(MCP_RANK_TIED_GRADIENTS);
    return mcp_layer_buffer(b->weights[part - 1].expert ? MCP_LAYER_EXPERT_GRADIENTS
                                                        : MCP_LAYER_GRADIENTS);
}

void mcp_norm_forward(struct mcp_builder *b, int part, int64_t rows, int64_t columns,
                      struct mcp_ref x, struct mcp_ref y)
{
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_NORM_FORWARD,
                                  .weight = part,
                                  .reads = {x, mcp_weights_of(b, part)},
                                  .writes = {y},
                                  .dims = {rows, columns}});
}

void mcp_norm_backward(struct mcp_builder *b, const struct mcp_norm_gradient *norm)
{
    struct mcp_call call = {.function = MCP_FN_NORM_BACKWARD,
                            .weight = norm->part,
                            .reads = {norm->dy, norm->x, norm->residual},
                            .writes = {norm->dx},
                            .dims = {norm->rows, norm->columns}};
    if (norm->part > 0) {
        call.reads[2] = mcp_weights_of(b, norm->part);
        call.reads[3] = norm->residual;
        call.writes[1] = mcp_gradients_of(b, norm->part);
    }
    mcp_emit(b, call);
}

void mcp_half_norm_backward(struct mcp_builder *b, const struct mcp_half *half, int part,
                            struct mcp_ref d_norm)
{
    mcp_norm_backward(b, &(struct mcp_norm_gradient){.part = part,
                                                     .rows = b->sharded_tokens,
                                                     .columns = b->hidden,
                                                     .dy = d_norm,
                                                     .x = half->input,
                                                     .residual = half->d_output,
                                                     .dx = half->d_input});
}

/* The norms of a branch run after each other over values of one size. */
void mcp_residual_forward(struct mcp_builder *b, const struct mcp_residual *residual,
                          struct mcp_ref branch, struct mcp_ref input, struct mcp_ref output)
{
    bool dropout = b->question->job->dropout;
    struct mcp_ref mask = dropout ? mcp_at(b, residual->mask) : (struct mcp_ref){0};
    if (residual->norms > 0) {
        int64_t columns = residual->norms * b->hidden;
        struct mcp_ref raw = mcp_at(b, residual->branch);
        mcp_map(b, MCP_FN_COPY, b->sharded_tokens, columns, (struct mcp_ref[3]){branch},
                (struct mcp_ref[2]){raw});
        branch = mcp_scratch_activation(b, "branch_normed", b->sharded_tokens, columns);
        mcp_norm_forward(b, residual->norm_weight, b->sharded_tokens, columns, raw, branch);
    }
    mcp_emit(b, (struct mcp_call){.function = dropout ? MCP_FN_RESIDUAL_DROPOUT_FORWARD
                                                      : MCP_FN_RESIDUAL_FORWARD,
                                  .weight = residual->bias,
                                  .reads = {branch, input, mcp_weights_of(b, residual->bias)},
                                  .writes = {output, mask},
                                  .dims = {b->sharded_tokens, b->hidden}});
}

struct mcp_ref mcp_residual_backward(struct mcp_builder *b, const struct mcp_residual *residual,
                                     struct mcp_ref d_output)
{
    bool dropout = b->question->job->dropout;
    struct mcp_ref mask = dropout ? mcp_at(b, residual->mask) : (struct mcp_ref){0};
    struct mcp_ref branch = mcp_scratch_activation(b, "d_branch", b->sharded_tokens, b->hidden);
    mcp_emit(b, (struct mcp_call){.function = dropout ? MCP_FN_RESIDUAL_DROPOUT_BACKWARD
                                                      : MCP_FN_RESIDUAL_BACKWARD,
                                  .weight = residual->bias,
                                  .reads = {d_output, mask},
                                  .writes = {branch, mcp_gradients_of(b, residual->bias)},
                                  .dims = {b->sharded_tokens, b->hidden}});
    if (residual->norms > 0)
        mcp_norm_backward(b, &(struct mcp_norm_gradient){.part = residual->norm_weight,
                                                         .rows = b->sharded_tokens,
                                                         .columns = residual->norms * b->hidden,
                                                         .dy = branch,
                                                         .x = mcp_at(b, residual->branch),
                                                         .dx = branch});
    return branch;
}

struct mcp_linear mcp_linear_of(int weight, int64_t m, int64_t n, int64_t k)
{
    return (struct mcp_linear){.weight = weight, .m = m, .n = n, .k = k, .groups = 1};
}

/* Rows of experts come in any number. */
static bool can_be_cast(const struct mcp_builder *b, const struct mcp_linear *linear)
{
    const struct mcp_weight *part = &b->weights[linear->weight - 1];
    return !part->expert && mcp_cast_fits(part->rows, part->columns) &&
           mcp_cast_fits(linear->m, linear->n) && mcp_cast_fits(linear->k, linear->first_row);
}

static enum mcp_dtype linear_dtype(const struct mcp_builder *b, const struct mcp_linear *linear)
{
    bool stays = mcp_casts_operands(b->question) && !can_be_cast(b, linear);
    return linear->full_precision || stays ? b->activation : b->matmul;
}

/* 8 and 4 bit products read a quantised copy of their input. */
static struct mcp_ref quantised(struct mcp_builder *b, const struct mcp_linear *linear,
                                struct mcp_ref x, int64_t columns)
{
    enum mcp_dtype dtype = linear_dtype(b, linear);
    if (dtype == b->activation || b->question->stack->fused_casts ||
        mcp_casts_operands(b->question))
        return x;
    int64_t rows = linear->m * linear->groups;
    struct mcp_value copy = mcp_scratch(b, "quantised", mcp_bytes_of(rows, columns, dtype), dtype);
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_CAST,
                                  .reads = {x},
                                  .writes = {copy.block},
                                  .dims = {rows, columns}});
    return copy.block;
}

void mcp_linear_forward(struct mcp_builder *b, const struct mcp_linear *linear, struct mcp_ref x,
                        struct mcp_ref y)
{
    struct mcp_ref input = quantised(b, linear, x, linear->k);
    struct mcp_weight *part = mcp_part(b, linear->weight);
    bool grouped = part->expert;
    part->cast =
        part->cast || (mcp_casts_operands(b->question) && linear_dtype(b, linear) == b->matmul);
    mcp_emit(b, (struct mcp_call){
                    .function = grouped ? MCP_FN_GROUPED_NT : MCP_FN_MATMUL_NT,
                    .dtype = linear_dtype(b, linear),
                    .has_dtype = true,
                    .weight = linear->weight,
                    .reads = {input, mcp_weights_of(b, linear->weight), linear->sizes},
                    .writes = {y},
                    .dims = {linear->m, linear->n, linear->k, linear->groups, linear->first_row}});
}

/* Of operands that no cast comes between. */
bool mcp_fuses_epilogues(const struct mcp_builder *b)
{
    return b->question->stack->fused_epilogues && b->matmul == b->activation;
}

void mcp_linear_epilogue(struct mcp_builder *b, const struct mcp_linear *linear, int bias,
                         struct mcp_ref x, const struct mcp_ref out[2])
{
    mcp_emit(b, (struct mcp_call){
                    .function = out[1].set ? MCP_FN_MATMUL_NT_GELU : MCP_FN_MATMUL_NT_BIAS,
                    .dtype = b->matmul,
                    .has_dtype = true,
                    .weight = linear->weight,
                    .reads = {x, mcp_weights_of(b, linear->weight)},
                    .writes = {out[0], out[1]},
                    .dims = {linear->m, linear->n, linear->k, 1, linear->first_row, bias}});
}

void mcp_linear_input_gradient(struct mcp_builder *b, const struct mcp_linear *linear,
                               struct mcp_ref dy, struct mcp_ref dx)
{
    struct mcp_ref input = quantised(b, linear, dy, linear->n);
    bool grouped = b->weights[linear->weight - 1].expert;
    mcp_emit(b, (struct mcp_call){
                    .function = grouped ? MCP_FN_GROUPED_NN : MCP_FN_MATMUL_NN,
                    .dtype = linear_dtype(b, linear),
                    .has_dtype = true,
                    .weight = linear->weight,
                    .reads = {input, mcp_weights_of(b, linear->weight), linear->sizes},
                    .writes = {dx},
                    .dims = {linear->m, linear->k, linear->n, linear->groups, linear->first_row}});
}

void mcp_linear_weight_gradient(struct mcp_builder *b, const struct mcp_linear *linear,
                                struct mcp_ref x, struct mcp_ref dy)
{
    bool grouped = b->weights[linear->weight - 1].expert;
    mcp_emit(b,
             (struct mcp_call){
                 .function = grouped ? MCP_FN_GROUPED_TN_ACCUMULATE : MCP_FN_MATMUL_TN_ACCUMULATE,
                 .dtype = linear_dtype(b, linear),
                 .has_dtype = true,
                 .weight = linear->weight,
                 .reads = {dy, x, linear->sizes},
                 .writes = {mcp_gradients_of(b, linear->weight)},
                 .dims = {linear->n, linear->k, linear->m, linear->groups, linear->first_row}});
}

struct mcp_ref mcp_tensor_gather(struct mcp_builder *b, const char *name, struct mcp_ref shard,
                                 enum mcp_hiding hiding)
{
    if (!b->plan->sequence_parallel)
        return shard;
    struct mcp_value whole =
        mcp_scratch(b, name, mcp_bytes_of(b->tokens, b->hidden, b->activation), b->activation);
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_ALL_GATHER,
                                  .stream = MCP_STREAM_TENSOR,
                                  .group = MCP_TENSOR,
                                  .hiding = hiding,
                                  .reads = {shard},
                                  .writes = {whole.block},
                                  .dims = {b->tokens * b->hidden}});
    return whole.block;
}

struct mcp_ref mcp_tensor_reduce(struct mcp_builder *b, const char *name, struct mcp_ref partial,
                                 enum mcp_hiding hiding)
{
    if (b->plan->tensor_parallel == 1)
        return partial;
    struct mcp_call call = {.function = MCP_FN_ALL_REDUCE,
                            .stream = MCP_STREAM_TENSOR,
                            .group = MCP_TENSOR,
                            .hiding = hiding,
                            .reads = {partial},
                            .writes = {partial},
                            .dims = {b->tokens * b->hidden}};
    if (b->plan->sequence_parallel) {
        double bytes = mcp_bytes_of(b->sharded_tokens, b->hidden, b->activation);
        call.function = MCP_FN_REDUCE_SCATTER;
        call.writes[0] = mcp_scratch(b, name, bytes, b->activation).block;
    }
    mcp_emit(b, call);
    return call.writes[0];
}

void mcp_begin_block(struct mcp_builder *b, bool forward)
{
    b->num_ops = 0;
    b->in_forward = forward;
}

void mcp_end_block(struct mcp_builder *b, enum mcp_block_role role)
{
    struct mcp_block *block = &b->type->blocks[role];
    block->num_ops = b->num_ops;
    block->ops = MCP_ARRAY(b->arena, b->num_ops, struct mcp_op);
    if (b->num_ops > 0)
        memcpy(block->ops, b->ops, (size_t)b->num_ops * sizeof *b->ops);
    mcp_derive_waits(block->ops, block->num_ops);
}
