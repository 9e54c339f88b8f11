/* cli/cmd_plan.c: mcpplan plan: search, or predict what is pinned. */
#include "cli/commands.h"
#include "cli/plan_options.h"
#include "cli/plan_refine.h"
#include "cli/plan_report.h"
#include "cli/plan_schedule.h"
#include "cli/plan_view.h"
#include "cli/plan_watch.h"
#include "core/minmax.h"
#include "core/units.h"
#include "planner/choice.h"
#include "planner/halves.h"
#include "planner/rule.h"
#include "step/build.h"
#include "step/dump.h"
#include "step/verify.h"

enum { MOST_TOP = 100 };

/* The answer */

/* What was found, moved to where --placement says. */
static enum mcp_status place_found(struct mcp_context *ctx, const struct mcp_plan_view *view)
{
    for (int i = 0; i < view->answer->count; i++)
        MCP_TRY(mcp_switch_placement(ctx->arena, view->placement, view->question->cluster,
                                     &view->answer->found[i].plan, &ctx->err));
    return MCP_OK;
}

static void predict(struct mcp_arena *arena, struct mcp_plan_view *view)
{
    const struct mcp_answer *answer = view->answer;
    int count = answer->count > 0 ? answer->count : 1;
    struct mcp_pricer *pricer = mcp_pricer_new(arena, view->question);
    struct mcp_prediction *predictions = MCP_ARRAY(arena, count, struct mcp_prediction);
    for (int i = 0; i < answer->count; i++)
        mcp_estimate(pricer, &answer->found[i].plan, &predictions[i]);
    for (int i = 0; i < answer->count && view->placement != NULL; i++)
        answer->found[i].iteration_s = predictions[i].iteration_s;
    if (answer->count == 0)
        mcp_estimate(pricer, &view->plan, &predictions[0]);
    view->predictions = predictions;
    view->prediction = &predictions[0];
    view->priced = true;
}

static void refuse(struct mcp_refusals *refusals, const char *rule, const char *text)
{
    refusals->items[0] = (struct mcp_refusal){rule, text};
    refusals->count = 1;
}

static const char *say_memory(struct mcp_arena *arena, const struct mcp_plan_view *view)
{
    const struct mcp_prediction *p = view->prediction;
    const double gib = (double)(1 << 30);
    return mcp_format(arena,
                      "%s needs %.1f GiB on a %s, %.1f GiB more than %.2f of its memory, %.1f GiB",
                      view->predicts ? "the plan" : "the smallest plan",
                      (double)p->peak_memory_bytes / gib, mcp_plan_device(view->question),
                      (double)(p->peak_memory_bytes - p->memory_limit_bytes) / gib,
                      view->question->job->memory_limit_frac, (double)p->memory_limit_bytes / gib);
}

static const char *say_rule(struct mcp_arena *arena, const struct mcp_plan_view *view,
                            const char *rule)
{
    const struct mcp_search_record *record = &view->answer->record;
    bool pipeline = rule == mcp_rule_pipeline;
    return mcp_format(arena, "no plan keeps the %s rule (%s): it refuses %s of %s candidates",
                      pipeline ? "pipeline" : "batch",
                      pipeline ? "at most a fifth as many stages as layers"
                               : "global / data divisible by microbatch x pipeline",
                      mcp_show_integer(arena, mcp_search_refused(record, rule)),
                      mcp_show_integer(arena, record->candidates));
}

/* The plan that needs the least memory of all; false: ctrl-C came before there was one. */
static bool find_smallest(struct mcp_arena *arena, struct mcp_plan_view *view,
                          struct mcp_search_options options)
{
    struct mcp_answer answer;
    options.smallest = true;
    mcp_search(arena, view->question, view->space, &options, &answer);
    view->plan = answer.smallest.plan;
    view->has_plan = answer.has_smallest;
    return answer.has_smallest;
}

