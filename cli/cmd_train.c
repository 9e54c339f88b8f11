/* cli/cmd_train.c: mcpplan train: builds a plan's step program and starts its ranks. */
#include "cli/child.h"
#include "cli/commands.h"
#include "cli/launcher.h"
#include "cli/plan_file.h"
#include "cli/train_backend.h"
#include "cli/train_places.h"
#include "cli/train_ranks.h"
#include "exec/run_options.h"
#include "step/build.h"
#include "step/dump.h"
#include "step/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct train_args {
    struct mcp_choice backend, decay;
    int threads;
    bool dry_run;
    struct mcp_run_options run;
    int max_restarts, watch_every;
    int seed, steps, freeze_step, warmup_steps, decay_steps, checkpoint_every;
    int loss_scale_window, eval_every, eval_steps;
};

/* --- the command line of the ranks --- */

struct words {
    struct mcp_arena *arena;
    const char **items;
    size_t count, capacity;
};

static void add(struct words *words, const char *word)
{
    words->items =
        mcp_grow(words->arena, words->items, words->count, &words->capacity, sizeof *words->items);
    words->items[words->count++] = word;
}

/* Ranks bind themselves to cores. */
static void add_mpirun(struct words *words, int world)
{
    static const char *const free[] = {"--oversubscribe", "--bind-to", "none"};
    add(words, "mpirun");
    add(words, "-np");
    add(words, mcp_format(words->arena, "%d", world));
    for (size_t i = 0; i < MCP_COUNT_OF(free); i++)
        add(words, free[i]);
}

