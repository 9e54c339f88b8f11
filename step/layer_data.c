/* step/layer_data.c: what a layer does once per step or around the pipeline: clear,
 * gather, reduce, update (ZeRO), and its messages. */
#include "step/layer_data.h"
#include "core/mesh.h"
#include "step/casts.h"
#include "step/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

unsigned mcp_reduce_axes(bool expert)
{
    return expert ? MCP_EXPERT_DATA : (unsigned)MCP_DATA | MCP_CONTEXT;
}

int mcp_part_index(const struct part *part, int dense_index)
{
    return dense_index + (part->expert ? 1 : 0);
}

struct mcp_ref mcp_part_buffer(const struct part *part, int dense_index)
{
    if (part->in_rank && dense_index == MCP_LAYER_WEIGHTS)
        return mcp_rank_buffer(MCP_RANK_TIED_WEIGHTS);
    if (part->in_rank && dense_index == MCP_LAYER_GRADIENTS)
        return mcp_rank_buffer(MCP_RANK_TIED_GRADIENTS);
    return mcp_layer_buffer(mcp_part_index(part, dense_index));
}

static bool is_one_bit(const struct mcp_builder *b)
{
    return b->question->job->optimizer == MCP_OPTIMIZER_ONE_BIT_ADAM;
}

static bool is_frozen(const struct mcp_builder *b)
{
    return mcp_job_is_frozen(b->question->job);
}

static int64_t shard_of(const struct mcp_builder *b, const struct part *part)
{
    int k = b->plan->zero_stage >= 1 ? mcp_group_size(b->plan, mcp_reduce_axes(part->expert)) : 1;
    return (part->parameters + k - 1) / k;
}

/* Weights that live in rank space are updated by the layer that declares them. A table
 * with a twin is sharded by itself, as its twin is: their gradients meet shard by shard. */
static int list_parts(struct mcp_builder *b, struct part parts[MCP_MAX_PARTS])
{
    b->type->weights = b->weights;
    int64_t dense = mcp_flat_elements(b->type, MCP_FLAT_DENSE);
    int64_t expert = mcp_flat_elements(b->type, MCP_FLAT_EXPERT);
    int64_t table = mcp_flat_elements(b->type, MCP_FLAT_TABLE);
    int count = 0;
    if (dense > 0)
        parts[count++] = (struct part){.parameters = dense};
    if (expert > 0)
        parts[count++] = (struct part){.parameters = expert, .expert = true};
    if (table > 0) {
        struct part *part = &parts[count++];
        *part = (struct part){.parameters = table, .in_rank = mcp_has_shared_table(b->type)};
        part->first = mcp_flat_first(b->type, MCP_FLAT_TABLE);
        part->shard_first = count > 1 ? shard_of(b, &parts[0]) : 0;
    }
    return count; /* 0: a head whose matrix is the embedding's, under norms without weights */
}

double mcp_gradient_bytes(const struct mcp_question *question)
{
    return fmax(question->stack->gradient_bytes,
                mcp_dtype_bytes(mcp_activation_dtype(question->job->precision)));
}

enum mcp_dtype mcp_gradient_dtype(const struct mcp_question *question)
{
    return mcp_gradient_bytes(question) > 2 ? MCP_F32
                                            : mcp_activation_dtype(question->job->precision);
}

enum mcp_dtype mcp_weight_dtype(const struct mcp_question *question, int kind)
{
    bool embeds =
        kind == MCP_KIND_EMBEDDING || (kind == MCP_KIND_HEAD && question->model->tied_embeddings);
    return embeds && mcp_job_embeds_in_fp32(question->job)
               ? MCP_F32
               : mcp_activation_dtype(question->job->precision);
}

double mcp_optimizer_bytes(const struct mcp_question *question, enum mcp_dtype weight)
{
    double bytes = question->stack->optimizer_bytes;
    return weight == MCP_F32 ? fmax(0, bytes - mcp_dtype_bytes(MCP_F32)) : bytes;
}

