/* cli/cmd_topo.c: mcpplan topo: this machine, or what another machine's tools printed. */
#include "cli/commands.h"
#include "core/cluster.h"
#include "core/preset.h"
#include "core/units.h"
#include "reports/table.h"
#include "topologies/detect.h"
#include "topologies/dump.h"
#include "topologies/tiers.h"

#include <math.h>
#include <string.h>

struct topo_args {
    const char *gpu;
    const char *name;
    const char *network;
    int nodes;
    bool presets;
};

/* What the command found. */
struct topo {
    bool is_this; /* machine.host is known */
    struct mcp_machine machine;
    bool has_cluster;
    struct mcp_cluster cluster;
    struct mcp_text notes; /* a sentence a line */
};

/* Reading ------------------------------------------------------------------- */

/* All files describe one machine. */
static enum mcp_status read_dumps(struct mcp_context *ctx, struct mcp_node *node)
{
    struct mcp_dump *dumps = MCP_ARRAY(ctx->arena, ctx->num_operands, struct mcp_dump);
    for (int i = 0; i < ctx->num_operands; i++)
        MCP_TRY(mcp_dump_read(ctx->arena, ctx->operands[i], &dumps[i], &ctx->err));
    return mcp_dumps_merge(ctx->arena, dumps, ctx->num_operands, node, &ctx->err);
}

/* The cluster ---------------------------------------------------------------- */

/* A wrong --gpu is answered with all that would be right: there are few. */
static enum mcp_status fail_gpu(struct mcp_context *ctx, enum mcp_status status)
{
    struct mcp_text names = mcp_text_new(ctx->arena);
    for (size_t i = 0; i < mcp_preset_count("gpus"); i++)
        mcp_text_add(&names, "%s%s", i > 0 ? ", " : "", mcp_preset_at("gpus", i)->name);
    const char *problem = mcp_strdup(ctx->arena, ctx->err.text);
    return mcp_fail(&ctx->err, status, "--gpu %s; presets are %s", problem, names.data);
}

/* --gpu, or the preset of the GPUs' name; *known is false without either. */
static enum mcp_status choose_gpu(struct mcp_context *ctx, const struct topo_args *args,
                                  const struct mcp_node *node, struct mcp_gpu *gpu, bool *known)
{
    const char *preset = args->gpu;
    if (preset == NULL && node->num_gpus > 0 && node->gpus[0].name != NULL)
        preset = mcp_gpu_preset(ctx->arena, node->gpus[0].name);
    *known = preset != NULL && node->num_gpus > 0;
    if (preset == NULL)
        return MCP_OK;
    enum mcp_status status = mcp_gpu_load(ctx->arena, preset, gpu, &ctx->err);
    if (status != MCP_OK)
        return status == MCP_IO ? fail_gpu(ctx, status) : status;
    if (*known && node->gpus[0].memory_bytes > 0)
        gpu->memory_bytes = node->gpus[0].memory_bytes;
    return MCP_OK;
}

static enum mcp_status network_of(struct mcp_context *ctx, const struct topo_args *args,
                                  double *bandwidth_bytes_per_s)
{
    *bandwidth_bytes_per_s = (double)NAN;
    if (args->network == NULL)
        return MCP_OK;
    if (mcp_quantity_parse(args->network, MCP_BYTES_PER_SECOND, bandwidth_bytes_per_s, &ctx->err) !=
        MCP_OK) {
        mcp_error_prefix(&ctx->err, "--network");
        return MCP_USAGE;
    }
    return MCP_OK;
}

/* This machine's processors. */
static enum mcp_status build_cpu_cluster(struct mcp_context *ctx, const struct topo_args *args,
                                         double network_bytes_per_s, struct topo *topo)
{
    struct mcp_gpu gpu;
    bool known;
    MCP_TRY(choose_gpu(ctx, args, &topo->machine.node, &gpu, &known));
    if (args->gpu != NULL)
        return mcp_fail(&ctx->err, MCP_INVALID,
                        "--gpu %s: this machine has no GPU; name a saved nvidia-smi dump to "
                        "describe another",
                        args->gpu);
    topo->has_cluster = true;
    MCP_TRY(
        mcp_machine_cluster(ctx->arena, &topo->machine, &topo->cluster, &topo->notes, &ctx->err));
    topo->cluster.name = args->name;
    return mcp_cluster_add_network(&topo->cluster, args->nodes, network_bytes_per_s, &ctx->err);
}

