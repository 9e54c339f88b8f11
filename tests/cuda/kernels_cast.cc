/* tests/cuda/kernels_cast.cc: operands of 8 bit products, bit for bit. */
#include "exec/cuda_ptx.cuh"
#include "kit.h"
#include "step/casts.h"

#include <algorithm>

/* --- what the formats are --- */

struct eight_format {
    const char *name;
    int mantissa, bias;
    unsigned largest; /* its byte */
};
static const eight_format e4m3 = {"E4M3", 3, 7, 0x7e}, e5m2 = {"E5M2", 2, 15, 0x7b};

/* Of a byte without its sign. */
static double number_of(const eight_format &f, unsigned byte)
{
    const unsigned fraction = byte & ((1u << f.mantissa) - 1);
    const int exponent = static_cast<int>(byte >> f.mantissa);
    const double normal = exponent > 0 ? 1 : 0;
    return ldexp(normal + ldexp(fraction, -f.mantissa), std::max(exponent, 1) - f.bias);
}

static std::vector<double> numbers_of(const eight_format &f)
{
    std::vector<double> numbers;
    for (unsigned byte = 0; byte <= f.largest; byte++)
        numbers.push_back(number_of(f, byte));
    return numbers;
}

/* By looking for it: of two numbers as near the one whose byte is even. */
static unsigned nearest(const std::vector<double> &numbers, double x)
{
    if (std::isnan(x))
        return 0x7f;
    const double magnitude = std::fabs(x);
    const auto above = static_cast<size_t>(
        std::lower_bound(numbers.begin(), numbers.end(), magnitude) - numbers.begin());
    size_t found = std::min(above, numbers.size() - 1);
    if (found > 0) {
        const double up = numbers[found] - magnitude, down = magnitude - numbers[found - 1];
        found -= down < up || (down == up && found % 2 == 1);
    }
    return static_cast<unsigned>(found) | (std::signbit(x) ? 0x80u : 0u);
}

/* The least power of two under which the largest fits, of those that are normal numbers. */
static double scale_for(const std::vector<double> &numbers, double largest)
{
    double scale = ldexp(1, -126);
    if (!std::isfinite(largest))
        return static_cast<double>(NAN);
    while (largest / scale > numbers.back())
        scale *= 2;
    return largest > 0 ? scale : 1;
}

/* --- casts --- */

struct shape {
    int64_t rows, columns;
};
enum wanted { BOTH, ROWS, COLUMNS };

struct casts {
    explicit casts(shape s)
        : rows(mcp_cast_bytes(s.rows, s.columns)), columns(mcp_cast_bytes(s.rows, s.columns))
    {
    }
    kit_memory<unsigned char> rows, columns;
};

static void run(const kit_array &x, shape s, const eight_format &f, wanted which, casts *to)
{
    const struct mcp_cuda_cast op = {x,
                                     which != COLUMNS ? to->rows.data : nullptr,
                                     which != ROWS ? to->columns.data : nullptr,
                                     s.rows,
                                     s.columns,
                                     &f == &e5m2};
    mcp_cuda_cast(&op, kit_queue());
}

static void check_scale(const unsigned char *cast, double want, const char *what)
{
    float scale;
    memcpy(&scale, cast, sizeof scale);
    kit_compare({static_cast<double>(scale)}, {want}, {0, 0}, "scale of %s", what);
    for (size_t i = sizeof scale; i < MCP_CAST_HEADER_BYTES; i++)
        if (cast[i] != 0xff)
            kit_fail("byte %d behind the scale of %s is written", (int)i, what);
}

/* Element [r][c] is at r x down + c x right. */
static void check_bytes(const unsigned char *cast, const std::vector<unsigned> &want, shape s,
                        int64_t down, int64_t right, const char *what)
{
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t c = 0; c < s.columns; c++) {
            const unsigned byte = cast[MCP_CAST_HEADER_BYTES + r * down + c * right];
            if (byte == want[static_cast<size_t>(r * s.columns + c)])
                continue;
            kit_fail("%s: [%d][%d] is %02x, not %02x", what, (int)r, (int)c, byte,
                     want[static_cast<size_t>(r * s.columns + c)]);
            return;
        }
}

static void check_one(const kit_array &x, shape s, const eight_format &f, wanted which)
{
    const std::vector<double> numbers = numbers_of(f), values = x.values();
    double largest = 0, poison = 0;
    std::vector<unsigned> want;
    for (double value : values) {
        largest = std::fmax(largest, std::fabs(value));
        poison += value * 0;
    }
    const double scale = scale_for(numbers, largest + poison);
    for (double value : values)
        want.push_back(nearest(numbers, value / scale));
    char what[80];
    snprintf(what, sizeof what, "%s of [%d][%d]", f.name, (int)s.rows, (int)s.columns);
    casts got(s);
    run(x, s, f, which, &got);
    if (which != COLUMNS) {
        check_scale(got.rows, scale, what);
        check_bytes(got.rows, want, s, s.columns, 1, what);
    }
    if (which != ROWS) {
        check_scale(got.columns, scale, what);
        check_bytes(got.columns, want, s, 1, s.rows, what);
    }
}

static void check(const kit_array &x, shape s)
{
    for (const eight_format *f : {&e4m3, &e5m2})
        for (wanted which : {BOTH, ROWS, COLUMNS})
            check_one(x, s, *f, which);
}

