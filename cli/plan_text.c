/* cli/plan_text.c: a plan for people: the answer first, then why. */
#include "cli/plan_view.h"

#include "core/mesh.h"
#include "core/units.h"
#include "reports/bars.h"
#include "reports/table.h"

#include <math.h>
#include <string.h>

enum { BAR_CELLS = 60, MOST_STAGES = 8, MOST_NODE_ROWS = 8, MOST_CELLS = 16, LABEL = 12 };

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
    return text.length > 0 ? text.data : "one GPU";
}

static void add_schedule(struct mcp_text *text, const struct mcp_plan *plan)
{
    if (plan->virtual_stages > 1)
        mcp_text_add(text, ", %s with %d virtual stages", mcp_schedule_names[plan->schedule],
                     plan->virtual_stages);
    else if (plan->pipeline_parallel > 1)
        mcp_text_add(text, ", %s", mcp_schedule_names[plan->schedule]);
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
        mcp_text_add(&text, ", context by %s",
                     mcp_context_kind_names[plan->context_parallel_kind]);
    if (plan->chunks)
        mcp_text_add(&text, ", recompute %s", mcp_recompute_names[mcp_uniform_recompute(plan)]);
    return text.data;
}

static const char *gib(struct mcp_arena *arena, int64_t bytes)
{
    return mcp_format(arena, "%.1f GiB", (double)bytes / (double)(1 << 30));
}

static const char *plus_minus(const struct mcp_style *style)
{
    return style->unicode ? "±" : "+-";
}

static const char *signed_percent(struct mcp_arena *arena, double frac)
{
    return mcp_format(arena, "%+.1f %%", 100 * frac);
}

/* One question in one line. */
static void write_question(struct mcp_text *out, const struct mcp_style *style,
                           const struct mcp_question *question)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_cluster *cluster = question->cluster;
    mcp_text_add(out, "%s",
                 mcp_paint(arena, style, MCP_BOLD, mcp_printable(arena, question->model->name)));
    mcp_text_add(out, " on %s x %s, %d node%s of %d",
                 mcp_show_integer(arena, mcp_cluster_gpus(cluster)),
                 mcp_printable(arena, cluster->gpu.name), cluster->num_nodes,
                 cluster->num_nodes == 1 ? "" : "s", cluster->gpus_per_node);
    mcp_text_add(out, "; batch %s x %s tokens, %s, %s\n",
                 mcp_show_integer(arena, question->job->global_batch_size),
                 mcp_show_integer(arena, question->job->sequence_length),
                 mcp_precision_names[question->job->precision],
                 mcp_printable(arena, question->stack->name));
}

static const char *verdict(struct mcp_arena *arena, const struct mcp_style *style,
                           const struct mcp_prediction *p)
{
    int64_t missing = p->peak_memory_bytes - p->memory_limit_bytes;
    if (p->fits)
        return mcp_paint(arena, style, MCP_GREEN,
                         mcp_format(arena, "fits in %s of %s", gib(arena, p->peak_memory_bytes),
                                    gib(arena, p->memory_limit_bytes)));
    return mcp_paint(arena, style, MCP_RED,
                     mcp_format(arena, "does not fit: %s of %s, %s too much",
                                gib(arena, p->peak_memory_bytes),
                                gib(arena, p->memory_limit_bytes), gib(arena, missing)));
}

static void write_headline(struct mcp_text *out, const struct mcp_style *style,
                           const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_prediction *p = view->prediction;
    const char *time = mcp_format(arena, "%s %s %.0f %%", mcp_show(arena, p->iteration_s, MCP_SECONDS),
                                  plus_minus(style), 100 * p->uncertainty_frac);
    mcp_text_add(out, "\n  %s an iteration, ", mcp_paint(arena, style, MCP_BOLD, time));
    mcp_text_add(out, "%s tokens/s, MFU %.1f %%, ", mcp_show_count(arena, p->tokens_per_s),
                 100 * p->model_flops_utilization);
    mcp_text_add(out, "%s\n", verdict(arena, style, p));
}

/* Layout */

struct node_row {
    const char *cells; /* "[0 0 0 0|0 0 0 0]" */
    int first, last;   /* nodes that look so */
    struct mcp_coordinate from, to; /* of their first and last rank */
};

