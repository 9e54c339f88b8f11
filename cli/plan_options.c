/* cli/plan_options.c: what mcpplan plan is asked: options, the question, the space. */
#include "cli/plan_options.h"

#include "cli/plan_schedule.h"
#include "cli/report_parts.h"
#include "cli/switches.h"
#include "core/calibration_file.h"
#include "core/text.h"
#include "planner/require.h"
#include "topologies/detect.h"

#include <math.h>
#include <string.h>

enum { DEFAULT_SEQUENCE_LENGTH = 4096, MOST_OPTIONS = 64 };
const char *const mcp_plan_method_names[MCP_NUM_METHODS] = {"search", "rule", "exhaustive"};
static const char *const zero_names[4] = {"0", "1", "2", "3"};

#define CHOICE(names, value) ((struct mcp_choice){value, names, (int)MCP_COUNT_OF(names)})

struct mcp_plan_args mcp_plan_args_default(void)
{
    return (struct mcp_plan_args){
        .top = 4,
        .memory_limit_frac = mcp_job_default().memory_limit_frac,
        .precision = CHOICE(mcp_precision_names, -1),
        .optimizer = CHOICE(mcp_optimizer_names, -1),
        .phase = CHOICE(mcp_phase_names, -1),
        .clip_global_norm = CHOICE(mcp_off_on, -1),
        .zero_stage = CHOICE(zero_names, -1),
        .sequence_parallel = CHOICE(mcp_off_on, -1),
        .context_parallel_kind = CHOICE(mcp_context_kind_names, -1),
        .recompute = CHOICE(mcp_recompute_names, -1),
        .overlap = CHOICE(mcp_off_on, 1),
        .method = CHOICE(mcp_plan_method_names, MCP_METHOD_SEARCH),
        .objective = CHOICE(mcp_objective_names, MCP_OBJECTIVE_TIME),
        .pipeline_rule = CHOICE(mcp_off_on, 1),
        .batch_rule = CHOICE(mcp_off_on, 1),
    };
}

static struct mcp_option *add_rows(struct mcp_option *at, const struct mcp_option *rows,
                                   size_t count)
{
    memcpy(at, rows, count * sizeof *rows);
    return at + count;
}

static struct mcp_option *question_options(struct mcp_plan_args *a, struct mcp_option *at)
{
    const struct mcp_option rows[] = {
        {"What to train, on what", MCP_OPT_HEADING, NULL, NULL},
        {"model", MCP_OPT_STRING, &a->model, "a preset, a model file or a config.json"},
        {"cluster", MCP_OPT_STRING, &a->cluster,
         "a preset (dgx-h100:16 is 16 nodes), a cluster file, or \"this\" machine"},
        {"gpus", MCP_OPT_COUNT, &a->gpus, "use that many of its GPUs"},
        {"global-batch-size", MCP_OPT_COUNT64, &a->global_batch_size, "sequences in a step"},
        {"sequence-length", MCP_OPT_COUNT64, &a->sequence_length,
         "tokens in a sequence (default: 4096, or the model's limit if less)"},
        {"precision", MCP_OPT_CHOICE, &a->precision,
         "in what the linear layers multiply (default: bf16, else fp16, else fp32)"},
        {"calibration", MCP_OPT_FILE, &a->calibration,
         "what mcpplan calibrate measured here; with --cluster this"},
        {"stack", MCP_OPT_STRING, &a->stack,
         "the software that will run the plan (default: megatron-core; mcpplan-cpu without GPUs)"},
        {"attention", MCP_OPT_STRING, &a->attention,
         "attention kernel, or \"unfused\" (default: the stack's)"},
        {"dropout", MCP_OPT_FLAG, &a->dropout, "train with dropout"},
        {"optimizer", MCP_OPT_CHOICE, &a->optimizer,
         "adam (default), or one_bit_adam: signs of the momentum travel once it is frozen"},
        {"phase", MCP_OPT_CHOICE, &a->phase, "of one_bit_adam, to plan for (default: frozen)"},
        {"fp32-embedding-steps", MCP_OPT_COUNT64, &a->fp32_embedding_steps,
         "keep embeddings in fp32; look-ups are exact for so many steps, then mixed by degrees"},
        {"saved-activation-bits", MCP_OPT_COUNT, &a->saved_activation_bits,
         "8: what decoder layers keep for their backward, by blocks with a scale"},
        {"clip-global-norm", MCP_OPT_CHOICE, &a->clip_global_norm,
         "clip gradients by their norm over all ranks (default: on, wherever there is one)"},
        {"freeze-step", MCP_OPT_COUNT64, &a->freeze_step, "first step of the frozen phase"},
        {"num-steps", MCP_OPT_COUNT64, &a->num_steps,
         "of the run, for the average over both phases (default: a fifth is warm)"},
        {"memory-limit-frac", MCP_OPT_FRAC, &a->memory_limit_frac,
         "share of a GPU's memory that a plan may use"},
    };
    return add_rows(at, rows, MCP_COUNT_OF(rows));
}

