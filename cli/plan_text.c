/* cli/plan_text.c: a plan for people: the answer first, then why. */
#include "cli/plan_refine.h"
#include "cli/plan_schedule.h"
#include "cli/plan_view.h"

#include "core/units.h"
#include "reports/bars.h"
#include "step/casts.h"

#include <math.h>
#include <string.h>

enum {
    MOST_BAR_CELLS = 60,
    LEAST_BAR_CELLS = 24,
    BESIDE_BAR = 26,
    MOST_STAGES = 8,
    MOST_SHARES = 8,
    LABEL = 12
};

const char *mcp_plan_gib(struct mcp_arena *arena, int64_t bytes)
{
    const double gib = (double)bytes / (double)(1 << 30);
    if (bytes != 0 && fabs(gib) < 0.1)
        return mcp_show(arena, (double)bytes, MCP_BYTES);
    return mcp_format(arena, "%.1f GiB", gib);
}

const char *mcp_plan_device(const struct mcp_question *question)
{
    return mcp_same(question->cluster->gpu.name, "cpu") ? "CPU" : "GPU";
}

/* Room for a bar with a label before it and a value behind it. */
static int bar_cells(const struct mcp_style *style)
{
    int cells = style->width - BESIDE_BAR;
    return cells > MOST_BAR_CELLS    ? MOST_BAR_CELLS
           : cells < LEAST_BAR_CELLS ? LEAST_BAR_CELLS
                                     : cells;
}

static const char *plus_minus(const struct mcp_style *style)
{
    return style->unicode ? "±" : "+-";
}

/* "64 x h100-sxm-80gb, 8 nodes of 8", pool by pool. */
static const char *machines_text(struct mcp_arena *arena, const struct mcp_cluster *cluster)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++) {
        const struct mcp_cluster *pool = mcp_cluster_pool(cluster, i);
        mcp_text_add(&text, "%s%s x %s, %s node%s of %d", i > 0 ? " and " : "",
                     mcp_show_integer(arena, mcp_pool_gpus(pool)),
                     mcp_printable(arena, pool->gpu.name), mcp_show_integer(arena, pool->num_nodes),
                     pool->num_nodes == 1 ? "" : "s", pool->gpus_per_node);
    }
    return text.data;
}

/* The question in one line, where it fits. */
static void write_question(struct mcp_text *out, const struct mcp_style *style,
                           const struct mcp_question *question)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_job *job = question->job;
    const char *model =
        mcp_paint(arena, style, MCP_BOLD, mcp_printable(arena, question->model->name));
    mcp_wrap(out,
             mcp_format(arena, "%s on %s; batch %s x %s tokens, %s, %s", model,
                        machines_text(arena, question->cluster),
                        mcp_show_integer(arena, job->global_batch_size),
                        mcp_show_integer(arena, job->sequence_length),
                        mcp_precision_names[job->precision],
                        mcp_printable(arena, question->stack->name)),
             style->width, 2);
    mcp_text_add(out, "\n");
}

/* What was asked for beside it. */
static void write_requirements(struct mcp_text *out, const struct mcp_style *style,
                               const struct mcp_requirements *requirements)
{
    struct mcp_arena *arena = out->arena;
    struct mcp_text text = mcp_text_new(arena);
    for (int i = 0; i < requirements->count; i++)
        mcp_text_add(&text, "%s%s", i > 0 ? ", " : "required: ",
                     mcp_printable(arena, requirements->items[i].text));
    if (requirements->count == 0)
        return;
    mcp_text_add(out, "  ");
    mcp_wrap(out, text.data, style->width - 2, 2);
    mcp_text_add(out, "\n");
}

/* A paragraph of its own. */
static void write_line(struct mcp_text *out, const struct mcp_style *style, const char *text)
{
    mcp_text_add(out, "  ");
    mcp_wrap(out, text, style->width - 2, 2);
    mcp_text_add(out, "\n");
}

