/* exec/init.c: where weights lie in a rank's memory, and how they begin. */
#include "exec/init.h"

#include "core/minmax.h"
#include "exec/half.h"

#include <math.h>
#include <string.h>

/* --- numbers --- */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t mcp_init_key(uint64_t seed, const char *name, int layer, int expert)
{
    uint64_t key = mix(seed);
    for (; *name != '\0'; name++)
        key = mix(key ^ (unsigned char)*name);
    return mix(mix(key ^ (uint64_t)layer) ^ (uint64_t)expert);
}

float mcp_init_normal(uint64_t key, int64_t x)
{
    const double pi = 3.14159265358979323846, unit = 1.0 / 4294967296.0;
    uint64_t bits = mix(key ^ mix((uint64_t)x));
    double u = ((double)(bits >> 32) + 1) * unit, v = (double)(bits & 0xffffffffu) * unit;
    return (float)(sqrt(-2 * log(u)) * cos(2 * pi * v));
}

/* --- places --- */

static bool is_shard(struct mcp_operand at)
{
    return at.space == MCP_SPACE_LAYER &&
           (at.index == MCP_LAYER_WEIGHT_SHARD || at.index == MCP_LAYER_EXPERT_WEIGHT_SHARD);
}

static char *buffer_at(const struct mcp_interpreter *interpreter, int layer, struct mcp_operand at)
{
    int64_t bytes = 0;
    int owner = at.space == MCP_SPACE_RANK ? -1 : layer;
    return mcp_interpreter_buffer(interpreter, owner, at.index, &bytes);
}

static void set_gradients(const struct mcp_interpreter *interpreter,
                          const struct mcp_program *program, int layer, const struct mcp_op *adam,
                          struct mcp_flat_place *out)
{
    const struct mcp_operand at = adam->reads[0];
    const int type = mcp_pool_type(mcp_interpreter_pool(interpreter), layer);
    const struct mcp_buffer *buffer = mcp_operand_buffer(program, &program->types[type], at);
    const bool shard = at.space == MCP_SPACE_LAYER && (at.index == MCP_LAYER_GRADIENT_SHARD ||
                                                       at.index == MCP_LAYER_EXPERT_GRADIENT_SHARD);
    char *memory = buffer_at(interpreter, layer, at);
    out->gradients_dtype = buffer->dtype;
    if (memory != NULL)
        out->gradients = memory + (shard ? adam->dims[4] : adam->dims[3] + out->first) *
                                      (int64_t)mcp_dtype_bytes((enum mcp_dtype)buffer->dtype);
}

/* An update says where all of it lies: weights, state, and which part is this rank's. */
static void place_of(const struct mcp_interpreter *interpreter, const struct mcp_rank *rank,
                     int layer, const struct mcp_op *adam, struct mcp_flat_place *out)
{
    const struct mcp_program *program = rank->program;
    const struct mcp_layer_type *type =
        &program->types[mcp_pool_type(mcp_interpreter_pool(interpreter), layer)];
    const struct mcp_buffer *weights = mcp_operand_buffer(program, type, adam->writes[0]);
    int64_t size = (int64_t)mcp_dtype_bytes((enum mcp_dtype)weights->dtype);
    memset(out, 0, sizeof *out);
    out->flat = mcp_flat_at(type, adam->writes[0], adam->dims[3]);
    out->elements = adam->dims[2];
    out->dtype = weights->dtype;
    int index =
        mcp_group_index(&program->plan, mcp_reduce_axes(out->flat == MCP_FLAT_EXPERT), rank->rank);
    out->index = index;
    bool cut = adam->dims[0] < out->elements;
    out->first = cut ? mcp_min_int64(index * adam->dims[0], out->elements) : 0;
    out->count = mcp_min_int64(adam->dims[0], out->elements - out->first);
    bool shard = is_shard(adam->writes[0]);
    out->held_first = shard ? out->first : 0;
    out->held_count = shard ? out->count : out->elements;
    out->weights =
        buffer_at(interpreter, layer, adam->writes[0]) + adam->dims[shard ? 4 : 3] * size;
    if (adam->function == MCP_FN_ADAM)
        set_gradients(interpreter, program, layer, adam, out);
    out->has_master = weights->dtype != MCP_F32;
    out->state_stride = adam->dims[0];
    out->state = buffer_at(interpreter, layer, adam->writes[1]) +
                 adam->dims[4] * 4 * (out->has_master ? 3 : 2);
}

int mcp_flat_places(const struct mcp_interpreter *interpreter, const struct mcp_rank *rank,
                    int layer, struct mcp_flat_place places[MCP_NUM_FLATS])
{
    int type = mcp_pool_type(mcp_interpreter_pool(interpreter), layer), count = 0;
    if (type < 0)
        return 0;
    const struct mcp_block *block = &rank->program->types[type].blocks[MCP_OPTIMIZER];
    for (int i = 0; i < block->num_ops && count < MCP_NUM_FLATS; i++)
        if (block->ops[i].function == MCP_FN_ADAM || block->ops[i].function == MCP_FN_ADAM_FROZEN)
            place_of(interpreter, rank, layer, &block->ops[i], &places[count++]);
    return count;
}

bool mcp_answers_for_place(const struct mcp_flat_place *place)
{
    return place->count < place->elements || place->index == 0;
}

/* --- values --- */

