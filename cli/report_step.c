/* cli/report_step.c: a played step in reports: slots over time, memory by stage and time. */
#include "cli/report_parts.h"

#include "cli/plan_view.h"
#include "core/units.h"

#include <math.h>

/* Slots over time */

enum kind { FORWARD, BACKWARD, WEIGHT, EDGE, UPDATE, OVERHEAD, NUM_KINDS };
static const struct mcp_gantt_kind all_kinds[NUM_KINDS] = {
    [FORWARD] = {"forward", 1},
    [BACKWARD] = {"backward", 5},
    [WEIGHT] = {"backward of weights", 8},
    [EDGE] = {"transfers of once a step", 4},
    [UPDATE] = {"optimizer", 9},
    [OVERHEAD] = {"overhead of the step", 10},
};

/* Spans being laid out; kinds that do not occur are left out at the end. */
struct spans {
    struct mcp_arena *arena;
    const struct mcp_sim_result *result;
    int count;
    struct mcp_gantt_span *items;
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

static void add_span(struct spans *spans, struct mcp_gantt_span span)
{
    if (span.end_ns > span.start_ns)
        spans->items[spans->count++] = span;
}

static void add_stage(struct spans *spans, int row)
{
    const struct mcp_sim_result *result = spans->result;
    const struct mcp_sim_stage *stage = &result->stages[row];
    int64_t updated_ns = result->end_ns + result->update_ns;
    for (int i = 0; i < stage->num_slots; i++) {
        const struct mcp_slot *slot = &stage->slots[i];
        const struct mcp_sim_slot_time *time = &stage->times[i];
        add_span(spans,
                 (struct mcp_gantt_span){row, kind_of(slot), time->start_ns, time->end_ns,
                                         slot->microbatch, slot->chunk < 0 ? 0 : slot->chunk});
    }
    add_span(spans, (struct mcp_gantt_span){row, UPDATE, result->end_ns, updated_ns, -1, 0});
    add_span(spans, (struct mcp_gantt_span){row, OVERHEAD, updated_ns, result->step_ns, -1, 0});
}

static struct spans spans_of(struct mcp_arena *arena, const struct mcp_sim_result *result)
{
    struct spans spans = {arena, result, 0, NULL};
    size_t room = 0;
    for (int i = 0; i < result->num_stages; i++)
        room += (size_t)result->stages[i].num_slots + 2;
    spans.items = MCP_ARRAY(arena, room, struct mcp_gantt_span);
    for (int i = 0; i < result->num_stages; i++)
        add_stage(&spans, i);
    return spans;
}

/* Kinds that occur, numbered anew. */
static const struct mcp_gantt_kind *kinds_used(struct spans *spans, int *count)
{
    struct mcp_gantt_kind *kinds = MCP_ARRAY(spans->arena, NUM_KINDS, struct mcp_gantt_kind);
    int numbers[NUM_KINDS];
    bool used[NUM_KINDS] = {false};
    for (int i = 0; i < spans->count; i++)
        used[spans->items[i].kind] = true;
    *count = 0;
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        numbers[kind] = *count;
        if (used[kind])
            kinds[(*count)++] = all_kinds[kind];
    }
    for (int i = 0; i < spans->count; i++)
        spans->items[i].kind = numbers[spans->items[i].kind];
    return kinds;
}

static const char *remark(struct mcp_arena *arena, const struct mcp_report_step *step)
{
    const struct mcp_plan *plan = step->played.plan;
    int64_t microbatches = mcp_num_microbatches(plan, step->question->job);
    int chunks = plan->virtual_stages;
    return mcp_format(
        arena, "%s microbatch%s under %s%s. %s%s", mcp_show_integer(arena, microbatches),
        microbatches == 1 ? "" : "es", mcp_schedule_names[plan->schedule],
        chunks > 1 ? mcp_format(arena, " with %d chunks of layers on each stage", chunks) : "",
        step->played.result->num_cells > 1 ? "The replica that ends last."
                                           : "One replica; all others do the same.",
        chunks > 1 ? " Every second chunk is paler." : "");
}

