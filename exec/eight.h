/* exec/eight.h: numbers of 8 bits, E4M3 and E5M2, from fp32 and back: to nearest, ties to even.
 *
 * OCP 8-bit floating point (OFP8) 1.0; Micikevicius et al. 2022, arXiv 2209.05433. E4M3 has no
 * infinity. What is too large becomes the largest, what is infinite or none becomes NaN. */
#ifndef MCP_EXEC_EIGHT_H
#define MCP_EXEC_EIGHT_H

#include "exec/half.h"

#include <stdbool.h>

enum { MCP_E4M3_LARGEST = 448, MCP_E5M2_LARGEST = 57344 };

/* Exponents begin at -7 instead of -127. 0x7f would be 480. E5M2 is fp16's upper half. */
static inline float mcp_from_eight(bool is_e5m2, uint8_t x)
{
    if (is_e5m2)
        return mcp_from_f16((uint16_t)(x << 8));
    uint32_t magnitude = (uint32_t)(x & 0x7fu) << 20, sign = (uint32_t)(x & 0x80u) << 24;
    uint32_t bits = mcp_bits_of(mcp_float_of(magnitude) * 0x1p120f);
    bits |= magnitude == 0x07f00000u ? 0x7fc00000u : 0;
    return mcp_float_of(bits | sign);
}

/* Below the least normal number the sum with `step` rounds to multiples of the least subnormal
 * one. */
static inline uint8_t mcp_to_eight(bool is_e5m2, float value)
{
    const uint32_t drop = is_e5m2 ? 21 : 20, rebias = is_e5m2 ? 0x38000000u : 0x3c000000u;
    const uint32_t least = rebias + 0x00800000u, largest = is_e5m2 ? 0x7bu : 0x7eu;
    const float step = is_e5m2 ? 0x1p7f : 0x1p14f;
    uint32_t bits = mcp_bits_of(value), sign = bits >> 24 & 0x80u;
    bits &= 0x7fffffffu;
    if (bits >= 0x7f800000u)
        return 0x7f;
    if (bits < least)
        bits = mcp_bits_of(mcp_float_of(bits) + step) - mcp_bits_of(step);
    else
        bits = (bits - rebias + (1u << (drop - 1)) - 1 + (bits >> drop & 1u)) >> drop;
    return (uint8_t)(sign | (bits < largest ? bits : largest));
}

/* The least power of two under which `largest`, at least 0, is a number of the format, or nearly
 * so that it and its inverse are normal numbers; of 0 it is 1, of what is no number NaN. Both
 * formats' largest are 1.75 times a power of two. */
static inline float mcp_eight_scale(bool is_e5m2, float largest)
{
    uint32_t bits = mcp_bits_of(largest), fits = is_e5m2 ? 15 : 8;
    if (bits >= 0x7f800000u)
        return mcp_float_of(0x7fc00000u);
    if (bits == 0)
        return 1;
    uint32_t exponent = (bits >> 23) + ((bits & 0x007fffffu) > 0x00600000u);
    exponent = exponent > fits + 1 ? exponent - fits : 1;
    return mcp_float_of(exponent << 23);
}

/* count numbers of a scale: to[i] = scale x from[i], and the other way. */
static inline void mcp_widen_eight(bool is_e5m2, const uint8_t *from, int64_t count, float scale,
                                   float *to)
{
    for (int64_t i = 0; is_e5m2 && i < count; i++)
        to[i] = scale * mcp_from_eight(true, from[i]);
    for (int64_t i = 0; !is_e5m2 && i < count; i++)
        to[i] = scale * mcp_from_eight(false, from[i]);
}

static inline void mcp_narrow_eight(bool is_e5m2, const float *from, int64_t count, float scale,
                                    uint8_t *to)
{
    const float inverse = 1 / scale;
    for (int64_t i = 0; is_e5m2 && i < count; i++)
        to[i] = mcp_to_eight(true, from[i] * inverse);
    for (int64_t i = 0; !is_e5m2 && i < count; i++)
        to[i] = mcp_to_eight(false, from[i] * inverse);
}

#endif