static void grow_buffer(struct mcp_builder *b, int index, double bytes)
{
    struct mcp_buffer *buffer = &b->buffers[MCP_SPACE_LAYER][index];
    buffer->bytes += (int64_t)ceil(bytes);
    buffer->capacity_bytes = buffer->bytes;
}

/* Bytes by ZeRO stage (Rajbhandari et al. 2020): 1 shards the optimizer, 2 the
 * gradients, 3 the weights. A shared part's optimizer stays with its layer; its
 * weights and gradients are the program's rank buffers. */
static void size_part(struct mcp_builder *b, const struct part *part)
{
    int zero = b->plan->zero_stage, optimizer = mcp_part_index(part, MCP_LAYER_OPTIMIZER);
    double n = (double)part->parameters, shard = (double)shard_of(b, part);
    double weight = mcp_dtype_bytes(b->weight), gradient = mcp_gradient_bytes(b->question);
    grow_buffer(b, optimizer, shard * mcp_optimizer_bytes(b->question, b->weight));
    if (is_one_bit(b))
        mcp_one_bit_size(b, part);
    if (part->in_rank)
        return;
    grow_buffer(b, mcp_part_index(part, MCP_LAYER_WEIGHTS), n * weight);
    grow_buffer(b, mcp_part_index(part, MCP_LAYER_GRADIENTS), n * gradient);
    if (zero >= 3)
        grow_buffer(b, mcp_part_index(part, MCP_LAYER_WEIGHT_SHARD), shard * weight);
    if (zero >= 2)
        grow_buffer(b, mcp_part_index(part, MCP_LAYER_GRADIENT_SHARD), shard * gradient);
}

/* FSDP keeps whole what several layers read: shared weights are not sharded. */
static bool is_sharded(const struct mcp_builder *b, const struct part *part, int stage)
{
    return b->plan->zero_stage >= stage && !part->in_rank;
}

static void emit_data(struct mcp_builder *b, enum mcp_function function, const struct part *part,
                      struct mcp_ref from, struct mcp_ref to)
{
    mcp_emit(b, (struct mcp_call){.function = function,
                                  .stream = MCP_STREAM_DATA,
                                  .group = mcp_reduce_axes(part->expert),
                                  .dtype = b->weight,
                                  .has_dtype = true,
                                  .reads = {from},
                                  .writes = {to},
                                  .dims = {part->parameters, 0, part->first, part->shard_first}});
}

static bool has_peers(const struct mcp_builder *b, const struct part *part)
{
    return mcp_group_size(b->plan, mcp_reduce_axes(part->expert)) > 1;
}

static bool is_gathered(const struct mcp_builder *b, const struct part *part)
{
    return b->plan->zero_stage > 0 && !part->in_rank &&
           (has_peers(b, part) || is_sharded(b, part, 3));
}

static const struct part dense = {.expert = false}; /* what is cast is in it */

/* Once a step, or as often as weights are gathered: there behind the gather on its stream, so
 * that no layer waits for another's. */
static void cast_weights(struct mcp_builder *b, enum mcp_stream stream)
{
    for (int i = 0; i < b->type->num_weights; i++) {
        const struct mcp_weight *weight = &b->weights[i];
        if (weight->cast)
            mcp_emit(b, (struct mcp_call){.function = MCP_FN_CAST_BOTH,
                                          .stream = stream,
                                          .weight = i + 1,
                                          .reads = {mcp_weights_of(b, i + 1)},
                                          .writes = {mcp_layer_buffer(MCP_LAYER_CAST_WEIGHTS),
                                                     mcp_layer_buffer(MCP_LAYER_CAST_COLUMNS)},
                                          .dims = {weight->rows, weight->columns}});
    }
}