static struct mcp_choice_options choice_options(const struct mcp_search_options *options, int top)
{
    return (struct mcp_choice_options){.top = top,
                                       .pool_frac = 0.02,
                                       .progress = options->progress,
                                       .progress_context = options->progress_context,
                                       .stop = options->stop};
}

/* The choice where bounds alone do not say what is required. */
static enum mcp_status choose(struct mcp_context *ctx, const struct mcp_search_options *asked,
                              const struct mcp_plan_space *space, struct mcp_plan_view *view,
                              struct mcp_answer *answer)
{
    if (asked->objective == MCP_OBJECTIVE_MEMORY)
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "--require can say more than bounds with --objective time and cost only");
    if (asked->exhaustive)
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "--method exhaustive knows bounds alone; leave it out, or require less");
    if (asked->uniform)
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "--uniform-stages knows bounds alone; leave it out, or require less");
    const struct mcp_choice_options options = choice_options(asked, asked->top);
    mcp_choose(ctx->arena, view->question, space, view->requirements, &options, answer);
    view->chosen = true;
    return MCP_OK;
}

/* Which requirement, left out, leaves a plan. */
static void drop_requirements(struct mcp_context *ctx, const struct mcp_search_options *asked,
                              struct mcp_plan_view *view)
{
    const struct mcp_requirements *all = view->requirements;
    const struct mcp_choice_options options = choice_options(asked, 1);
    for (int i = 0; i < all->count && view->num_remedies < MCP_MOST_REMEDIES_SHOWN; i++) {
        struct mcp_answer answer;
        struct mcp_requirements rest = {0,
                                        MCP_ARRAY(ctx->arena, all->count, struct mcp_requirement)};
        for (int k = 0; k < all->count; k++)
            if (k != i)
                rest.items[rest.count++] = all->items[k];
        struct mcp_plan_space space = view->asked;
        if (mcp_require_bound(&rest, &space, NULL) != MCP_OK)
            continue;
        mcp_choose(ctx->arena, view->question, &space, &rest, &options, &answer);
        if (answer.count > 0)
            view->remedies[view->num_remedies++] = (struct mcp_remedy){
                "require", mcp_format(ctx->arena, "without %s", all->items[i].text), 0,
                answer.found[0]};
    }
}

/* Plans fit, but none of them is what is required. */
static void explain_required(struct mcp_context *ctx, const struct mcp_search_options *options,
                             struct mcp_plan_view *view)
{
    const struct mcp_search_record *record = &view->answer->record;
    refuse(&view->refusals, mcp_rule_required,
           mcp_format(ctx->arena, "no plan that fits %s everything that is required",
                      record->proven_optimal ? "meets" : "was found that meets"));
    drop_requirements(ctx, options, view);
}

static enum mcp_status interrupted(struct mcp_context *ctx)
{
    return mcp_fail(&ctx->err, MCP_RUN_FAILURE,
                    "interrupted before a plan was found that fits; whether one does is not known");
}

/* Nothing fits: the closest plan, and what stands against it. */
static enum mcp_status explain(struct mcp_context *ctx, const struct mcp_search_options *options,
                               struct mcp_plan_view *view)
{
    if (view->stopped)
        return interrupted(ctx);
    if (view->chosen) {
        explain_required(ctx, options, view);
        return MCP_OK;
    }
    const char *rule = mcp_binding_rule(&view->answer->record);
    if (rule == mcp_rule_memory) {
        if (!find_smallest(ctx->arena, view, *options))
            return interrupted(ctx);
        predict(ctx->arena, view);
        refuse(&view->refusals, rule, say_memory(ctx->arena, view));
    } else if (rule == mcp_rule_batch || rule == mcp_rule_pipeline) {
        refuse(&view->refusals, rule, say_rule(ctx->arena, view, rule));
    } else if (mcp_least_illegal(ctx->arena, view->question, view->space, &view->plan,
                                 &view->refusals)) {
        mcp_plan_view_fail(ctx->arena, view, &ctx->err);
        return MCP_INVALID;
    } else {
        return mcp_fail(&ctx->err, MCP_INVALID, "no degrees within the bounds multiply to %d %ss",
                        mcp_cluster_gpus(view->question->cluster), mcp_plan_device(view->question));
    }
    mcp_nearest_changes(ctx->arena, view->question, view->space, options, view->answer,
                        &view->changes);
    if (rule == mcp_rule_memory)
        view->num_remedies = mcp_remedies(ctx->arena, view->question, view->space, options,
                                          view->prediction->peak_memory_bytes, view->remedies);
    return MCP_OK;
}

