/* tests/cuda/fake/memory.c: memory of devices and locked memory of the host: filled with NaN,
 * ended by a page that nobody may touch, and out of the host's reach while ranks train. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tests/cuda/fake/parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 256, SHUT_BYTES = 1 << 20 };

struct block {
    struct block *next;
    char *memory;
    size_t bytes;
    char *pages; /* NULL: the host's, and only registered */
    size_t page_bytes;
    enum fake_place place;
    int device;
};

static struct {
    struct block *blocks;
    size_t used[FAKE_MAX_DEVICES];
    bool closed;
} memory;

static struct block **find(const void *at)
{
    struct block **b = &memory.blocks;
    const char *byte = at;
    while (*b != NULL && !(byte >= (*b)->memory && byte < (*b)->memory + (*b)->bytes))
        b = &(*b)->next;
    return b;
}

enum fake_place fake_place_of(const void *at)
{
    const struct block *b = *find(at);
    return b == NULL ? FAKE_PAGEABLE : b->place;
}

static void protect(const struct block *b)
{
    bool shut = memory.closed && b->place == FAKE_ON_DEVICE;
    size_t bytes = b->page_bytes < SHUT_BYTES ? b->page_bytes : SHUT_BYTES; /* it takes time */
    mprotect(b->pages, bytes, shut ? PROT_NONE : PROT_READ | PROT_WRITE);
}

void fake_open_memory(bool open)
{
    memory.closed = !open;
    for (const struct block *b = memory.blocks; b != NULL; b = b->next)
        if (b->place == FAKE_ON_DEVICE)
            protect(b);
}

static struct block *add(void)
{
    struct block *b = calloc(1, sizeof *b);
    b->next = memory.blocks;
    memory.blocks = b;
    b->device = fake_self()->device;
    fake_count_object(1);
    return b;
}

/* The block's end lies before a page that is never there. */
static cudaError_t take(void **out, size_t bytes, enum fake_place place)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t whole = (padded + page - 1) / page * page;
    size_t *used = &memory.used[fake_self()->device];
    if (bytes == 0) {
        *out = NULL;
        return cudaSuccess;
    }
    if (padded < bytes || whole < padded ||
        (place == FAKE_ON_DEVICE && whole > fake_device_bytes() - *used))
        return cudaErrorMemoryAllocation;
    char *pages =
        mmap(NULL, whole + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    struct block *b = add();
    b->pages = pages;
    b->page_bytes = whole;
    b->place = place;
    b->bytes = bytes;
    b->memory = pages + whole - padded;
    mprotect(pages, whole, PROT_READ | PROT_WRITE);
    memset(pages, 0xff, whole);
    protect(b);
    *used += place == FAKE_ON_DEVICE ? whole : 0;
    *out = b->memory;
    return cudaSuccess;
}

static void end_block(struct block **at)
{
    struct block *b = *at;
    *at = b->next;
    memory.used[b->device] -= b->place == FAKE_ON_DEVICE ? b->page_bytes : 0;
    if (b->pages != NULL)
        munmap(b->pages, b->page_bytes + (size_t)sysconf(_SC_PAGESIZE));
    free(b);
    fake_count_object(-1);
}

static cudaError_t give_back(void *at, enum fake_place place, bool registered)
{
    if (at == NULL)
        return cudaSuccess;
    struct block **b = find(at);
    if (*b == NULL || (*b)->memory != at || (*b)->place != place ||
        registered != ((*b)->pages == NULL))
        return cudaErrorInvalidValue;
    end_block(b);
    return cudaSuccess;
}

void fake_forget_memory(void)
{
    while (memory.blocks != NULL)
        end_block(&memory.blocks);
    memory.closed = false;
}

/* --- as the runtime has it --- */

static cudaError_t answer(cudaError_t error)
{
    if (error != cudaSuccess)
        fake_self()->last_error = error;
    fake_unlock();
    return error;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    fake_lock();
    return answer(take(out, bytes, FAKE_ON_DEVICE));
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    fake_lock();
    return answer(take(out, bytes, FAKE_PINNED));
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    (void)flags;
    return cudaMallocHost(out, bytes);
}

/* All that is queued on the device is over first. */
cudaError_t cudaFree(void *at)
{
    if (at != NULL)
        cudaDeviceSynchronize();
    fake_lock();
    return answer(give_back(at, FAKE_ON_DEVICE, false));
}

cudaError_t cudaFreeHost(void *at)
{
    if (at != NULL)
        cudaDeviceSynchronize();
    fake_lock();
    return answer(give_back(at, FAKE_PINNED, false));
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned int flags)
{
    (void)flags;
    fake_lock();
    if (*find(at) != NULL)
        return answer(cudaErrorHostMemoryAlreadyRegistered);
    struct block *b = add();
    b->memory = at;
    b->bytes = bytes;
    b->place = FAKE_PINNED;
    return answer(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *at)
{
    fake_lock();
    if (give_back(at, FAKE_PINNED, true) != cudaSuccess)
        return answer(cudaErrorHostMemoryNotRegistered);
    return answer(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    fake_lock();
    *total = fake_device_bytes();
    *free_bytes = *total - memory.used[fake_self()->device];
    return answer(cudaSuccess);
}
