/* cli/train_options.c: the options of mcpplan train. */
#include "cli/train_options.h"

#include "cli/train_backend.h"

#include <string.h>

enum { MOST_OPTIONS = 64 };

/* Behind those that are there. */
static struct mcp_option *append(struct mcp_option *at, const struct mcp_option *options,
                                 size_t count)
{
    memcpy(at, options, count * sizeof *options);
    return at + count;
}

static struct mcp_option *add_data(struct mcp_run_options *run, struct mcp_option *at)
{
    const struct mcp_option options[] = {
        {"What to train on", MCP_OPT_HEADING, NULL, NULL},
        {"data", MCP_OPT_FILE, &run->data,
         "tokens that `mcpplan data tokenize` wrote, or a folder"},
        {"steps", MCP_OPT_COUNT64, &run->steps, "of training"},
        {"seed", MCP_OPT_INT64, &run->seed, "of new weights and of the order of data"},
        {"eval-data", MCP_OPT_FILE, &run->eval_data,
         "tokens to find the loss of without learning from them"},
        {"eval-every", MCP_OPT_COUNT64, &run->eval_every,
         "steps; default: after the last one alone"},
        {"eval-steps", MCP_OPT_COUNT64, &run->eval_steps,
         "batches of each evaluation; default: all that --eval-data holds"},
        {"init-from", MCP_OPT_FILE, &run->init_from,
         "weights to begin with: a model's folder or file that transformers saved"},
        {"residual-init-scale", MCP_OPT_DOUBLE, &run->residual_init_scale,
         "of what new residual projections begin with"},
    };
    return append(at, options, MCP_COUNT_OF(options));
}

static struct mcp_option *add_learning(struct mcp_train_args *args, struct mcp_option *at)
{
    struct mcp_run_options *run = &args->run;
    const struct mcp_option options[] = {
        {"How it learns", MCP_OPT_HEADING, NULL, NULL},
        {"learning-rate", MCP_OPT_DOUBLE, &run->learning_rate, "its highest"},
        {"warmup-steps", MCP_OPT_INT64, &run->warmup_steps, "until it is reached"},
        {"decay", MCP_OPT_CHOICE, &args->decay, "how it falls afterwards"},
        {"decay-steps", MCP_OPT_COUNT64, &run->decay_steps,
         "after those of warm-up until the lowest is reached; default: the rest of steps"},
        {"min-learning-rate", MCP_OPT_DOUBLE, &run->min_learning_rate, "the lowest"},
        {"clip-norm", MCP_OPT_DOUBLE, &run->clip_norm, "of all gradients together; 0: no clipping"},
        {"weight-decay", MCP_OPT_DOUBLE, &run->weight_decay, "AdamW's; of matrices"},
        {"beta1", MCP_OPT_DOUBLE, &run->beta1, "Adam's"},
        {"beta2", MCP_OPT_DOUBLE, &run->beta2, "Adam's"},
        {"epsilon", MCP_OPT_DOUBLE, &run->epsilon, "Adam's"},
        {"initial-loss-scale", MCP_OPT_DOUBLE, &run->initial_loss_scale,
         "of fp16: it halves after a step whose gradients overflow"},
        {"loss-scale-window", MCP_OPT_COUNT64, &run->loss_scale_window,
         "steps without overflow after which it doubles"},
        {"freeze-step", MCP_OPT_COUNT64, &run->freeze_step,
         "first step of 1-bit Adam with a frozen variance; default: the plan's, or a fifth of "
         "steps"},
    };
    return append(at, options, MCP_COUNT_OF(options));
}

