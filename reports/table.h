/* reports/table.h: the one writer of tables; a skin decides how they look.
 *
 *     const struct mcp_column columns[] = {{"stage", "", MCP_RIGHT}, {"peak", "GiB", MCP_RIGHT}};
 *     struct mcp_table *table = mcp_table_new(arena, columns, 2);
 *     mcp_table_cell(table, "%d", stage);
 *     mcp_table_cell(table, "%.1f", peak);
 *     mcp_table_write(table, MCP_SKIN_TERMINAL, &style, &out);
 */
#ifndef MCP_REPORTS_TABLE_H
#define MCP_REPORTS_TABLE_H

#include "core/arena.h"
#include "core/text.h"
#include "reports/style.h"

#include <stddef.h>

enum mcp_align { MCP_LEFT, MCP_RIGHT };

struct mcp_column {
    const char *header;
    const char *unit; /* a second header line, "" for none */
    enum mcp_align align;
};

enum mcp_skin { MCP_SKIN_TERMINAL, MCP_SKIN_MARKDOWN };

struct mcp_table;

/* `columns` is copied; its strings are not. */
struct mcp_table *mcp_table_new(struct mcp_arena *arena, const struct mcp_column *columns,
                                int num_columns);

/* Fills rows left to right; the row's last cell ends it. */
void mcp_table_cell(struct mcp_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Fills what is left of a begun row with empty cells. */
void mcp_table_end_row(struct mcp_table *table);

/* Paints the row that holds the latest cell (the winner, a refused row). */
void mcp_table_paint_row(struct mcp_table *table, enum mcp_color color);
/* A line above the row that comes next (totals). */
void mcp_table_rule(struct mcp_table *table);

size_t mcp_table_num_rows(const struct mcp_table *table);
int mcp_table_num_columns(const struct mcp_table *table);
/* What is in it, for writers that live elsewhere. */
const struct mcp_column *mcp_table_column(const struct mcp_table *table, int column);
const char *mcp_table_text(const struct mcp_table *table, size_t row, int column);
enum mcp_color mcp_table_row_color(const struct mcp_table *table, size_t row);

/* Appends the table to `out`. A terminal's is fitted into style->width: the
 * widest left-aligned columns wrap their words. Markdown is never wrapped. */
void mcp_table_write(const struct mcp_table *table, enum mcp_skin skin,
                     const struct mcp_style *style, struct mcp_text *out);

#endif
