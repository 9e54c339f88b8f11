/* tests/fuzz/fuzz_csv.c: any bytes as a table. */
#include "core/csv.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err;
    struct mcp_csv csv;
    if (mcp_csv_parse(arena, "input", (const char *)data, size, &csv, &err) == MCP_OK) {
        double number;
        for (size_t row = 0; row < csv.num_rows; row++) {
            for (size_t i = 0; i < csv.num_columns; i++)
                assert(strlen(csv.cells[row * csv.num_columns + i]) <= size);
            (void)mcp_csv_double(&csv, row, csv.header[0], &number);
        }
    }
    mcp_arena_free(arena);
    return 0;
}
