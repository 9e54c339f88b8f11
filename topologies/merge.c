/* topologies/merge.c: one machine out of several files about it. */
#include "topologies/dump.h"

#include <ctype.h>
#include <string.h>

struct merge {
    struct mcp_arena *arena;
    struct mcp_error *err;
    struct mcp_node *node;       /* so far */
    const char *known;           /* the files that it came from */
    const struct mcp_dump *more; /* the next */
    bool more_tells_links;       /* of its GPUs */
    bool known_has_links;        /* before */
};

static enum mcp_status contradict(const struct merge *m, const char *what, const char *known,
                                  const char *more)
{
    return mcp_fail(m->err, MCP_INVALID, "%s is %s in %s but %s in %s", what,
                    mcp_printable(m->arena, known), mcp_printable(m->arena, m->known),
                    mcp_printable(m->arena, more), mcp_printable(m->arena, m->more->name));
}

/* Values ---------------------------------------------------------------------- */

static enum mcp_status merge_text(const struct merge *m, const char *what, const char **known,
                                  const char *more)
{
    if (*known == NULL)
        *known = more;
    if (more == NULL || mcp_same(*known, more))
        return MCP_OK;
    return contradict(m, what, *known, more);
}

static enum mcp_status merge_int(const struct merge *m, const char *what, int *known, int more,
                                 int unknown)
{
    if (*known == unknown)
        *known = more;
    if (more == unknown || *known == more)
        return MCP_OK;
    return contradict(m, what, mcp_format(m->arena, "%d", *known),
                      mcp_format(m->arena, "%d", more));
}

/* Clocks and limits can be set anew between two dumps: the first stays. */
static void take_double(double *known, double more)
{
    if (*known <= 0)
        *known = more;
}

/* GPUs ------------------------------------------------------------------------- */

/* Masked UUIDs, all zeros, tell no GPU from another. */
static bool tells(const char *uuid)
{
    const char *digits = uuid == NULL ? "" : strchr(uuid, '-') != NULL ? strchr(uuid, '-') : uuid;
    return strpbrk(digits, "123456789abcdefABCDEF") != NULL;
}

static int find_gpu(const struct mcp_node *node, const struct mcp_node_gpu *gpu)
{
    for (int i = 0; i < node->num_gpus; i++)
        if (gpu->bus_id != NULL && mcp_same(node->gpus[i].bus_id, gpu->bus_id))
            return i;
    for (int i = 0; i < node->num_gpus; i++)
        if (tells(gpu->uuid) && mcp_same(node->gpus[i].uuid, gpu->uuid))
            return i;
    for (int i = 0; i < node->num_gpus; i++) {
        const struct mcp_node_gpu *other = &node->gpus[i];
        bool apart = (gpu->bus_id != NULL && other->bus_id != NULL) ||
                     (tells(gpu->uuid) && tells(other->uuid));
        if (other->index == gpu->index && !apart)
            return i;
    }
    return -1;
}

/* nvidia-smi's name of the product is the one that presets know. */
static bool same_product(const char *a, const char *b)
{
    return a == NULL || b == NULL || mcp_contains_ignoring_case(a, b) ||
           mcp_contains_ignoring_case(b, a);
}

static enum mcp_status merge_names(const struct merge *m, const char *what,
                                   struct mcp_node_gpu *gpu, const struct mcp_node_gpu *more)
{
    bool listed = m->more->kind != MCP_DUMP_HWLOC && m->more->kind != MCP_DUMP_NCCL;
    if (!same_product(gpu->name, more->name) && listed)
        return contradict(m, mcp_format(m->arena, "the name of %s", what), gpu->name, more->name);
    if (gpu->name == NULL)
        gpu->name = more->name;
    if (tells(gpu->uuid) && tells(more->uuid))
        return merge_text(m, mcp_format(m->arena, "the UUID of %s", what), &gpu->uuid, more->uuid);
    if (!tells(gpu->uuid) && more->uuid != NULL)
        gpu->uuid = more->uuid;
    return MCP_OK;
}