static void gather_block(struct mcp_builder *b, const struct part *parts, int count)
{
    mcp_begin_block(b, false);
    for (int i = 0; i < count; i++) {
        const struct part *part = &parts[i];
        struct mcp_ref weights = mcp_part_buffer(part, MCP_LAYER_WEIGHTS);
        bool sharded = is_sharded(b, part, 3);
        if (is_gathered(b, part))
            emit_data(b, MCP_FN_ALL_GATHER, part,
                      sharded ? mcp_part_buffer(part, MCP_LAYER_WEIGHT_SHARD) : weights, weights);
    }
    if (is_gathered(b, &dense))
        cast_weights(b, MCP_STREAM_DATA);
    mcp_end_block(b, MCP_GATHER);
}

static void reduce_part(struct mcp_builder *b, const struct part *part)
{
    const struct mcp_stack *stack = b->question->stack;
    struct mcp_ref gradients = mcp_part_buffer(part, MCP_LAYER_GRADIENTS);
    bool all = !is_sharded(b, part, 2) && (b->plan->zero_stage == 0 || stack->all_reduce_gradients);
    if (is_frozen(b) || (!has_peers(b, part) && !is_sharded(b, part, 2)))
        return;
    struct mcp_call call = {.function = all ? MCP_FN_ALL_REDUCE : MCP_FN_REDUCE_SCATTER,
                            .stream = MCP_STREAM_DATA,
                            .group = mcp_reduce_axes(part->expert),
                            .dtype = stack->gradient_reduce_bytes > 2 ? MCP_F32 : b->activation,
                            .has_dtype = true,
                            .reads = {gradients},
                            .writes = {gradients},
                            .dims = {part->parameters, 0, part->first, part->shard_first}};
    if (is_sharded(b, part, 2))
        call.writes[0] = mcp_part_buffer(part, MCP_LAYER_GRADIENT_SHARD);
    mcp_emit(b, call);
}

static bool is_end(const struct mcp_builder *b)
{
    return b->kind == NULL;
}

/* Gradients of what is replicated over the tensor group while its inputs were
 * shards of the sequence. The embedding's were gathered: they are whole already. */
static void reduce_replicas(struct mcp_builder *b)
{
    struct mcp_ref gradients = mcp_layer_buffer(MCP_LAYER_GRADIENTS);
    bool whole = b->spec->kind == MCP_KIND_EMBEDDING;
    int64_t replicated = mcp_flat_replicated(b->type, MCP_FLAT_DENSE);
    if (b->plan->sequence_parallel && replicated > 0 && !whole)
        mcp_emit(b, (struct mcp_call){.function = MCP_FN_ALL_REDUCE,
                                      .stream = MCP_STREAM_DATA,
                                      .group = MCP_TENSOR,
                                      .dtype = mcp_gradient_dtype(b->question),
                                      .has_dtype = true,
                                      .reads = {gradients},
                                      .writes = {gradients},
                                      .dims = {replicated}});
}

static void reduce_block(struct mcp_builder *b, const struct part *parts, int count)
{
    mcp_begin_block(b, false);
    reduce_replicas(b);
    for (int i = 0; i < count; i++)
        if (!parts[i].in_rank)
            reduce_part(b, &parts[i]);
    mcp_end_block(b, MCP_REDUCE);
}

static struct mcp_ref reduced_gradients(const struct mcp_builder *b, const struct part *part)
{
    return mcp_part_buffer(part,
                           is_sharded(b, part, 2) ? MCP_LAYER_GRADIENT_SHARD : MCP_LAYER_GRADIENTS);
}

/* One op over what of a part this rank owns. */
static void flat_op(struct mcp_builder *b, enum mcp_function function, const struct part *part,
                    const struct mcp_ref reads[3], const struct mcp_ref writes[2])
{
    struct mcp_call call = {
        .function = function,
        .dtype = b->weight,
        .has_dtype = true,
        .dims = {shard_of(b, part), 1, part->parameters, part->first, part->shard_first}};
    memcpy(call.reads, reads, 3 * sizeof *reads);
    memcpy(call.writes, writes, 2 * sizeof *writes);
    mcp_emit(b, call);
}

/* Adam (Kingma & Ba 2015) on fp32 master and moments: 36 bytes a parameter. Shared
 * weights are gathered at once, others before their next use. */
