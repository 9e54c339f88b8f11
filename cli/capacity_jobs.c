/* cli/capacity_jobs.c: mcpplan capacity --jobs FILE: several jobs on several pools. */
#include "cli/capacity_jobs.h"
#include "cli/plan_watch.h"
#include "core/units.h"

#include <math.h>

enum { MOST_SLOTS = 64, SIZES = 9 };
static const double day_s = 86400;

/* The file */

static enum mcp_status read_count(struct mcp_json *json, const char *key, int most, int *out,
                                  struct mcp_error *err)
{
    MCP_TRY(mcp_json_maybe_int(json, key, out, err));
    if (*out < 1 || *out > most)
        return mcp_json_fail(json, err, "%s=%d is not from 1 to %d", key, *out, most);
    return MCP_OK;
}

/* "60d", or seconds as a number. */
static enum mcp_status read_time(struct mcp_json *json, const char *key, double *out,
                                 struct mcp_error *err)
{
    MCP_TRY(mcp_json_maybe_amount(json, key, MCP_SECONDS, out, err));
    if (!isnan(*out) && (*out <= 0 || *out > 1e6 * day_s))
        return mcp_json_fail(json, err, "%s=%g s is not above 0 and at most 1e6 days", key, *out);
    return MCP_OK;
}

static enum mcp_status read_pool(struct mcp_jobs_view *j, struct mcp_json *json, int index)
{
    struct mcp_error *err = &j->ctx->err;
    struct mcp_jobs_machines *pool = &j->pools[index];
    struct mcp_jobs_pool *facts = &j->pool_facts[index];
    double price = (double)NAN;
    MCP_TRY(mcp_json_string(json, "cluster", &pool->cluster, err));
    facts->name = pool->cluster;
    MCP_TRY(mcp_json_maybe_string(json, "name", &facts->name, err));
    MCP_TRY(read_count(json, "num_nodes", MCP_MAX_GPUS, &facts->most_nodes, err));
    MCP_TRY(mcp_json_maybe_double(json, "price_per_gpu_hour", &price, err));
    if (price < 0 || price > 1e6)
        return mcp_json_fail(json, err, "price_per_gpu_hour=%g is not from 0 to 1e6", price);
    MCP_TRY(mcp_json_done(json, err));
    MCP_TRY(mcp_cluster_load(j->ctx->arena, pool->cluster, &pool->machines, err));
    if (pool->machines.next != NULL)
        return mcp_json_fail(json, err, "cluster '%s' is a mix; make each kind a pool of its own",
                             mcp_shown(j->ctx->arena, pool->cluster));
    MCP_TRY(mcp_cluster_resize(&pool->machines, facts->most_nodes, err));
    struct mcp_gpu *gpu = &pool->machines.gpu;
    gpu->price_per_gpu_hour = isnan(price) ? gpu->price_per_gpu_hour : price;
    facts->gpus_per_node = pool->machines.gpus_per_node;
    facts->price_per_node_hour = gpu->price_per_gpu_hour * facts->gpus_per_node;
    facts->watts_per_node = gpu->power_watts * facts->gpus_per_node * j->ask.site_power_factor;
    return MCP_OK;
}

static enum mcp_status read_tokens(struct mcp_jobs_view *j, struct mcp_json *json, int64_t *out)
{
    double number = 0;
    const char *text;
    if (mcp_json_double(json, "tokens", &number, NULL) != MCP_OK)
        MCP_TRY(mcp_json_string(json, "tokens", &text, &j->ctx->err));
    else
        text = mcp_format(j->ctx->arena, "%.17g", number);
    struct mcp_error err;
    if (mcp_capacity_parse_tokens(j->ctx->arena, text, out, &err) != MCP_OK)
        return mcp_json_fail(json, &j->ctx->err,
                             "tokens '%s' is no number of tokens such as \"15.6T\" or 2e12, from "
                             "1 to 1e18",
                             mcp_shown(j->ctx->arena, text));
    return MCP_OK;
}

