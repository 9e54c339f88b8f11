/* cli/plan_layout.c: a plan in words, and its ranks drawn over the nodes. */
#include "cli/plan_view.h"

#include "core/mesh.h"
#include "core/minmax.h"
#include "core/units.h"

#include <string.h>

enum { MOST_NODE_ROWS = 8, MOST_CELLS = 16, MOST_STAGE_ROWS = 10, LABEL = 15 };

/* Words */

static void add_degree(struct mcp_text *text, const char *name, int degree)
{
    if (degree > 1)
        mcp_text_add(text, "%s%s %d", text->length > 0 ? " x " : "", name, degree);
}

const char *mcp_plan_degrees_text(struct mcp_arena *arena, const struct mcp_plan *plan)
{
    struct mcp_text text = mcp_text_new(arena);
    add_degree(&text, "tensor", plan->tensor_parallel);
    add_degree(&text, "context", plan->context_parallel);
    add_degree(&text, "pipeline", plan->pipeline_parallel);
    add_degree(&text, "data", plan->data_parallel);
    if (plan->expert_parallel > 1)
        mcp_text_add(&text, "%sexpert %d", text.length > 0 ? ", " : "", plan->expert_parallel);
    return text.length > 0 ? text.data : "one device";
}

static const char *axis_name(enum mcp_axis axis)
{
    return axis == MCP_TENSOR    ? "tensor"
           : axis == MCP_CONTEXT ? "context"
           : axis == MCP_DATA    ? "data"
                                 : "pipeline";
}

/* Ranks that follow each other otherwise than usual. */
static void add_rank_order(struct mcp_text *text, const struct mcp_plan *plan)
{
    const struct mcp_plan usual = mcp_plan_default();
    bool same = true;
    for (int i = 0; i < 4; i++)
        same = same && plan->rank_order[i] == usual.rank_order[i];
    for (int i = 0; i < 4 && !same; i++)
        mcp_text_add(text, "%s%s", i == 0 ? ", ranks by " : ", ", axis_name(plan->rank_order[i]));
}

static void add_schedule(struct mcp_text *text, const struct mcp_plan *plan)
{
    if (plan->virtual_stages > 1)
        mcp_text_add(text, ", %s with %d virtual stages", mcp_schedule_names[plan->schedule],
                     plan->virtual_stages);
    else if (plan->pipeline_parallel > 1)
        mcp_text_add(text, ", %s", mcp_schedule_names[plan->schedule]);
}

/* How many layers of the chunks first, first + step ... do what. */
static void count_layers(const struct mcp_plan *plan, int first, int step,
                         int counts[MCP_NUM_RECOMPUTES])
{
    for (int i = 0; i < MCP_NUM_RECOMPUTES; i++)
        counts[i] = 0;
    for (int k = first; k < plan->pipeline_parallel * plan->virtual_stages; k += step)
        for (int i = 0; i < plan->chunks[k].num_runs; i++)
            counts[plan->chunks[k].runs[i].recompute] += plan->chunks[k].runs[i].num_layers;
}

/* "full on 3, selective on 2 of 32 layers"; "none". */
static const char *recompute_text(struct mcp_arena *arena, const int counts[MCP_NUM_RECOMPUTES],
                                  bool brief)
{
    struct mcp_text text = mcp_text_new(arena);
    int layers =
        counts[MCP_RECOMPUTE_NONE] + counts[MCP_RECOMPUTE_SELECTIVE] + counts[MCP_RECOMPUTE_FULL];
    for (int i = MCP_NUM_RECOMPUTES - 1; i > MCP_RECOMPUTE_NONE; i--)
        if (counts[i] > 0 && counts[i] < layers)
            mcp_text_add(&text, "%s%s on %d", text.length > 0 ? ", " : "", mcp_recompute_names[i],
                         counts[i]);
        else if (counts[i] > 0)
            return mcp_recompute_names[i];
    if (text.length == 0)
        return mcp_recompute_names[MCP_RECOMPUTE_NONE];
    return brief ? text.data : mcp_format(arena, "%s of %d layers", text.data, layers);
}

const char *mcp_plan_recompute_text(struct mcp_arena *arena, const struct mcp_plan *plan)
{
    int counts[MCP_NUM_RECOMPUTES];
    count_layers(plan, 0, 1, counts);
    return recompute_text(arena, counts, false);
}

const char *mcp_plan_choices_text(struct mcp_arena *arena, const struct mcp_plan *plan,
                                  const struct mcp_job *job)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "microbatch %d x %s", plan->microbatch_size,
                 mcp_show_integer(arena, mcp_num_microbatches(plan, job)));
    add_schedule(&text, plan);
    mcp_text_add(&text, ", ZeRO %d", plan->zero_stage);
    if (plan->sequence_parallel)
        mcp_text_add(&text, ", sequence parallel");
    if (plan->context_parallel > 1)
        mcp_text_add(&text, ", context by %s", mcp_context_kind_names[plan->context_parallel_kind]);
    if (plan->chunks)
        mcp_text_add(&text, ", recompute %s", mcp_plan_recompute_text(arena, plan));
    if (mcp_plan_world(plan) > 1)
        add_rank_order(&text, plan);
    if (plan->rank_map != NULL)
        mcp_text_add(&text, ", ranks on GPUs in another order");
    return text.data;
}

