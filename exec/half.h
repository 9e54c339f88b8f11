/* exec/half.h: numbers of 16 bits, bf16 and IEEE's binary16 (fp16), from fp32 and back: to
 * nearest, ties to even; NaN stays one. */
#ifndef MCP_EXEC_HALF_H
#define MCP_EXEC_HALF_H

#include "core/precision.h"

#include <stdint.h>
#include <string.h>

static inline float mcp_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t mcp_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The upper half of an fp32 number. */
static inline float mcp_from_bf16(uint16_t x)
{
    return mcp_float_of((uint32_t)x << 16);
}

static inline uint16_t mcp_to_bf16(float value)
{
    uint32_t bits = mcp_bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Exponents begin at -15 instead of -127: a product by 2^112 moves them, subnormal ones too. */
static inline float mcp_from_f16(uint16_t x)
{
    uint32_t magnitude = (uint32_t)(x & 0x7fffu) << 13, sign = (uint32_t)(x & 0x8000u) << 16;
    uint32_t bits = mcp_bits_of(mcp_float_of(magnitude) * 0x1p112f);
    bits |= (x & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
    return mcp_float_of(bits | sign);
}

/* What is 65520 or more becomes infinity. Below 2^-14 the sum with 0.5 rounds to multiples of
 * 2^-24, the least subnormal number. */
static inline uint16_t mcp_to_f16(float value)
{
    uint32_t bits = mcp_bits_of(value), sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (bits >= 0x47800000u)
        return (uint16_t)(sign | 0x7c00u);
    if (bits < 0x38800000u)
        bits = mcp_bits_of(mcp_float_of(bits) + 0.5f) - 0x3f000000u;
    else
        bits = (bits - 0x38000000u + 0xfffu + (bits >> 13 & 1u)) >> 13;
    return (uint16_t)(sign | bits);
}

static inline float mcp_from_half(enum mcp_dtype dtype, uint16_t x)
{
    return dtype == MCP_F16 ? mcp_from_f16(x) : mcp_from_bf16(x);
}

static inline uint16_t mcp_to_half(enum mcp_dtype dtype, float value)
{
    return dtype == MCP_F16 ? mcp_to_f16(value) : mcp_to_bf16(value);
}

/* The same of count numbers of MCP_BF16 or MCP_F16. */
static inline void mcp_widen(enum mcp_dtype dtype, const uint16_t *from, int64_t count, float *to)
{
    for (int64_t i = 0; dtype == MCP_F16 && i < count; i++)
        to[i] = mcp_from_f16(from[i]);
    for (int64_t i = 0; dtype != MCP_F16 && i < count; i++)
        to[i] = mcp_from_bf16(from[i]);
}

static inline void mcp_narrow(enum mcp_dtype dtype, const float *from, int64_t count, uint16_t *to)
{
    for (int64_t i = 0; dtype == MCP_F16 && i < count; i++)
        to[i] = mcp_to_f16(from[i]);
    for (int64_t i = 0; dtype != MCP_F16 && i < count; i++)
        to[i] = mcp_to_bf16(from[i]);
}

#endif
