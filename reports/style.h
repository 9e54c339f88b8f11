/* reports/style.h: what the reader's terminal can show: colours, Unicode, width. */
#ifndef MCP_REPORTS_STYLE_H
#define MCP_REPORTS_STYLE_H

#include "core/text.h"

#include <stdbool.h>

struct mcp_style {
    bool color;   /* ANSI escapes are obeyed */
    bool unicode; /* UTF-8 is shown */
    int width;    /* columns */
};

enum mcp_color {
    MCP_PLAIN,
    MCP_BOLD,
    MCP_DIM,
    MCP_RED,
    MCP_GREEN,
    MCP_YELLOW,
    MCP_BLUE,
    MCP_MAGENTA,
    MCP_CYAN,
    MCP_NUM_COLORS
};

/* `text` between the escapes of `color`; `text` itself without colours. */
const char *mcp_paint(struct mcp_arena *arena, const struct mcp_style *style, enum mcp_color color,
                      const char *text);

/* A bold line of its own, with an empty line before it unless `out` is empty. */
void mcp_heading(struct mcp_text *out, const struct mcp_style *style, const char *text);

/* Terminal columns that UTF-8 text takes: escapes and combining marks none, East
 * Asian wide characters two. A byte that is not UTF-8 counts one. */
int mcp_display_width(const char *text);

/* Words of `text` on lines of at most `width` columns, each line but the first
 * after `indent` spaces; no newline at the end. Newlines in `text` are kept. */
void mcp_wrap(struct mcp_text *out, const char *text, int width, int indent);

#endif
