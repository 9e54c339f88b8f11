/* exec/cuda_runtime.c: the only file that knows the CUDA runtime. */
#include "exec/cuda_runtime.h"

#include <cuda_runtime_api.h>

#include <stdio.h>

static enum mcp_status check(cudaError_t code, const char *what, struct mcp_error *err)
{
    if (code == cudaSuccess)
        return MCP_OK;
    cudaGetLastError(); /* the next call is not to blame */
    if (code == cudaErrorInsufficientDriver || code == cudaErrorNoDevice)
        return mcp_fail(err, MCP_RUN_FAILURE, "no CUDA device: %s", cudaGetErrorString(code));
    return mcp_fail(err, MCP_RUN_FAILURE, "%s: CUDA says: %s", what, cudaGetErrorString(code));
}

enum mcp_status mcp_cuda_count(int *count, struct mcp_error *err)
{
    *count = 0;
    MCP_TRY(check(cudaGetDeviceCount(count), "counting devices", err));
    return *count > 0 ? MCP_OK
                      : mcp_fail(err, MCP_RUN_FAILURE, "no CUDA device: none can be seen here");
}

enum mcp_status mcp_cuda_choose(int device, struct mcp_error *err)
{
    return check(cudaSetDevice(device), "choosing a device", err);
}

enum mcp_status mcp_cuda_chosen(int *device, struct mcp_error *err)
{
    return check(cudaGetDevice(device), "asking for the device", err);
}

enum mcp_status mcp_cuda_facts_of(int device, struct mcp_cuda_facts *out, struct mcp_error *err)
{
    struct cudaDeviceProp properties;
    *out = (struct mcp_cuda_facts){.multiprocessors = 0};
    MCP_TRY(check(cudaGetDeviceProperties(&properties, device), "asking a device's name", err));
    MCP_TRY(check(cudaDeviceGetPCIBusId(out->pci_address, sizeof out->pci_address, device),
                  "asking where a device is", err));
    snprintf(out->name, sizeof out->name, "%.255s", properties.name);
    out->compute_major = properties.major;
    out->compute_minor = properties.minor;
    out->multiprocessors = properties.multiProcessorCount;
    out->memory_bytes = (int64_t)properties.totalGlobalMem;
    return MCP_OK;
}

/* --- memory --- */

static void give_back(void *memory)
{
    cudaFree(memory);
}

static void give_back_host(void *memory)
{
    cudaFreeHost(memory);
}

enum mcp_status mcp_cuda_new_memory(struct mcp_arena *arena, int64_t bytes, void **out,
                                    struct mcp_error *err)
{
    size_t have = 0, all = 0;
    cudaError_t code = cudaMalloc(out, bytes > 0 ? (size_t)bytes : 1);
    if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        MCP_TRY(check(cudaMemGetInfo(&have, &all), "asking for free memory", err));
        return mcp_fail(err, MCP_RUN_FAILURE,
                        "out of device memory: %zu of %zu bytes free, and %lld more are needed",
                        have, all, (long long)bytes);
    }
    MCP_TRY(check(code, "taking memory", err));
    mcp_defer(arena, give_back, *out);
    return MCP_OK;
}

enum mcp_status mcp_cuda_new_host_memory(struct mcp_arena *arena, int64_t bytes, void **out,
                                         struct mcp_error *err)
{
    MCP_TRY(check(cudaMallocHost(out, bytes > 0 ? (size_t)bytes : 1), "locking host memory", err));
    mcp_defer(arena, give_back_host, *out);
    return MCP_OK;
}

enum mcp_status mcp_cuda_copy(void *to, const void *from, int64_t bytes, void *stream,
                              struct mcp_error *err)
{
    if (bytes == 0)
        return MCP_OK;
    return check(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, stream), "a copy",
                 err);
}

enum mcp_status mcp_cuda_set_bytes(void *memory, int byte, int64_t bytes, void *stream,
                                   struct mcp_error *err)
{
    if (bytes == 0)
        return MCP_OK;
    return check(cudaMemsetAsync(memory, byte, (size_t)bytes, stream), "setting memory", err);
}

/* --- streams and events --- */

static void end_stream(void *stream)
{
    cudaStreamDestroy(stream);
}

static void end_event(void *event)
{
    cudaEventDestroy(event);
}

enum mcp_status mcp_cuda_new_stream(struct mcp_arena *arena, bool urgent, void **out,
                                    struct mcp_error *err)
{
    int least = 0, most = 0;
    cudaStream_t stream;
    MCP_TRY(check(cudaDeviceGetStreamPriorityRange(&least, &most), "asking for priorities", err));
    MCP_TRY(
        check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? most : least),
              "making a stream", err));
    mcp_defer(arena, end_stream, stream);
    *out = stream;
    return MCP_OK;
}

enum mcp_status mcp_cuda_new_event(struct mcp_arena *arena, bool timed, void **out,
                                   struct mcp_error *err)
{
    cudaEvent_t event;
    unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    MCP_TRY(check(cudaEventCreateWithFlags(&event, flags), "making an event", err));
    mcp_defer(arena, end_event, event);
    *out = event;
    return MCP_OK;
}

enum mcp_status mcp_cuda_record(void *event, void *stream, struct mcp_error *err)
{
    return check(cudaEventRecord(event, stream), "recording an event", err);
}

enum mcp_status mcp_cuda_wait(void *stream, void *event, struct mcp_error *err)
{
    return check(cudaStreamWaitEvent(stream, event, 0), "waiting for an event", err);
}

static enum mcp_status ask(cudaError_t code, bool *ready, struct mcp_error *err)
{
    *ready = code == cudaSuccess;
    if (code != cudaErrorNotReady)
        return check(code, "what runs on the device", err);
    cudaGetLastError(); /* some runtimes keep it, and a launch to come would be blamed */
    return MCP_OK;
}

enum mcp_status mcp_cuda_event_reached(void *event, bool *reached, struct mcp_error *err)
{
    return ask(cudaEventQuery(event), reached, err);
}

enum mcp_status mcp_cuda_stream_empty(void *stream, bool *empty, struct mcp_error *err)
{
    return ask(cudaStreamQuery(stream), empty, err);
}

enum mcp_status mcp_cuda_finish_stream(void *stream, struct mcp_error *err)
{
    return check(cudaStreamSynchronize(stream), "what runs on the device", err);
}

enum mcp_status mcp_cuda_elapsed_s(void *start, void *end, double *seconds, struct mcp_error *err)
{
    float milliseconds = 0;
    MCP_TRY(check(cudaEventElapsedTime(&milliseconds, start, end), "taking times", err));
    *seconds = (double)milliseconds * 1e-3;
    return MCP_OK;
}

enum mcp_status mcp_cuda_check_launch(const char *what, struct mcp_error *err)
{
    return check(cudaGetLastError(), what, err);
}
