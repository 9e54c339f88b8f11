/* topologies/place.c: how near two devices are in a tree of PCI bridges and processors. */
#include "topologies/place.h"

struct tree {
    const struct mcp_xml *const *holders;
    enum mcp_place_kind (*kind_of)(const struct mcp_xml *element);
};

static int depth_of(const struct mcp_xml *element)
{
    int depth = 0;
    for (; element != NULL; element = element->parent)
        depth++;
    return depth;
}

/* The innermost element that holds both. */
static const struct mcp_xml *common_holder(const struct mcp_xml *a, const struct mcp_xml *b)
{
    int depth_a = depth_of(a), depth_b = depth_of(b);
    for (; depth_a > depth_b; depth_a--)
        a = a->parent;
    for (; depth_b > depth_a; depth_b--)
        b = b->parent;
    while (a != b) {
        a = a->parent;
        b = b->parent;
    }
    return a;
}

/* Bridges on the way from `element` up to `top`. */
static int bridges_below(const struct tree *tree, const struct mcp_xml *element,
                         const struct mcp_xml *top)
{
    int count = 0;
    for (; element != top; element = element->parent)
        count += tree->kind_of(element) == MCP_PLACE_BRIDGE;
    return count;
}

static int numa_of(const struct mcp_node *node, int device)
{
    return device < node->num_gpus ? node->gpus[device].numa_node
                                   : node->nics[device - node->num_gpus].numa_node;
}

static enum mcp_link_kind find_link(const struct tree *tree, const struct mcp_node *node, int a,
                                    int b)
{
    const struct mcp_xml *top = common_holder(tree->holders[a], tree->holders[b]);
    int numa_a = numa_of(node, a), numa_b = numa_of(node, b);
    if (top != NULL && tree->kind_of(top) == MCP_PLACE_HOST_BRIDGE)
        return MCP_LINK_PHB;
    if (top != NULL && tree->kind_of(top) == MCP_PLACE_BRIDGE) {
        /* a switch has an upstream, and below it downstream ports */
        bool near = bridges_below(tree, tree->holders[a], top) <= 1 &&
                    bridges_below(tree, tree->holders[b], top) <= 1;
        return near ? MCP_LINK_PIX : MCP_LINK_PXB;
    }
    if (numa_a < 0 || numa_b < 0)
        return MCP_LINK_UNKNOWN;
    return numa_a == numa_b ? MCP_LINK_NODE : MCP_LINK_SYS;
}

void mcp_node_link_places(struct mcp_node *node, const struct mcp_xml *const *holders,
                          enum mcp_place_kind (*kind_of)(const struct mcp_xml *element))
{
    struct tree tree = {holders, kind_of};
    node->links_are_derived = true;
    for (int a = 0; a < mcp_node_devices(node); a++)
        for (int b = a + 1; b < mcp_node_devices(node); b++) {
            if (mcp_node_link(node, a, b)->kind != MCP_LINK_UNKNOWN)
                continue;
            enum mcp_link_kind kind = find_link(&tree, node, a, b);
            mcp_node_set_link(node, a, b,
                              (struct mcp_link){kind, kind == MCP_LINK_UNKNOWN ? 0 : 1});
        }
}