static enum mcp_status build_gpu_cluster(struct mcp_context *ctx, const struct topo_args *args,
                                         double network_bytes_per_s, struct topo *topo)
{
    const struct mcp_node *node = &topo->machine.node;
    struct mcp_gpu gpu;
    MCP_TRY(choose_gpu(ctx, args, node, &gpu, &topo->has_cluster));
    if (!topo->has_cluster && (args->nodes > 1 || args->network != NULL))
        return mcp_fail(
            &ctx->err, MCP_USAGE,
            "--nodes and --network need --gpu NAME here: it is unknown which GPU this is");
    if (!topo->has_cluster)
        return MCP_OK;
    struct mcp_node_use use = {args->name, &gpu, args->nodes, network_bytes_per_s,
                               topo->is_this ? "detected on the machine that ran mcpplan"
                                             : "made by mcpplan topo from saved dumps"};
    return mcp_node_cluster(ctx->arena, node, &use, &topo->cluster, &topo->notes, &ctx->err);
}

/* Where nobody asked for a cluster, that there is none is no failure. */
static enum mcp_status build_cluster(struct mcp_context *ctx, const struct topo_args *args,
                                     struct topo *topo)
{
    double network_bytes_per_s;
    bool asked =
        ctx->output_path != NULL || args->gpu != NULL || args->nodes > 1 || args->network != NULL;
    MCP_TRY(network_of(ctx, args, &network_bytes_per_s));
    if (topo->is_this && topo->machine.node.num_gpus == 0)
        return build_cpu_cluster(ctx, args, network_bytes_per_s, topo);
    enum mcp_status status = build_gpu_cluster(ctx, args, network_bytes_per_s, topo);
    if (status == MCP_OK && !topo->has_cluster && !asked && topo->machine.node.num_gpus > 0)
        mcp_note("no cluster: it is unknown which GPU this is; name it with --gpu");
    if (status == MCP_OK || asked)
        return status;
    mcp_note("no cluster: %s", ctx->err.text);
    topo->has_cluster = false;
    return MCP_OK;
}

/* A cluster that cannot be planned for yet is written all the same: people fill in
 * what is unknown. */
static enum mcp_status write_cluster(struct mcp_context *ctx, const struct topo *topo)
{
    struct mcp_json *file = mcp_json_new_object(ctx->arena);
    struct mcp_error missing = {""};
    if (!topo->has_cluster)
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "-o needs --gpu NAME: these dumps do not tell which GPU this is, or no "
                        "preset is made for it");
    mcp_json_set_string(file, "schema", "mcpplan.cluster/1");
    mcp_cluster_to_json(&topo->cluster, file);
    if (mcp_cluster_check(&topo->cluster, &missing) != MCP_OK)
        mcp_note("before you plan with %s: %s", ctx->output_path, missing.text);
    return mcp_output_file(ctx, ctx->output_path, file);
}

/* JSON ----------------------------------------------------------------------- */

static struct mcp_json *topo_json(struct mcp_arena *arena, const struct topo *topo)
{
    struct mcp_json *object = mcp_json_new_object(arena);
    mcp_json_set_string(object, "schema", "mcpplan.topo/1");
    mcp_node_to_json(arena, &topo->machine.node, object);
    mcp_json_set_int(object, "unknown_links", mcp_node_unknown_links(&topo->machine.node));
    if (topo->is_this)
        mcp_host_to_json(&topo->machine.host, mcp_json_set_object(object, "host"));
    else
        mcp_json_set_null(object, "host");
    if (topo->has_cluster)
        mcp_cluster_to_json(&topo->cluster, mcp_json_set_object(object, "cluster"));
    else
        mcp_json_set_null(object, "cluster");
    return object;
}