static void optimizer_block(struct mcp_builder *b, const struct part *parts, int count)
{
    mcp_begin_block(b, false);
    for (int i = 0; i < count; i++) {
        const struct part *part = &parts[i];
        if (is_frozen(b)) {
            mcp_one_bit_update(b, part);
            continue;
        }
        struct mcp_ref state = mcp_layer_buffer(mcp_part_index(part, MCP_LAYER_OPTIMIZER));
        struct mcp_ref gradients = reduced_gradients(b, part);
        struct mcp_ref weights = mcp_part_buffer(
            part, is_sharded(b, part, 3) ? MCP_LAYER_WEIGHT_SHARD : MCP_LAYER_WEIGHTS);
        flat_op(b, MCP_FN_ADAM, part,
                (struct mcp_ref[3]){gradients, state, mcp_rank_buffer(MCP_RANK_SCALARS)},
                (struct mcp_ref[2]){weights, state});
        if (part->in_rank && b->plan->zero_stage > 0 && has_peers(b, part))
            emit_data(b, MCP_FN_ALL_GATHER, part, weights, weights);
    }
    mcp_end_block(b, MCP_OPTIMIZER);
}

/* Clears accumulators, and refreshes the quantised copy of the weights. */
static void prologue_block(struct mcp_builder *b, const struct part *parts, int count)
{
    mcp_begin_block(b, false);
    for (int i = 0; i < count; i++) {
        const struct part *part = &parts[i];
        bool sharded = is_sharded(b, part, 2);
        int64_t rows = sharded ? shard_of(b, part) : part->parameters;
        struct mcp_ref target =
            mcp_part_buffer(part, sharded ? MCP_LAYER_GRADIENT_SHARD : MCP_LAYER_GRADIENTS);
        mcp_emit(b, (struct mcp_call){
                        .function = MCP_FN_ZERO,
                        .dtype = mcp_gradient_dtype(b->question),
                        .has_dtype = true,
                        .writes = {target},
                        .dims = {rows, 1, part->parameters, part->first, part->shard_first}});
    }
    if (!is_gathered(b, &dense))
        cast_weights(b, MCP_STREAM_COMPUTE);
    if (b->kind != NULL && b->matmul != b->activation && !mcp_casts_operands(b->question))
        for (int i = 0; i < count; i++)
            if (b->plan->zero_stage < 3)
                mcp_map(b, MCP_FN_CAST, parts[i].parameters, 1,
                        (struct mcp_ref[3]){mcp_part_buffer(&parts[i], MCP_LAYER_WEIGHTS)},
                        (struct mcp_ref[2]){mcp_part_buffer(&parts[i], MCP_LAYER_WEIGHTS)});
    mcp_end_block(b, MCP_PROLOGUE);
}

/* Tied weights on two stages: their gradients meet after all backwards. */
static void reduce_ends(struct mcp_builder *b, const struct part *part)
{
    bool in_place = b->plan->zero_stage >= 1 && !is_sharded(b, part, 2);
    struct mcp_ref gradients = reduced_gradients(b, part);
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_ALL_REDUCE,
                                  .stream = MCP_STREAM_DATA,
                                  .group = MCP_ENDS,
                                  .dtype = mcp_gradient_dtype(b->question),
                                  .has_dtype = true,
                                  .reads = {gradients},
                                  .writes = {gradients},
                                  .dims = {shard_of(b, part), 0,
                                           is_sharded(b, part, 2) ? part->shard_first : part->first,
                                           0, in_place ? part->parameters : 0}});
}

/* Squares of what this rank alone owns; where gradients are not reduced, of its own share. */
static void sum_squares(struct mcp_builder *b, const struct part *part)
{
    struct mcp_ref norm = mcp_rank_buffer(MCP_RANK_NORM);
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_SUM_SQUARES,
                                  .reads = {reduced_gradients(b, part), norm},
                                  .writes = {norm},
                                  .dims = {shard_of(b, part), 1, part->parameters, part->first,
                                           part->shard_first, is_frozen(b)}});
}

