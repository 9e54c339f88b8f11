/* tests/cuda/kernels_map.cc: copies, sums, the residual stream, activations, sums over rows. */
#include "kit.h"

/* Multiples of nothing, of 8, and larger than a block. */
static const int64_t sizes[] = {1, 7, 64, 1002, 4096, 5001};

TEST(map_scale)
{
    for (int64_t n : sizes)
        for (mcp_cuda_format from : kit_formats)
            for (mcp_cuda_format to : kit_formats) {
                kit_array x(from, n, n % 2), y(to, n);
                x.fill(0.1, 2, 5);
                std::vector<double> want = x.values();
                for (double &v : want)
                    v *= -0.75;
                mcp_cuda_scale(x, y, n, -0.75f, kit_queue());
                kit_compare(y.values(), want, {kit_rounding(to), 1e-7}, "scale %d", (int)n);
            }
}

TEST(map_fill_leaves_the_rest)
{
    kit_array x(MCP_CUDA_BF16, 21);
    x.fill(1, 0, 1);
    mcp_cuda_fill(x.at(8), 12, 2.5f, kit_queue());
    std::vector<double> want(21, 1);
    std::fill(want.begin() + 8, want.begin() + 20, 2.5);
    kit_compare(x.values(), want, {0, 0}, "fill");
}

TEST(map_add_in_place)
{
    for (int64_t n : sizes) {
        kit_array x(MCP_CUDA_F32, n), y(MCP_CUDA_BF16, n, n % 2);
        x.fill(0, 1, 1);
        y.fill(0, 1, 2);
        std::vector<double> want = x.values(), more = y.values();
        for (size_t i = 0; i < want.size(); i++)
            want[i] += more[i];
        mcp_cuda_add(x, y, x, n, kit_queue());
        kit_compare(x.values(), want, {6e-8, 0}, "add %d", (int)n);
    }
}

TEST(map_copy_columns)
{
    const int64_t shapes[][4] = {{5, 7, 9, 11}, {3, 16, 24, 32}, {1, 600, 600, 601}};
    for (const auto &s : shapes) {
        kit_array x(MCP_CUDA_BF16, s[0] * s[2]), y(MCP_CUDA_F32, s[0] * s[3]);
        x.fill(0, 1, 3);
        y.fill(9, 0, 3);
        std::vector<double> want = y.values();
        for (int64_t r = 0; r < s[0]; r++)
            for (int64_t c = 0; c < s[1]; c++)
                want[(size_t)(r * s[3] + c)] = x.get(r * s[2] + c);
        const mcp_cuda_columns op = {x, y, s[0], s[1], s[2], s[3]};
        mcp_cuda_copy_columns(&op, kit_queue());
        kit_compare(y.values(), want, {0, 0}, "copy of %d columns", (int)s[1]);
    }
}

struct shape {
    int64_t rows, columns;
};
static const shape shapes[] = {{1, 1}, {3, 7}, {70, 33}, {5, 64}, {300, 264}, {9, 1001}};

TEST(map_column_sums)
{
    for (const shape &s : shapes)
        for (mcp_cuda_format format : kit_formats) {
            const int64_t stride = s.columns + 8;
            kit_array x(format, s.rows * stride), sums(MCP_CUDA_F32, s.columns);
            x.fill(0.1, 1, 4);
            sums.fill(0, 1, 5);
            std::vector<double> want = sums.values();
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.columns; c++)
                    want[(size_t)c] += x.get(r * stride + c);
            const mcp_cuda_columns op = {x, sums, s.rows, s.columns, stride, 0};
            mcp_cuda_add_column_sums(&op, kit_queue());
            kit_compare(sums.values(), want, {1e-5, 1e-5}, "sums of [%d][%d]", (int)s.rows,
                        (int)s.columns);
        }
}

TEST(map_residual)
{
    for (const shape &s : shapes)
        for (mcp_cuda_format format : kit_formats)
            for (bool biased : {false, true}) {
                const int64_t n = s.rows * s.columns;
                kit_array branch(format, n), input(format, n), out(format, n);
                kit_array bias(s.rows % 2 == 0 ? MCP_CUDA_F32 : format, s.columns);
                branch.fill(0, 1, 1);
                input.fill(0, 1, 2);
                bias.fill(0, 1, 3);
                std::vector<double> want(static_cast<size_t>(n));
                for (int64_t i = 0; i < n; i++)
                    want[(size_t)i] =
                        branch.get(i) + input.get(i) + (biased ? bias.get(i % s.columns) : 0);
                mcp_cuda_array none = {nullptr, format};
                const struct mcp_cuda_residual op = {
                    branch, input, biased ? (mcp_cuda_array)bias : none, out, s.rows, s.columns};
                mcp_cuda_residual(&op, kit_queue());
                kit_compare(out.values(), want, {kit_rounding(format), 2e-7}, "residual");
            }
}

/* --- activations --- */