static enum mcp_status merge_memory(const struct merge *m, const char *what,
                                    struct mcp_node_gpu *gpu, const struct mcp_node_gpu *more)
{
    if (gpu->memory_bytes == 0)
        gpu->memory_bytes = more->memory_bytes;
    if (more->memory_bytes == 0 || gpu->memory_bytes == more->memory_bytes)
        return MCP_OK;
    return contradict(m, mcp_format(m->arena, "the memory of %s", what),
                      mcp_format(m->arena, "%lld MiB", (long long)(gpu->memory_bytes >> 20)),
                      mcp_format(m->arena, "%lld MiB", (long long)(more->memory_bytes >> 20)));
}

static enum mcp_status merge_places(const struct merge *m, const char *what,
                                    struct mcp_node_gpu *gpu, const struct mcp_node_gpu *more)
{
    MCP_TRY(merge_int(m, mcp_format(m->arena, "the NUMA node of %s", what), &gpu->numa_node,
                      more->numa_node, -1));
    MCP_TRY(merge_int(m, mcp_format(m->arena, "the PCIe generation of %s", what),
                      &gpu->pcie_generation, more->pcie_generation, 0));
    MCP_TRY(merge_int(m, mcp_format(m->arena, "the PCIe width of %s", what), &gpu->pcie_width,
                      more->pcie_width, 0));
    MCP_TRY(merge_int(m, mcp_format(m->arena, "the number of NVLinks to switches of %s", what),
                      &gpu->switch_links, more->switch_links, 0));
    if (gpu->memory_numa_node < 0)
        gpu->memory_numa_node = more->memory_numa_node;
    if (gpu->package < 0)
        gpu->package = more->package;
    return merge_text(m, mcp_format(m->arena, "the bus id of %s", what), &gpu->bus_id,
                      more->bus_id);
}

static enum mcp_status merge_gpu(const struct merge *m, struct mcp_node_gpu *gpu,
                                 const struct mcp_node_gpu *more)
{
    const char *what = mcp_format(m->arena, "GPU%d", gpu->index);
    MCP_TRY(merge_names(m, what, gpu, more));
    MCP_TRY(merge_memory(m, what, gpu, more));
    MCP_TRY(merge_places(m, what, gpu, more));
    if (gpu->cpu_affinity == NULL)
        gpu->cpu_affinity = more->cpu_affinity;
    if (gpu->numa_affinity == NULL)
        gpu->numa_affinity = more->numa_affinity;
    if (gpu->mig_mode == NULL)
        gpu->mig_mode = more->mig_mode;
    if (gpu->num_migs == 0) {
        gpu->num_migs = more->num_migs;
        gpu->migs = more->migs;
    }
    take_double(&gpu->clock_hz, more->clock_hz);
    take_double(&gpu->memory_clock_hz, more->memory_clock_hz);
    take_double(&gpu->power_limit_watts, more->power_limit_watts);
    return MCP_OK;
}

static enum mcp_status fail_count(const struct merge *m)
{
    return mcp_fail(m->err, MCP_INVALID, "%s has %d GPUs, %s has %d: are they the same machine?",
                    mcp_printable(m->arena, m->known), m->node->num_gpus,
                    mcp_printable(m->arena, m->more->name), m->more->node.num_gpus);
}

/* Where the GPUs of the next file are in the node, which has all of them. */
static enum mcp_status place_gpus(const struct merge *m, int *place)
{
    const struct mcp_node *more = &m->more->node;
    bool *taken = MCP_ARRAY(m->arena, m->node->num_gpus, bool);
    if (more->num_gpus != m->node->num_gpus && more->num_gpus_attached != m->node->num_gpus)
        return fail_count(m);
    for (int i = 0; i < more->num_gpus; i++) {
        place[i] = find_gpu(m->node, &more->gpus[i]);
        if (place[i] < 0 || taken[place[i]])
            return mcp_fail(m->err, MCP_INVALID, "GPU%d%s%s of %s is none of the GPUs of %s",
                            more->gpus[i].index, more->gpus[i].bus_id != NULL ? " at " : "",
                            more->gpus[i].bus_id != NULL ? more->gpus[i].bus_id : "",
                            mcp_printable(m->arena, m->more->name),
                            mcp_printable(m->arena, m->known));
        taken[place[i]] = true;
    }
    return MCP_OK;
}

