/* cli/cmd_topo.c: mcpplan topo: this machine, or what another machine's tools printed. */
#include "cli/commands.h"
#include "cli/diff.h"
#include "cli/topo_fabric.h"
#include "cli/topo_picture.h"
#include "cli/topo_view.h"
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
    const char *svg_path;
    int nodes; /* 0: not given */
    struct mcp_fabric_args fabric;
    bool presets, diff;
};

/* Reading ------------------------------------------------------------------- */

/* All files describe one machine. */
static enum mcp_status read_dumps(struct mcp_context *ctx, char *const *files, int count,
                                  struct mcp_node *node)
{
    struct mcp_dump *dumps = MCP_ARRAY(ctx->arena, count, struct mcp_dump);
    for (int i = 0; i < count; i++)
        MCP_TRY(mcp_dump_read(ctx->arena, files[i], &dumps[i], &ctx->err));
    return mcp_dumps_merge(ctx->arena, dumps, count, node, &ctx->err);
}

/* A preset, a file of ours (no tool's dump begins with a brace), or a bare word that is
 * no file: what it might have been is a preset. "NAME:NODES" and "A+B" too. */
static bool is_cluster(struct mcp_context *ctx, const char *word)
{
    enum { ENOUGH_BYTES = 4096 };
    struct mcp_text text = mcp_text_new(ctx->arena);
    const char *name = mcp_strndup(ctx->arena, word, strcspn(word, ":+"));
    for (size_t i = 0; i < mcp_preset_count("topologies"); i++)
        if (mcp_same(mcp_preset_at("topologies", i)->name, name))
            return true;
    if (mcp_same(word, "-"))
        return false;
    bool is_whole = mcp_file_read(ctx->arena, word, ENOUGH_BYTES, &text, NULL) == MCP_OK;
    if (!is_whole && text.length == 0 && !mcp_same(name, word))
        is_whole = mcp_file_read(ctx->arena, name, ENOUGH_BYTES, &text, NULL) == MCP_OK;
    if (!is_whole && text.length == 0)
        return strpbrk(word, "./") == NULL;
    return text.data[strspn(text.data, " \t\r\n\357\273\277")] == '{';
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

static int nodes_of(const struct topo_args *args)
{
    return args->nodes > 0 ? args->nodes : 1;
}

/* A preset or cluster file, as it is or joined otherwise. */
static enum mcp_status load_cluster(struct mcp_context *ctx, const struct topo_args *args,
                                    const char *name, struct mcp_topo_view *topo)
{
    double network_bytes_per_s;
    struct mcp_cluster *cluster = &topo->cluster;
    if (args->gpu != NULL)
        return mcp_fail(&ctx->err, MCP_USAGE, "--gpu %s: cluster %s names its own GPU", args->gpu,
                        name);
    MCP_TRY(network_of(ctx, args, &network_bytes_per_s));
    MCP_TRY(mcp_cluster_load(ctx->arena, name, cluster, &ctx->err));
    topo->is_cluster = topo->has_cluster = true;
    int nodes = args->nodes > 0 ? args->nodes : cluster->num_nodes;
    if (mcp_fabric_is_given(&args->fabric) || args->network != NULL)
        return mcp_fabric_apply(ctx, &args->fabric, nodes, network_bytes_per_s, cluster);
    return args->nodes > 0 ? mcp_cluster_resize(cluster, nodes, &ctx->err) : MCP_OK;
}

/* This machine's processors. */
static enum mcp_status build_cpu_cluster(struct mcp_context *ctx, const struct topo_args *args,
                                         double network_bytes_per_s, struct mcp_topo_view *topo)
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
    if (mcp_fabric_is_given(&args->fabric))
        return mcp_fabric_apply(ctx, &args->fabric, nodes_of(args), network_bytes_per_s,
                                &topo->cluster);
    return mcp_cluster_add_network(&topo->cluster, nodes_of(args), network_bytes_per_s, &ctx->err);
}

/* Where --network is not given, what the dump tells of the NICs. */
static void take_nics(struct mcp_context *ctx, const struct topo_args *args,
                      struct mcp_topo_view *topo, double *network_bytes_per_s)
{
    int count;
    double rate = mcp_fabric_nic_rate(&topo->machine.node, &count);
    if (args->nodes <= 1 || args->network != NULL || isnan(rate))
        return;
    *network_bytes_per_s = rate;
    mcp_text_add(&topo->notes, "--network is not given: %d NIC%s of this file give each GPU %s\n",
                 count, count == 1 ? "" : "s", mcp_show(ctx->arena, rate, MCP_BYTES_PER_SECOND));
}

