/* tests/topologies/corpus.c: other people's files in MCP_SHARED/corpus. */
#include "tests/topologies/corpus.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>

bool corpus_open(struct mcp_arena *arena, const char *name, struct corpus *out)
{
    struct mcp_error err = {""};
    const char *shared = getenv("MCP_SHARED");
    out->arena = arena;
    out->folder = mcp_format(arena, "%s/corpus/%s", shared != NULL ? shared : "../shared", name);
    if (mcp_csv_read(arena, mcp_format(arena, "%s/index.csv", out->folder), &out->index, &err) ==
        MCP_OK)
        return true;
    fprintf(stderr, "no corpus: %s\n", err.text);
    return false;
}

const char *corpus_cell(const struct corpus *corpus, size_t row, const char *column)
{
    cr_assert(mcp_csv_has_column(&corpus->index, column), "no column %s", column);
    return mcp_csv_cell(&corpus->index, row, column);
}

int corpus_int(const struct corpus *corpus, size_t row, const char *column)
{
    int64_t value;
    return mcp_parse_int64(corpus_cell(corpus, row, column), &value) ? (int)value : -1;
}

struct mcp_text corpus_text(const struct corpus *corpus, size_t row)
{
    struct mcp_error err = {""};
    struct mcp_text text;
    const char *path =
        mcp_format(corpus->arena, "%s/%s", corpus->folder, corpus_cell(corpus, row, "file"));
    cr_assert(eq(int, (int)mcp_file_read(corpus->arena, path, 1 << 24, &text, &err), MCP_OK), "%s",
              err.text);
    return text;
}

enum mcp_status corpus_read(const struct corpus *corpus, size_t row, struct mcp_dump *out,
                            struct mcp_error *err)
{
    struct mcp_text text = corpus_text(corpus, row);
    err->text[0] = '\0';
    return mcp_dump_parse(corpus->arena, corpus_cell(corpus, row, "file"), text.data, text.length,
                          out, err);
}
