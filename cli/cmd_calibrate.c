/* cli/cmd_calibrate.c: mcpplan calibrate: what the ops of a model take on this machine, its
 * processors or its GPUs. */
#include "cli/calibrate.h"
#include "cli/commands.h"
#include "core/calibration_file.h"
#include "core/stack.h"
#include "step/constants.h"
#include "step/price.h"
#include "topologies/detect.h"

#include <math.h>
#include <string.h>

enum { MOST_LAYERS = 4, DEFAULT_LENGTH = 256 };
#define MOST_SPREAD_FRAC 0.5

struct args {
    const char *model, *cluster;
    int ranks, batch, length, steps, repeats;
    struct mcp_choice backend, precision;
};

/* What is measured: a question with what it points to. */
struct subject {
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_question question;
};

/* --- the machine as ranks --- */

static bool is_cuda(const struct args *args)
{
    return args->backend.value == MCP_TRAIN_CUDA;
}

/* Its processors, of which each rank has an equal share. */
static enum mcp_status take_cores(struct mcp_context *ctx, int ranks, struct mcp_cluster *out)
{
    struct mcp_machine machine;
    struct mcp_text notes = mcp_text_new(ctx->arena);
    MCP_TRY(mcp_machine_detect(ctx->arena, &machine, &ctx->err));
    machine.node.num_gpus = 0;
    MCP_TRY(mcp_machine_cluster(ctx->arena, &machine, out, &notes, &ctx->err));
    int devices = mcp_cluster_gpus(out), cores = devices * out->gpu.num_multiprocessors;
    ranks = ranks > 0 ? ranks : cores;
    if (ranks > cores)
        return mcp_fail(&ctx->err, MCP_USAGE, "--ranks %d: this machine has %d cores", ranks,
                        cores);
    double share = (double)devices / ranks;
    out->gpu.memory_bytes = (int64_t)((double)out->gpu.memory_bytes * share);
    out->gpu.memory_bandwidth_bytes_per_s *= share;
    out->gpu.num_multiprocessors = cores / ranks;
    for (int i = 0; i < MCP_NUM_PRECISIONS; i++)
        out->gpu.peak_flops_per_s[i] *= share;
    out->gpus_per_node = out->tiers[0].full_ranks = ranks;
    out->tiers[0].bandwidth_bytes_per_s *= share;
    return mcp_cluster_resize(out, 1, &ctx->err);
}

/* GPUs of this machine, one a rank. */
static enum mcp_status take_gpus(struct mcp_context *ctx, const struct args *args,
                                 struct mcp_cluster *out)
{
    if (mcp_same(args->cluster, "this"))
        MCP_TRY(mcp_cluster_detect(ctx->arena, out, &ctx->err));
    else
        MCP_TRY(mcp_cluster_load(ctx->arena, args->cluster, out, &ctx->err));
    if (mcp_same(out->gpu.name, "cpu"))
        return mcp_fail(&ctx->err, MCP_INVALID,
                        "--backend cuda measures GPUs, and none is found here; --cluster says "
                        "which they are");
    if (out->num_nodes > 1 || out->next != NULL)
        return mcp_fail(&ctx->err, MCP_INVALID,
                        "--cluster %s: it has %d GPUs on several machines, and one machine is "
                        "measured",
                        args->cluster, mcp_cluster_gpus(out));
    if (args->ranks > mcp_cluster_gpus(out))
        return mcp_fail(&ctx->err, MCP_USAGE, "--ranks %d: this machine has %d GPUs", args->ranks,
                        mcp_cluster_gpus(out));
    return args->ranks > 0 ? mcp_cluster_take(out, args->ranks, &ctx->err) : MCP_OK;
}

static enum mcp_status detect(struct mcp_context *ctx, const struct args *args,
                              struct mcp_cluster *out)
{
    if (is_cuda(args))
        return take_gpus(ctx, args, out);
    if (!mcp_same(args->cluster, "this"))
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "--cluster %s: it goes with --backend cuda; cores are this machine's",
                        args->cluster);
    return take_cores(ctx, args->ranks, out);
}

/* --- the question --- */

/* Layers of all kinds, and one for each rank at least. */
static enum mcp_status shorten(struct mcp_context *ctx, int ranks, struct mcp_model *model)
{
    int layers = ranks > MOST_LAYERS ? ranks : MOST_LAYERS, seen = 0;
    bool kinds[MCP_MAX_LAYER_KINDS] = {false};
    for (int i = 0; i < model->num_layers && (i < layers || seen < model->num_kinds); i++) {
        seen += !kinds[model->layer_kind[i]];
        kinds[model->layer_kind[i]] = true;
        if (i >= layers)
            layers = i + 1;
    }
    if (layers < model->num_layers)
        model->num_layers = layers;
    return mcp_model_check(model, &ctx->err);
}