/* One value left of all that is pinned in a launch script: what the schedule, the
 * kinds of context and sequence parallelism may still be does not count. */
static bool predicts(struct mcp_arena *arena, const struct mcp_question *question,
                     const struct mcp_plan_space *space)
{
    struct mcp_layout *layouts;
    struct mcp_choices choices;
    if (mcp_space_layouts(arena, question, space, &layouts) != 1)
        return false;
    mcp_space_choices(arena, question, space, &layouts[0], &choices);
    for (int i = 1; i < choices.num_interleaves; i++)
        if (choices.interleaves[i].virtual_stages != choices.interleaves[0].virtual_stages)
            return false;
    return choices.microbatches.count == 1 && choices.zero_stages.count == 1 &&
           choices.recomputes.count == 1;
}

static void note_lifted(const struct mcp_plan_view *view)
{
    if (view->space->pipeline_rule && mcp_space_pinned(view->space, MCP_KNOB_PIPELINE) &&
        !mcp_pipeline_rule(view->question, &view->plan))
        mcp_note("pipeline_parallel=%d is pinned, so the pipeline rule, which would refuse it, is "
                 "lifted",
                 view->plan.pipeline_parallel);
    if (view->space->batch_rule && mcp_space_pinned(view->space, MCP_KNOB_MICROBATCH) &&
        !mcp_batch_rule(view->question, &view->plan))
        mcp_note("microbatch_size=%d is pinned, so the batch rule, which would refuse the plan, is "
                 "lifted",
                 view->plan.microbatch_size);
}

/* --require, and what of it bounds can say. */
static enum mcp_status read_requirements(struct mcp_context *ctx, const struct mcp_plan_args *args,
                                         struct mcp_plan_view *view)
{
    struct mcp_requirements *list = MCP_NEW(ctx->arena, struct mcp_requirements);
    list->count = args->require.count;
    list->items = MCP_ARRAY(ctx->arena, list->count, struct mcp_requirement);
    view->requirements = list;
    for (int i = 0; i < list->count; i++)
        MCP_TRY(
            mcp_requirement_parse(ctx->arena, args->require.items[i], &list->items[i], &ctx->err));
    return MCP_OK;
}

/* `options` hold the watch; once the answer is known it is for what is said beside it. */
static void look_aside(const struct mcp_search_options *options, const char *what)
{
    if (options->progress)
        mcp_plan_watch_aside(options->progress_context, what);
}

/* Are all pools of a mixed cluster together better than one alone? */
static void compare_halves(struct mcp_context *ctx, const struct mcp_search_options *options,
                           struct mcp_plan_view *view)
{
    if (view->predicts || view->chosen || view->stopped)
        return;
    mcp_halves(ctx->arena, view->question, view->space, options, &view->halves);
    if (mcp_plan_watch_stopped())
        return;
    view->halves_text = mcp_halves_text(ctx->arena, &view->halves,
                                        view->answer->count > 0 ? view->prediction : NULL);
}

