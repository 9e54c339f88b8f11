/* reports/table.c: columns measured, then rows laid out by a skin. */
#include "reports/table.h"

#include "core/minmax.h"

#include <stdarg.h>
#include <string.h>

enum { COLUMN_GAP = 2, INDENT = 2, MIN_WRAPPED_WIDTH = 16, MIN_BROKEN_WIDTH = 10 };

struct row {
    enum mcp_color color;
    bool rule_above;
};

struct mcp_table {
    struct mcp_arena *arena;
    int num_columns;
    struct mcp_column *columns;
    const char **cells; /* [rows][num_columns] */
    size_t num_cells, cell_capacity;
    struct row *rows; /* one more than begun: a rule may precede its row */
    size_t row_capacity;
};

struct mcp_table *mcp_table_new(struct mcp_arena *arena, const struct mcp_column *columns,
                                int num_columns)
{
    struct mcp_table *table = MCP_NEW(arena, struct mcp_table);
    table->arena = arena;
    table->num_columns = num_columns;
    table->columns = MCP_ARRAY(arena, num_columns, struct mcp_column);
    memcpy(table->columns, columns, (size_t)num_columns * sizeof *columns);
    return table;
}

size_t mcp_table_num_rows(const struct mcp_table *table)
{
    size_t width = (size_t)table->num_columns;
    return (table->num_cells + width - 1) / width;
}

/* The row's record, made when it is first spoken of. */
static struct row *row_at(struct mcp_table *table, size_t index)
{
    table->rows =
        mcp_grow(table->arena, table->rows, index, &table->row_capacity, sizeof *table->rows);
    return &table->rows[index];
}

void mcp_table_cell(struct mcp_table *table, const char *format, ...)
{
    (void)row_at(table, table->num_cells / (size_t)table->num_columns);
    table->cells = mcp_grow(table->arena, table->cells, table->num_cells, &table->cell_capacity,
                            sizeof *table->cells);
    va_list args;
    va_start(args, format);
    table->cells[table->num_cells++] = mcp_vformat(table->arena, format, args);
    va_end(args);
}

void mcp_table_end_row(struct mcp_table *table)
{
    while (table->num_cells % (size_t)table->num_columns != 0)
        mcp_table_cell(table, "%s", "");
}

void mcp_table_paint_row(struct mcp_table *table, enum mcp_color color)
{
    size_t rows = mcp_table_num_rows(table);
    if (rows > 0)
        row_at(table, rows - 1)->color = color;
}

void mcp_table_rule(struct mcp_table *table)
{
    row_at(table, mcp_table_num_rows(table))->rule_above = true;
}

static const char *cell_at(const struct mcp_table *table, size_t row, int column)
{
    size_t index = row * (size_t)table->num_columns + (size_t)column;
    return index < table->num_cells ? table->cells[index] : "";
}

int mcp_table_num_columns(const struct mcp_table *table)
{
    return table->num_columns;
}

const struct mcp_column *mcp_table_column(const struct mcp_table *table, int column)
{
    return &table->columns[column];
}

const char *mcp_table_text(const struct mcp_table *table, size_t row, int column)
{
    return cell_at(table, row, column);
}

enum mcp_color mcp_table_row_color(const struct mcp_table *table, size_t row)
{
    return table->rows[row].color;
}

static int column_width(const struct mcp_table *table, int column)
{
    const struct mcp_column *head = &table->columns[column];
    int width = mcp_max_int(mcp_display_width(head->header), mcp_display_width(head->unit));
    for (size_t row = 0; row < mcp_table_num_rows(table); row++)
        width = mcp_max_int(width, mcp_display_width(cell_at(table, row, column)));
    return width;
}

/* A table being written. */
struct sheet {
    const struct mcp_table *table;
    const struct mcp_style *style;
    struct mcp_text *out;
    int *widths; /* [num_columns] */
    int *least;  /* [num_columns] width that keeps words, or their pieces, whole */
    int total;   /* of a line, without the indent */
};

/* A word's first piece, with the sign after which it may be broken. */
static size_t piece_length(const char *word, size_t length)
{
    size_t piece = strcspn(word, "-_/");
    return piece < length ? piece + 1 : length;
}