struct mcp_option *mcp_plan_degree_options(struct mcp_plan_args *a, struct mcp_option *at)
{
    struct mcp_range *degrees = a->degrees;
    const struct mcp_option rows[] = {
        {"Pin (8) or bound (1..8) what the search may choose", MCP_OPT_HEADING, NULL, NULL},
        {"tensor-parallel", MCP_OPT_RANGE, &degrees[MCP_KNOB_TENSOR], "ranks that cut a matrix"},
        {"context-parallel", MCP_OPT_RANGE, &degrees[MCP_KNOB_CONTEXT],
         "ranks that cut a sequence"},
        {"pipeline-parallel", MCP_OPT_RANGE, &degrees[MCP_KNOB_PIPELINE],
         "stages that cut the layers"},
        {"data-parallel", MCP_OPT_RANGE, &degrees[MCP_KNOB_DATA], "replicas"},
        {"expert-parallel", MCP_OPT_RANGE, &degrees[MCP_KNOB_EXPERT],
         "ranks that share the experts"},
        {"virtual-stages", MCP_OPT_RANGE, &degrees[MCP_KNOB_VIRTUAL_STAGES],
         "chunks of layers on each stage"},
        {"microbatch-size", MCP_OPT_RANGE, &degrees[MCP_KNOB_MICROBATCH],
         "sequences that pass a stage together"},
        {"zero-stage", MCP_OPT_CHOICE, &a->zero_stage,
         "shard the optimizer (1), gradients (2), weights (3) over replicas"},
        {"sequence-parallel", MCP_OPT_CHOICE, &a->sequence_parallel,
         "cut tokens between matrices over the tensor ranks"},
        {"context-parallel-kind", MCP_OPT_CHOICE, &a->context_parallel_kind,
         "how attention sees other ranks' tokens"},
        {"schedule", MCP_OPT_STRING, &a->schedule,
         "order of a stage's microbatches: auto, what the stack runs (default); names, as "
         "1f1b,zb-v; or PyTorch's FILE.csv"},
        {"recompute", MCP_OPT_CHOICE, &a->recompute, "activations that backward makes again"},
        {"overlap", MCP_OPT_CHOICE, &a->overlap, "hide what communication the stack can"},
        {"placement", MCP_OPT_STRING, &a->placement,
         "topology: ranks on consecutive GPUs (default); scrambled or scrambled:SEED: on nodes in "
         "any order, after the search"},
    };
    return add_rows(at, rows, MCP_COUNT_OF(rows));
}

