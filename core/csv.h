/* core/csv.h: RFC 4180 tables with a header row.
 *
 * Quoted fields, CRLF and a BOM are understood. Rows of another length than the
 * header, unclosed quotes, NUL bytes and more than 4096 columns are refused with the
 * line. */
#ifndef MCP_CORE_CSV_H
#define MCP_CORE_CSV_H

#include "core/arena.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>

#define MCP_CSV_MAX_COLUMNS 4096

struct mcp_csv {
    const char *path;
    size_t num_columns;
    size_t num_rows;
    const char **header; /* [num_columns] */
    const char **cells;  /* [num_rows][num_columns] */
    int *lines;          /* [num_rows] line in the file where the row begins */
};

enum mcp_status mcp_csv_read(struct mcp_arena *arena, const char *path, struct mcp_csv *out,
                             struct mcp_error *err);
enum mcp_status mcp_csv_parse(struct mcp_arena *arena, const char *name, const char *text,
                              size_t length, struct mcp_csv *out, struct mcp_error *err);

/* The cell, "" when the column does not exist. */
const char *mcp_csv_cell(const struct mcp_csv *csv, size_t row, const char *column);
bool mcp_csv_has_column(const struct mcp_csv *csv, const char *column);

/* False, leaving *out, when the cell is empty or not a number. */
bool mcp_csv_double(const struct mcp_csv *csv, size_t row, const char *column, double *out);

#endif
