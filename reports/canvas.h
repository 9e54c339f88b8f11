/* reports/canvas.h: a grid of characters to draw boxes and lines on.
 *
 * Lines are box-drawing characters where UTF-8 is shown, ASCII elsewhere; text keeps
 * its own characters. What lies outside the grid is not drawn. */
#ifndef MCP_REPORTS_CANVAS_H
#define MCP_REPORTS_CANVAS_H

#include "reports/style.h"

struct mcp_canvas;

struct mcp_canvas *mcp_canvas_new(struct mcp_arena *arena, int width, int height);

void mcp_canvas_text(struct mcp_canvas *canvas, int x, int y, enum mcp_color color,
                     const char *text);
/* A frame; `title` (may be "") stands in its upper edge. */
void mcp_canvas_box(struct mcp_canvas *canvas, int x, int y, int width, int height,
                    const char *title);
/* A bold horizontal line: what joins the things below it. */
void mcp_canvas_bus(struct mcp_canvas *canvas, int x, int y, int width);
/* From the bus at (x, y) to what begins one line below. `into_box` joins its frame. */
void mcp_canvas_drop(struct mcp_canvas *canvas, int x, int y, bool into_box);

/* Appends the grid, each line without trailing blanks. */
void mcp_canvas_write(const struct mcp_canvas *canvas, const struct mcp_style *style,
                      struct mcp_text *out);

#endif