static bool same_group(struct mcp_coordinate a, struct mcp_coordinate b)
{
    return a.context == b.context && a.data == b.data && a.pipeline == b.pipeline;
}

/* A GPU's number is its stage, or its replica where there is one stage; bars
 * stand between tensor groups. Wide nodes: "8 x [0 x 8]". */
static const char *draw_node(struct mcp_arena *arena, const struct mcp_plan *plan, int first,
                             int ranks)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int rank = first; rank < first + ranks; rank++) {
        struct mcp_coordinate at = mcp_mesh_coordinate(plan, rank);
        bool begins = rank == first || !same_group(at, mcp_mesh_coordinate(plan, rank - 1));
        mcp_text_add(&text, "%s%d", rank == first ? "[" : begins ? "|" : " ",
                     plan->pipeline_parallel > 1 ? at.pipeline : at.data);
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

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Lowest and highest coordinates of the node's ranks, widened into the row. */
static void widen(struct node_row *row, const struct mcp_plan *plan, int first, int ranks)
{
    for (int rank = first; rank < first + ranks; rank++) {
        struct mcp_coordinate at = mcp_mesh_coordinate(plan, rank);
        row->from.context = smaller(row->from.context, at.context);
        row->from.data = smaller(row->from.data, at.data);
        row->from.pipeline = smaller(row->from.pipeline, at.pipeline);
        row->to.context = larger(row->to.context, at.context);
        row->to.data = larger(row->to.data, at.data);
        row->to.pipeline = larger(row->to.pipeline, at.pipeline);
    }
}

static int node_rows(struct mcp_arena *arena, const struct mcp_question *question,
                     const struct mcp_plan *plan, struct node_row *rows)
{
    int count = 0, ranks = question->cluster->gpus_per_node;
    for (int node = 0; node < question->cluster->num_nodes; node++) {
        int first = node * ranks;
        struct mcp_coordinate at = mcp_mesh_coordinate(plan, first);
        const char *cells = draw_node(arena, plan, first, ranks);
        bool begins = count == 0 || !mcp_same(cells, rows[count - 1].cells);
        if (begins)
            rows[count++] = (struct node_row){cells, node, node, at, at};
        rows[count - 1].last = node;
        widen(&rows[count - 1], plan, first, ranks);
    }
    return count;
}

static void write_node_row(struct mcp_text *out, const struct mcp_plan *plan,
                           const struct node_row *row, bool drawn)
{
    struct mcp_arena *arena = out->arena;
    const char *name = span(arena, "node", "nodes", row->first, row->last);
    mcp_text_add(out, "  %-*s", LABEL, name);
    if (drawn)
        mcp_text_add(out, "%s  ", row->cells);
    mcp_text_add(out, "%s", span(arena, "stage", "stages", row->from.pipeline, row->to.pipeline));
    if (plan->data_parallel > 1)
        mcp_text_add(out, ", %s",
                     span(arena, "replica", "replicas", row->from.data, row->to.data));
    if (plan->context_parallel > 1)
        mcp_text_add(out, ", context %d-%d", row->from.context, row->to.context);
    mcp_text_add(out, "\n");
}

static void write_layout(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_plan *plan = &view->plan;
    mcp_heading(out, style, "Layout");
    mcp_text_add(out, "  %s\n", mcp_paint(arena, style, MCP_BOLD, mcp_plan_degrees_text(arena, plan)));
    mcp_text_add(out, "  %s\n\n", mcp_plan_choices_text(arena, plan, view->question->job));
    struct node_row *rows =
        MCP_ARRAY(arena, view->question->cluster->num_nodes, struct node_row);
    int count = node_rows(arena, view->question, plan, rows);
    bool drawn = view->question->cluster->gpus_per_node <= MOST_CELLS;
    for (int i = 0; i < count; i++) {
        if (count > MOST_NODE_ROWS && i == MOST_NODE_ROWS - 2) {
            mcp_text_add(out, "  ...\n");
            i = count - 1;
        }
        write_node_row(out, plan, &rows[i], drawn);
    }
}

/* Time */

struct share {
    int cost;
    double seconds;
};

/* Kinds of time, largest first; what is below a hundredth is summed up last, as
 * cost -1. */
static int shares_of(const struct mcp_prediction *p, struct share shares[MCP_NUM_COSTS + 1])
{
    int count = 0;
    double rest = 0;
    for (int cost = 0; cost < MCP_NUM_COSTS; cost++) {
        double seconds = p->cost_s[cost];
        if (seconds < 0.01 * p->iteration_s) {
            rest += seconds;
            continue;
        }
        int at = count++;
        for (; at > 0 && shares[at - 1].seconds < seconds; at--)
            shares[at] = shares[at - 1];
        shares[at] = (struct share){cost, seconds};
    }
    if (rest > 0)
        shares[count++] = (struct share){-1, rest};
    return count;
}

static void write_time(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_prediction *p)
{
    struct mcp_arena *arena = out->arena;
    struct share shares[MCP_NUM_COSTS + 1];
    struct mcp_bar parts[MCP_NUM_COSTS + 1];
    int count = shares_of(p, shares);
    for (int i = 0; i < count; i++)
        parts[i] = (struct mcp_bar){
            shares[i].cost < 0 ? "all else" : mcp_cost_names[shares[i].cost], shares[i].seconds,
            mcp_show(arena, shares[i].seconds, MCP_SECONDS), MCP_PLAIN};
    mcp_heading(out, style, "Where the time goes");
    mcp_text_add(out, "  ");
    mcp_stacked_line(out, style, parts, count, 0, BAR_CELLS);
    mcp_text_add(out, "  %s\n", mcp_show(arena, p->iteration_s, MCP_SECONDS));
    mcp_stacked_legend(out, style, parts, count, p->iteration_s);
    mcp_text_add(out,
                 "  bubble over ideal %.1f %%, exposed communication %.1f %%, hardware FLOPs "
                 "%.1f %%\n",
                 100 * p->bubble_over_ideal, 100 * p->exposed_comm_frac,
                 100 * p->hardware_flops_utilization);
}

/* Memory */

enum { NUM_PARTS = 6 };

static void memory_parts(struct mcp_arena *arena, const struct mcp_memory *memory,
                         struct mcp_bar parts[NUM_PARTS])
{
    const struct {
        const char *label;
        int64_t bytes;
    } list[NUM_PARTS] = {
        {"weights", memory->weights_bytes},         {"gradients", memory->gradients_bytes},
        {"optimizer", memory->optimizer_bytes},     {"activations", memory->activations_bytes},
        {"working buffers", memory->buffers_bytes}, {"reserve", memory->reserve_bytes},
    };
    for (int i = 0; i < NUM_PARTS; i++)
        parts[i] = (struct mcp_bar){list[i].label, (double)list[i].bytes,
                                    gib(arena, list[i].bytes), MCP_PLAIN};
}

static void write_stage_memory(struct mcp_text *out, const struct mcp_style *style,
                               const struct mcp_prediction *p, int stage)
{
    struct mcp_bar parts[NUM_PARTS];
    int64_t total = mcp_memory_total(&p->stages[stage].memory);
    memory_parts(out->arena, &p->stages[stage].memory, parts);
    mcp_text_add(out, "  %-*s", LABEL, mcp_format(out->arena, "stage %d", stage));
    mcp_stacked_line(out, style, parts, NUM_PARTS, (double)p->memory_limit_bytes,
                     BAR_CELLS - LABEL);
    mcp_text_add(out, "  %s%s\n", gib(out->arena, total),
                 stage == p->peak_stage ? ", the fullest" : "");
}

static void write_memory(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_plan_view *view)
{
    const struct mcp_prediction *p = view->prediction;
    int stages = view->plan.pipeline_parallel, before = -1;
    struct mcp_bar parts[NUM_PARTS];
    mcp_heading(out, style,
                mcp_format(out->arena, "Memory by stage, of the %s a GPU may use",
                           gib(out->arena, p->memory_limit_bytes)));
    for (int stage = 0; stage < stages; stage++) {
        bool shown = stages <= MOST_STAGES || stage < MOST_STAGES / 2 || stage == p->peak_stage ||
                     stage >= stages - 2;
        if (!shown)
            continue;
        if (stage != before + 1)
            mcp_text_add(out, "  ...\n");
        write_stage_memory(out, style, p, stage);
        before = stage;
    }
    memory_parts(out->arena, &p->memory, parts);
    mcp_stacked_legend(out, style, parts, NUM_PARTS, (double)p->memory_limit_bytes);
}

/* Alternatives */

/* The two kinds of time of which `other` has most more than `best`. */
static const char *losses(struct mcp_arena *arena, const struct mcp_prediction *best,
                          const struct mcp_prediction *other)
{
    struct mcp_text text = mcp_text_new(arena);
    int first = -1;
    for (int n = 0; n < 2; n++) {
        int most = -1;
        double more = 0.002 * best->iteration_s;
        for (int cost = 0; cost < MCP_NUM_COSTS; cost++) {
            double delta = other->cost_s[cost] - best->cost_s[cost];
            if (cost != first && delta > more) {
                most = cost;
                more = delta;
            }
        }
        if (most < 0)
            break;
        mcp_text_add(&text, "%s%s +%s", n > 0 ? ", " : "", mcp_cost_names[most],
                     mcp_show(arena, more, MCP_SECONDS));
        first = most;
    }
    return text.length > 0 ? text.data : "next to nothing";
}

static void write_alternatives(struct mcp_text *out, const struct mcp_style *style,
                               const struct mcp_plan_view *view)
{
    static const struct mcp_column columns[] = {
        {"plan", "", MCP_LEFT},   {"iteration", "", MCP_RIGHT}, {"", "", MCP_RIGHT},
        {"peak", "", MCP_RIGHT},  {"loses by", "", MCP_LEFT},
    };
    struct mcp_arena *arena = out->arena;
    struct mcp_table *table = mcp_table_new(arena, columns, sizeof columns / sizeof *columns);
    const struct mcp_prediction *best = view->prediction;
    for (int i = 0; i < view->answer->count; i++) {
        const struct mcp_prediction *p = &view->predictions[i];
        const struct mcp_plan *plan = &view->answer->found[i].plan;
        mcp_table_cell(table, "%s: %s", mcp_plan_degrees_text(arena, plan),
                       mcp_plan_choices_text(arena, plan, view->question->job));
        mcp_table_cell(table, "%s", mcp_show(arena, p->iteration_s, MCP_SECONDS));
        mcp_table_cell(table, "%s",
                       i == 0 ? "best"
                              : signed_percent(arena, p->iteration_s / best->iteration_s - 1));
        mcp_table_cell(table, "%s", gib(arena, p->peak_memory_bytes));
        mcp_table_cell(table, "%s", i == 0 ? "" : losses(arena, best, p));
        if (i == 0)
            mcp_table_paint_row(table, MCP_BOLD);
    }
    mcp_heading(out, style, "The best of other layouts");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
}

/* Search */

static void write_rule_price(struct mcp_text *out, const struct mcp_plan_view *view, int index,
                             const char *rule, const char *option)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_found *beyond = &view->answer->beyond[index];
    if (!view->answer->has_beyond[index] || view->answer->count == 0)
        return;
    double frac = beyond->iteration_s / view->answer->found[0].iteration_s - 1;
    const char *plan = mcp_plan_degrees_text(arena, &beyond->plan);
    const char *time = mcp_show(arena, beyond->iteration_s, MCP_SECONDS);
    if (frac < 0)
        mcp_text_add(out, "  %s costs %.1f %% here: without it %s takes %s (%s off)\n", rule,
                     -100 * frac, plan, time, option);
    else
        mcp_text_add(out, "  %s costs nothing here: the best it refuses, %s, takes %s (%s)\n",
                     rule, plan, time, signed_percent(arena, frac));
}

