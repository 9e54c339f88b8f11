/* tests/core/test_units.c: what people write, and how we print it. */
#include "core/units.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

struct case_quantity {
    char text[40];
    enum mcp_dimension dimension;
    double want; /* NaN: refused */
    char says[64];
};
ParameterizedTestParameters(units, quantity)
{
    static struct case_quantity cases[] = {
        {"80GiB", MCP_BYTES, 85899345920.0, ""},
        {"80 GiB", MCP_BYTES, 85899345920.0, ""},
        {"24GB", MCP_BYTES, 24e9, ""},
        {"1.5kB", MCP_BYTES, 1500, ""},
        {"512B", MCP_BYTES, 512, ""},
        {"2us", MCP_SECONDS, 2e-6, ""},
        {"2\xc2\xb5s", MCP_SECONDS, 2e-6, ""},
        {"1.5ms", MCP_SECONDS, 1.5e-3, ""},
        {"2h", MCP_SECONDS, 7200, ""},
        {"400Gbit/s", MCP_BYTES_PER_SECOND, 50e9, ""},
        {"400Gb/s", MCP_BYTES_PER_SECOND, 50e9, ""},
        {"450GB/s", MCP_BYTES_PER_SECOND, 450e9, ""},
        {"989TFLOP/s", MCP_FLOPS_PER_SECOND, 989e12, ""},
        {"1.2e3W", MCP_WATTS, 1200, ""},
        {"1980MHz", MCP_HERTZ, 1980e6, ""},
        {"0B/s", MCP_BYTES_PER_SECOND, 0, ""},
        {"80", MCP_BYTES, (double)NAN, "'80' has no unit, expected a size such as \"80GiB\""},
        {"", MCP_BYTES, (double)NAN, "'' is not a size"},
        {"GiB", MCP_BYTES, (double)NAN, "'GiB' is not a size"},
        {"80GiB", MCP_SECONDS, (double)NAN, "unknown unit 'GiB' for a time"},
        {"400Gbit/s", MCP_BYTES, (double)NAN, "unknown unit 'Gbit/s' for a size"},
        {"80Gib", MCP_BYTES, (double)NAN, "unknown unit 'Gib'"},
        {"80 GiB each", MCP_BYTES, (double)NAN, "unknown unit 'GiB each'"},
        {"-1us", MCP_SECONDS, (double)NAN, "'-1us' is negative"},
        {"1,5us", MCP_SECONDS, (double)NAN, "unknown unit ',5us'"},
        {"nanB", MCP_BYTES, (double)NAN, "'nanB' is not a size"},
        {"infs", MCP_SECONDS, (double)NAN, "'infs' is not a time"},
        {"0x10B", MCP_BYTES, (double)NAN, "unknown unit 'x10B'"},
        {"1e999B", MCP_BYTES, (double)NAN, "'1e999B' is not a size"},
        {"1e300TB", MCP_BYTES, (double)NAN, "'1e300TB' is too large"},
    };
    return cr_make_param_array(struct case_quantity, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_quantity *c, units, quantity)
{
    struct mcp_error err = {""};
    double value = -7;
    enum mcp_status got = mcp_quantity_parse(c->text, c->dimension, &value, &err);
    cr_expect(eq(int, (int)got, isnan(c->want) ? MCP_FORMAT : MCP_OK), "%s: %s", c->text, err.text);
    cr_expect(eq(dbl, value, isnan(c->want) ? -7 : c->want), "%s", c->text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->text, err.text);
}

struct case_show {
    double value;
    enum mcp_dimension dimension;
    char want[24];
};
ParameterizedTestParameters(units, show)
{
    static struct case_show cases[] = {
        {0, MCP_BYTES, "0 B"},
        {999, MCP_BYTES, "999 B"},
        {85899345920.0, MCP_BYTES, "80.0 GiB"},
        {-5e9, MCP_BYTES, "-4.66 GiB"},
        {1023.6 * 1048576, MCP_BYTES, "1.00 GiB"},
        {0, MCP_SECONDS, "0 s"},
        {1.24, MCP_SECONDS, "1.24 s"},
        {0.99999, MCP_SECONDS, "1.00 s"},
        {2e-6, MCP_SECONDS, "2.00 us"},
        {131, MCP_SECONDS, "131 s"},
        {8000, MCP_SECONDS, "2.22 h"},
        {450e9, MCP_BYTES_PER_SECOND, "450 GB/s"},
        {999.7e9, MCP_BYTES_PER_SECOND, "1.00 TB/s"},
        {989e12, MCP_FLOPS_PER_SECOND, "989 TFLOP/s"},
        {10200, MCP_WATTS, "10.2 kW"},
        {(double)NAN, MCP_WATTS, "unknown"},
    };
    return cr_make_param_array(struct case_show, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_show *c, units, show)
{
    struct mcp_arena *arena = mcp_arena_new();
    cr_expect(eq(str, (char *)mcp_show(arena, c->value, c->dimension), c->want));
    mcp_arena_free(arena);
}

Test(units, counts_and_integers)
{
    struct mcp_arena *arena = mcp_arena_new();
    cr_expect(eq(str, (char *)mcp_show_count(arena, 70.553706496e9), (char *)"70.6B"));
    cr_expect(eq(str, (char *)mcp_show_count(arena, 15.2e6), (char *)"15.2M"));
    cr_expect(eq(str, (char *)mcp_show_count(arena, 999.99e6), (char *)"1.00B"));
    cr_expect(eq(str, (char *)mcp_show_count(arena, 512), (char *)"512"));
    cr_expect(eq(str, (char *)mcp_show_integer(arena, 0), (char *)"0"));
    cr_expect(eq(str, (char *)mcp_show_integer(arena, 1024), (char *)"1,024"));
    cr_expect(eq(str, (char *)mcp_show_integer(arena, -123456), (char *)"-123,456"));
    cr_expect(
        eq(str, (char *)mcp_show_integer(arena, INT64_MIN), (char *)"-9,223,372,036,854,775,808"));
    mcp_arena_free(arena);
}

Test(units, overflow_is_seen_not_wrapped)
{
    int64_t result = 5;
    cr_expect(eq(int, mcp_multiply((int64_t)1 << 32, (int64_t)1 << 31, &result), false));
    cr_expect(eq(int, mcp_multiply(INT64_MIN, -1, &result), false));
    cr_expect(mcp_multiply((int64_t)1 << 31, (int64_t)1 << 31, &result));
    cr_expect(eq(i64, result, (int64_t)1 << 62));
}
