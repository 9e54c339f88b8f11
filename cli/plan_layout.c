/* cli/plan_layout.c: a plan in words, and its ranks drawn over the nodes. */
#include "cli/plan_view.h"

#include "core/mesh.h"
#include "core/units.h"

enum { MOST_NODE_ROWS = 8, MOST_CELLS = 16, LABEL = 15 };

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
        mcp_text_add(&text, ", context by %s", mcp_context_kind_names[plan->context_parallel_kind]);
    if (plan->chunks)
        mcp_text_add(&text, ", recompute %s", mcp_recompute_names[mcp_uniform_recompute(plan)]);
    return text.data;
}

/* Layout */

struct node_row {
    const char *cells;              /* "[0 0 0 0|0 0 0 0]" */
    int first, last;                /* nodes that look so */
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
        mcp_text_add(&text, "%s%d",
                     rank == first ? "["
                     : begins      ? "|"
                                   : " ",
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
    mcp_text_add(out, "  %-*s  ", LABEL, span(arena, "node", "nodes", row->first, row->last));
    if (drawn)
        mcp_text_add(out, "%s  ", row->cells);
    mcp_text_add(out, "%s", span(arena, "stage", "stages", row->from.pipeline, row->to.pipeline));
    if (plan->data_parallel > 1)
        mcp_text_add(out, ", %s", span(arena, "replica", "replicas", row->from.data, row->to.data));
    if (plan->context_parallel > 1)
        mcp_text_add(out, ", %s",
                     span(arena, "context", "context", row->from.context, row->to.context));
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
    mcp_text_add(out, "  %s\n\n", mcp_plan_choices_text(arena, plan, view->question->job));
    struct node_row *rows = MCP_ARRAY(arena, view->question->cluster->num_nodes, struct node_row);
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
