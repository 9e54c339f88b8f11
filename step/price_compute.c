/* step/price_compute.c: FLOPs, bytes and seconds of products, attention and maps. */
#include "step/price_parts.h"

#include "core/stack.h"
#include "step/attention.h"
#include "step/constants.h"

#include <assert.h>
#include <math.h>

static bool is_backward_attention(const struct mcp_op *op)
{
    return op->function == MCP_FN_ATTENTION_BACKWARD ||
           op->function == MCP_FN_ATTENTION_STEP_BACKWARD ||
           op->function == MCP_FN_ATTENTION_UNFUSED_BACKWARD;
}

static bool is_unfused(const struct mcp_op *op)
{
    return op->function == MCP_FN_ATTENTION_UNFUSED_FORWARD ||
           op->function == MCP_FN_ATTENTION_UNFUSED_BACKWARD;
}

/* The two products of attention's forward over the pairs of the op. */
static double attention_flops(const struct mcp_op *op)
{
    const int64_t *d = op->dims;
    return 2.0 * (double)d[0] * (double)d[1] * (double)(d[2] + d[3]);
}

/* The model's backward is twice its forward: what a fused kernel computes again is
 * priced, not counted. */
double mcp_op_flops(const struct mcp_op *op)
{
    const int64_t *d = op->dims;
    if (mcp_op_code(op) == MCP_MATMUL)
        return 2.0 * (double)d[0] * (double)d[1] * (double)d[2] * (double)d[3];
    if (mcp_op_code(op) != MCP_ATTENTION)
        return 0;
    return attention_flops(op) * (is_backward_attention(op) ? 2 : 1);
}

static bool accumulates(const struct mcp_op *op)
{
    return op->function == MCP_FN_MATMUL_TN_ACCUMULATE ||
           op->function == MCP_FN_GROUPED_TN_ACCUMULATE;
}

static double matmul_bytes(const struct mcp_op *op, double accumulator_bytes)
{
    double m = (double)op->dims[0], n = (double)op->dims[1], k = (double)op->dims[2];
    double element = mcp_dtype_bytes((enum mcp_dtype)op->dtype);
    double result = accumulates(op) ? 2.0 * accumulator_bytes : 2.0;
    return (double)op->dims[3] * (element * (m * k + k * n) + result * m * n);
}

double mcp_op_moved_bytes(const struct mcp_op *op)
{
    const struct mcp_function_traits *f = &mcp_functions[op->function];
    if (f->code == MCP_MATMUL)
        return matmul_bytes(op, 4.0);
    if (f->code == MCP_MAP || f->code == MCP_REDUCTION) {
        double each =
            f->elements_moved * mcp_dtype_bytes((enum mcp_dtype)op->dtype) + f->bytes_moved;
        return (double)op->dims[0] * (double)op->dims[1] * each;
    }
    return 0;
}

/* Share of the multiprocessors' work that is not padding, for the best of four
 * tile shapes: whole tiles, whole waves, smaller tiles being slower. */
static double tile_frac(int64_t rows, int64_t columns, double groups, double processors)
{
    static const struct {
        double rows, columns, frac;
    } tiles[] = {{256, 128, 1.0}, {128, 128, 0.95}, {128, 64, 0.85}, {64, 64, 0.65}};
    double m = (double)rows, n = (double)columns, best = 0;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        double across = ceil(m / tiles[i].rows), down = ceil(n / tiles[i].columns);
        double waves = across * down * groups / processors;
        double useful = m * n / (across * tiles[i].rows * down * tiles[i].columns);
        double frac = tiles[i].frac * useful * waves / ceil(waves);
        best = frac > best ? frac : best;
    }
    return best;
}

/* The rate column of a GPU for operands of `dtype` under the job's recipe. */
static enum mcp_precision rate_of(const struct mcp_pricing *pricing, enum mcp_dtype dtype)
{
    enum mcp_precision recipe = pricing->question->job->precision;
    const struct mcp_gpu *gpu = &pricing->question->cluster->gpu;
    enum mcp_precision rate =
        recipe == MCP_PRECISION_FP32 ? MCP_PRECISION_FP32 : MCP_PRECISION_BF16;
    if (dtype == MCP_F16)
        rate = MCP_PRECISION_FP16;
    if (dtype == MCP_F8 || dtype == MCP_F4)
        rate = recipe;
    return isfinite(gpu->peak_flops_per_s[rate]) ? rate : MCP_PRECISION_BF16;
}

static bool is_grouped(const struct mcp_op *op)
{
    return op->function == MCP_FN_GROUPED_NT || op->function == MCP_FN_GROUPED_NN ||
           op->function == MCP_FN_GROUPED_TN_ACCUMULATE;
}

static double product_rate(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    const struct mcp_gpu *gpu = &pricing->question->cluster->gpu;
    const struct mcp_stack *stack = pricing->question->stack;
    enum mcp_precision rate = rate_of(pricing, (enum mcp_dtype)op->dtype);
    bool low = op->dtype == MCP_F8 || op->dtype == MCP_F4;
    double groups = is_grouped(op) ? gpu->grouped_matmul_frac : 1.0;
    double frac = gpu->matmul_frac[rate] * gpu->sustained_clock_frac * stack->matmul_frac;
    return gpu->peak_flops_per_s[rate] * frac * groups * (low ? stack->fp8_matmul_frac : 1.0);
}

/* Seconds that device memory takes for `bytes` of a streaming kernel. */
static double memory_seconds(const struct mcp_pricing *pricing, double bytes)
{
    return bytes / (MCP_MEMORY_FRAC * pricing->question->cluster->gpu.memory_bandwidth_bytes_per_s);
}

