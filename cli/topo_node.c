/* cli/topo_node.c: a machine as boxes: NUMA nodes, PCIe switches, NVLink islands.
 *
 * Devices that share a level's group are boxed together. Islands go where they nest:
 * around NUMA nodes, within them, or within switches; where they cross, a line tells
 * them instead. */
#include "cli/topo_picture.h"
#include "core/text.h"
#include "core/units.h"

enum level { LEVEL_ISLAND, LEVEL_SOCKET, LEVEL_SWITCH, NUM_LEVELS };

struct grouping {
    struct mcp_arena *arena;
    const struct mcp_node *node;
    int devices;
    int *group[NUM_LEVELS]; /* [devices]: the lowest device of each one's group */
    enum level order[NUM_LEVELS];
    int num_levels;
};

static int numa_of(const struct mcp_node *node, int device)
{
    return device < node->num_gpus ? node->gpus[device].numa_node
                                   : node->nics[device - node->num_gpus].numa_node;
}

static bool joined(const struct grouping *g, enum level level, int a, int b)
{
    const struct mcp_link *link = mcp_node_link(g->node, a, b);
    int numa_a = numa_of(g->node, a), numa_b = numa_of(g->node, b);
    bool near = link->kind == MCP_LINK_PIX || link->kind == MCP_LINK_PXB;
    switch (level) {
    case LEVEL_ISLAND:
        return mcp_link_is_direct(link);
    case LEVEL_SWITCH:
        return near;
    default:
        if (numa_a >= 0 && numa_b >= 0)
            return numa_a == numa_b;
        return near || link->kind == MCP_LINK_PHB || link->kind == MCP_LINK_NODE;
    }
}

/* Spreads the number of `device` to all that are joined to it, near or far. */
static void spread(const struct grouping *g, enum level level, int device, int *queue)
{
    int *group = g->group[level], head = 0, tail = 0;
    queue[tail++] = device;
    group[device] = device;
    while (head < tail) {
        int a = queue[head++];
        for (int b = 0; b < g->devices; b++)
            if (group[b] < 0 && joined(g, level, a, b)) {
                group[b] = device;
                queue[tail++] = b;
            }
    }
}

static void group_level(struct grouping *g, enum level level)
{
    int *queue = MCP_ARRAY(g->arena, g->devices, int);
    g->group[level] = MCP_ARRAY(g->arena, g->devices, int);
    for (int i = 0; i < g->devices; i++)
        g->group[level][i] = -1;
    for (int i = 0; i < g->devices; i++)
        if (g->group[level][i] < 0)
            spread(g, level, i, queue);
}

/* True when GPUs that `inner` groups are all in one group of `outer`. */
static bool is_within(const struct grouping *g, enum level inner, enum level outer)
{
    for (int a = 0; a < g->node->num_gpus; a++)
        for (int b = a + 1; b < g->node->num_gpus; b++)
            if (g->group[inner][a] == g->group[inner][b] &&
                g->group[outer][a] != g->group[outer][b])
                return false;
    return true;
}

/* A NIC is in the island of the GPUs of its socket, or of its switch. */
static void adopt_nics(struct grouping *g, enum level level)
{
    for (int nic = g->node->num_gpus; nic < g->devices; nic++)
        for (int gpu = 0; gpu < g->node->num_gpus; gpu++)
            if (g->group[level][gpu] == g->group[level][nic])
                g->group[LEVEL_ISLAND][nic] = g->group[LEVEL_ISLAND][gpu];
}

static void set_order(struct grouping *g, const enum level *order, int count)
{
    g->num_levels = count;
    for (int i = 0; i < count; i++)
        g->order[i] = order[i];
}

/* Outermost first. */
static void order_levels(struct grouping *g)
{
    static const enum level around[] = {LEVEL_ISLAND, LEVEL_SOCKET, LEVEL_SWITCH};
    static const enum level between[] = {LEVEL_SOCKET, LEVEL_ISLAND, LEVEL_SWITCH};
    static const enum level inside[] = {LEVEL_SOCKET, LEVEL_SWITCH, LEVEL_ISLAND};
    static const enum level crossing[] = {LEVEL_SOCKET, LEVEL_SWITCH};
    if (!is_within(g, LEVEL_ISLAND, LEVEL_SOCKET)) {
        bool nests = is_within(g, LEVEL_SOCKET, LEVEL_ISLAND);
        if (nests)
            adopt_nics(g, LEVEL_SOCKET);
        set_order(g, nests ? around : crossing, nests ? 3 : 2);
    } else if (is_within(g, LEVEL_ISLAND, LEVEL_SWITCH)) {
        set_order(g, inside, 3);
    } else if (is_within(g, LEVEL_SWITCH, LEVEL_ISLAND)) {
        adopt_nics(g, LEVEL_SWITCH);
        set_order(g, between, 3);
    } else {
        set_order(g, crossing, 2);
    }
}

