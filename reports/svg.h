/* reports/svg.h: drawings as one SVG file that needs nothing else.
 *
 * Well-formed XML without scripts, fonts or links. Colours are classes of one style
 * sheet, which follows the reader's light or dark scheme. Same calls, same bytes. */
#ifndef MCP_REPORTS_SVG_H
#define MCP_REPORTS_SVG_H

#include "core/text.h"

enum mcp_svg_class {
    MCP_SVG_FRAME, /* a box */
    MCP_SVG_INNER, /* a box of another level */
    MCP_SVG_GPU,   /* filled */
    MCP_SVG_NIC,   /* filled otherwise */
    MCP_SVG_BUS,   /* a thick line */
    MCP_SVG_TEXT,  /* words */
    MCP_SVG_TITLE, /* bold words */
    MCP_SVG_LABEL, /* words in a filled box, centred */
    MCP_NUM_SVG_CLASSES
};

struct mcp_svg {
    struct mcp_text text;
};

/* `title` is what screen readers say. Sizes are pixels. */
struct mcp_svg mcp_svg_begin(struct mcp_arena *arena, double width, double height,
                             const char *title);
void mcp_svg_rect(struct mcp_svg *svg, enum mcp_svg_class class, double x, double y, double width,
                  double height);
void mcp_svg_line(struct mcp_svg *svg, enum mcp_svg_class class, double x1, double y1, double x2,
                  double y2);
/* (x, y) is the left end of the base line; of MCP_SVG_LABEL its middle. What XML
 * cannot hold becomes '?'. */
void mcp_svg_text(struct mcp_svg *svg, enum mcp_svg_class class, double x, double y,
                  const char *text);
/* The finished document. */
const struct mcp_text *mcp_svg_end(struct mcp_svg *svg);

#endif
