/* exec/tokens.h: files of token ids.
 *
 * The ids of documents one after the other, 2 bytes each when vocab_size <= 65536 and else
 * 4, little-endian; then 64 bytes that say what they are (docs/FORMATS.md). They are at
 * the end, so that a file is written once from front to back. */
#ifndef MCP_EXEC_TOKENS_H
#define MCP_EXEC_TOKENS_H

#include "core/arena.h"
#include "core/error.h"

#include <stdint.h>

struct mcp_token_facts {
    int64_t num_tokens;
    int64_t num_documents;
    int vocab_size;      /* every id is below it */
    int end_of_document; /* id of the token after each document, -1: none */
    int token_bytes;     /* 2 or 4 */
};

/* One file, mapped. The ids themselves are not looked at. */
struct mcp_token_file {
    const char *path;
    const void *ids; /* [num_tokens] of token_bytes */
    struct mcp_token_facts facts;
};
enum mcp_status mcp_token_file_open(struct mcp_arena *arena, const char *path,
                                    struct mcp_token_file *out, struct mcp_error *err);
/* out[count] = ids[first ..]; MCP_FORMAT when one is not below `vocab_size`. */
enum mcp_status mcp_token_file_copy(const struct mcp_token_file *file, int64_t first, int64_t count,
                                    int vocab_size, int32_t *out, struct mcp_error *err);

/* Files being written: `path` itself or, with shard_tokens > 0, path/00000.tokens,
 * path/00001.tokens ... of at most so many tokens each, which appear when all are finished;
 * MCP_INVALID where that folder holds such files already. Of `facts` vocab_size and end_of_document are read. */
struct mcp_token_writer;
enum mcp_status mcp_token_writer_open(struct mcp_arena *arena, const char *path,
                                      int64_t shard_tokens, const struct mcp_token_facts *facts,
                                      struct mcp_token_writer **out, struct mcp_error *err);
enum mcp_status mcp_token_writer_add(struct mcp_token_writer *writer, const int32_t *ids,
                                     size_t count, struct mcp_error *err);
/* After the last id of a document: adds end_of_document unless it is there already. */
enum mcp_status mcp_token_writer_end_document(struct mcp_token_writer *writer,
                                              struct mcp_error *err);
/* `total` is of all files, `num_files` how many there are; either may be NULL. */
enum mcp_status mcp_token_writer_finish(struct mcp_token_writer *writer,
                                        struct mcp_token_facts *total, int *num_files,
                                        struct mcp_error *err);

#endif
