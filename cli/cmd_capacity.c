/* cli/cmd_capacity.c: mcpplan capacity: how many machines, which, how long, what price. */
#include "cli/capacity_view.h"
#include "cli/commands.h"
#include "cli/plan_options.h"
#include "cli/plan_schedule.h"
#include "cli/plan_watch.h"
#include "cli/report_parts.h"
#include "core/units.h"
#include "planner/explain.h"

#include <math.h>
#include <string.h>

enum { MOST_MACHINES = 16, MOST_SIZES = 256, MOST_OPTIONS = 40 + MCP_MOST_DEGREE_OPTIONS };

struct args {
    struct mcp_plan_args plan; /* the question; its cluster is the list */
    const char *tokens, *power, *gpus, *failures, *jobs, *report;
    const char *checkpoint_bandwidth, *checkpoint_stall, *recovery, *repair;
    double deadline_days;
    struct mcp_strings price;
    struct mcp_capacity_ask ask;
};

static const char description[] =
    "Every size of every kind of machine is planned as mcpplan plan does; the time is that of its "
    "iterations over the share of time that failures leave. Says how many of which machines meet "
    "a deadline, a budget or a cap on power, and where the knee is. Prices and powers that no "
    "file states are unknown, and said to be. Ctrl-C shows the sizes planned so far. A size whose "
    "plans cannot be as pinned is shown with the reason.\n"
    "--cluster takes names joined by commas; dgx-h100:64 are 64 nodes at most, and "
    "dgx-h100:1+dgx-a100:2 is a mix in the ratio 1 to 2. --failures takes a rate per 1,000 "
    "node-days of 8 GPUs, an interval 4..7, or a population: none, dedicated (Llama 3, 3.79 to "
    "4.21), shared (Meta's clusters, 2.34 to 6.5), first-run (OPT-175B, 4.7 to 14.1), all-causes "
    "(Meta's jobs, 21 to 23.7).\n"
    "--jobs FILE plans several jobs on several pools of machines instead (docs/CAPACITY.md); "
    "--report draws which runs where and when.";
static const char examples[] =
    "mcpplan capacity --model llama-3.1-70b --cluster dgx-h100,dgx-a100 --tokens 2T --deadline 60 "
    "\\\n"
    "    --global-batch-size 1024 --sequence-length 8192\n"
    "mcpplan capacity --model llama-3.1-405b --cluster dgx-h100 --tokens 15.6T --power 25MW \\\n"
    "    --global-batch-size 2048 --sequence-length 8192 --gpus 4096..16384\n"
    "mcpplan capacity --model llama-3.1-8b --cluster dgx-h100 --tokens 1T --budget 500000 \\\n"
    "    --global-batch-size 512 --price dgx-h100=2.5 --failures shared\n";

static struct mcp_option *add_rows(struct mcp_option *at, const struct mcp_option *rows,
                                   size_t count)
{
    memcpy(at, rows, count * sizeof *rows);
    return at + count;
}

static struct mcp_option *question_options(struct args *a, struct mcp_option *at)
{
    const struct mcp_option rows[] = {
        {"What to train, on what", MCP_OPT_HEADING, NULL, NULL},
        {"model", MCP_OPT_STRING, &a->plan.model, "a preset, a model file or a config.json"},
        {"cluster", MCP_OPT_STRING, &a->plan.cluster, "presets or cluster files, joined by commas"},
        {"tokens", MCP_OPT_STRING, &a->tokens, "to train on: 15.6T, 300B or a number"},
        {"global-batch-size", MCP_OPT_COUNT64, &a->plan.global_batch_size, "sequences in a step"},
        {"batch-slack", MCP_OPT_FRAC, &a->ask.batch_slack_frac,
         "how far a size that does not divide the batch may move it"},
        {"sequence-length", MCP_OPT_COUNT64, &a->plan.sequence_length,
         "tokens in a sequence (default: 4096, or the model's limit if less)"},
        {"precision", MCP_OPT_CHOICE, &a->plan.precision,
         "in what the linear layers multiply (default: bf16, else fp16, else fp32)"},
        {"stack", MCP_OPT_STRING, &a->plan.stack,
         "the software that will run the plan (default: megatron-core)"},
        {"memory-limit-frac", MCP_OPT_FRAC, &a->plan.memory_limit_frac,
         "share of a GPU's memory that a plan may use"},
        {"pipeline-rule", MCP_OPT_CHOICE, &a->plan.pipeline_rule,
         "at most a fifth as many stages as layers"},
        {"batch-rule", MCP_OPT_CHOICE, &a->plan.batch_rule,
         "a replica's batch divisible by microbatch x pipeline"},
        {"jobs", MCP_OPT_FILE, &a->jobs,
         "several jobs on several pools of machines, as a file states them"},
    };
    return add_rows(at, rows, MCP_COUNT_OF(rows));
}

