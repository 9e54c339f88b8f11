/* exec/run_logs.c: a step's numbers to files, and alarms to the user. */
#include "exec/run_logs.h"

#include "exec/names.h"

#include <stdio.h>

enum { MAX_ALARMS = 64 };

static int64_t layer_parameters(const struct mcp_program *program,
                                const struct mcp_layer_type *type)
{
    int64_t total = 0;
    for (int part = 0; part < type->num_weights; part++)
        if (!type->weights[part].duplicate)
            total += mcp_part_parameters(&program->plan, type, part);
    return total;
}

int64_t mcp_program_parameters(const struct mcp_program *program)
{
    int64_t total = 0;
    for (int layer = 0; layer < program->num_layers; layer++) {
        const struct mcp_layer_type *type = mcp_program_layer_type(program, layer);
        total += type != NULL ? layer_parameters(program, type) : 0;
    }
    return total;
}

enum mcp_status mcp_run_logs_open(struct mcp_arena *arena, const struct mcp_run_setting *setting,
                                  int64_t first_step, struct mcp_run_logs *out,
                                  struct mcp_error *err)
{
    const struct mcp_run_options *options = setting->options;
    const struct mcp_run_observer *observer = &setting->observer;
    const struct mcp_monitor_limits limits = mcp_monitor_limits_default();
    out->monitor = mcp_monitor_new(arena, &limits);
    out->parameters = mcp_program_parameters(setting->program);
    if (options->metrics != NULL)
        MCP_TRY(mcp_run_log_open(arena, options->metrics, first_step, &out->log, err));
    if (options->tensorboard_dir == NULL)
        return MCP_OK;
    return mcp_events_open(arena, options->tensorboard_dir, observer->wall_s(observer->context),
                           &out->events, err);
}

static struct mcp_step_metrics metrics_of(const struct mcp_run_logs *logs,
                                          const struct mcp_run_setting *setting,
                                          const struct mcp_step_report *report)
{
    struct mcp_step_metrics metrics = mcp_step_metrics_unknown(report->step);
    metrics.tokens = report->tokens;
    metrics.loss = report->loss;
    metrics.grad_norm = report->grad_norm;
    metrics.learning_rate = report->learning_rate;
    metrics.loss_scale = report->loss_scale;
    metrics.step_s = report->step_s + report->data_wait_s;
    metrics.data_wait_s = report->data_wait_s;
    metrics.bubble_frac = report->bubble_frac;
    metrics.exposed_comm_frac = report->exposed_comm_frac;
    metrics.peak_memory_bytes = logs->peak_memory_bytes;
    metrics.parameters = logs->parameters;
    metrics.skipped = report->skipped;
    metrics.evaluated = report->evaluated;
    if (report->evaluated)
        metrics.eval_loss = report->eval_loss;
    metrics.warming_up = report->step < setting->options->warmup_steps;
    if (setting->options->flops_per_token > 0)
        metrics.flops_per_token = setting->options->flops_per_token;
    if (setting->options->peak_flops_per_s > 0)
        metrics.peak_flops_per_s = setting->options->peak_flops_per_s;
    if (logs->watch != NULL)
        mcp_watch_fill(logs->watch, &metrics);
    return metrics;
}

/* The user hears of one group or layer for each kind of alarm; files have all. */
static void tell(const struct mcp_run_observer *observer, const struct mcp_alarm *alarms, int count)
{
    int told[MCP_NUM_ALARM_KINDS] = {0};
    char text[sizeof alarms->text + 40];
    for (int i = 0; i < count; i++)
        told[alarms[i].kind]++;
    for (int i = 0; i < count; i++) {
        const int others = told[alarms[i].kind] - 1;
        if (others < 0)
            continue;
        if (others > 0)
            snprintf(text, sizeof text, "%s (and so for %d more)", alarms[i].text, others);
        observer->note(observer->context, others > 0 ? text : alarms[i].text);
        told[alarms[i].kind] = 0;
    }
}

enum mcp_status mcp_run_logs_step(struct mcp_run_logs *logs, const struct mcp_run_setting *setting,
                                  const struct mcp_step_report *report, struct mcp_error *err)
{
    const struct mcp_run_observer *observer = &setting->observer;
    const struct mcp_step_metrics metrics = metrics_of(logs, setting, report);
    struct mcp_alarm alarms[MAX_ALARMS];
    int count = mcp_monitor_step(logs->monitor, &metrics, alarms, MAX_ALARMS);
    tell(observer, alarms, count);
    if (logs->log != NULL)
        MCP_TRY(mcp_run_log_step(logs->log, &metrics, alarms, count, err));
    if (logs->events == NULL)
        return MCP_OK;
    mcp_run_scalars(logs->events, &metrics);
    if (logs->watch != NULL)
        mcp_watch_histograms(logs->watch, logs->events);
    return mcp_events_flush(logs->events, observer->wall_s(observer->context), report->step, err);
}