static struct mcp_option *search_options(struct mcp_plan_args *a, struct mcp_option *at)
{
    const struct mcp_option rows[] = {
        {"How to choose", MCP_OPT_HEADING, NULL, NULL},
        {"method", MCP_OPT_CHOICE, &a->method,
         "search; rule: square roots of the sizes; exhaustive: price also what cannot win"},
        {"objective", MCP_OPT_CHOICE, &a->objective, "what the best plan has least of"},
        {"uniform-stages", MCP_OPT_FLAG, &a->uniform_stages,
         "spread layers evenly, all with the same recompute"},
        {"require", MCP_OPT_LIST, &a->require,
         "what the plan must be: 'pipeline_parallel<=8', 'tensor_parallel in 4,8', "
         "'peak_memory_frac>=90 %' (repeatable)"},
        {"top", MCP_OPT_COUNT, &a->top, "plans to show, of different layouts"},
        {"refine", MCP_OPT_COUNT, &a->refine,
         "play the best N op by op before choosing: the fastest played wins"},
        {"pipeline-rule", MCP_OPT_CHOICE, &a->pipeline_rule,
         "at most a fifth as many stages as layers"},
        {"batch-rule", MCP_OPT_CHOICE, &a->batch_rule,
         "a replica's batch divisible by microbatch x pipeline"},
        {"What else to show", MCP_OPT_HEADING, NULL, NULL},
        {"against", MCP_OPT_LIST, &a->against,
         "a plan.json to hold against the answer, term by term (repeatable)"},
        {"sensitivity", MCP_OPT_FLAG, &a->sensitivity,
         "what faster links, more memory, more devices or another batch would change"},
        {"savings", MCP_OPT_FLAG, &a->savings,
         "what each way to save communication is worth here: none, each alone, all"},
        {"memory-waterfall", MCP_OPT_FLAG, &a->memory_waterfall,
         "what recompute and ZeRO save for these degrees, step by step"},
        {"What to write", MCP_OPT_HEADING, NULL, NULL},
        {"report", MCP_OPT_FILE, &a->report,
         "the answer with charts: a page (FILE.html) or Markdown (FILE.md)"},
        {"dump-program", MCP_OPT_FILE, &a->dump_program, "the plan's step, op by op"},
    };
    return add_rows(at, rows, MCP_COUNT_OF(rows));
}

static const char description[] =
    "Every plan is judged: refused by a rule or by memory, bounded, or priced in time and memory; "
    "the best is shown with what the others lose, and in how far it is proven. Ctrl-C "
    "takes the best so far. A pinned pipeline-parallel lifts the pipeline rule, a pinned "
    "microbatch-size the batch rule. Where every degree, microbatch-size, virtual-stages, "
    "zero-stage and recompute have one value left, that plan is predicted, whether it fits or "
    "not.\n--require takes NAME OP VALUE, where OP is one of <= >= < > = !=, or NAME in "
    "VALUE,VALUE; it "
    "can be given several times, and all must hold. NAME is of the plan (";
static const char examples[] =
    "mcpplan plan --model llama-3.1-70b --cluster dgx-h100:8 --global-batch-size 512\n"
    "mcpplan plan --model gpt3-175b --cluster dgx-a100:128 --global-batch-size 1536 \\\n"
    "    --sequence-length 2048 --tensor-parallel 8 -o plan.json\n"
    "mcpplan plan --model mixtral-8x7b --cluster dgx-h100 --gpus 64 \\\n"
    "    --global-batch-size 256 --require 'peak_memory_frac<=0.8'\n";

/* With the names that --require knows: of the plan, and of what is predicted. */
static const char *full_description(struct mcp_arena *arena)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "%s", description);
    for (int i = 0; i < MCP_NUM_REQUIRE_NAMES; i++)
        mcp_text_add(&text, "%s%s",
                     i == 0                         ? ""
                     : i == MCP_REQUIRE_ITERATION_S ? ") or of what is predicted ("
                                                    : ", ",
                     mcp_require_names[i]);
    mcp_text_add(&text, ").");
    return text.data;
}