static double curve(mcp_cuda_curve kind, double x)
{
    switch (kind) {
    case MCP_CUDA_SILU:
        return x / (1 + std::exp(-x));
    case MCP_CUDA_GELU_TANH:
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case MCP_CUDA_GELU:
        return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    default:
        return x > 0 ? x : 0;
    }
}

static double slope(mcp_cuda_curve kind, double x)
{
    const double h = 1e-5;
    if (kind == MCP_CUDA_RELU)
        return x > 0 ? 1 : 0;
    return (curve(kind, x + h) - curve(kind, x - h)) / (2 * h);
}

/* One shape, both ways: gated beside each other, apart, or not at all; biased or not. */
static void check_activation(mcp_cuda_curve kind, mcp_cuda_format format, shape s, int how)
{
    const bool gated = how % 3 > 0, apart = how % 3 == 2, biased = how >= 3;
    const int64_t w = s.columns, wide = gated && !apart ? 2 * w : w, d_wide = gated ? 2 * w : w;
    kit_array up(format, s.rows * wide), other(format, s.rows * w);
    kit_array bias(how == 5 ? MCP_CUDA_F32 : format, 2 * w); /* one operand in fp32 too */
    kit_array active(format, s.rows * w), d_active(format, s.rows * w);
    kit_array d_up(format, s.rows * d_wide);
    up.fill(0.2, 4, 1);
    other.fill(0, 1, 2);
    bias.fill(0, 1, 3);
    d_active.fill(0, 1, 4);
    struct mcp_cuda_activation op = {};
    op.up = up;
    op.up_stride = wide;
    if (gated)
        op.other = apart ? (mcp_cuda_array)other : up.at(w);
    op.other_stride = gated ? (apart ? w : wide) : 0;
    if (biased)
        op.bias = bias;
    if (biased && gated)
        op.other_bias = bias.at(w);
    op.active = active;
    op.d_active = d_active;
    op.d_up = d_up;
    op.curve = kind;
    op.rows = s.rows;
    op.width = w;
    std::vector<double> want((size_t)(s.rows * w)), d_want((size_t)(s.rows * d_wide));
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t c = 0; c < w; c++) {
            const double x = up.get(r * wide + c) + (biased ? bias.get(c) : 0);
            double y = 1;
            if (gated)
                y = (apart ? other.get(r * w + c) : up.get(r * wide + w + c)) +
                    (biased ? bias.get(w + c) : 0);
            const double d = d_active.get(r * w + c);
            want[(size_t)(r * w + c)] = curve(kind, x) * y;
            d_want[(size_t)(r * d_wide + c)] = slope(kind, x) * d * y;
            if (gated)
                d_want[(size_t)(r * d_wide + w + c)] = curve(kind, x) * d;
        }
    mcp_cuda_activation(&op, kit_queue());
    mcp_cuda_activation_backward(&op, kit_queue());
    const kit_tolerance tolerance = {kit_rounding(format) + 1e-6, 2e-6};
    kit_compare(active.values(), want, tolerance, "curve %d, case %d", kind, how);
    kit_compare(d_up.values(), d_want, tolerance, "back of curve %d, case %d", kind, how);
}

TEST(map_activation)
{
    for (int kind = MCP_CUDA_SILU; kind <= MCP_CUDA_RELU; kind++)
        for (mcp_cuda_format format : kit_formats)
            for (int how = 0; how < 6; how++) {
                check_activation((mcp_cuda_curve)kind, format, {5, 7}, how);
                check_activation((mcp_cuda_curve)kind, format, {3, 304}, how);
            }
}

TEST(map_activation_far_from_0)
{
    kit_array up(MCP_CUDA_F32, 6), active(MCP_CUDA_F32, 6), d(MCP_CUDA_F32, 6),
        d_up(MCP_CUDA_F32, 6);
    const double far[] = {-1e4, -200, -90, 90, 200, 1e4};
    struct mcp_cuda_activation op = {};
    op.up = up, op.active = active, op.d_active = d, op.d_up = d_up;
    op.rows = 1, op.width = op.up_stride = 6;
    d.fill(1, 0, 1);
    for (int kind = MCP_CUDA_SILU; kind <= MCP_CUDA_RELU; kind++) {
        for (int i = 0; i < 6; i++)
            up.set(i, far[i]);
        op.curve = (mcp_cuda_curve)kind;
        mcp_cuda_activation(&op, kit_queue());
        mcp_cuda_activation_backward(&op, kit_queue());
        kit_compare(active.values(), {0, 0, 0, 90, 200, 1e4}, {1e-6, 1e-6}, "curve %d", kind);
        kit_compare(d_up.values(), {0, 0, 0, 1, 1, 1}, {1e-6, 1e-6}, "slope of curve %d", kind);
    }
}

TEST(map_nothing_to_do)
{
    kit_array none(MCP_CUDA_F32, 0);
    const mcp_cuda_columns op = {none, none, 0, 0, 0, 0};
    mcp_cuda_fill(none, 0, 1, kit_queue());
    mcp_cuda_copy_columns(&op, kit_queue());
    mcp_cuda_add_column_sums(&op, kit_queue());
}
