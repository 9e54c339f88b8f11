/* planner/capacity.c: one size of one kind of machine: planned, and what follows. */
#include "planner/capacity.h"

#include "core/text.h"
#include "core/units.h"

#include <assert.h>
#include <math.h>

const char *const mcp_limit_names[MCP_NUM_LIMITS] = {"deadline", "budget", "power"};

/* Weights twice, once in fp32, and two fp32 moments; fp32 weights are their own. */
static const double checkpoint_bytes_per_parameter = 14, checkpoint_bytes_per_fp32 = 12;

struct mcp_capacity_ask mcp_capacity_ask_default(void)
{
    const double none = (double)NAN;
    return (struct mcp_capacity_ask){
        .deadline_s = none,
        .budget = none,
        .power_watts = none,
        .failures = mcp_failure_populations[1],
        .checkpoint_bytes_per_s = none,
        .stall_s = none,
        .checkpoint_keep = 2,
        .recovery_s = 600,
        .repair_s = 3 * 86400.0,
        .spare_quantile = 0.99,
        .site_power_factor = 2.0,
        .knee_frac = 0.5,
        .batch_slack_frac = 0.05,
    };
}

static int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* By what the nodes of a mix can be divided. */
static int nodes_divisor(const struct mcp_cluster *cluster)
{
    int divisor = 0;
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++)
        divisor = common_divisor(mcp_cluster_pool(cluster, i)->num_nodes, divisor);
    assert(divisor > 0);
    return divisor;
}

int mcp_capacity_unit(const struct mcp_cluster *cluster)
{
    if (cluster->next == NULL)
        return cluster->gpus_per_node;
    return mcp_cluster_gpus(cluster) / nodes_divisor(cluster);
}

static enum mcp_status size_mix(struct mcp_arena *arena, const struct mcp_cluster *cluster,
                                int gpus, struct mcp_cluster *out, struct mcp_error *err)
{
    int unit = mcp_capacity_unit(cluster), divisor = nodes_divisor(cluster);
    int count = mcp_cluster_num_pools(cluster), below = gpus / unit * unit;
    struct mcp_cluster *pools = MCP_ARRAY(arena, count, struct mcp_cluster);
    if (gpus % unit != 0 || gpus < unit)
        return mcp_fail(err, MCP_INVALID,
                        "%d GPUs are no multiple of %d, the least in the ratio of the mix; "
                        "nearest %s %d",
                        gpus, unit, below > 0 ? "is" : "are at least", below > 0 ? below : unit);
    for (int i = 0; i < count; i++) {
        pools[i] = *mcp_cluster_pool(cluster, i);
        int nodes = pools[i].num_nodes / divisor * (gpus / unit);
        pools[i].next = NULL; /* a pool is resized alone */
        MCP_TRY(mcp_cluster_resize(&pools[i], nodes, err));
        if (i > 0)
            pools[i - 1].next = &pools[i];
    }
    *out = pools[0];
    return MCP_OK;
}

enum mcp_status mcp_capacity_size(struct mcp_arena *arena, const struct mcp_cluster *cluster,
                                  int gpus, struct mcp_cluster *out, struct mcp_error *err)
{
    *out = *cluster;
    if (cluster->next != NULL)
        return size_mix(arena, cluster, gpus, out, err);
    return mcp_cluster_set_gpus(out, gpus, err);
}

static double checkpoint_bytes(const struct mcp_question *question)
{
    const struct mcp_parameters parameters = mcp_model_parameters(question->model);
    double count = (double)(mcp_parameters_total(&parameters) + parameters.mtp);
    bool fp32 = question->job->precision == MCP_PRECISION_FP32;
    return count * (fp32 ? checkpoint_bytes_per_fp32 : checkpoint_bytes_per_parameter);
}

static struct mcp_restart restart_at(const struct mcp_capacity_ask *ask, double rate, int gpus,
                                     double stall_s)
{
    double mttf_s = mcp_mttf_s(gpus, rate);
    return (struct mcp_restart){mttf_s, mcp_daly_interval_s(stall_s, mttf_s), stall_s,
                                ask->recovery_s};
}

static double ettr_at(const struct mcp_capacity_ask *ask, double rate, int gpus, double stall_s)
{
    struct mcp_restart restart = restart_at(ask, rate, gpus, stall_s);
    return mcp_ettr(&restart);
}