static enum mcp_status search(struct mcp_context *ctx, const struct mcp_search_options *options,
                              const struct mcp_plan_space *asked, struct mcp_plan_view *view)
{
    struct mcp_plan_space *space = MCP_NEW(ctx->arena, struct mcp_plan_space);
    struct mcp_answer *answer = MCP_NEW(ctx->arena, struct mcp_answer);
    *space = *asked;
    MCP_TRY(mcp_require_bound(view->requirements, space, &ctx->err));
    MCP_TRY(mcp_space_check(view->question, space, &ctx->err));
    view->predicts = predicts(ctx->arena, view->question, space);
    if (view->predicts)
        space->pipeline_rule = space->batch_rule = false;
    view->answer = answer;
    view->space = space;
    view->asked = *asked;
    if (mcp_require_more(view->requirements)) {
        MCP_TRY(choose(ctx, options, space, view, answer));
    } else {
        mcp_search(ctx->arena, view->question, space, options, answer);
    }
    view->stopped = mcp_plan_watch_stopped() && !answer->record.proven_optimal;
    look_aside(options, "looking for what would change that");
    if (answer->count == 0) {
        compare_halves(ctx, options, view);
        return explain(ctx, options, view);
    }
    mcp_plan_schedule_polish(ctx->arena, view->question, view->requirements, &answer->found[0]);
    MCP_TRY(place_found(ctx, view));
    if (view->refine > 0)
        mcp_plan_refine(ctx, view->refine, options, answer, view);
    if (answer->count > view->top)
        answer->count = view->top;
    view->plan = answer->found[0].plan;
    view->has_plan = true;
    predict(ctx->arena, view);
    compare_halves(ctx, options, view);
    note_lifted(view);
    return MCP_OK;
}

/* What a search finds where the rule of thumb's plan is refused. */
static void offer_search(struct mcp_context *ctx, const struct mcp_search_options *options,
                         const struct mcp_plan_space *space, struct mcp_plan_view *view)
{
    struct mcp_answer answer;
    struct mcp_search_options one = *options;
    one.top = 1;
    mcp_search(ctx->arena, view->question, space, &one, &answer);
    if (answer.count > 0)
        view->changes.items[view->changes.count++] = (struct mcp_change){
            MCP_CHANGE_METHOD, "method=search instead of rule", answer.found[0]};
}

/* The rule of thumb's degrees, and the best of what it leaves open. */
static enum mcp_status by_rule(struct mcp_context *ctx, const struct mcp_search_options *options,
                               struct mcp_plan_space space, struct mcp_plan_view *view)
{
    view->arithmetic = mcp_rule_arithmetic(ctx->arena, view->question);
    view->plan = mcp_rule_plan(view->question);
    view->has_plan = true;
    view->answer = MCP_NEW(ctx->arena, struct mcp_answer);
    for (int knob = 0; knob < MCP_NUM_KNOBS; knob++)
        if (space.knobs[knob].given && knob <= MCP_KNOB_DATA)
            return mcp_fail(&ctx->err, MCP_USAGE,
                            "--method rule chooses %s itself; leave it out, or use --method search",
                            mcp_knob_names[knob]);
    if (!mcp_rule_legal(ctx->arena, view->question, &view->plan, &view->refusals)) {
        offer_search(ctx, options, &space, view);
        return MCP_OK;
    }
    mcp_plan_uniform_chunks(ctx->arena, &view->plan, view->question->model->num_layers,
                            MCP_RECOMPUTE_NONE); /* which knobs' values ask for */
    for (int knob = MCP_KNOB_TENSOR; knob <= MCP_KNOB_DATA; knob++)
        mcp_space_pin(&space, (enum mcp_knob)knob,
                      mcp_knob_value((enum mcp_knob)knob, &view->plan));
    return search(ctx, options, &space, view);
}

static enum mcp_status dump_program(struct mcp_context *ctx, const struct mcp_plan_view *view,
                                    const char *path)
{
    struct mcp_program program;
    mcp_program_build(ctx->arena, view->question, &view->plan, &program);
    MCP_TRY(mcp_program_verify(ctx->arena, &program, &ctx->err));
    return mcp_output_file(ctx, path, mcp_program_to_json(ctx->arena, &program));
}