/* NICs ------------------------------------------------------------------------- */

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; at != NULL && (at = strstr(at, word)) != NULL; at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static int find_nic(const struct mcp_node *node, const struct mcp_node_nic *nic)
{
    for (int i = 0; i < node->num_nics; i++) {
        const struct mcp_node_nic *other = &node->nics[i];
        bool same_device = nic->bus_id != NULL && mcp_same(nic->bus_id, other->bus_id);
        bool same_name = mcp_same(nic->name, other->name) ||
                         has_word(other->interfaces, nic->name) ||
                         has_word(nic->interfaces, other->name);
        if (same_name || (same_device && (mcp_same(nic->name, nic->bus_id) ||
                                          mcp_same(other->name, other->bus_id))))
            return i;
    }
    return -1;
}

static enum mcp_status merge_nic(const struct merge *m, struct mcp_node_nic *nic,
                                 const struct mcp_node_nic *more)
{
    if (mcp_same(nic->name, nic->bus_id))
        nic->name = more->name;
    if (nic->interfaces == NULL)
        nic->interfaces = more->interfaces;
    if (nic->bus_id == NULL)
        nic->bus_id = more->bus_id;
    if (nic->package < 0)
        nic->package = more->package;
    take_double(&nic->bytes_per_s, more->bytes_per_s);
    return merge_int(m, mcp_format(m->arena, "the NUMA node of %s", nic->name), &nic->numa_node,
                     more->numa_node, -1);
}

/* "NIC3" without a legend may be any of those that other files name. */
static bool has_nameless(const struct mcp_node *node)
{
    for (int i = 0; i < node->num_nics; i++)
        if (mcp_starts_with(node->nics[i].name, "NIC") &&
            isdigit((unsigned char)node->nics[i].name[3]))
            return true;
    return false;
}

/* Where the NICs of the next file are; -1: new. Sets *added, the number of new ones. */
static void place_nics(const struct merge *m, int *place, int *added)
{
    const struct mcp_node *more = &m->more->node;
    bool skip =
        more->num_nics > 0 && m->node->num_nics > 0 && has_nameless(m->node) != has_nameless(more);
    *added = 0;
    for (int i = 0; i < more->num_nics; i++) {
        place[i] = find_nic(m->node, &more->nics[i]);
        if (place[i] < 0)
            place[i] = skip ? -2 : m->node->num_nics + (*added)++;
    }
    if (skip)
        mcp_node_note(m->arena, m->node,
                      "%s and %s name NICs differently: those of the second are left out", m->known,
                      m->more->name);
}

/* Room for more NICs, links and all. */
static enum mcp_status grow_nics(const struct merge *m, int added)
{
    struct mcp_node old = *m->node;
    if (added == 0)
        return MCP_OK;
    if (mcp_node_devices(&old) + added > MCP_NODE_MAX_DEVICES)
        return mcp_fail(m->err, MCP_INVALID, "together the files name more than %d devices",
                        MCP_NODE_MAX_DEVICES);
    mcp_node_alloc(m->arena, m->node, old.num_gpus, old.num_nics + added);
    m->node->gpus = old.gpus;
    for (int i = 0; i < old.num_nics; i++)
        m->node->nics[i] = old.nics[i];
    for (int a = 0; a < mcp_node_devices(&old); a++)
        for (int b = 0; b < a; b++)
            mcp_node_set_link(m->node, a, b, *mcp_node_link(&old, a, b));
    return MCP_OK;
}

static enum mcp_status merge_nics(const struct merge *m, int *place)
{
    const struct mcp_node *more = &m->more->node;
    int old = m->node->num_nics, added;
    place_nics(m, place, &added);
    MCP_TRY(grow_nics(m, added));
    for (int i = 0; i < more->num_nics; i++) {
        if (place[i] >= old)
            m->node->nics[place[i]] = more->nics[i];
        else if (place[i] >= 0)
            MCP_TRY(merge_nic(m, &m->node->nics[place[i]], &more->nics[i]));
    }
    return MCP_OK;
}