static struct mcp_option *limit_options(struct args *a, struct mcp_option *at)
{
    const struct mcp_option rows[] = {
        {"What must hold", MCP_OPT_HEADING, NULL, NULL},
        {"deadline", MCP_OPT_DOUBLE, &a->deadline_days, "days"},
        {"budget", MCP_OPT_DOUBLE, &a->ask.budget, "price, spare machines in"},
        {"power", MCP_OPT_STRING, &a->power, "of the site: watts, or 25MW"},
        {"gpus", MCP_OPT_STRING, &a->gpus,
         "sizes to try: 512,1024 or 512..8192 (default: as the limits suggest)"},
        {"price", MCP_OPT_LIST, &a->price,
         "NAME=X: price of a GPU and hour of the cluster or GPU NAME"},
        {"knee-frac", MCP_OPT_FRAC, &a->ask.knee_frac,
         "share of what more machines should bring, below which they do not pay"},
        {"site-power-factor", MCP_OPT_DOUBLE, &a->ask.site_power_factor,
         "watts of the site per watt of its devices"},
    };
    return add_rows(at, rows, MCP_COUNT_OF(rows));
}

static struct mcp_option *failure_options(struct args *a, struct mcp_option *at)
{
    const struct mcp_option rows[] = {
        {"Failures and checkpoints", MCP_OPT_HEADING, NULL, NULL},
        {"failures", MCP_OPT_STRING, &a->failures, "a population, a rate or an interval"},
        {"recovery", MCP_OPT_STRING, &a->recovery, "from a failure to working again"},
        {"repair", MCP_OPT_STRING, &a->repair, "from a failure to a node's return"},
        {"spare-quantile", MCP_OPT_FRAC, &a->ask.spare_quantile,
         "probability that the spare nodes are enough"},
        {"checkpoint-bandwidth", MCP_OPT_STRING, &a->checkpoint_bandwidth,
         "of the storage, in all (default: 0.122 GB/s a GPU)"},
        {"checkpoint-stall", MCP_OPT_STRING, &a->checkpoint_stall,
         "that a checkpoint stops training (default: as long as it takes to write)"},
        {"checkpoint-keep", MCP_OPT_COUNT, &a->ask.checkpoint_keep, "checkpoints in storage"},
        {"What to write", MCP_OPT_HEADING, NULL, NULL},
        {"report", MCP_OPT_FILE, &a->report,
         "the answer with charts: a page (FILE.html) or Markdown (FILE.md)"},
    };
    return add_rows(at, rows, MCP_COUNT_OF(rows));
}

static enum mcp_status check_needed(struct mcp_context *ctx, const struct args *args,
                                    const struct mcp_usage *usage)
{
    static const char *const needed[] = {"model", "cluster", "tokens", "global-batch-size"};
    static const char *const stated[] = {"model",  "cluster",  "tokens", "global-batch-size",
                                         "budget", "deadline", "gpus",   "price"};
    for (size_t i = 0; i < MCP_COUNT_OF(stated) && args->jobs != NULL; i++)
        MCP_TRY(mcp_options_refuse(usage, stated[i],
                                   "--jobs FILE states models, machines, prices and deadlines "
                                   "itself",
                                   &ctx->err));
    for (size_t i = 0; i < MCP_COUNT_OF(needed) && args->jobs == NULL; i++)
        MCP_TRY(mcp_options_need(usage, needed[i], &ctx->err));
    const struct mcp_plan_space space = mcp_plan_space_of(&args->plan);
    for (int knob = 0; knob < MCP_NUM_KNOBS && args->jobs != NULL; knob++)
        if (space.knobs[knob].given)
            return mcp_fail(&ctx->err, MCP_USAGE,
                            "--jobs FILE plans each job on its own; leave out what pins %s",
                            mcp_knob_names[knob]);
    return args->report != NULL ? mcp_report_file_check(args->report, &ctx->err) : MCP_OK;
}

