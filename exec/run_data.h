/* exec/run_data.h: which sequences of a file a rank of a program reads, step by step. */
#ifndef MCP_EXEC_RUN_DATA_H
#define MCP_EXEC_RUN_DATA_H

#include "exec/feed.h"
#include "exec/run.h"

struct mcp_run_source {
    const char *path; /* of a file, or a folder, of tokens */
    uint64_t seed;
    bool in_order; /* not shuffled */
};

/* What the program asks of the files. */
struct mcp_data_options mcp_run_data_options(const struct mcp_program *program,
                                             const struct mcp_run_source *source);
/* The sequences of the rank's microbatches out of each step's batch. *sequences, unless NULL,
 * is how many whole ones there are. */
enum mcp_status mcp_run_feed_open(struct mcp_arena *arena, const struct mcp_run_setting *run,
                                  const struct mcp_run_source *source, struct mcp_feed **out,
                                  int64_t *sequences, struct mcp_error *err);

#endif
