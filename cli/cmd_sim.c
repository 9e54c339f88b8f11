/* cli/cmd_sim.c: mcpplan sim: play a plan in virtual time and show it. */
#include "cli/commands.h"
#include "cli/plan_file.h"
#include "cli/report_parts.h"
#include "cli/sim_view.h"
#include "sim/check.h"
#include "sim/ops.h"
#include "sim/timeline.h"

#include <math.h>
#include <string.h>

enum { LEVEL_SLOT, LEVEL_OP };
static const char *const level_names[] = {"slot", "op"};

struct sim_args {
    double noise;
    int64_t seed;
    const char *slow_rank, *slow_link;
    struct mcp_choice level, schedule;
    const char *timeline, *trace, *report;
};

/* What is played, and its links as --slow-link has them. */
struct sim_input {
    struct mcp_plan_file file;
    struct mcp_cluster slow_cluster;
    struct mcp_question slow_question;
};

/* "NAME:FACTOR" with a factor of 1 or more. */
static enum mcp_status read_factor(struct mcp_context *ctx, const char *option, const char *text,
                                   const char **name, double *factor)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text || !mcp_parse_double(colon + 1, factor) || *factor < 1)
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "--%s %s: not of the form NAME:FACTOR with a factor of 1 or more", option,
                        mcp_shown(ctx->arena, text));
    *name = mcp_strndup(ctx->arena, text, (size_t)(colon - text));
    return MCP_OK;
}

static enum mcp_status read_rank(struct mcp_context *ctx, const struct sim_input *in,
                                 const char *text, int *out)
{
    int64_t rank = 0;
    int world = mcp_plan_world(&in->file.plan);
    if (!mcp_parse_int64(text, &rank) || rank < 0 || rank >= world)
        return mcp_fail(&ctx->err, MCP_USAGE, "there is no rank '%s'; the plan's are 0 to %d",
                        mcp_shown(ctx->arena, text), world - 1);
    *out = (int)rank;
    return MCP_OK;
}

static enum mcp_status apply_slow_rank(struct mcp_context *ctx, const struct sim_args *args,
                                       const struct sim_input *in, struct mcp_sim_options *options)
{
    const char *name = "";
    if (args->slow_rank == NULL)
        return MCP_OK;
    MCP_TRY(read_factor(ctx, "slow-rank", args->slow_rank, &name, &options->slow_factor));
    return read_rank(ctx, in, name, &options->slow_rank);
}

/* Every link of the tier, in all pools that have one of that name. */
static bool slow_tiers(struct mcp_cluster *cluster, const char *name, double factor,
                       const char *names[MCP_MAX_TIERS], int *num_names)
{
    bool found = false;
    for (int i = 0; i < cluster->num_tiers; i++) {
        if (*num_names < MCP_MAX_TIERS)
            names[(*num_names)++] = cluster->tiers[i].name;
        if (!mcp_same(cluster->tiers[i].name, name))
            continue;
        cluster->tiers[i].bandwidth_bytes_per_s /= factor;
        found = true;
    }
    return found;
}

/* The cluster with that tier slower; its pools are copied. */
static enum mcp_status slow_cluster(struct mcp_context *ctx, const char *name, double factor,
                                    struct mcp_cluster *cluster)
{
    const char *names[MCP_MAX_TIERS] = {NULL};
    int num_names = 0;
    bool found = slow_tiers(cluster, name, factor, names, &num_names);
    while (cluster->next != NULL) {
        struct mcp_cluster *next = MCP_NEW(ctx->arena, struct mcp_cluster);
        *next = *cluster->next;
        cluster->next = next;
        cluster = next;
        found = slow_tiers(cluster, name, factor, names, &num_names) || found;
    }
    const struct mcp_choice tiers = {-1, names, num_names};
    return found ? MCP_OK
                 : mcp_fail(&ctx->err, MCP_USAGE, "--slow-link %s: the cluster's tiers are %s",
                            mcp_shown(ctx->arena, name), mcp_choice_names(ctx->arena, &tiers));
}

/* "TIER:FACTOR" for all links, "TIER:FACTOR@RANK" for those of one rank. */
static enum mcp_status apply_slow_link(struct mcp_context *ctx, const struct sim_args *args,
                                       struct sim_input *in, struct mcp_sim_options *options)
{
    const char *name = "", *text = args->slow_link;
    double factor = 1;
    in->slow_cluster = in->file.cluster;
    in->slow_question = in->file.question;
    in->slow_question.cluster = &in->slow_cluster;
    if (text == NULL)
        return MCP_OK;
    const char *at = strchr(text, '@');
    if (at != NULL) {
        MCP_TRY(read_rank(ctx, in, at + 1, &options->slow_port));
        options->slow_links = &in->slow_question;
        text = mcp_strndup(ctx->arena, text, (size_t)(at - text));
    }
    MCP_TRY(read_factor(ctx, "slow-link", text, &name, &factor));
    return slow_cluster(ctx, name, factor, &in->slow_cluster);
}

/* --- why it is not what the planner says --- */