static enum mcp_status choose_precision(struct mcp_context *ctx, const struct args *args,
                                        struct subject *out)
{
    const int standard = is_cuda(args) ? MCP_PRECISION_BF16 : MCP_PRECISION_FP32;
    const int chosen = args->precision.value >= 0 ? args->precision.value : standard;
    out->job.precision = (enum mcp_precision)chosen;
    if (isfinite(out->cluster.gpu.peak_flops_per_s[chosen]))
        return MCP_OK;
    return mcp_fail(&ctx->err, MCP_INVALID, "--precision %s: %s has no rate for it",
                    mcp_precision_names[chosen], out->cluster.gpu.name);
}

static enum mcp_status ask(struct mcp_context *ctx, const struct args *args, struct subject *out)
{
    const char *stack = is_cuda(args) ? "mcpplan-cuda" : "mcpplan-cpu";
    MCP_TRY(mcp_model_load(ctx->arena, args->model, &out->model, &ctx->err));
    MCP_TRY(detect(ctx, args, &out->cluster));
    MCP_TRY(mcp_stack_load(ctx->arena, stack, &out->stack, &ctx->err));
    MCP_TRY(shorten(ctx, mcp_cluster_gpus(&out->cluster), &out->model));
    int longest = out->model.max_sequence_length;
    out->job = mcp_job_default();
    MCP_TRY(choose_precision(ctx, args, out));
    out->job.global_batch_size = args->batch;
    out->job.sequence_length = args->length > 0                          ? args->length
                               : longest > 0 && longest < DEFAULT_LENGTH ? longest
                                                                         : DEFAULT_LENGTH;
    out->question = (struct mcp_question){&out->model, &out->cluster, &out->job, &out->stack};
    return mcp_job_check(&out->job, &ctx->err);
}

/* --- what follows from the samples --- */

/* The highest rate of ops of the code; 0: none. */
static double best_rate(const struct mcp_calibration *calibration, enum mcp_code code)
{
    double best = 0;
    for (int i = 0; i < calibration->num_samples; i++) {
        const struct mcp_sample *sample = &calibration->samples[i];
        for (int f = 0; f < MCP_NUM_FUNCTIONS; f++)
            if (mcp_functions[f].code == code && mcp_same(mcp_functions[f].name, sample->function))
                best = fmax(best, sample->work / sample->seconds);
    }
    return best;
}

/* Of the update, which streams through memory; as fast as the datasheet would have to be. */
static double memory_rate(const struct mcp_calibration *calibration)
{
    double best = 0;
    for (int i = 0; i < calibration->num_samples; i++)
        if (mcp_same(calibration->samples[i].function, mcp_functions[MCP_FN_ADAM].name))
            best = fmax(best, calibration->samples[i].work / calibration->samples[i].seconds);
    return best / MCP_MEMORY_FRAC;
}

/* Rates of what was not measured. Links between GPUs stay the cluster's: what goes over them is
 * in the samples. */
static void fill_cluster(const struct mcp_calibrate *calibrate, struct mcp_cluster *cluster)
{
    const struct mcp_calibration *calibration = &calibrate->calibration;
    const enum mcp_precision precision = calibrate->question->job->precision;
    const bool cpus = calibrate->backend == MCP_TRAIN_CPU;
    double products = best_rate(calibration, MCP_MATMUL), memory = memory_rate(calibration);
    double transfers = best_rate(calibration, MCP_COLLECTIVE);
    double *peak = &cluster->gpu.peak_flops_per_s[precision];
    *peak = fmax(*peak, products);
    if (products > 0)
        cluster->gpu.matmul_frac[precision] = products / *peak;
    if (memory > 0)
        cluster->gpu.memory_bandwidth_bytes_per_s = memory;
    if (cpus && transfers > 0)
        cluster->tiers[0].bandwidth_bytes_per_s = transfers;
    cluster->gpu.source = cpus ? "this machine's processors, shared out among ranks; rates "
                                 "measured by mcpplan calibrate"
                               : "this machine's GPUs; rates of products and memory measured by "
                                 "mcpplan calibrate, the rest as the preset says";
}

/* Of the time that transfers between data ranks take alone, what is not left over when they
 * may run under compute. */
