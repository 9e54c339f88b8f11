/* topologies/nccl_xml_links.c: NVLinks and PCI paths in NCCL's topology XML. */
#include "topologies/nccl_xml_parts.h"
#include "topologies/nvidia_smi_parts.h"
#include "topologies/place.h"

#include <string.h>

#define MAX_SWITCHES 256

/* What the links of all GPUs amount to. */
struct links {
    int *counts; /* [gpus, gpus] as each GPU says */
    enum mcp_link_kind kind;
    int num_switches;
    const char *switches[MAX_SWITCHES]; /* their bus ids */
    bool any;
    bool to_itself;
    bool to_unnamed;
    int strangers; /* links to GPUs that the file lacks */
};

static int find_gpu(const struct mcp_nccl_reader *r, const char *bus_id)
{
    for (int i = 0; i < r->num_gpus; i++)
        if (bus_id != NULL && mcp_same(r->gpus[i].bus_id, bus_id))
            return i;
    return -1;
}

/* Virtual machines hide the switch: "fffffff:ff:ff.0". */
static bool is_unnamed(const char *target)
{
    return target == NULL || mcp_starts_with(target, "fffffff");
}

static void add_switch(struct links *links, const char *target)
{
    for (int i = 0; i < links->num_switches; i++)
        if (mcp_same(links->switches[i], target))
            return;
    if (links->num_switches < MAX_SWITCHES)
        links->switches[links->num_switches++] = target;
}

static enum mcp_status read_link(struct mcp_nccl_reader *r, struct links *links, int gpu,
                                 const struct mcp_xml *element)
{
    const char *target = mcp_xml_attribute(element, "target");
    const char *class = mcp_xml_attribute(element, "tclass");
    int count = mcp_smi_small_number(mcp_xml_attribute(element, "count"));
    int peer = find_gpu(r, mcp_bus_id(r->arena, target));
    bool to_switch = class != NULL && mcp_same(class, "0x068000");
    if (count < 1)
        return mcp_fail(r->err, MCP_FORMAT, "%s: line %d: <%s> without a count of links", r->file,
                        element->line, element->name);
    links->any = true;
    if (to_switch || (peer < 0 && is_unnamed(target))) {
        links->to_unnamed = links->to_unnamed || is_unnamed(target);
        r->node->gpus[gpu].switch_links += count;
        add_switch(links, target == NULL ? "" : target);
    } else if (peer == gpu) {
        links->to_itself = true;
    } else if (peer >= 0) {
        links->counts[gpu * r->num_gpus + peer] += count;
        links->kind = mcp_same(element->name, "xgmi") ? MCP_LINK_XGMI : MCP_LINK_NVLINK;
    } else if (class == NULL || mcp_starts_with(class, "0x03")) {
        links->strangers++;
    }
    return MCP_OK;
}

static enum mcp_status read_gpu(struct mcp_nccl_reader *r, struct links *links, int gpu)
{
    const struct mcp_xml *at = r->gpus[gpu].element->first_child;
    if (!mcp_same(r->gpus[gpu].element->name, "gpu"))
        return MCP_OK;
    for (; at != NULL; at = at->next)
        if (mcp_same(at->name, "nvlink") || mcp_same(at->name, "xgmi"))
            MCP_TRY(read_link(r, links, gpu, at));
    return MCP_OK;
}

/* What one GPU says, or both. */
static enum mcp_status take_links(struct mcp_nccl_reader *r, const struct links *links)
{
    for (int a = 0; a < r->num_gpus; a++)
        for (int b = a + 1; b < r->num_gpus; b++) {
            int forth = links->counts[a * r->num_gpus + b];
            int back = links->counts[b * r->num_gpus + a];
            if (forth > 0 && back > 0 && forth != back)
                return mcp_fail(r->err, MCP_INVALID,
                                "%s: GPU%d has %d links to GPU%d (line %d), which has %d to it "
                                "(line %d)",
                                r->file, r->node->gpus[a].index, forth, r->node->gpus[b].index,
                                r->gpus[a].element->line, back, r->gpus[b].element->line);
            int count = forth > back ? forth : back;
            if (count > 0)
                mcp_node_set_link(
                    r->node, a, b,
                    (struct mcp_link){links->kind, links->kind == MCP_LINK_XGMI ? 1 : count});
        }
    return MCP_OK;
}

static void note_links(struct mcp_nccl_reader *r, const struct links *links)
{
    struct mcp_node *node = r->node;
    if (links->to_itself)
        mcp_node_note(
            r->arena, node,
            "%s: NVLinks of a GPU to itself mean nothing: no links between GPUs are taken "
            "from them",
            r->file);
    if (links->to_unnamed)
        mcp_node_note(r->arena, node,
                      "%s: NVLinks go to an unnamed switch (%d links of GPU%d), as in a virtual "
                      "machine; the PCIe rates in the file are then what that machine claims%s",
                      r->file, node->gpus[0].switch_links, node->gpus[0].index,
                      node->gpus[0].pcie_generation > 0
                          ? mcp_format(r->arena, ": PCIe %d", node->gpus[0].pcie_generation)
                          : "");
    if (links->strangers > 0)
        mcp_node_note(r->arena, node, "%s: %d NVLinks go to GPUs that the file lacks", r->file,
                      links->strangers);
}

/* NCCL writes sm when it has looked at the GPU, and then its links as well. */
static bool was_looked_at(const struct mcp_nccl_reader *r)
{
    for (int i = 0; i < r->num_gpus; i++)
        if (mcp_xml_attribute(r->gpus[i].element, "sm") == NULL)
            return false;
    return true;
}

enum mcp_status mcp_nccl_nvlinks(struct mcp_nccl_reader *r)
{
    struct links *links = MCP_NEW(r->arena, struct links);
    *links = (struct links){.kind = MCP_LINK_NVLINK};
    links->counts = MCP_ARRAY(r->arena, (size_t)r->num_gpus * (size_t)r->num_gpus, int);
    for (int i = 0; i < r->num_gpus; i++)
        MCP_TRY(read_gpu(r, links, i));
    MCP_TRY(take_links(r, links));
    mcp_node_join_switched(r->node);
    r->node->num_nvlink_switches = links->num_switches;
    r->node->nvlinks_unknown = r->num_gpus > 1 && !links->any && !was_looked_at(r);
    note_links(r, links);
    return MCP_OK;
}

/* Paths ---------------------------------------------------------------------------------- */

static enum mcp_place_kind kind_of(const struct mcp_xml *element)
{
    return mcp_same(element->name, "pci") ? MCP_PLACE_BRIDGE : MCP_PLACE_HOST;
}

/* The bridge or processor that a device hangs on. */
static const struct mcp_xml *holder(const struct mcp_nccl_device *device)
{
    const struct mcp_xml *up = device->pci != NULL ? device->pci->parent : device->element->parent;
    while (up != NULL && mcp_same(up->name, "nic"))
        up = up->parent;
    return up;
}

void mcp_nccl_paths(struct mcp_nccl_reader *r)
{
    int devices = mcp_node_devices(r->node);
    const struct mcp_xml **holders = MCP_ARRAY(r->arena, (size_t)devices, const struct mcp_xml *);
    for (int i = 0; i < devices; i++)
        holders[i] = holder(i < r->num_gpus ? &r->gpus[i] : &r->nics[i - r->num_gpus]);
    mcp_node_link_places(r->node, holders, kind_of);
}