/* Layout */

struct node_row {
    const char *gpu;                /* where there are several kinds; else NULL */
    const char *cells;              /* "[0 0 0 0|0 0 0 0]" */
    int first, last;                /* nodes that look so */
    int end;                        /* the rank after their last */
    struct mcp_coordinate from, to; /* of their first and last rank */
};

static bool same_group(struct mcp_coordinate a, struct mcp_coordinate b)
{
    return a.context == b.context && a.data == b.data && a.pipeline == b.pipeline;
}

static int digits(int number)
{
    int count = 1;
    for (; number > 9; number /= 10)
        count++;
    return count;
}

/* A device's number is its stage; bars stand between tensor groups. */
static const char *draw_node(struct mcp_arena *arena, const struct mcp_plan *plan, int first,
                             int ranks)
{
    struct mcp_text text = mcp_text_new(arena);
    int width = digits(plan->pipeline_parallel - 1);
    for (int rank = first; rank < first + ranks; rank++) {
        struct mcp_coordinate at = mcp_mesh_coordinate_on(plan, rank);
        bool begins = rank == first || !same_group(at, mcp_mesh_coordinate_on(plan, rank - 1));
        mcp_text_add(&text, "%s%*d", rank == first ? "[" : begins ? "|" : " ", width, at.pipeline);
    }
    mcp_text_add(&text, "]");
    return text.data;
}

static const char *span(struct mcp_arena *arena, const char *one, const char *many, int from,
                        int to)
{
    return from == to ? mcp_format(arena, "%s %d", one, from)
                      : mcp_format(arena, "%s %d-%d", many, from, to);
}

/* Lowest and highest coordinates of the node's ranks, widened into the row. */
static void widen(struct node_row *row, const struct mcp_plan *plan, int first, int ranks)
{
    for (int rank = first; rank < first + ranks; rank++) {
        struct mcp_coordinate at = mcp_mesh_coordinate_on(plan, rank);
        row->from.context = mcp_min_int(row->from.context, at.context);
        row->from.data = mcp_min_int(row->from.data, at.data);
        row->from.pipeline = mcp_min_int(row->from.pipeline, at.pipeline);
        row->to.context = mcp_max_int(row->to.context, at.context);
        row->to.data = mcp_max_int(row->to.data, at.data);
        row->to.pipeline = mcp_max_int(row->to.pipeline, at.pipeline);
    }
}

/* Nodes of one pool, from `node` and rank `first` on, added to `count` rows. */
static int pool_rows(struct mcp_arena *arena, const struct mcp_plan *plan,
                     const struct mcp_cluster *pool, struct node_row *rows, int count)
{
    int ranks = pool->gpus_per_node, node = 0, first = 0;
    if (count > 0)
        node = rows[count - 1].last + 1;
    first = count > 0 ? rows[count - 1].end : 0;
    for (int i = 0; i < pool->num_nodes; i++, node++, first += ranks) {
        struct mcp_coordinate at = mcp_mesh_coordinate_on(plan, first);
        const char *cells = draw_node(arena, plan, first, ranks);
        bool begins = i == 0 || !mcp_same(cells, rows[count - 1].cells);
        if (begins)
            rows[count++] = (struct node_row){NULL, cells, node, node, 0, at, at};
        rows[count - 1].last = node;
        rows[count - 1].end = first + ranks;
        widen(&rows[count - 1], plan, first, ranks);
    }
    return count;
}

/* The map: rows of nodes that look alike. */
struct map {
    const struct mcp_plan *plan;
    struct node_row *rows;
    int count;
    bool drawn; /* nodes are narrow enough */
    int cells;  /* columns of the widest drawing */
    int stages; /* of the widest "stages 4-5" */
};

static const char *stages_text(struct mcp_arena *arena, const struct node_row *row)
{
    return span(arena, "stage", "stages", row->from.pipeline, row->to.pipeline);
}

static void write_node_row(struct mcp_text *out, const struct map *map, const struct node_row *row)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_plan *plan = map->plan;
    const char *replicas = span(arena, "replica", "replicas", row->from.data, row->to.data);
    mcp_text_add(out, "  %-*s  ", LABEL, span(arena, "node", "nodes", row->first, row->last));
    if (map->drawn)
        mcp_text_add(out, "%-*s  ", map->cells, row->cells);
    bool more = plan->data_parallel > 1 || plan->context_parallel > 1;
    mcp_text_add(out, "%-*s", more ? map->stages : 0, stages_text(arena, row));
    if (plan->data_parallel > 1)
        mcp_text_add(out, "  %s", replicas);
    if (plan->context_parallel > 1)
        mcp_text_add(out, "%s %s", plan->data_parallel > 1 ? "," : " ",
                     span(arena, "context", "context", row->from.context, row->to.context));
    if (row->gpu)
        mcp_text_add(out, "%s %s", more ? "," : " ", mcp_printable(arena, row->gpu));
    mcp_text_add(out, "\n");
}