static void add_term(struct mcp_sim_view *view, const char *name, const char *why, double seconds)
{
    view->terms[view->num_terms++] = (struct mcp_sim_term){name, why, seconds};
}

static double play_s(struct mcp_arena *arena, const struct mcp_question *question,
                     const struct mcp_program *program, const struct mcp_sim_options *options)
{
    struct mcp_sim_result result;
    mcp_sim_play(arena, question, program, options, &result);
    return (double)result.step_ns * 1e-9;
}

/* One thing after the other, so that each has its own cost. */
static void add_terms(struct mcp_arena *arena, const struct sim_input *in,
                      struct mcp_sim_view *view)
{
    const struct mcp_sim_options *options = view->options;
    struct mcp_sim_options some = mcp_sim_options_default();
    double before = view->predicted->iteration_s;
    double now = play_s(arena, &in->file.question, &in->file.program, &some);
    add_term(view, "data_parallel",
             "data-parallel transfers, entry by entry: the first gather and the last reduction "
             "have little to hide beside, and a message need not wait for a reduction",
             now - before);
    if (view->slow_link != NULL) {
        before = now;
        some.slow_port = options->slow_port;
        some.slow_links = options->slow_links;
        now = play_s(arena, view->question, &in->file.program, &some);
        add_term(view, "slow_link", "the slow link", now - before);
    }
    if (options->slow_rank >= 0) {
        before = now;
        some.slow_rank = options->slow_rank;
        some.slow_factor = options->slow_factor;
        now = play_s(arena, view->question, &in->file.program, &some);
        add_term(view, "slow_rank", "the slow rank, for which the others wait", now - before);
    }
    double rest = mcp_sim_view_iteration_s(view) - now;
    if (options->noise > 0)
        add_term(view, "noise", "jitter: every group waits for its slowest rank", rest);
    else if (view->op_by_op)
        add_term(view, "shared_links",
                 "links that are shared: data-parallel transfers beside others on the same port",
                 rest);
}

/* --- */

static void add_curves(struct mcp_arena *arena, struct mcp_pricer *pricer,
                       struct mcp_sim_view *view)
{
    struct mcp_sim_curve *curves = MCP_ARRAY(arena, view->result->num_stages, struct mcp_sim_curve);
    const struct mcp_sim_played played = {pricer, view->plan, view->predicted, view->result};
    for (int s = 0; s < view->result->num_stages; s++)
        mcp_sim_memory(arena, &played, s, &curves[s]);
    view->curves = curves;
}

/* Unequal ranks are played slot by slot; all else op by op, unless asked otherwise. */
static enum mcp_status choose_level(const struct sim_args *args,
                                    const struct mcp_sim_options *options, bool *op_by_op,
                                    struct mcp_error *err)
{
    bool unequal = options->noise > 0 || options->slow_rank >= 0 || options->slow_port >= 0;
    bool files = args->timeline != NULL || args->trace != NULL;
    *op_by_op = args->level.value < 0 ? !unequal : args->level.value == LEVEL_OP;
    if (*op_by_op && unequal)
        return mcp_fail(err, MCP_USAGE,
                        "--level op plays equal ranks; leave out what makes them unequal (--noise, "
                        "--slow-rank, a slow link of one rank), or use --level slot");
    if (files && !*op_by_op)
        return mcp_fail(err, MCP_USAGE,
                        "--timeline and --trace hold ops of equal ranks; leave out --noise, "
                        "--slow-rank, a slow link of one rank, and --level slot");
    return MCP_OK;
}

static enum mcp_status write_text(struct mcp_context *ctx, const char *path,
                                  const struct mcp_text *text)
{
    MCP_TRY(mcp_file_replace(path, text->data, text->length, &ctx->err));
    if (!mcp_same(path, "-"))
        mcp_note("wrote %s", mcp_printable(ctx->arena, path));
    return MCP_OK;
}

static enum mcp_status play_ops(struct mcp_context *ctx, const struct sim_args *args,
                                const struct sim_input *in, const struct mcp_sim_view *view,
                                struct mcp_sim_result *result)
{
    struct mcp_sim_ops_options options = {.shared_links = true};
    struct mcp_sim_timeline *timeline = NULL;
    struct mcp_text text = mcp_text_new(ctx->arena), trace = mcp_text_new(ctx->arena);
    if (args->timeline != NULL || args->trace != NULL) {
        timeline = mcp_sim_timeline_new(ctx->arena, &in->file.program);
        options.span = mcp_sim_timeline_take;
        options.context = timeline;
    }
    mcp_sim_play_ops(ctx->arena, view->question, &in->file.program, &options, result);
    if (args->timeline != NULL) {
        struct mcp_timeline filled;
        mcp_sim_timeline_fill(timeline, result, &filled);
        mcp_timeline_write(&filled, mcp_timeline_is_lines(args->timeline), &text);
        MCP_TRY(write_text(ctx, args->timeline, &text));
    }
    if (args->trace != NULL) {
        mcp_sim_timeline_trace(timeline, &trace);
        MCP_TRY(write_text(ctx, args->trace, &trace));
    }
    return MCP_OK;
}

