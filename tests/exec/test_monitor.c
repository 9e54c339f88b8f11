/* tests/exec/test_monitor.c: what raises an alarm, and what does not. */
#include "core/text.h"
#include "exec/monitor.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

enum { STEPS = 40, CHANGE = 20 };

/* A run that is healthy until step CHANGE, then has these numbers. */
struct case_alarm {
    char name[40];
    double loss, grad_norm, wait_frac, group_norm, update_ratio, mean, variance;
    bool skipped, warming_up;
    int kind; /* enum mcp_alarm_kind; -1: none */
    char says[96];
};
ParameterizedTestParameters(monitor, alarms)
{
    static struct case_alarm cases[] = {
        {"healthy", 3, 1, 0.1, 2, 1e-5, 0, 1, false, false, -1, ""},
        {"loss up", 3.6, 1, 0.1, 2, 1e-5, 0, 1, false, false, MCP_ALARM_LOSS_SPIKE,
         "the loss of step 20 is 3.6, 0.6 above the last 8 steps: clip gradients at a norm of 2"},
        {"loss down", 2.4, 1, 0.1, 2, 1e-5, 0, 1, false, false, MCP_ALARM_LOSS_SPIKE, "0.6 below"},
        {"loss a little up", 3.4, 1, 0.1, 2, 1e-5, 0, 1, false, false, -1, ""},
        {"loss NaN", (double)NAN, 1, 0.1, 2, 1e-5, 0, 1, false, false, MCP_ALARM_NOT_FINITE,
         "go back to the last checkpoint"},
        {"gradient infinite", 3, (double)INFINITY, 0.1, 2, 1e-5, 0, 1, false, false,
         MCP_ALARM_NOT_FINITE, "gradient norm of inf"},
        {"a skipped step", 3, 1, 0.1, 2, 1e-5, 0, 1, true, false, MCP_ALARM_NOT_FINITE,
         "no weight moved"},
        {"steep group", 3, 1, 0.1, 11, 1e-5, 0, 1, false, false, MCP_ALARM_GRAD_NORM,
         "the gradient norm of qkv is 11 at step 20, more than 10: clip"},
        {"group at the limit", 3, 1, 0.1, 10, 1e-5, 0, 1, false, false, -1, ""},
        {"small updates", 3, 1, 0.1, 2, 1e-7, 0, 1, false, false, MCP_ALARM_UPDATE_SMALL,
         "moves qkv by 1e-07 of its norm, less than 1e-06"},
        {"large updates", 3, 1, 0.1, 2, 0.2, 0, 1, false, false, MCP_ALARM_UPDATE_LARGE,
         "moves qkv by 0.2 of its norm, more than 0.1: lower the learning rate"},
        {"new weights at the article's rate", 3, 1, 0.1, 2, 5e-5 / 0.02, 0, 1, false, false, -1,
         ""},
        {"new weights of GPT-3 Small", 3, 1, 0.1, 2, 6e-4 / 0.02, 0, 1, false, false, -1, ""},
        {"the largest of make demo", 3, 1, 0.1, 2, 0.0525, 0, 1, false, false, -1, ""},
        {"small updates while warming up", 3, 1, 0.1, 2, 1e-7, 0, 1, false, true, -1, ""},
        {"updates unknown", 3, 1, 0.1, 2, (double)NAN, 0, 1, false, false, -1, ""},
        {"a mean that drifts", 3, 1, 0.1, 2, 1e-5, -3.5, 1, false, false, MCP_ALARM_MEAN_DRIFT,
         "activations of layer 5 have a mean of -3.5 at step 20, at first it was 0"},
        {"a mean that does not", 3, 1, 0.1, 2, 1e-5, 2.5, 1, false, false, -1, ""},
        {"variance that explodes", 3, 1, 0.1, 2, 1e-5, 0, 11, false, false, MCP_ALARM_VARIANCE,
         "variance of 11 at step 20, at first it was 1: begin residual projections at 0.1"},
        {"variance that grows", 3, 1, 0.1, 2, 1e-5, 0, 9, false, false, -1, ""},
        {"waits for data", 3, 1, 0.6, 2, 1e-5, 0, 1, false, false, MCP_ALARM_DATA_WAIT,
         "of the last 8 steps were waits for data, more than 25 %"},
        {"waits a little", 3, 1, 0.24, 2, 1e-5, 0, 1, false, false, -1, ""},
        {"waits unknown", 3, 1, (double)NAN, 2, 1e-5, 0, 1, false, false, -1, ""},
    };
    return cr_make_param_array(struct case_alarm, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_alarm *c, monitor, alarms)
{
    static const struct case_alarm healthy = {"", 3, 1, 0.1, 2, 1e-5, 0, 1, false, false, -1, ""};
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_monitor_limits limits = mcp_monitor_limits_default();
    struct mcp_monitor *monitor = mcp_monitor_new(arena, &limits);
    int raised = 0;
    for (int step = 0; step < STEPS; step++) {
        const struct case_alarm *now = step < CHANGE ? &healthy : c;
        const struct mcp_group_metrics group = {"qkv", now->group_norm, 2, 2 * now->update_ratio};
        const struct mcp_activation_metrics activation = {5, now->mean, now->variance};
        struct mcp_step_metrics metrics = mcp_step_metrics_unknown(step);
        struct mcp_alarm alarms[4];
        metrics.loss = now->loss;
        metrics.grad_norm = now->grad_norm;
        metrics.step_s = 2;
        metrics.data_wait_s = 2 * now->wait_frac;
        metrics.skipped = now->skipped;
        metrics.warming_up = now->warming_up;
        metrics.groups = &group;
        metrics.activations = &activation;
        metrics.num_groups = metrics.num_activations = 1;
        const int count = mcp_monitor_step(monitor, &metrics, alarms, 4);
        for (int i = 0; i < count; i++, raised++) {
            cr_expect(eq(int, (int)alarms[i].kind, c->kind), "step %d: %s", step, alarms[i].text);
            cr_expect(ge(int, step, CHANGE));
            cr_expect(ne(ptr, strstr(alarms[i].text, c->says), NULL), "%s", alarms[i].text);
        }
    }
    cr_expect(eq(int, raised, c->kind >= 0 ? 1 : 0), "%s", c->name); /* then quiet */
    mcp_arena_free(arena);
}

/* A fast fall at the start is no spike, and an alarm comes again after its quiet time. */
Test(monitor, falls_and_repeats)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_monitor_limits limits = mcp_monitor_limits_default();
    struct mcp_monitor *monitor = mcp_monitor_new(arena, &limits);
    int raised = 0;
    for (int step = 0; step < 250; step++) {
        struct mcp_step_metrics metrics = mcp_step_metrics_unknown(step);
        struct mcp_alarm alarm;
        metrics.loss = 10.8 - fmin(step, 20) * 0.4;
        metrics.grad_norm = 1;
        metrics.skipped = step > 30;
        raised += mcp_monitor_step(monitor, &metrics, &alarm, 1);
        cr_expect(raised == 0 || alarm.kind == MCP_ALARM_NOT_FINITE || step <= 30);
        cr_expect(eq(int, raised,
                     step <= 30   ? 0
                     : step < 131 ? 1
                     : step < 231 ? 2
                                  : 3),
                  "%d", step);
    }
    mcp_arena_free(arena);
}