static double overlap_of(const struct mcp_calibrate *calibrate)
{
    double hidden_s = 0, all_s = 0;
    for (int i = 0; i < calibrate->num_runs; i++)
        for (int k = 0; k < calibrate->num_runs; k++) {
            const struct mcp_calibration_run *off = &calibrate->runs[i], *on = &calibrate->runs[k];
            if (off->plan.data_parallel == 1 || off->plan.zero_stage != 0 ||
                off->plan.overlap.data || !on->plan.overlap.data ||
                on->plan.microbatch_size != off->plan.microbatch_size)
                continue;
            hidden_s += off->data_s - on->exposed_s;
            all_s += off->data_s;
        }
    return all_s > 0 ? fmin(1, fmax(0, hidden_s / all_s)) : (double)NAN;
}

static void fill_stack(struct mcp_context *ctx, const struct mcp_calibrate *calibrate,
                       const struct args *args, struct mcp_stack *stack)
{
    double idle_s = INFINITY;
    for (int i = 0; i < calibrate->num_runs; i++)
        if (calibrate->runs[i].plan.pipeline_parallel == 1 && !calibrate->runs[i].plan.overlap.data)
            idle_s = fmin(idle_s, calibrate->runs[i].idle_s);
    stack->step_overhead_s = isfinite(idle_s) ? idle_s : stack->step_overhead_s;
    if (!isnan(calibrate->data_overlap_frac))
        stack->data_overlap_frac = calibrate->data_overlap_frac;
    stack->uncertainty_frac = fmin(MOST_SPREAD_FRAC, fmax(0.05, calibrate->spread_frac));
    stack->moe_uncertainty_frac = fmin(1, 2 * stack->uncertainty_frac);
    stack->calibration = &calibrate->calibration;
    stack->source =
        mcp_format(ctx->arena, "measured by mcpplan calibrate: %s, sequence_length %lld, %d ranks",
                   args->model, (long long)calibrate->question->job->sequence_length,
                   mcp_cluster_gpus(calibrate->question->cluster));
}

/* --- saying so --- */

/* More than any interval states. */
static void note_spread(const struct mcp_calibrate *calibrate)
{
    if (calibrate->spread_frac > MOST_SPREAD_FRAC)
        mcp_note("the median time of an op is %.0f %% over what is kept: other programs were at "
                 "work, and steps may take far longer than this predicts",
                 100 * calibrate->spread_frac);
}

static void put_text(struct mcp_context *ctx, struct mcp_text *out, const struct subject *subject,
                     const struct mcp_calibrate *calibrate)
{
    const struct mcp_gpu *gpu = &subject->cluster.gpu;
    const bool cuda = calibrate->backend == MCP_TRAIN_CUDA;
    mcp_text_add(out, "ranks %d, %s %s, runs %d, sizes of ops %d\n\n",
                 mcp_cluster_gpus(&subject->cluster), cuda ? "each on a" : "cores of each",
                 cuda ? gpu->name : mcp_format(ctx->arena, "%d", gpu->num_multiprocessors),
                 calibrate->num_runs * calibrate->repeats, calibrate->calibration.num_samples);
    mcp_text_add(out, "  %-36s %10.3g GFLOP/s of a rank\n", "matrix products, best",
                 1e-9 * best_rate(&calibrate->calibration, MCP_MATMUL));
    mcp_text_add(out, "  %-36s %10.3g GFLOP/s of a rank\n", "attention, best",
                 1e-9 * best_rate(&calibrate->calibration, MCP_ATTENTION));
    mcp_text_add(out, "  %-36s %10.3g GB/s of a rank\n", "memory, streaming",
                 1e-9 * MCP_MEMORY_FRAC * gpu->memory_bandwidth_bytes_per_s);
    const double transfers = best_rate(&calibrate->calibration, MCP_COLLECTIVE);
    if (transfers > 0)
        mcp_text_add(out, "  %-36s %10.3g GB/s of a rank\n", "collectives, best", 1e-9 * transfers);
    if (!isnan(calibrate->data_overlap_frac))
        mcp_text_add(out, "  %-36s %10.1f %%\n", "data transfers hidden",
                     100 * calibrate->data_overlap_frac);
    mcp_text_add(out, "  %-36s %10.2f ms of a step\n", "between ops",
                 1e3 * subject->stack.step_overhead_s);
    mcp_text_add(out, "  %-36s %10.1f %%\n\n", "spread: medians over what is kept",
                 100 * calibrate->spread_frac);
    for (int i = 0; i < calibrate->num_runs; i++)
        mcp_text_add(out, "  %-36s %10.1f ms, the fastest step\n", calibrate->runs[i].name,
                     1e3 * calibrate->runs[i].iteration_s);
    if (ctx->output_path == NULL)
        mcp_text_add(out, "\nnothing was written; -o calibration.json keeps it for plan\n");
}