static const char *verdict(struct mcp_arena *arena, const struct mcp_style *style,
                           const struct mcp_prediction *p)
{
    int64_t missing = p->peak_memory_bytes - p->memory_limit_bytes;
    if (p->fits)
        return mcp_paint(arena, style, MCP_GREEN,
                         mcp_format(arena, "fits: %s of %s",
                                    mcp_plan_gib(arena, p->peak_memory_bytes),
                                    mcp_plan_gib(arena, p->memory_limit_bytes)));
    return mcp_paint(arena, style, MCP_RED,
                     mcp_format(arena, "does not fit: %s of %s, %s too much",
                                mcp_plan_gib(arena, p->peak_memory_bytes),
                                mcp_plan_gib(arena, p->memory_limit_bytes),
                                mcp_plan_gib(arena, missing)));
}

/* In how far nothing better exists. */
static void write_proof(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_plan_view *view)
{
    bool proven = view->answer->record.proven_optimal;
    if (view->predicts || view->answer->count == 0)
        return;
    write_line(out, style,
               mcp_paint(out->arena, style, proven ? MCP_GREEN : MCP_YELLOW,
                         mcp_plan_proof_text(out->arena, view)));
}

static void write_schedule_gain(struct mcp_text *out, const struct mcp_style *style,
                                const struct mcp_plan_view *view)
{
    const char *gain = mcp_plan_schedule_gain(out->arena, view);
    if (gain != NULL)
        write_line(out, style, gain);
}

static void write_headline(struct mcp_text *out, const struct mcp_style *style,
                           const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_prediction *p = view->prediction;
    const char *time =
        mcp_format(arena, "%s %s %.0f %%", mcp_show(arena, p->iteration_s, MCP_SECONDS),
                   plus_minus(style), 100 * p->uncertainty_frac);
    mcp_text_add(out, "\n  ");
    mcp_wrap(out,
             mcp_format(arena, "%s an iteration, %s tokens/s, MFU %.1f %%, %s",
                        mcp_paint(arena, style, MCP_BOLD, time),
                        mcp_show_count(arena, p->tokens_per_s), 100 * p->model_flops_utilization,
                        verdict(arena, style, p)),
             style->width - 2, 2);
    mcp_text_add(out, "\n");
    write_proof(out, style, view);
    write_schedule_gain(out, style, view);
}

/* Time */

struct share {
    int cost;
    double seconds;
};

/* The largest kinds of time, largest first; the rest is summed up as cost -1. */
static int shares_of(const struct mcp_prediction *p, struct share shares[MOST_SHARES])
{
    int count = 0;
    double rest = p->iteration_s;
    bool taken[MCP_NUM_COSTS] = {false};
    while (count < MOST_SHARES - 1) {
        int most = -1;
        for (int cost = 0; cost < MCP_NUM_COSTS; cost++)
            if (!taken[cost] && (most < 0 || p->cost_s[cost] > p->cost_s[most]))
                most = cost;
        if (p->cost_s[most] < 0.01 * p->iteration_s)
            break;
        taken[most] = true;
        rest -= p->cost_s[most];
        shares[count++] = (struct share){most, p->cost_s[most]};
    }
    if (rest > 1e-6 * p->iteration_s)
        shares[count++] = (struct share){-1, rest};
    return count;
}

static void write_time(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_prediction *p)
{
    struct mcp_arena *arena = out->arena;
    struct share shares[MOST_SHARES];
    struct mcp_bar parts[MOST_SHARES];
    int count = shares_of(p, shares);
    for (int i = 0; i < count; i++)
        parts[i] = (struct mcp_bar){
            shares[i].cost < 0 ? "all else" : mcp_cost_names[shares[i].cost], shares[i].seconds,
            mcp_show(arena, shares[i].seconds, MCP_SECONDS), MCP_PLAIN};
    mcp_heading(out, style, "Where the time goes");
    mcp_text_add(out, "  ");
    mcp_stacked_line(out, style, parts, count, 0, bar_cells(style));
    mcp_text_add(out, "  %s\n", mcp_show(arena, p->iteration_s, MCP_SECONDS));
    mcp_stacked_legend(out, style, parts, count, p->iteration_s);
    mcp_text_add(out,
                 "  bubble over ideal %.1f %%, exposed communication %.1f %%, hardware FLOPs "
                 "%.1f %%\n",
                 100 * p->bubble_over_ideal, 100 * p->exposed_comm_frac,
                 100 * p->hardware_flops_utilization);
}

/* Memory */

enum { NUM_PARTS = MCP_NUM_MEMORY_PARTS };

