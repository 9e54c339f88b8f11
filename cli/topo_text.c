/* cli/topo_text.c: mcpplan topo's answer for people. */
#include "cli/topo_picture.h"
#include "cli/topo_view.h"
#include "core/units.h"
#include "reports/table.h"

#include <math.h>
#include <string.h>

static const char *show_link(struct mcp_arena *arena, const struct mcp_link *link)
{
    return link->kind == MCP_LINK_UNKNOWN ? "?" : mcp_link_name(arena, link);
}

static int widest(const char *const *names, int count)
{
    int width = 4; /* of a link code */
    for (int i = 0; i < count; i++)
        width = (int)strlen(names[i]) > width ? (int)strlen(names[i]) : width;
    return width;
}

/* The columns from `first` that fit into the terminal; returns the one after. */
static int put_columns(struct mcp_context *ctx, const struct mcp_node *node,
                       const char *const *names, int first, struct mcp_text *out)
{
    int devices = mcp_node_devices(node), width = widest(names, devices), end = first;
    int used = 2 + width;
    do
        used += 1 + widest(&names[end++], 1);
    while (end < devices && used + 1 + widest(&names[end], 1) <= ctx->style.width);
    mcp_text_add(out, "  %-*s", width, "");
    for (int j = first; j < end; j++)
        mcp_text_add(out, " %*s", widest(&names[j], 1), names[j]);
    for (int i = 0; i < devices; i++) {
        mcp_text_add(out, "\n  %-*s", width, names[i]);
        for (int j = first; j < end; j++)
            mcp_text_add(out, " %*s", widest(&names[j], 1),
                         i == j ? "-" : show_link(ctx->arena, mcp_node_link(node, i, j)));
    }
    mcp_text_add(out, "\n");
    return end;
}

static void put_matrix(struct mcp_context *ctx, const struct mcp_node *node, struct mcp_text *out)
{
    int devices = mcp_node_devices(node);
    const char **names = MCP_ARRAY(ctx->arena, devices, const char *);
    for (int i = 0; i < devices; i++)
        names[i] = mcp_printable(ctx->arena, mcp_node_device_name(ctx->arena, node, i));
    mcp_heading(out, &ctx->style, "Links");
    for (int first = 0; first < devices;) {
        mcp_text_add(out, "%s", first > 0 ? "\n" : "");
        first = put_columns(ctx, node, names, first, out);
    }
    mcp_text_add(out, "  NV#: bonded NVLinks; PIX, PXB: PCIe switches; PHB: host bridge;\n"
                      "  NODE, SYS: within, between NUMA nodes\n");
}

static void put_islands(struct mcp_context *ctx, const struct mcp_node *node, struct mcp_text *out)
{
    int *island = MCP_ARRAY(ctx->arena, node->num_gpus, int);
    int count = mcp_node_islands(node, MCP_LINK_NVLINK, island);
    if (count == node->num_gpus || count == 1)
        return;
    mcp_heading(out, &ctx->style, "NVLink islands");
    for (int i = 0; i < node->num_gpus; i++) {
        bool whole = true;
        if (island[i] != i)
            continue;
        mcp_text_add(out, "  ");
        for (int j = 0; j < node->num_gpus; j++) {
            if (island[j] != i)
                continue;
            mcp_text_add(out, "%sGPU%d", j == i ? "" : " ", node->gpus[j].index);
            for (int k = j + 1; k < node->num_gpus; k++)
                whole = whole && (island[k] != i || mcp_node_fully_joined(node, (int[]){j, k}, 2));
        }
        mcp_text_add(out, "%s\n", whole ? "" : " (not every pair is joined)");
    }
}

static void put_sentence(struct mcp_context *ctx, const char *label, const char *sentence,
                         struct mcp_text *out)
{
    if (sentence == NULL || *sentence == '\0')
        return;
    mcp_text_add(out, "  ");
    mcp_wrap(out, mcp_format(ctx->arena, "%s: %s", label, mcp_printable(ctx->arena, sentence)),
             ctx->style.width - 2, 4);
    mcp_text_add(out, "\n");
}

static void put_tiers(struct mcp_context *ctx, const struct mcp_cluster *cluster,
                      struct mcp_text *out)
{
    static const struct mcp_column columns[] = {
        {"tier", "", MCP_LEFT},         {"ranks", "", MCP_RIGHT},   {"per GPU", "", MCP_RIGHT},
        {"efficiency", "%", MCP_RIGHT}, {"latency", "", MCP_RIGHT},
    };
    struct mcp_table *table = mcp_table_new(ctx->arena, columns, (int)MCP_COUNT_OF(columns));
    mcp_heading(out, &ctx->style, "As a cluster");
    mcp_text_add(out, "  %d x %d %s, %s usable each\n", cluster->num_nodes, cluster->gpus_per_node,
                 mcp_printable(ctx->arena, cluster->gpu.name),
                 mcp_show(ctx->arena, (double)cluster->gpu.memory_bytes, MCP_BYTES));
    for (int k = 0; k < cluster->num_tiers; k++) {
        const struct mcp_tier *tier = &cluster->tiers[k];
        bool known = !isnan(tier->bandwidth_bytes_per_s);
        mcp_table_cell(table, "%s", mcp_printable(ctx->arena, tier->name));
        mcp_table_cell(table, "%d", tier->ranks);
        mcp_table_cell(table, "%s",
                       known
                           ? mcp_show(ctx->arena, tier->bandwidth_bytes_per_s, MCP_BYTES_PER_SECOND)
                           : "unknown");
        mcp_table_cell(table, "%.0f", 100 * tier->efficiency_frac);
        mcp_table_cell(table, "%s", mcp_show(ctx->arena, tier->latency_s, MCP_SECONDS));
    }
    mcp_table_write(table, MCP_SKIN_TERMINAL, &ctx->style, out);
    put_sentence(ctx, "source", cluster->source, out);
    put_sentence(ctx, "note", cluster->note, out);
}

