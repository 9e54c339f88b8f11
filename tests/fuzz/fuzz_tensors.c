/* tests/fuzz/fuzz_tensors.c: any bytes as safetensors, and as a file of tokens: what is
 * read can be read to its last byte, and tensors that are written come back. */
#include "core/safetensors.h"
#include "exec/tokens.h"
#include "scratch_file.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_again(struct mcp_arena *arena, const struct mcp_safetensors *file)
{
    struct mcp_safetensors again, copy = *file;
    struct mcp_error err = {""};
    char path[64];
    snprintf(path, sizeof path, "/tmp/mcp-fuzz-%ld-again", (long)getpid());
    for (int i = 0; i < file->num_tensors; i++)
        if (file->tensors[i].dtype == MCP_DTYPE_OTHER)
            return;
    copy.path = path;
    assert(mcp_safetensors_write(arena, &copy, NULL, &err) == MCP_OK);
    assert(mcp_safetensors_read(arena, path, &again, &err) == MCP_OK);
    assert(again.num_tensors == file->num_tensors && again.num_notes == file->num_notes);
    for (int i = 0; i < again.num_tensors; i++)
        assert(strcmp(again.tensors[i].name, file->tensors[i].name) == 0 &&
               again.tensors[i].bytes == file->tensors[i].bytes);
    unlink(path);
}

static unsigned sum_of(const struct mcp_tensor *tensor)
{
    unsigned sum = 0;
    for (int64_t i = 0; i < tensor->bytes; i++)
        sum += ((const unsigned char *)tensor->data)[i];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_safetensors file;
    struct mcp_token_file tokens;
    struct mcp_error err = {""};
    char path[64];
    unsigned sum = 0;
    scratch_file(path, data, size);
    if (mcp_safetensors_read(arena, path, &file, &err) == MCP_OK) {
        for (int i = 0; i < file.num_tensors; i++)
            sum += sum_of(&file.tensors[i]);
        write_again(arena, &file);
    }
    if (mcp_token_file_open(arena, path, &tokens, &err) == MCP_OK) {
        int32_t *ids = MCP_ARRAY(arena, tokens.facts.num_tokens, int32_t);
        (void)mcp_token_file_copy(&tokens, 0, tokens.facts.num_tokens, tokens.facts.vocab_size, ids,
                                  &err);
    }
    mcp_arena_free(arena);
    (void)sum;
    return 0;
}
