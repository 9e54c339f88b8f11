/* tests/cuda/fake/runtime.c: devices, streams, events and copies of the CUDA runtime, queued on
 * the engine.
 *
 * As the runtime has it: a copy from memory that is not locked reads it at the call, and a
 * copy to such memory is over when the call returns; all other copies happen when they happen.
 * Streams are made non-blocking only. */
#include "tests/cuda/fake/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* fake_fail_kernel() */
static struct {
    int kernels; /* until one fails; < 0: none */
    cudaError_t error;
} broken = {.kernels = -1};

void fake_fail_kernel(int after)
{
    broken.kernels = after;
}

static struct {
    int major, minor;
} capability = {9, 0};

void fake_set_capability(int major, int minor)
{
    capability.major = major;
    capability.minor = minor;
}

static cudaError_t answer(cudaError_t error)
{
    if (broken.error != cudaSuccess)
        error = broken.error;
    if (error != cudaSuccess) /* "not ready" too: the manual says no, and some runtimes do */
        fake_self()->last_error = error;
    fake_unlock();
    return error;
}

/* --- errors --- */

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
};
enum { NUM_ERRORS = sizeof errors / sizeof *errors };

const char *cudaGetErrorName(cudaError_t error)
{
    for (int i = 0; i < NUM_ERRORS; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (int i = 0; i < NUM_ERRORS; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = (cudaError_t)fake_self()->last_error;
    fake_self()->last_error = cudaSuccess;
    return broken.error != cudaSuccess ? broken.error : error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return (cudaError_t)fake_self()->last_error;
}

/* --- devices --- */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = fake_device_error() == cudaErrorInsufficientDriver ? 0 : 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

static cudaError_t check_device(int device)
{
    if (fake_device_error() != 0)
        return (cudaError_t)fake_device_error();
    return device < 0 || device >= fake_num_devices() ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    fake_lock();
    if (fake_device_error() != 0)
        return answer((cudaError_t)fake_device_error());
    *count = fake_num_devices();
    return answer(cudaSuccess);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = fake_self()->device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    fake_lock();
    cudaError_t error = check_device(device);
    if (error == cudaSuccess)
        fake_self()->device = device;
    return answer(error);
}

/* An H100, but for its memory and what tests say of it. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    fake_lock();
    cudaError_t error = check_device(device);
    if (error != cudaSuccess)
        return answer(error);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "Fake H100");
    out->totalGlobalMem = fake_device_bytes();
    out->sharedMemPerBlock = 49152;
    out->sharedMemPerBlockOptin = 232448;
    out->major = capability.major;
    out->minor = capability.minor;
    out->multiProcessorCount = 132;
    out->pciBusID = 0x10 + device;
    out->memoryBusWidth = 5120;
    out->l2CacheSize = 50 << 20;
    out->asyncEngineCount = 3;
    return answer(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess)
        return error;
    switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)properties.sharedMemPerBlock;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)properties.sharedMemPerBlockOptin;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = properties.multiProcessorCount;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = properties.major;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = properties.minor;
        return cudaSuccess;
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device)
{
    fake_lock();
    cudaError_t error = check_device(device);
    if (error == cudaSuccess)
        snprintf(id, (size_t)length, "0000:%02x:00.0", 0x10 + device);
    return answer(error);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* --- streams --- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority)
{
    (void)priority;
    fake_lock();
    cudaError_t error = check_device(fake_self()->device);
    if (error != cudaSuccess)
        return answer(error);
    if (flags != cudaStreamNonBlocking)
        fake_stop("a stream is made that waits for the default stream");
    *out = fake_new_stream();
    return answer(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

/* Waits for, or asks after, all that is queued. */
static cudaError_t drain(struct CUstream_st *stream, bool asks)
{
    struct fake_mark *mark = fake_push_mark(stream);
    bool reached = fake_wait(mark, asks);
    fake_release_mark(mark);
    return reached ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    fake_lock();
    return answer(drain(fake_stream(stream), false));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    fake_lock();
    return answer(drain(fake_stream(stream), true));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    fake_lock();
    drain(stream, false);
    fake_free_stream(stream);
    return answer(cudaSuccess);
}

/* --- events --- */

struct CUevent_st {
    struct fake_mark *mark; /* of the last record; NULL: none */
    bool timed;
};

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    fake_lock();
    struct CUevent_st *event = calloc(1, sizeof *event);
    event->timed = (flags & cudaEventDisableTiming) == 0;
    fake_count_object(1);
    *out = event;
    return answer(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    fake_lock();
    fake_release_mark(event->mark);
    free(event);
    fake_count_object(-1);
    return answer(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    fake_lock();
    fake_release_mark(event->mark);
    event->mark = fake_push_mark(fake_stream(stream));
    fake_self()->has_queued = true;
    return answer(cudaSuccess);
}

/* For the last record before this call; without one for nothing. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    fake_lock();
    if (flags != 0)
        return answer(cudaErrorInvalidValue);
    if (event->mark != NULL)
        fake_push_wait(fake_stream(stream), event->mark);
    return answer(cudaSuccess);
}

static cudaError_t wait_for_event(cudaEvent_t event, bool asks)
{
    fake_lock();
    if (event->mark == NULL)
        return answer(cudaSuccess);
    return answer(fake_wait(event->mark, asks) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return wait_for_event(event, false);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return wait_for_event(event, true);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    fake_lock();
    if (start->mark == NULL || end->mark == NULL || !start->timed || !end->timed)
        return answer(cudaErrorInvalidResourceHandle);
    if (!start->mark->reached || !end->mark->reached)
        return answer(cudaErrorNotReady);
    *milliseconds = (float)(end->mark->reached_ns - start->mark->reached_ns) * 1e-6f;
    return answer(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    fake_lock();
    fake_finish_device();
    return answer(cudaSuccess);
}

/* --- copies --- */

struct copy {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
    char *staged; /* what was read at the call */
    bool sets;    /* bytes to `value` */
    int value;
};

static void run_copy(struct fake_op *op)
{
    const struct copy *c = op->closure;
    const char *from = c->staged != NULL ? c->staged : c->from;
    for (size_t row = 0; row < c->height; row++)
        if (c->sets)
            memset(c->to + row * c->to_pitch, c->value, c->width);
        else
            memmove(c->to + row * c->to_pitch, from + row * c->from_pitch, c->width);
}

static void drop_copy(struct fake_op *op)
{
    struct copy *c = op->closure;
    free(c->staged);
    free(c);
}

static const struct fake_op_calls copy_calls = {.run = run_copy, .drop = drop_copy};

static void stage(struct copy *c)
{
    c->staged = malloc(c->width * c->height);
    for (size_t row = 0; row < c->height; row++)
        memcpy(c->staged + row * c->width, c->from + row * c->from_pitch, c->width);
    c->from_pitch = c->width;
}

static bool is_of_kind(const void *memory, bool device)
{
    return (fake_place_of(memory) == FAKE_ON_DEVICE) == device;
}

static bool fits_kind(const struct copy *c, enum cudaMemcpyKind kind)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return kind == cudaMemcpyDefault ||
           (is_of_kind(c->to, to_device) && is_of_kind(c->from, from_device));
}

static cudaError_t queue_copy(const struct copy *copy, enum cudaMemcpyKind kind,
                              cudaStream_t stream, bool synchronous)
{
    fake_lock();
    if (copy->width * copy->height == 0)
        return answer(cudaSuccess);
    if (!copy->sets && (copy->from == NULL || !fits_kind(copy, kind)))
        return answer(cudaErrorInvalidValue);
    struct copy *c = malloc(sizeof *c);
    *c = *copy;
    bool to_pageable = fake_place_of(c->to) == FAKE_PAGEABLE;
    if (!c->sets && fake_place_of(c->from) == FAKE_PAGEABLE)
        stage(c);
    fake_push(fake_stream(stream), &copy_calls, FAKE_COPY, c->sets ? "memset" : "copy", c);
    if (synchronous || to_pageable)
        drain(fake_stream(stream), false);
    return answer(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const struct copy copy = {.to = to, .from = from, .width = bytes, .height = 1};
    return queue_copy(&copy, kind, stream, false);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    const struct copy copy = {.to = to,
                              .from = from,
                              .to_pitch = to_pitch,
                              .from_pitch = from_pitch,
                              .width = width,
                              .height = height};
    return queue_copy(&copy, kind, stream, false);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const struct copy copy = {.to = to, .from = from, .width = bytes, .height = 1};
    return queue_copy(&copy, kind, NULL, true);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    const struct copy copy = {
        .to = memory, .width = bytes, .height = 1, .sets = true, .value = value};
    return queue_copy(&copy, cudaMemcpyDefault, stream, false);
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    const struct copy copy = {
        .to = memory, .width = bytes, .height = 1, .sets = true, .value = value};
    return queue_copy(&copy, cudaMemcpyDefault, NULL, true);
}

/* --- host functions and kernels --- */

struct call {
    void (*run)(void *data);
    void (*drop)(void *data);
    void *data;
};

static void run_call(struct fake_op *op)
{
    const struct call *call = op->closure;
    const bool counts = op->work == FAKE_KERNEL && broken.kernels >= 0;
    if (counts && broken.kernels-- == 0)
        broken.error = cudaErrorIllegalAddress;
    if (broken.error == cudaSuccess)
        call->run(call->data);
}

static void drop_call(struct fake_op *op)
{
    struct call *call = op->closure;
    if (call->drop != NULL)
        call->drop(call->data);
    free(call);
}

static const struct fake_op_calls call_calls = {.run = run_call, .drop = drop_call};

static void queue_call(cudaStream_t stream, enum fake_work work, const char *name,
                       struct call called)
{
    struct call *call = malloc(sizeof *call);
    *call = called;
    fake_push(fake_stream(stream), &call_calls, work, name, call);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    fake_lock();
    queue_call(stream, FAKE_COPY, "host function", (struct call){function, NULL, data});
    return answer(cudaSuccess);
}

/* What the kernels' shim calls in the place of a launch (tests/cuda/shim/shim.h). */
void mcp_shim_enqueue(void *stream, void (*run)(void *closure), void (*drop)(void *closure),
                      void *closure);
void mcp_shim_enqueue(void *stream, void (*run)(void *closure), void (*drop)(void *closure),
                      void *closure)
{
    fake_lock();
    queue_call(stream, FAKE_KERNEL, "kernel", (struct call){run, drop, closure});
    fake_unlock();
}
