/* tests/cuda/kernels_update.cc: sums of squares, moments, AdamW. */
#include "kit.h"

TEST(update_sums)
{
    for (int64_t n : {1, 9, 2048, 70001})
        for (mcp_cuda_format format : kit_formats)
            for (int64_t offset : {0, 1}) {
                kit_array x(format, n, offset);
                kit_memory<double> moments(2);
                kit_memory<float> squares(1);
                x.fill(0.5, 1, 3);
                squares[0] = 2;
                double sum = 0, all = 0;
                for (int64_t i = 0; i < n; i++) {
                    sum += x.get(i);
                    all += x.get(i) * x.get(i);
                }
                mcp_cuda_moments(x, n, moments, kit_queue());
                mcp_cuda_add_sum_squares(x, n, 3, squares, kit_queue());
                kit_compare(moments.values(), {sum, all}, {1e-7, 0}, "moments of %d", (int)n);
                kit_compare(squares.values(), {2 + 3 * all}, {2e-7, 0}, "squares of %d", (int)n);
            }
}

TEST(update_moments_of_nothing)
{
    kit_array x(MCP_CUDA_F32, 0);
    kit_memory<double> moments(2);
    mcp_cuda_moments(x, 0, moments, kit_queue());
    kit_compare(moments.values(), {0, 0}, {0, 0}, "moments");
}

/* A flat buffer, of which some ranges are this rank's. */
struct flat {
    static constexpr int64_t elements = 20000;
    kit_array gradients, weights, master, first, second;
    kit_memory<float> scalars;
    flat(mcp_cuda_format format, int64_t offset)
        : gradients(format, elements, offset), weights(format, elements, offset),
          master(MCP_CUDA_F32, elements, offset), first(MCP_CUDA_F32, elements, offset),
          second(MCP_CUDA_F32, elements, offset), scalars(2)
    {
        gradients.fill(0, 1, 1);
        weights.fill(0, 1, 2);
        master.fill(0, 1, 3);
        first.fill(0, 0.5, 4);
        second.fill(0.5, 0.5, 5);
        for (int64_t i = 0; i < elements; i += 5)
            second.set(i, 0);
        scalars[0] = 0.5f;
        scalars[1] = 0;
    }
};
static const mcp_cuda_range all_ranges[] = {
    {3, 17, 0.1f}, {20, 0, 1}, {24, 9001, 0}, {9100, 10900, 0.01f}};

static struct mcp_cuda_adam op_of(const flat &f, bool has_master)
{
    struct mcp_cuda_adam op = {};
    op.gradients = f.gradients, op.weights = f.weights;
    op.master = has_master ? static_cast<float *>(f.master.at(0).data) : nullptr;
    op.first = static_cast<float *>(f.first.at(0).data);
    op.second = static_cast<float *>(f.second.at(0).data);
    op.scalars = f.scalars;
    op.ranges = all_ranges;
    op.num_ranges = 4;
    op.beta1 = 0.9f, op.beta2 = 0.95f, op.epsilon = 1e-8f, op.rate = 0.01f;
    op.correction1 = 1.5f, op.correction2 = 2;
    return op;
}

struct wanted {
    std::vector<double> weights, master, first, second;
};

static wanted want_of(const flat &f, const struct mcp_cuda_adam &op, bool frozen)
{
    wanted w = {f.weights.values(), f.master.values(), f.first.values(), f.second.values()};
    std::vector<double> &truth = op.master != nullptr ? w.master : w.weights;
    for (int r = 0; r < op.num_ranges; r++)
        for (int64_t j = 0; j < op.ranges[r].count; j++) {
            const auto i = static_cast<size_t>(op.ranges[r].first + j);
            const double g = f.gradients.get(static_cast<int64_t>(i)) * 0.5;
            if (!frozen) {
                w.first[i] = 0.9 * w.first[i] + 0.1 * g;
                w.second[i] = 0.95 * w.second[i] + 0.05 * g * g;
            }
            const double step = w.first[i] * 1.5 / (std::sqrt(w.second[i] * 2) + 1e-8);
            const double decay = static_cast<double>(op.ranges[r].decay);
            if (!frozen || w.second[i] > 0)
                truth[i] -= 0.01 * (step + decay * truth[i]);
            w.weights[i] = truth[i];
        }
    return w;
}

