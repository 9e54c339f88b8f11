/* cli/capacity_text.c: the answer of mcpplan capacity for people. */
#include "cli/capacity_view.h"
#include "core/units.h"
#include "reports/bars.h"

#include <math.h>

/* A paragraph of its own. */
static void put_line(struct mcp_text *out, const struct mcp_style *style, const char *text)
{
    mcp_text_add(out, "  ");
    mcp_wrap(out, text, style->width - 2, 4);
    mcp_text_add(out, "\n");
}

static void put_lines(struct mcp_text *out, const struct mcp_style *style,
                      struct mcp_capacity_lines lines)
{
    for (size_t i = 0; i < lines.count; i++)
        put_line(out, style, lines.items[i]);
}

static void put_question(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_question *question = &view->machines[0].question;
    const struct mcp_job *job = question->job;
    mcp_wrap(
        out,
        mcp_format(arena, "%s, %s tokens%s; batch %s x %s tokens, %s",
                   mcp_paint(arena, style, MCP_BOLD, mcp_printable(arena, question->model->name)),
                   mcp_show_count(arena, (double)view->ask->tokens),
                   mcp_capacity_limits_text(arena, view->ask),
                   mcp_show_integer(arena, job->global_batch_size),
                   mcp_show_integer(arena, job->sequence_length),
                   mcp_printable(arena, question->stack->name)),
        style->width, 2);
    mcp_text_add(out, "\n");
}

static void put_answer(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_capacity *capacity = view->capacity;
    int answers = 0;
    if (capacity->best < 0) {
        put_line(out, style, mcp_paint(arena, style, MCP_RED, "no size meets that"));
        return;
    }
    const struct mcp_capacity_row *best = &capacity->rows[capacity->best];
    mcp_text_add(out, "\n");
    put_line(out, style,
             mcp_paint(arena, style, MCP_BOLD, mcp_capacity_answer_text(arena, view, best)));
    put_lines(out, style, mcp_capacity_facts(arena, view, best));
    for (int i = 0; i < capacity->num_rows; i++) {
        const struct mcp_capacity_row *row = &capacity->rows[i];
        answers += row->answer;
        if (row->answer && row != best)
            put_line(out, style,
                     mcp_format(arena, "or %s", mcp_capacity_answer_text(arena, view, row)));
    }
    if (answers > 1)
        put_line(
            out, style,
            mcp_format(arena, "of these the first %s", mcp_capacity_order_text(capacity->order)));
}

static void put_table(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_capacity_view *view, int machine)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_table *table = mcp_capacity_table(arena, view->capacity, machine);
    const char *knee = mcp_capacity_knee_text(arena, view->capacity, machine);
    mcp_heading(out, style, mcp_printable(arena, view->machines[machine].name));
    if (mcp_table_num_rows(table) > 0)
        mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
    put_lines(out, style, mcp_capacity_refused(arena, view->capacity, machine));
    if (knee != NULL)
        put_line(out, style, knee);
}

/* Days, all machines on one scale. */
static void put_chart(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_capacity *capacity = view->capacity;
    struct mcp_bar *bars = MCP_ARRAY(arena, capacity->num_rows + 1, struct mcp_bar);
    int count = 0;
    for (int i = 0; i < capacity->num_rows; i++) {
        const struct mcp_capacity_row *row = &capacity->rows[i];
        const char *name = mcp_printable(arena, view->machines[row->machine].name);
        if (row->reason == NULL)
            bars[count++] = (struct mcp_bar){
                .label = mcp_format(arena, "%s %s%s%s", name, mcp_show_integer(arena, row->gpus),
                                    row->answer ? " answer" : "", row->knee ? " knee" : ""),
                .value = row->time_s,
                .text = mcp_capacity_days(arena, row->time_s),
                .color = row->answer ? MCP_GREEN
                         : row->knee ? MCP_YELLOW
                                     : MCP_CYAN,
            };
    }
    if (count < 2)
        return;
    mcp_heading(out, style, "Days");
    mcp_bars_write(out, style, bars, count, 0);
}

void mcp_capacity_text(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_capacity_view *view)
{
    put_question(out, style, view);
    if (view->capacity->interrupted)
        put_line(out, style,
                 mcp_paint(out->arena, style, MCP_YELLOW,
                           "interrupted: sizes are missing, and the answer may be another"));
    put_answer(out, style, view);
    for (int i = 0; i < view->num_machines; i++)
        put_table(out, style, view, i);
    put_chart(out, style, view);
    mcp_heading(out, style, "Assumed");
    put_lines(out, style, mcp_capacity_assumptions(out->arena, view));
}

enum mcp_status mcp_capacity_fail(struct mcp_arena *arena, const struct mcp_capacity_view *view,
                                  struct mcp_error *err)
{
    const struct mcp_capacity_row *near = NULL;
    const struct mcp_capacity *capacity = view->capacity;
    const char *limits = mcp_capacity_limits_text(arena, view->ask);
    for (int i = 0; i < capacity->num_rows; i++) {
        const struct mcp_capacity_row *row = &capacity->rows[i];
        if (row->reason == NULL && (near == NULL || row->time_s < near->time_s))
            near = row;
    }
    if (capacity->interrupted && near == NULL)
        return mcp_fail(err, MCP_INFEASIBLE, "interrupted before a size was planned");
    if (near == NULL)
        return mcp_fail(err, MCP_INFEASIBLE, "no size that was tried has a plan%s%s",
                        capacity->num_rows > 0 ? ": " : "",
                        capacity->num_rows > 0 ? capacity->rows[capacity->num_rows - 1].reason
                                               : "");
    return mcp_fail(
        err, MCP_INFEASIBLE,
        "no size that was tried trains %s tokens%s; the fastest, %s GPUs of %s, takes "
        "%s days, draws %s and costs %s",
        mcp_show_count(arena, (double)view->ask->tokens), limits,
        mcp_show_integer(arena, near->gpus),
        mcp_printable(arena, view->machines[near->machine].name),
        mcp_capacity_days(arena, near->time_s), mcp_show(arena, near->site_watts, MCP_WATTS),
        isnan(near->price) ? "an unknown price" : mcp_capacity_money(arena, near->price));
}
