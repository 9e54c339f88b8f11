/* tests/fuzz/fuzz_json.c: any bytes as JSON: parsed, read, written and parsed again. */
#include "core/json.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(struct mcp_json *json)
{
    static const char *const names[] = {"bf16", "fp8"};
    struct mcp_error err;
    const char *text;
    int64_t whole;
    double number;
    int choice;
    (void)mcp_json_int64(json, "a", &whole, &err);
    (void)mcp_json_quantity(json, "b", MCP_BYTES, &number, &err);
    (void)mcp_json_choice(json, "c", names, 2, &choice, &err);
    (void)mcp_json_as_string(json, &text, &err);
    for (size_t i = 0; i < mcp_json_count(json); i++)
        read_all(mcp_json_at(json, i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err;
    struct mcp_json *json, *again;
    if (mcp_json_parse(arena, "input", (const char *)data, size, &json, &err) == MCP_OK) {
        const char *text = mcp_json_text(arena, json);
        read_all(json);
        (void)mcp_json_ignored(arena, json);
        (void)mcp_json_done(json, &err);
        assert(mcp_json_parse(arena, "text", text, strlen(text), &again, &err) == MCP_OK);
        assert(strcmp(text, mcp_json_text(arena, again)) == 0);
    }
    mcp_arena_free(arena);
    return 0;
}