static void finish_failures(const struct mcp_capacity_ask *ask, const struct mcp_question *question,
                            struct mcp_capacity_row *row)
{
    double bytes = checkpoint_bytes(question);
    double bandwidth = isnan(ask->checkpoint_bytes_per_s)
                           ? MCP_CHECKPOINT_BYTES_PER_S_PER_GPU * row->gpus
                           : ask->checkpoint_bytes_per_s;
    double stall_s = isnan(ask->stall_s) ? bytes / bandwidth : ask->stall_s;
    row->restart = restart_at(ask, ask->failures.rate, row->gpus, stall_s);
    row->ettr = mcp_ettr(&row->restart);
    row->ettr_short = mcp_ettr_short(&row->restart);
    row->checkpoint_bytes = bytes;
    row->checkpoint_bytes_per_s = bandwidth;
    row->storage_bytes = bytes * ask->checkpoint_keep;
}

static void finish_time(const struct mcp_capacity_ask *ask, const struct mcp_question *question,
                        struct mcp_capacity_row *row)
{
    const struct mcp_failures *failures = &ask->failures;
    int64_t per_step = question->job->global_batch_size * question->job->sequence_length;
    double stall_s = row->restart.stall_s, u = row->uncertainty_frac;
    row->steps = (ask->tokens - 1) / per_step + 1;
    row->busy_s = (double)row->steps * row->iteration_s;
    row->time_s = row->busy_s / row->ettr;
    row->low_s = row->busy_s * (1 - u) / ettr_at(ask, failures->low, row->gpus, stall_s);
    row->high_s = row->busy_s * (1 + u) / ettr_at(ask, failures->high, row->gpus, stall_s);
}

/* Spares are of their pool's kind, and rented with it. */
static void finish_machines(const struct mcp_capacity_ask *ask, const struct mcp_cluster *cluster,
                            struct mcp_capacity_row *row)
{
    double price_per_hour = 0, watts = 0;
    row->nodes = row->spares = 0;
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++) {
        const struct mcp_cluster *pool = mcp_cluster_pool(cluster, i);
        double in_repair = ask->repair_s / mcp_mttf_s(mcp_pool_gpus(pool), ask->failures.rate);
        int spares = mcp_spares(in_repair, ask->spare_quantile);
        double rented = ((double)pool->num_nodes + spares) * pool->gpus_per_node;
        row->nodes += pool->num_nodes;
        row->spares += spares;
        price_per_hour += rented * pool->gpu.price_per_gpu_hour;
        watts += mcp_pool_gpus(pool) * pool->gpu.power_watts;
    }
    row->device_watts = watts;
    row->site_watts = watts * ask->site_power_factor;
    row->energy_joules = row->site_watts * row->time_s;
    row->price = price_per_hour * row->time_s / 3600;
}

/* Not: above the limit; NaN is not within it. */
static bool breaks(double value, double limit)
{
    return !isnan(limit) && !(value <= limit);
}

void mcp_capacity_finish(const struct mcp_capacity_ask *ask, const struct mcp_question *question,
                         struct mcp_capacity_row *row)
{
    finish_failures(ask, question, row);
    finish_time(ask, question, row);
    finish_machines(ask, question->cluster, row);
    row->breaks[MCP_LIMIT_DEADLINE] = breaks(row->time_s, ask->deadline_s);
    row->breaks[MCP_LIMIT_BUDGET] = breaks(row->price, ask->budget);
    row->breaks[MCP_LIMIT_POWER] = breaks(row->site_watts, ask->power_watts);
}

bool mcp_capacity_meets(const struct mcp_capacity_row *row)
{
    bool meets = row->reason == NULL;
    for (int i = 0; i < MCP_NUM_LIMITS; i++)
        meets = meets && !row->breaks[i];
    return meets;
}

static const char does_not_fit[] = "does not fit in memory";
static const char does_not_divide[] = "no layout divides the batch, the heads and the layers";

static void take_plan(struct mcp_arena *scratch, const struct mcp_question *question,
                      const struct mcp_answer *answer, struct mcp_capacity_row *row)
{
    struct mcp_pricer *pricer = mcp_pricer_new(scratch, question);
    struct mcp_prediction *p = MCP_NEW(scratch, struct mcp_prediction);
    mcp_estimate(pricer, &answer->found[0].plan, p);
    row->plan = answer->found[0].plan;
    row->plan.chunks = NULL; /* the scratch arena's */
    row->plan.stage_pool = NULL;
    row->proven = answer->record.proven_optimal;
    row->iteration_s = p->iteration_s;
    row->tokens_per_s = p->tokens_per_s;
    row->model_flops_utilization = p->model_flops_utilization;
    row->uncertainty_frac = p->uncertainty_frac;
    row->peak_memory_bytes = p->peak_memory_bytes;
}

