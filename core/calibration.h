/* core/calibration.h: what ops took on one machine, measured: the part of a stack that a
 * file calibration.json brings.
 *
 * A sample is one op of some size. Others of its function are priced from the nearest: the
 * time for a unit of work is averaged over the samples, weighted by the inverse fourth power
 * of their distance in octaves over all sizes (Shepard 1968), and is a sample's own at its
 * sizes. What is more than 16 times as large or small as all that was measured is taken to
 * run at the best rate seen, so that no bound from above the measured sizes is too high.
 *
 * core/ knows no functions: step/measured.h says what the sizes and the work of an op are. */
#ifndef MCP_CORE_CALIBRATION_H
#define MCP_CORE_CALIBRATION_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"

#include <stdbool.h>

enum { MCP_SAMPLE_SIZES = 5, MCP_MAX_SAMPLES = 100000 };

struct mcp_sample {
    const char *function;           /* "matmul_nt" */
    const char *dtype;              /* "f32"; "" for transfers, whose sizes are bytes */
    double sizes[MCP_SAMPLE_SIZES]; /* positive; 1 where the function has no more */
    double work;                    /* floating-point operations, or bytes; positive */
    double seconds;                 /* positive */
};

struct mcp_calibration {
    int num_samples;
    struct mcp_sample *samples; /* by function, then dtype, then sizes */
};

/* Puts the samples in their order. */
void mcp_calibration_sort(struct mcp_calibration *calibration);

/* Seconds of what `wanted` says but for its seconds; false: its function was not measured
 * at that dtype. */
bool mcp_calibration_seconds(const struct mcp_calibration *calibration,
                             const struct mcp_sample *wanted, double *seconds);

/* One sample for each size of op: what a quarter of its times stay below. Others' use of the
 * machine only ever adds to a time, and the very lowest are luck. Sorts `times`. *spread_frac:
 * medians over what is kept, less 1, all ops together. */
void mcp_calibration_reduce(struct mcp_arena *arena, struct mcp_calibration *times,
                            struct mcp_calibration *out, double *spread_frac);

/* An array of samples. MCP_FORMAT: sizes, work or seconds that are not positive numbers. */
enum mcp_status mcp_calibration_from_json(struct mcp_arena *arena, struct mcp_json *list,
                                          struct mcp_calibration *out, struct mcp_error *err);
void mcp_calibration_to_json(const struct mcp_calibration *calibration, struct mcp_json *list);

#endif
