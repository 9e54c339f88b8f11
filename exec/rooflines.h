/* exec/rooflines.h: ops of a step, each timed alone on a device, beside what that device reaches
 * in a large product and in a large copy of the same run (Williams, Waterman and Patterson 2009).
 *
 * Work is step/'s: mcp_op_kernel_flops() and mcp_op_kernel_bytes(). The least time of an op is
 * the longer of its operations at the rate of the large product in its format, and its bytes at
 * the rate of the copy; its share of the roofline is that over the median of its times. What a
 * kernel writes may still be in the L2 when its time ends, so small ops can pass 1. */
#ifndef MCP_EXEC_ROOFLINES_H
#define MCP_EXEC_ROOFLINES_H

#include "core/calibration.h"
#include "core/json.h"
#include "core/text.h"
#include "step/program.h"

/* What has an aim of its own. */
enum mcp_roofline_kind {
    MCP_ROOFLINE_PRODUCT,
    MCP_ROOFLINE_MEMORY, /* all that are neither product nor attention */
    MCP_ROOFLINE_ATTENTION_FORWARD,
    MCP_ROOFLINE_ATTENTION_BACKWARD,
    MCP_NUM_ROOFLINE_KINDS
};

struct mcp_roofline_op {
    const struct mcp_op *op;
    struct mcp_sample sample; /* its sizes; ops of equal ones are one */
    double flops, bytes;
    int launches; /* of them in a step */
    double min_s, median_s;
};

struct mcp_rooflines {
    const char *device;      /* as it calls itself */
    double copy_bytes_per_s; /* read and written together; medians, as all that follow */
    double peak_flops_per_s[MCP_NUM_DTYPES]; /* 0: the program has no products in it */
    /* how it was measured */
    int64_t product_size, copy_bytes, flush_bytes;
    int repeats, warmups;
    struct mcp_roofline_op *ops;
    size_t num_ops, capacity;
};

/* The op's place among those of its sizes, a new one where there was none (launches 0); NULL: an
 * op of the host, a transfer, or of no size. */
struct mcp_roofline_op *mcp_rooflines_find(struct mcp_arena *arena, struct mcp_rooflines *rooflines,
                                           const struct mcp_program *program,
                                           const struct mcp_layer_type *type,
                                           const struct mcp_op *op);
/* Those that take most of a step first. */
void mcp_rooflines_sort(struct mcp_rooflines *rooflines);

/* Seconds that the op takes at least; 0: nothing is known of its work, or of the device. */
double mcp_roofline_least_s(const struct mcp_rooflines *rooflines,
                            const struct mcp_roofline_op *op);
/* Of all ops of the kind in a step: least time over median time; NaN: there are none. */
double mcp_roofline_frac(const struct mcp_rooflines *rooflines, enum mcp_roofline_kind kind);

/* A table, and the aims. */
void mcp_rooflines_text(const struct mcp_rooflines *rooflines, struct mcp_text *out);
struct mcp_json *mcp_rooflines_json(struct mcp_arena *arena, const struct mcp_rooflines *rooflines);

#endif
