/* cli/capacity_json.c: the answer of mcpplan capacity for machines. */
#include "cli/capacity_view.h"

#include <math.h>

/* NaN and infinity are null. */
static void set(struct mcp_json *object, const char *key, double value)
{
    mcp_json_set_double(object, key, isinf(value) ? (double)NAN : value);
}

void mcp_capacity_run_json(struct mcp_json *object, const struct mcp_capacity_ask *ask)
{
    struct mcp_json *failures = mcp_json_set_object(object, "failures");
    mcp_json_set_string(failures, "name", ask->failures.name);
    set(failures, "per_1000_node_days", ask->failures.rate);
    set(failures, "low", ask->failures.low);
    set(failures, "high", ask->failures.high);
    mcp_json_set_string(failures, "source", ask->failures.source);
    set(object, "recovery_s", ask->recovery_s);
    set(object, "repair_s", ask->repair_s);
    set(object, "spare_quantile", ask->spare_quantile);
    mcp_json_set_int(object, "checkpoint_keep", ask->checkpoint_keep);
    set(object, "site_power_factor", ask->site_power_factor);
    set(object, "batch_slack_frac", ask->batch_slack_frac);
}

static void set_ask(struct mcp_json *json, const struct mcp_capacity_ask *ask)
{
    struct mcp_json *object = mcp_json_set_object(json, "asked");
    mcp_json_set_int(object, "tokens", ask->tokens);
    set(object, "deadline_s", ask->deadline_s);
    set(object, "budget", ask->budget);
    set(object, "power_watts", ask->power_watts);
    mcp_capacity_run_json(object, ask);
    set(object, "knee_frac", ask->knee_frac);
}

static void set_plan(struct mcp_json *object, const struct mcp_capacity_row *row)
{
    const struct mcp_plan *plan = &row->plan;
    struct mcp_json *parallel = mcp_json_set_object(object, "parallel");
    mcp_json_set_int(parallel, "tensor_parallel", plan->tensor_parallel);
    mcp_json_set_int(parallel, "context_parallel", plan->context_parallel);
    mcp_json_set_int(parallel, "pipeline_parallel", plan->pipeline_parallel);
    mcp_json_set_int(parallel, "data_parallel", plan->data_parallel);
    mcp_json_set_int(parallel, "expert_parallel", plan->expert_parallel);
    mcp_json_set_int(parallel, "virtual_stages", plan->virtual_stages);
    mcp_json_set_int(parallel, "zero_stage", plan->zero_stage);
    mcp_json_set_int(object, "global_batch_size", row->global_batch_size);
    mcp_json_set_int(object, "microbatch_size", plan->microbatch_size);
    mcp_json_set_string(object, "schedule", mcp_schedule_names[plan->schedule]);
    mcp_json_set_bool(object, "proven_optimal", row->proven);
    set(object, "iteration_s", row->iteration_s);
    set(object, "tokens_per_s", row->tokens_per_s);
    set(object, "model_flops_utilization", row->model_flops_utilization);
    set(object, "uncertainty_frac", row->uncertainty_frac);
    mcp_json_set_int(object, "peak_memory_bytes", row->peak_memory_bytes);
}

static void set_failures(struct mcp_json *object, const struct mcp_capacity_row *row)
{
    const struct mcp_leaks leaks = mcp_restart_leaks(&row->restart);
    set(object, "mttf_s", row->restart.mttf_s);
    set(object, "checkpoint_interval_s", row->restart.interval_s);
    set(object, "checkpoint_stall_s", row->restart.stall_s);
    set(object, "checkpoint_bytes", row->checkpoint_bytes);
    set(object, "checkpoint_bytes_per_s", row->checkpoint_bytes_per_s);
    set(object, "storage_bytes", row->storage_bytes);
    set(object, "ettr", row->ettr);
    set(object, "ettr_short_form", row->ettr_short);
    set(object, "goodput", row->model_flops_utilization * row->ettr);
    set(object, "stall_frac", leaks.stall_frac);
    set(object, "redo_frac", leaks.redo_frac);
    set(object, "recovery_frac", leaks.recovery_frac);
    mcp_json_set_int(object, "spare_nodes", row->spares);
}

