/* sim/activity.c: a list per class, and the rates of those that share links. */
#include "sim/activity.h"

#include <math.h>
#include <string.h>

struct list {
    struct mcp_sim_activity *items;
    int count;
    size_t capacity;
    int next; /* index of the first to end; -1: none */
    int64_t next_ns;
};

struct mcp_sim_activities {
    struct mcp_arena *arena;
    bool shared_links;
    int num_classes, num_links;
    int64_t now_ns;
    uint64_t started;
    struct list *lists;
    double *load;          /* [links] of the flows under way, at full rates */
    double *room, *demand; /* [links] scratch */
};

static int link_of(int class, int tier, bool inwards)
{
    return (class * MCP_MAX_TIERS + tier) * 2 + inwards;
}

static void add_link(struct mcp_sim_flow *flow, int link, double load)
{
    flow->links[flow->num_links] = link;
    flow->loads[flow->num_links++] = load;
}

void mcp_sim_use_route(struct mcp_sim_activity *activity, const struct mcp_sim_shape *shape,
                       int peer)
{
    for (int tier = 0; tier < MCP_MAX_TIERS; tier++) {
        if (shape->loads[tier] <= 0)
            continue;
        add_link(&activity->flow, link_of(activity->class, tier, false), shape->loads[tier]);
        add_link(&activity->flow, link_of(peer, tier, true), shape->loads[tier]);
    }
}

void mcp_sim_use_ports(struct mcp_sim_activity *activity, const struct mcp_sim_phase *phases,
                       int num_phases)
{
    activity->fixed_ns = phases->fixed_ns;
    activity->shared_ns = phases->shared_ns;
    activity->flow.num_links = 0;
    activity->more = phases + 1;
    activity->num_more = num_phases - 1;
    mcp_sim_use_route(activity, &phases->shape, activity->class);
}

struct mcp_sim_activities *mcp_sim_activities_new(struct mcp_arena *arena, int num_classes,
                                                  bool shared_links)
{
    struct mcp_sim_activities *all = MCP_NEW(arena, struct mcp_sim_activities);
    all->arena = arena;
    all->shared_links = shared_links;
    all->num_classes = num_classes;
    all->num_links = num_classes * MCP_MAX_TIERS * 2;
    all->lists = MCP_ARRAY(arena, num_classes, struct list);
    all->load = MCP_ARRAY(arena, all->num_links, double);
    all->room = MCP_ARRAY(arena, all->num_links, double);
    all->demand = MCP_ARRAY(arena, all->num_links, double);
    for (int c = 0; c < num_classes; c++)
        all->lists[c].next = -1;
    return all;
}

void mcp_sim_activities_restart(struct mcp_sim_activities *all)
{
    all->now_ns = 0;
    for (int l = 0; l < all->num_links; l++)
        all->load[l] = 0; /* no rounding is left over */
}

int64_t mcp_sim_now(const struct mcp_sim_activities *all)
{
    return all->now_ns;
}

static bool ends_before(const struct mcp_sim_activity *a, const struct mcp_sim_activity *b)
{
    return a->end_ns != b->end_ns ? a->end_ns < b->end_ns : a->number < b->number;
}

static void find_next(struct list *list)
{
    list->next = list->count > 0 ? 0 : -1;
    for (int i = 1; i < list->count; i++)
        if (ends_before(&list->items[i], &list->items[list->next]))
            list->next = i;
    if (list->next >= 0)
        list->next_ns = list->items[list->next].end_ns;
}

/* --- shared links --- */

static void set_rate(struct mcp_sim_activities *all, struct mcp_sim_activity *activity,
                     double old_rate)
{
    double done = (double)(all->now_ns - activity->last_ns) * old_rate;
    activity->left_ns = fmax(0, activity->left_ns - done);
    activity->last_ns = all->now_ns;
    activity->end_ns = all->now_ns + llround(activity->left_ns / activity->flow.rate);
}

/* Those that share, by class and place. */
static int list_flows(struct mcp_sim_activities *all, struct mcp_sim_flow **flows)
{
    int count = 0;
    for (int c = 0; c < all->num_classes; c++)
        for (int i = 0; i < all->lists[c].count; i++)
            if (all->lists[c].items[i].sharing)
                flows[count++] = &all->lists[c].items[i].flow;
    return count;
}

static void share_again(struct mcp_sim_activities *all)
{
    int active = 0;
    for (int c = 0; c < all->num_classes; c++)
        active += all->lists[c].count;
    struct mcp_mark mark = mcp_arena_mark(all->arena);
    struct mcp_sim_flow **flows = MCP_ARRAY(all->arena, active, struct mcp_sim_flow *);
    double *rates = MCP_ARRAY(all->arena, active, double);
    int count = list_flows(all, flows);
    for (int f = 0; f < count; f++)
        rates[f] = flows[f]->rate;
    mcp_sim_share(flows, count, all->num_links, all->room, all->demand);
    for (int c = 0, f = 0; c < all->num_classes; c++) {
        for (int i = 0; i < all->lists[c].count; i++) {
            struct mcp_sim_activity *activity = &all->lists[c].items[i];
            if (!activity->sharing)
                continue;
            if (fabs(rates[f] - activity->flow.rate) > 1e-12)
                set_rate(all, activity, rates[f]);
            f++;
        }
        find_next(&all->lists[c]);
    }
    mcp_arena_rewind(all->arena, mark);
}