/* Text ----------------------------------------------------------------------- */

static void put_host(struct mcp_context *ctx, const struct mcp_host *host, struct mcp_text *out)
{
    struct mcp_arena *arena = ctx->arena;
    mcp_heading(out, &ctx->style, "This machine");
    mcp_text_add(out, "  processor  %s\n",
                 host->cpu != NULL ? mcp_printable(arena, host->cpu) : "?");
    mcp_text_add(out, "             %d package%s, %d cores, %d hardware threads, %d NUMA node%s\n",
                 host->num_packages, host->num_packages == 1 ? "" : "s", host->num_cores,
                 host->num_hardware_threads, host->num_numa_nodes,
                 host->num_numa_nodes == 1 ? "" : "s");
    mcp_text_add(out, "  caches    ");
    for (int i = 0; i < 3; i++)
        if (host->cache_bytes[i] > 0)
            mcp_text_add(out, " L%d %s", i + 1,
                         mcp_show(arena, (double)host->cache_bytes[i], MCP_BYTES));
    mcp_text_add(out, "\n  memory     %s\n",
                 mcp_show(arena, (double)host->memory_bytes, MCP_BYTES));
}

/* The GPUs, or the NICs, of one NUMA node as a branch of the tree; "" for none. */
static const char *list_gpus(struct mcp_arena *arena, const struct mcp_node *node, int numa_node)
{
    struct mcp_text list = mcp_text_new(arena);
    for (int i = 0; i < node->num_gpus; i++)
        if (node->gpus[i].numa_node == numa_node)
            mcp_text_add(&list, " GPU%d", node->gpus[i].index);
    return list.data;
}

static const char *list_nics(struct mcp_arena *arena, const struct mcp_node *node, int numa_node)
{
    struct mcp_text list = mcp_text_new(arena);
    for (int i = 0; i < node->num_nics; i++)
        if (node->nics[i].numa_node == numa_node)
            mcp_text_add(&list, " %s", mcp_printable(arena, node->nics[i].name));
    return list.data;
}

static void put_branches(struct mcp_context *ctx, const struct mcp_node *node, int numa_node,
                         struct mcp_text *out)
{
    const char *branch = ctx->style.unicode ? "\xe2\x94\x9c\xe2\x94\x80" : "|-"; /* ├─ */
    const char *last = ctx->style.unicode ? "\xe2\x94\x94\xe2\x94\x80" : "`-";   /* └─ */
    const char *gpus = list_gpus(ctx->arena, node, numa_node);
    const char *nics = list_nics(ctx->arena, node, numa_node);
    if (*gpus != '\0')
        mcp_text_add(out, "  %s%s\n", *nics != '\0' ? branch : last, gpus);
    if (*nics != '\0')
        mcp_text_add(out, "  %s%s\n", last, nics);
}

static bool numa_is_used(const struct mcp_node *node, int numa_node)
{
    for (int i = 0; i < node->num_gpus; i++)
        if (node->gpus[i].numa_node == numa_node)
            return true;
    for (int i = 0; i < node->num_nics; i++)
        if (node->nics[i].numa_node == numa_node)
            return true;
    return false;
}

static int highest_numa(const struct mcp_node *node)
{
    int highest = -1;
    for (int i = 0; i < node->num_gpus; i++)
        highest = node->gpus[i].numa_node > highest ? node->gpus[i].numa_node : highest;
    for (int i = 0; i < node->num_nics; i++)
        highest = node->nics[i].numa_node > highest ? node->nics[i].numa_node : highest;
    return highest;
}

static void put_tree(struct mcp_context *ctx, const struct mcp_node *node, struct mcp_text *out)
{
    mcp_heading(out, &ctx->style, "Devices by NUMA node");
    for (int numa = 0; numa <= highest_numa(node); numa++) {
        if (!numa_is_used(node, numa))
            continue;
        mcp_text_add(out, "  NUMA node %d\n", numa);
        put_branches(ctx, node, numa, out);
    }
    if (numa_is_used(node, -1)) {
        mcp_text_add(out, "  NUMA node unknown\n");
        put_branches(ctx, node, -1, out);
    }
}

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

