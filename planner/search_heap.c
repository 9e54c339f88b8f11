/* planner/search_heap.c: tuples in order of their bounds. */
#include "planner/search_parts.h"

static bool before(const struct mcp_tuple *a, const struct mcp_tuple *b)
{
    if (a->bound_ns != b->bound_ns)
        return a->bound_ns < b->bound_ns;
    if (a->layout != b->layout)
        return a->layout < b->layout;
    return a->index < b->index;
}

void mcp_tuples_push(struct mcp_arena *arena, struct mcp_tuples *heap,
                     const struct mcp_tuple *tuple)
{
    heap->items = mcp_grow(arena, heap->items, heap->count, &heap->capacity, sizeof *tuple);
    size_t at = heap->count++;
    for (; at > 0 && before(tuple, &heap->items[(at - 1) / 2]); at = (at - 1) / 2)
        heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = *tuple;
}

struct mcp_tuple mcp_tuples_pop(struct mcp_tuples *heap)
{
    struct mcp_tuple top = heap->items[0], last = heap->items[--heap->count];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < heap->count) {
        child += child + 1 < heap->count && before(&heap->items[child + 1], &heap->items[child]);
        if (!before(&heap->items[child], &last))
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = last;
    return top;
}