static void write_search(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_search_record *record = &view->answer->record;
    static const struct mcp_column columns[] = {
        {"refused by", "", MCP_LEFT}, {"candidates", "", MCP_RIGHT}, {"share", "%", MCP_RIGHT}};
    struct mcp_table *table = mcp_table_new(arena, columns, 3);
    for (int i = 0; i < record->num_refused; i++) {
        mcp_table_cell(table, "%s", record->refused[i].rule);
        mcp_table_cell(table, "%s", mcp_show_integer(arena, record->refused[i].count));
        mcp_table_cell(table, "%.1f",
                       100 * (double)record->refused[i].count / (double)record->candidates);
    }
    mcp_heading(out, style, "What was looked at");
    mcp_text_add(out, "  %s candidates with uniform stages: %s priced, %s that cannot win not\n",
                 mcp_show_integer(arena, record->candidates),
                 mcp_show_integer(arena, record->priced),
                 mcp_show_integer(arena, record->bounded));
    if (mcp_table_num_rows(table) > 0)
        mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
    write_rule_price(out, view, 0, "the pipeline rule", "--pipeline-rule");
    write_rule_price(out, view, 1, "the batch rule", "--batch-rule");
}

/* What it rests on */

static void write_point(struct mcp_text *out, const struct mcp_style *style, const char *text)
{
    mcp_text_add(out, "  - ");
    mcp_wrap(out, text, style->width - 4, 4);
    mcp_text_add(out, "\n");
}

