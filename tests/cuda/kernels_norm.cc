/* tests/cuda/kernels_norm.cc: LayerNorm and RMSNorm, of rows and of heads. */
#include "kit.h"

struct norm_case {
    int64_t rows, segments, columns, stride;
    int centers, weighted, biased, residual;
};
static const norm_case cases[] = {
    {1, 1, 1, 1, 0, 1, 0, 0},       {5, 1, 7, 7, 1, 1, 1, 1},         {33, 1, 64, 64, 0, 1, 0, 1},
    {4, 1, 520, 520, 1, 1, 1, 0},   {3, 1, 4104, 4104, 0, 1, 0, 1},   {2, 1, 901, 901, 1, 1, 1, 1},
    {9, 3, 16, 72, 0, 1, 0, 0},     {6, 2, 11, 40, 1, 1, 1, 0},       {3, 1, 600, 600, 0, 0, 0, 1},
    {300, 1, 520, 520, 0, 1, 0, 0}, {2, 1, 12305, 12305, 1, 1, 1, 1}, {7, 1, 24, 24, 1, 0, 1, 0},
    {3, 1, 904, 904, 1, 0, 1, 1},   {700, 3, 16, 56, 1, 1, 1, 0},
};

struct arrays {
    kit_array x, w, b, y, dy, residual, dx, dw, db;
    /* weights are in fp32 where rows are an even number */
    arrays(const norm_case &c, mcp_cuda_format f)
        : x(f, c.rows * c.stride), w(c.rows % 2 == 0 ? MCP_CUDA_F32 : f, c.columns),
          b(w.format, c.columns), y(f, c.rows * c.stride), dy(f, c.rows * c.stride),
          residual(f, c.rows * c.stride), dx(f, c.rows * c.stride), dw(MCP_CUDA_F32, c.columns),
          db(MCP_CUDA_F32, c.columns)
    {
        x.fill(0.3, 2, 1);
        w.fill(1, 0.5, 2);
        b.fill(0, 1, 3);
        dy.fill(0.1, 1, 4);
        residual.fill(0, 1, 5);
        dw.fill(0, 1, 6);
        db.fill(0, 1, 7);
        y.fill(7, 0, 1);
        dx.fill(7, 0, 1);
    }
};

static struct mcp_cuda_norm op_of(const norm_case &c, const arrays &a)
{
    struct mcp_cuda_norm op = {};
    op.x = a.x, op.y = a.y, op.dy = a.dy, op.dx = a.dx;
    op.weight_gradient = a.dw, op.bias_gradient = a.db;
    if (c.weighted)
        op.weight = a.w;
    if (c.biased)
        op.bias = a.b;
    if (c.residual)
        op.residual = a.residual;
    op.rows = c.rows, op.segments = c.segments, op.columns = c.columns, op.stride = c.stride;
    op.epsilon = 1e-5f, op.centers = c.centers;
    return op;
}

struct wanted {
    std::vector<double> y, dx, dw, db;
};

/* One unit, in double precision. */
static void want_unit(const norm_case &c, const arrays &a, int64_t at, wanted *want)
{
    double mean = 0, squares = 0, gradient = 0, product = 0;
    const auto n = static_cast<double>(c.columns);
    for (int64_t i = 0; i < c.columns && c.centers; i++)
        mean += a.x.get(at + i) / n;
    for (int64_t i = 0; i < c.columns; i++)
        squares += std::pow(a.x.get(at + i) - mean, 2) / n;
    const double factor = 1 / std::sqrt(squares + static_cast<double>(1e-5f));
    for (int64_t i = 0; i < c.columns; i++) {
        const double g = a.dy.get(at + i) * (c.weighted ? a.w.get(i) : 1);
        gradient += c.centers ? g / n : 0;
        product += g * (a.x.get(at + i) - mean) * factor / n;
    }
    for (int64_t i = 0; i < c.columns; i++) {
        const double z = (a.x.get(at + i) - mean) * factor, w = c.weighted ? a.w.get(i) : 1;
        const auto j = static_cast<size_t>(at + i), k = static_cast<size_t>(i);
        want->y[j] = z * w + (c.biased ? a.b.get(i) : 0);
        want->dx[j] = factor * (a.dy.get(at + i) * w - gradient - z * product) +
                      (c.residual ? a.residual.get(at + i) : 0);
        want->dw[k] += c.weighted ? a.dy.get(at + i) * z : 0;
        want->db[k] += c.biased ? a.dy.get(at + i) : 0;
    }
}

static void check(const norm_case &c, mcp_cuda_format format)
{
    const arrays a(c, format);
    const struct mcp_cuda_norm op = op_of(c, a);
    wanted want = {a.y.values(), a.dx.values(), a.dw.values(), a.db.values()};
    for (int64_t row = 0; row < c.rows; row++)
        for (int64_t s = 0; s < c.segments; s++)
            want_unit(c, a, row * c.stride + s * c.columns, &want);
    mcp_cuda_norm(&op, kit_queue());
    mcp_cuda_norm_backward(&op, kit_queue());
    const kit_tolerance stored = {kit_rounding(format) + 2e-6, 4e-6}, summed = {2e-5, 2e-5};
    const auto which = static_cast<int>(&c - cases);
    kit_compare(a.y.values(), want.y, stored, "norm, case %d, format %d", which, format);
    kit_compare(a.dx.values(), want.dx, stored, "dx, case %d, format %d", which, format);
    kit_compare(a.dw.values(), want.dw, summed, "dw, case %d, format %d", which, format);
    kit_compare(a.db.values(), want.db, summed, "db, case %d, format %d", which, format);
}

TEST(norm_of_rows_and_heads)
{
    for (const norm_case &c : cases) {
        check(c, MCP_CUDA_F32);
        check(c, MCP_CUDA_BF16);
    }
}

TEST(norm_backward_in_place)
{
    const norm_case &c = cases[1];
    const arrays a(c, MCP_CUDA_F32), b(c, MCP_CUDA_F32);
    struct mcp_cuda_norm apart = op_of(c, a), in_place = op_of(c, b);
    in_place.dx = in_place.dy;
    mcp_cuda_norm_backward(&apart, kit_queue());
    mcp_cuda_norm_backward(&in_place, kit_queue());
    kit_compare(b.dy.values(), a.dx.values(), {0, 0}, "dx over dy");
}