/* A plan.json to hold against the answer; its own question may be another. */
static enum mcp_status load_rival(struct mcp_context *ctx, const struct mcp_question *question,
                                  const char *path, struct mcp_rival *out)
{
    struct mcp_json *json, *part;
    struct mcp_model model;
    struct mcp_job job;
    struct mcp_error ignored;
    MCP_TRY(mcp_json_read(ctx->arena, path, &json, &ctx->err));
    MCP_TRY(mcp_plan_from_json(ctx->arena, json, &out->plan, &ctx->err));
    MCP_TRY(mcp_plan_file_done(json, &ctx->err));
    if (out->plan.rank_map != NULL)
        MCP_TRY(mcp_plan_place(ctx->arena, &out->plan, question->cluster,
                               out->plan.rank_map->gpu_of_rank, &ctx->err));
    out->name = path;
    if (mcp_json_object(json, "model", &part, &ignored) != MCP_OK ||
        mcp_model_from_json(ctx->arena, part, &model, &ignored) != MCP_OK ||
        mcp_json_object(json, "job", &part, &ignored) != MCP_OK ||
        mcp_job_from_json(ctx->arena, part, &job, &ignored) != MCP_OK)
        return MCP_OK; /* a plan alone */
    if (!mcp_same(model.name, question->model->name) ||
        job.global_batch_size != question->job->global_batch_size ||
        job.sequence_length != question->job->sequence_length)
        out->made_for =
            mcp_format(ctx->arena, "%s, batch %s x %s tokens; priced for the question at hand",
                       mcp_printable(ctx->arena, model.name),
                       mcp_show_integer(ctx->arena, job.global_batch_size),
                       mcp_show_integer(ctx->arena, job.sequence_length));
    return MCP_OK;
}

static enum mcp_status load_rivals(struct mcp_context *ctx, const struct mcp_plan_args *args,
                                   struct mcp_plan_view *view)
{
    struct mcp_rival *rivals = MCP_ARRAY(ctx->arena, args->against.count, struct mcp_rival);
    for (int i = 0; i < args->against.count; i++) {
        MCP_TRY(load_rival(ctx, view->question, args->against.items[i], &rivals[i]));
        mcp_rival_judge(ctx->arena, view->question, &rivals[i]);
    }
    view->rivals = rivals;
    view->num_rivals = args->against.count;
    return MCP_OK;
}

/* What was asked for beside the answer. */
static enum mcp_status add_explanations(struct mcp_context *ctx, const struct mcp_plan_args *args,
                                        const struct mcp_search_options *options,
                                        struct mcp_plan_view *view)
{
    MCP_TRY(load_rivals(ctx, args, view));
    if (view->has_plan && view->priced &&
        view->question->job->optimizer == MCP_OPTIMIZER_ONE_BIT_ADAM) {
        struct mcp_phases *phases = MCP_NEW(ctx->arena, struct mcp_phases);
        mcp_phases_of(ctx->arena, view->question, &view->plan, phases);
        view->phases = phases;
    }
    if (args->savings && view->answer->count > 0) {
        struct mcp_savings *savings = MCP_NEW(ctx->arena, struct mcp_savings);
        mcp_savings_of(ctx->arena, view->question, &view->plan, savings);
        view->savings = savings;
    }
    if (args->memory_waterfall && view->priced) {
        struct mcp_memory_step *steps =
            MCP_ARRAY(ctx->arena, MCP_NUM_MEMORY_STEPS, struct mcp_memory_step);
        mcp_memory_steps(ctx->arena, view->question, &view->plan, steps);
        view->memory_steps = steps;
    }
    if (args->sensitivity && view->answer->count > 0 && !mcp_plan_watch_stopped()) {
        struct mcp_what_if *what_ifs = MCP_ARRAY(ctx->arena, MCP_NUM_WHAT_IFS, struct mcp_what_if);
        mcp_what_ifs(ctx->arena, view->question, view->space, options, &view->answer->found[0],
                     what_ifs);
        view->what_ifs = mcp_plan_watch_stopped() ? NULL : what_ifs;
    }
    return MCP_OK;
}