struct part {
    const struct mcp_weight *weight;
    const struct mcp_layer_facts *facts;
    int tensor, tensor_parallel;
    uint64_t key;
};

/* Norms with biases have a row of ones, then a row of zeros, each. */
static float norm_value(const struct part *part, int64_t row)
{
    return part->facts->norm_biases && row % 2 == 1 ? 0.0f : 1.0f;
}

static float value_at(const struct part *part, int64_t row, int64_t column)
{
    const struct mcp_weight *w = part->weight;
    int64_t x;
    switch (w->init) {
    case MCP_INIT_NORM:
        return norm_value(part, row);
    case MCP_INIT_ZERO:
        return 0;
    default:
        x = mcp_weight_global_index(w, part->tensor, part->tensor_parallel, row, column);
        return mcp_init_normal(part->key, x) * (float)(w->init == MCP_INIT_RESIDUAL
                                                           ? part->facts->residual_init_std
                                                           : part->facts->init_std);
    }
}

static void fill_part(const struct part *part, float *out)
{
    for (int64_t row = 0; row < part->weight->rows; row++)
        for (int64_t column = 0; column < part->weight->columns; column++)
            out[row * part->weight->columns + column] = value_at(part, row, column);
}

static uint64_t key_of(const struct mcp_weight *w, uint64_t seed, int layer, int expert)
{
    return w->twin ? mcp_init_key(seed, "embedding", 0, 0)
                   : mcp_init_key(seed, w->name, layer, expert);
}

void mcp_init_flat(const struct mcp_rank *rank, int layer, const struct mcp_layer_type *type,
                   enum mcp_flat flat, uint64_t seed, float *out)
{
    int member = mcp_group_index(&rank->program->plan, MCP_EXPERT, rank->rank);
    int64_t first = mcp_flat_first(type, flat);
    for (int i = 0; i < type->num_weights; i++) {
        const struct mcp_weight *w = &type->weights[i];
        if (mcp_weight_flat(w) != flat)
            continue;
        for (int copy = 0; copy < w->copies; copy++) {
            int expert = w->expert ? member * w->copies + copy : 0;
            struct part part = {w, &type->facts, rank->at.tensor,
                                rank->program->plan.tensor_parallel,
                                key_of(w, seed, layer, expert)};
            fill_part(&part, out + mcp_weight_offset(type, i, copy) - first);
        }
    }
}

static void write_weights(const struct mcp_flat_place *place, const float *values,
                          const struct mcp_backend_calls *calls, struct mcp_backend *backend,
                          uint16_t *halves)
{
    const float *held = values + place->held_first;
    if (place->dtype == MCP_F32) {
        calls->write(backend, place->weights, held, place->held_count * 4);
        return;
    }
    mcp_narrow((enum mcp_dtype)place->dtype, held, place->held_count, halves);
    calls->write(backend, place->weights, halves, place->held_count * 2);
}

static void write_state(const struct mcp_flat_place *place, const float *values, const float *zeros,
                        const struct mcp_backend_calls *calls, struct mcp_backend *backend)
{
    int64_t bytes = place->count * 4, stride = place->state_stride * 4;
    char *at = place->state;
    if (place->has_master) {
        calls->write(backend, at, values + place->first, bytes);
        at += stride;
    }
    calls->write(backend, at, zeros, bytes);
    calls->write(backend, at + stride, zeros, bytes);
}

/* What signs left out so far: nothing. */
static void clear_errors(struct mcp_arena *scratch, const struct mcp_interpreter *interpreter,
                         int layer, const struct mcp_backend_calls *calls,
                         struct mcp_backend *backend)
{
    for (int i = MCP_LAYER_WORKER_ERROR; i <= MCP_LAYER_EXPERT_SERVER_ERROR; i++) {
        int64_t bytes = 0;
        void *errors = mcp_interpreter_buffer(interpreter, layer, i, &bytes);
        if (errors != NULL)
            calls->write(backend, errors, MCP_ARRAY(scratch, bytes, char), bytes);
    }
}

void mcp_init_rank(struct mcp_arena *scratch, const struct mcp_interpreter *interpreter,
                   const struct mcp_rank *rank, const struct mcp_backend_calls *calls,
                   struct mcp_backend *backend, uint64_t seed)
{
    struct mcp_flat_place places[MCP_NUM_FLATS];
    for (int layer = 0; layer < rank->program->num_layers; layer++) {
        int count = mcp_flat_places(interpreter, rank, layer, places);
        struct mcp_mark before = mcp_arena_mark(scratch);
        clear_errors(scratch, interpreter, layer, calls, backend);
        mcp_arena_rewind(scratch, before);
        for (int i = 0; i < count; i++) {
            struct mcp_mark mark = mcp_arena_mark(scratch);
            float *values = MCP_ARRAY(scratch, places[i].elements, float);
            int type = mcp_pool_type(mcp_interpreter_pool(interpreter), layer);
            mcp_init_flat(rank, layer, &rank->program->types[type], places[i].flat, seed, values);
            write_weights(&places[i], values, calls, backend,
                          MCP_ARRAY(scratch, places[i].held_count, uint16_t));
            write_state(&places[i], values, MCP_ARRAY(scratch, places[i].count, float), calls,
                        backend);
            mcp_arena_rewind(scratch, mark);
        }
    }
}
