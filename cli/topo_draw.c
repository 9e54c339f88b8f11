/* cli/topo_draw.c: boxes laid out in rows, then drawn as characters or as SVG. */
#include "cli/topo_picture.h"
#include "core/minmax.h"
#include "reports/canvas.h"
#include "reports/svg.h"

#include <string.h>

enum { BORDER = 2, LEAST_INNER = 12, SVG_WIDTH = 100, CELL_X = 8, CELL_Y = 20, MARGIN = 12 };

const char *mcp_part_name(struct mcp_arena *arena, const char *name)
{
    enum { MOST_BYTES = 48 };
    const char *printable = mcp_printable(arena, name);
    size_t length = strlen(printable);
    if (length <= MOST_BYTES)
        return printable;
    length = MOST_BYTES;
    while (length > 0 && ((unsigned char)printable[length] & 0xC0) == 0x80)
        length--; /* not within a character */
    return mcp_format(arena, "%.*s...", (int)length, printable);
}

struct mcp_part *mcp_part_new(struct mcp_arena *arena, enum mcp_part_kind kind, const char *title)
{
    struct mcp_part *part = MCP_NEW(arena, struct mcp_part);
    *part = (struct mcp_part){.kind = kind, .title = title};
    return part;
}

void mcp_part_add(struct mcp_part *part, struct mcp_part *child)
{
    if (part->first == NULL)
        part->first = child;
    else
        part->last->next = child;
    part->last = child;
}

/* Layout ---------------------------------------------------------------------- */

/* Boxes side by side are equally high. */
static void level_row(struct mcp_part *first, int y, int height)
{
    for (struct mcp_part *child = first; child != NULL; child = child->next)
        if (child->y == y && child->kind == MCP_PART_BOX)
            child->height = height;
}

static void lay_out(struct mcp_part *part, int width);

/* Rows of parts from line `y`, each of one kind and below a line for the bus; returns the
 * line after. */
static int lay_rows(struct mcp_part *part, int inner, int y, int *widest)
{
    const struct mcp_part *before = NULL;
    int x = 0, height = 0, bus = part->bus != NULL;
    y += bus;
    for (struct mcp_part *child = part->first; child != NULL; child = child->next) {
        lay_out(child, inner);
        bool other =
            before != NULL && (child->is_apart != before->is_apart ||
                               (child->kind != before->kind && child->kind != MCP_PART_MORE));
        before = child;
        if (x > 0 && (other || x + child->width > inner)) {
            level_row(part->first, y, height);
            y += height + (child->kind == MCP_PART_MORE || child->is_apart ? 0 : bus);
            x = height = 0;
        }
        child->x = BORDER + x;
        child->y = y;
        x += child->width + 1;
        height = mcp_max_int(height, child->height);
        *widest = mcp_max_int(*widest, x - 1);
    }
    level_row(part->first, y, height);
    return y + height;
}

static void lay_out(struct mcp_part *part, int width)
{
    int inner = mcp_max_int(width - 2 * BORDER, LEAST_INNER);
    int widest = mcp_display_width(part->title) + 2, y = 1;
    if (part->kind != MCP_PART_BOX) {
        part->width = widest - (part->kind == MCP_PART_MORE ? 2 : 0);
        part->height = 1;
        return;
    }
    if (part->bus != NULL) {
        widest = mcp_max_int(widest, mcp_display_width(part->bus));
        y++;
    }
    y = lay_rows(part, inner, y, &widest);
    if (part->detail != NULL) {
        widest = mcp_max_int(widest, mcp_display_width(part->detail));
        y++;
    }
    part->width = widest + 2 * BORDER;
    part->height = y + 1;
}

/* The row of `first`: where its bus ends. */
static int row_end(const struct mcp_part *first)
{
    int end = 0;
    for (const struct mcp_part *child = first; child != NULL && child->y == first->y;
         child = child->next)
        end = child->x + child->width;
    return end;
}

static bool begins_row(const struct mcp_part *child)
{
    return child->x == BORDER;
}

/* Words that found no room beside the boxes are below no bus. */
static bool is_joined(const struct mcp_part *part, const struct mcp_part *child)
{
    return part->bus != NULL && !child->is_apart &&
           !(begins_row(child) && child->kind == MCP_PART_MORE);
}

/* Text ------------------------------------------------------------------------ */

/* Into the middle of the child, beside the title where that is in the way. */
static void draw_drop(struct mcp_canvas *canvas, const struct mcp_part *part,
                      const struct mcp_part *child, int x, int y)
{
    int at = child->width / 2, title = mcp_display_width(child->title) + 4;
    bool is_box = child->kind == MCP_PART_BOX;
    if (!is_joined(part, child))
        return;
    if (is_box && at < title)
        at = title < child->width - 1 ? title : 1;
    mcp_canvas_drop(canvas, x + child->x + at, y + child->y - 1, is_box && at != 1);
}

