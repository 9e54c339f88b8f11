/* core/safetensors.h: tensors in a file, as Hugging Face lays them out.
 *
 * The format (huggingface/safetensors, README): eight bytes N, little-endian; N bytes of
 * JSON {"NAME": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__":
 * {string: string}}, spaces may follow; then the data, row-major, little-endian. Strict
 * like its own reader: the offsets fill the data without holes or overlaps, and each
 * length is that of its shape. */
#ifndef MCP_CORE_SAFETENSORS_H
#define MCP_CORE_SAFETENSORS_H

#include "core/arena.h"
#include "core/error.h"
#include "core/file.h"
#include "core/precision.h"

#include <stdint.h>

enum { MCP_TENSOR_MAX_DIMS = 8, MCP_DTYPE_OTHER = -1 };

struct mcp_tensor {
    const char *name;
    const char *dtype_name; /* the file's: "F32", "BF16", "F16", "I32", "U8", "I64" ... */
    int dtype;              /* enum mcp_dtype, or MCP_DTYPE_OTHER: no number that we train */
    int num_dims;           /* 0: one number */
    int64_t shape[MCP_TENSOR_MAX_DIMS];
    const void *data; /* of a file that was read: not aligned, copy it out */
    int64_t bytes;
};

struct mcp_tensor_note { /* one of __metadata__ */
    const char *key;
    const char *value;
};

struct mcp_safetensors {
    const char *path;
    int num_tensors;
    struct mcp_tensor *tensors; /* sorted by name */
    int num_notes;
    struct mcp_tensor_note *notes; /* in the file's order */
};

/* Maps the file; data is read when it is looked at. MCP_FORMAT names the tensor. */
enum mcp_status mcp_safetensors_read(struct mcp_arena *arena, const char *path,
                                     struct mcp_safetensors *out, struct mcp_error *err);
/* By name, or NULL. */
const struct mcp_tensor *mcp_safetensors_find(const struct mcp_safetensors *file, const char *name);
/* The value of a note, or NULL. */
const char *mcp_safetensors_note(const struct mcp_safetensors *file, const char *key);

/* Replaces the file by one with these tensors and notes, in this order. Of a tensor
 * name, dtype (no MCP_DTYPE_OTHER), num_dims, shape and data are read. MCP_INVALID on
 * two of one name. `digest` may be NULL. */
enum mcp_status mcp_safetensors_write(struct mcp_arena *arena, const struct mcp_safetensors *file,
                                      struct mcp_file_digest *digest, struct mcp_error *err);

/* Data that is not in memory as a file has it: asked for in pieces of a megabyte or less, in
 * the order of the file. */
struct mcp_tensor_source {
    /* out[bytes]: of tensor `index` what follows its first `first` bytes. */
    enum mcp_status (*fetch)(void *context, int index, int64_t first, int64_t bytes, void *out,
                             struct mcp_error *err);
    void *context;
};
/* The same, of tensors whose data comes from the source: `data` is not read. */
enum mcp_status mcp_safetensors_stream(struct mcp_arena *arena, const struct mcp_safetensors *file,
                                       const struct mcp_tensor_source *source,
                                       struct mcp_file_digest *digest, struct mcp_error *err);

#endif
