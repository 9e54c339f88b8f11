/* cli/sim_report.c: a played step as a report: --report FILE.html or FILE.md. */
#include "cli/commands.h"
#include "cli/plan_view.h"
#include "cli/report_links.h"
#include "cli/report_parts.h"
#include "cli/sim_view.h"
#include "core/units.h"
#include "step/build.h"

#include <math.h>
#include <string.h>

static const char *signed_percent(struct mcp_arena *arena, double frac)
{
    return mcp_format(arena, "%s%.2f %%", frac < 0 ? "−" : "+", 100 * fabs(frac));
}

static void add_answer(struct mcp_report *report, const struct mcp_sim_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_sim_result *result = view->result;
    const struct mcp_job *job = view->question->job;
    double step_s = mcp_sim_view_iteration_s(view), priced_s = view->predicted->iteration_s;
    double tokens = (double)job->global_batch_size * (double)job->sequence_length;
    mcp_report_say(report, MCP_REPORT_LEAD, MCP_TONE_PLAIN,
                   mcp_report_times(arena, mcp_plan_degrees_text(arena, view->plan)));
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN,
                   mcp_report_times(arena, mcp_plan_choices_text(arena, view->plan, job)));
    mcp_report_plain_figure(
        report, "Step in virtual time", mcp_show(arena, step_s, MCP_SECONDS),
        mcp_format(arena, "%s of the plan's price", signed_percent(arena, step_s / priced_s - 1)));
    mcp_report_plain_figure(report, "Tokens a second", mcp_show_count(arena, tokens / step_s), "");
    mcp_report_plain_figure(report, "Bubble", mcp_report_percent(arena, result->bubble_frac),
                            mcp_format(arena, "%s over the ideal",
                                       mcp_report_percent(arena, result->bubble_over_ideal)));
    mcp_report_plain_figure(report, "Communication",
                            mcp_report_percent(arena, result->exposed_comm_frac),
                            "of the step, exposed");
    mcp_report_plain_figure(report, "Events", mcp_show_count(arena, (double)result->events),
                            view->op_by_op ? "op by op, links shared" : "entry by entry");
}

/* Played beside priced, and each reason for the difference. */
static void add_difference(struct mcp_report *report, const struct mcp_sim_view *view)
{
    static const struct mcp_column columns[] = {{"why they differ", "", MCP_LEFT},
                                                {"time", "", MCP_RIGHT},
                                                {"of the price", "", MCP_RIGHT}};
    static const char *const rows[] = {"played", "priced"};
    struct mcp_arena *arena = report->arena;
    double *values = MCP_ARRAY(arena, 2 * MCP_NUM_COSTS, double);
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    memcpy(values, view->result->cost_s, sizeof view->result->cost_s);
    memcpy(values + MCP_NUM_COSTS, view->predicted->cost_s, sizeof view->predicted->cost_s);
    mcp_report_costs(report, "The step by kind of time, played and priced, mean over all ranks",
                     rows, values, 2);
    for (int i = 0; i < view->num_terms; i++) {
        const struct mcp_sim_term *term = &view->terms[i];
        mcp_table_cell(table, "%s", term->why);
        mcp_table_cell(table, "%s%s", term->seconds < 0 ? "−" : "+",
                       mcp_show(arena, fabs(term->seconds), MCP_SECONDS));
        mcp_table_cell(table, "%s",
                       signed_percent(arena, term->seconds / view->predicted->iteration_s));
    }
    mcp_report_table(report, MCP_REPORT_TABLE, "", table);
}

static void add_time(struct mcp_report *report, const struct mcp_sim_view *view)
{
    const struct mcp_sim_result *result = view->result;
    int stages = result->num_stages;
    double *values = MCP_ARRAY(report->arena, stages * MCP_NUM_COSTS, double);
    for (int i = 0; i < stages; i++)
        memcpy(values + (size_t)i * MCP_NUM_COSTS, result->stages[i].cost_s,
               sizeof result->stages[i].cost_s);
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Where the time goes");
    if (stages > 1)
        mcp_report_costs(report, "The step by kind of time, stage by stage",
                         mcp_report_stages(report->arena, stages), values, stages);
    mcp_report_cost_table(report, result->cost_s, result->comm_s, mcp_sim_view_iteration_s(view));
}

static void add_conditions(struct mcp_report *report, const struct mcp_sim_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_sim_options *options = view->options;
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Under what conditions");
    mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
                   options->noise > 0
                       ? mcp_format(arena,
                                    "Jitter of %.3g %% on the compute of each slot, seed %llu.",
                                    100 * options->noise, (unsigned long long)options->seed)
                       : "No noise: equal ranks take equal time, and are played once.");
    if (options->slow_rank >= 0)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
                       mcp_format(arena, "Rank %d computes %.3g times slower.", options->slow_rank,
                                  options->slow_factor));
    if (view->slow_link)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
                       mcp_format(arena, "A slow link: %s.", view->slow_link));
    if (view->dead_link)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
                       mcp_format(arena, "A dead link: %s.", view->dead_link));
    mcp_report_say(
        report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
        mcp_format(arena, "Collectives: %s.",
                   mcp_collective_algorithm_names[view->question->stack->collective_algorithm]));
    mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
                   mcp_format(arena,
                              "Prices of ops are the planner's: ± %.1f %%, as the stack %s states. "
                              "A group inside a slot waits for its slowest rank.",
                              100 * view->predicted->uncertainty_frac,
                              view->question->stack->name));
}

/* Where ranks are equal: of others one would not stand for all. */
static void add_links(struct mcp_report *report, const struct mcp_sim_view *view)
{
    const struct mcp_sim_options *options = view->options;
    struct mcp_program *program = MCP_NEW(report->arena, struct mcp_program);
    if (options->noise > 0 || options->slow_rank >= 0 || options->slow_port >= 0)
        return;
    mcp_program_build(report->arena, view->question, view->plan, program);
    mcp_report_step_links(report, view->question, program);
}

enum mcp_status mcp_sim_report_write(struct mcp_context *ctx, const char *path,
                                     const struct mcp_sim_view *view)
{
    struct mcp_arena *arena = ctx->arena;
    const struct mcp_report_step step = {
        view->question,
        {mcp_pricer_new(arena, view->question), view->plan, view->predicted, view->result}};
    struct mcp_report report = mcp_report_new(arena, view->question->model->name,
                                              mcp_report_question(arena, view->question));
    report.made_by = "made by mcpplan " MCP_VERSION " sim; every number is of virtual time";
    add_answer(&report, view);
    add_difference(&report, view);
    mcp_report_say(&report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "The step over time");
    mcp_report_step_gantt(&report, &step);
    add_time(&report, view);
    mcp_report_step_memory(&report, &step);
    add_links(&report, view);
    add_conditions(&report, view);
    return mcp_report_file_write(ctx, path, &report);
}
