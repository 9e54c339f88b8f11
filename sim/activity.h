/* sim/activity.h: what is under way, and when each of it ends. Private to sim/.
 *
 * An activity takes its fixed time, then its shared time, longer where the links it
 * uses are shared; then the same for each further phase. Those that end at the same
 * nanosecond do so by class, then in the order in which they were started. */
#ifndef MCP_SIM_ACTIVITY_H
#define MCP_SIM_ACTIVITY_H

#include "core/arena.h"
#include "sim/blocks.h"
#include "sim/network.h"

enum mcp_sim_activity_kind {
    MCP_SIM_OP,
    MCP_SIM_BLOCK, /* all ops of a block, while nobody contends for their links */
    MCP_SIM_DATA,
    MCP_SIM_NEAR, /* the part of a message that keeps its sender busy */
    MCP_SIM_FAR,  /* the part that does not */
    MCP_SIM_TIMER
};

struct mcp_sim_activity {
    enum mcp_sim_activity_kind kind;
    int class, index;
    int64_t fixed_ns, shared_ns;
    int64_t sent_ns; /* messages: when it was begun */
    struct mcp_sim_flow flow;
    int num_more; /* phases that follow, of collectives */
    const struct mcp_sim_phase *more;
    /* the list's own */
    int64_t start_ns, last_ns, end_ns;
    uint64_t number;
    bool sharing;
    double left_ns;
};

/* A collective: in and out of the class's own ports, phase by phase (1 or more), which
 * must live as long as the activity. */
void mcp_sim_use_ports(struct mcp_sim_activity *activity, const struct mcp_sim_phase *phases,
                       int num_phases);
/* A message: out of its own, into the peer's. */
void mcp_sim_use_route(struct mcp_sim_activity *activity, const struct mcp_sim_shape *shape,
                       int peer);

/* Whose port a flow's link is, and in which tier. */
static inline int mcp_sim_link_class(int link)
{
    return link / (2 * MCP_MAX_TIERS);
}
static inline int mcp_sim_link_tier(int link)
{
    return link / 2 % MCP_MAX_TIERS;
}

struct mcp_sim_activities;
struct mcp_sim_activities *mcp_sim_activities_new(struct mcp_arena *arena, int num_classes,
                                                  bool shared_links);
/* Back to time 0; nothing may be under way. */
void mcp_sim_activities_restart(struct mcp_sim_activities *all);
int64_t mcp_sim_now(const struct mcp_sim_activities *all);
void mcp_sim_start(struct mcp_sim_activities *all, const struct mcp_sim_activity *activity);
/* One that has been under way for elapsed_ns, with its links to itself. */
void mcp_sim_resume(struct mcp_sim_activities *all, const struct mcp_sim_activity *activity,
                    int64_t elapsed_ns);
/* Takes the class's block, which must be under way, out before its end. */
void mcp_sim_drop_block(struct mcp_sim_activities *all, int class);
/* The next one that ends, taken out; time is then its end. False when none is left. */
bool mcp_sim_next(struct mcp_sim_activities *all, struct mcp_sim_activity *out);

#endif