void mcp_plan_memory_parts(struct mcp_arena *arena, const struct mcp_memory *memory,
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
                                    mcp_plan_gib(arena, list[i].bytes), MCP_PLAIN};
}

static void write_stage_memory(struct mcp_text *out, const struct mcp_style *style,
                               const struct mcp_prediction *p, int stage)
{
    struct mcp_bar parts[NUM_PARTS];
    int64_t total = mcp_memory_total(&p->stages[stage].memory);
    mcp_plan_memory_parts(out->arena, &p->stages[stage].memory, parts);
    mcp_text_add(out, "  %-*s", LABEL, mcp_format(out->arena, "stage %d", stage));
    mcp_stacked_line(out, style, parts, NUM_PARTS, (double)p->memory_limit_bytes,
                     bar_cells(style) - LABEL);
    mcp_text_add(out, "  %s%s\n", mcp_plan_gib(out->arena, total),
                 stage == p->peak_stage ? ", the fullest" : "");
}

static void write_memory(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_plan_view *view)
{
    const struct mcp_prediction *p = view->prediction;
    int stages = view->plan.pipeline_parallel, before = -1;
    struct mcp_bar parts[NUM_PARTS];
    mcp_heading(out, style,
                mcp_format(out->arena, "Memory by stage, of the %s a %s may use",
                           mcp_plan_gib(out->arena, p->memory_limit_bytes),
                           mcp_plan_device(view->question)));
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
    mcp_plan_memory_parts(out->arena, &p->memory, parts);
    mcp_stacked_legend(out, style, parts, NUM_PARTS, (double)p->memory_limit_bytes);
}

void mcp_plan_point(struct mcp_text *out, const struct mcp_style *style, const char *text)
{
    mcp_text_add(out, "  - ");
    mcp_wrap(out, text, style->width - 4, 4);
    mcp_text_add(out, "\n");
}

/* What it rests on */

static void write_assumptions(struct mcp_text *out, const struct mcp_style *style,
                              const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_stack *stack = view->question->stack;
    const struct mcp_cluster *cluster = view->question->cluster;
    double price = cluster->gpu.price_per_gpu_hour;
    mcp_heading(out, style, "What this rests on");
    mcp_plan_point(out, style,
                   mcp_format(arena, "%s %.0f %%: the interval that the stack's file states",
                              plus_minus(style), 100 * view->prediction->uncertainty_frac));
    mcp_plan_point(out, style,
                   mcp_format(arena, "stack %s: %s", mcp_printable(arena, stack->name),
                              mcp_printable(arena, stack->source)));
    if (mcp_casts_operands(view->question))
        mcp_plan_point(
            out, style,
            mcp_format(arena,
                       "multiplied in 8 bits: %.0f %% of the products' FLOPs; in 16 those of "
                       "experts, router and head, and of sizes that are no multiple of %d",
                       100 * mcp_cast_flops_frac(view->question, &view->plan), MCP_CAST_MULTIPLE));
    mcp_plan_point(
        out, style,
        "modelled: kernels by roofline, launches, collectives by tier, the exact pipeline "
        "recurrence, memory buffer by buffer; not modelled: stragglers, failures, shared "
        "links, reading data");
    if (isfinite(price))
        mcp_plan_point(
            out, style,
            mcp_format(arena, "an iteration costs %.3g at %.3g per %s and hour",
                       view->prediction->iteration_s / 3600 * price * mcp_cluster_gpus(cluster),
                       price, mcp_plan_device(view->question)));
}

/* Refused */

static const char *refusal_text(struct mcp_arena *arena, const struct mcp_refusal *refusal)
{
    return mcp_format(arena, "%s (%s)", refusal->text, refusal->rule);
}

/* The answer where there is no plan. */
static void write_no_plan(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_refusals *refusals = &view->refusals;
    mcp_text_add(out, "\n");
    if (refusals->count == 1) {
        const char *text = refusal_text(arena, &refusals->items[0]);
        if (!mcp_starts_with(text, "no plan"))
            text = mcp_format(arena, "no plan: %s", text);
        write_line(out, style, mcp_paint(arena, style, MCP_RED, text));
        return;
    }
    write_line(out, style, mcp_paint(arena, style, MCP_RED, "no plan, because"));
    for (int i = 0; i < refusals->count; i++)
        mcp_plan_point(out, style, refusal_text(arena, &refusals->items[i]));
}

