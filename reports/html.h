/* reports/html.h: a report as one page of HTML that needs nothing else.
 *
 * Style sheet and script (reports/page.css, reports/page.js) stand in the page; it names
 * no other address, and its policy forbids the browser to ask for one. Charts are
 * inline SVG with a title and a table of their numbers; without the script all is there
 * but zoom and hover. Same report, same bytes. */
#ifndef MCP_REPORTS_HTML_H
#define MCP_REPORTS_HTML_H

#include "reports/report.h"

void mcp_report_html(const struct mcp_report *report, struct mcp_text *out);

#endif
