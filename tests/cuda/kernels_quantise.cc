/* tests/cuda/kernels_quantise.cc: activations in 8 bits. */
#include "kit.h"

#include <algorithm>

struct shape {
    int64_t rows, columns;
};

static void check(shape s, mcp_cuda_format format)
{
    const int64_t blocks = (s.columns + 63) / 64;
    kit_array x(format, s.rows * s.columns), back(format, s.rows * s.columns);
    kit_memory<float> scales(s.rows * blocks);
    kit_memory<signed char> bytes(s.rows * s.columns);
    x.fill(0.1, 3, 1);
    std::vector<double> want_scales, want_back;
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t last = std::min((b + 1) * 64, s.columns);
            double largest = 0;
            for (int64_t c = b * 64; c < last; c++)
                largest = std::fmax(largest, std::fabs(x.get(r * s.columns + c)));
            want_scales.push_back(largest / 127);
        }
    const mcp_cuda_quantised op = {x, scales, bytes, s.rows, s.columns};
    mcp_cuda_quantise(&op, kit_queue());
    kit_compare(scales.values(), want_scales, {2e-7, 0}, "scales of [%d][%d]", (int)s.rows,
                (int)s.columns);
    for (int64_t i = 0; i < x.elements; i++) {
        const int64_t block = i / s.columns * blocks + i % s.columns / 64;
        const double scale = static_cast<double>(scales[block]);
        const double byte = static_cast<double>(bytes[i]);
        if (!(std::fabs(byte * scale - x.get(i)) <= 0.5001 * scale + 1e-12))
            kit_fail("byte %d of [%d][%d] is more than half a scale away", (int)i, (int)s.rows,
                     (int)s.columns);
        want_back.push_back(byte * scale);
    }
    const mcp_cuda_quantised op_back = {back, scales, bytes, s.rows, s.columns};
    mcp_cuda_dequantise(&op_back, kit_queue());
    kit_compare(back.values(), want_back, {kit_rounding(format), 1e-9}, "back");
}

TEST(quantise_and_back)
{
    for (mcp_cuda_format format : kit_formats)
        for (shape s : {shape{1, 1}, shape{3, 64}, shape{5, 100}, shape{9, 257}, shape{7, 264}})
            check(s, format);
}

TEST(quantise_no_numbers_and_zeros)
{
    kit_array x(MCP_CUDA_F32, 192);
    kit_memory<float> scales(3);
    kit_memory<signed char> bytes(192);
    x.fill(0, 0, 1);
    x.set(70, NAN);
    x.set(130, INFINITY);
    const mcp_cuda_quantised op = {x, scales, bytes, 1, 192};
    mcp_cuda_quantise(&op, kit_queue());
    kit_compare(scales.values(), {0, NAN, NAN}, {0, 0}, "scales");
    mcp_cuda_dequantise(&op, kit_queue());
    std::vector<double> want(192, NAN);
    std::fill(want.begin(), want.begin() + 64, 0);
    kit_compare(x.values(), want, {0, 0}, "back");
}