static struct map map_of(struct mcp_arena *arena, const struct mcp_plan *plan,
                         const struct mcp_cluster *cluster)
{
    struct map map = {.plan = plan, .drawn = true};
    int nodes = 0;
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++) {
        nodes += mcp_cluster_pool(cluster, i)->num_nodes;
        map.drawn = map.drawn && mcp_cluster_pool(cluster, i)->gpus_per_node <= MOST_CELLS;
    }
    map.rows = MCP_ARRAY(arena, nodes, struct node_row);
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++) {
        int before = map.count;
        map.count = pool_rows(arena, plan, mcp_cluster_pool(cluster, i), map.rows, map.count);
        for (int k = before; k < map.count && mcp_cluster_num_pools(cluster) > 1; k++)
            map.rows[k].gpu = mcp_cluster_pool(cluster, i)->gpu.name;
    }
    for (int i = 0; i < map.count; i++) {
        const struct node_row *row = &map.rows[i];
        map.cells = mcp_max_int(map.cells, (int)strlen(row->cells));
        map.stages = mcp_max_int(map.stages, (int)strlen(stages_text(arena, row)));
    }
    return map;
}

static void write_map(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct map map = map_of(arena, &view->plan, view->question->cluster);
    bool parted = false;
    for (int i = 0; i < map.count; i++)
        parted = parted || strchr(map.rows[i].cells, '|') != NULL;
    for (int i = 0; i < map.count; i++) {
        if (map.count > MOST_NODE_ROWS && i == MOST_NODE_ROWS - 2) {
            mcp_text_add(out, "  ...\n");
            i = map.count - 1;
        }
        write_node_row(out, &map, &map.rows[i]);
    }
    if (map.drawn && mcp_plan_world(map.plan) > 1)
        mcp_text_add(out, "  %-*s  %s\n", LABEL, "",
                     mcp_paint(arena, style, MCP_DIM,
                               mcp_format(arena, "each number is the stage of a %s%s",
                                          mcp_plan_device(view->question),
                                          parted ? "; | between tensor groups" : "")));
}

/* Stages: layers and recompute, where they differ from stage to stage */

/* "24 layers in 6 chunks of 4", "11 layers"; uneven chunks one by one. */
static const char *layers_text(struct mcp_arena *arena, const struct mcp_plan *plan, int stage)
{
    struct mcp_text sizes = mcp_text_new(arena);
    int layers = 0, first = plan->chunks[stage].num_layers;
    bool equal = true;
    for (int c = 0; c < plan->virtual_stages; c++) {
        int count = plan->chunks[mcp_plan_virtual_stage(plan, stage, c)].num_layers;
        mcp_text_add(&sizes, "%s%d", c > 0 ? "+" : "", count);
        layers += count;
        equal = equal && count == first;
    }
    if (plan->virtual_stages == 1)
        return mcp_format(arena, "%d layer%s", layers, layers == 1 ? "" : "s");
    return equal ? mcp_format(arena, "%d layers in chunks of %d", layers, first)
                 : mcp_format(arena, "%d layers in chunks of %s", layers, sizes.data);
}

static const char *stage_text(struct mcp_arena *arena, const struct mcp_plan *plan, int stage)
{
    int counts[MCP_NUM_RECOMPUTES];
    count_layers(plan, stage, plan->pipeline_parallel, counts);
    return mcp_format(arena, "%s, recompute %s", layers_text(arena, plan, stage),
                      recompute_text(arena, counts, true));
}

/* Stages that are alike share a line; nothing where all are. */
static void write_stages(struct mcp_text *out, const struct mcp_plan *plan)
{
    struct mcp_arena *arena = out->arena;
    int stages = plan->pipeline_parallel, lines = 0;
    for (int first = 0, next; first < stages; first = next) {
        const char *text = stage_text(arena, plan, first);
        for (next = first + 1; next < stages && mcp_same(text, stage_text(arena, plan, next));)
            next++;
        if (next - first == stages)
            return;
        if (lines++ == MOST_STAGE_ROWS)
            mcp_text_add(out, "  ...\n");
        if (lines <= MOST_STAGE_ROWS || next == stages)
            mcp_text_add(out, "  %-*s  %s\n", LABEL,
                         span(arena, "stage", "stages", first, next - 1), text);
    }
    mcp_text_add(out, "\n");
}

void mcp_plan_layout_text(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_plan *plan = &view->plan;
    bool answers = view->answer->count > 0 || view->predicts;
    mcp_heading(out, style, answers ? "Layout" : "The smallest plan");
    mcp_text_add(out, "  %s\n",
                 mcp_paint(arena, style, MCP_BOLD, mcp_plan_degrees_text(arena, plan)));
    mcp_text_add(out, "  ");
    mcp_wrap(out, mcp_plan_choices_text(arena, plan, view->question->job), style->width - 2, 2);
    mcp_text_add(out, "\n\n");
    if (plan->chunks && plan->pipeline_parallel > 1)
        write_stages(out, plan);
    write_map(out, style, view);
}
