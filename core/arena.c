/* core/arena.c: who owns memory: a list of chunks, filled one after the other. */
#include "core/arena.h"

#include "core/error.h"

#include <assert.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CHUNK_BYTES ((size_t)16 << 10)
#define LARGEST_CHUNK_BYTES ((size_t)1 << 20)

/* Bytes from `used` on are zero. */
struct chunk {
    struct chunk *older;
    size_t size;
    size_t used;
    alignas(max_align_t) unsigned char bytes[];
};

struct deferred {
    struct deferred *older;
    void (*undo)(void *);
    void *handle;
};

struct mcp_arena {
    struct chunk *newest;
    struct chunk *spare; /* one rewound chunk, so that loops do not call the system */
    struct deferred *deferred;
    size_t next_chunk_bytes;
};

_Noreturn static void out_of_memory(void)
{
    fputs("mcpplan: out of memory\n", stderr);
    _Exit(MCP_RUN_FAILURE);
}

static void *zeroed(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        out_of_memory();
    return memory;
}

struct mcp_arena *mcp_arena_new(void)
{
    struct mcp_arena *arena = (struct mcp_arena *)zeroed(sizeof *arena);
    arena->next_chunk_bytes = FIRST_CHUNK_BYTES;
    return arena;
}

static struct chunk *new_chunk(struct mcp_arena *arena, size_t bytes)
{
    struct chunk *chunk = arena->spare;
    if (chunk != NULL && chunk->size >= bytes) {
        arena->spare = NULL;
        return chunk;
    }
    size_t size = arena->next_chunk_bytes;
    if (size < LARGEST_CHUNK_BYTES)
        arena->next_chunk_bytes = 2 * size;
    if (size < bytes)
        size = bytes;
    if (size > SIZE_MAX - sizeof *chunk)
        out_of_memory();
    chunk = (struct chunk *)zeroed(sizeof *chunk + size);
    chunk->size = size;
    return chunk;
}

void *mcp_alloc(struct mcp_arena *arena, size_t count, size_t size)
{
    const size_t align = alignof(max_align_t);
    if (size != 0 && count > (SIZE_MAX - align) / size)
        out_of_memory();
    size_t bytes = (count * size + align - 1) / align * align;
    if (bytes == 0)
        bytes = align; /* distinct pointers also for empty arrays */
    struct chunk *chunk = arena->newest;
    if (chunk == NULL || chunk->size - chunk->used < bytes) {
        chunk = new_chunk(arena, bytes);
        chunk->older = arena->newest;
        arena->newest = chunk;
    }
    void *memory = chunk->bytes + chunk->used;
    chunk->used += bytes;
    return memory;
}

void *mcp_grow(struct mcp_arena *arena, void *old, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return old;
    if (count > SIZE_MAX / 2)
        out_of_memory();
    size_t larger = count < 4 ? 8 : 2 * count;
    void *array = mcp_alloc(arena, larger, size);
    if (count > 0)
        memcpy(array, old, count * size);
    *capacity = larger;
    return array;
}

char *mcp_strndup(struct mcp_arena *arena, const char *text, size_t length)
{
    if (length == SIZE_MAX)
        out_of_memory();
    char *copy = MCP_ARRAY(arena, length + 1, char);
    memcpy(copy, text, length);
    return copy;
}

char *mcp_strdup(struct mcp_arena *arena, const char *text)
{
    return mcp_strndup(arena, text, strlen(text));
}

char *mcp_vformat(struct mcp_arena *arena, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    assert(length >= 0);
    char *text = MCP_ARRAY(arena, (size_t)length + 1, char);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *mcp_format(struct mcp_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = mcp_vformat(arena, format, args);
    va_end(args);
    return text;
}

void mcp_defer(struct mcp_arena *arena, void (*undo)(void *), void *handle)
{
    struct deferred *deferred = MCP_NEW(arena, struct deferred);
    *deferred = (struct deferred){arena->deferred, undo, handle};
    arena->deferred = deferred;
}

struct mcp_mark mcp_arena_mark(struct mcp_arena *arena)
{
    struct chunk *chunk = arena->newest;
    return (struct mcp_mark){chunk, chunk != NULL ? chunk->used : 0};
}

static void forget_since(struct chunk *chunk, size_t used)
{
    memset(chunk->bytes + used, 0, chunk->used - used);
    chunk->used = used;
}

static void pop_chunk(struct mcp_arena *arena)
{
    struct chunk *chunk = arena->newest;
    arena->newest = chunk->older;
    if (arena->spare == NULL && chunk->size <= LARGEST_CHUNK_BYTES) {
        forget_since(chunk, 0);
        arena->spare = chunk;
    } else {
        free(chunk);
    }
}

void mcp_arena_rewind(struct mcp_arena *arena, struct mcp_mark mark)
{
    while (arena->newest != NULL && arena->newest != mark.chunk)
        pop_chunk(arena);
    if (arena->newest != NULL)
        forget_since(arena->newest, mark.used);
}

void mcp_arena_free(struct mcp_arena *arena)
{
    if (arena == NULL)
        return;
    for (struct deferred *d = arena->deferred; d != NULL; d = d->older)
        d->undo(d->handle);
    while (arena->newest != NULL) {
        struct chunk *chunk = arena->newest;
        arena->newest = chunk->older;
        free(chunk);
    }
    free(arena->spare);
    free(arena);
}
