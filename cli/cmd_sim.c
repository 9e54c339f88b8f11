/* cli/cmd_sim.c: mcpplan sim: play a plan in virtual time and show it. */
#include "cli/commands.h"
#include "cli/report_parts.h"
#include "cli/sim_case.h"
#include "sim/ops.h"

enum { LEVEL_SLOT, LEVEL_OP };
static const char *const level_names[] = {"slot", "op"};

static void add_curves(struct mcp_arena *arena, struct mcp_pricer *pricer,
                       struct mcp_sim_view *view)
{
    struct mcp_sim_curve *curves = MCP_ARRAY(arena, view->result->num_stages, struct mcp_sim_curve);
    const struct mcp_sim_played played = {pricer, view->plan, view->predicted, view->result};
    for (int s = 0; s < view->result->num_stages; s++)
        mcp_sim_memory(arena, &played, s, &curves[s]);
    view->curves = curves;
}

/* Unequal ranks are played entry by entry, unless files of ops are asked for; all else op by
 * op. */
static enum mcp_status choose_level(const struct mcp_sim_args *args,
                                    const struct mcp_sim_options *options, bool *op_by_op,
                                    struct mcp_error *err)
{
    bool files = args->timeline != NULL || args->trace != NULL;
    *op_by_op = args->level.value < 0 ? files || !mcp_sim_is_unequal(options)
                                      : args->level.value == LEVEL_OP;
    if (files && !*op_by_op)
        return mcp_fail(err, MCP_USAGE, "--timeline and --trace hold ops; leave out --level slot");
    if (!files && (args->ranks != NULL || args->max_spans > 0))
        return mcp_fail(err, MCP_USAGE,
                        "--ranks and --max-spans say what --timeline and --trace hold; ask for "
                        "one of them");
    return MCP_OK;
}

/* What the last play has beyond the case entry by entry: shared links, jitter. */
static void add_last_terms(struct mcp_arena *arena, const struct mcp_sim_case *played,
                           struct mcp_sim_view *view)
{
    double rest = mcp_sim_view_iteration_s(view) - view->predicted->iteration_s;
    for (int i = 0; i < view->num_terms; i++)
        rest -= view->terms[i].seconds;
    double noise = rest;
    if (view->op_by_op && played->options.noise > 0) {
        struct mcp_sim_options calm = played->options;
        struct mcp_sim_result result;
        const struct mcp_sim_ops_options ops = {.shared_links = true, .ranks = &calm};
        calm.noise = 0;
        mcp_sim_play_ops(arena, &played->question, &played->file.program, &ops, &result);
        noise = mcp_sim_view_iteration_s(view) - (double)result.step_ns * 1e-9;
    }
    if (view->op_by_op)
        mcp_sim_view_term(view, "shared_links",
                          "links that are shared: data-parallel transfers beside others on the "
                          "same port",
                          played->options.noise > 0 ? rest - noise : rest);
    if (played->options.noise > 0) {
        mcp_sim_view_term(view, "noise", "jitter: every group waits for its slowest rank", noise);
        view->terms[view->num_terms - 1].asked = true;
    }
}

static enum mcp_status show(struct mcp_context *ctx, const struct mcp_sim_args *args,
                            struct mcp_pricer *pricer, struct mcp_sim_view *view)
{
    struct mcp_text text = mcp_text_new(ctx->arena);
    add_curves(ctx->arena, pricer, view);
    mcp_sim_view_text(&text, &ctx->style, view);
    if (args->report != NULL)
        MCP_TRY(mcp_sim_report_write(ctx, args->report, view));
    return mcp_output_result(ctx, &text, mcp_sim_view_json(ctx->arena, view));
}

static enum mcp_status simulate(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                struct mcp_sim_case *played)
{
    struct mcp_prediction predicted;
    struct mcp_sim_result result;
    struct mcp_pricer *pricer = mcp_pricer_new(ctx->arena, &played->file.question);
    struct mcp_sim_view view = {.question = &played->question,
                                .plan = &played->file.plan,
                                .predicted = &predicted,
                                .options = &played->options,
                                .result = &result,
                                .slow_link = args->slow_link,
                                .dead_link = args->dead_link};
    mcp_estimate(pricer, &played->file.plan, &predicted);
    MCP_TRY(mcp_sim_case_make(ctx, args, played, &view));
    MCP_TRY(choose_level(args, &played->options, &view.op_by_op, &ctx->err));
    if (view.op_by_op)
        MCP_TRY(mcp_sim_files_play(ctx, args, played, &result));
    else
        mcp_sim_play(ctx->arena, &played->question, &played->file.program, &played->options,
                     &result);
    add_last_terms(ctx->arena, played, &view);
    MCP_TRY(mcp_sim_death_play(ctx, args, played, &view));
    return show(ctx, args, pricer, &view);
}

static const char description[] =
    "PLAN is a file that plan -o wrote. Its step program is verified and played event by "
    "event on its cluster: pipeline messages are waited for, data-parallel transfers run "
    "beside compute, transfers that meet on a link share it. The difference from the "
    "planner's price is shown with its reasons.";
static const char examples[] =
    "mcpplan sim plan.json\n"
    "mcpplan sim plan.json --trace trace.json --noise 0.02 --ranks 0..7\n"
    "mcpplan sim plan.json --noise 0.02 --seed 7\n"
    "mcpplan sim plan.json --collective-algorithm fastest\n"
    "mcpplan sim plan.json --slow-rank 3:1.2 --slow-link infiniband:2@3\n"
    "mcpplan sim plan.json --dead-link infiniband@3\n"
    "mcpplan sim plan.json --fail-rank 3@2.5s\n";

