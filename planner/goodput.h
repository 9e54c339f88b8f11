/* planner/goodput.h: what failures leave of a cluster's time.
 *
 * A job of mean time to failure M saves every tau seconds of work, which stalls it C
 * seconds, and needs R seconds from a failure to working again: to notice it, to find
 * another node, to load and warm up. Failures are independent and memoryless; common
 * causes and slow machines are not in it.
 *
 *   interval   Daly 2006: tau = sqrt(2CM) (1 + sqrt(C/2M)/3 + C/18M) - C; M if C >= 2M
 *   share      renewal, failures may strike during recovery too (Daly's model):
 *              tau / (M e^(R/M) (e^((tau+C)/M) - 1))
 *   short form of it, good while (R + tau/2)/M << 1 (arXiv 2410.21680):
 *              (1 - (R + tau/2)/M) / (1 + C/tau)
 *   spares     nodes in repair ~ Poisson(failures per second x repair time)
 *
 * The share is ETTR, the effective training time ratio; goodput = MFU x ETTR. */
#ifndef MCP_PLANNER_GOODPUT_H
#define MCP_PLANNER_GOODPUT_H

#include "core/arena.h"
#include "core/error.h"

/* Failures that stop a job, per 1,000 node-days; a node is 8 GPUs, and larger ones
 * count as that many eights. */
struct mcp_failures {
    const char *name;
    double low, rate, high; /* the rate to plan with, and the interval it is taken from */
    const char *source;
};

enum { MCP_NUM_FAILURES = 5, MCP_FAILURE_NODE_GPUS = 8 };
extern const struct mcp_failures mcp_failure_populations[MCP_NUM_FAILURES];

/* A population's name, a rate "6.5" or an interval "4..7", planned with its upper
 * end. MCP_USAGE when it is neither; at most 1,000. */
enum mcp_status mcp_failures_parse(struct mcp_arena *arena, const char *text,
                                   struct mcp_failures *out, struct mcp_error *err);

/* INFINITY where nothing fails. */
double mcp_mttf_s(double gpus, double failures_per_1000_node_days);

/* INFINITY where nothing fails: never save for failures' sake. A save that costs
 * nothing is made all the time: 0. */
double mcp_daly_interval_s(double stall_s, double mttf_s);

struct mcp_restart {
    double mttf_s;     /* M */
    double interval_s; /* tau */
    double stall_s;    /* C */
    double recovery_s; /* R */
};
double mcp_ettr(const struct mcp_restart *restart);       /* renewal */
double mcp_ettr_short(const struct mcp_restart *restart); /* for comparison; may be negative */

/* The three leaks, as shares of the time: they explain the loss, and add up to it
 * only while they are small. */
struct mcp_leaks {
    double stall_frac;    /* C / tau */
    double redo_frac;     /* tau / 2M */
    double recovery_frac; /* R / M */
};
struct mcp_leaks mcp_restart_leaks(const struct mcp_restart *restart);

/* The fewest nodes that are enough with probability `quantile` < 1 when `mean` are in
 * repair on average. */
int mcp_spares(double mean, double quantile);

/* Days of work: flops / (gpus x peak x MFU x ETTR). */
double mcp_training_days(double flops, double gpus, double peak_flops_per_s,
                         double model_flops_utilization, double ettr);

#endif