static enum mcp_status calibrate(struct mcp_context *ctx, const struct args *args)
{
    struct subject *subject = MCP_NEW(ctx->arena, struct subject);
    struct mcp_calibrate *c = MCP_NEW(ctx->arena, struct mcp_calibrate);
    struct mcp_text text = mcp_text_new(ctx->arena);
    MCP_TRY(mcp_output_check_place(ctx));
    MCP_TRY(ask(ctx, args, subject));
    c->question = &subject->question;
    c->backend = (enum mcp_train_backend)args->backend.value;
    c->steps = args->steps;
    c->repeats = args->repeats;
    MCP_TRY(mcp_calibrate_layouts(ctx->arena, c, &ctx->err));
    MCP_TRY(mcp_calibrate_run(ctx, c));
    mcp_calibration_reduce(ctx->arena, &c->times, &c->calibration, &c->spread_frac);
    c->data_overlap_frac = overlap_of(c);
    fill_cluster(c, &subject->cluster);
    fill_stack(ctx, c, args, &subject->stack);
    put_text(ctx, &text, subject, c);
    note_spread(c);
    return mcp_output_result(
        ctx, &text, mcp_calibration_file_json(ctx->arena, &subject->cluster, &subject->stack));
}

enum mcp_status mcp_cmd_calibrate(struct mcp_context *ctx, int argc, char **argv)
{
    struct args args = {.model = "gpt2",
                        .cluster = "this",
                        .batch = 8,
                        .steps = 4,
                        .repeats = 2,
                        .backend = {MCP_TRAIN_CPU, mcp_train_backend_names, MCP_NUM_TRAIN_BACKENDS},
                        .precision = {-1, mcp_precision_names, MCP_PRECISION_FP8 + 1}};
    const struct mcp_option options[] = {
        {"What is measured", MCP_OPT_HEADING, NULL, NULL},
        {"model", MCP_OPT_STRING, &args.model, "whose ops: a preset or a file"},
        {"global-batch-size", MCP_OPT_COUNT, &args.batch, "sequences a step"},
        {"sequence-length", MCP_OPT_COUNT, &args.length,
         "tokens of each; default: 256, or the model's longest"},
        {"precision", MCP_OPT_CHOICE, &args.precision, "default: fp32 on CPUs, bf16 on GPUs"},
        {"backend", MCP_OPT_CHOICE, &args.backend, "what computes: CPUs, or a GPU a rank"},
        {"cluster", MCP_OPT_STRING, &args.cluster,
         "this machine with its GPUs, where it is not to be detected: a preset or a file"},
        {"ranks", MCP_OPT_COUNT, &args.ranks,
         "that share the cores, or GPUs; default: one a core, or a GPU"},
        {"How long", MCP_OPT_HEADING, NULL, NULL},
        {"steps", MCP_OPT_COUNT, &args.steps, "of each run, of which the fastest counts"},
        {"repeats", MCP_OPT_COUNT, &args.repeats, "runs of each layout, taking turns"},
    };
    const struct mcp_usage usage = {
        .command = "calibrate",
        .summary = "measure what ops take on this machine, for plan and sim",
        .synopsis = "[--model M] [-o calibration.json] [options]",
        .description =
            "Trains a few layers of the model on random tokens, a few steps at a time, with all "
            "ranks for data, tensor, context and pipeline parallelism in turn and several sizes "
            "of microbatch, and times every op where it runs: matrix products, attention, what "
            "streams through memory, collectives, messages, and how far transfers are hidden. "
            "plan --cluster this --calibration FILE prices ops by it: those of a measured size "
            "as measured, others by the rates of their neighbours. A plan keeps the samples, so "
            "that sim and compare predict with them too. Processors are measured in fp32, unless "
            "--backend cuda runs the steps on this machine's GPUs; none has been measured yet.",
        .min_operands = 0,
        .max_operands = 0,
        .options = options,
        .num_options = MCP_COUNT_OF(options),
        .examples =
            "mcpplan calibrate --model gpt2 -o calibration.json\n"
            "mcpplan plan --model gpt2 --cluster this --calibration calibration.json \\\n"
            "    --global-batch-size 8 --sequence-length 256\n"
            "mcpplan calibrate --backend cuda --model llama-3.1-8b --sequence-length 4096 \\\n"
            "    -o calibration.json\n",
    };
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return ctx->status;
    return calibrate(ctx, &args);
}