bool mcp_plan_args_parse(struct mcp_context *ctx, struct mcp_plan_args *args, int argc, char **argv)
{
    struct mcp_option options[MOST_OPTIONS];
    struct mcp_option *end = question_options(args, options);
    end = mcp_plan_degree_options(args, end);
    end = search_options(args, end);
    const struct mcp_usage usage = {
        .command = "plan",
        .summary = "find the fastest legal way to split a model over a cluster",
        .synopsis = "--model M --cluster C --global-batch-size B [options]",
        .description = full_description(ctx->arena),
        .options = options,
        .num_options = (size_t)(end - options),
        .examples = examples,
    };
    static const char *const needed[] = {"model", "cluster", "global-batch-size"};
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return false;
    for (size_t i = 0; i < MCP_COUNT_OF(needed) && ctx->status == MCP_OK; i++)
        ctx->status = mcp_options_need(&usage, needed[i], &ctx->err);
    if (ctx->status == MCP_OK && args->calibration != NULL &&
        (!mcp_same(args->cluster, "this") || args->stack != NULL))
        ctx->status = mcp_fail(&ctx->err, MCP_USAGE,
                               "--calibration is of a machine and its stack: it goes with "
                               "--cluster this and without --stack");
    if (ctx->status == MCP_OK && args->dump_program != NULL && mcp_same(args->dump_program, "-"))
        ctx->status = mcp_fail(&ctx->err, MCP_USAGE,
                               "--dump-program needs a file's name: standard output is the plan's");
    if (ctx->status == MCP_OK && args->refine > 0 && args->objective.value == MCP_OBJECTIVE_MEMORY)
        ctx->status = mcp_fail(&ctx->err, MCP_USAGE,
                               "--refine chooses by time played, --objective memory by bytes; "
                               "leave one out");
    if (ctx->status == MCP_OK && args->report != NULL)
        ctx->status = mcp_report_file_check(args->report, &ctx->err);
    return ctx->status == MCP_OK;
}

/* The question */

static enum mcp_status load_cluster(struct mcp_context *ctx, const struct mcp_plan_args *args,
                                    struct mcp_cluster *cluster)
{
    struct mcp_stack stack;
    if (args->calibration != NULL)
        MCP_TRY(
            mcp_calibration_file_load(ctx->arena, args->calibration, cluster, &stack, &ctx->err));
    else if (mcp_same(args->cluster, "this"))
        MCP_TRY(mcp_cluster_detect(ctx->arena, cluster, &ctx->err));
    else
        MCP_TRY(mcp_cluster_load(ctx->arena, args->cluster, cluster, &ctx->err));
    if (args->gpus == 0)
        return MCP_OK;
    bool one_node = cluster->num_nodes == 1 && strchr(args->cluster, ':') == NULL &&
                    !mcp_same(args->cluster, "this");
    if (!one_node || args->gpus <= mcp_cluster_gpus(cluster))
        return mcp_cluster_take(cluster, args->gpus, &ctx->err);
    MCP_TRY(mcp_cluster_set_gpus(cluster, args->gpus, &ctx->err));
    mcp_note("--gpus %d: %d nodes of %s", args->gpus, cluster->num_nodes, cluster->name);
    return MCP_OK;
}

static int64_t default_sequence_length(const struct mcp_model *model)
{
    int longest = model->max_sequence_length;
    return longest > 0 && longest < DEFAULT_SEQUENCE_LENGTH ? longest : DEFAULT_SEQUENCE_LENGTH;
}

static enum mcp_status check_length(const struct mcp_model *model, const struct mcp_job *job,
                                    struct mcp_error *err)
{
    if (model->position != MCP_POSITION_LEARNED || model->max_sequence_length == 0 ||
        job->sequence_length <= model->max_sequence_length)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "sequence_length=%lld exceeds the %d learned positions of %s; at most %d",
                    (long long)job->sequence_length, model->max_sequence_length, model->name,
                    model->max_sequence_length);
}

/* The first of bf16, fp16, fp32 that the device has a rate for. */
static enum mcp_precision default_precision(const struct mcp_gpu *gpu)
{
    static const enum mcp_precision order[] = {MCP_PRECISION_BF16, MCP_PRECISION_FP16};
    for (size_t i = 0; i < MCP_COUNT_OF(order); i++)
        if (!isnan(gpu->peak_flops_per_s[order[i]]))
            return order[i];
    return MCP_PRECISION_FP32;
}

