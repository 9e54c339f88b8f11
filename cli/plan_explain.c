/* cli/plan_explain.c: other plans, other questions and other ways to save memory, for
 * people. */
#include "cli/plan_view.h"
#include "core/units.h"
#include "reports/bars.h"
#include "reports/table.h"

#include <math.h>
#include <stdlib.h>

enum { LABEL = 18, VALUE = 10, MOST_CELLS = 56, LEAST_CELLS = 16, MOST_TERMS = 9 };

static int cells_of(const struct mcp_style *style, int beside)
{
    int cells = style->width - beside;
    return cells > MOST_CELLS ? MOST_CELLS : cells < LEAST_CELLS ? LEAST_CELLS : cells;
}

/* Waterfalls: from one plan's time to another's, kind by kind */

struct fall {
    const struct mcp_style *style;
    int cells;
    double low, high; /* seconds at the two ends of the bars */
};

static int cell_of(const struct fall *fall, double seconds)
{
    double share = (seconds - fall->low) / (fall->high - fall->low);
    int cell = (int)lround(share * fall->cells);
    return cell < 0 ? 0 : cell > fall->cells ? fall->cells : cell;
}

/* A bar from `from` to `to`, at least one cell. */
static void draw_step(struct mcp_text *out, const struct fall *fall, double from, double to)
{
    struct mcp_text bar = mcp_text_new(out->arena);
    bool more = to > from;
    int left = cell_of(fall, fmin(from, to)), right = cell_of(fall, fmax(from, to));
    if (right == left && right == fall->cells)
        left--;
    else if (right == left)
        right++;
    const char *fill = fall->style->unicode ? more ? "▓" : "░" : more ? "+" : "-";
    for (int i = left; i < right; i++)
        mcp_text_add(&bar, "%s", fill);
    mcp_text_add(out, "%*s%s\n", left, "",
                 mcp_paint(out->arena, fall->style, more ? MCP_RED : MCP_GREEN, bar.data));
}

static void draw_total(struct mcp_text *out, const struct fall *fall, const char *label,
                       double seconds)
{
    mcp_text_add(out, "  %-*s%*s  ", LABEL, label, VALUE,
                 mcp_show(out->arena, seconds, MCP_SECONDS));
    for (int i = 0; i < cell_of(fall, seconds); i++)
        mcp_text_add(out, "%s", fall->style->unicode ? "█" : "#");
    mcp_text_add(out, "\n");
}

struct term {
    const char *name;
    int64_t ns;
};

/* The larger terms one by one, what is left in one. */
static int terms_of(const struct mcp_difference *difference, struct term terms[MOST_TERMS])
{
    enum mcp_cost order[MCP_NUM_COSTS];
    int64_t left = difference->iteration_ns, largest = 1;
    int differ = mcp_difference_order(difference, order), count = 0;
    if (differ > 0)
        largest = llabs(difference->cost_ns[order[0]]);
    for (int i = 0; i < differ && count < MOST_TERMS - 1; i++) {
        int64_t ns = difference->cost_ns[order[i]];
        if (llabs(ns) * 100 < largest)
            break;
        terms[count++] = (struct term){mcp_cost_names[order[i]], ns};
        left -= ns;
    }
    if (left != 0)
        terms[count++] = (struct term){"all else", left};
    return count;
}

static struct fall fall_of(const struct mcp_style *style, double from, const struct term *terms,
                           int count)
{
    struct fall fall = {style, cells_of(style, LABEL + VALUE + 6), from, from};
    double at = from;
    for (int i = 0; i < count; i++) {
        at += 1e-9 * (double)terms[i].ns;
        fall.low = fmin(fall.low, at);
        fall.high = fmax(fall.high, at);
    }
    double margin = (fall.high - fall.low) / 4;
    fall.low = fmax(0, fall.low - margin);
    if (fall.high <= fall.low)
        fall.high = fall.low + 1;
    return fall;
}

