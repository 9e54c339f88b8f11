/* exec/tokenizer.h: text to token ids, as the tokenizer.json of a model says.
 *
 * Byte pair encoding (Sennrich et al. 2016, arXiv 1508.07909) in the three shapes that
 * models of the GPT-2 and Llama kind have, with the ids that Hugging Face's tokenizers
 * gives (tests/exec/test_tokenizer.c):
 *
 *   GPT-2           bytes as characters, words by GPT-2's pattern
 *   Llama 3, Qwen 2 the same, words by theirs
 *   Llama 2         characters with spaces written U+2581, unknown ones as bytes
 *
 * and plain bytes. What a tokenizer.json asks for beyond that (dropout, Unicode
 * normalisation, other patterns) is refused, never left out. */
#ifndef MCP_EXEC_TOKENIZER_H
#define MCP_EXEC_TOKENIZER_H

#include "core/arena.h"
#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

struct mcp_tokenizer;

/* "bytes", or a tokenizer.json. Owned by the arena. MCP_FORMAT names what is not
 * understood. */
enum mcp_status mcp_tokenizer_load(struct mcp_arena *arena, const char *name_or_path,
                                   const struct mcp_tokenizer **out, struct mcp_error *err);

/* Ids are below this: 257 for bytes. */
int mcp_tokenizer_vocab_size(const struct mcp_tokenizer *tokenizer);
/* The id of a token by its text, added tokens too; -1 when there is none. */
int mcp_tokenizer_id(const struct mcp_tokenizer *tokenizer, const char *token);
/* What ends a document: 256 for bytes, else the first there is of <|endoftext|>,
 * <|end_of_text|>, </s>, <eos>; -1 when there is none. */
int mcp_tokenizer_end_of_document(const struct mcp_tokenizer *tokenizer);

/* Takes ids in order, a few thousand at a time. */
struct mcp_token_sink {
    enum mcp_status (*put)(void *context, const int32_t *ids, size_t count, struct mcp_error *err);
    void *context;
};

/* The ids of one document, with the special tokens that the tokenizer puts around one.
 * MCP_FORMAT "NAME: byte N ..." when the text is not UTF-8 (bytes take anything).
 * Scratch is O(longest word). */
enum mcp_status mcp_tokenizer_encode(const struct mcp_tokenizer *tokenizer, const char *name,
                                     const char *text, size_t length,
                                     const struct mcp_token_sink *sink, struct mcp_error *err);

#endif
