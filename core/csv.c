/* core/csv.c: RFC 4180 tables with a header row. */
#include "core/csv.h"

#include "core/text.h"

#include <string.h>

struct reader {
    struct mcp_arena *arena;
    struct mcp_error *err;
    const char *path;
    const char *at;
    const char *end;
    int line;
};

/* Cells of one line, and whether they begin one of several. */
struct cells {
    const char **list;
    size_t count;
    size_t capacity;
};

static enum mcp_status fail(const struct reader *in, int line, const char *problem)
{
    return mcp_fail(in->err, MCP_FORMAT, "%s: line %d: %s", in->path, line, problem);
}

static bool at_line_end(const struct reader *in)
{
    return in->at == in->end || *in->at == '\n' ||
           (*in->at == '\r' && in->end - in->at > 1 && in->at[1] == '\n');
}

static void skip_line_end(struct reader *in)
{
    if (in->at == in->end)
        return;
    in->at += *in->at == '\r' ? 2 : 1;
    in->line++;
}

static enum mcp_status read_quoted(struct reader *in, const char **out)
{
    int first_line = in->line;
    struct mcp_text cell = mcp_text_new(in->arena);
    for (in->at++; in->at < in->end; in->at++) {
        bool quote = *in->at == '"';
        if (quote && (in->end - in->at < 2 || in->at[1] != '"'))
            break;
        in->at += quote; /* two stand for one */
        in->line += *in->at == '\n';
        mcp_text_append(&cell, in->at, 1);
    }
    if (in->at == in->end)
        return fail(in, first_line, "quote without an end");
    in->at++;
    if (!at_line_end(in) && *in->at != ',')
        return fail(in, in->line, "text after a closing quote");
    *out = cell.data;
    return MCP_OK;
}

static enum mcp_status read_cell(struct reader *in, const char **out)
{
    if (in->at < in->end && *in->at == '"')
        return read_quoted(in, out);
    const char *begin = in->at;
    while (!at_line_end(in) && *in->at != ',')
        in->at++;
    *out = mcp_strndup(in->arena, begin, (size_t)(in->at - begin));
    return MCP_OK;
}

static enum mcp_status read_row(struct reader *in, struct cells *cells)
{
    for (;;) {
        cells->list = (const char **)mcp_grow(in->arena, (void *)cells->list, cells->count,
                                              &cells->capacity, sizeof *cells->list);
        MCP_TRY(read_cell(in, &cells->list[cells->count]));
        cells->count++;
        if (at_line_end(in))
            break;
        in->at++; /* the comma */
    }
    skip_line_end(in);
    return MCP_OK;
}

/* Blank lines separate nothing in a table. */
static void skip_blank_lines(struct reader *in)
{
    while (in->at < in->end && at_line_end(in))
        skip_line_end(in);
}

static enum mcp_status read_header(struct reader *in, struct mcp_csv *out)
{
    struct cells cells = {0};
    skip_blank_lines(in);
    int line = in->line;
    if (in->at == in->end)
        return mcp_fail(in->err, MCP_FORMAT, "%s: empty, expected a header row", in->path);
    MCP_TRY(read_row(in, &cells));
    if (cells.count > MCP_CSV_MAX_COLUMNS)
        return fail(in, line,
                    mcp_format(in->arena, "%zu columns, at most %d are read", cells.count,
                               MCP_CSV_MAX_COLUMNS));
    for (size_t i = 0; i < cells.count; i++)
        for (size_t j = 0; j < i; j++)
            if (mcp_same(cells.list[i], cells.list[j]))
                return fail(in, line,
                            mcp_format(in->arena, "column '%.100s' appears twice",
                                       mcp_printable(in->arena, cells.list[i])));
    out->header = cells.list;
    out->num_columns = cells.count;
    return MCP_OK;
}

static enum mcp_status read_rows(struct reader *in, struct mcp_csv *out)
{
    struct cells cells = {0};
    size_t capacity = 0;
    for (skip_blank_lines(in); in->at < in->end; skip_blank_lines(in)) {
        size_t before = cells.count;
        int line = in->line;
        MCP_TRY(read_row(in, &cells));
        if (cells.count - before != out->num_columns)
            return fail(in, line,
                        mcp_format(in->arena, "%zu cells, expected %zu as in the header (row %zu)",
                                   cells.count - before, out->num_columns, out->num_rows + 1));
        out->lines =
            (int *)mcp_grow(in->arena, out->lines, out->num_rows, &capacity, sizeof *out->lines);
        out->lines[out->num_rows++] = line;
    }
    out->cells = cells.list;
    return MCP_OK;
}

static enum mcp_status refuse_nul(struct reader *in)
{
    int line = 1;
    for (const char *c = in->at; c < in->end; c++) {
        if (*c == '\0')
            return fail(in, line, "NUL byte");
        line += *c == '\n';
    }
    return MCP_OK;
}

enum mcp_status mcp_csv_parse(struct mcp_arena *arena, const char *name, const char *text,
                              size_t length, struct mcp_csv *out, struct mcp_error *err)
{
    struct reader in = {arena, err, mcp_strdup(arena, name), text, text + length, 1};
    *out = (struct mcp_csv){.path = in.path};
    if (length > MCP_MAX_FILE_BYTES)
        return mcp_fail(err, MCP_FORMAT, "%s: larger than 256 MiB", name);
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        in.at += 3;
    MCP_TRY(refuse_nul(&in));
    MCP_TRY(read_header(&in, out));
    return read_rows(&in, out);
}

enum mcp_status mcp_csv_read(struct mcp_arena *arena, const char *path, struct mcp_csv *out,
                             struct mcp_error *err)
{
    struct mcp_text text;
    MCP_TRY(mcp_file_read(arena, path, MCP_MAX_FILE_BYTES, &text, err));
    return mcp_csv_parse(arena, mcp_same(path, "-") ? "standard input" : path, text.data,
                         text.length, out, err);
}

/* num_columns when there is none of that name. */
static size_t find_column(const struct mcp_csv *csv, const char *column)
{
    size_t i = 0;
    while (i < csv->num_columns && !mcp_same(csv->header[i], column))
        i++;
    return i;
}

bool mcp_csv_has_column(const struct mcp_csv *csv, const char *column)
{
    return find_column(csv, column) < csv->num_columns;
}

const char *mcp_csv_cell(const struct mcp_csv *csv, size_t row, const char *column)
{
    size_t i = find_column(csv, column);
    return i < csv->num_columns && row < csv->num_rows ? csv->cells[row * csv->num_columns + i]
                                                       : "";
}

bool mcp_csv_double(const struct mcp_csv *csv, size_t row, const char *column, double *out)
{
    return mcp_parse_double(mcp_csv_cell(csv, row, column), out);
}