static void write_assumptions(struct mcp_text *out, const struct mcp_style *style,
                              const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_stack *stack = view->question->stack;
    const struct mcp_cluster *cluster = view->question->cluster;
    double price = cluster->gpu.price_per_gpu_hour;
    mcp_heading(out, style, "What this rests on");
    write_point(out, style,
                mcp_format(arena, "%s %.0f %%: about nine in ten published runs of such a stack lie "
                           "within it", plus_minus(style),
                           100 * view->prediction->uncertainty_frac));
    write_point(out, style, mcp_format(arena, "stack %s: %s", mcp_printable(arena, stack->name),
                                       mcp_printable(arena, stack->source)));
    write_point(out, style,
                "modelled: kernels by roofline, launches, collectives by tier, the exact pipeline "
                "recurrence, memory buffer by buffer; not modelled: stragglers, failures, shared "
                "links, reading data");
    if (isfinite(price))
        write_point(out, style,
                    mcp_format(arena, "an iteration costs %.3g at %.3g per GPU and hour",
                               view->prediction->iteration_s / 3600 * price *
                                   mcp_cluster_gpus(cluster), price));
}

/* Refused */

static void write_refusals(struct mcp_text *out, const struct mcp_style *style,
                           const struct mcp_plan_view *view)
{
    mcp_heading(out, style, mcp_paint(out->arena, style, MCP_RED, "Refused, because"));
    for (int i = 0; i < view->refusals.count; i++)
        write_point(out, style,
                    mcp_format(out->arena, "%s (%s)", view->refusals.items[i].text,
                               view->refusals.items[i].rule));
}

