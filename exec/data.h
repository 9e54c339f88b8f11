/* exec/data.h: which tokens each step of training sees.
 *
 * Sequences. A file of N tokens holds floor((N - 1) / s) sequences: the i-th is tokens
 * i s .. i s + s, of which the first s are inputs and the last s are targets. Nothing is
 * padded; what is left at a file's end is not seen.
 *
 * Order. Positions 0, 1, 2 ... of training go through epochs: all n sequences of all
 * files once, then once more in another order. Step k of a run with B sequences a step
 * sees positions k B .. k B + B - 1, whichever rank reads them: no layout sees a sequence
 * twice in an epoch, and "positions seen so far" is all that a checkpoint must keep.
 * Shuffling is a permutation keyed by (seed, epoch), computed and not stored: a Feistel
 * network of four rounds (Luby and Rackoff 1988) on the least even number of bits that
 * holds n, walked until it falls below n (Black and Rogaway 2002). */
#ifndef MCP_EXEC_DATA_H
#define MCP_EXEC_DATA_H

#include "core/arena.h"
#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>

struct mcp_data_options {
    int64_t sequence_length; /* s */
    int vocab_size;          /* of the model: ids must be below it */
    uint64_t seed;
    bool in_order; /* do not shuffle */
};

struct mcp_data;

/* Files of tokens (exec/tokens.h); a folder stands for all *.tokens in it, by name.
 * MCP_INVALID when they hold no whole sequence, or were made for a larger vocabulary. */
enum mcp_status mcp_data_open(struct mcp_arena *arena, const char *const *paths, int num_paths,
                              const struct mcp_data_options *options, const struct mcp_data **out,
                              struct mcp_error *err);
/* n. */
int64_t mcp_data_sequences(const struct mcp_data *data);

/* Which of the n sequences is at a position >= 0. */
int64_t mcp_data_place(const struct mcp_data *data, int64_t position);
/* out[s + 1]: the sequence at a position. Safe from several threads. */
enum mcp_status mcp_data_sequence(const struct mcp_data *data, int64_t position, int32_t *out,
                                  struct mcp_error *err);

/* The `x`-th of a permutation of 0 .. n - 1. */
int64_t mcp_permute(uint64_t key, int64_t n, int64_t x);

#endif