static bool parse(struct mcp_context *ctx, struct mcp_sim_args *args, int argc, char **argv)
{
    const struct mcp_option options[] = {
        {"Playing", MCP_OPT_HEADING, NULL, NULL},
        {"level", MCP_OPT_CHOICE, &args->level,
         "op: every op on its stream, links are shared; slot: entries alone (where ranks are not "
         "equal and no file of ops is asked for)"},
        {"schedule", MCP_OPT_CHOICE, &args->schedule, "play the plan under another schedule"},
        {"collective-algorithm", MCP_OPT_CHOICE, &args->collective_algorithm,
         "play all-reduces, gathers and scatters in another way than the stack's"},
        {"overlap", MCP_OPT_STRING, &args->overlap,
         "what is hidden: none, all, or some of data, gather, tensor, context, expert, pipeline "
         "joined by commas"},
        {"placement", MCP_OPT_STRING, &args->placement,
         "topology: ranks on consecutive GPUs; scrambled or scrambled:SEED: on nodes in any order"},
        {"optimizer", MCP_OPT_CHOICE, &args->optimizer, "play the step of another optimizer"},
        {"phase", MCP_OPT_CHOICE, &args->phase, "of one_bit_adam's run"},
        {"report", MCP_OPT_FILE, &args->report,
         "the step with charts: a page (FILE.html) or Markdown (FILE.md)"},
        {"timeline", MCP_OPT_FILE, &args->timeline,
         "write every op's start and end to FILE (FILE.jsonl: as JSON lines)"},
        {"trace", MCP_OPT_FILE, &args->trace, "the same for chrome://tracing and ui.perfetto.dev"},
        {"ranks", MCP_OPT_STRING, &args->ranks,
         "whose ops these files hold: all, or 0,8..15 (the first rank of each stage)"},
        {"max-spans", MCP_OPT_COUNT64, &args->max_spans,
         "ops in such a file at most, from the step's beginning (a trace 100000, a timeline "
         "1000000)"},
        {"Noise and faults", MCP_OPT_HEADING, NULL, NULL},
        {"noise", MCP_OPT_FRAC, &args->noise,
         "spread of compute time by rank and slot (standard deviation of its logarithm)"},
        {"seed", MCP_OPT_COUNT64, &args->seed, "of the noise"},
        {"slow-rank", MCP_OPT_STRING, &args->slow_rank,
         "RANK:FACTOR: one rank computes that many times slower"},
        {"slow-link", MCP_OPT_STRING, &args->slow_link,
         "TIER:FACTOR: the tier's links have that many times less bandwidth; TIER:FACTOR@RANK: "
         "those of one rank"},
        {"dead-link", MCP_OPT_STRING, &args->dead_link,
         "TIER: the tier is gone, its traffic takes the next one's links; TIER@RANK: one rank's, "
         "which then uses a neighbour's, if it has one"},
        {"fail-rank", MCP_OPT_STRING, &args->fail_rank,
         "RANK@TIME: one rank dies so long after the step's begin (3@2.5s); who waits from when "
         "on"},
        {"failure-timeout", MCP_OPT_STRING, &args->failure_timeout,
         "after which a rank gives up waiting"},
    };
    const struct mcp_usage usage = {
        .command = "sim",
        .summary = "play a plan in virtual time and show where time and memory go",
        .synopsis = "PLAN [options]",
        .description = description,
        .min_operands = 1,
        .max_operands = 1,
        .options = options,
        .num_options = MCP_COUNT_OF(options),
        .examples = examples,
    };
    return mcp_options_parse(ctx, &usage, argc, argv);
}

/* Those with a name of their own, and DualPipe with two copies. */
static const char *const *schedule_names(struct mcp_arena *arena)
{
    const char **names = MCP_ARRAY(arena, MCP_DUALPIPE_TWICE + 1, const char *);
    for (int s = 0; s < MCP_DUALPIPE_TWICE; s++)
        names[s] = mcp_schedule_names[s];
    names[MCP_DUALPIPE_TWICE] = mcp_dualpipe_name;
    return names;
}

enum mcp_status mcp_cmd_sim(struct mcp_context *ctx, int argc, char **argv)
{
    struct mcp_sim_args args = {
        .seed = 1,
        .failure_timeout = "10min",
        .level = {-1, level_names, 2},
        .schedule = {-1, schedule_names(ctx->arena), MCP_DUALPIPE_TWICE + 1},
        .optimizer = {-1, mcp_optimizer_names, MCP_NUM_OPTIMIZERS},
        .phase = {-1, mcp_phase_names, MCP_NUM_PHASES},
        .collective_algorithm = {-1, mcp_collective_algorithm_names,
                                 MCP_NUM_COLLECTIVE_ALGORITHMS}};
    struct mcp_sim_case *played;
    if (!parse(ctx, &args, argc, argv))
        return ctx->status;
    if (args.report != NULL)
        MCP_TRY(mcp_report_file_check(args.report, &ctx->err));
    played = MCP_NEW(ctx->arena, struct mcp_sim_case);
    const struct mcp_plan_changes changes = {args.schedule.value, args.optimizer.value,
                                             args.phase.value, args.overlap, args.placement};
    MCP_TRY(mcp_plan_file_load(ctx, ctx->operands[0], &changes, &played->file));
    return simulate(ctx, &args, played);
}
