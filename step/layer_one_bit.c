/* step/layer_one_bit.c: 1-bit Adam: buffers, and the update once its variance is frozen. */
#include "core/mesh.h"
#include "step/layer_data.h"

#include <string.h>

int64_t mcp_one_bit_elements(int64_t parameters, int ranks)
{
    int64_t unit = INT64_C(8) * ranks;
    return (parameters + unit - 1) / unit * unit;
}

static int ranks_of(const struct mcp_builder *b, const struct part *part)
{
    return mcp_group_size(b->plan, mcp_reduce_axes(part->expert));
}

/* Rows of the part's vocabulary table, when some of them stand for no token; else 0. */
static int64_t masked_rows(const struct mcp_builder *b, const struct part *part)
{
    if (part->expert || (!part->in_rank && b->shared_head))
        return 0;
    for (int i = 0; i < b->type->num_weights; i++) {
        const struct mcp_weight *weight = &b->weights[i];
        bool table = strcmp(weight->name, "embedding") == 0 || strcmp(weight->name, "head") == 0;
        if (table && weight->rows * b->plan->tensor_parallel > b->model->vocab_size)
            return weight->rows;
    }
    return 0;
}

static void grow_buffer(struct mcp_builder *b, int index, int64_t bytes)
{
    struct mcp_buffer *buffer = &b->buffers[MCP_SPACE_LAYER][index];
    buffer->bytes += bytes;
    buffer->capacity_bytes += bytes;
}

void mcp_one_bit_size(struct mcp_builder *b, const struct part *part)
{
    int ranks = ranks_of(b, part);
    if (ranks == 1)
        return;
    int64_t bytes = 4 * mcp_one_bit_elements(part->parameters, ranks);
    grow_buffer(b, mcp_part_index(part, MCP_LAYER_WORKER_ERROR), bytes);
    grow_buffer(b, mcp_part_index(part, MCP_LAYER_SERVER_ERROR), bytes / ranks);
    grow_buffer(b, MCP_LAYER_PADDING_MASK, (masked_rows(b, part) + 7) / 8);
}

/* One op over all of a part, which nothing shards. */
static void whole_op(struct mcp_builder *b, enum mcp_function function, const struct part *part,
                     const struct mcp_ref reads[3], const struct mcp_ref writes[2])
{
    struct mcp_call call = {
        .function = function,
        .dims = {part->parameters, 1, part->parameters, part->first, part->shard_first}};
    memcpy(call.reads, reads, 3 * sizeof *reads);
    memcpy(call.writes, writes, 2 * sizeof *writes);
    mcp_emit(b, call);
}

/* What is on its way between the ranks of a group. */
struct exchange {
    struct mcp_builder *b;
    const struct part *part;
    int ranks;
    int64_t elements, own_elements; /* n, and n / k: what this rank averages */
    int64_t first;                  /* in the worker's errors; over k: in the server's */
};

static struct mcp_ref scratch(const struct exchange *x, const char *name, int64_t bytes,
                              enum mcp_dtype dtype)
{
    return mcp_scratch(x->b, name, (double)bytes, dtype).block;
}

/* Signs over the group, `bytes` of them in all. */
static void send_signs(const struct exchange *x, enum mcp_function function, struct mcp_ref from,
                       struct mcp_ref to)
{
    mcp_emit(x->b, (struct mcp_call){.function = function,
                                     .stream = MCP_STREAM_DATA,
                                     .group = mcp_reduce_axes(x->part->expert),
                                     .dtype = MCP_U8,
                                     .has_dtype = true,
                                     .reads = {from},
                                     .writes = {to},
                                     .dims = {x->elements / 8}});
}

/* Every rank's scale, in the bucket of its signs. */
static struct mcp_ref send_scales(const struct exchange *x, struct mcp_ref own)
{
    struct mcp_ref all = scratch(x, "scales", 4 * (int64_t)x->ranks, MCP_F32);
    mcp_emit(x->b, (struct mcp_call){.function = MCP_FN_ALL_GATHER,
                                     .stream = MCP_STREAM_DATA,
                                     .group = mcp_reduce_axes(x->part->expert),
                                     .dtype = MCP_F32,
                                     .has_dtype = true,
                                     .reads = {own},
                                     .writes = {all},
                                     .dims = {x->ranks, x->elements / 8}});
    return all;
}