TEST(cast_shapes)
{
    for (mcp_cuda_format format : {MCP_CUDA_BF16, MCP_CUDA_F16})
        for (shape s : {shape{16, 16}, shape{16, 160}, shape{144, 48}, shape{128, 256}}) {
            kit_array x(format, s.rows * s.columns);
            x.fill(0.01, 1, 1);
            check(x, s);
        }
}

TEST(cast_large)
{
    const shape s = {272, 1040};
    kit_array x(MCP_CUDA_BF16, s.rows * s.columns);
    x.fill(-3, 40, 7);
    check_one(x, s, e4m3, BOTH);
    check_one(x, s, e5m2, BOTH);
}

/* More than all blocks look at before they come around: the largest is in one place alone, of each
 * of which another thread, warp or block knows. */
TEST(cast_finds_the_largest)
{
    const shape s = {1056, 1024};
    kit_array x(MCP_CUDA_BF16, s.rows * s.columns);
    const std::vector<double> numbers = numbers_of(e4m3);
    x.fill(0, 0, 1);
    for (int64_t place : {INT64_C(0), INT64_C(7), INT64_C(8 * 31 + 1), INT64_C(8 * 255),
                          INT64_C(8 * 511 + 3), x.elements / 2, INT64_C(1) << 20, x.elements - 1}) {
        casts got(s);
        x.set(place, -1e5);
        run(x, s, e4m3, ROWS, &got);
        check_scale(got.rows, scale_for(numbers, std::fabs(x.get(place))), "one number");
        x.set(place, 0);
    }
}

/* Around numbers on which a scale ends: 1.75 x 2^n fits, the next bf16 number does not. */
TEST(cast_scales)
{
    const shape s = {16, 16};
    kit_array x(MCP_CUDA_BF16, s.rows * s.columns);
    for (int exponent : {-133, -130, -127, -126, -120, -119, -118, -117, -112, -111, -110, -1, 0, 8,
                         15, 16, 126, 127})
        for (double fraction : {1.0, 1.75, 1.7578125, 1.9921875}) {
            x.fill(0, ldexp(1, std::max(exponent - 9, -133)), 3);
            x.set(77, -ldexp(fraction, exponent));
            check_one(x, s, e4m3, BOTH);
            check_one(x, s, e5m2, BOTH);
        }
}

/* Numbers of the format, what is between two of them, and what is beside that. */
TEST(cast_midpoints)
{
    const shape s = {32, 64};
    for (const eight_format *f : {&e4m3, &e5m2}) {
        const std::vector<double> numbers = numbers_of(*f);
        kit_array x(MCP_CUDA_BF16, s.rows * s.columns);
        x.fill(0, numbers.back(), 1);
        for (size_t i = 0; i < numbers.size(); i++) {
            const double next = i + 1 < numbers.size() ? numbers[i + 1] : numbers[i];
            const double middle = (numbers[i] + next) / 2, by = (next - numbers[i]) / 8;
            const double places[] = {numbers[i], middle - by, middle, middle + by};
            for (size_t k = 0; k < 8; k++)
                x.set(static_cast<int64_t>(8 * i + k), places[k / 2] * (k % 2 == 0 ? 1 : -1));
        }
        check_one(x, s, *f, BOTH);
    }
}

TEST(cast_zeros_and_no_numbers)
{
    const shape s = {144, 80};
    kit_array x(MCP_CUDA_BF16, s.rows * s.columns);
    x.fill(0, 0, 1);
    x.set(5, -0.0);
    check(x, s);
    x.fill(0, 1, 1);
    for (double none : {static_cast<double>(NAN), static_cast<double>(INFINITY),
                        -static_cast<double>(INFINITY)}) {
        x.set(9000, none);
        check(x, s);
    }
}

/* --- the same by hand, for devices that have no words for it --- */

template <bool E5M2> static void check_by_hand(float x, const std::vector<double> &numbers)
{
    const unsigned want = nearest(numbers, static_cast<double>(x)), hand = mcp_to_eight<E5M2>(x);
    const unsigned pair = mcp_pack_eight<E5M2>(x, 0), other = mcp_pack_eight<E5M2>(0, x);
    if (hand != want || pair != want || other != want << 8)
        kit_fail("%a in %s is %02x by hand, %04x and %04x as a pair, not %02x",
                 static_cast<double>(x), E5M2 ? "E5M2" : "E4M3", hand, pair, other, want);
}

/* All bf16 numbers, and what is between two of the format's or beside that. */
template <bool E5M2> static void check_all_by_hand(const std::vector<double> &numbers)
{
    for (unsigned bits = 0; bits < 0x10000; bits++)
        check_by_hand<E5M2>(__uint_as_float(bits << 16), numbers);
    for (size_t i = 0; i + 1 < numbers.size(); i++) {
        const auto middle = static_cast<float>((numbers[i] + numbers[i + 1]) / 2);
        for (float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)}) {
            check_by_hand<E5M2>(x, numbers);
            check_by_hand<E5M2>(-x, numbers);
        }
    }
}

TEST(cast_by_hand)
{
    check_all_by_hand<false>(numbers_of(e4m3));
    check_all_by_hand<true>(numbers_of(e5m2));
}
