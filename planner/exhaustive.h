/* planner/exhaustive.h: the search without any bound, to check the other with.
 *
 * Each tuple of planner/space.h, one after the other: refused by a rule of meaning or of
 * the article, or else all its uniform plans priced and its best split looked for, whatever
 * is known of other tuples. It takes nothing for granted of what makes the search quick:
 * no bound on a tuple (planner/bound.h), no family, no refutation by memory, no dominance
 * (GPipe is tried where 1F1B is), no number of integer programs after which to give up.
 *
 * So what it proves rests on step/'s prices, on the list of tuples and, unless plans are
 * asked to be uniform, on planner/split.h within one tuple: no tuple was left out. It
 * takes as many prices as there are plans: for small clusters, or narrow spaces. */
#ifndef MCP_PLANNER_EXHAUSTIVE_H
#define MCP_PLANNER_EXHAUSTIVE_H

#include "planner/search_parts.h"

/* Fills the lots, with the best of each, and the record, in which none is bounded. */
void mcp_search_all(struct mcp_search *search);

#endif
