/* tests/cuda/kernels_one_bit.cc: momenta, signs and scales of 1-bit Adam. */
#include "kit.h"

static constexpr int64_t elements = 2100 * 8, real = 16789;

struct state {
    kit_array value, error, variance;
    kit_memory<unsigned char> signs;
    kit_memory<float> scale, scalars;
    mcp_cuda_signs op;
    explicit state(int skipped)
        : value(MCP_CUDA_F32, real), error(MCP_CUDA_F32, real), variance(MCP_CUDA_F32, real),
          signs(elements / 8), scale(1), scalars(2)
    {
        value.fill(0, 1, 1);
        error.fill(0, 1, 2);
        variance.fill(0.5, 0.5, 3);
        for (int64_t i = 0; i < real; i += 7)
            variance.set(i, 0);
        error.set(5, 0);
        scalars[0] = 1;
        scalars[1] = static_cast<float>(skipped);
        op = {floats(value), floats(variance), floats(error), signs,
              scale,         scalars,          elements,      real};
    }
    static float *floats(const kit_array &a)
    {
        return static_cast<float *>(static_cast<mcp_cuda_array>(a).data);
    }
};

TEST(one_bit_compress)
{
    state s(0);
    double squares = 0, count = 0;
    for (int64_t i = 0; i < real; i++) {
        squares += s.variance.get(i) > 0 ? s.error.get(i) * s.error.get(i) : 0;
        count += s.variance.get(i) > 0;
    }
    const double scale = std::sqrt(squares / count);
    std::vector<double> want_error, want_signs(elements / 8);
    for (int64_t i = 0; i < real; i++) {
        const double u = s.error.get(i);
        want_error.push_back(s.variance.get(i) > 0 ? u - (u < 0 ? -scale : scale) : 0);
        want_signs[static_cast<size_t>(i / 8)] += u < 0 ? 1 << i % 8 : 0;
    }
    mcp_cuda_compress_signs(&s.op, kit_queue());
    kit_compare(s.scale.values(), {scale}, {1e-7, 0}, "scale");
    kit_compare(s.error.values(), want_error, {1e-6, 1e-7}, "errors");
    kit_compare(s.signs.values(), want_signs, {0, 0}, "signs");
}

TEST(one_bit_add_error)
{
    state s(0), same(0);
    std::vector<double> want = s.error.values();
    for (int64_t i = 0; i < real; i++)
        want[static_cast<size_t>(i)] += s.value.get(i);
    mcp_cuda_add_error(&s.op, kit_queue());
    kit_compare(s.error.values(), want, {6e-8, 0}, "errors");
}

TEST(one_bit_skipped)
{
    state s(1), before(1);
    kit_memory<float> moment(8), gradient(8);
    const struct mcp_cuda_momentum momentum = {
        {gradient, MCP_CUDA_F32}, moment, s.scalars, 8, 0.9f, 1};
    mcp_cuda_votes votes = {s.signs, s.scale, moment, s.scalars, 8, 1, 8};
    for (int i = 0; i < 8; i++)
        moment[i] = 3;
    mcp_cuda_add_error(&s.op, kit_queue());
    mcp_cuda_compress_signs(&s.op, kit_queue());
    mcp_cuda_momentum(&momentum, kit_queue());
    mcp_cuda_decompress_signs(&votes, kit_queue());
    kit_compare(s.error.values(), before.error.values(), {0, 0}, "errors");
    kit_compare(s.signs.values(), std::vector<double>(elements / 8, 0), {0, 0}, "signs");
    kit_compare(s.scale.values(), {0}, {0, 0}, "scale");
    kit_compare(moment.values(), std::vector<double>(8, 3), {0, 0}, "moments");
}

TEST(one_bit_momentum)
{
    for (mcp_cuda_format format : kit_formats) {
        kit_array gradient(format, 1003), moment(MCP_CUDA_F32, 1003);
        kit_memory<float> scalars(2);
        gradient.fill(0, 1, 1);
        moment.fill(0, 1, 2);
        scalars[0] = 9, scalars[1] = 0;
        std::vector<double> want = moment.values();
        for (int64_t i = 0; i < 1003; i++)
            want[static_cast<size_t>(i)] =
                0.9 * want[static_cast<size_t>(i)] + 0.1 * 4 * gradient.get(i);
        const struct mcp_cuda_momentum op = {gradient, state::floats(moment), scalars, 1003, 0.9f,
                                             4};
        mcp_cuda_momentum(&op, kit_queue());
        kit_compare(moment.values(), want, {1e-6, 1e-6}, "moments");
    }
}

TEST(one_bit_votes)
{
    constexpr int64_t own = 24, ranks = 3, all = 65;
    kit_memory<unsigned char> signs(own / 8 * ranks);
    kit_memory<float> scales(ranks), average(own), moment(all), scalars(2);
    unsigned seed = 4;
    for (int64_t i = 0; i < signs.count; i++)
        signs[i] = static_cast<unsigned char>((kit_random(&seed) + 1) * 127);
    for (int r = 0; r < ranks; r++)
        scales[r] = 1 + static_cast<float>(r);
    scalars[0] = 1, scalars[1] = 0;
    std::vector<double> want_average(own), want_moment;
    for (int64_t i = 0; i < own * ranks; i++) {
        const double sign = signs[i / 8] >> i % 8 & 1 ? -1 : 1;
        const double value = sign * static_cast<double>(1 + i / own);
        want_average[static_cast<size_t>(i % own)] += value / ranks;
        if (i < all)
            want_moment.push_back(value);
    }
    mcp_cuda_votes op = {signs, scales, average, scalars, own, ranks, all};
    mcp_cuda_average_signs(&op, kit_queue());
    kit_compare(average.values(), want_average, {1e-6, 1e-7}, "averages");
    op.out = moment;
    mcp_cuda_decompress_signs(&op, kit_queue());
    kit_compare(moment.values(), want_moment, {0, 0}, "moments");
}
