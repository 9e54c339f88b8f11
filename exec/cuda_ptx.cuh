/* exec/cuda_ptx.cuh: the machine instructions that CUDA has no words for, each in a function.
 *
 * A warp calls the first three together. Tests play them on the host: tests/cuda/shim/ptx.h.
 * Fragments are those of PTX ISA, "Matrix Fragments for mma.m16n8k16". */
#ifndef MCP_EXEC_CUDA_PTX_CUH
#define MCP_EXEC_CUDA_PTX_CUH

#include "exec/cuda_device.cuh"

/* E5M2 or E4M3 by hand, where devices have no words for it: to nearest, ties to even; the largest
 * where that is too large, NaN of what is none. Below the least normal number the sum with `step`
 * rounds to multiples of the least subnormal one. */
template <bool E5M2> static __device__ __forceinline__ unsigned mcp_to_eight(float value)
{
    constexpr unsigned drop = E5M2 ? 21 : 20, largest = E5M2 ? 0x7b : 0x7e;
    constexpr unsigned rebias = E5M2 ? 0x38000000u : 0x3c000000u, least = rebias + 0x00800000u;
    constexpr float step = E5M2 ? 128.0f : 16384.0f;
    const unsigned all = __float_as_uint(value), sign = all >> 24 & 0x80u;
    unsigned bits = all & 0x7fffffffu;
    if (bits > 0x7f800000u)
        return 0x7f;
    if (bits < least)
        bits = __float_as_uint(__uint_as_float(bits) + step) - __float_as_uint(step);
    else
        bits = (bits - rebias + (1u << (drop - 1)) - 1 + (bits >> drop & 1u)) >> drop;
    return sign | (bits < largest ? bits : largest);
}

#ifdef __CUDACC__

/* sum[16][8] += a[16][16] b[16][8], of bf16, in fp32. Lane l has of sum rows l / 4 and l / 4 + 8,
 * columns 2 (l % 4) and the next. */
static __device__ __forceinline__ void mcp_multiply_bf16(const unsigned (&a)[4], unsigned b0,
                                                         unsigned b1, float (&sum)[4])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8x8 matrices of 2-byte numbers in shared memory: lane l gives row l % 8 of matrix l / 8,
 * 16-byte aligned, and gets of each matrix row l / 4, columns 2 (l % 4) and the next. */
static __device__ __forceinline__ void mcp_load_matrices(const unsigned short *row,
                                                         unsigned (&to)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}

/* The same of the matrices' transposes. */
static __device__ __forceinline__ void mcp_load_transposed(const unsigned short *row,
                                                           unsigned (&to)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}

/* Starts a copy of 16 or 4 aligned bytes to shared memory; zeros if not `real`, and `from` is
 * then not read. It has happened when this thread has waited for it. */
template <int Bytes>
static __device__ __forceinline__ void mcp_copy_async(void *to, const void *from, bool real)
{
    const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int bytes = real ? Bytes : 0;
    if constexpr (Bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(from),
                     "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared), "l"(from),
                     "r"(bytes)
                     : "memory");
}

/* Waits for all copies that this thread has started; others see them behind a barrier. */
static __device__ __forceinline__ void mcp_wait_for_copies()
{
    asm volatile("cp.async.wait_all;\n" ::: "memory");
}

/* 2^x, to 2 units in the last place. */
static __device__ __forceinline__ float mcp_power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x, to 1 unit in the last place; 0 where that is below 1e-38. */
static __device__ __forceinline__ float mcp_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

/* Two numbers to nearest bf16, the first in the low half. */
static __device__ __forceinline__ unsigned mcp_pack_bf16(float low, float high)
{
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
/* To nearest fp16; infinite past its range. */
static __device__ __forceinline__ unsigned mcp_pack_f16(float low, float high)
{
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* To nearest E5M2 or E4M3, in the lower 16 bits; what is too large becomes the largest number, what
 * is none NaN. */
template <bool E5M2>
static __device__ __forceinline__ unsigned mcp_pack_eight(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    unsigned short both;
    if constexpr (E5M2)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;\n" : "=h"(both) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\n" : "=h"(both) : "f"(high), "f"(low));
    return both;
#else
    return mcp_to_eight<E5M2>(low) | mcp_to_eight<E5M2>(high) << 8;
#endif
}

/* This place of global memory will be read soon. */
static __device__ __forceinline__ void mcp_prefetch(const void *from)
{
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from));
}

#else
#include <ptx.h>
#endif

#endif