/* A head's copy of the table, which is its last part: the embedding's stage counts its
 * gradients. */
static bool has_duplicate(const struct mcp_layer_type *type)
{
    for (int i = 0; i < type->num_weights; i++)
        if (type->weights[i].duplicate)
            return true;
    return false;
}

/* Before the update, for the norm of all gradients where the step finds it. */
static void norm_block(struct mcp_builder *b, const struct part *parts, int count)
{
    bool ends = is_end(b) && b->model->tied_embeddings && !mcp_embedding_is_head(b);
    mcp_begin_block(b, false);
    for (int i = 0; i < count; i++)
        if (parts[i].in_rank) /* several layers add to it: whole after all backwards */
            reduce_part(b, &parts[i]);
    if (ends)
        reduce_ends(b, &parts[count - 1]);
    int counted = count - has_duplicate(b->type);
    for (int i = 0; i < counted && mcp_job_finds_norm(b->question->job); i++)
        sum_squares(b, &parts[i]);
    mcp_end_block(b, MCP_EPILOGUE);
}

/* Of no bytes until a part of the layer needs them. */
static void declare_buffers(struct mcp_builder *b)
{
    static const struct {
        const char *name;
        enum mcp_buffer_kind kind;
    } table[MCP_MAX_LAYER_BUFFERS] = {
        [MCP_LAYER_WEIGHTS] = {"weights", MCP_BUFFER_WEIGHT},
        [MCP_LAYER_EXPERT_WEIGHTS] = {"expert_weights", MCP_BUFFER_WEIGHT},
        [MCP_LAYER_GRADIENTS] = {"gradients", MCP_BUFFER_GRADIENT},
        [MCP_LAYER_EXPERT_GRADIENTS] = {"expert_gradients", MCP_BUFFER_GRADIENT},
        [MCP_LAYER_OPTIMIZER] = {"optimizer", MCP_BUFFER_OPTIMIZER},
        [MCP_LAYER_EXPERT_OPTIMIZER] = {"expert_optimizer", MCP_BUFFER_OPTIMIZER},
        [MCP_LAYER_WEIGHT_SHARD] = {"weight_shard", MCP_BUFFER_WEIGHT},
        [MCP_LAYER_EXPERT_WEIGHT_SHARD] = {"expert_weight_shard", MCP_BUFFER_WEIGHT},
        [MCP_LAYER_GRADIENT_SHARD] = {"gradient_shard", MCP_BUFFER_GRADIENT},
        [MCP_LAYER_EXPERT_GRADIENT_SHARD] = {"expert_gradient_shard", MCP_BUFFER_GRADIENT},
        [MCP_LAYER_WORKER_ERROR] = {"worker_error", MCP_BUFFER_OPTIMIZER},
        [MCP_LAYER_EXPERT_WORKER_ERROR] = {"expert_worker_error", MCP_BUFFER_OPTIMIZER},
        [MCP_LAYER_SERVER_ERROR] = {"server_error", MCP_BUFFER_OPTIMIZER},
        [MCP_LAYER_EXPERT_SERVER_ERROR] = {"expert_server_error", MCP_BUFFER_OPTIMIZER},
        [MCP_LAYER_CAST_WEIGHTS] = {"cast_weights", MCP_BUFFER_WEIGHT},
        [MCP_LAYER_CAST_COLUMNS] = {"cast_columns", MCP_BUFFER_WEIGHT},
    };
    int count = mcp_casts_operands(b->question) ? MCP_MAX_LAYER_BUFFERS
                : is_one_bit(b)                 ? MCP_LAYER_CAST_WEIGHTS
                                                : MCP_NUM_LAYER_BUFFERS;
    b->type->num_buffers[MCP_SPACE_LAYER] = count;
    for (int i = 0; i < count; i++) {
        struct mcp_buffer *buffer = &b->buffers[MCP_SPACE_LAYER][i];
        bool master = table[i].kind == MCP_BUFFER_OPTIMIZER;
        bool gradient = table[i].kind == MCP_BUFFER_GRADIENT;
        snprintf(buffer->name, sizeof buffer->name, "%s", table[i].name);
        buffer->dtype = (unsigned char)(master     ? MCP_F32
                                        : gradient ? mcp_gradient_dtype(b->question)
                                                   : b->weight);
        buffer->kind = (unsigned char)table[i].kind;
    }
    for (int i = MCP_LAYER_CAST_WEIGHTS; i < count; i++) {
        b->buffers[MCP_SPACE_LAYER][i].dtype = (unsigned char)b->matmul;
        grow_buffer(b, i, (double)mcp_cast_weight_offset(b->type, b->type->num_weights));
    }
}

