/* exec/bf16.h: the upper half of an fp32 number, and back. */
#ifndef MCP_EXEC_BF16_H
#define MCP_EXEC_BF16_H

#include <stdint.h>
#include <string.h>

static inline float mcp_from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even; NaN stays one. */
static inline uint16_t mcp_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#endif
