/* cli/plan_report_play.c: the plan's step as it is played, and ways to save memory. */
#include "cli/plan_report.h"

#include "cli/report_links.h"
#include "core/units.h"
#include "sim/check.h"
#include "step/build.h"

#include <math.h>

/* Nothing where the two agree. */
static const char *difference_text(struct mcp_arena *arena, double played_s, double priced_s)
{
    if (fabs(played_s / priced_s - 1) < 0.002)
        return "";
    return mcp_format(arena,
                      "; its price, that of all other parts of this page, is %s. mcpplan sim "
                      "explains the difference",
                      mcp_show(arena, priced_s, MCP_SECONDS));
}

static const char *played_text(struct mcp_arena *arena, const struct mcp_sim_played *played)
{
    double step_s = 1e-9 * (double)played->result->step_ns;
    return mcp_format(arena, "Played event by event without noise, the step takes %s%s.",
                      mcp_show(arena, step_s, MCP_SECONDS),
                      difference_text(arena, step_s, played->predicted->iteration_s));
}

/* A step that is too long to be played is not drawn. */
static enum mcp_status play(struct mcp_arena *arena, const struct mcp_plan_view *view,
                            struct mcp_program *program, struct mcp_sim_result *result,
                            struct mcp_error *err)
{
    const struct mcp_sim_options options = mcp_sim_options_default();
    MCP_TRY(mcp_sim_check_size(&view->plan, view->question->job, err));
    mcp_program_build(arena, view->question, &view->plan, program);
    MCP_TRY(mcp_sim_check_time(view->question, program, &options, err));
    mcp_sim_play(arena, view->question, program, &options, result);
    return MCP_OK;
}

static const char *const step_texts[MCP_NUM_MEMORY_STEPS] = {
    "no recompute", "+ selective", "+ full", "+ ZeRO 1", "+ ZeRO 2", "+ ZeRO 3",
};

static void add_memory_steps(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = report->arena;
    const char **rows = MCP_ARRAY(arena, MCP_NUM_MEMORY_STEPS, const char *);
    double *values = MCP_ARRAY(arena, MCP_NUM_MEMORY_STEPS * MCP_NUM_MEMORY_PARTS, double);
    int count = 0;
    for (int i = 0; i < MCP_NUM_MEMORY_STEPS; i++) {
        struct mcp_bar parts[MCP_NUM_MEMORY_PARTS];
        if (view->memory_steps[i].refused)
            continue;
        mcp_plan_memory_parts(arena, &view->memory_steps[i].prediction.memory, parts);
        for (int k = 0; k < MCP_NUM_MEMORY_PARTS; k++)
            values[count * MCP_NUM_MEMORY_PARTS + k] = parts[k].value;
        rows[count++] = step_texts[i];
    }
    const struct mcp_report_bars bars = {.title =
                                             "What saves memory here, each on top of those above",
                                         .num_parts = MCP_NUM_MEMORY_PARTS,
                                         .num_rows = count,
                                         .parts = mcp_report_memory_parts,
                                         .rows = rows,
                                         .values = values,
                                         .dimension = MCP_BYTES,
                                         .limit = (double)view->prediction->memory_limit_bytes,
                                         .limit_text = "limit"};
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN,
                   "What saves memory here, each on top of those above:");
    mcp_report_bars(report, &bars);
}

void mcp_plan_report_play(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = report->arena;
    struct mcp_sim_result *result = MCP_NEW(arena, struct mcp_sim_result);
    struct mcp_program *program = MCP_NEW(arena, struct mcp_program);
    struct mcp_pricer *pricer = mcp_pricer_new(arena, view->question);
    const struct mcp_report_step step = {view->question,
                                         {pricer, &view->plan, view->prediction, result}};
    struct mcp_error err;
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "The step over time");
    if (play(arena, view, program, result, &err) != MCP_OK) {
        mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_WARN,
                       mcp_format(arena, "not drawn: %s", err.text));
        return;
    }
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN, played_text(arena, &step.played));
    mcp_report_step_gantt(report, &step);
    mcp_report_step_memory(report, &step);
    if (view->memory_steps)
        add_memory_steps(report, view);
    mcp_report_step_links(report, view->question, program);
}
