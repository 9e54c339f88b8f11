/* exec/events.h: event files that TensorBoard reads.
 *
 * A file of records (TensorFlow's TFRecord): length, masked CRC-32C of it, payload, masked
 * CRC-32C of that; a payload is an Event of tensorflow/core/util/event.proto: a wall time,
 * a step, and named values, each a number or a histogram. No dependency: some twenty
 * fields are written by hand. */
#ifndef MCP_EXEC_EVENTS_H
#define MCP_EXEC_EVENTS_H

#include "core/arena.h"
#include "core/error.h"

#include <stdint.h>

/* How many values lie where, by magnitude: two buckets for each power of two from 2^-48
 * to 2^16 and beyond, for each sign, and one between. All fields are sums but min and max, so
 * ranks' add up. */
enum { MCP_HISTOGRAM_SIDE = 128, MCP_HISTOGRAM_BUCKETS = 2 * MCP_HISTOGRAM_SIDE + 1 };
struct mcp_histogram {
    double min, max;
    double count, sum, sum_squares;
    double buckets[MCP_HISTOGRAM_BUCKETS]; /* from the most negative to the largest */
};
struct mcp_histogram mcp_histogram_new(void);
/* Values that are not finite are left out. */
void mcp_histogram_add(struct mcp_histogram *histogram, const float *values, int64_t count);
/* Of all that either has seen, in the first. */
void mcp_histogram_merge(struct mcp_histogram *histogram, const struct mcp_histogram *other);
/* The upper edge of a bucket. */
double mcp_histogram_limit(int bucket);

/* FOLDER/events.out.tfevents.SECONDS.mcpplan, created; the folder too. Times are seconds
 * since 1970 and come from the caller. */
struct mcp_events;
enum mcp_status mcp_events_open(struct mcp_arena *arena, const char *folder, double wall_s,
                                struct mcp_events **out, struct mcp_error *err);
/* Values of one step are gathered and go out with mcp_events_flush(), as one record. */
void mcp_events_scalar(struct mcp_events *events, const char *tag, double value);
void mcp_events_histogram(struct mcp_events *events, const char *tag,
                          const struct mcp_histogram *histogram);
enum mcp_status mcp_events_flush(struct mcp_events *events, double wall_s, int64_t step,
                                 struct mcp_error *err);

#endif
