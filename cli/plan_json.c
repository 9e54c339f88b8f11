/* cli/plan_json.c: plan.json: a plan with all that a run of it needs. */
#include "cli/plan_view.h"

#include "core/json.h"

static void put_refusals(const struct mcp_refusals *refusals, struct mcp_json *list)
{
    for (int i = 0; i < refusals->count; i++) {
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_string(row, "rule", refusals->items[i].rule);
        mcp_json_set_string(row, "text", refusals->items[i].text);
    }
}

static void put_found(const struct mcp_found *found, struct mcp_json *object)
{
    for (int knob = 0; knob < MCP_NUM_KNOBS; knob++) {
        int value = mcp_knob_value((enum mcp_knob)knob, &found->plan);
        if (knob == MCP_KNOB_SEQUENCE_PARALLEL)
            mcp_json_set_bool(object, mcp_knob_names[knob], value != 0);
        else if (knob == MCP_KNOB_CONTEXT_KIND)
            mcp_json_set_string(object, mcp_knob_names[knob], mcp_context_kind_names[value]);
        else if (knob == MCP_KNOB_SCHEDULE)
            mcp_json_set_string(object, mcp_knob_names[knob], mcp_schedule_names[value]);
        else if (knob == MCP_KNOB_RECOMPUTE)
            mcp_json_set_string(object, mcp_knob_names[knob], mcp_recompute_names[value]);
        else
            mcp_json_set_int(object, mcp_knob_names[knob], value);
    }
    mcp_json_set_double(object, "iteration_s", found->iteration_s);
    mcp_json_set_int(object, "peak_memory_bytes", found->peak_memory_bytes);
}

static void put_search(const struct mcp_plan_view *view, struct mcp_json *object)
{
    const struct mcp_search_record *record = &view->answer->record;
    mcp_json_set_string(object, "method", view->method);
    mcp_json_set_string(object, "objective", mcp_objective_names[view->objective]);
    mcp_json_set_string(object, "space", "uniform_stages");
    mcp_json_set_int(object, "candidates", record->candidates);
    struct mcp_json *refused = mcp_json_set_object(object, "refused");
    for (int i = 0; i < record->num_refused; i++)
        mcp_json_set_int(refused, record->refused[i].rule, record->refused[i].count);
    mcp_json_set_int(object, "bounded", record->bounded);
    mcp_json_set_int(object, "priced", record->priced);
    mcp_json_set_int(object, "fitting", record->fitting);
    mcp_json_set_int(object, "milps", record->milps);
    mcp_json_set_bool(object, "proven_optimal", record->proven_optimal);
    mcp_json_set_double(object, "gap_frac", record->gap_frac);
    struct mcp_json *others = mcp_json_set_array(object, "runners_up");
    for (int i = 1; i < view->answer->count; i++)
        put_found(&view->answer->found[i], mcp_json_add_object(others));
    struct mcp_json *changes = mcp_json_set_array(object, "changes");
    for (int i = 0; i < view->changes.count; i++) {
        struct mcp_json *row = mcp_json_add_object(changes);
        mcp_json_set_string(row, "text", view->changes.items[i].text);
        put_found(&view->changes.items[i].found, row);
    }
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
        mcp_prediction_to_json(view->prediction, mcp_json_set_object(json, "predicted"));
    else
        mcp_json_set_null(json, "predicted");
    put_refusals(&view->refusals, mcp_json_set_array(json, "refusals"));
    put_search(view, mcp_json_set_object(json, "search"));
    return json;
}
