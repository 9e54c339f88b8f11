/* sim/network.h: transfers that share links: max-min fair rates.
 *
 * A flow at its full rate fills a part of each link it crosses (its load). All rates
 * rise together; a flow stops at its full rate, or when a link on its way is full
 * (progressive filling: Bertsekas and Gallager 1992, section 6.5.2). Two equal flows
 * on one link get half each. */
#ifndef MCP_SIM_NETWORK_H
#define MCP_SIM_NETWORK_H

#include "core/cluster.h"

/* A collective sends and receives in every tier it crosses; a message leaves by one
 * rank's port and comes in by another's. */
#define MCP_SIM_MAX_FLOW_LINKS (2 * MCP_MAX_TIERS)

struct mcp_sim_flow {
    int num_links;
    int links[MCP_SIM_MAX_FLOW_LINKS];
    double loads[MCP_SIM_MAX_FLOW_LINKS]; /* of the link, at full rate: 0 .. 1 */
    double rate;                          /* out: of the full rate, 0 .. 1 */
};

/* Sets the rates. `room` and `demand`: [links] scratch. */
void mcp_sim_share(struct mcp_sim_flow *const *flows, int count, int num_links, double *room,
                   double *demand);

#endif