/* Links ------------------------------------------------------------------------ */

/* A path through PCI between GPUs that may have NVLinks beside it. */
static bool is_uncertain(const struct mcp_node *node, const struct mcp_link *link)
{
    return node->nvlinks_unknown && node->links_are_derived && !mcp_link_is_direct(link);
}

/* Where nvidia-smi's matrix is cut, a path through PCI does not fill the hole. */
static void merge_unknown(const struct merge *m, int a, int b, const struct mcp_link *more)
{
    const struct mcp_link *known = mcp_node_link(m->node, a, b);
    bool gpus = a < m->node->num_gpus && b < m->node->num_gpus;
    bool fills = known->kind == MCP_LINK_UNKNOWN &&
                 (!gpus || m->node->links_are_derived || !is_uncertain(&m->more->node, more));
    bool empties = more->kind == MCP_LINK_UNKNOWN && gpus && !m->more->node.links_are_derived &&
                   m->more_tells_links && is_uncertain(m->node, known);
    if (fills || empties)
        mcp_node_set_link(m->node, a, b, *more);
}

/* What is stated wins over what is derived, a direct link over the path beside it. */
static enum mcp_status merge_link(const struct merge *m, int a, int b, const struct mcp_link *more)
{
    const struct mcp_link *known = mcp_node_link(m->node, a, b);
    bool known_derived = m->node->links_are_derived && !mcp_link_is_direct(known);
    bool more_derived = m->more->node.links_are_derived && !mcp_link_is_direct(more);
    if (known->kind == MCP_LINK_UNKNOWN || more->kind == MCP_LINK_UNKNOWN) {
        merge_unknown(m, a, b, more);
        return MCP_OK;
    }
    if (more_derived || (more->kind == known->kind && more->count == known->count))
        return MCP_OK;
    if (!known_derived)
        return contradict(m,
                          mcp_format(m->arena, "the link %s-%s",
                                     mcp_node_device_name(m->arena, m->node, a),
                                     mcp_node_device_name(m->arena, m->node, b)),
                          mcp_link_name(m->arena, known), mcp_link_name(m->arena, more));
    mcp_node_set_link(m->node, a, b, *more);
    return MCP_OK;
}

static enum mcp_status merge_links(const struct merge *m, const int *place)
{
    const struct mcp_node *more = &m->more->node;
    for (int a = 0; a < mcp_node_devices(more); a++)
        for (int b = a + 1; b < mcp_node_devices(more); b++)
            if (place[a] >= 0 && place[b] >= 0)
                MCP_TRY(merge_link(m, place[a], place[b], mcp_node_link(more, a, b)));
    return MCP_OK;
}

/* The whole --------------------------------------------------------------------- */

static bool has_links(const struct mcp_node *node)
{
    int devices = mcp_node_devices(node);
    return mcp_node_unknown_links(node) < devices * (devices - 1) / 2;
}

static bool tells_links(const struct mcp_node *node)
{
    for (int a = 0; a < node->num_gpus; a++)
        for (int b = a + 1; b < node->num_gpus; b++)
            if (mcp_node_link(node, a, b)->kind != MCP_LINK_UNKNOWN)
                return true;
    return false;
}

static void take_int(int *known, int more)
{
    if (*known == 0)
        *known = more;
}

static void merge_host(const struct merge *m)
{
    struct mcp_node *node = m->node;
    const struct mcp_node *more = &m->more->node;
    take_int(&node->num_nvlink_switches, more->num_nvlink_switches);
    take_int(&node->num_pcie_switches, more->num_pcie_switches);
    take_int(&node->num_untyped, more->num_untyped);
    take_int(&node->num_packages, more->num_packages);
    take_int(&node->num_cores, more->num_cores);
    take_int(&node->num_hardware_threads, more->num_hardware_threads);
    if (node->num_numa_nodes == 0 || (more->num_packages > 0 && more->num_numa_nodes > 0)) {
        node->num_numa_nodes = more->num_numa_nodes;
        node->numa_nodes = more->numa_nodes;
    }
    if (node->cpu == NULL)
        node->cpu = more->cpu;
    if (node->driver == NULL)
        node->driver = more->driver;
    if (more->notes != NULL)
        node->notes =
            mcp_format(m->arena, "%s%s", node->notes != NULL ? node->notes : "", more->notes);
}

