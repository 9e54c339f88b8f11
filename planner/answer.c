/* planner/answer.c: the binding rule, and changes found by searching. */
#include "planner/answer.h"

#include "core/text.h"

const char *mcp_binding_rule(const struct mcp_search_record *record)
{
    const char *const rules[] = {mcp_rule_memory, mcp_rule_batch, mcp_rule_pipeline};
    for (int i = 0; i < 3; i++)
        if (mcp_search_refused(record, rules[i]) > 0)
            return rules[i];
    return record->num_refused > 0 ? record->refused[0].rule : NULL;
}

/* Of what a search would look at: folded schedules have two chunks, and their rows are made. */
static void ask_rules(struct mcp_arena *arena, const struct mcp_question *question,
                      struct mcp_plan *plan, struct mcp_refusals *out)
{
    int count = 0;
    if (mcp_plan_placement(plan) == MCP_PLACEMENT_V && plan->pipeline_parallel > 1 &&
        plan->virtual_stages != 2) {
        plan->virtual_stages = 2;
        plan->chunks = NULL;
    }
    mcp_legal(arena, question, plan, out);
    for (int i = 0; i < out->count; i++)
        if (plan->schedule == MCP_CUSTOM || !mcp_same(out->items[i].rule, "schedule_has_rows"))
            out->items[count++] = out->items[i];
    out->count = count;
}

/* Looks for fewer broken rules than `out` has in the first and the last candidate
 * of a layout, which differ in all choices: sentences are not cheap. */
static void least_of_layout(struct mcp_arena *arena, const struct mcp_question *question,
                            const struct mcp_choices *choices, struct mcp_plan *plan,
                            struct mcp_refusals *out)
{
    int64_t count = mcp_choices_count(choices);
    const int64_t tried[2] = {0, count - 1};
    for (int i = 0; count > 0 && i < 2 && out->count > 1; i++) {
        struct mcp_refusals refusals;
        struct mcp_plan candidate;
        mcp_choices_plan(choices, tried[i], &candidate);
        ask_rules(arena, question, &candidate, &refusals);
        if (refusals.count > 0 && refusals.count < out->count) {
            *out = refusals;
            *plan = candidate;
        }
    }
}

bool mcp_least_illegal(struct mcp_arena *arena, const struct mcp_question *question,
                       const struct mcp_plan_space *space, struct mcp_plan *plan,
                       struct mcp_refusals *out)
{
    struct mcp_layout *layouts;
    int num_layouts = mcp_space_layouts(arena, question, space, &layouts);
    out->count = MCP_MAX_REFUSALS + 1;
    for (int i = 0; i < num_layouts && out->count > 1; i++) {
        struct mcp_choices choices;
        mcp_space_choices(arena, question, space, &layouts[i], &choices);
        least_of_layout(arena, question, &choices, plan, out);
    }
    if (out->count <= MCP_MAX_REFUSALS)
        return true;
    out->count = 0;
    return false;
}

/* The search as it would be, in what counts for a change. */
struct trial {
    struct mcp_arena *arena;
    const struct mcp_question *question;
    struct mcp_plan_space space;
    const struct mcp_search_options *options;
    struct mcp_changes *changes;
};

static bool try_it(const struct trial *trial, struct mcp_found *found)
{
    struct mcp_answer answer;
    struct mcp_search_options options = *trial->options;
    options.top = options.num_threads = 1; /* short searches, and many */
    options.exhaustive = options.smallest = false;
    mcp_search(trial->arena, trial->question, &trial->space, &options, &answer);
    if (answer.count > 0)
        *found = answer.found[0];
    return answer.count > 0;
}

static void add(struct mcp_changes *changes, enum mcp_change_kind kind, const char *text,
                const struct mcp_found *found)
{
    changes->items[changes->count++] = (struct mcp_change){kind, text, *found};
}

static void free_knob(struct trial trial, enum mcp_knob knob)
{
    struct mcp_found found;
    struct mcp_interval asked = trial.space.knobs[knob];
    trial.space.knobs[knob].given = false;
    if (!asked.given || !try_it(&trial, &found))
        return;
    const char *now = mcp_knob_text(trial.arena, knob, mcp_knob_value(knob, &found.plan));
    const char *low = mcp_knob_text(trial.arena, knob, asked.low);
    const char *text =
        asked.low == asked.high
            ? mcp_format(trial.arena, "%s=%s instead of %s", mcp_knob_names[knob], now, low)
            : mcp_format(trial.arena, "%s=%s instead of %s..%s", mcp_knob_names[knob], now, low,
                         mcp_knob_text(trial.arena, knob, asked.high));
    add(trial.changes, MCP_CHANGE_KNOB, text, &found);
}

/* The search looked beyond one rule at a time; beyond both nobody has looked yet. */
static void lift_rules(struct trial trial, const struct mcp_answer *answer)
{
    struct mcp_found found;
    bool pipeline = mcp_space_keeps_pipeline_rule(&trial.space);
    bool batch = mcp_space_keeps_batch_rule(&trial.space);
    if (answer->has_beyond[1]) {
        add(trial.changes, MCP_CHANGE_RULE, "batch_rule off", &answer->beyond[1]);
    } else if (answer->has_beyond[0]) {
        add(trial.changes, MCP_CHANGE_RULE, "pipeline_rule off", &answer->beyond[0]);
    } else if (pipeline && batch) {
        trial.space.pipeline_rule = trial.space.batch_rule = false;
        if (try_it(&trial, &found))
            add(trial.changes, MCP_CHANGE_RULE, "pipeline_rule and batch_rule off", &found);
    }
}

void mcp_nearest_changes(struct mcp_arena *arena, const struct mcp_question *question,
                         const struct mcp_plan_space *space,
                         const struct mcp_search_options *options, const struct mcp_answer *answer,
                         struct mcp_changes *out)
{
    static const enum mcp_knob order[] = {
        MCP_KNOB_MICROBATCH,        MCP_KNOB_RECOMPUTE,      MCP_KNOB_ZERO_STAGE,
        MCP_KNOB_SEQUENCE_PARALLEL, MCP_KNOB_VIRTUAL_STAGES, MCP_KNOB_SCHEDULE,
        MCP_KNOB_CONTEXT_KIND,      MCP_KNOB_EXPERT,         MCP_KNOB_DATA,
        MCP_KNOB_CONTEXT,           MCP_KNOB_PIPELINE,       MCP_KNOB_TENSOR,
        MCP_KNOB_RESHARD,           MCP_KNOB_RANK_ORDER};
    _Static_assert(sizeof order / sizeof *order == MCP_NUM_KNOBS, "each knob once");
    out->count = 0;
    struct trial trial = {arena, question, *space, options, out};
    for (int i = 0; i < MCP_NUM_KNOBS; i++)
        free_knob(trial, order[i]);
    lift_rules(trial, answer);
}
