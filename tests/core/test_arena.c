/* tests/core/test_arena.c: memory is zeroed, aligned, given back in order; errors are sentences. */
#include "core/arena.h"
#include "core/error.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdalign.h>
#include <stdint.h>
#include <string.h>

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

Test(arena, memory_is_zeroed_and_aligned_also_after_rewinding)
{
    struct mcp_arena *arena = mcp_arena_new();
    for (int round = 0; round < 3; round++) {
        struct mcp_mark mark = mcp_arena_mark(arena);
        for (size_t size = 1; size < 3000000; size = 3 * size + 1) {
            unsigned char *bytes = MCP_ARRAY(arena, size, unsigned char);
            cr_assert(eq(int, (int)((uintptr_t)bytes % alignof(max_align_t)), 0));
            cr_assert(is_zero(bytes, size), "round %d, %zu bytes", round, size);
            memset(bytes, 0xff, size);
        }
        mcp_arena_rewind(arena, mark);
    }
    mcp_arena_free(arena);
}

Test(arena, rewinding_keeps_what_is_older)
{
    struct mcp_arena *arena = mcp_arena_new();
    char *kept = mcp_strdup(arena, "kept");
    struct mcp_mark mark = mcp_arena_mark(arena);
    char *first = mcp_strdup(arena, "scratch");
    mcp_arena_rewind(arena, mark);
    cr_expect(eq(ptr, mcp_alloc(arena, 1, 8), first), "the room is used again");
    cr_expect(eq(str, kept, (char *)"kept"));
    mcp_arena_free(arena);
}

Test(arena, arrays_grow_and_keep_their_elements)
{
    struct mcp_arena *arena = mcp_arena_new();
    size_t capacity = 0;
    int *list = NULL;
    for (int i = 0; i < 1000; i++) {
        list = (int *)mcp_grow(arena, list, (size_t)i, &capacity, sizeof *list);
        list[i] = i;
    }
    cr_expect(capacity >= 1000 && capacity < 3000);
    for (int i = 0; i < 1000; i++)
        cr_assert(eq(int, list[i], i));
    mcp_arena_free(arena);
}

static int order[2];
static int num_undone;

static void undo(void *handle)
{
    order[num_undone++] = *(int *)handle;
}

Test(arena, undo_runs_last_first)
{
    struct mcp_arena *arena = mcp_arena_new();
    int *handles = MCP_ARRAY(arena, 2, int);
    handles[0] = 1;
    handles[1] = 2;
    mcp_defer(arena, undo, &handles[0]);
    mcp_defer(arena, undo, &handles[1]);
    mcp_arena_free(arena);
    mcp_arena_free(NULL);
    cr_expect(num_undone == 2 && order[0] == 2 && order[1] == 1);
}

Test(arena, a_product_that_overflows_ends_the_process, .exit_code = MCP_RUN_FAILURE)
{
    mcp_alloc(mcp_arena_new(), SIZE_MAX / 2, 3);
}

Test(error, long_sentences_and_prefixes_are_cut_not_overrun)
{
    struct mcp_error err = {""};
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    cr_expect(eq(int, (int)mcp_fail(&err, MCP_INVALID, "tensor_parallel=%d", 3), MCP_INVALID));
    mcp_error_prefix(&err, "plan.json");
    cr_expect(eq(str, err.text, (char *)"plan.json: tensor_parallel=3"));
    mcp_error_prefix(&err, text);
    cr_expect(eq(str, err.text, (char *)"plan.json: tensor_parallel=3"));
    cr_expect(eq(int, (int)mcp_fail(&err, MCP_IO, "%s", text), MCP_IO));
    mcp_error_prefix(&err, "plan.json");
    cr_expect(eq(sz, strlen(err.text), sizeof err.text - 1));
    cr_expect(eq(int, strncmp(err.text, "plan.json: xxx", 14), 0));
    cr_expect(eq(int, (int)mcp_fail(NULL, MCP_IO, "nobody asks"), MCP_IO));
    mcp_error_prefix(NULL, "plan.json");
}
