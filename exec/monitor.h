/* exec/monitor.h: is training healthy? Numbers of a step in, alarms in plain words out.
 *
 * The thresholds are those of the founding article's chapters on watching a run, but
 * for the largest update; each alarm names the number, the limit and the article's
 * remedy. Pure but for what it remembers of earlier steps: no clock, no files, no
 * ranks. Loss and gradient norm of a step are known; other numbers may be NaN, for
 * unknown, and raise nothing. */
#ifndef MCP_EXEC_MONITOR_H
#define MCP_EXEC_MONITOR_H

#include "core/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* Parameters watched together, such as one part of one layer. */
struct mcp_group_metrics {
    const char *name;
    double grad_norm;   /* before clipping */
    double weight_norm; /* ||p|| */
    double update_norm; /* ||dp|| of this step */
};

/* The residual stream that leaves a layer. */
struct mcp_activation_metrics {
    int layer;
    double mean, variance;
};

struct mcp_step_metrics {
    int64_t step;
    int64_t tokens; /* of the step, all ranks */
    double loss, grad_norm, learning_rate, loss_scale;
    double step_s, data_wait_s; /* data_wait_s is within step_s */
    int64_t peak_memory_bytes;  /* of the fullest rank, as planned */
    int64_t parameters;         /* of the model; 0: unknown */
    double flops_per_token;     /* of the model, training (DESIGN: MFU); NaN: unknown */
    double peak_flops_per_s;    /* of all ranks together */
    double bubble_frac, exposed_comm_frac;
    double eval_loss; /* NaN unless evaluated after this step */
    bool evaluated;
    bool skipped;    /* no weight moved: a gradient was not finite */
    bool warming_up; /* the learning rate is still rising */
    int num_groups;
    const struct mcp_group_metrics *groups;
    int num_activations;
    const struct mcp_activation_metrics *activations;
};
/* All NaN or 0. */
struct mcp_step_metrics mcp_step_metrics_unknown(int64_t step);

double mcp_tokens_per_s(const struct mcp_step_metrics *metrics);
/* Model FLOPs over what all ranks could do in the step. */
double mcp_model_flops_utilization(const struct mcp_step_metrics *metrics);
/* ||g|| over millions of parameters; the article calls 1 to 5 healthy. */
double mcp_grad_norm_per_million(double grad_norm, int64_t parameters);
/* ||dp|| / ||p||. The article calls 1e-6 to 1e-4 healthy, which new weights exceed: Adam
 * moves an element by about the learning rate whatever its gradient (Kingma and Ba 2015,
 * section 2.1), so they begin at the rate over their standard deviation, 2.5e-3 at the
 * article's own 5e-5 and GPT-2's 0.02, 0.03 at the 6e-4 of GPT-3 Small (Brown et al.
 * 2020, table 2.1). */
double mcp_update_ratio(const struct mcp_group_metrics *group);

struct mcp_monitor_limits {
    double loss_jump;       /* from the mean of the last steps, either way */
    double group_grad_norm; /* of one group */
    /* Of the update ratio, once warmed up. The most is above what published recipes begin with,
     * so that it tells of a rate that is wrong and not of weights that are new. */
    double least_update, most_update;
    double mean_drift;      /* of an activation's mean, in its first standard deviations */
    double variance_growth; /* of an activation's variance, over its first ones */
    double data_wait_frac;  /* of the time of the last steps */
    int quiet_steps;        /* before the same alarm of the same subject comes again */
};
/* 0.5; 10; 1e-6, 0.1; 3; 10; 0.25; 100. */
struct mcp_monitor_limits mcp_monitor_limits_default(void);

enum mcp_alarm_kind {
    MCP_ALARM_NOT_FINITE,
    MCP_ALARM_LOSS_SPIKE,
    MCP_ALARM_GRAD_NORM,
    MCP_ALARM_UPDATE_SMALL,
    MCP_ALARM_UPDATE_LARGE,
    MCP_ALARM_MEAN_DRIFT,
    MCP_ALARM_VARIANCE,
    MCP_ALARM_DATA_WAIT,
    MCP_NUM_ALARM_KINDS
};
extern const char *const mcp_alarm_names[MCP_NUM_ALARM_KINDS]; /* "not_finite" ... */

struct mcp_alarm {
    enum mcp_alarm_kind kind;
    char text[400]; /* a sentence without capital or full stop */
};

/* Remembers the last losses and waits, and what activations began with. */
struct mcp_monitor;
struct mcp_monitor *mcp_monitor_new(struct mcp_arena *arena,
                                    const struct mcp_monitor_limits *limits);
/* After each step, in order. At most `room` alarms; returns how many. */
int mcp_monitor_step(struct mcp_monitor *monitor, const struct mcp_step_metrics *metrics,
                     struct mcp_alarm *alarms, int room);

#endif