/* False: return ctx->status. */
static bool parse(struct mcp_context *ctx, struct args *args, int argc, char **argv)
{
    struct mcp_option options[MOST_OPTIONS];
    struct mcp_option *end = question_options(args, options);
    end = limit_options(args, end);
    end = mcp_plan_degree_options(&args->plan, end);
    end = failure_options(args, end);
    const struct mcp_usage usage = {
        .command = "capacity",
        .summary = "how many machines, which, how long, at what price, with failures",
        .synopsis = "--model M --cluster C[,C...] --tokens T --global-batch-size B [options]",
        .description = description,
        .options = options,
        .num_options = (size_t)(end - options),
        .examples = examples,
    };
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return false;
    ctx->status = mcp_plan_schedule_read(ctx, &args->plan);
    if (ctx->status != MCP_OK)
        return false;
    ctx->status = check_needed(ctx, args, &usage);
    return ctx->status == MCP_OK;
}

/* What is asked */

enum mcp_status mcp_capacity_parse_tokens(struct mcp_arena *arena, const char *text, int64_t *out,
                                          struct mcp_error *err)
{
    static const char suffixes[] = "KMBT";
    size_t length = strlen(text);
    double value, scale = 1;
    const char *suffix = length > 0 ? strchr(suffixes, text[length - 1]) : NULL;
    if (suffix != NULL) {
        for (const char *s = suffixes; s <= suffix; s++)
            scale *= 1000;
        text = mcp_strndup(arena, text, length - 1);
    }
    if (!mcp_parse_double(text, &value) || value * scale < 1 || value * scale > 1e18)
        return mcp_fail(err, MCP_USAGE,
                        "option --tokens: '%s%s' is no number of tokens such as 15.6T, 300B or "
                        "2e12, from 1 to 1e18",
                        mcp_shown(arena, text),
                        suffix != NULL ? mcp_strndup(arena, suffix, 1) : "");
    *out = (int64_t)(value * scale);
    return MCP_OK;
}

/* A quantity with a unit, or a number in watts, seconds or bytes per second. */
static enum mcp_status take_quantity(struct mcp_context *ctx, const char *name, const char *text,
                                     enum mcp_dimension dimension, double *out)
{
    const double most = 1e15;
    double value;
    if (text == NULL)
        return MCP_OK;
    if (!mcp_parse_double(text, &value) &&
        mcp_quantity_parse(text, dimension, &value, &ctx->err) != MCP_OK) {
        mcp_error_prefix(&ctx->err, mcp_format(ctx->arena, "option --%s", name));
        return MCP_USAGE;
    }
    if (dimension == MCP_SECONDS && value >= 0 && value <= 366 * 86400.0) {
        *out = value;
        return MCP_OK;
    }
    if (dimension == MCP_SECONDS)
        return mcp_fail(&ctx->err, MCP_USAGE, "option --%s: '%s' is not from 0 to a year", name,
                        mcp_shown(ctx->arena, text));
    if (value <= 0 || value > most)
        return mcp_fail(&ctx->err, MCP_USAGE, "option --%s: '%s' is not above 0 and at most %g",
                        name, mcp_shown(ctx->arena, text), most);
    *out = value;
    return MCP_OK;
}

static enum mcp_status refuse_number(struct mcp_context *ctx, const char *name, double value,
                                     const char *legal)
{
    return mcp_fail(&ctx->err, MCP_USAGE, "option --%s: '%g' is not %s", name, value, legal);
}

static enum mcp_status check_numbers(struct mcp_context *ctx, const struct args *args)
{
    const struct mcp_capacity_ask *ask = &args->ask;
    if (args->deadline_days <= 0 || args->deadline_days > 1e6)
        return refuse_number(ctx, "deadline", args->deadline_days,
                             "a number of days above 0 and at most 1e6");
    if (ask->budget <= 0)
        return refuse_number(ctx, "budget", ask->budget, "a price above 0");
    if (ask->spare_quantile >= 1)
        return refuse_number(ctx, "spare-quantile", ask->spare_quantile, "below 1");
    if (ask->site_power_factor < 1 || ask->site_power_factor > 100)
        return refuse_number(ctx, "site-power-factor", ask->site_power_factor, "from 1 to 100");
    return MCP_OK;
}

