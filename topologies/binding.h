/* topologies/binding.h: which of a machine's cores each of its ranks runs on.
 *
 * Ranks that lie beside each other in the plan get cores beside each other: a tensor group
 * shares caches and memory. Where there are not enough cores no rank is bound, as two that
 * are bound to one core would wait for each other while another core is idle. */
#ifndef MCP_TOPOLOGIES_BINDING_H
#define MCP_TOPOLOGIES_BINDING_H

#include "topologies/hwloc.h"

struct mcp_binding {
    int first, count; /* of the cores that may be used; count 0: none of its own */
};

/* Threads of a rank where nobody says how many: the cores of each, at least 1. */
int mcp_binding_threads(int num_cores, int num_ranks);

/* Of the `index`-th of the machine's ranks, in the order of their places in the plan: as many
 * cores as threads, from the beginning of its share of all. */
struct mcp_binding mcp_binding_of(int num_cores, int num_ranks, int threads, int index);

/* Why ranks have no cores of their own; NULL: they have. */
const char *mcp_binding_lack(struct mcp_arena *arena, const struct mcp_host_cores *cores,
                             int num_ranks, int threads);

#endif