/* Adds the flow's loads times `sign`; says whether a link of it is asked for more than
 * it has, before or after. */
static bool change_load(struct mcp_sim_activities *all, const struct mcp_sim_flow *flow, int sign)
{
    bool contended = false;
    for (int i = 0; i < flow->num_links; i++) {
        double *load = &all->load[flow->links[i]];
        contended = contended || *load > MCP_SIM_FULL_LINK;
        *load += sign * flow->loads[i];
        contended = contended || *load > MCP_SIM_FULL_LINK;
    }
    return contended;
}

static void begin_sharing(struct mcp_sim_activities *all, struct mcp_sim_activity *activity)
{
    activity->sharing = all->shared_links && activity->flow.num_links > 0;
    activity->left_ns = (double)activity->shared_ns;
    activity->last_ns = all->now_ns;
    activity->end_ns = all->now_ns + activity->shared_ns;
    activity->shared_ns = 0;
    activity->flow.rate = 1;
    struct list *list = &all->lists[activity->class];
    if (activity->sharing && change_load(all, &activity->flow, 1))
        share_again(all);
    find_next(list);
}

/* Gives its links back. The list's first to end is not looked for. */
static void end_sharing(struct mcp_sim_activities *all, const struct mcp_sim_activity *activity)
{
    if (activity->sharing && change_load(all, &activity->flow, -1))
        share_again(all);
}

/* --- --- */

static void begin_phase(struct mcp_sim_activities *all, struct mcp_sim_activity *activity)
{
    const struct mcp_sim_activity ended = *activity;
    activity->sharing = false;
    mcp_sim_use_ports(activity, ended.more, ended.num_more);
    activity->end_ns = all->now_ns + activity->fixed_ns;
    end_sharing(all, &ended);
    find_next(&all->lists[activity->class]);
}

static struct mcp_sim_activity *add(struct mcp_sim_activities *all,
                                    const struct mcp_sim_activity *activity)
{
    struct list *list = &all->lists[activity->class];
    list->items = mcp_grow(all->arena, list->items, (size_t)list->count, &list->capacity,
                           sizeof *list->items);
    struct mcp_sim_activity *item = &list->items[list->count++];
    *item = *activity;
    item->start_ns = all->now_ns;
    item->end_ns = all->now_ns + item->fixed_ns;
    item->number = all->started++;
    return item;
}

void mcp_sim_start(struct mcp_sim_activities *all, const struct mcp_sim_activity *activity)
{
    add(all, activity);
    find_next(&all->lists[activity->class]);
}

void mcp_sim_resume(struct mcp_sim_activities *all, const struct mcp_sim_activity *activity,
                    int64_t elapsed_ns)
{
    struct mcp_sim_activity *item = add(all, activity);
    item->start_ns -= elapsed_ns;
    while (elapsed_ns >= item->fixed_ns + item->shared_ns && item->num_more > 0) {
        elapsed_ns -= item->fixed_ns + item->shared_ns;
        mcp_sim_use_ports(item, item->more, item->num_more);
    }
    item->end_ns = all->now_ns + item->fixed_ns - elapsed_ns;
    if (elapsed_ns >= item->fixed_ns && item->shared_ns > 0) {
        item->shared_ns -= elapsed_ns - item->fixed_ns;
        begin_sharing(all, item);
    }
    find_next(&all->lists[activity->class]);
}

void mcp_sim_drop_block(struct mcp_sim_activities *all, int class)
{
    struct list *list = &all->lists[class];
    int i = 0;
    while (list->items[i].kind != MCP_SIM_BLOCK)
        i++;
    list->items[i] = list->items[--list->count];
    find_next(list);
}

static struct list *first_list(struct mcp_sim_activities *all)
{
    struct list *first = NULL;
    for (int c = 0; c < all->num_classes; c++) {
        struct list *list = &all->lists[c];
        if (list->next >= 0 && (first == NULL || list->next_ns < first->next_ns))
            first = list;
    }
    return first;
}

bool mcp_sim_next(struct mcp_sim_activities *all, struct mcp_sim_activity *out)
{
    for (struct list *list = first_list(all); list != NULL; list = first_list(all)) {
        struct mcp_sim_activity *activity = &list->items[list->next];
        all->now_ns = activity->end_ns;
        if (activity->shared_ns > 0) {
            begin_sharing(all, activity);
            continue;
        }
        if (activity->num_more > 0) {
            begin_phase(all, activity);
            continue;
        }
        *out = *activity;
        *activity = list->items[--list->count];
        end_sharing(all, out);
        find_next(list);
        return true;
    }
    return false;
}
