/* tests/exec/test_half.c: numbers of 16 bits: every one of fp16, and what lies between. */
#include "exec/half.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

enum { INFINITE = 0x7c00 };

Test(half, every_fp16_comes_back)
{
    for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000)
        for (unsigned x = 0; x <= INFINITE; x++)
            cr_assert(eq(u16, mcp_to_f16(mcp_from_f16((uint16_t)(sign | x))), sign | x));
    cr_expect(eq(flt, mcp_from_f16(0x3c00), 1));
    cr_expect(eq(flt, mcp_from_f16(0xc500), -5));
    cr_expect(eq(flt, mcp_from_f16(0x7bff), 65504));
    cr_expect(eq(flt, mcp_from_f16(0x0001), 0x1p-24f));
    cr_expect(isinf(mcp_from_f16(INFINITE)));
    cr_expect(isnan(mcp_from_f16(0x7e01)) && isnan(mcp_from_f16(mcp_to_f16(NAN))));
}

/* Half way between two neighbours the even one is taken, else the nearer. The neighbour of the
 * largest is 65536, which is infinite. */
Test(half, rounds_to_the_nearest_fp16)
{
    for (unsigned x = 0; x < INFINITE; x++) {
        float low = mcp_from_f16((uint16_t)x);
        float high = x + 1 == INFINITE ? 65536 : mcp_from_f16((uint16_t)(x + 1));
        float middle = low + (high - low) / 2;
        cr_assert(eq(u16, mcp_to_f16(middle), x + (x & 1)));
        cr_assert(eq(u16, mcp_to_f16(nextafterf(middle, 0)), x));
        cr_assert(eq(u16, mcp_to_f16(nextafterf(middle, INFINITY)), x + 1));
        cr_assert(eq(u16, mcp_to_f16(-middle), 0x8000 | (x + (x & 1))));
    }
    cr_expect(eq(u16, mcp_to_f16(1e30f), INFINITE));
    cr_expect(eq(u16, mcp_to_f16(-INFINITY), 0x8000 | INFINITE));
}

Test(half, many_at_once)
{
    const float values[3] = {1.0f / 3, -70000, 0x1p-20f};
    uint16_t halves[3];
    float back[3];
    mcp_narrow(MCP_F16, values, 3, halves);
    mcp_widen(MCP_F16, halves, 3, back);
    cr_expect(back[0] == 0x1.554p-2f && back[1] == -INFINITY && back[2] == values[2]);
    mcp_narrow(MCP_BF16, values, 3, halves);
    mcp_widen(MCP_BF16, halves, 3, back);
    cr_expect(back[0] == 0x1.56p-2f && back[1] == -0x1.12p+16f && back[2] == values[2]);
}
