/* tests/exec/test_eight.c: numbers of 8 bits: every one of both formats, and what lies between. */
#include "eights.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <float.h>

Test(eight, every_number_comes_back)
{
    for (int e5m2 = 0; e5m2 < 2; e5m2++)
        for (unsigned x = 0; x < 256; x++) {
            double value = eights_value(e5m2, (uint8_t)x);
            float got = mcp_from_eight(e5m2, (uint8_t)x);
            cr_assert(isnan(value) ? isnan(got) : (double)got == value, "%d %x", e5m2, x);
            cr_assert(isnan(value) || !signbit(value) == !signbit(got), "%d %x", e5m2, x);
            uint8_t want = isfinite(value) ? (uint8_t)x : 0x7f;
            cr_assert(eq(u8, mcp_to_eight(e5m2, got), want), "%d", e5m2);
        }
    cr_expect(eq(flt, mcp_from_eight(false, 0x7e), MCP_E4M3_LARGEST));
    cr_expect(eq(flt, mcp_from_eight(true, 0x7b), MCP_E5M2_LARGEST));
    cr_expect(eq(flt, mcp_from_eight(false, 0x81), -0x1p-9f));
    cr_expect(eq(flt, mcp_from_eight(true, 0x01), 0x1p-16f));
    cr_expect(eq(flt, mcp_from_eight(false, 0x3c), 1.5f));
    cr_expect(eq(flt, mcp_from_eight(true, 0x3e), 1.5f));
}

/* Half way between two neighbours the even one is taken, else the nearer. */
Test(eight, rounds_to_the_nearest)
{
    for (int e5m2 = 0; e5m2 < 2; e5m2++)
        for (unsigned x = 0; x < eights_largest(e5m2); x++) {
            float low = mcp_from_eight(e5m2, (uint8_t)x);
            float high = mcp_from_eight(e5m2, (uint8_t)(x + 1));
            float middle = low + (high - low) / 2;
            unsigned even = x + (x & 1);
            cr_assert(eq(u8, mcp_to_eight(e5m2, middle), even), "%d %x", e5m2, x);
            cr_assert(eq(u8, mcp_to_eight(e5m2, -middle), 0x80 | even), "%d %x", e5m2, x);
            cr_assert(eq(u8, mcp_to_eight(e5m2, nextafterf(middle, 0)), x), "%d %x", e5m2, x);
            cr_assert(eq(u8, mcp_to_eight(e5m2, nextafterf(middle, INFINITY)), x + 1), "%d %x",
                      e5m2, x);
        }
}

/* Beyond the largest it stays; what is infinite or none is none, without a sign. */
Test(eight, largest_stays)
{
    const float beyond[] = {449, 464, 479, 480, 57345, 61440, 65536, 1e30f, FLT_MAX};
    for (int e5m2 = 0; e5m2 < 2; e5m2++) {
        for (size_t i = e5m2 ? 4 : 0; i < sizeof beyond / sizeof *beyond; i++) {
            cr_expect(eq(u8, mcp_to_eight(e5m2, beyond[i]), eights_largest(e5m2)));
            cr_expect(eq(u8, mcp_to_eight(e5m2, -beyond[i]), 0x80 | eights_largest(e5m2)));
        }
        cr_expect(eq(u8, mcp_to_eight(e5m2, INFINITY), 0x7f));
        cr_expect(eq(u8, mcp_to_eight(e5m2, -INFINITY), 0x7f));
        cr_expect(eq(u8, mcp_to_eight(e5m2, -NAN), 0x7f));
        cr_expect(eq(u8, mcp_to_eight(e5m2, -FLT_TRUE_MIN), 0x80));
    }
}

/* Numbers of all exponents beside the nearest of all that there are. */
Test(eight, as_a_search_finds_it)
{
    int wrong = 0;
    for (uint32_t i = 0, bits = 1; i < 40000; i++, bits = bits * 1664525u + 1013904223u) {
        /* every second one between 2^-20 and 2^20 */
        uint32_t shift = i % 2 == 0 ? bits : (bits & 0x807fffffu) | (107 + bits % 40) << 23;
        float value = mcp_float_of(shift);
        for (int e5m2 = 0; e5m2 < 2; e5m2++)
            wrong += mcp_to_eight(e5m2, value) != eights_nearest(e5m2, (double)value);
    }
    cr_expect(eq(int, wrong, 0));
}

static bool is_scale(bool e5m2, float largest)
{
    const double most = e5m2 ? MCP_E5M2_LARGEST : MCP_E4M3_LARGEST;
    const float scale = mcp_eight_scale(e5m2, largest);
    const double over = (double)largest / (double)scale;
    int exponent;
    return frexpf(scale, &exponent) == 0.5f && isnormal(scale) && isnormal(1 / scale) &&
           over <= most && (over > most / 2 || scale == FLT_MIN);
}

Test(eight, scale_is_the_least_that_fits)
{
    for (int e5m2 = 0; e5m2 < 2; e5m2++) {
        for (int exponent = -149; exponent < 128; exponent++)
            for (float x = 1; x < 2; x += 0x1p-4f) {
                float largest = ldexpf(x, exponent), below = nextafterf(largest, 0);
                cr_assert(below == 0 || is_scale(e5m2, below), "%d %g", e5m2, (double)below);
                cr_assert(is_scale(e5m2, largest), "%d %g", e5m2, (double)largest);
            }
        cr_expect(eq(flt, mcp_eight_scale(e5m2, 0), 1));
        cr_expect(eq(flt, mcp_eight_scale(e5m2, e5m2 ? 57344 : 448), 1));
        cr_expect(eq(flt, mcp_eight_scale(e5m2, e5m2 ? 57345 : 449), 2));
        cr_expect(isnan(mcp_eight_scale(e5m2, INFINITY)) && isnan(mcp_eight_scale(e5m2, NAN)));
    }
}