static enum mcp_status read_job(struct mcp_jobs_view *j, struct mcp_json *json, int index)
{
    struct mcp_error *err = &j->ctx->err;
    struct mcp_jobs_asked *job = &j->jobs[index];
    struct mcp_jobs_job *facts = &j->job_facts[index];
    job->plan = j->given;
    *facts = (struct mcp_jobs_job){.deadline_s = (double)NAN, .weight = 1};
    MCP_TRY(mcp_json_string(json, "model", &job->plan.model, err));
    facts->name = job->plan.model;
    MCP_TRY(mcp_json_maybe_string(json, "name", &facts->name, err));
    MCP_TRY(read_tokens(j, json, &job->tokens));
    MCP_TRY(mcp_json_int64(json, "global_batch_size", &job->plan.global_batch_size, err));
    if (mcp_json_has(json, "sequence_length"))
        MCP_TRY(mcp_json_int64(json, "sequence_length", &job->plan.sequence_length, err));
    if (mcp_json_has(json, "precision"))
        MCP_TRY(mcp_json_choice(json, "precision", mcp_precision_names, MCP_NUM_PRECISIONS,
                                &job->plan.precision.value, err));
    MCP_TRY(mcp_json_maybe_string(json, "stack", &job->plan.stack, err));
    MCP_TRY(read_time(json, "deadline", &facts->deadline_s, err));
    MCP_TRY(mcp_json_maybe_double(json, "weight", &facts->weight, err));
    if (!(facts->weight >= 0.01 && facts->weight <= 100))
        return mcp_json_fail(json, err, "weight=%g is not from 0.01 to 100", facts->weight);
    return mcp_json_done(json, err);
}

static enum mcp_status read_list(struct mcp_jobs_view *j, struct mcp_json *json, const char *key,
                                 int most, int *count)
{
    struct mcp_json *list;
    MCP_TRY(mcp_json_array(json, key, &list, &j->ctx->err));
    size_t items = mcp_json_count(list);
    if (items < 1 || items > (size_t)most)
        return mcp_json_fail(list, &j->ctx->err, "%zu %s; 1 to %d are understood", items, key,
                             most);
    *count = (int)items;
    bool pools = mcp_same(key, "pools");
    for (int i = 0; i < *count; i++) {
        struct mcp_json *item = mcp_json_at(list, (size_t)i);
        MCP_TRY(pools ? read_pool(j, item, i) : read_job(j, item, i));
    }
    return MCP_OK;
}

/* The horizon: as stated, else the last deadline. */
static enum mcp_status settle_horizon(struct mcp_jobs_view *j, struct mcp_json *json)
{
    struct mcp_jobs_problem *p = &j->problem;
    for (int i = 0; isnan(p->horizon_s) && i < p->num_jobs; i++)
        if (isnan(j->job_facts[i].deadline_s))
            return mcp_json_fail(json, &j->ctx->err,
                                 "job '%s' has no deadline, so the file needs a horizon, such as "
                                 "\"90d\"",
                                 mcp_shown(j->ctx->arena, j->job_facts[i].name));
    if (!isnan(p->horizon_s))
        return MCP_OK;
    p->horizon_s = 0;
    for (int i = 0; i < p->num_jobs; i++)
        p->horizon_s = fmax(p->horizon_s, j->job_facts[i].deadline_s);
    return MCP_OK;
}

