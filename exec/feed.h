/* exec/feed.h: the sequences of the next step, read while this one trains.
 *
 * A thread copies what a rank will read of the next step's batch; how long the rank had to
 * wait for it is a metric of the run. */
#ifndef MCP_EXEC_FEED_H
#define MCP_EXEC_FEED_H

#include "exec/data.h"

struct mcp_feed;

/* A step has `batch` sequences; this rank will ask for those at `indices`, each below
 * `batch`. */
struct mcp_feed_options {
    int64_t sequence_length, batch;
    const int64_t *indices; /* [count]; copied */
    int64_t count;
};
/* The arena stops the thread; it must be freed before `data`'s files are. */
enum mcp_status mcp_feed_open(struct mcp_arena *arena, const struct mcp_data *data,
                              const struct mcp_feed_options *options, struct mcp_feed **out,
                              struct mcp_error *err);

/* The batch at positions `first` .. first + batch - 1 from now on; begins to read the one
 * after it. Adds the seconds waited to *wait_s. Fails with what reading failed with. */
enum mcp_status mcp_feed_step(struct mcp_feed *feed, int64_t first, double *wait_s,
                              struct mcp_error *err);

/* ids[sequence_length + 1] of sequence `index` of the batch; NULL for one that was not
 * announced. `context` is the feed: the signature is struct mcp_batch's. */
const int32_t *mcp_feed_sequence(void *context, int64_t index);

#endif
