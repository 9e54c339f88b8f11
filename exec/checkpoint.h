/* exec/checkpoint.h: a training run on disk, whole or not there.
 *
 *   FOLDER/step-000000001200/rank-00000.safetensors ...   what each rank owns
 *                           /manifest.json                written last
 *
 * The set is whole when its manifest is there and every file has the length and CRC-32C
 * that it says. Files appear by rename. Values are kept as pieces of whole tensors
 * (exec/names.h), so another layout finds what it needs: it asks for its own pieces. All
 * values are fp32: "weights" (the master ones where weights are not), "first_moment" and
 * "second_moment"; of 1-bit Adam "error" too (exec/save_errors.h). No function here talks to
 * other ranks, but for mcp_checkpoint_newest() where it is given votes. */
#ifndef MCP_EXEC_CHECKPOINT_H
#define MCP_EXEC_CHECKPOINT_H

#include "core/file.h"
#include "core/safetensors.h"
#include "core/text.h"
#include "exec/names.h"
#include "exec/votes.h"

enum mcp_value_kind {
    MCP_VALUE_WEIGHTS,
    MCP_VALUE_FIRST_MOMENT,
    MCP_VALUE_SECOND_MOMENT,
    MCP_VALUE_ERROR,
    MCP_NUM_VALUE_KINDS
};
extern const char *const mcp_value_kind_names[MCP_NUM_VALUE_KINDS];

/* What all ranks agree on. */
struct mcp_checkpoint_state {
    int64_t step;           /* steps done: the next one is this */
    int64_t sequences_seen; /* where data goes on (exec/data.h) */
    uint64_t seed;
    int64_t updates, variance_updates; /* steps that went into first, and second moments */
    double loss_scale;                 /* 0: the run stores no fp16 */
    int64_t steps_since_skip;          /* of the dynamic loss scale */
    int64_t data_sequences;            /* that the data have: an epoch; 0: unknown */
};

/* Elements [begin, begin + count) of a piece's rectangle, row-major. */
struct mcp_value_range {
    enum mcp_value_kind kind;
    const struct mcp_piece *piece;
    int64_t begin, count;
};
struct mcp_checkpoint_part {
    struct mcp_value_range range;
    const void *data; /* [range.count] of fp32, for the source to find it by */
};
/* What a rank's file is made of. */
struct mcp_checkpoint_parts {
    struct mcp_checkpoint_part *items;
    int count;
    const struct mcp_tensor_source *source; /* of each item's data; NULL: in host memory */
};

/* One rank's file of a checkpoint. */
struct mcp_checkpoint_file {
    const char *folder;
    int64_t step;
    int rank;
};

/* The folder is this process's until the arena is freed; it is made if it is not there, and
 * goes again if nothing is in it then. MCP_IO where another run has it. */
enum mcp_status mcp_checkpoint_lock(struct mcp_arena *arena, const char *folder,
                                    struct mcp_error *err);

/* Writing, in this order. 1: rank 0 alone, before any other. An unfinished or finished
 * checkpoint of that step is removed. */
enum mcp_status mcp_checkpoint_begin(struct mcp_arena *arena, const char *folder, int64_t step,
                                     struct mcp_error *err);
/* 2: every rank. */
enum mcp_status mcp_checkpoint_write(struct mcp_arena *arena,
                                     const struct mcp_checkpoint_file *file,
                                     const struct mcp_checkpoint_parts *parts,
                                     struct mcp_file_digest *digest, struct mcp_error *err);
/* 3: rank 0 alone, with the digests of all `world` files, once all ranks have theirs. */
enum mcp_status mcp_checkpoint_commit(struct mcp_arena *arena, const char *folder,
                                      const struct mcp_checkpoint_state *state, int world,
                                      const struct mcp_file_digest *digests, struct mcp_error *err);
/* 4: rank 0 alone: leaves the newest `keep` finished ones, and what is newer than them. */
enum mcp_status mcp_checkpoint_prune(struct mcp_arena *arena, const char *folder, int keep,
                                     struct mcp_error *err);

/* Reading. */
struct mcp_checkpoint;
/* Of one step. With `checksums` every byte is read; without, lengths are compared.
 * MCP_FORMAT names the file that is damaged, MCP_IO one that is not there. */
enum mcp_status mcp_checkpoint_open(struct mcp_arena *arena, const char *folder, int64_t step,
                                    bool checksums, const struct mcp_checkpoint **out,
                                    struct mcp_error *err);
/* The newest step whose manifest is written; -1: none, or no folder. */
int64_t mcp_checkpoint_finished(struct mcp_arena *arena, const char *folder);
/* The newest that is whole by its checksums. `passed_over` gets a sentence of newer ones
 * that are not, and why. *out is NULL when none was ever finished, or there is no folder;
 * MCP_FORMAT when those that were are all damaged. `votes`, or NULL: of the rank that reads
 * them alone. */
enum mcp_status mcp_checkpoint_newest(struct mcp_arena *arena, const char *folder,
                                      struct mcp_votes *votes, const struct mcp_checkpoint **out,
                                      struct mcp_text *passed_over, struct mcp_error *err);
struct mcp_checkpoint_state mcp_checkpoint_state(const struct mcp_checkpoint *checkpoint);

/* Is there anything of the tensor in it? */
bool mcp_checkpoint_has(const struct mcp_checkpoint *checkpoint, enum mcp_value_kind kind,
                        const struct mcp_piece *piece);
/* out[range->count]. MCP_INVALID when the checkpoint has no such tensor, another shape of
 * it, or not all of it. */
enum mcp_status mcp_checkpoint_read(const struct mcp_checkpoint *checkpoint,
                                    const struct mcp_value_range *range, float *out,
                                    struct mcp_error *err);

#endif
