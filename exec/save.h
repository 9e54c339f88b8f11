/* exec/save.h: all of a run's ranks to a checkpoint and back. */
#ifndef MCP_EXEC_SAVE_H
#define MCP_EXEC_SAVE_H

#include "exec/checkpoint.h"
#include "exec/hugging_face.h"
#include "exec/interpret.h"
#include "exec/votes.h"

/* A rank with its memory; what mcp_interpreter_new() was given. */
struct mcp_saved_rank {
    const struct mcp_interpreter *interpreter;
    const struct mcp_rank *rank;
    const struct mcp_backend_calls *calls;
    struct mcp_backend *backend;
    struct mcp_votes *votes; /* NULL: alone */
};

/* Writes this rank's file of the checkpoint of `step`, a megabyte at a time. */
enum mcp_status mcp_save_rank(const struct mcp_saved_rank *saved, const char *folder, int64_t step,
                              struct mcp_file_digest *digest, struct mcp_error *err);

/* All of a checkpoint; every rank calls it, between steps. Either it is whole on return,
 * and only it and the one before are left, or every rank fails: with its own reason, or
 * naming the rank that has one. */
enum mcp_status mcp_save_run(const struct mcp_saved_rank *saved, const char *folder,
                             const struct mcp_checkpoint_state *state, struct mcp_error *err);

/* Gives this rank's weights and optimizer states the values of a checkpoint, whatever
 * layout wrote it. Rows that pad the vocabulary stay as they are. */
enum mcp_status mcp_load_rank(const struct mcp_saved_rank *saved,
                              const struct mcp_checkpoint *checkpoint, struct mcp_error *err);

/* Gives this rank the weights of a model of Hugging Face's, and states of no steps. */
enum mcp_status mcp_load_hugging_face(const struct mcp_saved_rank *saved,
                                      const struct mcp_hf_model *model, struct mcp_error *err);

/* Opens the newest whole checkpoint on every rank: rank 0 reads all checksums, the others
 * follow it. *out is NULL, and nothing fails, when `folder` has none or is not there. On
 * rank 0 `passed_over` gets a sentence of newer ones that are not whole. */
enum mcp_status mcp_load_newest(struct mcp_arena *arena, const struct mcp_saved_rank *saved,
                                const char *folder, const struct mcp_checkpoint **out,
                                struct mcp_text *passed_over, struct mcp_error *err);

#endif
