/* tests/cuda/shim/ptx.h: the instructions of exec/cuda_ptx.cuh, played by a host.
 *
 * A copy happens when its thread waits for it, and not before: until then its place holds NaNs.
 * Rows of matrices are read by the lane that names them, so that sanitizers see who reads. */
#ifndef MCP_TESTS_CUDA_PTX_H
#define MCP_TESTS_CUDA_PTX_H

#include "shim.h"

#include <cstdio>

/* --- products --- */

struct mcp_shim_product {
    const unsigned *a, *b;
    float *sum;
};

inline float mcp_shim_half_of(unsigned word, int which)
{
    return __uint_as_float(which == 0 ? word << 16 : word & 0xffff0000u);
}

MCP_SHIM_UNCHECKED inline void mcp_shim_multiply_together(void *const *lanes, unsigned)
{
    float a[16][16], b[8][16];
    for (int lane = 0; lane < 32; lane++) {
        const auto *mine = static_cast<const mcp_shim_product *>(lanes[lane]);
        const int group = lane / 4, pair = 2 * (lane % 4);
        for (int i = 0; i < 8; i++) /* register i / 2, its half i % 2 */
            a[group + i / 2 % 2 * 8][pair + i / 4 * 8 + i % 2] =
                mcp_shim_half_of(mine->a[i / 2], i % 2);
        for (int i = 0; i < 4; i++)
            b[group][pair + i / 2 * 8 + i % 2] = mcp_shim_half_of(mine->b[i / 2], i % 2);
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            float *sum = &static_cast<const mcp_shim_product *>(lanes[lane])->sum[i];
            const int row = lane / 4 + i / 2 * 8, column = 2 * (lane % 4) + i % 2;
            for (int k = 0; k < 16; k++)
                *sum += a[row][k] * b[column][k];
        }
}

inline void mcp_multiply_bf16(const unsigned (&a)[4], unsigned b0, unsigned b1, float (&sum)[4])
{
    const unsigned b[2] = {b0, b1};
    mcp_shim_product mine = {a, b, sum};
    mcp_shim_meet({0xffffffffu, mcp_shim_multiply_together, __FILE__, __LINE__}, &mine);
}

/* --- matrices --- */

struct mcp_shim_matrices {
    unsigned short row[8];
    unsigned result[4];
};

template <bool Transposed>
MCP_SHIM_UNCHECKED void mcp_shim_load_together(void *const *lanes, unsigned)
{
    for (int lane = 0; lane < 32; lane++)
        for (int matrix = 0; matrix < 4; matrix++) {
            unsigned word = 0;
            for (int half = 0; half < 2; half++) {
                const int row = Transposed ? 2 * (lane % 4) + half : lane / 4;
                const int column = Transposed ? lane / 4 : 2 * (lane % 4) + half;
                const auto *other = static_cast<const mcp_shim_matrices *>(lanes[8 * matrix + row]);
                word |= static_cast<unsigned>(other->row[column]) << 16 * half;
            }
            static_cast<mcp_shim_matrices *>(lanes[lane])->result[matrix] = word;
        }
}

template <bool Transposed> inline void mcp_shim_load(const unsigned short *row, unsigned (&to)[4])
{
    mcp_shim_matrices mine;
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
        fprintf(stderr, "shim: a row of a matrix is not aligned\n");
        abort();
    }
    memcpy(mine.row, row, sizeof mine.row);
    mcp_shim_meet({0xffffffffu, mcp_shim_load_together<Transposed>, __FILE__, __LINE__}, &mine);
    memcpy(to, mine.result, sizeof mine.result);
}
inline void mcp_load_matrices(const unsigned short *row, unsigned (&to)[4])
{
    mcp_shim_load<false>(row, to);
}
inline void mcp_load_transposed(const unsigned short *row, unsigned (&to)[4])
{
    mcp_shim_load<true>(row, to);
}

/* --- copies --- */

struct mcp_shim_copy {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
};
struct mcp_shim_copies {
    int count;
    mcp_shim_copy copy[96];
};
/* Of each thread of a block. */
inline mcp_shim_copies &mcp_shim_copies_of_thread()
{
    static thread_local mcp_shim_copies all[1024];
    const uint3 &at = mcp_shim_here->thread;
    const dim3 &shape = mcp_shim_here->block_shape;
    return all[(at.z * shape.y + at.y) * shape.x + at.x];
}

template <int Bytes> inline void mcp_copy_async(void *to, const void *from, bool real)
{
    mcp_shim_copies &mine = mcp_shim_copies_of_thread();
    const auto places = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    if (places % Bytes != 0 || mine.count == sizeof mine.copy / sizeof *mine.copy) {
        fprintf(stderr, "shim: a copy is not aligned, or too many are on their way\n");
        abort();
    }
    memset(to, 0xff, Bytes);
    mine.copy[mine.count++] = {to, real ? from : nullptr, Bytes};
}

inline void mcp_wait_for_copies()
{
    mcp_shim_copies &mine = mcp_shim_copies_of_thread();
    for (int i = 0; i < mine.count; i++) {
        const mcp_shim_copy &copy = mine.copy[i];
        if (copy.from != nullptr)
            memcpy(copy.to, copy.from, copy.bytes);
        else
            memset(copy.to, 0, copy.bytes);
    }
    mine.count = 0;
}

/* A byte of it is read, so that AddressSanitizer sees where. */
inline void mcp_prefetch(const void *from)
{
    static_cast<void>(*static_cast<const volatile unsigned char *>(from));
}

/* --- numbers --- */

inline float mcp_power_of_two(float x)
{
    return exp2f(x);
}
inline float mcp_reciprocal(float x)
{
    return 1 / x;
}
inline unsigned mcp_pack_bf16(float low, float high)
{
    return __float2bfloat16_rn(low).bits | static_cast<unsigned>(__float2bfloat16_rn(high).bits)
                                               << 16;
}
inline unsigned mcp_pack_f16(float low, float high)
{
    return __half_as_ushort(__float2half_rn(low)) |
           static_cast<unsigned>(__half_as_ushort(__float2half_rn(high))) << 16;
}

/* To the nearest multiple of the unit, in a format of so many bits of mantissa, which has subnormal
 * numbers below 2^least. */
template <bool E5M2> unsigned mcp_shim_eight(float x)
{
    constexpr int mantissa = E5M2 ? 2 : 3, least = E5M2 ? -14 : -6;
    const double magnitude = fmin(fabs(static_cast<double>(x)), E5M2 ? 57344 : 448);
    int exponent = least;
    if (std::isnan(x))
        return 0x7f;
    if (magnitude >= ldexp(1, least))
        exponent = ilogb(magnitude);
    const double count = nearbyint(ldexp(magnitude, mantissa - exponent));
    return (std::signbit(x) ? 0x80u : 0u) |
           static_cast<unsigned>(((exponent - least) << mantissa) + static_cast<int>(count));
}
template <bool E5M2> unsigned mcp_pack_eight(float low, float high)
{
    return mcp_shim_eight<E5M2>(low) | mcp_shim_eight<E5M2>(high) << 8;
}

#endif
