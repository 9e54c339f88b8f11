/* exec/cpu_kernels_math.h: elementary functions that a compiler makes vectors of. */
#ifndef MCP_EXEC_CPU_KERNELS_MATH_H
#define MCP_EXEC_CPU_KERNELS_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* e^x within 2 units in the last place from -87 to 88, and as at these ends beyond them;
 * NaN stays one. Range reduction and polynomial of Cephes' expf (Moshier). */
static inline float mcp_expf(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float k = rintf(x * 1.44269504088896341f);
    float r = x - k * 0.693359375f;
    r -= k * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1;
    uint32_t bits = ((uint32_t)(int)k + 127u) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

static inline float mcp_sigmoidf(float x)
{
    return 1 / (1 + mcp_expf(-x));
}

#endif
