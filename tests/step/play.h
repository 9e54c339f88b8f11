/* tests/step/play.h: a reference player of programs, for tests alone.
 *
 * It knows blocks, entries and slots, not layers: it unfolds the program to every
 * rank of the world, plays the slots in integer nanoseconds and walks the lives of
 * buffers op by op. Rules it shares with mcp_estimate(): a block's price, what a
 * message costs, how much of a transfer hides beside compute; and that a value of
 * the layer above is held as long as the entry that writes or reads it. */
#ifndef TESTS_STEP_PLAY_H
#define TESTS_STEP_PLAY_H

#include "step/estimate.h"
#include "step/program.h"

struct play_result {
    int64_t step_ns;
    struct mcp_memory memory[MCP_MAX_PIPELINE]; /* of a rank of each class */
    int64_t peak_memory_bytes;
    double flops, recompute_flops;     /* executed on all ranks */
    double sent_bytes, received_bytes; /* along the pipeline, all ranks */
    int64_t earliest_end_ns[MCP_MAX_PIPELINE], latest_end_ns[MCP_MAX_PIPELINE]; /* of its ranks */
};

void play_program(struct mcp_arena *arena, const struct mcp_question *question,
                  const struct mcp_program *program, struct play_result *out);

#endif
