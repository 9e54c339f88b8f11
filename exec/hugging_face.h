/* exec/hugging_face.h: weights of GPT-2, Llama, Mistral, Qwen and Mixtral models as
 * Hugging Face's classes name and lay them out.
 *
 * A part of a layer (step/weights.h) is one tensor there, or several one below the other:
 * queries, keys and values; the gate and what it is multiplied with; weights and biases of
 * a norm. GPT-2's matrices are stored transposed (its Conv1D), all others as [out, in]. */
#ifndef MCP_EXEC_HUGGING_FACE_H
#define MCP_EXEC_HUGGING_FACE_H

#include "core/safetensors.h"
#include "exec/checkpoint.h"
#include "step/program.h"

enum mcp_hf_naming {
    MCP_HF_GPT2,
    MCP_HF_LLAMA,
    MCP_HF_MIXTRAL,
    MCP_HF_QWEN_MOE,
    MCP_NUM_HF_NAMINGS
};
extern const char *const mcp_hf_naming_names[MCP_NUM_HF_NAMINGS]; /* "gpt2" ... */

/* Rows [first_row, first_row + rows) of a part's whole tensor, as a tensor there. */
struct mcp_hf_tensor {
    char name[112];
    int64_t first_row, rows, columns;
    bool transposed;
};
/* The one that holds a row of a piece of layer `layer`; false when the naming has no name
 * for the part. */
bool mcp_hf_find(enum mcp_hf_naming naming, const struct mcp_layer_type *type, int layer,
                 const struct mcp_piece *piece, int64_t row, struct mcp_hf_tensor *out);

/* A model's files: a folder with model.safetensors or model.safetensors.index.json, or one
 * of these. Mapped; which naming it has is told by its names. */
struct mcp_hf_model;
enum mcp_status mcp_hf_open(struct mcp_arena *arena, const char *path,
                            const struct mcp_hf_model **out, struct mcp_error *err);
enum mcp_hf_naming mcp_hf_naming_of(const struct mcp_hf_model *model);

/* out[range->count] of weights, from fp32, bf16 or fp16. MCP_INVALID names the tensor that
 * is missing or has another shape. */
enum mcp_status mcp_hf_read(const struct mcp_hf_model *model, const struct mcp_layer_type *type,
                            int layer, const struct mcp_value_range *range, float *out,
                            struct mcp_error *err);

/* Are all tensors of the program's model in it, and of its shapes? MCP_INVALID as of
 * mcp_hf_read(). */
enum mcp_status mcp_hf_check(const struct mcp_hf_model *model, const struct mcp_program *program,
                             struct mcp_error *err);

/* The naming that has names for the program's layers: gpt2 with learned positions; with experts
 * qwen_moe where attention has norms of queries and keys, or biases, else mixtral; without
 * them llama. MCP_INVALID: it has no decoder, or a part that has no name there. */
enum mcp_status mcp_hf_naming_for(const struct mcp_program *program, enum mcp_hf_naming *out,
                                  struct mcp_error *err);

/* Replaces `path` by one safetensors file, fp32, with the weights of a checkpoint that the
 * program's model wrote; in memory there is a megabyte of it, or one tensor of GPT-2.
 * `votes`, or NULL: of the rank that writes alone. */
enum mcp_status mcp_hf_write(const char *path, enum mcp_hf_naming naming,
                             const struct mcp_program *program,
                             const struct mcp_checkpoint *checkpoint, struct mcp_votes *votes,
                             struct mcp_error *err);

#endif
