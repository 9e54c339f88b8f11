/* tests/fuzz/fuzz_tokenizer.c: any bytes as a tokenizer.json, a NUL, and a text: what is
 * understood gives ids below its vocabulary. */
#include "exec/tokenizer.h"
#include "scratch_file.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum mcp_status check_ids(void *context, const int32_t *ids, size_t count,
                                 struct mcp_error *err)
{
    const int *vocab_size = context;
    (void)err;
    for (size_t i = 0; i < count; i++)
        assert(ids[i] >= 0 && ids[i] < *vocab_size);
    return MCP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_tokenizer *tokenizer;
    struct mcp_error err = {""};
    const uint8_t *nul = memchr(data, 0, size);
    const size_t length = nul != NULL ? (size_t)(nul - data) : size;
    const char *text = nul != NULL ? (const char *)nul + 1 : "";
    char path[64];
    scratch_file(path, data, length);
    if (mcp_tokenizer_load(arena, path, &tokenizer, &err) == MCP_OK) {
        int vocab_size = mcp_tokenizer_vocab_size(tokenizer);
        const struct mcp_token_sink sink = {check_ids, &vocab_size};
        (void)mcp_tokenizer_encode(tokenizer, "text", text, nul != NULL ? size - length - 1 : 0,
                                   &sink, &err);
    }
    mcp_arena_free(arena);
    return 0;
}