static enum mcp_status build_gpu_cluster(struct mcp_context *ctx, const struct topo_args *args,
                                         double network_bytes_per_s, struct mcp_topo_view *topo)
{
    const struct mcp_node *node = &topo->machine.node;
    struct mcp_gpu gpu;
    bool fabric = mcp_fabric_is_given(&args->fabric);
    MCP_TRY(choose_gpu(ctx, args, node, &gpu, &topo->has_cluster));
    if (!topo->has_cluster && (args->nodes > 1 || args->network != NULL || fabric))
        return mcp_fail(
            &ctx->err, MCP_USAGE,
            "--nodes and --network need --gpu NAME here: it is unknown which GPU this is");
    if (!topo->has_cluster)
        return MCP_OK;
    take_nics(ctx, args, topo, &network_bytes_per_s);
    struct mcp_node_use use = {args->name, &gpu, fabric ? 1 : nodes_of(args),
                               fabric ? (double)NAN : network_bytes_per_s,
                               topo->is_this ? "detected on the machine that ran mcpplan"
                                             : "made by mcpplan topo from saved dumps"};
    MCP_TRY(mcp_node_cluster(ctx->arena, node, &use, &topo->cluster, &topo->notes, &ctx->err));
    if (!fabric)
        return MCP_OK;
    return mcp_fabric_apply(ctx, &args->fabric, nodes_of(args), network_bytes_per_s,
                            &topo->cluster);
}

/* Where nobody asked for a cluster, that there is none is no failure. */
static enum mcp_status build_cluster(struct mcp_context *ctx, const struct topo_args *args,
                                     struct mcp_topo_view *topo)
{
    double network_bytes_per_s;
    bool asked = ctx->output_path != NULL || args->gpu != NULL || args->nodes > 1 ||
                 args->network != NULL || mcp_fabric_is_given(&args->fabric);
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
static enum mcp_status write_cluster(struct mcp_context *ctx, const struct mcp_topo_view *topo)
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

static struct mcp_json *topo_json(struct mcp_arena *arena, const struct mcp_topo_view *topo)
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

/* `count` operands that are one machine or cluster; none: this machine. */
static enum mcp_status find_topology(struct mcp_context *ctx, const struct topo_args *args,
                                     char *const *operands, int count, struct mcp_topo_view *topo)
{
    topo->notes = mcp_text_new(ctx->arena);
    topo->is_this = count == 0;
    topo->machine.note = "";
    if (count == 1 && is_cluster(ctx, operands[0]))
        return load_cluster(ctx, args, operands[0], topo);
    if (topo->is_this)
        MCP_TRY(mcp_machine_detect(ctx->arena, &topo->machine, &ctx->err));
    else
        MCP_TRY(read_dumps(ctx, operands, count, &topo->machine.node));
    if (topo->machine.node.notes != NULL)
        mcp_text_add(&topo->notes, "%s", topo->machine.node.notes);
    return build_cluster(ctx, args, topo);
}

static enum mcp_status write_svg(struct mcp_context *ctx, const struct mcp_topo_view *topo,
                                 const char *path)
{
    struct mcp_part *parts[MCP_MOST_PICTURES];
    int count = mcp_topo_pictures(ctx->arena, topo, parts);
    const char *title = count > 0 ? parts[count - 1]->title : "nothing";
    const struct mcp_text *svg = mcp_picture_svg(ctx->arena, parts, count, title);
    if (mcp_same(path, "-"))
        return mcp_output_text(svg, &ctx->err);
    MCP_TRY(mcp_file_replace(path, svg->data, svg->length, &ctx->err));
    mcp_note("wrote %s", path);
    return MCP_OK;
}

static enum mcp_status show_topology(struct mcp_context *ctx, const struct topo_args *args)
{
    struct mcp_topo_view topo = {0};
    struct mcp_text text = mcp_text_new(ctx->arena);
    MCP_TRY(find_topology(ctx, args, ctx->operands, ctx->num_operands, &topo));
    put_notes(&topo.notes);
    if (ctx->output_path != NULL)
        MCP_TRY(write_cluster(ctx, &topo));
    ctx->output_path = NULL; /* it is the cluster's, not the answer's */
    if (args->svg_path != NULL)
        MCP_TRY(write_svg(ctx, &topo, args->svg_path));
    if (mcp_same(args->svg_path, "-"))
        return MCP_OK;
    mcp_topo_text(ctx, &topo, &text);
    return mcp_output_result(ctx, &text, topo_json(ctx->arena, &topo));
}

static enum mcp_status show_difference(struct mcp_context *ctx, const struct topo_args *args)
{
    static const char *const ignored[] = {"notes", "uuid", "source", "schema", NULL};
    struct mcp_differences differences = {.arena = ctx->arena, .ignored = ignored};
    struct mcp_json *json[2];
    for (int i = 0; i < 2; i++) {
        struct mcp_topo_view topo = {0};
        MCP_TRY(find_topology(ctx, args, &ctx->operands[i], 1, &topo));
        json[i] = topo_json(ctx->arena, &topo);
    }
    mcp_diff(&differences, json[0], json[1]);
    return mcp_diff_show(ctx, &differences, ctx->operands[0], ctx->operands[1]);
}

static enum mcp_status check_args(struct mcp_context *ctx, const struct topo_args *args)
{
    if (args->presets && ctx->num_operands > 0)
        return mcp_fail(&ctx->err, MCP_USAGE, "topo --presets lists clusters and reads no FILE");
    if (args->diff && ctx->num_operands != 2)
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "topo --diff compares two machines or clusters, not %d", ctx->num_operands);
    if (args->diff && args->svg_path != NULL)
        return mcp_fail(&ctx->err, MCP_USAGE, "topo --diff draws no SVG");
    return MCP_OK;
}

