/* cli/plan_json.c: plan.json: a plan with all that a run of it needs. */
#include "cli/plan_refine.h"
#include "cli/plan_schedule.h"
#include "cli/plan_view.h"

#include "core/json.h"
#include "step/casts.h"

static void put_refusals(const struct mcp_refusals *refusals, struct mcp_json *list)
{
    for (int i = 0; i < refusals->count; i++) {
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_string(row, "rule", refusals->items[i].rule);
        mcp_json_set_string(row, "text", refusals->items[i].text);
    }
}

static void put_found(struct mcp_arena *arena, const struct mcp_found *found,
                      struct mcp_json *object)
{
    for (int knob = 0; knob < MCP_NUM_KNOBS; knob++) {
        int value = mcp_knob_value((enum mcp_knob)knob, &found->plan);
        if (knob == MCP_KNOB_SEQUENCE_PARALLEL || knob == MCP_KNOB_RESHARD)
            mcp_json_set_bool(object, mcp_knob_names[knob], value != 0);
        else if (knob == MCP_KNOB_RANK_ORDER)
            mcp_json_set_string(object, mcp_knob_names[knob], mcp_rank_order_names[value]);
        else if (knob == MCP_KNOB_CONTEXT_KIND)
            mcp_json_set_string(object, mcp_knob_names[knob], mcp_context_kind_names[value]);
        else if (knob == MCP_KNOB_SCHEDULE)
            mcp_json_set_string(object, mcp_knob_names[knob], mcp_schedule_names[value]);
        else if (knob == MCP_KNOB_RECOMPUTE)
            mcp_json_set_string(object, mcp_knob_names[knob],
                                mcp_plan_recompute_text(arena, &found->plan));
        else
            mcp_json_set_int(object, mcp_knob_names[knob], value);
    }
    mcp_json_set_double(object, "iteration_s", found->iteration_s);
    mcp_json_set_int(object, "peak_memory_bytes", found->peak_memory_bytes);
}

static void put_costs(const int64_t cost_ns[MCP_NUM_COSTS], struct mcp_json *object)
{
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        mcp_json_set_int(object, mcp_cost_names[i], cost_ns[i]);
}

static void put_difference(const struct mcp_prediction *from, const struct mcp_prediction *to,
                           struct mcp_json *object)
{
    struct mcp_difference difference;
    mcp_explain_difference(from, to, &difference);
    const struct mcp_memory *memory = &difference.memory;
    mcp_json_set_int(object, "iteration_ns", difference.iteration_ns);
    put_costs(difference.cost_ns, mcp_json_set_object(object, "cost_ns"));
    mcp_json_set_int(object, "peak_memory_bytes", difference.peak_memory_bytes);
    struct mcp_json *parts = mcp_json_set_object(object, "memory");
    mcp_json_set_int(parts, "weights_bytes", memory->weights_bytes);
    mcp_json_set_int(parts, "gradients_bytes", memory->gradients_bytes);
    mcp_json_set_int(parts, "optimizer_bytes", memory->optimizer_bytes);
    mcp_json_set_int(parts, "activations_bytes", memory->activations_bytes);
    mcp_json_set_int(parts, "buffers_bytes", memory->buffers_bytes);
    mcp_json_set_int(parts, "reserve_bytes", memory->reserve_bytes);
}

static void put_runner_up(struct mcp_arena *arena, const struct mcp_plan_view *view, int index,
                          struct mcp_json *object)
{
    put_found(arena, &view->answer->found[index], object);
    put_difference(view->prediction, &view->predictions[index],
                   mcp_json_set_object(object, "difference"));
}

/* What the article's rules cost or save: the best that each alone refuses. */
static void put_rules(struct mcp_arena *arena, const struct mcp_plan_view *view,
                      struct mcp_json *list)
{
    const char *const rules[2] = {mcp_rule_pipeline, mcp_rule_batch};
    for (int i = 0; i < 2; i++) {
        if (mcp_search_refused(&view->answer->record, rules[i]) == 0)
            continue;
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_string(row, "rule", rules[i]);
        if (view->answer->has_beyond[i])
            put_found(arena, &view->answer->beyond[i], mcp_json_set_object(row, "best_refused"));
        else
            mcp_json_set_null(row, "best_refused");
    }
}

