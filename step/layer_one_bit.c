/* step/layer_one_bit.c: 1-bit Adam: buffers, and the update once its variance is frozen. */
#include "core/mesh.h"
#include "step/layer_data.h"
#include "step/weights.h"

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

/* Weights that tensor ranks hold alike have signs and a scale of their own, alike on all
 * tensor ranks: with a scale over what each rank holds alone they would part. */
static int64_t alike_on_tensor_ranks(const struct mcp_builder *b, const struct part *part)
{
    if (b->plan->tensor_parallel == 1 || part->in_rank || part->shard_first > 0)
        return 0;
    return mcp_flat_replicated(b->type, part->expert ? MCP_FLAT_EXPERT : MCP_FLAT_DENSE);
}

/* Elements of errors for `alike` ones, and for the rest of `parameters`. */
static int64_t errors_of(int64_t alike, int64_t parameters, int ranks)
{
    return mcp_one_bit_elements(alike, ranks) + mcp_one_bit_elements(parameters - alike, ranks);
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
    int64_t bytes = 4 * errors_of(alike_on_tensor_ranks(b, part), part->parameters, ranks);
    grow_buffer(b, mcp_part_index(part, MCP_LAYER_WORKER_ERROR), bytes);
    grow_buffer(b, mcp_part_index(part, MCP_LAYER_SERVER_ERROR), bytes / ranks);
}

/* One op over all of a part, which nothing shards. */
static void whole_op(struct mcp_builder *b, enum mcp_function function, const struct part *part,
                     const struct mcp_ref reads[3], const struct mcp_ref writes[2])
{
    struct mcp_call call = {
        .function = function,
        .dtype = b->weight,
        .has_dtype = true,
        .dims = {part->parameters, 1, part->parameters, part->first, part->shard_first}};
    memcpy(call.reads, reads, 3 * sizeof *reads);
    memcpy(call.writes, writes, 2 * sizeof *writes);
    mcp_emit(b, call);
}

/* What is on its way between the ranks of a group: a range of a part. */
struct exchange {
    struct mcp_builder *b;
    const struct part *part;
    int ranks;
    int64_t count;            /* of the range */
    int64_t elements;         /* ... padded */
    int64_t first;            /* in the worker's errors; over k: in the server's */
    int64_t moment, variance; /* of its first element, in the state */
};

static struct mcp_ref scratch(const struct exchange *x, const char *name, int64_t bytes,
                              enum mcp_dtype dtype)
{
    return mcp_scratch(x->b, name, (double)bytes, dtype).block;
}