static enum mcp_status read_ask(struct mcp_context *ctx, struct args *args)
{
    struct mcp_capacity_ask *ask = &args->ask;
    if (args->tokens != NULL)
        MCP_TRY(mcp_capacity_parse_tokens(ctx->arena, args->tokens, &ask->tokens, &ctx->err));
    MCP_TRY(take_quantity(ctx, "power", args->power, MCP_WATTS, &ask->power_watts));
    MCP_TRY(take_quantity(ctx, "recovery", args->recovery, MCP_SECONDS, &ask->recovery_s));
    MCP_TRY(take_quantity(ctx, "repair", args->repair, MCP_SECONDS, &ask->repair_s));
    MCP_TRY(take_quantity(ctx, "checkpoint-bandwidth", args->checkpoint_bandwidth,
                          MCP_BYTES_PER_SECOND, &ask->checkpoint_bytes_per_s));
    MCP_TRY(
        take_quantity(ctx, "checkpoint-stall", args->checkpoint_stall, MCP_SECONDS, &ask->stall_s));
    ask->deadline_s = args->deadline_days * 86400;
    if (mcp_failures_parse(ctx->arena, args->failures, &ask->failures, &ctx->err) != MCP_OK) {
        mcp_error_prefix(&ctx->err, "option --failures");
        return MCP_USAGE;
    }
    return check_numbers(ctx, args);
}

/* The machines */

/* "dgx-h100=2.5" */
struct price {
    const char *name;
    double value;
    bool used; /* something bears the name */
};

static enum mcp_status read_prices(struct mcp_context *ctx, const struct args *args,
                                   struct price *prices)
{
    for (int i = 0; i < args->price.count; i++) {
        const char *text = args->price.items[i], *equals = strchr(text, '=');
        struct price *price = &prices[i];
        if (equals == NULL || !mcp_parse_double(equals + 1, &price->value) || price->value < 0 ||
            price->value > 1e6)
            return mcp_fail(&ctx->err, MCP_USAGE,
                            "option --price: '%s' is not NAME=X with X from 0 to 1e6, such as "
                            "dgx-h100=2.5",
                            mcp_shown(ctx->arena, text));
        price->name = mcp_strndup(ctx->arena, text, (size_t)(equals - text));
    }
    return MCP_OK;
}

static void set_prices(struct price *prices, int count, struct mcp_cluster *pool)
{
    for (int i = 0; i < count; i++) {
        if (!mcp_same(pool->name, prices[i].name) && !mcp_same(pool->gpu.name, prices[i].name))
            continue;
        pool->gpu.price_per_gpu_hour = prices[i].value;
        prices[i].used = true;
    }
}

static enum mcp_status check_prices(struct mcp_context *ctx, const struct args *args,
                                    const struct price *prices)
{
    for (int i = 0; i < args->price.count; i++)
        if (!prices[i].used)
            return mcp_fail(&ctx->err, MCP_USAGE,
                            "option --price: no cluster or GPU of --cluster %s is called '%s'",
                            mcp_shown(ctx->arena, args->plan.cluster),
                            mcp_shown(ctx->arena, prices[i].name));
    return MCP_OK;
}

static enum mcp_status refuse_sizes(struct mcp_context *ctx, const char *text)
{
    return mcp_fail(&ctx->err, MCP_USAGE,
                    "option --gpus: '%s' is neither a list of sizes such as 512,1024 nor a range "
                    "such as 512..8192, of 1 to %d GPUs",
                    mcp_shown(ctx->arena, text), MCP_MAX_GPUS);
}

static bool parse_size(const char *text, int *out)
{
    int64_t value;
    if (!mcp_parse_int64(text, &value) || value < 1 || value > MCP_MAX_GPUS)
        return false;
    *out = (int)value;
    return true;
}

/* "512,1024": ascending, each once. */
static enum mcp_status read_list(struct mcp_context *ctx, const char *text,
                                 struct mcp_capacity_machine *machine)
{
    int *sizes = MCP_ARRAY(ctx->arena, MOST_SIZES, int), count = 0;
    for (const char *at = text; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int gpus, i;
        if (count == MOST_SIZES ||
            !parse_size(mcp_strndup(ctx->arena, at, strcspn(at, ",")), &gpus))
            return refuse_sizes(ctx, text);
        for (i = count; i > 0 && sizes[i - 1] > gpus; i--)
            sizes[i] = sizes[i - 1];
        sizes[i] = gpus;
        count += 1;
        if (i > 0 && sizes[i - 1] == gpus)
            return mcp_fail(&ctx->err, MCP_USAGE, "option --gpus: %d is given twice", gpus);
    }
    machine->sizes = sizes;
    machine->num_sizes = count;
    return MCP_OK;
}