/* Each pool of a mixed cluster alone. */
static void put_halves(struct mcp_arena *arena, const struct mcp_plan_view *view,
                       struct mcp_json *object)
{
    mcp_json_set_string(object, "text", view->halves_text);
    struct mcp_json *parts = mcp_json_set_array(object, "parts");
    for (int i = 0; i < view->halves.count; i++) {
        const struct mcp_half *half = &view->halves.items[i];
        struct mcp_json *row = mcp_json_add_object(parts);
        mcp_json_set_string(row, "cluster", half->cluster.name);
        mcp_json_set_int(row, "num_nodes", half->cluster.num_nodes);
        mcp_json_set_int(row, "gpus", mcp_pool_gpus(&half->cluster));
        mcp_json_set_bool(row, "proven_optimal", half->proven);
        if (half->found)
            put_found(arena, &half->best, mcp_json_set_object(row, "best"));
        else
            mcp_json_set_null(row, "best");
    }
}

/* Those looked at, and what the answer's gains. */
static void put_schedules(struct mcp_arena *arena, const struct mcp_plan_view *view,
                          struct mcp_json *object)
{
    struct mcp_plan_in_1f1b other;
    unsigned schedules = mcp_plan_schedules_looked_at(view);
    struct mcp_json *names = mcp_json_set_array(object, "schedules");
    for (int s = 0; s < MCP_NUM_SCHEDULES; s++)
        if (schedules >> s & 1)
            mcp_json_add_string(names, mcp_schedule_names[s]);
    if (!view->has_plan || !mcp_plan_in_1f1b(arena, view, &other))
        return;
    struct mcp_json *json = mcp_json_set_object(object, "in_1f1b");
    mcp_json_set_double(json, "iteration_s", other.iteration_s);
    mcp_json_set_int(json, "peak_memory_bytes", other.peak_memory_bytes);
    mcp_json_set_bool(json, "fits", other.fits);
}

static void put_search(struct mcp_arena *arena, const struct mcp_plan_view *view,
                       struct mcp_json *object)
{
    const struct mcp_search_record *record = &view->answer->record;
    mcp_json_set_string(object, "method", view->method);
    mcp_json_set_string(object, "objective", mcp_objective_names[view->objective]);
    mcp_json_set_string(object, "space", view->uniform ? "uniform_stages" : "all_splits");
    struct mcp_json *required = mcp_json_set_array(object, "required");
    for (int i = 0; i < view->requirements->count; i++)
        mcp_json_add_string(required, view->requirements->items[i].text);
    mcp_json_set_int(object, "candidates", record->candidates);
    struct mcp_json *refused = mcp_json_set_object(object, "refused");
    for (int i = 0; i < record->num_refused; i++)
        mcp_json_set_int(refused, record->refused[i].rule, record->refused[i].count);
    struct mcp_json *refuted = mcp_json_set_object(object, "refuted");
    for (int i = 0; i < record->num_refuted; i++)
        mcp_json_set_int(refuted, record->refuted[i].rule, record->refuted[i].count);
    mcp_json_set_int(object, "bounded", record->bounded);
    mcp_json_set_int(object, "priced", record->priced);
    mcp_json_set_int(object, "fitting", record->fitting);
    mcp_json_set_int(object, "milps", record->milps);
    mcp_json_set_bool(object, "proven_optimal", record->proven_optimal);
    mcp_json_set_double(object, "gap_frac", record->gap_frac);
    mcp_json_set_bool(object, "interrupted", view->interrupted);
    put_schedules(arena, view, object);
    put_rules(arena, view, mcp_json_set_array(object, "rules"));
    if (view->halves_text)
        put_halves(arena, view, mcp_json_set_object(object, "mixed"));
    struct mcp_json *others = mcp_json_set_array(object, "runners_up");
    for (int i = 1; i < view->answer->count; i++)
        put_runner_up(arena, view, i, mcp_json_add_object(others));
    struct mcp_json *changes = mcp_json_set_array(object, "changes");
    for (int i = 0; i < view->changes.count; i++) {
        struct mcp_json *row = mcp_json_add_object(changes);
        mcp_json_set_string(row, "text", view->changes.items[i].text);
        put_found(arena, &view->changes.items[i].found, row);
    }
    for (int i = 0; i < view->num_remedies; i++) {
        struct mcp_json *row = mcp_json_add_object(changes);
        mcp_json_set_string(row, "text", view->remedies[i].text);
        put_found(arena, &view->remedies[i].found, row);
    }
}

static void put_rival(const struct mcp_plan_view *view, const struct mcp_rival *rival,
                      struct mcp_json *object)
{
    mcp_json_set_string(object, "path", rival->name);
    mcp_plan_to_json(&rival->plan, object);
    put_refusals(&rival->refusals, mcp_json_set_array(object, "refusals"));
    if (!rival->priced)
        return;
    mcp_prediction_to_json(&rival->prediction, mcp_json_set_object(object, "predicted"));
    if (view->priced)
        put_difference(view->prediction, &rival->prediction,
                       mcp_json_set_object(object, "difference"));
}