/* `value` plus its error: signs, their scale, and the new error in place of the old. */
static void compress(const struct exchange *x, struct mcp_ref value, struct mcp_ref error,
                     int64_t elements, struct mcp_ref out[2])
{
    bool masked = masked_rows(x->b, x->part) > 0;
    struct mcp_ref mask = masked ? mcp_layer_buffer(MCP_LAYER_PADDING_MASK) : (struct mcp_ref){0};
    out[0] = scratch(x, "signs", elements / 8, MCP_U8);
    out[1] = scratch(x, "scale", 4, MCP_F32);
    int64_t first = elements < x->elements ? x->first / x->ranks : x->first;
    mcp_emit(x->b, (struct mcp_call){.function = MCP_FN_ADD_ERROR,
                                     .reads = {value, error},
                                     .writes = {error},
                                     .dims = {elements, 1, first}});
    mcp_emit(x->b, (struct mcp_call){.function = MCP_FN_COMPRESS_SIGNS,
                                     .reads = {error, mask},
                                     .writes = {out[0], out[1], error},
                                     .dims = {elements, 1, first}});
}

/* The group's momentum in place of this rank's own. */
static void exchange_momentum(const struct exchange *x, struct mcp_ref state)
{
    const struct part *part = x->part;
    struct mcp_ref own[2], averaged[2];
    compress(x, state, mcp_layer_buffer(mcp_part_index(part, MCP_LAYER_WORKER_ERROR)), x->elements,
             own);
    struct mcp_ref arrived = scratch(x, "arrived_signs", x->elements / 8, MCP_U8);
    send_signs(x, MCP_FN_ALL_TO_ALL, own[0], arrived);
    struct mcp_ref scales = send_scales(x, own[1]);
    struct mcp_ref average = scratch(x, "average", 4 * x->own_elements, MCP_F32);
    mcp_map(x->b, MCP_FN_AVERAGE_SIGNS, x->own_elements, x->ranks,
            (struct mcp_ref[3]){arrived, scales}, (struct mcp_ref[2]){average});
    compress(x, average, mcp_layer_buffer(mcp_part_index(part, MCP_LAYER_SERVER_ERROR)),
             x->own_elements, averaged);
    struct mcp_ref all = scratch(x, "all_signs", x->elements / 8, MCP_U8);
    send_signs(x, MCP_FN_ALL_GATHER, averaged[0], all);
    scales = send_scales(x, averaged[1]);
    whole_op(x->b, MCP_FN_DECOMPRESS_SIGNS, part, (struct mcp_ref[3]){all, scales, state},
             (struct mcp_ref[2]){state});
}

void mcp_one_bit_update(struct mcp_builder *b, const struct part *part)
{
    struct exchange x = {.b = b, .part = part, .ranks = ranks_of(b, part)};
    struct mcp_ref state = mcp_layer_buffer(mcp_part_index(part, MCP_LAYER_OPTIMIZER));
    x.elements = mcp_one_bit_elements(part->parameters, x.ranks);
    x.own_elements = x.elements / x.ranks;
    x.first = mcp_one_bit_elements(part->shard_first, x.ranks);
    whole_op(b, MCP_FN_MOMENTUM, part,
             (struct mcp_ref[3]){mcp_part_buffer(part, MCP_LAYER_GRADIENTS), state},
             (struct mcp_ref[2]){state});
    if (x.ranks > 1)
        exchange_momentum(&x, state);
    whole_op(b, MCP_FN_ADAM_FROZEN, part,
             (struct mcp_ref[3]){state, mcp_rank_buffer(MCP_RANK_SCALARS)},
             (struct mcp_ref[2]){mcp_part_buffer(part, MCP_LAYER_WEIGHTS), state});
}