/* NVLinks are known when one file tells of all links. */
static void merge_certainty(const struct merge *m, bool known_tells_links)
{
    struct mcp_node *node = m->node;
    const struct mcp_node *more = &m->more->node;
    bool known = (known_tells_links && !node->nvlinks_unknown) ||
                 (m->more_tells_links && !more->nvlinks_unknown);
    node->nvlinks_unknown = !known && (node->nvlinks_unknown || more->nvlinks_unknown);
    node->links_are_derived = (node->links_are_derived || !m->known_has_links) &&
                              (more->links_are_derived || !has_links(more));
}

/* A file without GPUs, as hwloc's may be, does not contradict one with. */
static enum mcp_status merge_gpus(const struct merge *m, int *place)
{
    const struct mcp_node *more = &m->more->node;
    if (more->num_gpus == 0)
        return MCP_OK;
    MCP_TRY(place_gpus(m, place));
    for (int i = 0; i < more->num_gpus; i++)
        MCP_TRY(merge_gpu(m, &m->node->gpus[place[i]], &more->gpus[i]));
    return MCP_OK;
}

static enum mcp_status merge_next(struct merge *m)
{
    const struct mcp_node *more = &m->more->node;
    int *place = MCP_ARRAY(m->arena, mcp_node_devices(more), int);
    bool known_tells_links = tells_links(m->node);
    m->more_tells_links = tells_links(more);
    m->known_has_links = has_links(m->node);
    MCP_TRY(merge_gpus(m, place));
    MCP_TRY(merge_nics(m, place + more->num_gpus));
    for (int i = 0; i < more->num_nics; i++)
        if (place[more->num_gpus + i] >= 0)
            place[more->num_gpus + i] += m->node->num_gpus;
    MCP_TRY(merge_links(m, place));
    merge_host(m);
    merge_certainty(m, known_tells_links);
    return MCP_OK;
}

/* Files with all GPUs come before those with some and those with none; among them
 * those that know more ways to tell GPUs apart. */
static int rank_of(const struct mcp_dump *dump)
{
    const struct mcp_node *node = &dump->node;
    if (node->num_gpus == 0)
        return 4;
    if (node->num_gpus_attached > 0)
        return 3;
    if (node->gpus[0].bus_id != NULL && node->gpus[0].uuid != NULL)
        return 0;
    return node->gpus[0].bus_id != NULL ? 1 : 2;
}

static struct mcp_node copy_node(struct mcp_arena *arena, const struct mcp_node *node)
{
    struct mcp_node copy = *node;
    mcp_node_alloc(arena, &copy, node->num_gpus, node->num_nics);
    size_t devices = (size_t)mcp_node_devices(node);
    for (int i = 0; i < node->num_gpus; i++)
        copy.gpus[i] = node->gpus[i];
    for (int i = 0; i < node->num_nics; i++)
        copy.nics[i] = node->nics[i];
    if (node->links != NULL)
        memcpy(copy.links, node->links, devices * devices * sizeof *copy.links);
    return copy;
}

enum mcp_status mcp_dumps_merge(struct mcp_arena *arena, const struct mcp_dump *dumps, int count,
                                struct mcp_node *out, struct mcp_error *err)
{
    struct mcp_node node = {0};
    struct merge m = {.arena = arena, .err = err, .node = &node};
    for (int rank = 0; rank <= 4; rank++)
        for (int i = 0; i < count; i++) {
            if (rank_of(&dumps[i]) != rank)
                continue;
            m.more = &dumps[i];
            if (m.known == NULL)
                node = copy_node(arena, &dumps[i].node);
            else
                MCP_TRY(merge_next(&m));
            m.known = m.known == NULL ? dumps[i].name
                                      : mcp_format(arena, "%s and %s", m.known, dumps[i].name);
        }
    *out = node;
    return MCP_OK;
}