/* The longest word, or where they may be broken the longest piece of one. */
static int longest_word(struct mcp_arena *arena, const char *text, bool broken)
{
    int longest = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, " \n");
        if (broken)
            length = piece_length(text, length);
        longest = mcp_max_int(longest, mcp_display_width(mcp_strndup(arena, text, length)));
        text += length + (text[length] == ' ' || text[length] == '\n');
    }
    return longest;
}

static int least_width(const struct mcp_table *table, int column, bool broken)
{
    const struct mcp_column *head = &table->columns[column];
    int width = mcp_max_int(mcp_display_width(head->header), mcp_display_width(head->unit));
    width = mcp_max_int(width, broken ? MIN_BROKEN_WIDTH : MIN_WRAPPED_WIDTH);
    for (size_t row = 0; row < mcp_table_num_rows(table); row++)
        width = mcp_max_int(width, longest_word(table->arena, cell_at(table, row, column), broken));
    return width;
}

/* The widest left-aligned column that may still wrap, or -1. */
static int column_to_narrow(const struct sheet *sheet)
{
    int widest = -1;
    for (int i = 0; i < sheet->table->num_columns; i++) {
        if (sheet->table->columns[i].align == MCP_LEFT && sheet->widths[i] > sheet->least[i] &&
            (widest < 0 || sheet->widths[i] > sheet->widths[widest]))
            widest = i;
    }
    return widest;
}

/* Narrows columns of words as far as the terminal demands, the widest first. */
static void fit(struct sheet *sheet, bool broken)
{
    int column;
    for (int i = 0; i < sheet->table->num_columns; i++)
        sheet->least[i] = least_width(sheet->table, i, broken);
    while (sheet->total + INDENT > sheet->style->width && (column = column_to_narrow(sheet)) >= 0) {
        sheet->widths[column]--;
        sheet->total--;
    }
}

static struct sheet measure(const struct mcp_table *table, const struct mcp_style *style,
                            struct mcp_text *out)
{
    struct sheet sheet = {.table = table, .style = style, .out = out};
    sheet.widths = MCP_ARRAY(table->arena, table->num_columns, int);
    sheet.least = MCP_ARRAY(table->arena, table->num_columns, int);
    for (int i = 0; i < table->num_columns; i++) {
        sheet.widths[i] = column_width(table, i);
        sheet.total += sheet.widths[i] + (i > 0 ? COLUMN_GAP : 0);
    }
    fit(&sheet, false);
    fit(&sheet, true);
    return sheet;
}

/* Appends `text` in its column; spaces that end a line are held back in *pending. */
static void put_cell(struct sheet *sheet, int column, const char *text, enum mcp_color color,
                     int *pending)
{
    int pad = mcp_max_int(0, sheet->widths[column] - mcp_display_width(text));
    bool right = sheet->table->columns[column].align == MCP_RIGHT;
    int before = *pending + (column > 0 ? COLUMN_GAP : INDENT) + (right ? pad : 0);
    *pending = right ? 0 : pad;
    if (*text == '\0') {
        *pending += before;
        return;
    }
    mcp_text_add(sheet->out, "%*s%s", before, "",
                 mcp_paint(sheet->table->arena, sheet->style, color, text));
}

static void put_rule(struct sheet *sheet)
{
    struct mcp_text line = mcp_text_new(sheet->table->arena);
    for (int i = 0; i < sheet->total; i++)
        mcp_text_add(&line, "%s", sheet->style->unicode ? "─" : "-");
    mcp_text_add(sheet->out, "%*s%s\n", INDENT, "",
                 mcp_paint(sheet->table->arena, sheet->style, MCP_DIM, line.data));
}

static void put_header(struct sheet *sheet)
{
    const struct mcp_table *table = sheet->table;
    bool has_unit = false;
    int pending = 0;
    for (int i = 0; i < table->num_columns; i++) {
        put_cell(sheet, i, table->columns[i].header, MCP_BOLD, &pending);
        has_unit = has_unit || *table->columns[i].unit != '\0';
    }
    mcp_text_add(sheet->out, "\n");
    pending = 0;
    for (int i = 0; has_unit && i < table->num_columns; i++)
        put_cell(sheet, i, table->columns[i].unit, MCP_DIM, &pending);
    mcp_text_add(sheet->out, has_unit ? "\n" : "");
    put_rule(sheet);
}

