/* cli/sim_text.c: a played step for people, and as JSON. */
#include "cli/plan_view.h"
#include "cli/sim_view.h"

#include "core/json.h"
#include "core/stack.h"
#include "core/units.h"
#include "reports/bars.h"

#include <math.h>
#include <string.h>

enum { BAR_MARGIN = 26, LEAST_BAR = 24, MOST_BAR = 60, MOST_CURVES = 8, LABEL = 12 };

double mcp_sim_view_iteration_s(const struct mcp_sim_view *view)
{
    return (double)view->result->step_ns * 1e-9;
}

void mcp_sim_view_term(struct mcp_sim_view *view, const char *name, const char *why, double seconds)
{
    view->terms[view->num_terms++] = (struct mcp_sim_term){name, why, seconds, false};
}

static int bar_cells(const struct mcp_style *style)
{
    int cells = style->width - BAR_MARGIN;
    return cells > MOST_BAR ? MOST_BAR : cells < LEAST_BAR ? LEAST_BAR : cells;
}

static void write_line(struct mcp_text *out, const struct mcp_style *style, const char *text)
{
    mcp_text_add(out, "  ");
    mcp_wrap(out, text, style->width - 2, 2);
    mcp_text_add(out, "\n");
}

/* "16 x a100-sxm4-80gb and 8 x h100-sxm-80gb"; the plan fills its cluster. */
static const char *machines_text(struct mcp_arena *arena, const struct mcp_cluster *cluster)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++) {
        const struct mcp_cluster *pool = mcp_cluster_pool(cluster, i);
        mcp_text_add(&text, "%s%s x %s", i > 0 ? " and " : "",
                     mcp_show_integer(arena, mcp_pool_gpus(pool)),
                     mcp_printable(arena, pool->gpu.name));
    }
    return text.data;
}

static void write_answer(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_sim_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_question *q = view->question;
    double step_s = mcp_sim_view_iteration_s(view);
    double tokens = (double)q->job->global_batch_size * (double)q->job->sequence_length;
    const char *model = mcp_printable(arena, q->model->name);
    mcp_text_add(out, "%s on %s: ", mcp_paint(arena, style, MCP_BOLD, model),
                 machines_text(arena, q->cluster));
    mcp_text_add(out, "%s a step in virtual time, %s tokens/s\n",
                 mcp_paint(arena, style, MCP_BOLD, mcp_show(arena, step_s, MCP_SECONDS)),
                 mcp_show_integer(arena, llround(tokens / step_s)));
    const struct mcp_sim_result *r = view->result;
    write_line(out, style,
               mcp_format(arena,
                          "bubble %.1f %% (over ideal %.1f %%), exposed communication %.1f %%, "
                          "%s events%s",
                          100 * r->bubble_frac, 100 * r->bubble_over_ideal,
                          100 * r->exposed_comm_frac, mcp_show_integer(arena, r->events),
                          r->num_cells > 1 ? mcp_format(arena, " in %s unequal pipelines",
                                                        mcp_show_integer(arena, r->num_cells))
                                           : ", equal ranks played once"));
}

/* How far from the planner, and why. */
static void write_difference(struct mcp_text *out, const struct mcp_style *style,
                             const struct mcp_sim_view *view)
{
    struct mcp_arena *arena = out->arena;
    double planned = view->predicted->iteration_s, played = mcp_sim_view_iteration_s(view);
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "the planner says %s: played, it is %+.2f %%",
                 mcp_show(arena, planned, MCP_SECONDS), 100 * (played / planned - 1));
    write_line(out, style, text.data);
    if (!view->predicted->fits)
        write_line(out, style,
                   mcp_format(arena, "it does not fit: stage %d needs %s of the %s it may have",
                              view->predicted->peak_stage,
                              mcp_plan_gib(arena, view->predicted->peak_memory_bytes),
                              mcp_plan_gib(arena, view->predicted->memory_limit_bytes)));
    for (int i = 0; i < view->num_terms; i++) {
        const struct mcp_sim_term *term = &view->terms[i];
        if (fabs(term->seconds) < 5e-5 * planned && !term->asked)
            continue;
        mcp_text_add(out, "    %+8.2f %%  ", 100 * term->seconds / planned);
        mcp_wrap(out, term->why, style->width - 16, 16);
        mcp_text_add(out, "\n");
    }
}

static void write_time(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_sim_view *view)
{
    struct mcp_bar parts[MCP_NUM_COSTS];
    double step_s = mcp_sim_view_iteration_s(view);
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        double cost = view->result->cost_s[i] < 1e-4 * step_s ? 0 : view->result->cost_s[i];
        parts[i] = (struct mcp_bar){mcp_cost_names[i], cost,
                                    mcp_show(out->arena, cost, MCP_SECONDS), MCP_PLAIN};
    }
    mcp_heading(out, style, "Where the time goes");
    mcp_text_add(out, "  ");
    mcp_stacked_line(out, style, parts, MCP_NUM_COSTS, 0, bar_cells(style));
    mcp_text_add(out, "  %s\n", mcp_show(out->arena, step_s, MCP_SECONDS));
    mcp_stacked_legend(out, style, parts, MCP_NUM_COSTS, step_s);
}

