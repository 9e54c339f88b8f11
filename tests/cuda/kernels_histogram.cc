/* tests/cuda/kernels_histogram.cc: numbers by magnitude, counted as frexp() has it. */
#include "kit.h"

#include <cmath>

static std::vector<double> want_of(const kit_array &from)
{
    std::vector<double> want(MCP_CUDA_HISTOGRAM, 0);
    want[0] = INFINITY, want[1] = -INFINITY;
    for (const double x : from.values()) {
        int exponent = 0, side = -1;
        if (!std::isfinite(x))
            continue;
        const double fraction = std::frexp(std::fabs(x), &exponent);
        if (x != 0)
            side = 2 * (exponent - 1) + (fraction >= std::sqrt(0.5)) + 96;
        side = side < 0 ? -1 : side > 127 ? 127 : side;
        want[0] = std::fmin(want[0], x), want[1] = std::fmax(want[1], x);
        want[2] += 1, want[3] += x, want[4] += x * x;
        want[(size_t)(5 + (x < 0 ? 127 - side : 129 + side))] += 1;
    }
    return want;
}

static void check(const kit_array &from, const char *name)
{
    kit_memory<double> out(MCP_CUDA_HISTOGRAM);
    mcp_cuda_histogram(from, from.elements, out, kit_queue());
    kit_compare(out.values(), want_of(from), {1e-12, 1e-12}, "%s of %d", name, (int)from.elements);
}

/* Tiles that are not whole, and several of a block. */
TEST(histogram_random)
{
    for (mcp_cuda_format format : kit_formats)
        for (int64_t elements : {0, 1, 257, 1024, 5001}) {
            kit_array from(format, elements);
            from.fill(0, 4, 7);
            for (int64_t i = 0; i < elements; i++)
                from.set(i, std::ldexp(from.get(i), (int)(i % 23) - 12));
            check(from, "random numbers");
        }
}

/* Every bucket has its edge, and what is next to it below; both signs. */
TEST(histogram_edges)
{
    const int half_octaves = 280;
    kit_array from(MCP_CUDA_F32, 4 * half_octaves + 6);
    for (int i = 0; i < half_octaves; i++) {
        const double edge = std::exp2((i - 140) / 2.0);
        const auto near = static_cast<float>(edge);
        const float above = near < edge ? std::nextafter(near, INFINITY) : near;
        from.set(4L * i, above);
        from.set(4L * i + 1, std::nextafter(above, 0.0f));
        from.set(4L * i + 2, -above);
        from.set(4L * i + 3, -std::nextafter(above, 0.0f));
    }
    const double others[6] = {0, -0.0, NAN, INFINITY, -INFINITY, 1e-44};
    for (int i = 0; i < 6; i++)
        from.set(4L * half_octaves + i, others[i]);
    check(from, "edges");
}