/* Roofline: products at their rate, with a ramp in depth, or the traffic. */
static double matmul_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    const struct mcp_gpu *gpu = &pricing->question->cluster->gpu;
    double groups = (double)op->dims[3], depth = (double)op->dims[2];
    bool low = op->dtype == MCP_F8 || op->dtype == MCP_F4;
    double ramp = MCP_MATMUL_RAMP_DEPTH * (low ? MCP_MATMUL_RAMP_LOW_PRECISION : 1.0);
    double tiles = tile_frac(op->dims[0], op->dims[1], groups, gpu->num_multiprocessors);
    double compute = mcp_op_flops(op) / (product_rate(pricing, op) * tiles) * (1 + ramp / depth);
    double accumulator = pricing->question->stack->gradient_bytes > 2 ? 4.0 : 2.0;
    double traffic = memory_seconds(pricing, matmul_bytes(op, accumulator));
    double grouped = is_grouped(op) ? gpu->grouped_matmul_frac : 1.0;
    return fmax(compute, traffic / grouped);
}

static double element_seconds(const struct mcp_pricing *pricing, double bytes)
{
    return memory_seconds(pricing, bytes * pricing->question->stack->elementwise_factor);
}

/* Two batched products over all scores, causal or not, and the traffic of the
 * scores between them. Backward: twice the products. */
static double unfused_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    bool backward = is_backward_attention(op);
    const int64_t *d = op->dims;
    struct mcp_op scores = *op, values = *op;
    scores.function = values.function = MCP_FN_MATMUL_NT;
    const int64_t first[4] = {d[4], d[5], d[2], d[0]}, second[4] = {d[4], d[3], d[5], d[0]};
    for (int i = 0; i < 4; i++) {
        scores.dims[i] = first[i];
        values.dims[i] = second[i];
    }
    double products = matmul_seconds(pricing, &scores) + matmul_seconds(pricing, &values);
    double each = backward ? MCP_SCORES_BACKWARD_BYTES : MCP_SCORES_FORWARD_BYTES;
    each += pricing->question->job->dropout ? MCP_SCORES_DROPOUT_BYTES : 0;
    double scores_count = (double)d[0] * (double)d[4] * (double)d[5];
    return products * (backward ? 2 : 1) + element_seconds(pricing, scores_count * each);
}

static double head_frac(const struct mcp_op *op)
{
    double d = (double)op->dims[2];
    if (op->dims[2] != op->dims[3])
        return 1.0; /* latent attention's kernels are made for their sizes */
    return d / (d + MCP_ATTENTION_HEAD_RAMP) / (128 / (128 + MCP_ATTENTION_HEAD_RAMP));
}

static double attention_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    const struct mcp_question *q = pricing->question;
    if (is_unfused(op))
        return unfused_seconds(pricing, op);
    bool backward = is_backward_attention(op);
    const struct mcp_attention_kernel *kernel = mcp_fused_attention_kernel(q);
    assert(kernel != NULL);
    double frac = backward ? kernel->backward_frac : kernel->forward_frac;
    double ramp = 1 + kernel->ramp_tokens / (double)q->job->sequence_length;
    double rate = q->cluster->gpu.peak_flops_per_s[rate_of(pricing, (enum mcp_dtype)op->dtype)] *
                  q->cluster->gpu.sustained_clock_frac * frac * head_frac(op);
    double start = backward ? MCP_ATTENTION_BACKWARD_START_S : MCP_ATTENTION_FORWARD_START_S;
    double products = backward ? MCP_ATTENTION_BACKWARD_PRODUCTS : 1;
    return attention_flops(op) * products * ramp / rate + start;
}

static double map_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    double bytes = mcp_op_moved_bytes(op);
    if (op->function == MCP_FN_CAST)
        return memory_seconds(pricing, bytes * pricing->question->stack->fp8_cast_factor);
    if (mcp_op_cost(op) == MCP_COST_OPTIMIZER)
        return memory_seconds(pricing, bytes); /* any stack streams these */
    return element_seconds(pricing, bytes);
}

double mcp_compute_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    switch (mcp_op_code(op)) {
    case MCP_MATMUL:
        return matmul_seconds(pricing, op);
    case MCP_ATTENTION:
        return attention_seconds(pricing, op);
    case MCP_MAP:
    case MCP_REDUCTION:
        return map_seconds(pricing, op);
    case MCP_HOST:
        return op->function == MCP_FN_EXPERT_COUNTS ? pricing->question->stack->moe_sync_s : 0;
    default:
        return 0;
    }
}

static bool low_precision(const struct mcp_pricing *pricing)
{
    enum mcp_dtype dtype = mcp_matmul_dtype(pricing->question->job->precision);
    return dtype == MCP_F8 || dtype == MCP_F4;
}

/* Routing launches many small kernels that the model has no op for. */
static int routing_launches(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    const struct mcp_stack *stack = pricing->question->stack;
    double launches = stack->moe_launches;
    if (low_precision(pricing) && pricing->question->cluster->gpu.host_is_slow &&
        !stack->cuda_graph)
        launches += stack->moe_fp8_launches *
                    (op->function == MCP_FN_ROUTER_TOP_K ? 1.0 : MCP_MOE_BACKWARD_LAUNCHES);
    return (int)launches;
}

static bool is_routing(const struct mcp_op *op)
{
    return op->function == MCP_FN_ROUTER_TOP_K || op->function == MCP_FN_ROUTER_TOP_K_BACKWARD;
}

int mcp_op_launches(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    int own = mcp_functions[op->function].launches;
    return is_routing(op) ? own + routing_launches(pricing, op) : own;
}

double mcp_op_start_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    int launches = mcp_functions[op->function].launches;
    if (is_routing(op) && pricing->question->stack->moe_launches > 0)
        launches += MCP_MOE_DEVICE_LAUNCHES;
    return launches * MCP_KERNEL_START_S;
}