static struct mcp_ref state_of(const struct exchange *x)
{
    return mcp_layer_buffer(mcp_part_index(x->part, MCP_LAYER_OPTIMIZER));
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

/* A value that stands at `first` of its buffer, plus its error: signs, their scale, and the
 * new error in place of the old. Of all, or of what this rank averages. */
struct compression {
    struct mcp_ref value, error;
    int64_t first;
    bool shared;
};

static void compress(const struct exchange *x, const struct compression *c, struct mcp_ref out[2])
{
    int64_t ranks = c->shared ? x->ranks : 1, elements = x->elements / ranks;
    struct mcp_ref scalars = mcp_rank_buffer(MCP_RANK_SCALARS);
    out[0] = scratch(x, "signs", elements / 8, MCP_U8);
    out[1] = scratch(x, "scale", 4, MCP_F32);
    mcp_emit(x->b,
             (struct mcp_call){.function = MCP_FN_ADD_ERROR,
                               .reads = {c->value, c->error, scalars},
                               .writes = {c->error},
                               .dims = {elements, 1, x->first / ranks, c->first, x->count, ranks}});
    mcp_emit(x->b, (struct mcp_call){
                       .function = MCP_FN_COMPRESS_SIGNS,
                       .reads = {c->error, state_of(x), scalars},
                       .writes = {out[0], out[1], c->error},
                       .dims = {elements, 1, x->first / ranks, x->variance, x->count, ranks}});
}

/* The group's momentum in place of this rank's own. */
static void exchange_momentum(const struct exchange *x)
{
    const struct part *part = x->part;
    struct mcp_ref state = state_of(x), own[2], averaged[2];
    int64_t own_elements = x->elements / x->ranks;
    struct mcp_ref worker = mcp_layer_buffer(mcp_part_index(part, MCP_LAYER_WORKER_ERROR));
    struct mcp_ref server = mcp_layer_buffer(mcp_part_index(part, MCP_LAYER_SERVER_ERROR));
    compress(x, &(struct compression){state, worker, x->moment, false}, own);
    struct mcp_ref arrived = scratch(x, "arrived_signs", x->elements / 8, MCP_U8);
    send_signs(x, MCP_FN_ALL_TO_ALL, own[0], arrived);
    struct mcp_ref scales = send_scales(x, own[1]);
    struct mcp_ref average = scratch(x, "average", 4 * own_elements, MCP_F32);
    mcp_map(x->b, MCP_FN_AVERAGE_SIGNS, own_elements, x->ranks,
            (struct mcp_ref[3]){arrived, scales}, (struct mcp_ref[2]){average});
    compress(x, &(struct compression){average, server, 0, true}, averaged);
    struct mcp_ref all = scratch(x, "all_signs", x->elements / 8, MCP_U8);
    send_signs(x, MCP_FN_ALL_GATHER, averaged[0], all);
    scales = send_scales(x, averaged[1]);
    mcp_emit(x->b,
             (struct mcp_call){.function = MCP_FN_DECOMPRESS_SIGNS,
                               .reads = {all, scales, state, mcp_rank_buffer(MCP_RANK_SCALARS)},
                               .writes = {state},
                               .dims = {x->count, 1, x->moment}});
}

/* First what is alike on tensor ranks, then the rest. */
static void exchange_ranges(struct mcp_builder *b, const struct part *part)
{
    int ranks = ranks_of(b, part);
    int64_t alike = alike_on_tensor_ranks(b, part), n = part->parameters;
    const int64_t firsts[2] = {0, alike}, counts[2] = {alike, n - alike};
    bool has_master = b->weight != MCP_F32;
    int64_t moments = part->shard_first * (has_master ? 3 : 2) + (has_master ? n : 0);
    int64_t error = 0;
    if (part->shard_first > 0) /* behind the dense parts */
        error = errors_of(alike_on_tensor_ranks(b, &(struct part){0}), part->shard_first, ranks);
    for (int i = 0; i < 2; i++) {
        struct exchange x = {.b = b,
                             .part = part,
                             .ranks = ranks,
                             .count = counts[i],
                             .elements = mcp_one_bit_elements(counts[i], ranks),
                             .first = error,
                             .moment = moments + firsts[i],
                             .variance = moments + n + firsts[i]};
        if (counts[i] > 0)
            exchange_momentum(&x);
        error += x.elements;
    }
}

void mcp_one_bit_update(struct mcp_builder *b, const struct part *part)
{
    struct mcp_ref state = mcp_layer_buffer(mcp_part_index(part, MCP_LAYER_OPTIMIZER));
    struct mcp_ref scalars = mcp_rank_buffer(MCP_RANK_SCALARS);
    whole_op(b, MCP_FN_MOMENTUM, part,
             (struct mcp_ref[3]){mcp_part_buffer(part, MCP_LAYER_GRADIENTS), state, scalars},
             (struct mcp_ref[2]){state});
    if (ranks_of(b, part) > 1)
        exchange_ranges(b, part);
    whole_op(b, MCP_FN_ADAM_FROZEN, part, (struct mcp_ref[3]){state, scalars},
             (struct mcp_ref[2]){mcp_part_buffer(part, MCP_LAYER_WEIGHTS), state});
}