static struct mcp_job job_of(const struct mcp_plan_args *args,
                             const struct mcp_plan_question *question)
{
    struct mcp_job job = mcp_job_default();
    job.global_batch_size = args->global_batch_size;
    job.sequence_length = args->sequence_length > 0 ? args->sequence_length
                                                    : default_sequence_length(&question->model);
    job.precision = args->precision.value >= 0 ? (enum mcp_precision)args->precision.value
                                               : default_precision(&question->cluster.gpu);
    job.dropout = args->dropout;
    job.attention = args->attention ? args->attention : "";
    job.memory_limit_frac = args->memory_limit_frac;
    mcp_switch_optimizer(args->optimizer.value, args->phase.value, &job);
    if (args->clip_global_norm.value >= 0)
        job.clip_global_norm = args->clip_global_norm.value ? MCP_CLIP_ON : MCP_CLIP_OFF;
    job.fp32_embedding_steps = args->fp32_embedding_steps;
    job.saved_activation_bits = args->saved_activation_bits;
    job.freeze_step = args->freeze_step;
    job.num_steps = args->num_steps;
    return job;
}

static enum mcp_status load_stack(struct mcp_context *ctx, const struct mcp_plan_args *args,
                                  const struct mcp_cluster *cluster, struct mcp_stack *stack)
{
    struct mcp_cluster same;
    if (args->calibration != NULL)
        return mcp_calibration_file_load(ctx->arena, args->calibration, &same, stack, &ctx->err);
    bool cpu = default_precision(&cluster->gpu) == MCP_PRECISION_FP32;
    const char *standard = cpu ? "mcpplan-cpu" : "megatron-core";
    return mcp_stack_load(ctx->arena, args->stack ? args->stack : standard, stack, &ctx->err);
}

enum mcp_status mcp_plan_load_question(struct mcp_context *ctx, const struct mcp_plan_args *args,
                                       struct mcp_plan_question *out)
{
    MCP_TRY(mcp_model_load(ctx->arena, args->model, &out->model, &ctx->err));
    MCP_TRY(load_cluster(ctx, args, &out->cluster));
    MCP_TRY(load_stack(ctx, args, &out->cluster, &out->stack));
    out->job = job_of(args, out);
    out->asked = (struct mcp_question){&out->model, &out->cluster, &out->job, &out->stack};
    MCP_TRY(mcp_job_check(&out->job, &ctx->err));
    MCP_TRY(check_length(&out->model, &out->job, &ctx->err));
    if (args->objective.value == MCP_OBJECTIVE_COST && isnan(out->cluster.gpu.price_per_gpu_hour))
        return mcp_fail(&ctx->err, MCP_INVALID,
                        "--objective cost needs price_per_gpu_hour, which is unknown for %s; "
                        "state it in a cluster file, or choose --objective time",
                        out->cluster.gpu.name);
    return MCP_OK;
}

static void pin_choice(struct mcp_plan_space *space, enum mcp_knob knob,
                       const struct mcp_choice *choice)
{
    if (choice->value >= 0)
        mcp_space_pin(space, knob, choice->value);
}

struct mcp_plan_space mcp_plan_space_of(const struct mcp_plan_args *args)
{
    struct mcp_plan_space space = mcp_space_default();
    for (int knob = MCP_KNOB_TENSOR; knob <= MCP_KNOB_MICROBATCH; knob++) {
        struct mcp_range range = args->degrees[knob];
        space.knobs[knob] = (struct mcp_interval){range.high > 0, range.low, range.high};
    }
    pin_choice(&space, MCP_KNOB_ZERO_STAGE, &args->zero_stage);
    pin_choice(&space, MCP_KNOB_SEQUENCE_PARALLEL, &args->sequence_parallel);
    pin_choice(&space, MCP_KNOB_CONTEXT_KIND, &args->context_parallel_kind);
    mcp_plan_schedule_bound(args, &space);
    pin_choice(&space, MCP_KNOB_RECOMPUTE, &args->recompute);
    space.pipeline_rule = args->pipeline_rule.value != 0;
    space.batch_rule = args->batch_rule.value != 0;
    space.overlap = args->overlap.value != 0;
    return space;
}
