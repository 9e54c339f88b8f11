/* tests/cuda/shim/shim.h: the part of CUDA that kernels use, played by a host.
 *
 * A block's threads are fibers of one host thread; a thread runs until it waits for others.
 * Found on the way, with a message and abort(): threads of a block that meet at different
 * barriers, lanes of a warp that meet at different operations or masks, and threads that wait
 * for ever. Found by value: shared memory is filled with NaNs for each block. Found by
 * sanitizers: bounds of shared and global memory; with ThreadSanitizer, races between the
 * threads of a block, of which each is a fiber of its own there: only barriers and __syncwarp
 * order memory.
 *
 * Not played: blocks beside each other, weak memory, bank conflicts, time. */
#ifndef MCP_TESTS_CUDA_SHIM_H
#define MCP_TESTS_CUDA_SHIM_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define MCP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
    mcp_shim_launch(kernel, mcp_shim_shape{(grid), (block), (shared_bytes)}, (stream), __VA_ARGS__)
#define MCP_ALLOW_SHARED(kernel, bytes)                                                            \
    mcp_shim_allow_shared(reinterpret_cast<void (*)()>(kernel), (bytes))
#define MCP_SHARED(type, name, count)                                                              \
    static char name##_site;                                                                       \
    type *const name = static_cast<type *>(mcp_shim_shared(&name##_site, sizeof(type) * (count)))
#define MCP_SHARED_ARRAY(type, name) type *const name = static_cast<type *>(mcp_shim_dynamic())

/* --- launches --- */

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct mcp_shim_shape {
    dim3 grid, block;
    size_t shared_bytes;
};

/* Shared memory: a launch that has more than it may have ends the process, as it would fail on a
 * device of that limit. At first 227 KiB; 99 KiB are those of compute capability 8.6, 8.9, 12.0. */
void mcp_shim_allow_shared(void (*kernel)(), size_t bytes);
void mcp_shim_check_shared(void (*kernel)(), size_t bytes);
size_t mcp_shared_limit();
extern "C" void mcp_shim_set_shared_limit(size_t bytes);

/* In which order threads of a block run between two barriers. */
enum mcp_shim_order { MCP_SHIM_ASCENDING, MCP_SHIM_DESCENDING, MCP_SHIM_SHUFFLED };
extern "C" void mcp_shim_set_order(enum mcp_shim_order order);

/* Queues a launch on a stream: run() does it, then drop() frees the closure. The shim's own runs
 * it at once and is weak: a fake runtime has another. */
extern "C" void mcp_shim_enqueue(void *stream, void (*run)(void *closure),
                                 void (*drop)(void *closure), void *closure);

/* Runs thread(context) for every thread of every block, block by block. */
void mcp_shim_run(const mcp_shim_shape &shape, void (*thread)(void *context), void *context);

template <class... Parameters> struct mcp_shim_closure {
    void (*kernel)(Parameters...);
    mcp_shim_shape shape;
    std::tuple<Parameters...> arguments;

    static void thread(void *context)
    {
        auto *self = static_cast<mcp_shim_closure *>(context);
        std::apply(self->kernel, self->arguments);
    }
    static void run(void *context)
    {
        mcp_shim_run(static_cast<mcp_shim_closure *>(context)->shape, thread, context);
    }
    static void drop(void *context)
    {
        delete static_cast<mcp_shim_closure *>(context);
    }
};

template <class... Parameters, class... Arguments>
void mcp_shim_launch(void (*kernel)(Parameters...), const mcp_shim_shape &shape, void *stream,
                     Arguments... arguments)
{
    using closure = mcp_shim_closure<Parameters...>;
    mcp_shim_check_shared(reinterpret_cast<void (*)()>(kernel), shape.shared_bytes);
    auto *queued = new closure{kernel, shape, std::tuple<Parameters...>(arguments...)};
    mcp_shim_enqueue(stream, closure::run, closure::drop, queued);
}

/* --- where a thread is --- */

struct mcp_shim_place {
    uint3 thread, block;
    dim3 block_shape, grid_shape;
};
extern thread_local const mcp_shim_place *mcp_shim_here;
#define threadIdx (mcp_shim_here->thread)
#define blockIdx (mcp_shim_here->block)
#define blockDim (mcp_shim_here->block_shape)
#define gridDim (mcp_shim_here->grid_shape)
#define warpSize 32

/* --- shared memory, barriers, warps --- */

/* The block's memory of one declaration; NaNs at first. */
void *mcp_shim_shared(const void *site, size_t bytes);
void *mcp_shim_dynamic();

void mcp_shim_barrier(const char *file, int line);
#define __syncthreads() mcp_shim_barrier(__FILE__, __LINE__)
void __threadfence();

/* Lanes of `mask` meet; the last one calls together(lanes), lanes[i] being lane i's `mine`. */
struct mcp_shim_meeting {
    unsigned mask;
    void (*together)(void *const *lanes, unsigned mask); /* NULL: __syncwarp, orders memory */
    const char *file;
    int line;
};
void mcp_shim_meet(const mcp_shim_meeting &meeting, void *mine);
int mcp_shim_lane();

#define MCP_SHIM_UNCHECKED __attribute__((no_sanitize("thread")))

inline void mcp_shim_syncwarp(const char *file, int line, unsigned mask = 0xffffffffu)
{
    mcp_shim_meet({mask, nullptr, file, line}, nullptr);
}
#define __syncwarp(...) mcp_shim_syncwarp(__FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__)

template <class T> struct mcp_shim_shuffled {
    T value, result;
    int from;
};
template <class T>
MCP_SHIM_UNCHECKED void mcp_shim_shuffle_together(void *const *lanes, unsigned mask)
{
    for (int i = 0; i < 32; i++) {
        auto *lane = static_cast<mcp_shim_shuffled<T> *>(lanes[i]);
        if ((mask >> i & 1) != 0 && (mask >> lane->from & 1) != 0)
            lane->result = static_cast<mcp_shim_shuffled<T> *>(lanes[lane->from])->value;
        else if ((mask >> i & 1) != 0)
            memset(&lane->result, 0xff, sizeof lane->result);
    }
}
template <class T>
MCP_SHIM_UNCHECKED T mcp_shim_shuffle(const char *file, int line, unsigned mask, T value, int from)
{
    mcp_shim_shuffled<T> mine = {value, value, from & 31};
    mcp_shim_meet({mask, mcp_shim_shuffle_together<T>, file, line}, &mine);
    return mine.result;
}
#define __shfl_sync(mask, value, from) mcp_shim_shuffle(__FILE__, __LINE__, (mask), (value), (from))
#define __shfl_xor_sync(mask, value, other)                                                        \
    mcp_shim_shuffle(__FILE__, __LINE__, (mask), (value), mcp_shim_lane() ^ (other))
/* Past the last lane: its own value. */
#define __shfl_down_sync(mask, value, by)                                                          \
    mcp_shim_shuffle(__FILE__, __LINE__, (mask), (value),                                          \
                     mcp_shim_lane() + (by) < 32 ? mcp_shim_lane() + (by) : mcp_shim_lane())
#define __shfl_up_sync(mask, value, by)                                                            \
    mcp_shim_shuffle(__FILE__, __LINE__, (mask), (value),                                          \
                     mcp_shim_lane() >= (by) ? mcp_shim_lane() - (by) : mcp_shim_lane())

struct mcp_shim_vote {
    bool yes;
    unsigned result;
};
MCP_SHIM_UNCHECKED inline void mcp_shim_vote_together(void *const *lanes, unsigned mask)
{
    unsigned votes = 0;
    for (int i = 0; i < 32; i++)
        if ((mask >> i & 1) != 0 && static_cast<mcp_shim_vote *>(lanes[i])->yes)
            votes |= 1u << i;
    for (int i = 0; i < 32; i++)
        if ((mask >> i & 1) != 0)
            static_cast<mcp_shim_vote *>(lanes[i])->result = votes;
}
MCP_SHIM_UNCHECKED inline unsigned mcp_shim_ballot(const char *file, int line, unsigned mask,
                                                   bool yes)
{
    mcp_shim_vote mine = {yes, 0};
    mcp_shim_meet({mask, mcp_shim_vote_together, file, line}, &mine);
    return mine.result;
}
#define __ballot_sync(mask, yes) mcp_shim_ballot(__FILE__, __LINE__, (mask), (yes))
#define __any_sync(mask, yes) (mcp_shim_ballot(__FILE__, __LINE__, (mask), (yes)) != 0)
#define __all_sync(mask, yes) (mcp_shim_ballot(__FILE__, __LINE__, (mask), (yes)) == (mask))

/* --- numbers --- */

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
/* Byte i is that of the 8 of x and y, from x's lowest on, which digit i of `which` names. */
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which)
{
    const uint64_t both = x | static_cast<uint64_t>(y) << 32;
    unsigned bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes |= static_cast<unsigned>(both >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
    return bytes;
}
inline float __uint_as_float(unsigned bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
inline unsigned __float_as_uint(float value)
{
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __half {
    _Float16 value;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
struct alignas(4) __half2 {
    __half x, y;
};

inline float __bfloat162float(__nv_bfloat16 x)
{
    return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
/* To nearest, ties to even; NaN stays one. */
inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return {static_cast<uint16_t>(0x7fff)};
    return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return {bits};
}
inline unsigned short __half_as_ushort(__half x)
{
    unsigned short bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline __half __ushort_as_half(unsigned short bits)
{
    __half x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline float __half2float(__half x)
{
    return static_cast<float>(x.value);
}
inline __half __float2half_rn(float value)
{
    return {static_cast<_Float16>(value)};
}

#endif