static void put_matrix(struct mcp_context *ctx, const struct mcp_node *node, struct mcp_text *out)
{
    int devices = mcp_node_devices(node);
    const char **names = MCP_ARRAY(ctx->arena, devices, const char *);
    for (int i = 0; i < devices; i++)
        names[i] = mcp_printable(ctx->arena, mcp_node_device_name(ctx->arena, node, i));
    int width = widest(names, devices);
    mcp_heading(out, &ctx->style, "Links");
    mcp_text_add(out, "  %-*s", width, "");
    for (int j = 0; j < devices; j++)
        mcp_text_add(out, " %*s", widest(&names[j], 1), names[j]);
    for (int i = 0; i < devices; i++) {
        mcp_text_add(out, "\n  %-*s", width, names[i]);
        for (int j = 0; j < devices; j++)
            mcp_text_add(out, " %*s", widest(&names[j], 1),
                         i == j ? "-" : show_link(ctx->arena, mcp_node_link(node, i, j)));
    }
    mcp_text_add(out,
                 "\n  NV#: bonded NVLinks; PIX, PXB: PCIe switches; PHB: host bridge; NODE, SYS: "
                 "within, between NUMA nodes\n");
}

static void put_islands(struct mcp_context *ctx, const struct mcp_node *node, struct mcp_text *out)
{
    int *island = MCP_ARRAY(ctx->arena, node->num_gpus, int);
    int count = mcp_node_islands(node, MCP_LINK_NVLINK, island);
    if (count == node->num_gpus)
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

static void topo_text(struct mcp_context *ctx, const struct topo *topo, struct mcp_text *out)
{
    const struct mcp_node *node = &topo->machine.node;
    if (topo->is_this)
        put_host(ctx, &topo->machine.host, out);
    put_counts(ctx, node, out);
    if (mcp_node_devices(node) > 0)
        put_tree(ctx, node, out);
    if (mcp_node_devices(node) > 1 && node->num_gpus > 0)
        put_matrix(ctx, node, out);
    put_islands(ctx, node, out);
    if (topo->has_cluster)
        put_tiers(ctx, &topo->cluster, out);
}

/* Presets -------------------------------------------------------------------- */

static enum mcp_status list_presets(struct mcp_context *ctx)
{
    static const struct mcp_column columns[] = {
        {"cluster", "", MCP_LEFT}, {"gpu", "", MCP_LEFT},      {"GPUs", "a node", MCP_RIGHT},
        {"memory", "", MCP_RIGHT}, {"in node", "", MCP_RIGHT}, {"network", "", MCP_RIGHT},
    };
    struct mcp_table *table = mcp_table_new(ctx->arena, columns, (int)MCP_COUNT_OF(columns));
    struct mcp_text text = mcp_text_new(ctx->arena);
    struct mcp_json *object = mcp_json_new_object(ctx->arena);
    mcp_json_set_string(object, "schema", "mcpplan.clusters/1");
    struct mcp_json *list = mcp_json_set_array(object, "clusters");
    for (size_t i = 0; i < mcp_preset_count("topologies"); i++) {
        struct mcp_cluster cluster;
        MCP_TRY(mcp_cluster_load(ctx->arena, mcp_preset_at("topologies", i)->name, &cluster,
                                 &ctx->err));
        const struct mcp_tier *last = &cluster.tiers[cluster.num_tiers - 1];
        mcp_cluster_to_json(&cluster, mcp_json_add_object(list));
        mcp_table_cell(table, "%s", cluster.name);
        mcp_table_cell(table, "%s", cluster.gpu.name);
        mcp_table_cell(table, "%d", cluster.gpus_per_node);
        mcp_table_cell(table, "%s",
                       mcp_show(ctx->arena, (double)cluster.gpu.memory_bytes, MCP_BYTES));
        mcp_table_cell(
            table, "%s",
            mcp_show(ctx->arena, cluster.tiers[0].bandwidth_bytes_per_s, MCP_BYTES_PER_SECOND));
        mcp_table_cell(table, "%s",
                       mcp_show(ctx->arena, last->bandwidth_bytes_per_s, MCP_BYTES_PER_SECOND));
    }
    mcp_table_write(table, MCP_SKIN_TERMINAL, &ctx->style, &text);
    mcp_text_add(&text, "Bandwidths per GPU and direction; NAME:NODES is that many nodes.\n");
    return mcp_output_result(ctx, &text, object);
}

/* The command ---------------------------------------------------------------- */

static void put_notes(const struct mcp_text *notes)
{
    const char *at = notes->data;
    while (*at != '\0') {
        size_t length = strcspn(at, "\n");
        mcp_note("%.*s", (int)length, at);
        at += length + (at[length] == '\n');
    }
}

static enum mcp_status find_topology(struct mcp_context *ctx, const struct topo_args *args,
                                     struct topo *topo)
{
    topo->notes = mcp_text_new(ctx->arena);
    topo->is_this = ctx->num_operands == 0;
    topo->machine.note = "";
    if (topo->is_this)
        MCP_TRY(mcp_machine_detect(ctx->arena, &topo->machine, &ctx->err));
    else
        MCP_TRY(read_dumps(ctx, &topo->machine.node));
    if (topo->machine.node.notes != NULL)
        mcp_text_add(&topo->notes, "%s", topo->machine.node.notes);
    return build_cluster(ctx, args, topo);
}

static enum mcp_status show_topology(struct mcp_context *ctx, const struct topo_args *args)
{
    struct topo topo = {0};
    struct mcp_text text = mcp_text_new(ctx->arena);
    MCP_TRY(find_topology(ctx, args, &topo));
    put_notes(&topo.notes);
    if (ctx->output_path != NULL)
        MCP_TRY(write_cluster(ctx, &topo));
    ctx->output_path = NULL; /* it is the cluster's, not the answer's */
    topo_text(ctx, &topo, &text);
    return mcp_output_result(ctx, &text, topo_json(ctx->arena, &topo));
}

enum mcp_status mcp_cmd_topo(struct mcp_context *ctx, int argc, char **argv)
{
    struct topo_args args = {.name = "this", .nodes = 1};
    const struct mcp_option options[] = {
        {"gpu", MCP_OPT_STRING, &args.gpu, "preset or file of the GPU, where a dump does not tell"},
        {"nodes", MCP_OPT_COUNT, &args.nodes, "such machines in the cluster"},
        {"network", MCP_OPT_STRING, &args.network,
         "bandwidth between nodes per GPU and direction, as 400Gbit/s"},
        {"name", MCP_OPT_STRING, &args.name, "the cluster's name in the file"},
        {"presets", MCP_OPT_FLAG, &args.presets, "list the clusters that mcpplan knows"},
    };
    const struct mcp_usage usage = {
        .command = "topo",
        .summary = "show a machine's GPUs, NICs and links, and make a cluster file of it",
        .synopsis = "[FILE...] [options]",
        .description =
            "Without FILE it is this machine. A FILE is what a tool says of another: nvidia-smi "
            "(topo -m, -q -x, -L, --query-gpu), rocm-smi --showtopo, lstopo --of xml, NCCL's "
            "topology XML. Several files of one machine add up; where they contradict each "
            "other, it says so. -o FILE is a cluster file for --cluster.",
        .max_operands = -1,
        .options = options,
        .num_options = MCP_COUNT_OF(options),
        .examples = "mcpplan topo\n"
                    "mcpplan topo topo.txt --gpu h100-sxm-80gb --nodes 16 --network 400Gbit/s "
                    "-o cluster.json\n",
    };
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return ctx->status;
    if (args.presets && ctx->num_operands > 0)
        return mcp_fail(&ctx->err, MCP_USAGE, "topo --presets lists clusters and reads no FILE");
    return args.presets ? list_presets(ctx) : show_topology(ctx, &args);
}
