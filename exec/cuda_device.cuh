/* exec/cuda_device.cuh: the language that kernels are written in: CUDA, or a host that plays it.
 *
 * Included by .cu files alone. Under nvcc it is CUDA's own headers; under a C++17 compiler the
 * shim of the tests, which runs a block's threads as fibers. Both know:
 *
 *   MCP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)   a template in parentheses
 *   MCP_ALLOW_SHARED(kernel, bytes)       before a launch with more than 48 KiB of dynamic
 *   mcp_shared_limit()                    bytes that a block can have on this thread's device
 *   MCP_SHARED(type, name, count)         shared memory of a block: type name[count]
 *   MCP_SHARED_ARRAY(type, name)          the launch's dynamic shared memory, 16-byte aligned
 *
 * Shared memory is declared by these alone, not by __shared__, so that the shim can poison it and
 * see its bounds. PTX is in exec/cuda_ptx.cuh alone, each wrapper with a twin on the host. */
#ifndef MCP_EXEC_CUDA_DEVICE_CUH
#define MCP_EXEC_CUDA_DEVICE_CUH

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define MCP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
    kernel<<<(grid), (block), (shared_bytes), static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)
#define MCP_ALLOW_SHARED(kernel, bytes)                                                            \
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,                      \
                         static_cast<int>(bytes))
static inline size_t mcp_shared_limit()
{
    int device = 0, bytes = 0;
    cudaGetDevice(&device); /* what fails here fails the launch too */
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return static_cast<size_t>(bytes);
}
#define MCP_SHARED(type, name, count) __shared__ type name[count]
#define MCP_SHARED_ARRAY(type, name)                                                               \
    extern __shared__ __align__(16) unsigned char mcp_dynamic_shared[];                            \
    type *const name = reinterpret_cast<type *>(mcp_dynamic_shared)

#else
#include <shim.h>
#endif

#endif