void mcp_build_data_blocks(struct mcp_builder *b)
{
    struct part parts[MCP_MAX_PARTS] = {{0}};
    int count = list_parts(b, parts);
    declare_buffers(b);
    for (int i = 0; i < count; i++)
        size_part(b, &parts[i]);
    gather_block(b, parts, count);
    prologue_block(b, parts, count);
    if (b->spec->forward_only)
        return;
    reduce_block(b, parts, count);
    optimizer_block(b, parts, count);
    norm_block(b, parts, count);
}

/* One message of X or DX over a pipeline boundary. Without sequence parallelism
 * every tensor rank holds the whole of it; a scatter-gather stack sends 1/t each
 * and gathers (Narayanan et al. 2021 section 4.1). */
static void message(struct mcp_builder *b, enum mcp_block_role role, enum mcp_stream stream,
                    struct mcp_ref place)
{
    bool forth = role == MCP_SEND_FORWARD || role == MCP_RECEIVE_BACKWARD;
    bool receives = role == MCP_RECEIVE_FORWARD || role == MCP_RECEIVE_BACKWARD;
    int64_t whole = b->sharded_tokens * b->hidden;
    bool scattered = mcp_message_is_scattered(b->question, b->plan);
    struct mcp_call call = {.function = receives ? MCP_FN_RECEIVE : MCP_FN_SEND,
                            .stream = stream,
                            .group = MCP_PIPELINE,
                            .delta = (signed char)(forth != b->spec->mirrored ? 1 : -1),
                            .dims = {scattered ? whole / b->plan->tensor_parallel : whole}};
    mcp_begin_block(b, false);
    call.reads[0] = receives ? (struct mcp_ref){0} : place;
    call.writes[0] = receives ? place : (struct mcp_ref){0};
    mcp_emit(b, call);
    if (receives && scattered)
        mcp_emit(b, (struct mcp_call){.function = MCP_FN_ALL_GATHER,
                                      .stream = MCP_STREAM_TENSOR,
                                      .group = MCP_TENSOR,
                                      .reads = {place},
                                      .writes = {place},
                                      .dims = {whole}});
    mcp_end_block(b, role);
}

void mcp_build_message_blocks(struct mcp_builder *b)
{
    /* from the first of the four streams to that of mirrored chunks */
    int mirror = b->spec->mirrored ? MCP_STREAM_MIRRORED_SEND_PREVIOUS - MCP_STREAM_SEND_NEXT : 0;
    message(b, MCP_SEND_FORWARD, (enum mcp_stream)(MCP_STREAM_SEND_NEXT + mirror), mcp_x(1));
    message(b, MCP_RECEIVE_FORWARD, (enum mcp_stream)(MCP_STREAM_RECEIVE_PREVIOUS + mirror),
            mcp_x(0));
    if (b->spec->forward_only)
        return;
    message(b, MCP_SEND_BACKWARD, (enum mcp_stream)(MCP_STREAM_SEND_PREVIOUS + mirror), mcp_dx(0));
    message(b, MCP_RECEIVE_BACKWARD, (enum mcp_stream)(MCP_STREAM_RECEIVE_NEXT + mirror),
            mcp_dx(1));
}