/* What ctrl-C cost the answer. */
static void note_interrupted(const struct mcp_plan_args *args, const struct mcp_plan_view *view)
{
    if (view->stopped)
        mcp_note("interrupted: this is the best plan found so far, which is not proven");
    else if (view->interrupted && view->refusals.count > 0)
        mcp_note("interrupted: changes nearer than these may not have been looked at");
    if (view->interrupted && args->sensitivity && view->answer->count > 0)
        mcp_note("interrupted: --sensitivity is left out");
}

/* A refused question is answered too, but leaves no file. The text says why there is no plan, and
 * what would change that; of JSON stderr tells it people. */
static enum mcp_status show(struct mcp_context *ctx, const struct mcp_plan_args *args,
                            const struct mcp_plan_view *view)
{
    bool refused = view->refusals.count > 0 && !view->predicts;
    struct mcp_text text = mcp_text_new(ctx->arena);
    mcp_plan_view_text(&text, &ctx->style, view);
    if (refused)
        ctx->output_path = NULL;
    if (!refused && args->dump_program)
        MCP_TRY(dump_program(ctx, view, args->dump_program));
    if (!refused && args->report)
        MCP_TRY(mcp_plan_report_write(ctx, args, view));
    MCP_TRY(mcp_output_result(ctx, &text, mcp_plan_view_json(ctx->arena, view)));
    if (refused && ctx->json)
        return mcp_plan_view_fail(ctx->arena, view, &ctx->err);
    ctx->err.text[0] = '\0';
    return refused ? MCP_INFEASIBLE : MCP_OK;
}

/* Searches, and all that is asked for beside the answer. */
static enum mcp_status answer(struct mcp_context *ctx, const struct mcp_plan_args *args,
                              const struct mcp_search_options *options, struct mcp_plan_view *view)
{
    const struct mcp_plan_space space = mcp_plan_space_of(args);
    MCP_TRY(args->method.value == MCP_METHOD_RULE ? by_rule(ctx, options, space, view)
                                                  : search(ctx, options, &space, view));
    return add_explanations(ctx, args, options, view);
}

enum mcp_status mcp_cmd_plan(struct mcp_context *ctx, int argc, char **argv)
{
    struct mcp_plan_args args = mcp_plan_args_default();
    struct mcp_plan_question question;
    struct mcp_plan_watch watch;
    if (!mcp_plan_args_parse(ctx, &args, argc, argv))
        return ctx->status;
    struct mcp_plan any = mcp_plan_default(); /* so that a slip is told before the search */
    MCP_TRY(mcp_plan_schedule_read(ctx, &args));
    MCP_TRY(mcp_plan_load_question(ctx, &args, &question));
    mcp_plan_schedule_note(ctx, &args, &question.stack);
    MCP_TRY(mcp_switch_placement(ctx->arena, args.placement, &question.cluster, &any, &ctx->err));
    struct mcp_plan_view view = {
        .question = &question.asked,
        .objective = (enum mcp_objective)args.objective.value,
        .method = mcp_plan_method_names[args.method.value],
        .top = args.top < MOST_TOP ? args.top : MOST_TOP,
        .refine = args.refine < MOST_TOP ? args.refine : MOST_TOP,
        .placement = args.placement,
    };
    MCP_TRY(read_requirements(ctx, &args, &view));
    struct mcp_search_options options = {
        .objective = view.objective,
        .top = mcp_max_int(view.top, view.refine),
        .exhaustive = args.method.value == MCP_METHOD_EXHAUSTIVE,
        .uniform = args.uniform_stages,
    };
    view.uniform = options.uniform || options.objective == MCP_OBJECTIVE_MEMORY;
    mcp_plan_watch_begin(&watch, &options);
    enum mcp_status status = answer(ctx, &args, &options, &view);
    view.interrupted = mcp_plan_watch_stopped();
    mcp_plan_watch_end(&watch);
    MCP_TRY(status);
    note_interrupted(&args, &view);
    return show(ctx, &args, &view);
}
