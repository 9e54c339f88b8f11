/* planner/goodput.c: checkpoint interval, effective time, spares. */
#include "planner/goodput.h"

#include "core/text.h"

#include <math.h>
#include <string.h>

static const double day_s = 86400;
static const double most_rate = 1000;

const struct mcp_failures mcp_failure_populations[MCP_NUM_FAILURES] = {
    {"none", 0, 0, 0, "nothing fails"},
    {"dedicated", 3.79, 3.79, 4.21,
     "Llama 3 405B (arXiv 2407.21783): 419 unexpected of 466 interruptions of 16,384 H100 in 54 "
     "days; the upper end counts planned ones too"},
    {"shared", 2.34, 6.5, 6.5,
     "Meta's research clusters RSC-2 and RSC-1 (arXiv 2410.21680): healthy, shared fleets of 8,000 "
     "and 16,000 A100"},
    {"first-run", 4.7, 14.1, 14.1,
     "OPT-175B (arXiv 2205.01068): 35 manual and about 70 automatic restarts of 992 A100 in two "
     "months; the lower end counts manual ones alone"},
    {"all-causes", 21.0, 23.7, 23.7,
     "Meta's jobs of 8 and 1,024 GPUs (arXiv 2410.21680): mean times to failure of 47.7 days and "
     "7.9 hours, whatever the cause"},
};

static bool parse_rate(const char *text, double *out)
{
    return mcp_parse_double(text, out) && *out >= 0 && *out <= most_rate;
}

static enum mcp_status refuse(struct mcp_arena *arena, const char *text, struct mcp_error *err)
{
    const char *names[MCP_NUM_FAILURES];
    struct mcp_text list = mcp_text_new(arena);
    for (int i = 0; i < MCP_NUM_FAILURES; i++) {
        names[i] = mcp_failure_populations[i].name;
        mcp_text_add(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = mcp_nearest(text, names, MCP_NUM_FAILURES);
    if (near != NULL)
        return mcp_fail(err, MCP_USAGE, "'%s' is no population of failures; did you mean %s?",
                        mcp_printable(arena, text), near);
    return mcp_fail(err, MCP_USAGE,
                    "'%s' is neither a population of failures (%s) nor a rate per 1,000 node-days "
                    "from 0 to %.0f such as 6.5 or 4..7",
                    mcp_printable(arena, text), list.data, most_rate);
}

enum mcp_status mcp_failures_parse(struct mcp_arena *arena, const char *text,
                                   struct mcp_failures *out, struct mcp_error *err)
{
    const char *dots = strstr(text, "..");
    struct mcp_failures given = {.name = "given", .source = "as given"};
    for (int i = 0; i < MCP_NUM_FAILURES; i++) {
        if (mcp_same(text, mcp_failure_populations[i].name)) {
            *out = mcp_failure_populations[i];
            return MCP_OK;
        }
    }
    const char *low = dots != NULL ? mcp_strndup(arena, text, (size_t)(dots - text)) : text;
    if (!parse_rate(low, &given.low) || !parse_rate(dots != NULL ? dots + 2 : text, &given.high) ||
        given.low > given.high)
        return refuse(arena, text, err);
    given.rate = given.high;
    *out = given;
    return MCP_OK;
}

double mcp_mttf_s(double gpus, double failures_per_1000_node_days)
{
    double per_s = gpus / MCP_FAILURE_NODE_GPUS * failures_per_1000_node_days / 1000 / day_s;
    return per_s > 0 ? 1 / per_s : (double)INFINITY;
}

double mcp_daly_interval_s(double stall_s, double mttf_s)
{
    if (isinf(mttf_s))
        return mttf_s;
    if (stall_s >= 2 * mttf_s)
        return mttf_s;
    double ratio = stall_s / (2 * mttf_s);
    return sqrt(2 * stall_s * mttf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - stall_s;
}

double mcp_ettr(const struct mcp_restart *restart)
{
    double m = restart->mttf_s, tau = restart->interval_s;
    if (isinf(m))
        return isinf(tau) ? 1 : tau / (tau + restart->stall_s);
    /* free saves: the limit of tau -> 0 */
    double work = tau > 0 ? tau / m / expm1((tau + restart->stall_s) / m) : 1;
    return work * exp(-restart->recovery_s / m);
}

double mcp_ettr_short(const struct mcp_restart *restart)
{
    struct mcp_leaks leaks = mcp_restart_leaks(restart);
    return (1 - leaks.recovery_frac - leaks.redo_frac) / (1 + leaks.stall_frac);
}

struct mcp_leaks mcp_restart_leaks(const struct mcp_restart *restart)
{
    double tau = restart->interval_s, m = restart->mttf_s;
    bool fails = !isinf(m);
    return (struct mcp_leaks){
        .stall_frac = tau > 0 && !isinf(tau) ? restart->stall_s / tau : 0,
        .redo_frac = fails ? tau / (2 * m) : 0,
        .recovery_frac = fails ? restart->recovery_s / m : 0,
    };
}

/* Terms so far below the mean that they add nothing to a double are skipped. */
int mcp_spares(double mean, double quantile)
{
    double sum = 0, first = floor(mean - 40 * sqrt(mean));
    int k = first > 0 ? (int)first : 0;
    int last = (int)(mean + 40 * sqrt(mean) + 40);
    if (mean <= 0)
        return 0;
    for (; k < last; k++) {
        sum += exp(k * log(mean) - mean - lgamma(k + 1.0));
        if (sum >= quantile)
            break;
    }
    return k;
}

double mcp_training_days(double flops, double gpus, double peak_flops_per_s,
                         double model_flops_utilization, double ettr)
{
    return flops / (gpus * peak_flops_per_s * model_flops_utilization * ettr * day_s);
}