void mcp_report_step_gantt(struct mcp_report *report, const struct mcp_report_step *step)
{
    const struct mcp_sim_result *result = step->played.result;
    struct spans spans = spans_of(report->arena, result);
    struct mcp_gantt gantt = {
        .title = "What each stage runs over one step",
        .num_rows = result->num_stages,
        .rows = mcp_report_stages(report->arena, result->num_stages),
        .num_chunks = step->played.plan->virtual_stages,
        .num_spans = spans.count,
        .spans = spans.items,
        .end_ns = result->step_ns,
    };
    gantt.kinds = kinds_used(&spans, &gantt.num_kinds);
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN, remark(report->arena, step));
    mcp_report_gantt(report, &gantt);
}

/* Memory */

const struct mcp_report_part mcp_report_memory_parts[MCP_NUM_MEMORY_PARTS] = {
    {"weights", 0},     {"gradients", 1},       {"optimizer", 9},
    {"activations", 6}, {"working buffers", 7}, {"reserve", 10},
};

static void add_stages(struct mcp_report *report, const struct mcp_report_step *step)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_prediction *p = step->played.predicted;
    int stages = step->played.plan->pipeline_parallel;
    double *values = MCP_ARRAY(arena, stages * MCP_NUM_MEMORY_PARTS, double);
    for (int i = 0; i < stages; i++) {
        struct mcp_bar parts[MCP_NUM_MEMORY_PARTS];
        mcp_plan_memory_parts(arena, &p->stages[i].memory, parts);
        for (int k = 0; k < MCP_NUM_MEMORY_PARTS; k++)
            values[i * MCP_NUM_MEMORY_PARTS + k] = parts[k].value;
    }
    const struct mcp_report_bars bars = {
        .title = mcp_format(arena, "Memory of a %s at its peak, stage by stage",
                            mcp_plan_device(step->question)),
        .num_parts = MCP_NUM_MEMORY_PARTS,
        .num_rows = stages,
        .parts = mcp_report_memory_parts,
        .rows = mcp_report_stages(arena, stages),
        .values = values,
        .dimension = MCP_BYTES,
        .limit = (double)p->memory_limit_bytes,
        .limit_text = mcp_format(arena, "limit %s", mcp_plan_gib(arena, p->memory_limit_bytes))};
    mcp_report_bars(report, &bars);
}

enum { MOST_CURVES = 3, NUM_POINTS = 400 };

/* The fullest stage, the first and the last. */
static int choose_stages(const struct mcp_sim_played *played, int chosen[MOST_CURVES])
{
    const int wanted[MOST_CURVES] = {0, played->predicted->peak_stage,
                                     played->plan->pipeline_parallel - 1};
    int count = 0;
    for (int i = 0; i < MOST_CURVES; i++)
        if (count == 0 || wanted[i] > chosen[count - 1])
            chosen[count++] = wanted[i];
    return count;
}

static void add_curves(struct mcp_report *report, const struct mcp_sim_played *played)
{
    static const int inks[MOST_CURVES] = {1, 5, 9};
    struct mcp_arena *arena = report->arena;
    struct mcp_report_part *lines = MCP_ARRAY(arena, MOST_CURVES, struct mcp_report_part);
    double *values = MCP_ARRAY(arena, MOST_CURVES * NUM_POINTS, double);
    int chosen[MOST_CURVES], count = choose_stages(played, chosen);
    for (int i = 0; i < count; i++) {
        bool fullest = chosen[i] == played->predicted->peak_stage;
        struct mcp_sim_curve curve;
        mcp_sim_memory(arena, played, chosen[i], &curve);
        mcp_sim_memory_sample(&curve, played->result->step_ns, values + (size_t)i * NUM_POINTS,
                              NUM_POINTS);
        lines[i].name = mcp_format(arena, "stage %d%s", chosen[i], fullest ? ", the fullest" : "");
        lines[i].ink = inks[i];
    }
    const struct mcp_report_lines curves = {.title = "Memory over the step, the reserve included",
                                            .num_lines = count,
                                            .num_points = NUM_POINTS,
                                            .lines = lines,
                                            .values = values,
                                            .dimension = MCP_BYTES,
                                            .seconds = 1e-9 * (double)played->result->step_ns,
                                            .limit = (double)played->predicted->memory_limit_bytes,
                                            .limit_text = "limit"};
    mcp_report_lines(report, &curves);
}

void mcp_report_step_memory(struct mcp_report *report, const struct mcp_report_step *step)
{
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Memory by stage, and over time");
    add_stages(report, step);
    add_curves(report, &step->played);
}
