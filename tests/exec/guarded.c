/* tests/exec/guarded.c: operands that end where memory does. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "guarded.h"

#include "exec/cpu_kernels.h"
#include "exec/transfer.h"

#include <string.h>
#include <sys/mman.h>

/* Pages that nobody may touch, on both sides of each operand's: offsets reach far. */
enum { NUM_SLOTS = MCP_MAX_READS + MCP_MAX_WRITES, MARGIN = 64 };
static const int64_t forbidden_bytes = INT64_C(1) << 32;
static const unsigned char pattern = 0xa5;

struct mcp_backend {
    struct mcp_arena *arena;
    int64_t slot_bytes;
    char *slots; /* [NUM_SLOTS]: forbidden, slot_bytes; then forbidden once more */
    bool is_damaged;
};

/* --- memory --- */

static size_t map_bytes(int64_t slot_bytes)
{
    return (size_t)(NUM_SLOTS * (forbidden_bytes + slot_bytes) + forbidden_bytes);
}

static void unmap(void *handle)
{
    const struct mcp_backend *b = handle;
    munmap(b->slots, map_bytes(b->slot_bytes));
}

static char *slot_end(const struct mcp_backend *b, int slot)
{
    return b->slots + (slot + 1) * (forbidden_bytes + b->slot_bytes);
}

struct mcp_backend *guarded_new(struct mcp_arena *arena, int64_t most_bytes)
{
    struct mcp_backend *b = MCP_NEW(arena, struct mcp_backend);
    b->slot_bytes = (most_bytes + 2 * MARGIN + 65535) / 65536 * 65536;
    b->slots = mmap(NULL, map_bytes(b->slot_bytes), PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b->slots == MAP_FAILED)
        return NULL;
    mcp_defer(arena, unmap, b);
    for (int i = 0; i < NUM_SLOTS; i++)
        mprotect(slot_end(b, i) - b->slot_bytes, (size_t)b->slot_bytes, PROT_READ | PROT_WRITE);
    return b;
}

void guarded_begin(struct mcp_backend *backend, struct mcp_arena *arena)
{
    backend->arena = arena;
    backend->is_damaged = false;
}

bool guarded_is_damaged(const struct mcp_backend *backend)
{
    return backend->is_damaged;
}

static enum mcp_status allocate(struct mcp_backend *b, int64_t bytes, void **memory,
                                struct mcp_error *err)
{
    if (bytes > b->slot_bytes - 2 * MARGIN)
        return mcp_fail(err, MCP_RUN_FAILURE, "%lld bytes are more than are tried",
                        (long long)bytes);
    *memory = MCP_ARRAY(b->arena, bytes + 1, char);
    memset(*memory, 0xff, (size_t)bytes);
    return MCP_OK;
}

static void copy_out(struct mcp_backend *b, const void *memory, void *host, int64_t bytes)
{
    (void)b;
    memcpy(host, memory, (size_t)bytes);
}

static void copy_in(struct mcp_backend *b, void *memory, const void *host, int64_t bytes)
{
    (void)b;
    memcpy(memory, host, (size_t)bytes);
}

/* --- ops --- */

struct moved {
    void *home, *at;
    int64_t bytes;
};

static int64_t padded(int64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* The operand's copy; one that is read and written has one. */
static void *move(struct mcp_backend *b, struct moved *all, int *count, void *home, int64_t bytes)
{
    if (home == NULL)
        return NULL;
    for (int i = 0; i < *count; i++)
        if (all[i].home == home && all[i].bytes == bytes)
            return all[i].at;
    char *at = slot_end(b, *count) - padded(bytes);
    memset(at - MARGIN, pattern, MARGIN);
    memcpy(at, home, (size_t)bytes);
    memset(at + bytes, pattern, (size_t)(padded(bytes) - bytes));
    all[(*count)++] = (struct moved){home, at, bytes};
    return at;
}

static bool is_pattern(const char *at, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        if ((unsigned char)at[i] != pattern)
            return false;
    return true;
}

static bool is_whole(const struct moved *moved)
{
    const char *at = moved->at;
    return is_pattern(at - MARGIN, MARGIN) &&
           is_pattern(at + moved->bytes, padded(moved->bytes) - moved->bytes);
}

static bool supports(enum mcp_function function, enum mcp_dtype dtype)
{
    const struct mcp_cpu_kernel *kernel = &mcp_cpu_kernels[function];
    return mcp_transfer_supports(function, dtype) ||
           (kernel->run != NULL && (kernel->dtypes & (1u << dtype)) != 0);
}

/* Transfers of one rank move nothing. */
static enum mcp_status launch(struct mcp_backend *b, const struct mcp_launch *op,
                              struct mcp_ticket *ticket, struct mcp_error *err)
{
    struct moved all[NUM_SLOTS];
    struct mcp_launch there = *op;
    int count = 0;
    (void)err;
    *ticket = (struct mcp_ticket){op->op->stream, 0};
    if (mcp_op_is_transfer(op->op))
        return MCP_OK;
    for (int i = 0; i < op->op->num_writes; i++)
        there.writes[i] = move(b, all, &count, op->writes[i], op->write_bytes[i]);
    const int written = count;
    for (int i = 0; i < op->op->num_reads; i++)
        there.reads[i] = move(b, all, &count, op->reads[i], op->read_bytes[i]);
    mcp_cpu_kernels[op->op->function].run(&there);
    for (int i = 0; i < count; i++)
        b->is_damaged = b->is_damaged || !is_whole(&all[i]);
    for (int i = 0; i < written; i++)
        memcpy(all[i].home, all[i].at, (size_t)all[i].bytes);
    return MCP_OK;
}

static void wait_for(struct mcp_backend *b, enum mcp_stream stream, struct mcp_ticket ticket)
{
    (void)b;
    (void)stream;
    (void)ticket;
}

static enum mcp_status finish(struct mcp_backend *b, struct mcp_error *err)
{
    (void)b;
    (void)err;
    return MCP_OK;
}

static double read_clock(struct mcp_backend *b)
{
    (void)b;
    return 0;
}

static enum mcp_status agree(struct mcp_backend *b, double *values, int count, char op,
                             struct mcp_error *err)
{
    (void)b;
    (void)values;
    (void)count;
    (void)op;
    (void)err;
    return MCP_OK;
}

const struct mcp_backend_calls guarded_calls = {.name = "guarded",
                                                .supports = supports,
                                                .allocate = allocate,
                                                .read = copy_out,
                                                .write = copy_in,
                                                .wait = wait_for,
                                                .launch = launch,
                                                .finish = finish,
                                                .clock = read_clock,
                                                .agree = agree};