enum mcp_status mcp_cmd_topo(struct mcp_context *ctx, int argc, char **argv)
{
    struct topo_args args = {.name = "this", .fabric = mcp_fabric_args_none()};
    const struct mcp_option options[] = {
        {"gpu", MCP_OPT_STRING, &args.gpu, "preset or file of the GPU, where a dump does not tell"},
        {"nodes", MCP_OPT_COUNT, &args.nodes, "such machines in the cluster"},
        {"network", MCP_OPT_STRING, &args.network,
         "bandwidth between nodes per GPU and direction, as 400Gbit/s"},
        {"name", MCP_OPT_STRING, &args.name, "the cluster's name in the file"},
        {"presets", MCP_OPT_FLAG, &args.presets, "list the clusters that mcpplan knows"},
        {"diff", MCP_OPT_FLAG, &args.diff, "what differs between two; exit 1 if anything does"},
        {"svg", MCP_OPT_FILE, &args.svg_path, "write the drawing as SVG"},
        {"The network between nodes", MCP_OPT_HEADING, NULL, NULL},
        {"fabric", MCP_OPT_CHOICE, &args.fabric.kind, "how switches join the nodes"},
        {"switch-ports", MCP_OPT_COUNT, &args.fabric.switch_ports, "of a switch (default: 64)"},
        {"nodes-per-leaf", MCP_OPT_COUNT, &args.fabric.nodes_per_leaf,
         "nodes under a leaf, or in a rail's or dragonfly's group (default: what ports allow)"},
        {"oversubscription", MCP_OPT_DOUBLE, &args.fabric.oversubscription,
         "bandwidth down over bandwidth up, 1 or more"},
        {"torus", MCP_OPT_STRING, &args.fabric.torus, "nodes in each dimension, as 4x4x8"},
        {"sites", MCP_OPT_COUNT, &args.fabric.sites, "equal parts that a wide-area network joins"},
        {"wan", MCP_OPT_STRING, &args.fabric.wan, "bandwidth of one site, as 100Gbit/s"},
        {"round-trip", MCP_OPT_STRING, &args.fabric.round_trip, "between sites, as 20ms"},
    };
    const struct mcp_usage usage = {
        .command = "topo",
        .summary = "show a machine's GPUs, NICs and links, and make a cluster file of it",
        .synopsis = "[FILE... | CLUSTER] [options]",
        .description =
            "Without FILE it is this machine. A FILE is what a tool says of another: nvidia-smi "
            "(topo -m, -q -x, -L, --query-gpu), rocm-smi --showtopo, lstopo --of xml, NCCL's "
            "topology XML. Several files of one machine add up; where they contradict each "
            "other, it says so. CLUSTER is a preset, PRESET:NODES or a cluster file. -o FILE is "
            "a cluster file for --cluster.",
        .max_operands = -1,
        .options = options,
        .num_options = MCP_COUNT_OF(options),
        .examples = "mcpplan topo\n"
                    "mcpplan topo topo.txt --gpu h100-sxm-80gb --nodes 16 --network 400Gbit/s "
                    "-o cluster.json\n"
                    "mcpplan topo dgx-h100:128 --fabric rail --oversubscription 2 --svg pod.svg\n"
                    "mcpplan topo --diff dgx-a100 dgx-h100\n",
    };
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return ctx->status;
    MCP_TRY(check_args(ctx, &args));
    if (args.presets)
        return list_presets(ctx);
    return args.diff ? show_difference(ctx, &args) : show_topology(ctx, &args);
}