void mcp_capacity_row_json(struct mcp_json *object, const struct mcp_capacity_row *row)
{
    set_plan(object, row);
    set_failures(object, row);
}

static void set_result(struct mcp_json *object, const struct mcp_capacity_row *row)
{
    mcp_json_set_int(object, "steps", row->steps);
    set(object, "busy_s", row->busy_s);
    set(object, "time_s", row->time_s);
    set(object, "time_low_s", row->low_s);
    set(object, "time_high_s", row->high_s);
    set(object, "device_watts", row->device_watts);
    set(object, "site_watts", row->site_watts);
    set(object, "energy_joules", row->energy_joules);
    set(object, "price", row->price);
    struct mcp_json *breaks = mcp_json_set_array(object, "over");
    for (int i = 0; i < MCP_NUM_LIMITS; i++)
        if (row->breaks[i])
            mcp_json_add_string(breaks, mcp_limit_names[i]);
    set(object, "step_pays_frac", row->next_frac);
    mcp_json_set_bool(object, "knee", row->knee);
    mcp_json_set_bool(object, "answer", row->answer);
}

/* {"tensor_parallel": ["8", "8"]}: from, to. */
static void set_pins(struct mcp_arena *arena, struct mcp_json *json,
                     const struct mcp_plan_space *space)
{
    struct mcp_json *object = mcp_json_set_object(json, "pinned");
    for (int i = 0; i < MCP_NUM_KNOBS; i++) {
        enum mcp_knob knob = (enum mcp_knob)i;
        if (!space->knobs[i].given)
            continue;
        struct mcp_json *ends = mcp_json_set_array(object, mcp_knob_names[i]);
        mcp_json_add_string(ends, mcp_knob_text(arena, knob, space->knobs[i].low));
        mcp_json_add_string(ends, mcp_knob_text(arena, knob, space->knobs[i].high));
    }
}

static void add_row(struct mcp_json *rows, const struct mcp_capacity_view *view,
                    const struct mcp_capacity_row *row)
{
    struct mcp_json *object = mcp_json_add_object(rows);
    mcp_json_set_string(object, "cluster", view->machines[row->machine].name);
    mcp_json_set_int(object, "gpus", row->gpus);
    mcp_json_set_string(object, "reason", row->reason);
    if (row->reason != NULL)
        return;
    mcp_json_set_int(object, "nodes", row->nodes);
    mcp_capacity_row_json(object, row);
    set_result(object, row);
}

struct mcp_json *mcp_capacity_json(struct mcp_arena *arena, const struct mcp_capacity_view *view)
{
    static const char *const orders[MCP_NUM_CAPACITY_ORDERS] = {"price", "energy", "gpus", "time"};
    const struct mcp_capacity *capacity = view->capacity;
    const struct mcp_question *question = &view->machines[0].question;
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_json_set_string(json, "schema", "mcpplan.capacity/1");
    mcp_json_set_string(json, "model", question->model->name);
    mcp_job_to_json(question->job, mcp_json_set_object(json, "job"));
    mcp_json_set_string(json, "stack", question->stack->name);
    set_ask(json, view->ask);
    set_pins(arena, json, view->space);
    mcp_json_set_string(json, "ordered_by", orders[capacity->order]);
    mcp_json_set_bool(json, "interrupted", capacity->interrupted);
    if (capacity->best < 0)
        mcp_json_set_null(json, "best");
    else
        mcp_json_set_int(json, "best", capacity->best);
    struct mcp_json *rows = mcp_json_set_array(json, "rows");
    for (int i = 0; i < capacity->num_rows; i++)
        add_row(rows, view, &capacity->rows[i]);
    return json;
}
