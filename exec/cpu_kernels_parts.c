/* exec/cpu_kernels_parts.c: values of either format, in fp32 and back. */
#include "exec/cpu_kernels_parts.h"

const float *mcp_get(struct mcp_view view, int64_t at, int count, float *room)
{
    if (view.dtype == MCP_F32)
        return (const float *)(const void *)view.data + at;
    const uint16_t *from = (const uint16_t *)(const void *)view.data + at;
    mcp_widen(view.dtype, from, count, room);
    return room;
}

void mcp_put(struct mcp_view view, int64_t at, int count, const float *values)
{
    if (view.dtype == MCP_F32) {
        float *to = (float *)(void *)view.data + at;
        if (to != values)
            memcpy(to, values, (size_t)count * sizeof *to);
        return;
    }
    uint16_t *to = (uint16_t *)(void *)view.data + at;
    mcp_narrow(view.dtype, values, count, to);
}

void mcp_add_to(struct mcp_view view, int64_t at, int count, const float *values)
{
    if (view.dtype == MCP_F32) {
        float *to = (float *)(void *)view.data + at;
        for (int i = 0; i < count; i++)
            to[i] += values[i];
        return;
    }
    uint16_t *to = (uint16_t *)(void *)view.data + at;
    for (int i = 0; i < count; i++)
        to[i] = mcp_to_half(view.dtype, mcp_from_half(view.dtype, to[i]) + values[i]);
}

void mcp_add_column_sums(struct mcp_view x, int64_t rows, int64_t columns, int64_t stride,
                         struct mcp_view gradient)
{
    enum { WIDTH = 64 };
#pragma omp parallel for schedule(static) if (rows * columns > MCP_SERIAL)
    for (int64_t first = 0; first < columns; first += WIDTH) {
        float sums[WIDTH] = {0}, room[WIDTH];
        int count = columns - first < WIDTH ? (int)(columns - first) : WIDTH;
        for (int64_t row = 0; row < rows; row++) {
            const float *values = mcp_get(x, row * stride + first, count, room);
            for (int i = 0; i < count; i++)
                sums[i] += values[i];
        }
        mcp_add_to(gradient, first, count, sums);
    }
}
