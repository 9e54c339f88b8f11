/* exec/cuda_runtime.h: devices, memory, streams and events: the door of the CUDA runtime.
 *
 * Handles are opaque: a stream is a cudaStream_t, an event a cudaEvent_t, as kernels and the
 * other doors take them. Every call is about the device that the calling thread has chosen.
 * What the runtime says against a call becomes MCP_RUN_FAILURE with one sentence; that there
 * is no device, no driver (error 35) or no device that can be used (100), is one and the same.
 *
 * Entry points of the library, all that is used of it:
 *   cudaGetDeviceCount cudaSetDevice cudaGetDevice cudaGetDeviceProperties cudaDeviceGetPCIBusId
 *   cudaMemGetInfo cudaMalloc cudaFree cudaMallocHost cudaFreeHost
 *   cudaMemcpyAsync (cudaMemcpyDefault) cudaMemsetAsync
 *   cudaDeviceGetStreamPriorityRange cudaStreamCreateWithPriority (cudaStreamNonBlocking)
 *   cudaStreamDestroy cudaStreamSynchronize cudaStreamQuery cudaStreamWaitEvent (flags 0)
 *   cudaEventCreateWithFlags (cudaEventDefault, cudaEventDisableTiming) cudaEventDestroy
 *   cudaEventRecord cudaEventQuery cudaEventElapsedTime
 *   cudaGetLastError cudaGetErrorString
 * of struct cudaDeviceProp: name major minor multiProcessorCount totalGlobalMem
 * of the errors by name: cudaSuccess cudaErrorNotReady cudaErrorInsufficientDriver
 * cudaErrorNoDevice cudaErrorMemoryAllocation */
#ifndef MCP_EXEC_CUDA_RUNTIME_H
#define MCP_EXEC_CUDA_RUNTIME_H

#include "core/arena.h"
#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>

/* How many devices this process sees; MCP_RUN_FAILURE where there is none. */
enum mcp_status mcp_cuda_count(int *count, struct mcp_error *err);
/* The calling thread works on `device` from now on. */
enum mcp_status mcp_cuda_choose(int device, struct mcp_error *err);

/* The one that it works on. */
enum mcp_status mcp_cuda_chosen(int *device, struct mcp_error *err);

struct mcp_cuda_facts {
    char name[256];
    char pci_address[32]; /* "0000:3b:00.0" */
    int compute_major, compute_minor;
    int multiprocessors;
    int64_t memory_bytes; /* of the device, in use or not */
};
enum mcp_status mcp_cuda_facts_of(int device, struct mcp_cuda_facts *out, struct mcp_error *err);

/* --- memory: of the arena, given back when that is freed --- */

/* On the device. The sentence says how much is free where there is too little. */
enum mcp_status mcp_cuda_new_memory(struct mcp_arena *arena, int64_t bytes, void **out,
                                    struct mcp_error *err);
/* On the host, locked in place: copies from and to it run beside the host. */
enum mcp_status mcp_cuda_new_host_memory(struct mcp_arena *arena, int64_t bytes, void **out,
                                         struct mcp_error *err);

/* Queue on `stream`; between host and device or within either. */
enum mcp_status mcp_cuda_copy(void *to, const void *from, int64_t bytes, void *stream,
                              struct mcp_error *err);
enum mcp_status mcp_cuda_set_bytes(void *memory, int byte, int64_t bytes, void *stream,
                                   struct mcp_error *err);

/* --- streams and events: of the arena --- */

/* `urgent` streams go before others where the device has a choice: those of transfers. */
enum mcp_status mcp_cuda_new_stream(struct mcp_arena *arena, bool urgent, void **out,
                                    struct mcp_error *err);
/* `timed`: mcp_cuda_elapsed_s() is asked of it. */
enum mcp_status mcp_cuda_new_event(struct mcp_arena *arena, bool timed, void **out,
                                   struct mcp_error *err);
enum mcp_status mcp_cuda_record(void *event, void *stream, struct mcp_error *err);
/* What is queued on `stream` from now on starts after the event's last record. */
enum mcp_status mcp_cuda_wait(void *stream, void *event, struct mcp_error *err);
/* Is the event reached; is the stream empty? Errors of what ran before show here. */
enum mcp_status mcp_cuda_event_reached(void *event, bool *reached, struct mcp_error *err);
enum mcp_status mcp_cuda_stream_empty(void *stream, bool *empty, struct mcp_error *err);
/* Blocks until the stream is empty, whatever it takes: only where no transfer is waited for. */
enum mcp_status mcp_cuda_finish_stream(void *stream, struct mcp_error *err);
/* Seconds between two timed events that are reached. */
enum mcp_status mcp_cuda_elapsed_s(void *start, void *end, double *seconds, struct mcp_error *err);

/* Has a kernel been refused since the last call? `what` was to be run. */
enum mcp_status mcp_cuda_check_launch(const char *what, struct mcp_error *err);

#endif
