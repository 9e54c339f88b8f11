/* step/price_compute.c: FLOPs, bytes and seconds of products, attention and maps. */
#include "step/price_parts.h"

#include "core/stack.h"
#include "step/attention.h"
#include "step/constants.h"
#include "step/measured.h"

#include <math.h>
#include <string.h>

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

static bool is_backward_scan(const struct mcp_op *op)
{
    return op->function == MCP_FN_SCAN_BACKWARD || op->function == MCP_FN_DELTA_BACKWARD ||
           op->function == MCP_FN_SELECTIVE_BACKWARD;
}

static bool is_delta_rule(const struct mcp_op *op)
{
    return op->function == MCP_FN_DELTA_FORWARD || op->function == MCP_FN_DELTA_BACKWARD;
}

/* The products of a scan's forward. */
static double scan_flops(const struct mcp_op *op)
{
    const int64_t *d = op->dims;
    const struct mcp_scan scan = {.is_delta_rule = is_delta_rule(op),
                                  .heads = (double)d[0],
                                  .groups = (double)d[4],
                                  .state_size = (double)d[2],
                                  .head_dim = (double)d[3],
                                  .chunk_size = (double)d[5]};
    return 2.0 * (double)d[1] * mcp_scan_products(&scan);
}

/* The model's backward is twice its forward: what a fused kernel computes again is
 * priced, not counted. */
double mcp_op_flops(const struct mcp_op *op)
{
    const int64_t *d = op->dims;
    if (mcp_op_code(op) == MCP_MATMUL)
        return 2.0 * (double)d[0] * (double)d[1] * (double)d[2] * (double)d[3];
    if (mcp_op_code(op) == MCP_SCAN)
        return scan_flops(op) * (is_backward_scan(op) ? 2 : 1);
    if (mcp_op_code(op) != MCP_ATTENTION)
        return 0;
    return attention_flops(op) * (is_backward_attention(op) ? 2 : 1);
}

double mcp_op_kernel_flops(const struct mcp_op *op)
{
    const bool is_fused = mcp_op_code(op) == MCP_ATTENTION && !is_unfused(op);
    return is_fused && is_backward_attention(op)
               ? attention_flops(op) * MCP_ATTENTION_BACKWARD_PRODUCTS
               : mcp_op_flops(op);
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
    double results = op->function == MCP_FN_MATMUL_NT_GELU ? 2.0 : 1.0;
    double result = accumulates(op) ? 2.0 * accumulator_bytes : 2.0 * results;
    return (double)op->dims[3] * (element * (m * k + k * n) + result * m * n);
}

double mcp_op_moved_bytes(const struct mcp_op *op)
{
    const struct mcp_function_traits *f = &mcp_functions[op->function];
    if (f->code == MCP_MATMUL)
        return matmul_bytes(op, 4.0);
    if (f->code == MCP_SCAN) {
        double heads = (double)op->dims[0] * (double)op->dims[3], tokens = (double)op->dims[1];
        double groups = (double)op->dims[4] * (double)op->dims[2];
        double each = f->elements_moved > 0 ? f->elements_moved : is_backward_scan(op) ? 6 : 3;
        return tokens * (heads * each + groups * 2 * (is_backward_scan(op) ? 2 : 1)) *
               mcp_dtype_bytes((enum mcp_dtype)op->dtype);
    }
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
    if (mcp_dtype_is_low(dtype))
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
    bool low = mcp_dtype_is_low((enum mcp_dtype)op->dtype);
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
    bool low = mcp_dtype_is_low((enum mcp_dtype)op->dtype);
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

/* A batch of products in the format of `op`: M, N, K, how many. */
static double batch_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op,
                            const int64_t dims[4])
{
    struct mcp_op product = *op;
    product.function = MCP_FN_MATMUL_NT;
    memcpy(product.dims, dims, 4 * sizeof *dims);
    return matmul_seconds(pricing, &product);
}