static enum mcp_status read_sizes(struct mcp_context *ctx, const struct args *args,
                                  struct mcp_capacity_machine *machine)
{
    const char *dots = args->gpus != NULL ? strstr(args->gpus, "..") : NULL;
    struct mcp_capacity_range range = mcp_capacity_range(&args->ask, machine);
    int *sizes;
    if (args->gpus != NULL && dots == NULL)
        return read_list(ctx, args->gpus, machine);
    if (dots != NULL) {
        const char *low = mcp_strndup(ctx->arena, args->gpus, (size_t)(dots - args->gpus));
        if (!parse_size(low, &range.low) || !parse_size(dots + 2, &range.high) ||
            range.low > range.high)
            return refuse_sizes(ctx, args->gpus);
    }
    machine->refine = true;
    machine->num_sizes = mcp_capacity_ladder(
        ctx->arena, mcp_capacity_unit(machine->question.cluster), range.low, range.high, &sizes);
    machine->sizes = sizes;
    if (machine->num_sizes > 0)
        return MCP_OK;
    return mcp_fail(&ctx->err, MCP_INVALID, "no size of %s lies in %d..%d GPUs; its nodes have %d",
                    mcp_shown(ctx->arena, machine->name), range.low, range.high,
                    machine->question.cluster->gpus_per_node);
}

static enum mcp_status read_machine(struct mcp_context *ctx, const struct args *args,
                                    const char *name, struct price *prices,
                                    struct mcp_capacity_machine *out)
{
    struct mcp_plan_question *loaded = MCP_NEW(ctx->arena, struct mcp_plan_question);
    struct mcp_cluster *pools = MCP_ARRAY(ctx->arena, MCP_MAX_POOLS, struct mcp_cluster);
    struct mcp_plan_args plan = args->plan;
    plan.cluster = name;
    MCP_TRY(mcp_plan_load_question(ctx, &plan, loaded));
    mcp_explain_copy_pools(&loaded->cluster, pools);
    for (int i = 0; i < mcp_cluster_num_pools(pools); i++)
        set_prices(prices, args->price.count, &pools[i]);
    *out = (struct mcp_capacity_machine){.name = name, .question = loaded->asked};
    out->question.cluster = pools;
    if (pools->next == NULL && strchr(name, ':') != NULL)
        out->most_gpus = mcp_cluster_gpus(pools);
    return MCP_OK;
}

static enum mcp_status read_machines(struct mcp_context *ctx, const struct args *args,
                                     struct mcp_capacity_machine machines[MOST_MACHINES],
                                     int *count)
{
    struct price *prices = MCP_ARRAY(ctx->arena, args->price.count + 1, struct price);
    MCP_TRY(read_prices(ctx, args, prices));
    for (const char *at = args->plan.cluster; at != NULL;
         at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const char *name = mcp_strndup(ctx->arena, at, strcspn(at, ","));
        if (*name == '\0')
            return mcp_fail(&ctx->err, MCP_USAGE,
                            "option --cluster: '%s' has an empty name between commas",
                            mcp_shown(ctx->arena, args->plan.cluster));
        if (*count == MOST_MACHINES)
            return mcp_fail(&ctx->err, MCP_USAGE, "option --cluster: at most %d kinds of machines",
                            MOST_MACHINES);
        MCP_TRY(read_machine(ctx, args, name, prices, &machines[(*count)++]));
    }
    MCP_TRY(check_prices(ctx, args, prices));
    for (int i = 0; i < *count; i++)
        MCP_TRY(read_sizes(ctx, args, &machines[i]));
    return MCP_OK;
}

