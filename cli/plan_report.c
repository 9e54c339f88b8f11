/* cli/plan_report.c: a plan as a report: the answer, where time goes, the layout. */
#include "cli/plan_report.h"

#include "cli/commands.h"
#include "core/mesh.h"
#include "core/minmax.h"
#include "core/units.h"

#include <math.h>
#include <string.h>

/* The answer */

static void add_memory_figure(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_prediction *p = view->prediction;
    const char *limit = mcp_plan_gib(arena, p->memory_limit_bytes);
    const struct mcp_report_figure figure = {
        "Peak memory", mcp_plan_gib(arena, p->peak_memory_bytes),
        p->fits ? mcp_format(arena, "of %s: fits", limit)
                : mcp_format(arena, "of %s: %s too much", limit,
                             mcp_plan_gib(arena, p->peak_memory_bytes - p->memory_limit_bytes)),
        (double)p->peak_memory_bytes / (double)p->memory_limit_bytes};
    mcp_report_figure(report, p->fits ? MCP_TONE_GOOD : MCP_TONE_BAD, &figure);
}

/* "25.9 s – 28.4 s", whose words stay on one line. */
static const char *range_text(struct mcp_arena *arena, double from_s, double to_s)
{
    const char *text = mcp_format(arena, "%s – %s", mcp_show(arena, from_s, MCP_SECONDS),
                                  mcp_show(arena, to_s, MCP_SECONDS));
    struct mcp_text out = mcp_text_new(arena);
    for (; *text != '\0'; text++)
        mcp_text_append(&out, *text == ' ' ? "\u00a0" : text, *text == ' ' ? 2 : 1);
    return out.data;
}

static void add_figures(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_prediction *p = view->prediction;
    const struct mcp_cluster *cluster = view->question->cluster;
    double off = p->uncertainty_frac * p->iteration_s;
    double price = cluster->gpu.price_per_gpu_hour;
    mcp_report_plain_figure(
        report, "Iteration", mcp_show(arena, p->iteration_s, MCP_SECONDS),
        mcp_format(arena, "± %.0f %%, %s", 100 * p->uncertainty_frac,
                   range_text(arena, p->iteration_s - off, p->iteration_s + off)));
    mcp_report_plain_figure(
        report, "Tokens a second", mcp_show_count(arena, p->tokens_per_s),
        mcp_format(arena, "%s on each %s",
                   mcp_show_count(arena, p->tokens_per_s / mcp_cluster_gpus(cluster)),
                   mcp_plan_device(view->question)));
    mcp_report_plain_figure(
        report, "MFU", mcp_report_percent(arena, p->model_flops_utilization),
        mcp_format(arena, "HFU %s", mcp_report_percent(arena, p->hardware_flops_utilization)));
    add_memory_figure(report, view);
    mcp_report_plain_figure(
        report, "Bubble", mcp_report_percent(arena, p->bubble_frac),
        mcp_format(arena, "%s over the ideal", mcp_report_percent(arena, p->bubble_over_ideal)));
    mcp_report_plain_figure(report, "Communication",
                            mcp_report_percent(arena, p->exposed_comm_frac),
                            "of the step, exposed");
    if (isfinite(price) && mcp_cluster_num_pools(cluster) == 1)
        mcp_report_plain_figure(
            report, "Cost of an iteration",
            mcp_format(arena, "%.3g", p->iteration_s / 3600 * price * mcp_cluster_gpus(cluster)),
            mcp_format(arena, "at %.3g an hour and %s", price, mcp_plan_device(view->question)));
}