/* NULL: every pool multiplies in the job's precision. */
static const char *find_rate(struct mcp_arena *arena, const struct mcp_question *question)
{
    enum mcp_precision precision = question->job->precision;
    for (int i = 0; i < mcp_cluster_num_pools(question->cluster); i++) {
        const struct mcp_gpu *gpu = &mcp_cluster_pool(question->cluster, i)->gpu;
        if (isnan(gpu->peak_flops_per_s[precision]))
            return mcp_format(arena, "%s has no known rate in precision %s", gpu->name,
                              mcp_precision_names[precision]);
    }
    return NULL;
}

/* The row's machines, or why there are none. */
static const char *find_size(struct mcp_arena *arena, const struct mcp_capacity_machine *machine,
                             const struct mcp_plan_space *space, int gpus,
                             struct mcp_cluster *cluster)
{
    struct mcp_error err = {""};
    struct mcp_question question = machine->question;
    question.cluster = cluster;
    if (machine->most_gpus > 0 && gpus > machine->most_gpus)
        return mcp_format(arena, "there are %s", mcp_show_integer(arena, machine->most_gpus));
    if (mcp_capacity_size(arena, machine->question.cluster, gpus, cluster, &err) != MCP_OK ||
        mcp_space_check(&question, space, &err) != MCP_OK)
        return mcp_strdup(arena, err.text);
    return find_rate(arena, &question);
}

/* Plans for the question as it is. False: stopped. */
static bool plan_once(const struct mcp_question *question, const struct mcp_plan_space *space,
                      const struct mcp_search_options *options, struct mcp_capacity_row *row)
{
    struct mcp_answer answer;
    struct mcp_arena *scratch = mcp_arena_new();
    mcp_search(scratch, question, space, options, &answer);
    bool stopped = options->stop != NULL && *options->stop != 0 && !answer.record.proven_optimal;
    bool too_large = mcp_search_refused(&answer.record, mcp_rule_memory) > 0;
    row->reason = answer.count > 0 ? NULL : too_large ? does_not_fit : does_not_divide;
    if (answer.count > 0)
        take_plan(scratch, question, &answer, row);
    mcp_arena_free(scratch);
    return !stopped;
}

/* The nearest multiple of the machine's nodes, or of half of them, of a quarter ...:
 * the first within the slack. `batch` itself where there is none. */
static int64_t move_batch(int64_t batch, int parts, double slack_frac)
{
    for (bool even = true; even; even = parts % 2 == 0, parts /= 2) {
        int64_t nearest = (batch + parts / 2) / parts * parts;
        double distance = fabs((double)(nearest - batch));
        if (nearest > 0 && distance <= slack_frac * (double)batch)
            return nearest;
    }
    return batch;
}

bool mcp_capacity_plan(struct mcp_arena *arena, const struct mcp_capacity_sweep *sweep, int index,
                       int gpus, struct mcp_capacity_row *row)
{
    struct mcp_cluster cluster;
    const struct mcp_capacity_machine *machine = &sweep->machines[index];
    struct mcp_question question = machine->question;
    struct mcp_job job = *question.job;
    *row = (struct mcp_capacity_row){.machine = index, .gpus = gpus, .next_frac = (double)NAN};
    row->reason = find_size(arena, machine, sweep->space, gpus, &cluster);
    if (row->reason != NULL)
        return true;
    question.cluster = &cluster;
    question.job = &job;
    bool done = plan_once(&question, sweep->space, sweep->options, row);
    if (done && row->reason == does_not_divide) {
        int parts = cluster.next == NULL ? cluster.num_nodes : gpus / mcp_capacity_unit(&cluster);
        double slack_frac = sweep->ask->batch_slack_frac;
        job.global_batch_size = move_batch(job.global_batch_size, parts, slack_frac);
        if (job.global_batch_size != machine->question.job->global_batch_size)
            done = plan_once(&question, sweep->space, sweep->options, row);
    }
    row->global_batch_size = job.global_batch_size;
    if (row->reason == NULL)
        mcp_capacity_finish(sweep->ask, &question, row);
    return done;
}