static void write_fall(struct mcp_text *out, const struct mcp_style *style, double from, double to,
                       const struct mcp_difference *difference)
{
    struct mcp_arena *arena = out->arena;
    struct term terms[MOST_TERMS];
    int count = terms_of(difference, terms);
    struct fall fall = fall_of(style, from, terms, count);
    double at = from;
    draw_total(out, &fall, "this plan", from);
    for (int i = 0; i < count; i++) {
        double seconds = 1e-9 * (double)terms[i].ns;
        const char *sign = seconds > 0 ? "+" : "-";
        const char *value =
            mcp_format(arena, "%s%s", sign, mcp_show(arena, fabs(seconds), MCP_SECONDS));
        mcp_text_add(out, "  %s %-*s%*s  ", sign, LABEL - 2, terms[i].name, VALUE, value);
        draw_step(out, &fall, at, at + seconds);
        at += seconds;
    }
    draw_total(out, &fall, "the other", to);
    if (fall.low > 0)
        mcp_text_add(out, "  %*s  bars begin at %s\n", LABEL + VALUE, "",
                     mcp_show(arena, fall.low, MCP_SECONDS));
}

/* Memory of the fullest devices: what differs, largest first. */
static const char *memory_terms(struct mcp_arena *arena, const struct mcp_memory *memory)
{
    const struct term parts[] = {
        {"weights", memory->weights_bytes},         {"gradients", memory->gradients_bytes},
        {"optimizer", memory->optimizer_bytes},     {"activations", memory->activations_bytes},
        {"working buffers", memory->buffers_bytes}, {"reserve", memory->reserve_bytes},
    };
    struct mcp_text text = mcp_text_new(arena);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (llabs(parts[i].ns) > (1 << 30) / 20)
            mcp_text_add(&text, "%s%s %+.1f", text.length > 0 ? ", " : "", parts[i].name,
                         (double)parts[i].ns / (double)(1 << 30));
    return text.data ? text.data : "";
}

static void write_memory_difference(struct mcp_text *out, const struct mcp_style *style,
                                    const struct mcp_prediction *from,
                                    const struct mcp_prediction *to,
                                    const struct mcp_difference *difference)
{
    struct mcp_arena *arena = out->arena;
    const char *terms = memory_terms(arena, &difference->memory);
    mcp_text_add(out, "  ");
    mcp_wrap(out,
             mcp_format(arena, "peak memory %s, here %s: %+.1f GiB%s%s%s",
                        mcp_plan_gib(arena, to->peak_memory_bytes),
                        mcp_plan_gib(arena, from->peak_memory_bytes),
                        (double)difference->peak_memory_bytes / (double)(1 << 30),
                        *terms ? " (" : "", terms, *terms ? ")" : ""),
             style->width - 2, 2);
    mcp_text_add(out, "\n");
}

static void write_verdict(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_prediction *from, const struct mcp_prediction *to)
{
    struct mcp_arena *arena = out->arena;
    double frac = to->iteration_s / from->iteration_s - 1;
    const char *text = fabs(frac) < 5e-5 ? "as fast as this plan"
                       : frac > 0 ? mcp_format(arena, "%.1f %% slower than this plan", 100 * frac)
                                  : mcp_format(arena, "%.1f %% faster than this plan", -100 * frac);
    mcp_text_add(out, "  %s: %s an iteration\n\n",
                 mcp_paint(arena, style, frac > 0 ? MCP_GREEN : MCP_YELLOW, text),
                 mcp_show(arena, to->iteration_s, MCP_SECONDS));
}

