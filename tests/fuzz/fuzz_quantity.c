/* tests/fuzz/fuzz_quantity.c: any text as a quantity of each dimension. */
#include "core/units.h"

#include <assert.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *text = mcp_strndup(arena, (const char *)data, size);
    for (int dimension = MCP_BYTES; dimension <= MCP_HERTZ; dimension++) {
        struct mcp_error err;
        double value;
        if (mcp_quantity_parse(text, (enum mcp_dimension)dimension, &value, &err) == MCP_OK) {
            assert(isfinite(value) && value >= 0);
            (void)mcp_show(arena, value, (enum mcp_dimension)dimension);
        }
    }
    mcp_arena_free(arena);
    return 0;
}
