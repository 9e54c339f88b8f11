/* core/units.h: quantities people write ("80GiB", "400Gbit/s", "2us") and how we
 * print them.
 *
 * Decimal (k, M, G, T, P) and binary (Ki, Mi, Gi, Ti) prefixes; a unit is
 * required and must have the dimension asked for. */
#ifndef MCP_CORE_UNITS_H
#define MCP_CORE_UNITS_H

#include "core/arena.h"
#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>

enum mcp_dimension {
    MCP_BYTES,            /* B, kB, KiB, MB, MiB, GB, GiB, TB ... */
    MCP_SECONDS,          /* s, ms, us, ns, min, h, d */
    MCP_BYTES_PER_SECOND, /* GB/s, GiB/s, Gbit/s, Gb/s (bits) ... */
    MCP_FLOPS_PER_SECOND, /* TFLOP/s, PFLOP/s ... */
    MCP_WATTS,            /* W, kW, MW */
    MCP_HERTZ             /* Hz, MHz, GHz */
};

/* The value in the base unit. MCP_FORMAT, naming the text and the units that
 * are understood, when it is not a finite non-negative quantity of `dimension`. */
enum mcp_status mcp_quantity_parse(const char *text, enum mcp_dimension dimension, double *value,
                                   struct mcp_error *err);

/* Short text for people, three significant digits: "79.6 GiB", "1.24 s",
 * "450 GB/s", "989 TFLOP/s". Bytes print in binary prefixes. */
const char *mcp_show(struct mcp_arena *arena, double value, enum mcp_dimension dimension);

/* Counts for people. */
const char *mcp_show_count(struct mcp_arena *arena, double value);    /* "70.6B", "15.2M" */
const char *mcp_show_integer(struct mcp_arena *arena, int64_t value); /* "1,024" */

/* a x b, or false when it does not fit. */
bool mcp_multiply(int64_t a, int64_t b, int64_t *product);

#endif
