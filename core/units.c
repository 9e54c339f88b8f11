/* core/units.c: quantities people write and how we print them. */
#include "core/units.h"

#include "core/text.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* --- reading --- */

struct unit {
    const char *name;
    double scale;
    bool takes_prefix;
};

struct dimension {
    const char *noun;
    const char *examples;
    struct unit units[9];
};

static const struct dimension dimensions[] = {
    [MCP_BYTES] = {"a size", "\"80GiB\" or \"24GB\"", {{"B", 1, true}}},
    [MCP_SECONDS] = {"a time",
                     "\"2us\", \"1.5ms\", \"3s\", \"5min\", \"2h\" or \"7d\"",
                     {{"s", 1, false},
                      {"ms", 1e-3, false},
                      {"us", 1e-6, false},
                      {"\xc2\xb5s", 1e-6, false},
                      {"ns", 1e-9, false},
                      {"min", 60, false},
                      {"h", 3600, false},
                      {"d", 86400, false}}},
    [MCP_BYTES_PER_SECOND] =
        {"a bandwidth",
         "\"450GB/s\" or \"400Gbit/s\"",
         {{"B/s", 1, true}, {"bit/s", 0.125, true}, {"b/s", 0.125, true}, {"bps", 0.125, true}}},
    [MCP_FLOPS_PER_SECOND] = {"a compute rate",
                              "\"989TFLOP/s\" or \"1.2PFLOP/s\"",
                              {{"FLOP/s", 1, true}, {"FLOPS", 1, true}, {"FLOPs/s", 1, true}}},
    [MCP_WATTS] = {"a power", "\"700W\" or \"10.2kW\"", {{"W", 1, true}}},
    [MCP_HERTZ] = {"a frequency", "\"1980MHz\" or \"1.98GHz\"", {{"Hz", 1, true}}},
};

struct prefix {
    const char *name;
    double scale;
};

static const struct prefix prefixes[] = {
    {"k", 1e3},  {"K", 1e3},     {"M", 1e6},        {"G", 1e9},           {"T", 1e12},
    {"P", 1e15}, {"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0},
};

/* The factor of "GiB" for "B", 0 when `text` is no prefix before `unit`. */
static double unit_scale(const char *text, const struct unit *unit)
{
    if (strcmp(text, unit->name) == 0)
        return unit->scale;
    if (!unit->takes_prefix || !mcp_ends_with(text, unit->name))
        return 0;
    size_t length = strlen(text) - strlen(unit->name);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strlen(prefixes[i].name) == length && strncmp(text, prefixes[i].name, length) == 0)
            return prefixes[i].scale * unit->scale;
    return 0;
}

static double scale_of(const char *text, const struct dimension *dimension)
{
    for (const struct unit *unit = dimension->units; unit->name != NULL; unit++) {
        double scale = unit_scale(text, unit);
        if (scale > 0)
            return scale;
    }
    return 0;
}

/* Splits "80 GiB" into its number and where the unit begins. */
static bool leading_number(const char *text, double *number, const char **unit)
{
    char digits[64];
    size_t length = strspn(text, "+-.0123456789");
    if (length > 0 && (text[length] == 'e' || text[length] == 'E')) {
        size_t power = 1 + strspn(text + length + 1, "+-0123456789");
        if (power > 1)
            length += power;
    }
    if (length >= sizeof digits)
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    *unit = text + length + strspn(text + length, " ");
    return mcp_parse_double(digits, number);
}

enum mcp_status mcp_quantity_parse(const char *text, enum mcp_dimension dimension, double *value,
                                   struct mcp_error *err)
{
    const struct dimension *wanted = &dimensions[dimension];
    const char *unit;
    double number;
    if (!leading_number(text, &number, &unit))
        return mcp_fail(err, MCP_FORMAT, "'%.60s' is not %s, expected one such as %s", text,
                        wanted->noun, wanted->examples);
    if (*unit == '\0')
        return mcp_fail(err, MCP_FORMAT, "'%.60s' has no unit, expected %s such as %s", text,
                        wanted->noun, wanted->examples);
    double scale = scale_of(unit, wanted);
    if (scale <= 0)
        return mcp_fail(err, MCP_FORMAT,
                        "'%.60s' has an unknown unit '%.20s' for %s, expected one "
                        "such as %s",
                        text, unit, wanted->noun, wanted->examples);
    if (number < 0 || !isfinite(number * scale))
        return mcp_fail(err, MCP_FORMAT, "'%.60s' is %s, expected %s such as %s", text,
                        number < 0 ? "negative" : "too large", wanted->noun, wanted->examples);
    *value = number * scale;
    return MCP_OK;
}

