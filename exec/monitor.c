/* exec/monitor.c: alarms over the numbers of a run. */
#include "exec/monitor.h"

#include "core/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum { REMEMBERED = 8, FIRST_ACTIVATIONS = 8, LEAST_LOSSES = 4 };

const char *const mcp_alarm_names[MCP_NUM_ALARM_KINDS] = {
    "not_finite",   "loss_spike", "grad_norm", "update_small",
    "update_large", "mean_drift", "variance",  "data_wait"};

/* What the article advises. */
static const char *const remedies[MCP_NUM_ALARM_KINDS] = {
    [MCP_ALARM_NOT_FINITE] = "go back to the last checkpoint with a lower learning rate or past "
                             "these sequences; in fp16 lower the loss scale",
    [MCP_ALARM_LOSS_SPIKE] = "clip gradients at a norm of 2.0 and warm up longer (5000 steps to "
                             "5e-5); if it stays, go back to the last checkpoint and pass over "
                             "these sequences",
    [MCP_ALARM_GRAD_NORM] = "clip gradients at a norm of 2.0; begin residual projections at 0.1 of "
                            "their scale; keep embeddings in fp32 for the first 1000 steps",
    [MCP_ALARM_UPDATE_SMALL] = "the learning rate is too low for it, or it gets no gradient",
    [MCP_ALARM_UPDATE_LARGE] = "lower the learning rate or warm up longer (5000 steps to 5e-5)",
    [MCP_ALARM_MEAN_DRIFT] = "lower the learning rate, and look at the norms before this layer",
    [MCP_ALARM_VARIANCE] = "begin residual projections at 0.1 of their scale, clip gradients at a "
                           "norm of 2.0",
    [MCP_ALARM_DATA_WAIT] = "tokenize beforehand, keep token files on a local disk, and give "
                            "reading a core of its own",
};

/* The last few numbers; `next` is the oldest once all are filled. */
struct ring {
    double values[REMEMBERED];
    int count, next;
};

struct baseline { /* of one layer's activations */
    int layer, count;
    double mean, variance; /* sums while count < FIRST_ACTIVATIONS, then means */
};

struct raised { /* when an alarm came last */
    enum mcp_alarm_kind kind;
    const char *subject;
    int64_t step;
};

struct mcp_monitor {
    struct mcp_arena *arena;
    struct mcp_monitor_limits limits;
    struct ring losses, waits, times;
    struct baseline *baselines;
    size_t num_baselines, baseline_capacity;
    struct raised *raised;
    size_t num_raised, raised_capacity;
    /* Of the step being looked at: */
    int64_t step;
    struct mcp_alarm *alarms;
    int room, num_alarms;
};

/* --- numbers --- */

struct mcp_step_metrics mcp_step_metrics_unknown(int64_t step)
{
    const double unknown = (double)NAN;
    return (struct mcp_step_metrics){.step = step,
                                     .loss = unknown,
                                     .grad_norm = unknown,
                                     .learning_rate = unknown,
                                     .loss_scale = unknown,
                                     .step_s = unknown,
                                     .data_wait_s = unknown,
                                     .flops_per_token = unknown,
                                     .peak_flops_per_s = unknown,
                                     .bubble_frac = unknown,
                                     .exposed_comm_frac = unknown,
                                     .eval_loss = unknown};
}

double mcp_tokens_per_s(const struct mcp_step_metrics *metrics)
{
    return (double)metrics->tokens / metrics->step_s;
}

double mcp_model_flops_utilization(const struct mcp_step_metrics *metrics)
{
    return metrics->flops_per_token * mcp_tokens_per_s(metrics) / metrics->peak_flops_per_s;
}

double mcp_grad_norm_per_million(double grad_norm, int64_t parameters)
{
    return parameters > 0 ? grad_norm / ((double)parameters * 1e-6) : (double)NAN;
}

double mcp_update_ratio(const struct mcp_group_metrics *group)
{
    return group->weight_norm > 0 ? group->update_norm / group->weight_norm : (double)NAN;
}

