/* sim/network.c: progressive filling. */
#include "sim/network.h"

static const double nothing = 1e-9; /* of a link */

/* What the flows that still rise ask of every link, per unit of rate. */
static void sum_demand(struct mcp_sim_flow *const *flows, int count, int num_links, double *demand)
{
    for (int l = 0; l < num_links; l++)
        demand[l] = 0;
    for (int f = 0; f < count; f++)
        for (int i = 0; flows[f]->rate < 0 && i < flows[f]->num_links; i++)
            demand[flows[f]->links[i]] += flows[f]->loads[i];
}

/* How far all of them can rise from `level` before a link is full, or they are. */
static double rise_of(int num_links, const double *room, const double *demand, double level)
{
    double rise = 1 - level;
    for (int l = 0; l < num_links; l++)
        if (demand[l] > nothing && room[l] / demand[l] < rise)
            rise = room[l] / demand[l];
    return rise > 0 ? rise : 0;
}

static bool meets_full_link(const struct mcp_sim_flow *flow, const double *room)
{
    for (int i = 0; i < flow->num_links; i++)
        if (flow->loads[i] > nothing && room[flow->links[i]] <= nothing)
            return true;
    return false;
}

void mcp_sim_share(struct mcp_sim_flow *const *flows, int count, int num_links, double *room,
                   double *demand)
{
    int rising = count;
    double level = 0;
    for (int l = 0; l < num_links; l++)
        room[l] = 1;
    for (int f = 0; f < count; f++)
        flows[f]->rate = -1; /* rises */
    while (rising > 0) {
        sum_demand(flows, count, num_links, demand);
        double rise = rise_of(num_links, room, demand, level);
        level += rise;
        for (int l = 0; l < num_links; l++)
            room[l] -= rise * demand[l];
        int before = rising;
        for (int f = 0; f < count; f++)
            if (flows[f]->rate < 0 && (level >= 1 - nothing || meets_full_link(flows[f], room))) {
                flows[f]->rate = level >= 1 - nothing ? 1 : level;
                rising--;
            }
        if (rising == before)
            level = 1; /* rounding left a sliver of a link: nobody uses it */
    }
}