static void write_rival(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_plan_view *view, const struct mcp_rival *rival)
{
    struct mcp_arena *arena = out->arena;
    struct mcp_difference difference;
    mcp_heading(out, style, mcp_format(arena, "Against %s", mcp_printable(arena, rival->name)));
    mcp_text_add(out, "  %s\n  ",
                 mcp_paint(arena, style, MCP_BOLD, mcp_plan_degrees_text(arena, &rival->plan)));
    mcp_wrap(out, mcp_plan_choices_text(arena, &rival->plan, view->question->job), style->width - 2,
             2);
    mcp_text_add(out, "\n");
    for (int i = 0; i < rival->refusals.count; i++)
        mcp_plan_point(
            out, style,
            mcp_paint(arena, style, MCP_RED,
                      mcp_format(arena, "refused: %s (%s)", rival->refusals.items[i].text,
                                 rival->refusals.items[i].rule)));
    if (rival->made_for)
        mcp_plan_point(out, style, mcp_format(arena, "made for %s", rival->made_for));
    if (!rival->priced || !view->priced)
        return;
    write_verdict(out, style, view->prediction, &rival->prediction);
    mcp_explain_difference(view->prediction, &rival->prediction, &difference);
    if (difference.iteration_ns != 0)
        write_fall(out, style, view->prediction->iteration_s, rival->prediction.iteration_s,
                   &difference);
    write_memory_difference(out, style, view->prediction, &rival->prediction, &difference);
}

void mcp_plan_rivals_text(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_plan_view *view)
{
    for (int i = 0; i < view->num_rivals; i++)
        write_rival(out, style, view, &view->rivals[i]);
}

/* What if */

static void add_change(struct mcp_text *text, const char *name, const char *now)
{
    mcp_text_add(text, "%s%s %s", text->length > 0 ? ", " : "", name, now);
}

/* What is another than in `before`: "tensor_parallel 4, microbatch_size 2". */
static const char *changes_text(struct mcp_arena *arena, const struct mcp_plan *before,
                                const struct mcp_plan *now)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int knob = 0; knob < MCP_KNOB_RECOMPUTE; knob++) {
        int value = mcp_knob_value((enum mcp_knob)knob, now);
        if (value != mcp_knob_value((enum mcp_knob)knob, before))
            add_change(&text, mcp_knob_names[knob],
                       mcp_knob_text(arena, (enum mcp_knob)knob, value));
    }
    const char *recompute = mcp_plan_recompute_text(arena, now);
    if (!mcp_same(recompute, mcp_plan_recompute_text(arena, before)))
        add_change(&text, "recompute", recompute);
    return text.length > 0 ? text.data : "the same plan";
}

static void add_what_if(struct mcp_table *table, struct mcp_arena *arena,
                        const struct mcp_plan_view *view, const struct mcp_what_if *what_if)
{
    mcp_table_cell(table, "%s", mcp_what_if_texts[what_if->kind]);
    if (!what_if->fits) {
        mcp_table_cell(table, "-");
        mcp_table_cell(table, "-");
        mcp_table_cell(table, "%s", what_if->possible ? "nothing fits" : "cannot be asked here");
        return;
    }
    mcp_table_cell(table, "%s", mcp_show(arena, what_if->found.iteration_s, MCP_SECONDS));
    mcp_table_cell(table, "x %.3f", what_if->speed_up);
    mcp_table_cell(table, "%s", changes_text(arena, &view->plan, &what_if->found.plan));
}

void mcp_plan_what_ifs_text(struct mcp_text *out, const struct mcp_style *style,
                            const struct mcp_plan_view *view)
{
    static const struct mcp_column columns[] = {{"what if", "", MCP_LEFT},
                                                {"iteration", "", MCP_RIGHT},
                                                {"tokens/s", "", MCP_RIGHT},
                                                {"the best plan then", "", MCP_LEFT}};
    if (!view->what_ifs)
        return;
    struct mcp_table *table = mcp_table_new(out->arena, columns, 4);
    for (int i = 0; i < MCP_NUM_WHAT_IFS; i++)
        add_what_if(table, out->arena, view, &view->what_ifs[i]);
    mcp_heading(out, style, "What would change it, each searched for anew");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
}

/* Memory, step by step */

enum { NUM_RECOMPUTE_STEPS = 3, STEP_NAME = 23, STEP_BESIDE = 2 + STEP_NAME + 34 };
static const char *const step_texts[MCP_NUM_MEMORY_STEPS] = {
    "no recompute",       "+ selective recompute", "+ full recompute",
    "+ ZeRO 1 optimizer", "+ ZeRO 2 gradients",    "+ ZeRO 3 weights",
};