static void write_change(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_plan_view *view, const char *text,
                         const struct mcp_found *found)
{
    struct mcp_arena *arena = out->arena;
    mcp_plan_point(out, style,
                   mcp_format(arena, "%s: %s in %s (%s; %s)", text,
                              mcp_show(arena, found->iteration_s, MCP_SECONDS),
                              mcp_plan_gib(arena, found->peak_memory_bytes),
                              mcp_plan_degrees_text(arena, &found->plan),
                              mcp_plan_choices_text(arena, &found->plan, view->question->job)));
}

/* "16 times as many GPUs do not help", where no change was found; NULL: that is not known. */
static const char *vain_text(struct mcp_arena *arena, const struct mcp_plan_view *view)
{
    if (!view->priced || view->predicts || view->interrupted || view->refusals.count == 0)
        return NULL;
    return mcp_format(arena, "%d times as many %ss do not help", 1 << MCP_MOST_DOUBLINGS,
                      mcp_plan_device(view->question));
}

static void write_changes(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_plan_view *view)
{
    const char *vain = vain_text(out->arena, view);
    if (view->changes.count + view->num_remedies == 0) {
        if (vain != NULL)
            write_line(out, style, vain);
        return;
    }
    mcp_heading(out, style, "What would change that, each found by a search");
    for (int i = 0; i < view->changes.count; i++)
        write_change(out, style, view, view->changes.items[i].text, &view->changes.items[i].found);
    for (int i = 0; i < view->num_remedies; i++)
        write_change(out, style, view, view->remedies[i].text, &view->remedies[i].found);
}

static void write_halves(struct mcp_text *out, const struct mcp_style *style, const char *halves)
{
    if (halves == NULL)
        return;
    mcp_text_add(out, "  ");
    mcp_wrap(out, halves, style->width - 2, 2);
    mcp_text_add(out, "\n");
}

static void write_phases(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_phases *phases)
{
    if (phases == NULL)
        return;
    mcp_text_add(out, "  ");
    mcp_wrap(out, mcp_phases_text(out->arena, phases), style->width - 2, 2);
    mcp_text_add(out, "\n");
}

void mcp_plan_view_text(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_plan_view *view)
{
    bool answers = view->priced && (view->answer->count > 0 || view->predicts);
    write_question(out, style, view->question);
    write_requirements(out, style, view->requirements);
    if (view->arithmetic)
        write_line(out, style, view->arithmetic);
    if (answers)
        write_headline(out, style, view);
    else if (view->refusals.count > 0)
        write_no_plan(out, style, view);
    write_phases(out, style, view->phases);
    write_halves(out, style, view->halves_text);
    write_changes(out, style, view);
    if (view->priced)
        mcp_plan_layout_text(out, style, view);
    if (answers)
        write_time(out, style, view->prediction);
    if (view->priced)
        write_memory(out, style, view);
    if (view->answer->count > 1)
        mcp_plan_alternatives_text(out, style, view);
    mcp_plan_refine_write(out, style, view);
    mcp_plan_rivals_text(out, style, view);
    mcp_plan_savings_text(out, style, view);
    mcp_plan_memory_steps_text(out, style, view);
    mcp_plan_what_ifs_text(out, style, view);
    if (view->answer->record.candidates > 1 && !view->predicts)
        mcp_plan_search_text(out, style, view);
    if (answers)
        write_assumptions(out, style, view);
}

enum mcp_status mcp_plan_view_fail(struct mcp_arena *arena, const struct mcp_plan_view *view,
                                   struct mcp_error *err)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int i = 0; i < view->refusals.count; i++)
        mcp_text_add(&text, "%s%s", i > 0 ? "; " : "", view->refusals.items[i].text);
    if (view->changes.count + view->num_remedies > 0)
        mcp_text_add(&text, "; nearest change: %s",
                     view->changes.count > 0 ? view->changes.items[0].text
                                             : view->remedies[0].text);
    else if (vain_text(arena, view) != NULL)
        mcp_text_add(&text, "; %s", vain_text(arena, view));
    return mcp_fail(err, MCP_INFEASIBLE, "%s", text.data);
}