struct mcp_monitor_limits mcp_monitor_limits_default(void)
{
    return (struct mcp_monitor_limits){.loss_jump = 0.5,
                                       .group_grad_norm = 10,
                                       .least_update = 1e-6,
                                       .most_update = 0.1,
                                       .mean_drift = 3,
                                       .variance_growth = 10,
                                       .data_wait_frac = 0.25,
                                       .quiet_steps = 100};
}

static void remember(struct ring *ring, double value)
{
    ring->values[ring->next] = value;
    ring->next = (ring->next + 1) % REMEMBERED;
    ring->count += ring->count < REMEMBERED;
}

static double sum_of(const struct ring *ring)
{
    double sum = 0;
    for (int i = 0; i < ring->count; i++)
        sum += ring->values[i];
    return sum;
}

/* --- alarms --- */

/* True once per quiet_steps for the same subject. */
static bool may_raise(struct mcp_monitor *m, enum mcp_alarm_kind kind, const char *subject)
{
    for (size_t i = 0; i < m->num_raised; i++) {
        struct raised *r = &m->raised[i];
        if (r->kind != kind || !mcp_same(r->subject, subject))
            continue;
        if (m->step - r->step < m->limits.quiet_steps)
            return false;
        r->step = m->step;
        return true;
    }
    m->raised =
        mcp_grow(m->arena, m->raised, m->num_raised, &m->raised_capacity, sizeof *m->raised);
    m->raised[m->num_raised++] = (struct raised){kind, mcp_strdup(m->arena, subject), m->step};
    return true;
}

__attribute__((format(printf, 4, 5))) static void raise_alarm(struct mcp_monitor *m,
                                                              enum mcp_alarm_kind kind,
                                                              const char *subject,
                                                              const char *format, ...)
{
    char said[200];
    va_list args;
    if (m->num_alarms == m->room || !may_raise(m, kind, subject))
        return;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    struct mcp_alarm *alarm = &m->alarms[m->num_alarms++];
    alarm->kind = kind;
    snprintf(alarm->text, sizeof alarm->text, "%s: %s", said, remedies[kind]);
}

/* A jump is one against losses that had settled: early in training they fall fast. */
static void look_at_loss(struct mcp_monitor *m, const struct mcp_step_metrics *now)
{
    const struct ring *losses = &m->losses;
    const double mean = sum_of(losses) / losses->count, jump = now->loss - mean;
    bool is_settled = losses->count >= LEAST_LOSSES;
    for (int i = 0; i < losses->count; i++)
        is_settled = is_settled && fabs(losses->values[i] - mean) < m->limits.loss_jump;
    if (is_settled && fabs(jump) >= m->limits.loss_jump)
        raise_alarm(m, MCP_ALARM_LOSS_SPIKE, "",
                    "the loss of step %lld is %.4g, %.2g %s the last %d steps", (long long)m->step,
                    now->loss, fabs(jump), jump > 0 ? "above" : "below", losses->count);
}

static void look_at_finite(struct mcp_monitor *m, const struct mcp_step_metrics *now)
{
    if (!isfinite(now->loss) || !isfinite(now->grad_norm) || now->skipped)
        raise_alarm(m, MCP_ALARM_NOT_FINITE, "",
                    "step %lld has a loss of %.4g and a gradient norm of %.4g%s",
                    (long long)m->step, now->loss, now->grad_norm,
                    now->skipped ? "; no weight moved" : "");
}

static void look_at_group(struct mcp_monitor *m, const struct mcp_step_metrics *now,
                          const struct mcp_group_metrics *group)
{
    const double ratio = mcp_update_ratio(group);
    if (group->grad_norm > m->limits.group_grad_norm)
        raise_alarm(m, MCP_ALARM_GRAD_NORM, group->name,
                    "the gradient norm of %s is %.3g at step %lld, more than %g", group->name,
                    group->grad_norm, (long long)m->step, m->limits.group_grad_norm);
    if (now->warming_up || now->skipped)
        return;
    if (ratio < m->limits.least_update)
        raise_alarm(m, MCP_ALARM_UPDATE_SMALL, group->name,
                    "step %lld moves %s by %.2g of its norm, less than %g", (long long)m->step,
                    group->name, ratio, m->limits.least_update);
    if (ratio > m->limits.most_update)
        raise_alarm(m, MCP_ALARM_UPDATE_LARGE, group->name,
                    "step %lld moves %s by %.2g of its norm, more than %g", (long long)m->step,
                    group->name, ratio, m->limits.most_update);
}