static enum mcp_status read_file(struct mcp_jobs_view *j, const char *path)
{
    struct mcp_error *err = &j->ctx->err;
    struct mcp_jobs_problem *p = &j->problem;
    struct mcp_json *json;
    const char *schema;
    *p = (struct mcp_jobs_problem){.pools = j->pool_facts,
                                   .jobs = j->job_facts,
                                   .horizon_s = (double)NAN,
                                   .slots = 1,
                                   .power_watts = j->ask.power_watts};
    MCP_TRY(mcp_json_read(j->ctx->arena, path, &json, err));
    MCP_TRY(mcp_json_string(json, "schema", &schema, err));
    if (!mcp_same(schema, "mcpplan.jobs/1"))
        return mcp_json_fail(json, err, "schema '%s' is not mcpplan.jobs/1",
                             mcp_shown(j->ctx->arena, schema));
    MCP_TRY(read_list(j, json, "pools", MCP_MOST_JOB_POOLS, &p->num_pools));
    MCP_TRY(read_list(j, json, "jobs", MCP_MOST_JOBS, &p->num_jobs));
    MCP_TRY(read_time(json, "horizon", &p->horizon_s, err));
    MCP_TRY(read_count(json, "slots", MOST_SLOTS, &p->slots, err));
    MCP_TRY(mcp_json_maybe_double(json, "energy_price_per_kwh", &p->energy_price_per_kwh, err));
    if (!(p->energy_price_per_kwh >= 0 && p->energy_price_per_kwh <= 1e6))
        return mcp_json_fail(json, err, "energy_price_per_kwh=%g is not from 0 to 1e6",
                             p->energy_price_per_kwh);
    MCP_TRY(mcp_json_done(json, err));
    return settle_horizon(j, json);
}

/* The options */

/* At most nine numbers of nodes: the most there are, and halves of the power of two
 * below. Returns how many; ascending. */
static int node_counts(int most, int out[SIZES])
{
    int count = 0, nodes = 1;
    while (nodes <= most / 2)
        nodes *= 2;
    for (int i = 0; i < SIZES - 1 && nodes > 1; i++)
        nodes /= 2;
    for (; nodes < most && count < SIZES - 1; nodes *= 2)
        out[count++] = nodes;
    out[count++] = most;
    return count;
}

static void keep(struct mcp_jobs_view *j, int job, int pool, const struct mcp_question *question,
                 const struct mcp_capacity_row *row)
{
    struct mcp_jobs_problem *p = &j->problem;
    if (row->reason != NULL || row->nodes + row->spares > j->pool_facts[pool].most_nodes ||
        row->time_s > p->horizon_s)
        return;
    j->rows[p->num_options] = *row;
    j->questions[p->num_options] = question;
    j->options[p->num_options++] = (struct mcp_jobs_option){job, pool, row->nodes + row->spares,
                                                            row->time_s, row->energy_joules};
}

/* All sizes of one job on one pool. False: stopped. */
static bool plan_sizes(struct mcp_jobs_view *j, int job, int pool,
                       const struct mcp_question *question,
                       const struct mcp_search_options *options)
{
    struct mcp_context *ctx = j->ctx;
    struct mcp_capacity_ask ask = j->ask;
    const struct mcp_capacity_machine machine = {.name = j->pools[pool].cluster,
                                                 .question = *question};
    const struct mcp_plan_space space = mcp_plan_space_of(&j->jobs[job].plan);
    int counts[SIZES], num_counts = node_counts(j->pool_facts[pool].most_nodes, counts);
    ask.tokens = j->jobs[job].tokens;
    ask.power_watts = ask.deadline_s = ask.budget = (double)NAN;
    const struct mcp_capacity_sweep sweep = {
        .ask = &ask, .num_machines = 1, .machines = &machine, .space = &space, .options = options};
    for (int i = 0; i < num_counts; i++) {
        struct mcp_capacity_row row;
        int gpus = counts[i] * j->pool_facts[pool].gpus_per_node;
        if (options->progress)
            mcp_plan_watch_aside(options->progress_context,
                                 mcp_format(ctx->arena, "planning %s on %d nodes of %s",
                                            mcp_printable(ctx->arena, j->job_facts[job].name),
                                            counts[i],
                                            mcp_printable(ctx->arena, j->pool_facts[pool].name)));
        if (!mcp_capacity_plan(ctx->arena, &sweep, 0, gpus, &row))
            return false;
        keep(j, job, pool, question, &row);
    }
    return true;
}