/* Cuts the first line off *text. */
static const char *take_line(struct mcp_arena *arena, const char **text)
{
    size_t length = strcspn(*text, "\n");
    const char *line = mcp_strndup(arena, *text, length);
    *text += length + ((*text)[length] == '\n');
    return line;
}

/* Breaks words that are wider than `width`, behind a sign in them. */
static const char *break_words(struct mcp_arena *arena, const char *text, int width)
{
    struct mcp_text out = mcp_text_new(arena);
    while (*text != '\0') {
        size_t length = strcspn(text, " \n"), taken = 0;
        bool whole = mcp_display_width(mcp_strndup(arena, text, length)) <= width;
        while (!whole && taken < length) {
            size_t next = taken + piece_length(text + taken, length - taken);
            if (taken > 0 && mcp_display_width(mcp_strndup(arena, text, next)) > width)
                break;
            taken = next;
        }
        length = whole ? length : taken;
        mcp_text_append(&out, text, length);
        text += length;
        if (*text == ' ' || *text == '\n')
            mcp_text_append(&out, text++, 1);
        else if (*text != '\0')
            mcp_text_append(&out, "\n", 1);
    }
    return out.data;
}

static const char *wrapped(const struct sheet *sheet, size_t row, int column)
{
    const char *cell = cell_at(sheet->table, row, column);
    if (mcp_display_width(cell) <= sheet->widths[column])
        return cell;
    struct mcp_text lines = mcp_text_new(sheet->table->arena);
    mcp_wrap(&lines, break_words(sheet->table->arena, cell, sheet->widths[column]),
             sheet->widths[column], 0);
    return lines.data;
}

static void put_row(struct sheet *sheet, size_t row)
{
    const struct mcp_table *table = sheet->table;
    const char **rest = MCP_ARRAY(table->arena, table->num_columns, const char *);
    for (int i = 0; i < table->num_columns; i++)
        rest[i] = wrapped(sheet, row, i);
    bool more = true;
    while (more) {
        int pending = 0;
        more = false;
        for (int i = 0; i < table->num_columns; i++) {
            put_cell(sheet, i, take_line(table->arena, &rest[i]), table->rows[row].color, &pending);
            more = more || *rest[i] != '\0';
        }
        mcp_text_add(sheet->out, "\n");
    }
}

static void write_terminal(const struct mcp_table *table, const struct mcp_style *style,
                           struct mcp_text *out)
{
    struct sheet sheet = measure(table, style, out);
    put_header(&sheet);
    for (size_t row = 0; row < mcp_table_num_rows(table); row++) {
        if (table->rows[row].rule_above)
            put_rule(&sheet);
        put_row(&sheet, row);
    }
}

/* "|" and newlines would end a Markdown cell. */
static void put_markdown(struct mcp_text *out, const char *text, bool strong)
{
    const char *stars = strong && *text != '\0' ? "**" : "";
    mcp_text_add(out, " %s", stars);
    for (; *text != '\0'; text++) {
        if (*text == '|')
            mcp_text_append(out, "\\", 1);
        mcp_text_append(out, *text == '\n' ? " " : text, 1);
    }
    mcp_text_add(out, "%s |", stars);
}

static void write_markdown(const struct mcp_table *table, struct mcp_text *out)
{
    mcp_text_add(out, "|");
    for (int i = 0; i < table->num_columns; i++) {
        const struct mcp_column *head = &table->columns[i];
        const char *header = head->header;
        if (*head->unit != '\0')
            header = mcp_format(table->arena, "%s (%s)", header, head->unit);
        put_markdown(out, header, false);
    }
    mcp_text_add(out, "\n|");
    for (int i = 0; i < table->num_columns; i++)
        mcp_text_add(out, table->columns[i].align == MCP_RIGHT ? "---:|" : "---|");
    for (size_t row = 0; row < mcp_table_num_rows(table); row++) {
        mcp_text_add(out, "\n|");
        for (int i = 0; i < table->num_columns; i++)
            put_markdown(out, cell_at(table, row, i), table->rows[row].color == MCP_BOLD);
    }
    mcp_text_add(out, "\n");
}

void mcp_table_write(const struct mcp_table *table, enum mcp_skin skin,
                     const struct mcp_style *style, struct mcp_text *out)
{
    if (skin == MCP_SKIN_MARKDOWN)
        write_markdown(table, out);
    else
        write_terminal(table, style, out);
}
