/* tests/fuzz/fuzz_megatron.c: any text as Megatron's arguments: a model that can be
 * counted, or a sentence. */
#include "core/model_megatron.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_model model;
    const char *text = mcp_strndup(arena, (const char *)data, size);
    (void)mcp_is_megatron(text);
    if (mcp_model_from_megatron(arena, "input", text, &model, &err) == MCP_OK &&
        mcp_model_check(&model, &err) == MCP_OK) {
        const struct mcp_parameters parts = mcp_model_parameters(&model);
        assert(mcp_parameters_total(&parts) > 0);
    } else {
        assert(err.text[0] != '\0');
    }
    mcp_arena_free(arena);
    return 0;
}