/* What the planner says of the same plan on healthy machines. */
static enum mcp_status explain(struct mcp_context *ctx, const struct sim_args *args,
                               const struct sim_input *in, struct mcp_sim_view *view)
{
    struct mcp_prediction *predicted = MCP_NEW(ctx->arena, struct mcp_prediction);
    struct mcp_pricer *pricer = mcp_pricer_new(ctx->arena, &in->file.question);
    mcp_estimate(pricer, &in->file.plan, predicted);
    view->predicted = predicted;
    add_terms(ctx->arena, in, view);
    add_curves(ctx->arena, pricer, view);
    struct mcp_text text = mcp_text_new(ctx->arena);
    mcp_sim_view_text(&text, &ctx->style, view);
    if (args->report != NULL)
        MCP_TRY(mcp_sim_report_write(ctx, args->report, view));
    return mcp_output_result(ctx, &text, mcp_sim_view_json(ctx->arena, view));
}

static enum mcp_status simulate(struct mcp_context *ctx, const struct sim_args *args,
                                struct sim_input *in)
{
    struct mcp_sim_options options = mcp_sim_options_default();
    struct mcp_sim_result result;
    struct mcp_sim_view view = {.plan = &in->file.plan,
                                .options = &options,
                                .result = &result,
                                .slow_link = args->slow_link};
    options.noise = args->noise;
    options.seed = (uint64_t)args->seed;
    MCP_TRY(apply_slow_rank(ctx, args, in, &options));
    MCP_TRY(apply_slow_link(ctx, args, in, &options));
    MCP_TRY(choose_level(args, &options, &view.op_by_op, &ctx->err));
    MCP_TRY(mcp_sim_check_time(&in->slow_question, &in->file.program, &options, &ctx->err));
    view.question = options.slow_port >= 0 ? &in->file.question : &in->slow_question;
    if (view.op_by_op)
        MCP_TRY(play_ops(ctx, args, in, &view, &result));
    else
        mcp_sim_play(ctx->arena, view.question, &in->file.program, &options, &result);
    return explain(ctx, args, in, &view);
}

enum mcp_status mcp_cmd_sim(struct mcp_context *ctx, int argc, char **argv)
{
    struct sim_args args = {.seed = 1,
                            .level = {-1, level_names, 2},
                            .schedule = {-1, mcp_schedule_names, MCP_NUM_SCHEDULES}};
    struct sim_input *in;
    const struct mcp_option options[] = {
        {"Playing", MCP_OPT_HEADING, NULL, NULL},
        {"level", MCP_OPT_CHOICE, &args.level,
         "op: every op on its stream, links are shared; slot: entries alone (where --noise or "
         "--slow-rank is given)"},
        {"schedule", MCP_OPT_CHOICE, &args.schedule, "play the plan under another schedule"},
        {"report", MCP_OPT_FILE, &args.report,
         "the step with charts: a page (FILE.html) or Markdown (FILE.md)"},
        {"timeline", MCP_OPT_FILE, &args.timeline, "write every op's start and end to FILE"},
        {"trace", MCP_OPT_FILE, &args.trace, "the same for chrome://tracing and ui.perfetto.dev"},
        {"Noise and faults", MCP_OPT_HEADING, NULL, NULL},
        {"noise", MCP_OPT_FRAC, &args.noise,
         "spread of compute time by rank and slot (standard deviation of its logarithm)"},
        {"seed", MCP_OPT_COUNT64, &args.seed, "of the noise"},
        {"slow-rank", MCP_OPT_STRING, &args.slow_rank,
         "RANK:FACTOR: one rank computes that many times slower"},
        {"slow-link", MCP_OPT_STRING, &args.slow_link,
         "TIER:FACTOR: the tier's links have that many times less bandwidth; TIER:FACTOR@RANK: "
         "those of one rank"},
    };
    const struct mcp_usage usage = {
        .command = "sim",
        .summary = "play a plan in virtual time and show where time and memory go",
        .synopsis = "PLAN [options]",
        .description =
            "PLAN is a file that plan -o wrote. Its step program is verified and played event by "
            "event on its cluster: pipeline messages are waited for, data-parallel transfers run "
            "beside compute, transfers that meet on a link share it. The difference from the "
            "planner's price is shown with its reasons.",
        .min_operands = 1,
        .max_operands = 1,
        .options = options,
        .num_options = MCP_COUNT_OF(options),
        .examples = "mcpplan sim plan.json\n"
                    "mcpplan sim plan.json --trace trace.json\n"
                    "mcpplan sim plan.json --noise 0.02 --seed 7\n"
                    "mcpplan sim plan.json --slow-rank 3:1.2 --slow-link infiniband:2@3\n",
    };
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return ctx->status;
    if (args.report != NULL)
        MCP_TRY(mcp_report_file_check(args.report, &ctx->err));
    in = MCP_NEW(ctx->arena, struct sim_input);
    MCP_TRY(mcp_plan_file_load(ctx, ctx->operands[0], args.schedule.value, &in->file));
    return simulate(ctx, &args, in);
}
