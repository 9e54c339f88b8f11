/* cli/plan_report_play.c: the plan's step as it is played: slots over time, and memory. */
#include "cli/plan_report.h"

#include "core/units.h"
#include "sim/memory.h"
#include "sim/sim.h"
#include "step/build.h"
#include "step/verify.h"

#include <math.h>

enum kind { FORWARD, BACKWARD, WEIGHT, EDGE, UPDATE, OVERHEAD, NUM_KINDS };
static const struct mcp_gantt_kind all_kinds[NUM_KINDS] = {
    [FORWARD] = {"forward", 1},
    [BACKWARD] = {"backward", 5},
    [WEIGHT] = {"backward of weights", 8},
    [EDGE] = {"transfers of once a step", 4},
    [UPDATE] = {"optimizer", 9},
    [OVERHEAD] = {"overhead of the step", 10},
};

/* The step being laid out; kinds that do not occur are left out at the end. */
struct played {
    struct mcp_arena *arena;
    const struct mcp_plan_view *view;
    struct mcp_sim_result result;
    int num_spans;
    struct mcp_gantt_span *spans;
};

static enum kind kind_of(const struct mcp_slot *slot)
{
    switch (slot->pass) {
    case MCP_FORWARD:
        return FORWARD;
    case MCP_BACKWARD:
    case MCP_BACKWARD_INPUT:
        return BACKWARD;
    case MCP_BACKWARD_WEIGHT:
        return WEIGHT;
    default:
        return EDGE;
    }
}

static void add_span(struct played *played, struct mcp_gantt_span span)
{
    if (span.end_ns > span.start_ns)
        played->spans[played->num_spans++] = span;
}

static void add_stage(struct played *played, int row)
{
    const struct mcp_sim_result *result = &played->result;
    const struct mcp_sim_stage *stage = &result->stages[row];
    int64_t updated_ns = result->end_ns + result->update_ns;
    for (int i = 0; i < stage->num_slots; i++) {
        const struct mcp_slot *slot = &stage->slots[i];
        const struct mcp_sim_slot_time *time = &stage->times[i];
        add_span(played,
                 (struct mcp_gantt_span){row, kind_of(slot), time->start_ns, time->end_ns,
                                         slot->microbatch, slot->chunk < 0 ? 0 : slot->chunk});
    }
    add_span(played, (struct mcp_gantt_span){row, UPDATE, result->end_ns, updated_ns, -1, 0});
    add_span(played, (struct mcp_gantt_span){row, OVERHEAD, updated_ns, result->step_ns, -1, 0});
}

static void play(struct played *played)
{
    const struct mcp_question *question = played->view->question;
    const struct mcp_sim_options options = mcp_sim_options_default();
    struct mcp_program *program = MCP_NEW(played->arena, struct mcp_program);
    size_t room = 0;
    mcp_program_build(played->arena, question, &played->view->plan, program);
    mcp_sim_play(played->arena, question, program, &options, &played->result);
    for (int i = 0; i < played->result.num_stages; i++)
        room += (size_t)played->result.stages[i].num_slots + 2;
    played->spans = MCP_ARRAY(played->arena, room, struct mcp_gantt_span);
    for (int i = 0; i < played->result.num_stages; i++)
        add_stage(played, i);
}

/* Kinds that occur, numbered anew. */
static struct mcp_gantt_kind *kinds_used(struct played *played, int *count)
{
    struct mcp_gantt_kind *kinds = MCP_ARRAY(played->arena, NUM_KINDS, struct mcp_gantt_kind);
    int numbers[NUM_KINDS];
    bool used[NUM_KINDS] = {false};
    for (int i = 0; i < played->num_spans; i++)
        used[played->spans[i].kind] = true;
    *count = 0;
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        numbers[kind] = *count;
        if (used[kind])
            kinds[(*count)++] = all_kinds[kind];
    }
    for (int i = 0; i < played->num_spans; i++)
        played->spans[i].kind = numbers[played->spans[i].kind];
    return kinds;
}

static const char *const *stage_names(struct mcp_arena *arena, int stages)
{
    const char **names = MCP_ARRAY(arena, stages, const char *);
    for (int i = 0; i < stages; i++)
        names[i] = mcp_format(arena, "stage %d", i);
    return names;
}

/* Nothing where the two agree. */
static const char *difference_text(const struct played *played)
{
    double priced = played->view->prediction->iteration_s;
    if (fabs(1e-9 * (double)played->result.step_ns / priced - 1) < 0.002)
        return "";
    return mcp_format(played->arena,
                      "; its price, that of all other parts of this page, is %s. "
                      "mcpplan sim explains the difference",
                      mcp_show(played->arena, priced, MCP_SECONDS));
}

static const char *remark(const struct played *played)
{
    struct mcp_arena *arena = played->arena;
    const struct mcp_plan *plan = &played->view->plan;
    return mcp_format(
        arena,
        "One replica, %s microbatches under %s%s; all replicas do the same. Played event by event "
        "without noise, the step takes %s%s.%s",
        mcp_show_integer(arena, mcp_num_microbatches(plan, played->view->question->job)),
        mcp_schedule_names[plan->schedule],
        plan->virtual_stages > 1
            ? mcp_format(arena, " with %d chunks of layers on each stage", plan->virtual_stages)
            : "",
        mcp_show(arena, 1e-9 * (double)played->result.step_ns, MCP_SECONDS),
        difference_text(played), plan->virtual_stages > 1 ? " Every second chunk is paler." : "");
}