/* A set of devices: in[device]. */
static int count_of(const struct grouping *g, const bool *in)
{
    int count = 0;
    for (int i = 0; i < g->devices; i++)
        count += in[i];
    return count;
}

static const char *device_name(const struct grouping *g, int device)
{
    return mcp_part_name(g->arena, mcp_node_device_name(g->arena, g->node, device));
}

/* "NV4", "NV1-NV2, not every pair" of the GPUs of an island. */
static const char *island_links(const struct grouping *g, const bool *in)
{
    const struct mcp_link *least = NULL, *most = NULL;
    bool whole = true;
    for (int a = 0; a < g->node->num_gpus; a++)
        for (int b = a + 1; in[a] && b < g->node->num_gpus; b++) {
            const struct mcp_link *link = mcp_node_link(g->node, a, b);
            bool direct = in[b] && joined(g, LEVEL_ISLAND, a, b);
            whole = whole && (!in[b] || direct);
            if (direct && (least == NULL || link->count < least->count))
                least = link;
            if (direct && (most == NULL || link->count > most->count))
                most = link;
        }
    if (least == NULL)
        return NULL;
    struct mcp_text text = mcp_text_new(g->arena);
    mcp_text_add(&text, "%s%s", least->kind == MCP_LINK_XGMI ? "" : "NVLink ",
                 mcp_link_name(g->arena, least));
    if (most->count != least->count)
        mcp_text_add(&text, " to %s", mcp_link_name(g->arena, most));
    mcp_text_add(&text, "%s", whole ? "" : ", not every pair is joined");
    return text.data;
}

static bool crosses_switches(const struct grouping *g, const bool *in)
{
    for (int a = 0; a < g->devices; a++)
        for (int b = a + 1; in[a] && b < g->devices; b++)
            if (in[b] && mcp_node_link(g->node, a, b)->kind == MCP_LINK_PXB)
                return true;
    return false;
}

static int64_t numa_memory(const struct mcp_node *node, int numa)
{
    int64_t bytes = 0;
    for (int i = 0; node->numa_nodes != NULL && i < node->num_numa_nodes; i++)
        bytes += node->numa_nodes[i].id == numa ? node->numa_nodes[i].memory_bytes : 0;
    return bytes;
}

static const char *socket_title(const struct grouping *g, const bool *in)
{
    int numa = -1;
    for (int i = 0; i < g->devices; i++)
        if (in[i] && numa_of(g->node, i) >= 0)
            numa = numa_of(g->node, i);
    int64_t bytes = numa_memory(g->node, numa);
    if (numa < 0)
        return "socket, NUMA node unknown";
    if (bytes == 0)
        return mcp_format(g->arena, "NUMA node %d", numa);
    return mcp_format(g->arena, "NUMA node %d, %s", numa,
                      mcp_show(g->arena, (double)bytes, MCP_BYTES));
}

static struct mcp_part *box_of(const struct grouping *g, enum level level, const bool *in)
{
    const char *title = level == LEVEL_SOCKET     ? socket_title(g, in)
                        : level == LEVEL_ISLAND   ? "island"
                        : crosses_switches(g, in) ? "PCIe switches"
                                                  : "PCIe switch";
    struct mcp_part *part = mcp_part_new(g->arena, MCP_PART_BOX, title);
    part->bus = level == LEVEL_ISLAND ? island_links(g, in) : NULL;
    return part;
}

static bool is_known_numa(const struct grouping *g, const bool *in)
{
    for (int i = 0; i < g->devices; i++)
        if (in[i] && numa_of(g->node, i) >= 0)
            return true;
    return false;
}

static bool has_gpu(const struct grouping *g, const bool *in)
{
    for (int i = 0; i < g->node->num_gpus; i++)
        if (in[i])
            return true;
    return false;
}

