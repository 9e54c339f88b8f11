/* reports/markdown.h: a report as Markdown: the same facts, charts as tables. */
#ifndef MCP_REPORTS_MARKDOWN_H
#define MCP_REPORTS_MARKDOWN_H

#include "reports/report.h"

void mcp_report_markdown(const struct mcp_report *report, struct mcp_text *out);

#endif