static enum mcp_status plan_job(struct mcp_jobs_view *j, int job,
                                const struct mcp_search_options *options)
{
    for (int pool = 0; pool < j->problem.num_pools && !j->interrupted; pool++) {
        struct mcp_plan_question *loaded = MCP_NEW(j->ctx->arena, struct mcp_plan_question);
        struct mcp_plan_args plan = j->jobs[job].plan;
        plan.cluster = j->pools[pool].cluster;
        if (mcp_plan_load_question(j->ctx, &plan, loaded) != MCP_OK) {
            mcp_error_prefix(&j->ctx->err,
                             mcp_format(j->ctx->arena, "job '%s'",
                                        mcp_shown(j->ctx->arena, j->job_facts[job].name)));
            return MCP_INVALID;
        }
        loaded->asked.cluster = &j->pools[pool].machines;
        j->interrupted = !plan_sizes(j, job, pool, &loaded->asked, options);
    }
    return MCP_OK;
}

static enum mcp_status plan_jobs(struct mcp_jobs_view *j)
{
    struct mcp_plan_watch watch;
    struct mcp_search_options options = {.objective = MCP_OBJECTIVE_TIME, .top = 1};
    struct mcp_jobs_problem *p = &j->problem;
    int most = p->num_jobs * p->num_pools * SIZES;
    enum mcp_status status = MCP_OK;
    j->options = MCP_ARRAY(j->ctx->arena, most, struct mcp_jobs_option);
    j->rows = MCP_ARRAY(j->ctx->arena, most, struct mcp_capacity_row);
    j->questions = MCP_ARRAY(j->ctx->arena, most, const struct mcp_question *);
    p->options = j->options;
    mcp_plan_watch_begin(&watch, &options);
    for (int job = 0; job < p->num_jobs && !j->interrupted && status == MCP_OK; job++)
        status = plan_job(j, job, &options);
    mcp_plan_watch_end(&watch);
    return status;
}

/* The answer */

/* Which job, and whether anything there is would do for it alone. */
static enum mcp_status fail_left_out(const struct mcp_jobs_view *j)
{
    const struct mcp_jobs_answer *answer = &j->answer;
    int job = 0;
    bool possible = false;
    while (answer->option[job] >= 0)
        job++;
    for (int i = 0; i < j->problem.num_options; i++)
        possible = possible ||
                   (j->options[i].job == job && mcp_jobs_can_start(&j->problem, &j->options[i], 0));
    return mcp_fail(&j->ctx->err, MCP_INFEASIBLE, "%d of %d jobs are left out; the first, '%s', %s",
                    answer->num_left_out, j->problem.num_jobs,
                    mcp_shown(j->ctx->arena, j->job_facts[job].name),
                    possible ? "finds no machines that the others leave"
                             : "meets its deadline on no size of any pool");
}

enum mcp_status mcp_capacity_jobs(struct mcp_context *ctx, const struct mcp_jobs_ask *asked)
{
    struct mcp_jobs_view *j = MCP_NEW(ctx->arena, struct mcp_jobs_view);
    struct mcp_text text = mcp_text_new(ctx->arena);
    j->ctx = ctx;
    j->ask = *asked->ask;
    j->given = *asked->given;
    MCP_TRY(read_file(j, asked->path));
    MCP_TRY(plan_jobs(j));
    mcp_jobs_solve(ctx->arena, &j->problem, &j->answer);
    mcp_jobs_text(&text, &ctx->style, j);
    if (j->interrupted)
        mcp_note("interrupted: not all options were planned");
    if (j->answer.num_left_out > 0)
        ctx->output_path = NULL; /* a refusal leaves no file */
    else if (asked->report != NULL)
        MCP_TRY(mcp_jobs_report_write(ctx, asked->report, j));
    MCP_TRY(mcp_output_result(ctx, &text, mcp_jobs_json(ctx->arena, j)));
    return j->answer.num_left_out > 0 ? fail_left_out(j) : MCP_OK;
}
