/* reports/runs_layout.h: which decoder layers each virtual stage of a run holds. */
#ifndef MCP_REPORTS_RUNS_LAYOUT_H
#define MCP_REPORTS_RUNS_LAYOUT_H

#include "core/arena.h"
#include "core/error.h"

/* Megatron's layout language, "Et*4|(t*4|)*14tmL": E embedding, t decoder layer,
 * m MTP module, L loss, | ends a virtual stage, *N repeats the item before it.
 * counts[virtual stages] decoder layers. MCP_INVALID when the text is not of
 * that language or its stages and layers are not `stages` and `layers`. */
enum mcp_status mcp_layout_parse(struct mcp_arena *arena, const char *text, int layers, int stages,
                                 int *counts, struct mcp_error *err);

/* Without a layout: equal where that is possible; embedding and head take a
 * layer's place each where layers + 2 divides; else as many as the largest must
 * have, from the front, or evenly where that would leave a middle stage empty. */
void mcp_layout_spread(int layers, int stages, int *counts);

#endif
