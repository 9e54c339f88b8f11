/* core/arena.h: who owns memory.
 *
 * One arena per question asked, one free. Whoever returns pointers takes the
 * arena that will own them as first argument. Running out of memory ends the
 * process, here and nowhere else. Memory is zeroed. */
#ifndef MCP_CORE_ARENA_H
#define MCP_CORE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct mcp_arena;

struct mcp_arena *mcp_arena_new(void);

/* Runs the deferred undo calls, last first, then frees all. NULL is allowed. */
void mcp_arena_free(struct mcp_arena *arena);

/* `count` x `size` zeroed bytes, aligned for any type; the product is checked. */
void *mcp_alloc(struct mcp_arena *arena, size_t count, size_t size);
#define MCP_NEW(arena, type) ((type *)mcp_alloc((arena), 1, sizeof(type)))
#define MCP_ARRAY(arena, count, type) ((type *)mcp_alloc((arena), (size_t)(count), sizeof(type)))

/* Elements of an array that is no pointer. */
#define MCP_COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Room for one element more: an array of more than `count` elements of `size`
 * bytes that starts with the `count` elements of `old`, the rest zero. Capacity
 * doubles in `*capacity`. Returns `old` itself while it is large enough. */
void *mcp_grow(struct mcp_arena *arena, void *old, size_t count, size_t *capacity, size_t size);

char *mcp_strdup(struct mcp_arena *arena, const char *text);
char *mcp_strndup(struct mcp_arena *arena, const char *text, size_t length);
char *mcp_format(struct mcp_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *mcp_vformat(struct mcp_arena *arena, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Ties a foreign handle to the arena: undo(handle) runs when it is freed. */
void mcp_defer(struct mcp_arena *arena, void (*undo)(void *), void *handle);

/* Forgets everything allocated since `mark` was taken, for scratch in a loop.
 * Nothing may have been deferred in between. */
struct mcp_mark {
    void *chunk;
    size_t used;
};
struct mcp_mark mcp_arena_mark(struct mcp_arena *arena);
void mcp_arena_rewind(struct mcp_arena *arena, struct mcp_mark mark);

#endif
