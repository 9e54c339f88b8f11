/* reports/canvas.c: cells that are text or pieces of lines. */
#include "reports/canvas.h"

#include <string.h>

enum { CELL_BYTES = 8 };

enum glyph {
    GLYPH_NONE, /* the cell holds text */
    GLYPH_HORIZONTAL,
    GLYPH_VERTICAL,
    GLYPH_TOP_LEFT,
    GLYPH_TOP_RIGHT,
    GLYPH_BOTTOM_LEFT,
    GLYPH_BOTTOM_RIGHT,
    GLYPH_BUS,
    GLYPH_DROP,
    GLYPH_JOINT,
    NUM_GLYPHS
};

static const char *const unicode[NUM_GLYPHS] = {
    "",
    "\xe2\x94\x80", /* ─ */
    "\xe2\x94\x82", /* │ */
    "\xe2\x94\x8c", /* ┌ */
    "\xe2\x94\x90", /* ┐ */
    "\xe2\x94\x94", /* └ */
    "\xe2\x94\x98", /* ┘ */
    "\xe2\x94\x81", /* ━ */
    "\xe2\x94\xaf", /* ┯ */
    "\xe2\x94\xb4", /* ┴ */
};
static const char *const ascii[NUM_GLYPHS] = {"", "-", "|", "+", "+", "+", "+", "=", "#", "+"};

struct cell {
    char text[CELL_BYTES]; /* one character; "" after a wide one */
    enum glyph glyph;
    enum mcp_color color;
};

struct mcp_canvas {
    struct mcp_arena *arena;
    int width, height;
    struct cell *cells; /* [height, width] */
};

struct mcp_canvas *mcp_canvas_new(struct mcp_arena *arena, int width, int height)
{
    struct mcp_canvas *canvas = MCP_NEW(arena, struct mcp_canvas);
    *canvas = (struct mcp_canvas){arena, width, height, NULL};
    canvas->cells = MCP_ARRAY(arena, width * height, struct cell);
    for (int i = 0; i < width * height; i++)
        canvas->cells[i] = (struct cell){" ", GLYPH_NONE, MCP_PLAIN};
    return canvas;
}

static void put(struct mcp_canvas *canvas, int x, int y, struct cell cell)
{
    if (x >= 0 && x < canvas->width && y >= 0 && y < canvas->height)
        canvas->cells[y * canvas->width + x] = cell;
}

static void put_glyph(struct mcp_canvas *canvas, int x, int y, enum glyph glyph)
{
    put(canvas, x, y, (struct cell){"", glyph, MCP_PLAIN});
}

/* Bytes of the UTF-8 character that begins here. */
static size_t character_length(const char *text)
{
    size_t length = 1;
    while (length + 1 < CELL_BYTES && ((unsigned char)text[length] & 0xC0) == 0x80)
        length++;
    return length;
}

void mcp_canvas_text(struct mcp_canvas *canvas, int x, int y, enum mcp_color color,
                     const char *text)
{
    while (*text != '\0') {
        size_t length = character_length(text);
        struct cell cell = {"", GLYPH_NONE, color};
        memcpy(cell.text, text, length);
        int width = mcp_display_width(cell.text);
        put(canvas, x, y, cell);
        for (int i = 1; i < width; i++)
            put(canvas, x + i, y, (struct cell){"", GLYPH_NONE, color});
        x += width;
        text += length;
    }
}

void mcp_canvas_box(struct mcp_canvas *canvas, int x, int y, int width, int height,
                    const char *title)
{
    int right = x + width - 1, bottom = y + height - 1;
    for (int i = x + 1; i < right; i++) {
        put_glyph(canvas, i, y, GLYPH_HORIZONTAL);
        put_glyph(canvas, i, bottom, GLYPH_HORIZONTAL);
    }
    for (int i = y + 1; i < bottom; i++) {
        put_glyph(canvas, x, i, GLYPH_VERTICAL);
        put_glyph(canvas, right, i, GLYPH_VERTICAL);
    }
    put_glyph(canvas, x, y, GLYPH_TOP_LEFT);
    put_glyph(canvas, right, y, GLYPH_TOP_RIGHT);
    put_glyph(canvas, x, bottom, GLYPH_BOTTOM_LEFT);
    put_glyph(canvas, right, bottom, GLYPH_BOTTOM_RIGHT);
    if (*title == '\0')
        return;
    const char *padded = mcp_format(canvas->arena, " %s ", title);
    mcp_canvas_text(canvas, x + 2, y, MCP_BOLD, padded);
}

void mcp_canvas_bus(struct mcp_canvas *canvas, int x, int y, int width)
{
    for (int i = 0; i < width; i++)
        put_glyph(canvas, x + i, y, GLYPH_BUS);
}

void mcp_canvas_drop(struct mcp_canvas *canvas, int x, int y, bool into_box)
{
    put_glyph(canvas, x, y, GLYPH_DROP);
    if (into_box)
        put_glyph(canvas, x, y + 1, GLYPH_JOINT);
}

static void write_cell(const struct mcp_canvas *canvas, const struct mcp_style *style,
                       const struct cell *cell, struct mcp_text *line)
{
    const char *const *glyphs = style->unicode ? unicode : ascii;
    const char *text = cell->glyph != GLYPH_NONE ? glyphs[cell->glyph] : cell->text;
    bool blank = cell->glyph == GLYPH_NONE && mcp_same(text, " ");
    mcp_text_add(line, "%s", blank ? text : mcp_paint(canvas->arena, style, cell->color, text));
}

void mcp_canvas_write(const struct mcp_canvas *canvas, const struct mcp_style *style,
                      struct mcp_text *out)
{
    for (int y = 0; y < canvas->height; y++) {
        struct mcp_text line = mcp_text_new(canvas->arena);
        for (int x = 0; x < canvas->width; x++)
            write_cell(canvas, style, &canvas->cells[y * canvas->width + x], &line);
        size_t length = line.length;
        while (length > 0 && line.data[length - 1] == ' ')
            length--;
        mcp_text_append(out, line.data, length);
        mcp_text_add(out, "\n");
    }
}