/* Two batched products over all scores, causal or not, and the traffic of the
 * scores between them. Backward: twice the products. */
static double unfused_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    bool backward = is_backward_attention(op);
    const int64_t *d = op->dims;
    double products = batch_seconds(pricing, op, (int64_t[4]){d[4], d[5], d[2], d[0]}) +
                      batch_seconds(pricing, op, (int64_t[4]){d[4], d[3], d[5], d[0]});
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
    bool backward = is_backward_attention(op);
    const struct mcp_attention_kernel *kernel = mcp_fused_attention_kernel(q);
    if (is_unfused(op) || kernel == NULL) /* a pool without kernels runs what others fuse */
        return unfused_seconds(pricing, op);
    double frac = backward ? kernel->backward_frac : kernel->forward_frac;
    double ramp = 1 + kernel->ramp_tokens / (double)q->job->sequence_length;
    double rate = q->cluster->gpu.peak_flops_per_s[rate_of(pricing, (enum mcp_dtype)op->dtype)] *
                  q->cluster->gpu.sustained_clock_frac * frac * head_frac(op);
    double start = backward ? MCP_ATTENTION_BACKWARD_START_S : MCP_ATTENTION_FORWARD_START_S;
    return mcp_op_kernel_flops(op) * ramp / rate + start;
}

/* The products of all chunks, and what they make of chunks' states on the way. */
struct scan_seconds {
    double scores, states, others;
};

static struct scan_seconds chunked_seconds(const struct mcp_pricing *pricing,
                                           const struct mcp_op *op)
{
    const int64_t *d = op->dims, q = d[5], n = d[2], p = d[3];
    const int64_t chunks = (d[1] + q - 1) / q, heads = d[0] * chunks, groups = d[4] * chunks;
    const double scores = batch_seconds(pricing, op, (int64_t[4]){q, q, n, groups});
    const double within = batch_seconds(pricing, op, (int64_t[4]){q, p, q, heads});
    const double read = batch_seconds(pricing, op, (int64_t[4]){q, p, n, heads});
    const double bytes = (double)heads * (double)n * (double)p * MCP_SCAN_STATE_BYTES;
    struct scan_seconds s = {.scores = scores, .others = within + read};
    s.states =
        batch_seconds(pricing, op, (int64_t[4]){n, p, q, heads}) + memory_seconds(pricing, bytes);
    if (is_delta_rule(op)) { /* keys with keys; their inverse applied; the state's part off */
        s.scores += scores;
        s.others += batch_seconds(pricing, op, (int64_t[4]){q, n, q, heads}) + within + read;
    }
    return s;
}

/* Mamba's selective scan streams its inputs and outputs once. */
static double selective_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    return element_seconds(pricing, mcp_op_moved_bytes(op));
}

/* Backward: twice the products, after scores and states are computed again. */
static double scan_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    if (op->function == MCP_FN_SELECTIVE_FORWARD || op->function == MCP_FN_SELECTIVE_BACKWARD)
        return selective_seconds(pricing, op);
    const struct scan_seconds s = chunked_seconds(pricing, op);
    const double forward = s.scores + s.states + s.others;
    return is_backward_scan(op) ? 2 * forward + s.scores + s.states : forward;
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
    double measured;
    if (mcp_op_measured(pricing, op, &measured))
        return measured;
    switch (mcp_op_code(op)) {
    case MCP_MATMUL:
        return matmul_seconds(pricing, op);
    case MCP_ATTENTION:
        return attention_seconds(pricing, op);
    case MCP_SCAN:
        return scan_seconds(pricing, op);
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
    return mcp_dtype_is_low(mcp_matmul_dtype(pricing->question->job->precision));
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
    double measured;
    if (mcp_op_measured(pricing, op, &measured))
        return 0; /* it is in there */
    if (is_routing(op) && pricing->question->stack->moe_launches > 0)
        launches += MCP_MOE_DEVICE_LAUNCHES;
    return launches * MCP_KERNEL_START_S;
}