void mcp_plan_report_answer(struct mcp_report *report, const struct mcp_plan_view *view)
{
    static const char *const mean[] = {"one iteration"};
    struct mcp_arena *arena = report->arena;
    bool proven = view->answer->record.proven_optimal;
    if (view->arithmetic)
        mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN, view->arithmetic);
    mcp_report_say(report, MCP_REPORT_LEAD, MCP_TONE_PLAIN,
                   mcp_report_times(arena, mcp_plan_degrees_text(arena, &view->plan)));
    mcp_report_say(
        report, MCP_REPORT_PROSE, MCP_TONE_PLAIN,
        mcp_report_times(arena, mcp_plan_choices_text(arena, &view->plan, view->question->job)));
    if (view->predicts)
        mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN,
                       "everything was pinned, so this plan is predicted, not chosen");
    else if (view->answer->count > 0)
        mcp_report_say(report, MCP_REPORT_PROSE, proven ? MCP_TONE_GOOD : MCP_TONE_WARN,
                       mcp_plan_proof_text(arena, view));
    for (int i = 0; i < view->refusals.count; i++)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_BAD, view->refusals.items[i].text);
    for (int i = 0; i < view->requirements->count; i++)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
                       mcp_format(arena, "required: %s", view->requirements->items[i].text));
    if (view->phases)
        mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN,
                       mcp_phases_text(arena, view->phases));
    if (view->halves_text)
        mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN, view->halves_text);
    add_figures(report, view);
    mcp_report_costs(report, "An iteration by kind of time, mean over all ranks", mean,
                     view->prediction->cost_s, 1);
}

/* Where time goes */

void mcp_plan_report_time(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_prediction *p = view->prediction;
    int stages = view->plan.pipeline_parallel;
    double *values = MCP_ARRAY(arena, stages * MCP_NUM_COSTS, double);
    for (int i = 0; i < stages; i++)
        memcpy(values + (size_t)i * MCP_NUM_COSTS, p->stages[i].cost_s, sizeof p->stages[i].cost_s);
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Where the time goes");
    if (stages > 1)
        mcp_report_costs(report, "An iteration by kind of time, stage by stage",
                         mcp_report_stages(arena, stages), values, stages);
    mcp_report_cost_table(report, p->cost_s, p->comm_s, p->iteration_s);
}

/* Layout over nodes */

enum { MOST_ROWS = 24 };

/* Coordinates of a row's ranks, lowest and highest. */
struct extent {
    struct mcp_coordinate from, to;
};

static void widen(struct extent *extent, struct mcp_coordinate at)
{
    extent->from.context = mcp_min_int(extent->from.context, at.context);
    extent->from.data = mcp_min_int(extent->from.data, at.data);
    extent->from.pipeline = mcp_min_int(extent->from.pipeline, at.pipeline);
    extent->to.context = mcp_max_int(extent->to.context, at.context);
    extent->to.data = mcp_max_int(extent->to.data, at.data);
    extent->to.pipeline = mcp_max_int(extent->to.pipeline, at.pipeline);
}

static void add_span(struct mcp_text *text, const char *what, int from, int to)
{
    mcp_text_add(text, "%s%s%s %d", text->length > 0 ? ", " : "", what, from == to ? "" : "s",
                 from);
    if (to > from)
        mcp_text_add(text, "–%d", to);
}

static const char *extent_text(struct mcp_arena *arena, const struct mcp_plan *plan,
                               const struct extent *extent, const char *gpu)
{
    struct mcp_text text = mcp_text_new(arena);
    add_span(&text, "stage", extent->from.pipeline, extent->to.pipeline);
    if (plan->data_parallel > 1)
        add_span(&text, "replica", extent->from.data, extent->to.data);
    if (plan->context_parallel > 1)
        add_span(&text, "context rank", extent->from.context, extent->to.context);
    if (gpu)
        mcp_text_add(&text, ", %s", gpu);
    return text.data;
}

/* The node of `ranks` ranks from `first` on. */
static struct mcp_report_grid_row node_row(struct mcp_arena *arena, const struct mcp_plan *plan,
                                           int first, int ranks, struct extent *extent)
{
    int *cells = MCP_ARRAY(arena, ranks, int);
    bool *begins = MCP_ARRAY(arena, ranks, bool);
    struct mcp_coordinate before = mcp_mesh_coordinate_on(plan, first);
    *extent = (struct extent){before, before};
    for (int i = 0; i < ranks; i++) {
        struct mcp_coordinate at = mcp_mesh_coordinate_on(plan, first + i);
        cells[i] = at.pipeline;
        begins[i] = at.context != before.context || at.data != before.data ||
                    at.pipeline != before.pipeline;
        widen(extent, at);
        before = at;
    }
    return (struct mcp_report_grid_row){NULL, NULL, ranks, cells, begins};
}