/* What a dump tells of the processors. */
static void put_processors(const struct mcp_node *node, struct mcp_text *out)
{
    const struct {
        const char *one;
        int count;
    } parts[] = {
        {"package", node->num_packages},
        {"core", node->num_cores},
        {"hardware thread", node->num_hardware_threads},
        {"NUMA node", node->num_numa_nodes},
        {"PCIe switch", node->num_pcie_switches},
        {"NVSwitch", node->num_nvlink_switches},
    };
    const char *before = "  ";
    for (size_t i = 0; i < MCP_COUNT_OF(parts); i++) {
        if (parts[i].count == 0)
            continue;
        const char *plural = mcp_ends_with(parts[i].one, "h") ? "es" : "s";
        mcp_text_add(out, "%s%d %s%s", before, parts[i].count, parts[i].one,
                     parts[i].count == 1 ? "" : plural);
        before = ", ";
    }
    mcp_text_add(out, "%s", before[0] == ',' ? "\n" : "");
}

static void put_counts(struct mcp_context *ctx, const struct mcp_node *node, struct mcp_text *out)
{
    int unknown = mcp_node_unknown_links(node);
    mcp_heading(out, &ctx->style, "Devices");
    mcp_text_add(out, "  %d GPU%s, %d NIC%s\n", node->num_gpus, node->num_gpus == 1 ? "" : "s",
                 node->num_nics, node->num_nics == 1 ? "" : "s");
    for (int i = 0; i < node->num_gpus; i++)
        if (node->gpus[i].name != NULL)
            mcp_text_add(out, "  GPU%d  %s, %s\n", node->gpus[i].index,
                         mcp_printable(ctx->arena, node->gpus[i].name),
                         node->gpus[i].memory_bytes > 0
                             ? mcp_show(ctx->arena, (double)node->gpus[i].memory_bytes, MCP_BYTES)
                             : "memory unknown");
    if (unknown > 0 && node->num_gpus > 0)
        mcp_text_add(out, "  %d link%s unknown\n", unknown, unknown == 1 ? " is" : "s are");
    put_processors(node, out);
}

/* Drawings ------------------------------------------------------------------- */

/* Pictures of what was found, at most one for each pool, the processors and the GPUs. */
int mcp_topo_pictures(struct mcp_arena *arena, const struct mcp_topo_view *view,
                      struct mcp_part *parts[MCP_MOST_PICTURES])
{
    int count = 0;
    if (view->is_this)
        parts[count++] = mcp_picture_host(arena, &view->machine.host, &view->machine.node);
    if (view->machine.node.num_gpus > 0)
        parts[count++] = mcp_picture_node(arena, &view->machine.node);
    else if (!view->is_this && view->machine.node.num_numa_nodes > 0)
        parts[count++] = mcp_picture_processors(arena, &view->machine.node);
    if (!view->is_cluster && !(view->has_cluster && view->cluster.num_nodes > 1))
        return count;
    for (const struct mcp_cluster *pool = &view->cluster; pool != NULL; pool = pool->next)
        parts[count++] = mcp_picture_cluster(arena, pool);
    return count;
}

static void put_pictures(struct mcp_context *ctx, const struct mcp_topo_view *view,
                         struct mcp_text *out)
{
    struct mcp_part *parts[MCP_MOST_PICTURES];
    int count = mcp_topo_pictures(ctx->arena, view, parts);
    for (int i = 0; i < count; i++)
        mcp_picture_text(parts[i], &ctx->style, out);
}

static void put_host(const struct mcp_host *host, struct mcp_text *out)
{
    mcp_text_add(out, "%d package%s, %d cores, %d hardware threads, %d NUMA node%s\n",
                 host->num_packages, host->num_packages == 1 ? "" : "s", host->num_cores,
                 host->num_hardware_threads, host->num_numa_nodes,
                 host->num_numa_nodes == 1 ? "" : "s");
}

void mcp_topo_text(struct mcp_context *ctx, const struct mcp_topo_view *view, struct mcp_text *out)
{
    const struct mcp_node *node = &view->machine.node;
    put_pictures(ctx, view, out);
    if (view->is_this)
        put_host(&view->machine.host, out);
    if (!view->is_cluster)
        put_counts(ctx, node, out);
    if (mcp_node_devices(node) > 1 && node->num_gpus > 0)
        put_matrix(ctx, node, out);
    put_islands(ctx, node, out);
    if (view->has_cluster)
        for (const struct mcp_cluster *pool = &view->cluster; pool != NULL; pool = pool->next)
            put_tiers(ctx, pool, out);
}
