/* core/minmax.h: the smaller and the larger of two integers, and what lies between two. */
#ifndef MCP_CORE_MINMAX_H
#define MCP_CORE_MINMAX_H

#include <stdint.h>

static inline int mcp_min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline int mcp_max_int(int a, int b)
{
    return a > b ? a : b;
}

static inline int64_t mcp_min_int64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mcp_max_int64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The nearest to `value` of low .. high. */
static inline int64_t mcp_clamp_int64(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

#endif
