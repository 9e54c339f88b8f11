/* reports/svg.c: rectangles, lines and text as SVG 1.1. */
#include "reports/svg.h"

static const char *const class_names[MCP_NUM_SVG_CLASSES] = {
    "frame", "inner", "gpu", "nic", "bus", "text", "title", "label",
};

static const char style_sheet[] =
    "<style>\n"
    "svg { background: #ffffff; }\n"
    ".frame { fill: #f6f8fa; stroke: #57606a; }\n"
    ".inner { fill: #ffffff; stroke: #8c959f; }\n"
    ".gpu { fill: #1a7f37; }\n"
    ".nic { fill: #0969da; }\n"
    ".bus { stroke: #bf8700; stroke-width: 3; }\n"
    "text { font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace;"
    " fill: #1f2328; white-space: pre; }\n"
    ".title { font-weight: bold; }\n"
    ".label { fill: #ffffff; text-anchor: middle; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "svg { background: #0d1117; }\n"
    ".frame { fill: #161b22; stroke: #8b949e; }\n"
    ".inner { fill: #0d1117; stroke: #6e7681; }\n"
    ".gpu { fill: #238636; }\n"
    ".nic { fill: #1f6feb; }\n"
    ".bus { stroke: #d29922; }\n"
    "text { fill: #e6edf3; }\n"
    ".label { fill: #ffffff; }\n"
    "}\n"
    "</style>\n";

/* Characters that mean something to XML are written as entities; control characters
 * have no way to be written, and what is no UTF-8 neither. */
static void add_escaped(struct mcp_text *out, const char *text)
{
    for (const char *at = mcp_printable(out->arena, text); *at != '\0'; at++) {
        if (mcp_starts_with(at, "\xef\xbf\xbe") || mcp_starts_with(at, "\xef\xbf\xbf")) {
            mcp_text_add(out, "?");
            at += 2;
            continue;
        }
        const char *entity = *at == '&'   ? "&amp;"
                             : *at == '<' ? "&lt;"
                             : *at == '>' ? "&gt;"
                             : *at == '"' ? "&quot;"
                                          : NULL;
        if (entity != NULL)
            mcp_text_add(out, "%s", entity);
        else
            mcp_text_append(out, at, 1);
    }
}

struct mcp_svg mcp_svg_begin(struct mcp_arena *arena, double width, double height,
                             const char *title)
{
    struct mcp_svg svg = {mcp_text_new(arena)};
    mcp_text_add(&svg.text,
                 "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
                 "viewBox=\"0 0 %g %g\" role=\"img\">\n<title>",
                 width, height, width, height);
    add_escaped(&svg.text, title);
    mcp_text_add(&svg.text, "</title>\n%s", style_sheet);
    return svg;
}

void mcp_svg_rect(struct mcp_svg *svg, enum mcp_svg_class class, double x, double y, double width,
                  double height)
{
    mcp_text_add(&svg->text,
                 "<rect class=\"%s\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" rx=\"3\"/>\n",
                 class_names[class], x, y, width, height);
}

void mcp_svg_line(struct mcp_svg *svg, enum mcp_svg_class class, double x1, double y1, double x2,
                  double y2)
{
    mcp_text_add(&svg->text, "<line class=\"%s\" x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\"/>\n",
                 class_names[class], x1, y1, x2, y2);
}

void mcp_svg_text(struct mcp_svg *svg, enum mcp_svg_class class, double x, double y,
                  const char *text)
{
    mcp_text_add(&svg->text, "<text class=\"%s\" x=\"%g\" y=\"%g\">", class_names[class], x, y);
    add_escaped(&svg->text, text);
    mcp_text_add(&svg->text, "</text>\n");
}

const struct mcp_text *mcp_svg_end(struct mcp_svg *svg)
{
    mcp_text_add(&svg->text, "</svg>\n");
    return &svg->text;
}
