/* tests/exec/kit.h: one op at a time: buffers, a launch, a kernel. */
#ifndef TESTS_EXEC_KIT_H
#define TESTS_EXEC_KIT_H

#include "core/arena.h"
#include "exec/cpu_kernels.h"
#include "exec/half.h"

#include <criterion/criterion.h>
#include <string.h>

enum { KIT_BUFFERS = 160 };

struct kit {
    struct mcp_arena *arena;
    struct mcp_program program;
    struct mcp_layer_type type;
    struct mcp_rank rank;
    struct mcp_buffer buffers[KIT_BUFFERS];
    void *memory[KIT_BUFFERS];
    int num_buffers;
    struct mcp_launch launch;
    struct mcp_op op;
    uint64_t seed;
};

static inline void kit_new(struct kit *kit)
{
    memset(kit, 0, sizeof *kit);
    kit->arena = mcp_arena_new();
    kit->program.plan = mcp_plan_default();
    kit->type.buffers[MCP_SPACE_FRAME] = kit->type.buffers[MCP_SPACE_LAYER] = kit->buffers;
    kit->program.rank_buffers = kit->buffers;
    kit->program.num_rank_buffers = KIT_BUFFERS;
    kit->type.num_buffers[MCP_SPACE_FRAME] = kit->type.num_buffers[MCP_SPACE_LAYER] = KIT_BUFFERS;
    kit->rank.program = &kit->program;
    kit->rank.inputs.loss_scale = 1;
    kit->seed = 1;
}

static inline int64_t kit_bytes(const struct kit *kit, int buffer)
{
    return kit->buffers[buffer].bytes;
}

/* A buffer of NaN; returns its number. */
static inline int kit_buffer(struct kit *kit, enum mcp_dtype dtype, int64_t elements)
{
    int index = kit->num_buffers++;
    struct mcp_buffer *buffer = &kit->buffers[index];
    cr_assert(index < KIT_BUFFERS);
    buffer->dtype = (unsigned char)dtype;
    buffer->bytes = buffer->capacity_bytes = elements * (int64_t)mcp_dtype_bytes(dtype);
    kit->memory[index] = MCP_ARRAY(kit->arena, buffer->bytes, char);
    memset(kit->memory[index], 0xff, (size_t)buffer->bytes);
    return index;
}

static inline double kit_get(const struct kit *kit, int buffer, int64_t i)
{
    const enum mcp_dtype dtype = (enum mcp_dtype)kit->buffers[buffer].dtype;
    if (dtype != MCP_F32)
        return (double)mcp_from_half(dtype, ((const uint16_t *)kit->memory[buffer])[i]);
    return (double)((const float *)kit->memory[buffer])[i];
}

static inline void kit_set(struct kit *kit, int buffer, int64_t i, double value)
{
    const enum mcp_dtype dtype = (enum mcp_dtype)kit->buffers[buffer].dtype;
    if (dtype != MCP_F32)
        ((uint16_t *)kit->memory[buffer])[i] = mcp_to_half(dtype, (float)value);
    else
        ((float *)kit->memory[buffer])[i] = (float)value;
}

static inline int64_t kit_count(const struct kit *kit, int buffer)
{
    return kit->buffers[buffer].bytes /
           (int64_t)mcp_dtype_bytes((enum mcp_dtype)kit->buffers[buffer].dtype);
}

/* In (-1, 1), representable in bf16. */
static inline double kit_random(struct kit *kit)
{
    kit->seed = kit->seed * 6364136223846793005u + 1442695040888963407u;
    float value = (float)((double)(kit->seed >> 40) / (double)(1 << 23) - 1);
    return (double)mcp_from_bf16(mcp_to_bf16(value));
}

static inline void kit_fill(struct kit *kit, int buffer)
{
    for (int64_t i = 0; i < kit_count(kit, buffer); i++)
        kit_set(kit, buffer, i, kit_random(kit));
}

static inline int kit_random_buffer(struct kit *kit, enum mcp_dtype dtype, int64_t elements)
{
    int buffer = kit_buffer(kit, dtype, elements);
    kit_fill(kit, buffer);
    return buffer;
}

static inline void kit_operand(struct kit *kit, struct mcp_operand *at, void **memory,
                               int64_t *bytes, int buffer)
{
    *at = (struct mcp_operand){.space = MCP_SPACE_FRAME, .index = (unsigned short)buffer};
    *memory = kit->memory[buffer];
    *bytes = kit->buffers[buffer].bytes;
}

/* Begins an op; reads and writes follow in order, then kit_run(). */
static inline void kit_op(struct kit *kit, enum mcp_function function, const int64_t *dims,
                          int num_dims)
{
    kit->op = (struct mcp_op){.function = (unsigned char)function, .weight = MCP_NO_WEIGHT};
    memcpy(kit->op.dims, dims, (size_t)num_dims * sizeof *dims);
    kit->launch = (struct mcp_launch){.op = &kit->op, .type = &kit->type, .rank = &kit->rank};
}
#define KIT_OP(kit, function, ...)                                                                 \
    kit_op(kit, function, (const int64_t[]){__VA_ARGS__},                                          \
           (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

static inline void kit_read(struct kit *kit, int buffer)
{
    int i = kit->op.num_reads++;
    kit_operand(kit, &kit->op.reads[i], &kit->launch.reads[i], &kit->launch.read_bytes[i], buffer);
}

static inline void kit_write(struct kit *kit, int buffer)
{
    int i = kit->op.num_writes++;
    kit_operand(kit, &kit->op.writes[i], &kit->launch.writes[i], &kit->launch.write_bytes[i],
                buffer);
}

static inline void kit_run(struct kit *kit)
{
    mcp_cpu_kernels[kit->op.function].run(&kit->launch);
}

/* Values of a buffer that differ from want[] by more than `tolerance` of its largest. */
static inline int kit_different(const struct kit *kit, int buffer, const double *want,
                                double tolerance)
{
    double largest = 0;
    int count = 0;
    for (int64_t i = 0; i < kit_count(kit, buffer); i++)
        largest = want[i] > largest ? want[i] : -want[i] > largest ? -want[i] : largest;
    for (int64_t i = 0; i < kit_count(kit, buffer); i++) {
        double error = kit_get(kit, buffer, i) - want[i];
        count += !(error <= tolerance * largest && -error <= tolerance * largest);
    }
    return count;
}

#endif
