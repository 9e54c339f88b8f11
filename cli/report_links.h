/* cli/report_links.h: what a step asks of links, in reports.
 *
 * The step is played op by op. Each transfer keeps its rank's port in a tier busy for as
 * long as step/price_parts.h says it would at full rate; that is laid over the time for
 * which the op was played, or, where a part of it was hidden, back from its end. */
#ifndef MCP_CLI_REPORT_LINKS_H
#define MCP_CLI_REPORT_LINKS_H

#include "reports/report.h"
#include "step/legal.h"
#include "step/program.h"

/* Bars by tier, traffic over the step for each tier that carries some, and a table. Nothing for
 * one rank. Of clusters with several kinds of machines: a sentence. */
void mcp_report_step_links(struct mcp_report *report, const struct mcp_question *question,
                           const struct mcp_program *program);

#endif