static void draw(struct mcp_canvas *canvas, const struct mcp_part *part, int x, int y,
                 struct mcp_arena *arena)
{
    static const enum mcp_color colors[] = {
        [MCP_PART_BOX] = MCP_PLAIN, [MCP_PART_GPU] = MCP_GREEN, [MCP_PART_NIC] = MCP_CYAN,
        [MCP_PART_CORE] = MCP_BLUE, [MCP_PART_MORE] = MCP_DIM,
    };
    if (part->kind != MCP_PART_BOX) {
        const char *text =
            part->kind == MCP_PART_MORE ? part->title : mcp_format(arena, "[%s]", part->title);
        mcp_canvas_text(canvas, x, y, colors[part->kind], text);
        return;
    }
    mcp_canvas_box(canvas, x, y, part->width, part->height, part->title);
    if (part->bus != NULL)
        mcp_canvas_text(canvas, x + BORDER, y + 1, MCP_YELLOW, part->bus);
    if (part->detail != NULL)
        mcp_canvas_text(canvas, x + BORDER, y + part->height - 2, MCP_DIM, part->detail);
    for (const struct mcp_part *child = part->first; child != NULL; child = child->next) {
        if (begins_row(child) && is_joined(part, child))
            mcp_canvas_bus(canvas, x + child->x, y + child->y - 1, row_end(child) - child->x);
        draw(canvas, child, x + child->x, y + child->y, arena);
        draw_drop(canvas, part, child, x, y);
    }
}

void mcp_picture_text(struct mcp_part *part, const struct mcp_style *style, struct mcp_text *out)
{
    lay_out(part, style->width);
    struct mcp_canvas *canvas = mcp_canvas_new(out->arena, part->width, part->height);
    draw(canvas, part, 0, 0, out->arena);
    mcp_canvas_write(canvas, style, out);
}

/* SVG ------------------------------------------------------------------------- */

static void draw_label(struct mcp_svg *svg, const struct mcp_part *part, double x, double y)
{
    double width = part->width * CELL_X;
    if (part->kind == MCP_PART_MORE) {
        mcp_svg_text(svg, MCP_SVG_TEXT, x, y + 14, part->title);
        return;
    }
    mcp_svg_rect(svg, part->kind == MCP_PART_GPU ? MCP_SVG_GPU : MCP_SVG_NIC, x + 1, y + 1,
                 width - 2, CELL_Y - 2);
    mcp_svg_text(svg, MCP_SVG_LABEL, x + width / 2, y + 14, part->title);
}

static void draw_svg(struct mcp_svg *svg, const struct mcp_part *part, double x, double y,
                     int depth)
{
    if (part->kind != MCP_PART_BOX) {
        draw_label(svg, part, x, y);
        return;
    }
    mcp_svg_rect(svg, depth % 2 == 0 ? MCP_SVG_FRAME : MCP_SVG_INNER, x + 2, y + 3,
                 part->width * CELL_X - 4, part->height * CELL_Y - 6);
    mcp_svg_text(svg, MCP_SVG_TITLE, x + BORDER * CELL_X, y + 17, part->title);
    if (part->bus != NULL)
        mcp_svg_text(svg, MCP_SVG_TEXT, x + BORDER * CELL_X, y + CELL_Y + 15, part->bus);
    if (part->detail != NULL)
        mcp_svg_text(svg, MCP_SVG_TEXT, x + BORDER * CELL_X, y + (part->height - 1) * CELL_Y - 7,
                     part->detail);
    for (const struct mcp_part *child = part->first; child != NULL; child = child->next) {
        double left = x + child->x * CELL_X, top = y + child->y * CELL_Y, bus = top - 9;
        double middle = left + child->width * CELL_X / 2.0;
        if (begins_row(child) && is_joined(part, child))
            mcp_svg_line(svg, MCP_SVG_BUS, left, bus, x + row_end(child) * CELL_X, bus);
        if (is_joined(part, child))
            mcp_svg_line(svg, MCP_SVG_BUS, middle, bus, middle, top + 3);
        draw_svg(svg, child, left, top, depth + 1);
    }
}

const struct mcp_text *mcp_picture_svg(struct mcp_arena *arena, struct mcp_part *const *parts,
                                       int count, const char *title)
{
    int width = 0, height = 0;
    for (int i = 0; i < count; i++) {
        lay_out(parts[i], SVG_WIDTH);
        width = mcp_max_int(width, parts[i]->width);
        parts[i]->y = height;
        height += parts[i]->height;
    }
    struct mcp_svg svg =
        mcp_svg_begin(arena, width * CELL_X + 2 * MARGIN, height * CELL_Y + 2 * MARGIN, title);
    for (int i = 0; i < count; i++)
        draw_svg(&svg, parts[i], MARGIN, MARGIN + parts[i]->y * CELL_Y, 0);
    struct mcp_text *text = MCP_NEW(arena, struct mcp_text);
    *text = *mcp_svg_end(&svg);
    return text;
}