Test(monitor, no_room_for_alarms)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_monitor_limits limits = mcp_monitor_limits_default();
    struct mcp_monitor *monitor = mcp_monitor_new(arena, &limits);
    const struct mcp_step_metrics metrics = mcp_step_metrics_unknown(0);
    struct mcp_alarm alarm;
    cr_expect(eq(int, mcp_monitor_step(monitor, &metrics, NULL, 0), 0));
    cr_expect(eq(int, mcp_monitor_step(monitor, &metrics, &alarm, 1), 1));
    mcp_arena_free(arena);
}

Test(monitor, numbers)
{
    struct mcp_step_metrics metrics = mcp_step_metrics_unknown(0);
    const struct mcp_group_metrics group = {"x", 1, 2, 1e-4}, empty = {"y", 1, 0, 0};
    cr_expect(ieee_ulp_eq(dbl, mcp_grad_norm_per_million(250, 125000000), 2, 2));
    cr_expect(isnan(mcp_grad_norm_per_million(1, 0)) != 0);
    cr_expect(ieee_ulp_eq(dbl, mcp_update_ratio(&group), 5e-5, 2));
    cr_expect(isnan(mcp_update_ratio(&empty)) != 0);
    metrics.tokens = 1000;
    metrics.step_s = 0.5;
    metrics.flops_per_token = 6e6;
    cr_expect(ieee_ulp_eq(dbl, mcp_tokens_per_s(&metrics), 2000, 2));
    cr_expect(isnan(mcp_model_flops_utilization(&metrics)) != 0);
    metrics.peak_flops_per_s = 48e9;
    cr_expect(ieee_ulp_eq(dbl, mcp_model_flops_utilization(&metrics), 0.25, 2));
}