static void check(mcp_cuda_format format, bool frozen, int64_t offset)
{
    flat f(format, offset);
    const struct mcp_cuda_adam op = op_of(f, format != MCP_CUDA_F32);
    const wanted want = want_of(f, op, frozen);
    (frozen ? mcp_cuda_adam_frozen : mcp_cuda_adam)(&op, kit_queue());
    const kit_tolerance close = {1e-5, 1e-6};
    kit_compare(f.weights.values(), want.weights, {kit_rounding(format) + 1e-5, 1e-6},
                "weights, format %d, frozen %d, offset %d", format, frozen, (int)offset);
    kit_compare(f.master.values(), want.master, close, "master, format %d", format);
    kit_compare(f.first.values(), want.first, close, "first moments, format %d", format);
    kit_compare(f.second.values(), want.second, close, "second moments, format %d", format);
}

TEST(update_adam)
{
    for (mcp_cuda_format format : kit_formats)
        for (bool frozen : {false, true})
            for (int64_t offset : {0, 1})
                check(format, frozen, offset);
}

TEST(update_adam_many_ranges)
{
    flat f(MCP_CUDA_F32, 0);
    struct mcp_cuda_adam op = op_of(f, false);
    std::vector<mcp_cuda_range> many;
    for (int i = 0; i < 150; i++)
        many.push_back({i * 100 + i % 7, 90, 0.01f * static_cast<float>(i % 3)});
    op.ranges = many.data();
    op.num_ranges = static_cast<int>(many.size());
    const wanted want = want_of(f, op, false);
    mcp_cuda_adam(&op, kit_queue());
    kit_compare(f.weights.values(), want.weights, {1e-5, 1e-6}, "weights");
}

TEST(update_adam_skipped)
{
    flat f(MCP_CUDA_BF16, 0), before(MCP_CUDA_BF16, 0);
    const struct mcp_cuda_adam op = op_of(f, true);
    f.scalars[1] = 1;
    mcp_cuda_adam(&op, kit_queue());
    mcp_cuda_adam_frozen(&op, kit_queue());
    kit_compare(f.weights.values(), before.weights.values(), {0, 0}, "weights");
    kit_compare(f.master.values(), before.master.values(), {0, 0}, "master");
    kit_compare(f.first.values(), before.first.values(), {0, 0}, "first moments");
}

/* Of the step that was taken, from the state that it left. */
TEST(update_norms)
{
    for (bool frozen : {false, true}) {
        flat f(MCP_CUDA_F32, 0);
        struct mcp_cuda_adam op = op_of(f, false);
        const mcp_cuda_range whole = {0, flat::elements, 0.1f};
        const std::vector<double> before = f.weights.values();
        op.ranges = &whole;
        op.num_ranges = 1;
        (frozen ? mcp_cuda_adam_frozen : mcp_cuda_adam)(&op, kit_queue());
        kit_memory<double> sums(2);
        struct mcp_cuda_update_norms norms = {};
        norms.truth = static_cast<float *>(f.weights.at(0).data);
        norms.first = op.first, norms.second = op.second, norms.sums = sums;
        norms.elements = flat::elements;
        norms.decay = 0.1, norms.epsilon = 1e-8, norms.rate = 0.01;
        norms.correction1 = 1.5, norms.correction2 = 2, norms.frozen = frozen;
        double weights = 0, updates = 0;
        for (int64_t i = 0; i < flat::elements; i++) {
            weights += f.weights.get(i) * f.weights.get(i);
            updates += std::pow(f.weights.get(i) - before[static_cast<size_t>(i)], 2);
        }
        mcp_cuda_update_norms(&norms, kit_queue());
        kit_compare(sums.values(), {weights, updates}, {1e-4, 0}, "norms, frozen %d", frozen);
    }
}