static void write_memory(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_sim_view *view)
{
    int stages = view->result->num_stages, cells = bar_cells(style) - LABEL;
    double *values = MCP_ARRAY(out->arena, cells, double);
    mcp_heading(out, style, "Memory over the step, least to most by stage");
    for (int s = 0; s < stages; s++) {
        if (stages > MOST_CURVES && s == MOST_CURVES / 2) {
            mcp_text_add(out, "  ... %d stages more\n", stages - MOST_CURVES);
            s = stages - MOST_CURVES / 2;
        }
        const struct mcp_sim_curve *curve = &view->curves[s];
        mcp_sim_memory_sample(curve, view->result->step_ns, values, cells);
        mcp_text_add(out, "  %-*s", LABEL, mcp_format(out->arena, "stage %d", s));
        mcp_sparkline(out, style, values, cells);
        mcp_text_add(out, "  %s to %s\n", mcp_plan_gib(out->arena, curve->static_bytes),
                     mcp_plan_gib(out->arena, curve->peak_bytes));
    }
}

void mcp_sim_view_text(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_sim_view *view)
{
    write_answer(out, style, view);
    write_difference(out, style, view);
    if (view->death != NULL)
        mcp_sim_death_text(out, style, view);
    write_time(out, style, view);
    mcp_sim_gantt_text(out, style, view);
    write_memory(out, style, view);
}

/* --- JSON --- */

static void put_costs(struct mcp_json *object, const double *cost_s, int first, int last)
{
    for (int i = first; i <= last; i++) {
        char key[32];
        size_t length = strlen(mcp_cost_names[i]);
        memcpy(key, mcp_cost_names[i], length);
        memcpy(key + length, "_s", 3);
        mcp_json_set_double(object, key, cost_s[i]);
    }
}

static void put_inputs(struct mcp_json *object, const struct mcp_sim_view *view)
{
    const struct mcp_sim_options *options = view->options;
    mcp_json_set_double(object, "noise", options->noise);
    mcp_json_set_int(object, "seed", (int64_t)options->seed);
    if (options->slow_rank >= 0)
        mcp_json_set_int(object, "slow_rank", options->slow_rank);
    else
        mcp_json_set_null(object, "slow_rank");
    mcp_json_set_double(object, "slow_factor", options->slow_factor);
    mcp_json_set_string(object, "slow_link", view->slow_link);
    mcp_json_set_string(object, "dead_link", view->dead_link);
    mcp_json_set_string(
        object, "collective_algorithm",
        mcp_collective_algorithm_names[view->question->stack->collective_algorithm]);
    mcp_json_set_string(object, "schedule", mcp_schedule_names[view->plan->schedule]);
    mcp_json_set_string(object, "level", view->op_by_op ? "op" : "slot");
}

static void put_difference(struct mcp_arena *arena, struct mcp_json *object,
                           const struct mcp_sim_view *view)
{
    double planned = view->predicted->iteration_s;
    mcp_json_set_double(object, "iteration_s", planned);
    mcp_json_set_double(object, "difference_frac", mcp_sim_view_iteration_s(view) / planned - 1);
    struct mcp_json *terms = mcp_json_set_object(object, "terms");
    for (int i = 0; i < view->num_terms; i++)
        mcp_json_set_double(terms, mcp_format(arena, "%s_s", view->terms[i].name),
                            view->terms[i].seconds);
}

static void put_stage(struct mcp_json *object, const struct mcp_sim_view *view, int s)
{
    const struct mcp_sim_stage *stage = &view->result->stages[s];
    mcp_json_set_double(object, "earliest_end_s", (double)stage->earliest_end_ns * 1e-9);
    mcp_json_set_double(object, "latest_end_s", (double)stage->latest_end_ns * 1e-9);
    mcp_json_set_int(object, "static_memory_bytes", view->curves[s].static_bytes);
    mcp_json_set_int(object, "peak_memory_bytes", view->curves[s].peak_bytes);
    put_costs(mcp_json_set_object(object, "cost"), stage->cost_s, 0, MCP_NUM_COSTS - 1);
}

struct mcp_json *mcp_sim_view_json(struct mcp_arena *arena, const struct mcp_sim_view *view)
{
    const struct mcp_sim_result *result = view->result;
    struct mcp_json *json = mcp_json_new_object(arena);
    int64_t peak_bytes = 0;
    for (int s = 0; s < result->num_stages; s++)
        if (view->curves[s].peak_bytes > peak_bytes)
            peak_bytes = view->curves[s].peak_bytes;
    mcp_json_set_string(json, "schema", "mcpplan.sim/1");
    mcp_json_set_double(json, "iteration_s", mcp_sim_view_iteration_s(view));
    mcp_json_set_double(json, "bubble_frac", result->bubble_frac);
    mcp_json_set_double(json, "bubble_over_ideal", result->bubble_over_ideal);
    mcp_json_set_double(json, "exposed_comm_frac", result->exposed_comm_frac);
    mcp_json_set_int(json, "peak_memory_bytes", peak_bytes);
    mcp_json_set_bool(json, "fits", view->predicted->fits);
    put_costs(mcp_json_set_object(json, "cost"), result->cost_s, 0, MCP_NUM_COSTS - 1);
    put_costs(mcp_json_set_object(json, "comm"), result->comm_s, MCP_COST_TENSOR, MCP_COST_DATA);
    mcp_json_set_int(json, "events", result->events);
    mcp_json_set_int(json, "pipelines_played", result->num_cells);
    put_inputs(mcp_json_set_object(json, "inputs"), view);
    put_difference(arena, mcp_json_set_object(json, "planner"), view);
    if (view->death != NULL)
        mcp_sim_death_json(mcp_json_set_object(json, "failure"), view);
    else
        mcp_json_set_null(json, "failure");
    struct mcp_json *stages = mcp_json_set_array(json, "stages");
    for (int s = 0; s < result->num_stages; s++)
        put_stage(mcp_json_add_object(stages), view, s);
    return json;
}
