/* tests/fuzz/fuzz_model.c: any bytes as a model: what is read can be counted, written
 * and read again equal. */
#include "core/model.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void count(const struct mcp_model *model)
{
    const struct mcp_parameters parts = mcp_model_parameters(model);
    const int64_t total = mcp_parameters_total(&parts);
    const int64_t active = mcp_model_active_parameters(model);
    assert(total > 0 && active > 0 && active <= total);
    assert(mcp_model_kv_elements_per_token(model) >= 0 && mcp_model_state_elements(model) >= 0);
    assert(mcp_model_flops_per_token_forward(model, 4096) > 0.0);
}

static void read_again(struct mcp_arena *arena, const struct mcp_model *model)
{
    struct mcp_error err = {""};
    struct mcp_model again;
    struct mcp_json *parsed;
    struct mcp_json *first = mcp_json_new_object(arena), *second = mcp_json_new_object(arena);
    mcp_model_to_json(model, first);
    const char *text = mcp_json_text(arena, first);
    assert(mcp_json_parse(arena, "text", text, strlen(text), &parsed, &err) == MCP_OK);
    assert(mcp_model_from_json(arena, parsed, &again, &err) == MCP_OK);
    mcp_model_to_json(&again, second);
    assert(strcmp(text, mcp_json_text(arena, second)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json;
    struct mcp_model model;
    size_t not_finite;
    if (mcp_json_parse_python(arena, "input", (const char *)data, size, &json, &not_finite, &err) ==
            MCP_OK &&
        mcp_model_from_json(arena, json, &model, &err) == MCP_OK) {
        count(&model);
        read_again(arena, &model);
    } else {
        assert(err.text[0] != '\0');
    }
    mcp_arena_free(arena);
    return 0;
}