static void add_gantt(struct mcp_report *report, struct played *played)
{
    struct mcp_gantt gantt = {
        .title = "What each stage runs over one step",
        .num_rows = played->result.num_stages,
        .rows = stage_names(report->arena, played->result.num_stages),
        .num_chunks = played->view->plan.virtual_stages,
        .num_spans = played->num_spans,
        .spans = played->spans,
        .end_ns = played->result.step_ns,
    };
    gantt.kinds = kinds_used(played, &gantt.num_kinds);
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "The step over time");
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN, remark(played));
    mcp_report_gantt(report, &gantt);
}

/* Memory */

static const struct mcp_report_part memory_parts[MCP_NUM_MEMORY_PARTS] = {
    {"weights", 0},     {"gradients", 1},       {"optimizer", 9},
    {"activations", 6}, {"working buffers", 7}, {"reserve", 10},
};

static void add_stage_memory(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_prediction *p = view->prediction;
    int stages = view->plan.pipeline_parallel;
    double *values = MCP_ARRAY(arena, stages * MCP_NUM_MEMORY_PARTS, double);
    for (int i = 0; i < stages; i++) {
        struct mcp_bar parts[MCP_NUM_MEMORY_PARTS];
        mcp_plan_memory_parts(arena, &p->stages[i].memory, parts);
        for (int k = 0; k < MCP_NUM_MEMORY_PARTS; k++)
            values[i * MCP_NUM_MEMORY_PARTS + k] = parts[k].value;
    }
    const struct mcp_report_bars bars = {
        mcp_format(arena, "Memory of a %s at its peak, stage by stage",
                   mcp_plan_device(view->question)),
        MCP_NUM_MEMORY_PARTS,
        stages,
        memory_parts,
        stage_names(arena, stages),
        values,
        MCP_BYTES,
        (double)p->memory_limit_bytes,
        mcp_format(arena, "limit %s", mcp_plan_gib(arena, p->memory_limit_bytes))};
    mcp_report_bars(report, &bars);
}

enum { MOST_CURVES = 3, NUM_POINTS = 400 };

/* The fullest stage, the first and the last. */
static int choose_stages(const struct mcp_plan_view *view, int chosen[MOST_CURVES])
{
    const int wanted[MOST_CURVES] = {0, view->prediction->peak_stage,
                                     view->plan.pipeline_parallel - 1};
    int count = 0;
    for (int i = 0; i < MOST_CURVES; i++)
        if (count == 0 || wanted[i] > chosen[count - 1])
            chosen[count++] = wanted[i];
    return count;
}

static void add_memory_over_time(struct mcp_report *report, const struct played *played)
{
    static const int inks[MOST_CURVES] = {1, 5, 9};
    struct mcp_arena *arena = report->arena;
    const struct mcp_plan_view *view = played->view;
    const struct mcp_prediction *p = view->prediction;
    struct mcp_pricer *pricer = mcp_pricer_new(arena, view->question);
    struct mcp_report_part *lines = MCP_ARRAY(arena, MOST_CURVES, struct mcp_report_part);
    double *values = MCP_ARRAY(arena, MOST_CURVES * NUM_POINTS, double);
    int chosen[MOST_CURVES], count = choose_stages(view, chosen);
    const struct mcp_sim_played of = {pricer, &view->plan, p, &played->result};
    for (int i = 0; i < count; i++) {
        struct mcp_sim_curve curve;
        mcp_sim_memory(arena, &of, chosen[i], &curve);
        mcp_sim_memory_sample(&curve, played->result.step_ns, values + i * NUM_POINTS, NUM_POINTS);
        lines[i] =
            (struct mcp_report_part){mcp_format(arena, "stage %d%s", chosen[i],
                                                chosen[i] == p->peak_stage ? ", the fullest" : ""),
                                     inks[i]};
    }
    const struct mcp_report_lines curves = {"Memory over the step, the reserve included",
                                            count,
                                            NUM_POINTS,
                                            lines,
                                            values,
                                            MCP_BYTES,
                                            1e-9 * (double)played->result.step_ns,
                                            (double)p->memory_limit_bytes,
                                            "limit"};
    mcp_report_lines(report, &curves);
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
    const struct mcp_report_bars bars = {"What saves memory here, each on top of those above",
                                         MCP_NUM_MEMORY_PARTS,
                                         count,
                                         memory_parts,
                                         rows,
                                         values,
                                         MCP_BYTES,
                                         (double)view->prediction->memory_limit_bytes,
                                         "limit"};
    mcp_report_bars(report, &bars);
}

void mcp_plan_report_play(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct played played = {.arena = report->arena, .view = view};
    play(&played);
    add_gantt(report, &played);
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Memory by stage, and over time");
    add_stage_memory(report, view);
    add_memory_over_time(report, &played);
    if (view->memory_steps)
        add_memory_steps(report, view);
}