/* A box is drawn for a group of several, and for each NUMA node that has a number;
 * `outside` devices are in the box around it. */
static bool deserves_box(const struct grouping *g, enum level level, const bool *in, int outside)
{
    int count = count_of(g, in);
    if (level == LEVEL_SOCKET)
        return is_known_numa(g, in) || (has_gpu(g, in) && count > 1 && count < outside);
    return count > 1 && (level != LEVEL_ISLAND || island_links(g, in) != NULL);
}

static void add_chips(const struct grouping *g, const bool *in, struct mcp_part *part)
{
    for (int i = 0; i < g->devices; i++) {
        bool is_gpu = i < g->node->num_gpus;
        if (!in[i])
            continue;
        struct mcp_part *chip =
            mcp_part_new(g->arena, is_gpu ? MCP_PART_GPU : MCP_PART_NIC, device_name(g, i));
        chip->is_apart = !is_gpu;
        mcp_part_add(part, chip);
    }
}

/* Fills `part` with what the levels from `depth` on make of the set. */
static void fill(const struct grouping *g, int depth, const bool *in, struct mcp_part *part)
{
    if (depth == g->num_levels) {
        add_chips(g, in, part);
        return;
    }
    const int *group = g->group[g->order[depth]];
    for (int i = 0; i < g->devices; i++) {
        bool *members = MCP_ARRAY(g->arena, g->devices, bool), is_first = in[i];
        for (int j = 0; j < g->devices; j++) {
            members[j] = in[j] && group[j] == group[i];
            is_first = is_first && !(members[j] && j < i);
        }
        if (!is_first)
            continue;
        struct mcp_part *inner = part;
        if (deserves_box(g, g->order[depth], members, count_of(g, in))) {
            inner = box_of(g, g->order[depth], members);
            inner->is_apart = !has_gpu(g, members);
            mcp_part_add(part, inner);
        }
        fill(g, depth + 1, members, inner);
    }
}

/* One island of all GPUs needs no box of its own: it joins what is in the machine's. */
static void lift_island(struct grouping *g, const bool *all, struct mcp_part *part)
{
    int kept = 0;
    for (int i = 1; i < g->node->num_gpus; i++)
        if (g->group[LEVEL_ISLAND][i] != g->group[LEVEL_ISLAND][0])
            return;
    part->bus = island_links(g, all);
    for (int i = 0; i < g->num_levels; i++)
        if (g->order[i] != LEVEL_ISLAND)
            g->order[kept++] = g->order[i];
    g->num_levels = kept;
}

static const char *node_title(struct mcp_arena *arena, const struct mcp_node *node)
{
    struct mcp_text text = mcp_text_new(arena);
    const char *name = node->num_gpus > 0 ? node->gpus[0].name : NULL;
    for (int i = 1; i < node->num_gpus; i++)
        name = mcp_same(name, node->gpus[i].name) ? name : NULL;
    mcp_text_add(&text, "%d ", node->num_gpus);
    if (name != NULL)
        mcp_text_add(&text, "x %s", mcp_part_name(arena, name));
    else
        mcp_text_add(&text, "GPU%s", node->num_gpus == 1 ? "" : "s");
    if (node->num_nics > 0)
        mcp_text_add(&text, ", %d NIC%s", node->num_nics, node->num_nics == 1 ? "" : "s");
    return text.data;
}

struct mcp_part *mcp_picture_node(struct mcp_arena *arena, const struct mcp_node *node)
{
    struct grouping g = {.arena = arena, .node = node, .devices = mcp_node_devices(node)};
    struct mcp_part *part = mcp_part_new(arena, MCP_PART_BOX, node_title(arena, node));
    if (g.devices == 0)
        return part;
    bool *all = MCP_ARRAY(arena, g.devices, bool);
    for (int i = 0; i < g.devices; i++)
        all[i] = true;
    for (int level = 0; level < NUM_LEVELS; level++)
        group_level(&g, (enum level)level);
    order_levels(&g);
    bool crosses = g.num_levels < NUM_LEVELS;
    if (node->num_gpus > 1)
        lift_island(&g, all, part);
    fill(&g, 0, all, part);
    if (crosses)
        part->detail = "NVLink islands cross the NUMA nodes; they are listed below";
    return part;
}