static void put_what_ifs(struct mcp_arena *arena, const struct mcp_what_if *what_ifs,
                         struct mcp_json *list)
{
    for (int i = 0; i < MCP_NUM_WHAT_IFS; i++) {
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_string(row, "what_if", mcp_what_if_names[i]);
        mcp_json_set_bool(row, "possible", what_ifs[i].possible);
        mcp_json_set_bool(row, "fits", what_ifs[i].fits);
        if (!what_ifs[i].fits)
            continue;
        mcp_json_set_double(row, "tokens_per_s", what_ifs[i].tokens_per_s);
        mcp_json_set_double(row, "speed_up", what_ifs[i].speed_up);
        put_found(arena, &what_ifs[i].found, mcp_json_set_object(row, "plan"));
    }
}

static void put_memory_steps(const struct mcp_memory_step *steps, struct mcp_json *list)
{
    for (int i = 0; i < MCP_NUM_MEMORY_STEPS; i++) {
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_string(row, "step", steps[i].name);
        mcp_json_set_string(row, "refused", steps[i].refused);
        if (!steps[i].refused)
            mcp_prediction_to_json(&steps[i].prediction, mcp_json_set_object(row, "predicted"));
    }
}

/* --refine: the fastest played first. */
static void put_refined(struct mcp_arena *arena, const struct mcp_plan_view *view,
                        struct mcp_json *object)
{
    mcp_json_set_bool(object, "changed_winner", mcp_plan_refine_changed(view));
    struct mcp_json *list = mcp_json_set_array(object, "plans");
    for (int i = 0; i < view->num_refined; i++) {
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_int(row, "priced_place", view->refined[i].priced_place);
        mcp_json_set_double(row, "played_iteration_s", view->refined[i].played_s);
        mcp_json_set_string(row, "not_played", view->refined[i].why_not);
        put_found(arena, &view->refined[i].found, row);
    }
}

static void put_explanations(struct mcp_arena *arena, const struct mcp_plan_view *view,
                             struct mcp_json *json)
{
    if (view->num_refined > 0)
        put_refined(arena, view, mcp_json_set_object(json, "refined"));
    if (view->num_rivals > 0) {
        struct mcp_json *list = mcp_json_set_array(json, "against");
        for (int i = 0; i < view->num_rivals; i++)
            put_rival(view, &view->rivals[i], mcp_json_add_object(list));
    }
    if (view->what_ifs)
        put_what_ifs(arena, view->what_ifs, mcp_json_set_array(json, "sensitivity"));
    if (view->memory_steps)
        put_memory_steps(view->memory_steps, mcp_json_set_array(json, "memory_waterfall"));
    if (view->savings)
        mcp_savings_to_json(view->savings, mcp_json_set_array(json, "savings"));
    if (view->phases) {
        struct mcp_json *phases = mcp_json_set_object(json, "phases");
        mcp_json_set_double(phases, "warm_s", view->phases->warm_s);
        mcp_json_set_double(phases, "frozen_s", view->phases->frozen_s);
        mcp_json_set_double(phases, "warm_frac", view->phases->warm_frac);
        mcp_json_set_double(phases, "average_s", view->phases->average_s);
    }
}

static void put_predicted(const struct mcp_plan_view *view, struct mcp_json *object)
{
    const struct mcp_question *question = view->question;
    mcp_prediction_to_json(view->prediction, object);
    if (mcp_casts_operands(question))
        mcp_json_set_double(object, "cast_flops_frac", mcp_cast_flops_frac(question, &view->plan));
}

struct mcp_json *mcp_plan_view_json(struct mcp_arena *arena, const struct mcp_plan_view *view)
{
    const struct mcp_question *question = view->question;
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_json_set_string(json, "schema", "mcpplan.plan/1");
    mcp_model_to_json(question->model, mcp_json_set_object(json, "model"));
    mcp_cluster_to_json(question->cluster, mcp_json_set_object(json, "cluster"));
    mcp_job_to_json(question->job, mcp_json_set_object(json, "job"));
    mcp_stack_to_json(question->stack, mcp_json_set_object(json, "stack"));
    if (view->has_plan)
        mcp_plan_to_json(&view->plan, json);
    if (view->priced)
        put_predicted(view, mcp_json_set_object(json, "predicted"));
    else
        mcp_json_set_null(json, "predicted");
    put_refusals(&view->refusals, mcp_json_set_array(json, "refusals"));
    put_search(arena, view, mcp_json_set_object(json, "search"));
    put_explanations(arena, view, json);
    return json;
}