/* What the ranks find in their environment, unless the user has said otherwise. */
static void set_environment(struct mcp_arena *arena, int threads)
{
    if (threads > 0)
        setenv("OMP_NUM_THREADS", mcp_format(arena, "%d", threads), 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    if (geteuid() == 0) { /* Open MPI wants to hear it twice */
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
}

static enum mcp_status start_once(struct mcp_context *ctx, const struct train_args *args, int world,
                                  bool is_mpirun)
{
    struct words words = {.arena = ctx->arena};
    const char **options;
    set_environment(ctx->arena, args->threads);
    if (is_mpirun)
        add_mpirun(&words, world);
    if (is_mpirun && args->backend.value == MCP_TRAIN_CUDA)
        MCP_TRY(mcp_train_set_meeting(ctx));
    add(&words, mcp_train_executor(ctx->arena, (enum mcp_train_backend)args->backend.value));
    int count = mcp_run_options_words(ctx->arena, &args->run, &options);
    for (int i = 0; i < count; i++)
        add(&words, options[i]);
    add(&words, NULL);
    return mcp_train_ranks(words.items, is_mpirun, &ctx->err);
}

/* Do we start the ranks, or are we one of them? Where a launcher is about, says so. */
static bool starts_mpirun(struct mcp_context *ctx, int world)
{
    const struct mcp_launcher launcher = mcp_launcher_find(ctx->arena);
    if (world == 1)
        return false;
    if (launcher.sign != NULL && launcher.starts_ranks && launcher.is_first)
        mcp_note("%s: this is one of the ranks that a launcher has started", launcher.sign);
    if (launcher.sign != NULL && !launcher.starts_ranks)
        mcp_note("%s: no launcher has started several ranks, so mpirun starts %d", launcher.sign,
                 world);
    return !launcher.starts_ranks;
}

/* A run that failed begins again from the newest checkpoint, but not one that was asked to
 * end; what the user gave wrong would fail again. */
static enum mcp_status start(struct mcp_context *ctx, struct train_args *args, int world)
{
    const bool is_mpirun = starts_mpirun(ctx, world);
    enum mcp_status status = start_once(ctx, args, world, is_mpirun);
    for (int i = 1; status == MCP_RUN_FAILURE && i <= args->max_restarts; i++) {
        if (mcp_child_asked() != 0)
            break;
        mcp_note("%s; restart %d of %d from the newest checkpoint", ctx->err.text, i,
                 args->max_restarts);
        args->run.resume = true;
        status = start_once(ctx, args, world, is_mpirun);
    }
    if (status == MCP_OK && mcp_child_asked() != 0)
        mcp_note("ended as asked by signal %d (%s)%s", mcp_child_asked(),
                 strsignal(mcp_child_asked()),
                 args->run.checkpoint_dir != NULL ? ": --resume goes on" : "; nothing was saved");
    return status;
}

/* --- the program --- */

static enum mcp_status write_program(struct mcp_context *ctx, const struct mcp_program *program,
                                     const char *path)
{
    const char *text = mcp_json_text(ctx->arena, mcp_program_to_json(ctx->arena, program));
    return mcp_file_replace(path, text, strlen(text), &ctx->err);
}

/* The plan's program of a phase; -1: of the plan's own. */
static enum mcp_status write_phase(struct mcp_context *ctx, int phase, const char *path)
{
    struct mcp_plan_file *file = MCP_NEW(ctx->arena, struct mcp_plan_file);
    struct mcp_plan_changes changes = mcp_plan_unchanged();
    changes.phase = phase;
    MCP_TRY(mcp_plan_file_load(ctx, ctx->operands[0], &changes, file));
    return write_program(ctx, &file->program, path);
}

/* Of 1-bit Adam both phases, the second one where the run gets to it. */
static enum mcp_status write_programs(struct mcp_context *ctx, const struct mcp_job *job,
                                      const char *folder, struct mcp_run_options *run)
{
    run->program = mcp_format(ctx->arena, "%s/program.json", folder);
    if (job->optimizer != MCP_OPTIMIZER_ONE_BIT_ADAM)
        return write_phase(ctx, -1, run->program);
    MCP_TRY(write_phase(ctx, MCP_PHASE_WARM, run->program));
    if (run->freeze_step == 0)
        run->freeze_step = job->freeze_step;
    if (run->freeze_step == 0)
        run->freeze_step = (int64_t)ceil(MCP_WARM_FRAC * (double)run->steps);
    run->frozen_program = mcp_format(ctx->arena, "%s/frozen.json", folder);
    return write_phase(ctx, MCP_PHASE_FROZEN, run->frozen_program);
}

/* The plan's forwards alone, for --eval-data. */
static enum mcp_status write_evaluation(struct mcp_context *ctx, const struct mcp_plan_file *file,
                                        const char *folder, struct mcp_run_options *run)
{
    struct mcp_program *program = MCP_NEW(ctx->arena, struct mcp_program);
    if (run->eval_data == NULL)
        return MCP_OK;
    mcp_program_build_evaluation(ctx->arena, &file->question, &file->plan, program);
    MCP_TRY(mcp_program_verify(ctx->arena, program, &ctx->err));
    run->eval_program = mcp_format(ctx->arena, "%s/evaluation.json", folder);
    return write_program(ctx, program, run->eval_program);
}

/* The peak is known where the plan is for CPUs: of others' machines it would say nothing. */
static void set_flops(const struct mcp_plan_file *file, struct mcp_run_options *run)
{
    const double peak = file->cluster.gpu.peak_flops_per_s[file->job.precision];
    run->flops_per_token =
        3 * mcp_model_flops_per_token_forward(&file->model, file->job.sequence_length);
    if (mcp_same(file->cluster.gpu.name, "cpu") && isfinite(peak))
        run->peak_flops_per_s = peak * mcp_plan_world(&file->plan);
}

/* What the plan's options ask of programs that files bring. */
static enum mcp_status check_programs(const struct mcp_run_options *run, const struct mcp_job *job,
                                      struct mcp_error *err)
{
    if (run->program != NULL)
        return MCP_OK;
    if (run->frozen_program != NULL)
        return mcp_fail(err, MCP_USAGE,
                        "--frozen-program is the second of two files: --program names the first");
    if (run->freeze_step > 0 && job->optimizer != MCP_OPTIMIZER_ONE_BIT_ADAM)
        return mcp_fail(err, MCP_INVALID,
                        "--freeze-step is of optimizer one_bit_adam; the plan's is %s",
                        mcp_optimizer_names[job->optimizer]);
    return MCP_OK;
}

/* --json and -o: what rank 0 has left. Of several ranks' processes one has it. */
static enum mcp_status put_summary(struct mcp_context *ctx, const char *path)
{
    const struct mcp_text nothing = mcp_text_new(ctx->arena);
    struct mcp_json *json;
    if (!mcp_launcher_find(ctx->arena).is_first)
        return MCP_OK;
    MCP_TRY(mcp_json_read(ctx->arena, path, &json, &ctx->err));
    return mcp_output_result(ctx, &nothing, json);
}

/* With programs in `folder` that no file brings. */
static enum mcp_status train_in(struct mcp_context *ctx, struct train_args *args,
                                const struct mcp_plan_file *file, const char *folder)
{
    struct mcp_run_options *run = &args->run;
    if (run->program == NULL)
        MCP_TRY(write_programs(ctx, &file->job, folder, run));
    MCP_TRY(write_evaluation(ctx, file, folder, run));
    const bool wanted = ctx->json || ctx->output_path != NULL;
    if (wanted)
        run->summary = mcp_format(ctx->arena, "%s/summary.json", folder);
    MCP_TRY(start(ctx, args, mcp_plan_world(&file->plan)));
    return wanted ? put_summary(ctx, run->summary) : MCP_OK;
}

static enum mcp_status train(struct mcp_context *ctx, struct train_args *args)
{
    static const char *const names[] = {"program", "frozen", "evaluation", "summary"};
    struct mcp_plan_file *file = MCP_NEW(ctx->arena, struct mcp_plan_file);
    mcp_child_watch();
    const struct mcp_plan_changes same = mcp_plan_unchanged();
    const char *folder;
    MCP_TRY(mcp_plan_file_load(ctx, ctx->operands[0], &same, file));
    if (args->dry_run)
        return mcp_train_places(ctx, &file->plan, args->threads);
    set_flops(file, &args->run);
    if (args->backend.value == MCP_TRAIN_CUDA)
        mcp_train_set_planned(file, &args->run);
    MCP_TRY(check_programs(&args->run, &file->job, &ctx->err));
    MCP_TRY(mcp_temporary_folder(ctx, &folder));
    enum mcp_status status = train_in(ctx, args, file, folder);
    for (size_t i = 0; i < MCP_COUNT_OF(names); i++)
        unlink(mcp_format(ctx->arena, "%s/%s.json", folder, names[i]));
    rmdir(folder);
    return status;
}

enum mcp_status mcp_cmd_train(struct mcp_context *ctx, int argc, char **argv)
{
    const struct mcp_run_options standard = mcp_run_options_default();
    struct train_args args = {
        .backend = {MCP_TRAIN_CPU, mcp_train_backend_names, MCP_NUM_TRAIN_BACKENDS},
        .decay = {MCP_DECAY_CONSTANT, mcp_decay_names, MCP_NUM_DECAYS},
        .run = standard,
        .seed = (int)standard.seed,
        .warmup_steps = (int)standard.warmup_steps,
        .loss_scale_window = (int)standard.loss_scale_window,
        .watch_every = (int)standard.watch_every};
    const struct mcp_option options[] = {
        {"What to train on", MCP_OPT_HEADING, NULL, NULL},
        {"data", MCP_OPT_FILE, &args.run.data,
         "tokens that `mcpplan data tokenize` wrote, or a folder"},
        {"steps", MCP_OPT_COUNT, &args.steps, "of training"},
        {"seed", MCP_OPT_INT, &args.seed, "of new weights and of the order of data"},
        {"eval-data", MCP_OPT_FILE, &args.run.eval_data,
         "tokens to find the loss of without learning from them"},
        {"eval-every", MCP_OPT_COUNT, &args.eval_every, "steps; default: after the last one alone"},
        {"eval-steps", MCP_OPT_COUNT, &args.eval_steps,
         "batches of each evaluation; default: all that --eval-data holds"},
        {"init-from", MCP_OPT_FILE, &args.run.init_from,
         "weights to begin with: a model's folder or file that transformers saved"},
        {"residual-init-scale", MCP_OPT_DOUBLE, &args.run.residual_init_scale,
         "of what new residual projections begin with"},
        {"How it learns", MCP_OPT_HEADING, NULL, NULL},
        {"learning-rate", MCP_OPT_DOUBLE, &args.run.learning_rate, "its highest"},
        {"warmup-steps", MCP_OPT_INT, &args.warmup_steps, "until it is reached"},
        {"decay", MCP_OPT_CHOICE, &args.decay, "how it falls afterwards"},
        {"decay-steps", MCP_OPT_COUNT, &args.decay_steps,
         "after those of warm-up until the lowest is reached; default: the rest of steps"},
        {"min-learning-rate", MCP_OPT_DOUBLE, &args.run.min_learning_rate, "the lowest"},
        {"clip-norm", MCP_OPT_DOUBLE, &args.run.clip_norm,
         "of all gradients together; 0: no clipping"},
        {"weight-decay", MCP_OPT_DOUBLE, &args.run.weight_decay, "AdamW's; of matrices"},
        {"beta1", MCP_OPT_DOUBLE, &args.run.beta1, "Adam's"},
        {"beta2", MCP_OPT_DOUBLE, &args.run.beta2, "Adam's"},
        {"epsilon", MCP_OPT_DOUBLE, &args.run.epsilon, "Adam's"},
        {"initial-loss-scale", MCP_OPT_DOUBLE, &args.run.initial_loss_scale,
         "of fp16: it halves after a step whose gradients overflow"},
        {"loss-scale-window", MCP_OPT_COUNT, &args.loss_scale_window,
         "steps without overflow after which it doubles"},
        {"freeze-step", MCP_OPT_COUNT, &args.freeze_step,
         "first step of 1-bit Adam with a frozen variance; default: the plan's, or a fifth of "
         "steps"},
        {"How it runs", MCP_OPT_HEADING, NULL, NULL},
        {"backend", MCP_OPT_CHOICE, &args.backend,
         "what computes: CPUs, or a GPU a rank (mcpplan-exec-cuda)"},
        {"threads", MCP_OPT_COUNT, &args.threads, "of a rank; default: cores over ranks"},
        {"dry-run", MCP_OPT_FLAG, &args.dry_run,
         "say which rank would run on which cores, and end"},
        {"program", MCP_OPT_FILE, &args.run.program, "run this step program (plan --dump-program)"},
        {"frozen-program", MCP_OPT_FILE, &args.run.frozen_program,
         "from --freeze-step on this one"},
        {"no-verify", MCP_OPT_FLAG, &args.run.no_verify, "run a program file without judging it"},
        {"timeout-s", MCP_OPT_DOUBLE, &args.run.timeout_s,
         "until what waits for another rank has failed; 0: it waits for ever"},
        {"max-restarts", MCP_OPT_COUNT, &args.max_restarts,
         "from the newest checkpoint, when ranks are lost"},
        {"What it leaves", MCP_OPT_HEADING, NULL, NULL},
        {"checkpoint-dir", MCP_OPT_FILE, &args.run.checkpoint_dir,
         "folder of checkpoints; the last two are kept"},
        {"checkpoint-every", MCP_OPT_COUNT, &args.checkpoint_every,
         "steps; one more at the end, and on SIGTERM"},
        {"resume", MCP_OPT_FLAG, &args.run.resume,
         "go on from the newest whole checkpoint, of any layout"},
        {"export", MCP_OPT_FILE, &args.run.export_path,
         "weights of the last step, as safetensors that transformers reads"},
        {"tensorboard-dir", MCP_OPT_FILE, &args.run.tensorboard_dir, "event files for TensorBoard"},
        {"metrics", MCP_OPT_FILE, &args.run.metrics, "one JSON object a step"},
        {"watch-every", MCP_OPT_INT, &args.watch_every,
         "steps between looks at norms of parameters and at activations; 0: never"},
        {"timeline", MCP_OPT_FILE, &args.run.timeline,
         "what each rank did when, in the fastest step"},
    };
    const struct mcp_usage usage = {
        .command = "train",
        .summary = "train the model that was planned, in the layout that was planned",
        .synopsis = "PLAN --data FILE --steps N [options]",
        .description =
            "PLAN is a file that plan -o wrote. Its step program is verified and run by as many "
            "ranks as it has: mpirun starts them, unless this is one of several ranks that mpirun "
            "or srun has started. The program that runs is the one that was priced and played.",
        .min_operands = 1,
        .max_operands = 1,
        .options = options,
        .num_options = MCP_COUNT_OF(options),
        .examples =
            "mcpplan train plan.json --data corpus.tokens --steps 1000 --metrics run.jsonl\n"
            "mcpplan train plan.json --data corpus.tokens --steps 20 --timeline run.json\n"
            "mpirun -np 4 mcpplan train plan.json --data corpus.tokens --steps 1000\n",
    };
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return ctx->status;
    if (args.run.data == NULL && !args.dry_run)
        return mcp_options_need(&usage, "data", &ctx->err);
    if (args.steps == 0 && !args.dry_run)
        return mcp_options_need(&usage, "steps", &ctx->err);
    if (args.run.eval_data == NULL && (args.eval_every > 0 || args.eval_steps > 0))
        return mcp_fail(&ctx->err, MCP_USAGE, "--eval-every and --eval-steps need --eval-data");
    if ((args.max_restarts > 0 || args.run.export_path != NULL) && args.run.checkpoint_dir == NULL)
        return mcp_fail(&ctx->err, MCP_USAGE, "--max-restarts and --export need --checkpoint-dir");
    args.run.steps = args.steps;
    args.run.watch_every = args.watch_every;
    args.run.freeze_step = args.freeze_step;
    args.run.loss_scale_window = args.loss_scale_window;
    args.run.eval_every = args.eval_every;
    args.run.eval_steps = args.eval_steps;
    args.run.seed = args.seed;
    args.run.warmup_steps = args.warmup_steps;
    args.run.decay_steps = args.decay_steps;
    args.run.decay = args.decay.value;
    args.run.checkpoint_every = args.checkpoint_every;
    return train(ctx, &args);
}