static double fullest(const struct mcp_plan_view *view)
{
    int64_t most = view->prediction->memory_limit_bytes;
    for (int i = 0; i < MCP_NUM_MEMORY_STEPS; i++)
        if (!view->memory_steps[i].refused &&
            view->memory_steps[i].prediction.peak_memory_bytes > most)
            most = view->memory_steps[i].prediction.peak_memory_bytes;
    return (double)most;
}

static void write_memory_step(struct mcp_text *out, const struct mcp_style *style, int index,
                              const struct mcp_memory_step *step, double full)
{
    struct mcp_arena *arena = out->arena;
    struct mcp_bar parts[MCP_NUM_MEMORY_PARTS];
    const struct mcp_prediction *p = &step->prediction;
    mcp_text_add(out, "  %-*s", STEP_NAME, step_texts[index]);
    if (step->refused) {
        mcp_text_add(out, "refused: %s\n", step->refused);
        return;
    }
    mcp_plan_memory_parts(arena, &p->memory, parts);
    mcp_stacked_line(out, style, parts, MCP_NUM_MEMORY_PARTS, full, cells_of(style, STEP_BESIDE));
    mcp_text_add(out, " %10s", mcp_plan_gib(arena, p->peak_memory_bytes));
    mcp_text_add(out, " %9s  ", mcp_show(arena, p->iteration_s, MCP_SECONDS));
    mcp_text_add(out, "%s\n",
                 p->fits ? mcp_paint(arena, style, MCP_GREEN, "fits")
                         : mcp_paint(arena, style, MCP_RED, "too much"));
}

/* Which fill is which part, on one line. */
static void write_fills(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_plan_view *view)
{
    struct mcp_bar parts[MCP_NUM_MEMORY_PARTS];
    mcp_plan_memory_parts(out->arena, &view->prediction->memory, parts);
    struct mcp_text key = mcp_text_new(out->arena);
    for (int i = 0; i < MCP_NUM_MEMORY_PARTS; i++) {
        struct mcp_bar alone[MCP_NUM_MEMORY_PARTS] = {{0}};
        alone[i].value = 1;
        mcp_text_add(&key, "%s", i > 0 ? "  " : "");
        mcp_stacked_line(&key, style, alone, MCP_NUM_MEMORY_PARTS, 0, 1);
        mcp_text_add(&key, " %s", parts[i].label);
    }
    mcp_text_add(out, "  ");
    mcp_wrap(out, key.data, style->width - 2, 2);
    mcp_text_add(out, "\n");
}

/* Where the limit is on the bars. */
static void write_limit(struct mcp_text *out, const struct mcp_style *style, double limit,
                        double full)
{
    int cells = cells_of(style, STEP_BESIDE);
    mcp_text_add(out, "  %-*s%*s%s  %s\n", STEP_NAME, "the limit",
                 (int)lround(limit / full * cells) - 1, "", style->unicode ? "▼" : "v",
                 mcp_plan_gib(out->arena, (int64_t)limit));
}

void mcp_plan_memory_steps_text(struct mcp_text *out, const struct mcp_style *style,
                                const struct mcp_plan_view *view)
{
    if (!view->memory_steps)
        return;
    mcp_heading(out, style, "What saves memory here, each on top of those above");
    write_limit(out, style, (double)view->prediction->memory_limit_bytes, fullest(view));
    bool alone = view->plan.data_parallel * view->plan.context_parallel == 1;
    for (int i = 0; i < (alone ? NUM_RECOMPUTE_STEPS : MCP_NUM_MEMORY_STEPS); i++)
        write_memory_step(out, style, i, &view->memory_steps[i], fullest(view));
    if (alone)
        mcp_text_add(out, "  ZeRO saves nothing here: no two ranks hold the same weights\n");
    write_fills(out, style, view);
}

/* What each way to save communication is worth */

void mcp_plan_savings_text(struct mcp_text *out, const struct mcp_style *style,
                           const struct mcp_plan_view *view)
{
    if (view->savings == NULL)
        return;
    mcp_heading(out, style, "What each way to save communication is worth, alone");
    mcp_table_write(mcp_savings_table(out->arena, view->savings), MCP_SKIN_TERMINAL, style, out);
}