static struct mcp_option *add_running(struct mcp_train_args *args, struct mcp_option *at)
{
    struct mcp_run_options *run = &args->run;
    const struct mcp_option options[] = {
        {"How it runs", MCP_OPT_HEADING, NULL, NULL},
        {"backend", MCP_OPT_CHOICE, &args->backend,
         "what computes: CPUs, or a GPU a rank (mcpplan-exec-cuda, not run on a GPU yet)"},
        {"threads", MCP_OPT_COUNT, &args->threads, "of a rank; default: cores over ranks"},
        {"dry-run", MCP_OPT_FLAG, &args->dry_run,
         "say which rank would run on which cores, or device, and end"},
        {"program", MCP_OPT_FILE, &run->program, "run this step program (plan --dump-program)"},
        {"frozen-program", MCP_OPT_FILE, &run->frozen_program, "from --freeze-step on this one"},
        {"no-verify", MCP_OPT_FLAG, &run->no_verify, "run a program file without judging it"},
        {"timeout-s", MCP_OPT_DOUBLE, &run->timeout_s,
         "until what waits for another rank has failed; 0: it waits for ever"},
        {"max-restarts", MCP_OPT_COUNT, &args->max_restarts,
         "from the newest checkpoint, when ranks are lost"},
    };
    return append(at, options, MCP_COUNT_OF(options));
}

static struct mcp_option *add_leaving(struct mcp_run_options *run, struct mcp_option *at)
{
    const struct mcp_option options[] = {
        {"What it leaves", MCP_OPT_HEADING, NULL, NULL},
        {"checkpoint-dir", MCP_OPT_FILE, &run->checkpoint_dir,
         "folder of checkpoints; the last two are kept"},
        {"checkpoint-every", MCP_OPT_COUNT64, &run->checkpoint_every,
         "steps; one more at the end, and on SIGTERM"},
        {"resume", MCP_OPT_FLAG, &run->resume,
         "go on from the newest whole checkpoint, of any layout"},
        {"export", MCP_OPT_FILE, &run->export_path,
         "weights of the last step, as safetensors that transformers reads"},
        {"tensorboard-dir", MCP_OPT_FILE, &run->tensorboard_dir, "event files for TensorBoard"},
        {"metrics", MCP_OPT_FILE, &run->metrics, "one JSON object a step"},
        {"watch-every", MCP_OPT_INT64, &run->watch_every,
         "steps between looks at norms of parameters and at activations; 0: never"},
        {"timeline", MCP_OPT_FILE, &run->timeline, "what each rank did when, in the fastest step"},
    };
    return append(at, options, MCP_COUNT_OF(options));
}

/* Names what is missing, or goes with something that is not there. */
static enum mcp_status check(const struct mcp_usage *usage, const struct mcp_train_args *args,
                             struct mcp_error *err)
{
    const struct mcp_run_options *run = &args->run;
    if (run->data == NULL && !args->dry_run)
        return mcp_options_need(usage, "data", err);
    if (run->steps == 0 && !args->dry_run)
        return mcp_options_need(usage, "steps", err);
    if (args->max_restarts > 0 && run->checkpoint_dir == NULL)
        return mcp_fail(err, MCP_USAGE, "--max-restarts needs --checkpoint-dir");
    return args->dry_run ? MCP_OK : mcp_run_options_check(run, err);
}

bool mcp_train_args_parse(struct mcp_context *ctx, struct mcp_train_args *args, int argc,
                          char **argv)
{
    struct mcp_option options[MOST_OPTIONS], *end = options;
    *args = (struct mcp_train_args){
        .run = mcp_run_options_default(),
        .backend = {MCP_TRAIN_CPU, mcp_train_backend_names, MCP_NUM_TRAIN_BACKENDS},
        .decay = {MCP_DECAY_CONSTANT, mcp_decay_names, MCP_NUM_DECAYS}};
    args->run.steps = 0; /* not given */
    end = add_data(&args->run, end);
    end = add_learning(args, end);
    end = add_running(args, end);
    end = add_leaving(&args->run, end);
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
        .num_options = (size_t)(end - options),
        .examples =
            "mcpplan train plan.json --data corpus.tokens --steps 1000 --metrics run.jsonl\n"
            "mcpplan train plan.json --data corpus.tokens --steps 20 --timeline run.json\n"
            "mpirun -np 4 mcpplan train plan.json --data corpus.tokens --steps 1000\n",
    };
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return false;
    args->run.decay = args->decay.value;
    ctx->status = check(&usage, args, &ctx->err);
    return ctx->status == MCP_OK;
}