/* What a limit needs to know of every kind of machine. */
static enum mcp_status check_known(struct mcp_context *ctx, const struct mcp_capacity_ask *ask,
                                   const struct mcp_capacity_machine *machines, int count)
{
    for (int i = 0; i < count; i++) {
        const struct mcp_cluster *cluster = machines[i].question.cluster;
        for (int k = 0; k < mcp_cluster_num_pools(cluster); k++) {
            const struct mcp_cluster *pool = mcp_cluster_pool(cluster, k);
            if (!isnan(ask->budget) && isnan(pool->gpu.price_per_gpu_hour))
                return mcp_fail(&ctx->err, MCP_INVALID,
                                "--budget needs the price of %s, which is unknown; --price %s=X "
                                "states it, per GPU and hour",
                                mcp_shown(ctx->arena, pool->name),
                                mcp_shown(ctx->arena, pool->name));
            if (!isnan(ask->power_watts) && isnan(pool->gpu.power_watts))
                return mcp_fail(&ctx->err, MCP_INVALID,
                                "--power needs power_watts, which is unknown for %s; state it in a "
                                "GPU file",
                                mcp_shown(ctx->arena, pool->gpu.name));
        }
    }
    return MCP_OK;
}

struct progress {
    struct mcp_plan_watch watch;
    struct mcp_arena *arena;
    int planned;
};

static void say_size(void *context, const char *what)
{
    struct progress *progress = context;
    mcp_plan_watch_part(&progress->watch,
                        mcp_format(progress->arena, "%s, %d planned", what, progress->planned++),
                        "shows the sizes planned so far");
}

static enum mcp_status answer(struct mcp_context *ctx, const struct args *args,
                              struct mcp_capacity_view *view)
{
    struct progress progress = {.arena = ctx->arena};
    struct mcp_capacity *capacity = MCP_NEW(ctx->arena, struct mcp_capacity);
    struct mcp_plan_space *space = MCP_NEW(ctx->arena, struct mcp_plan_space);
    struct mcp_search_options options = {.objective = MCP_OBJECTIVE_TIME, .top = 1};
    *space = mcp_plan_space_of(&args->plan);
    view->space = space;
    mcp_plan_watch_begin(&progress.watch, &options);
    const struct mcp_capacity_sweep sweep = {
        .ask = view->ask,
        .num_machines = view->num_machines,
        .machines = view->machines,
        .space = space,
        .options = &options,
        .planning = say_size,
        .context = &progress,
    };
    mcp_capacity_sweep(ctx->arena, &sweep, capacity);
    mcp_plan_watch_end(&progress.watch);
    view->capacity = capacity;
    if (capacity->interrupted)
        mcp_note("interrupted: only the sizes planned so far are shown");
    return MCP_OK;
}

static enum mcp_status show(struct mcp_context *ctx, const struct args *args,
                            const struct mcp_capacity_view *view)
{
    struct mcp_text text = mcp_text_new(ctx->arena);
    bool refused = view->capacity->best < 0;
    mcp_capacity_text(&text, &ctx->style, view);
    if (refused)
        ctx->output_path = NULL; /* a refusal leaves no file */
    if (!refused && args->report != NULL)
        MCP_TRY(mcp_capacity_report_write(ctx, args->report, view));
    MCP_TRY(mcp_output_result(ctx, &text, mcp_capacity_json(ctx->arena, view)));
    return refused ? mcp_capacity_fail(ctx->arena, view, &ctx->err) : MCP_OK;
}

enum mcp_status mcp_cmd_capacity(struct mcp_context *ctx, int argc, char **argv)
{
    struct args args = {
        .plan = mcp_plan_args_default(),
        .failures = "dedicated",
        .recovery = "10min",
        .repair = "3d",
        .deadline_days = (double)NAN,
        .ask = mcp_capacity_ask_default(),
    };
    struct mcp_capacity_machine machines[MOST_MACHINES];
    struct mcp_capacity_view view = {.ask = &args.ask, .machines = machines};
    if (!parse(ctx, &args, argc, argv))
        return ctx->status;
    MCP_TRY(read_ask(ctx, &args));
    if (args.jobs != NULL) {
        const struct mcp_jobs_ask asked = {args.jobs, args.report, &args.ask, &args.plan};
        return mcp_capacity_jobs(ctx, &asked);
    }
    MCP_TRY(read_machines(ctx, &args, machines, &view.num_machines));
    MCP_TRY(check_known(ctx, &args.ask, machines, view.num_machines));
    MCP_TRY(answer(ctx, &args, &view));
    return show(ctx, &args, &view);
}