static void write_changes(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    if (view->changes.count == 0)
        return;
    mcp_heading(out, style, "What would change that");
    for (int i = 0; i < view->changes.count; i++) {
        const struct mcp_change *change = &view->changes.items[i];
        write_point(out, style,
                    mcp_format(arena, "%s: %s in %s (%s; %s)", change->text,
                               mcp_show(arena, change->found.iteration_s, MCP_SECONDS),
                               gib(arena, change->found.peak_memory_bytes),
                               mcp_plan_degrees_text(arena, &change->found.plan),
                               mcp_plan_choices_text(arena, &change->found.plan,
                                                     view->question->job)));
    }
}

void mcp_plan_view_text(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_plan_view *view)
{
    write_question(out, style, view->question);
    if (view->arithmetic)
        mcp_text_add(out, "  %s\n", view->arithmetic);
    if (view->priced)
        write_headline(out, style, view);
    if (view->refusals.count > 0)
        write_refusals(out, style, view);
    write_changes(out, style, view);
    if (view->priced) {
        write_layout(out, style, view);
        write_time(out, style, view->prediction);
        write_memory(out, style, view);
    }
    if (view->answer->count > 1)
        write_alternatives(out, style, view);
    if (view->answer->record.candidates > 1)
        write_search(out, style, view);
    if (view->priced)
        write_assumptions(out, style, view);
}

enum mcp_status mcp_plan_view_fail(struct mcp_arena *arena, const struct mcp_plan_view *view,
                                   struct mcp_error *err)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int i = 0; i < view->refusals.count; i++)
        mcp_text_add(&text, "%s%s", i > 0 ? "; " : "", view->refusals.items[i].text);
    if (view->changes.count > 0)
        mcp_text_add(&text, "; nearest change: %s", view->changes.items[0].text);
    return mcp_fail(err, MCP_INFEASIBLE, "%s", text.data);
}