/* --- printing --- */

/* A unit is used from `from` times its scale on. */
struct shown_unit {
    const char *name;
    double scale;
    double from;
};

static const struct shown_unit shown[][8] = {
    [MCP_BYTES] = {{"TiB", 1099511627776.0, 0.976},
                   {"GiB", 1073741824.0, 0.976},
                   {"MiB", 1048576.0, 0.976},
                   {"KiB", 1024.0, 0.976},
                   {"B", 1, 0}},
    [MCP_SECONDS] = {{"d", 86400, 2},
                     {"h", 3600, 2},
                     {"min", 60, 10},
                     {"s", 1, 0.9995},
                     {"ms", 1e-3, 0.9995},
                     {"us", 1e-6, 0.9995},
                     {"ns", 1e-9, 0}},
    [MCP_BYTES_PER_SECOND] = {{"TB/s", 1e12, 0.9995},
                              {"GB/s", 1e9, 0.9995},
                              {"MB/s", 1e6, 0.9995},
                              {"kB/s", 1e3, 0.9995},
                              {"B/s", 1, 0}},
    [MCP_FLOPS_PER_SECOND] = {{"EFLOP/s", 1e18, 0.9995},
                              {"PFLOP/s", 1e15, 0.9995},
                              {"TFLOP/s", 1e12, 0.9995},
                              {"GFLOP/s", 1e9, 0.9995},
                              {"MFLOP/s", 1e6, 0.9995},
                              {"FLOP/s", 1, 0}},
    [MCP_WATTS] = {{"MW", 1e6, 0.9995}, {"kW", 1e3, 0.9995}, {"W", 1, 0}},
    [MCP_HERTZ] = {{"GHz", 1e9, 0.9995}, {"MHz", 1e6, 0.9995}, {"Hz", 1, 0}},
};

/* Three significant digits, without exponent or bare point. */
static const char *three_digits(struct mcp_arena *arena, double value)
{
    if (value == 0)
        return "0";
    if (fabs(value) >= 999.5)
        return mcp_format(arena, "%.0f", value);
    char *text = mcp_format(arena, "%#.3g", value);
    if (mcp_ends_with(text, "."))
        text[strlen(text) - 1] = '\0';
    return text;
}

const char *mcp_show(struct mcp_arena *arena, double value, enum mcp_dimension dimension)
{
    if (isnan(value))
        return "unknown";
    const struct shown_unit *unit = shown[dimension];
    while (value != 0 ? fabs(value) < unit->from * unit->scale : unit->scale != 1)
        unit++;
    if (dimension == MCP_BYTES && unit->scale == 1)
        return mcp_format(arena, "%.0f B", value);
    return mcp_format(arena, "%s %s", three_digits(arena, value / unit->scale), unit->name);
}

const char *mcp_show_count(struct mcp_arena *arena, double value)
{
    static const struct prefix counts[] = {{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"K", 1e3}};
    if (isnan(value))
        return "unknown";
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (fabs(value) >= 0.9995 * counts[i].scale)
            return mcp_format(arena, "%s%s", three_digits(arena, value / counts[i].scale),
                              counts[i].name);
    return mcp_format(arena, "%.3g", value);
}

const char *mcp_show_integer(struct mcp_arena *arena, int64_t value)
{
    const char *digits = mcp_format(arena, "%lld", (long long)value);
    struct mcp_text text = mcp_text_new(arena);
    if (*digits == '-') {
        mcp_text_append(&text, "-", 1);
        digits++;
    }
    for (size_t left = strlen(digits); left > 0; left--, digits++) {
        mcp_text_append(&text, digits, 1);
        if (left > 1 && left % 3 == 1)
            mcp_text_append(&text, ",", 1);
    }
    return text.data;
}

/* --- arithmetic --- */

bool mcp_multiply(int64_t a, int64_t b, int64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}