static bool alike(const struct mcp_report_grid_row *a, const struct mcp_report_grid_row *b)
{
    size_t count = (size_t)a->num_cells;
    return a->num_cells == b->num_cells && memcmp(a->cells, b->cells, count * sizeof(int)) == 0 &&
           memcmp(a->begins, b->begins, count * sizeof(bool)) == 0;
}

/* Rows of nodes that look alike, being made. */
struct map {
    struct mcp_arena *arena;
    const struct mcp_plan *plan;
    struct mcp_report_grid_row *rows;
    struct extent *extents;
    int count, node, rank;
};

static void finish_row(struct map *map, int first_node, const char *gpu)
{
    struct mcp_text label = mcp_text_new(map->arena);
    add_span(&label, "node", first_node, map->node - 1);
    map->rows[map->count].label = label.data;
    map->rows[map->count].note = extent_text(map->arena, map->plan, &map->extents[map->count], gpu);
    map->count++;
}

static void add_pool(struct map *map, const struct mcp_cluster *pool, const char *gpu)
{
    int first_node = map->node;
    for (int i = 0; i < pool->num_nodes; i++) {
        struct extent extent;
        const struct mcp_report_grid_row row =
            node_row(map->arena, map->plan, map->rank, pool->gpus_per_node, &extent);
        if (i > 0 && !alike(&row, &map->rows[map->count])) {
            finish_row(map, first_node, gpu);
            first_node = map->node;
        }
        if (first_node == map->node) {
            map->rows[map->count] = row;
            map->extents[map->count] = extent;
        }
        widen(&map->extents[map->count], extent.from);
        widen(&map->extents[map->count], extent.to);
        map->node++;
        map->rank += pool->gpus_per_node;
    }
    finish_row(map, first_node, gpu);
}

void mcp_plan_report_layout(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_cluster *cluster = view->question->cluster;
    int pools = mcp_cluster_num_pools(cluster), nodes = 0;
    for (int i = 0; i < pools; i++)
        nodes += mcp_cluster_pool(cluster, i)->num_nodes;
    struct map map = {arena,
                      &view->plan,
                      MCP_ARRAY(arena, nodes, struct mcp_report_grid_row),
                      MCP_ARRAY(arena, nodes, struct extent),
                      0,
                      0,
                      0};
    for (int i = 0; i < pools; i++)
        add_pool(&map, mcp_cluster_pool(cluster, i),
                 pools > 1 ? mcp_cluster_pool(cluster, i)->gpu.name : NULL);
    struct mcp_report_grid grid = {"Stages over nodes", "",       view->plan.pipeline_parallel - 1,
                                   map.count,           map.rows, 0};
    grid.cells_are = mcp_format(arena, "pipeline stage of a %s", mcp_plan_device(view->question));
    if (map.count > MOST_ROWS) {
        grid.rows_left_out = map.count - MOST_ROWS;
        grid.num_rows = MOST_ROWS;
        map.rows[MOST_ROWS - 1] = map.rows[map.count - 1];
    }
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Layout over the machines");
    mcp_report_grid(report, &grid);
}

/* The whole */

enum mcp_status mcp_plan_report_write(struct mcp_context *ctx, const struct mcp_plan_args *args,
                                      const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = ctx->arena;
    struct mcp_report report = mcp_report_new(arena, view->question->model->name,
                                              mcp_report_question(arena, view->question));
    report.made_by =
        "made by mcpplan " MCP_VERSION "; every number is a prediction unless it says otherwise";
    mcp_plan_report_answer(&report, view);
    mcp_plan_report_layout(&report, view);
    mcp_plan_report_time(&report, view);
    mcp_plan_report_play(&report, view);
    mcp_plan_report_savings(&report, view);
    mcp_plan_report_others(&report, view);
    mcp_plan_report_search(&report, view);
    mcp_plan_report_inputs(&report, view, args->stack ? args->stack : view->question->stack->name);
    return mcp_report_file_write(ctx, args->report, &report);
}