static struct baseline *baseline_of(struct mcp_monitor *m, int layer)
{
    for (size_t i = 0; i < m->num_baselines; i++)
        if (m->baselines[i].layer == layer)
            return &m->baselines[i];
    m->baselines = mcp_grow(m->arena, m->baselines, m->num_baselines, &m->baseline_capacity,
                            sizeof *m->baselines);
    m->baselines[m->num_baselines] = (struct baseline){.layer = layer};
    return &m->baselines[m->num_baselines++];
}

static void learn(struct baseline *base, const struct mcp_activation_metrics *a)
{
    base->mean += a->mean / FIRST_ACTIVATIONS;
    base->variance += a->variance / FIRST_ACTIVATIONS;
    base->count++;
}

static void look_at_activation(struct mcp_monitor *m, const struct mcp_activation_metrics *a)
{
    struct baseline *base = baseline_of(m, a->layer);
    char subject[24];
    snprintf(subject, sizeof subject, "layer %d", a->layer);
    if (base->count < FIRST_ACTIVATIONS) {
        if (isfinite(a->mean) && isfinite(a->variance))
            learn(base, a);
        return;
    }
    if (fabs(a->mean - base->mean) > m->limits.mean_drift * sqrt(base->variance))
        raise_alarm(m, MCP_ALARM_MEAN_DRIFT, subject,
                    "activations of %s have a mean of %.3g at step %lld, at first it was %.3g",
                    subject, a->mean, (long long)m->step, base->mean);
    if (a->variance > m->limits.variance_growth * base->variance)
        raise_alarm(m, MCP_ALARM_VARIANCE, subject,
                    "activations of %s have a variance of %.3g at step %lld, at first it was %.3g",
                    subject, a->variance, (long long)m->step, base->variance);
}

static void look_at_data(struct mcp_monitor *m, const struct mcp_step_metrics *now)
{
    if (!isfinite(now->data_wait_s) || !isfinite(now->step_s))
        return;
    remember(&m->waits, now->data_wait_s);
    remember(&m->times, now->step_s);
    const double frac = sum_of(&m->waits) / sum_of(&m->times);
    if (m->times.count == REMEMBERED && frac > m->limits.data_wait_frac)
        raise_alarm(m, MCP_ALARM_DATA_WAIT, "",
                    "%.0f %% of the last %d steps were waits for data, more than %.0f %%",
                    100 * frac, REMEMBERED, 100 * m->limits.data_wait_frac);
}

struct mcp_monitor *mcp_monitor_new(struct mcp_arena *arena,
                                    const struct mcp_monitor_limits *limits)
{
    struct mcp_monitor *monitor = MCP_NEW(arena, struct mcp_monitor);
    monitor->arena = arena;
    monitor->limits = *limits;
    return monitor;
}

int mcp_monitor_step(struct mcp_monitor *monitor, const struct mcp_step_metrics *metrics,
                     struct mcp_alarm *alarms, int room)
{
    monitor->step = metrics->step;
    monitor->alarms = alarms;
    monitor->room = room;
    monitor->num_alarms = 0;
    look_at_finite(monitor, metrics);
    if (isfinite(metrics->loss)) {
        look_at_loss(monitor, metrics);
        remember(&monitor->losses, metrics->loss);
    }
    for (int i = 0; i < metrics->num_groups; i++)
        look_at_group(monitor, metrics, &metrics->groups[i]);
    for (int i = 0; i < metrics->num_activations; i++)
        look_at_activation(monitor, &metrics->activations[i]);
    look_at_data(monitor, metrics);
    return monitor->num_alarms;
}
