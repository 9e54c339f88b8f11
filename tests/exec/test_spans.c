/* tests/exec/test_spans.c: receives that begin with their messages. */
#include "exec/spans.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

static void add(struct mcp_arena *arena, struct mcp_timeline *timeline, int rank,
                enum mcp_stream stream, int64_t start_ns, int64_t end_ns)
{
    struct mcp_timeline_span span = {.rank = rank,
                                     .slot = (int)timeline->num_spans,
                                     .stream = (unsigned char)stream,
                                     .start_ns = start_ns,
                                     .end_ns = end_ns};
    mcp_timeline_add(arena, timeline, &span);
}

/* Stages of three ranks, two tensor ranks each: rank 4 receives from 2, 2 from 0. */
Test(spans, receives_begin_when_their_message_was_sent)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_timeline t = {.measured = true};
    struct mcp_plan plan = mcp_plan_default();
    plan.tensor_parallel = 2;
    plan.pipeline_parallel = 3;
    add(arena, &t, 0, MCP_STREAM_COMPUTE, 0, 100);
    add(arena, &t, 0, MCP_STREAM_SEND_NEXT, 100, 120);
    add(arena, &t, 0, MCP_STREAM_SEND_NEXT, 200, 230);
    add(arena, &t, 0, MCP_STREAM_RECEIVE_NEXT, 10, 400);      /* 3: the first that 2 sends back */
    add(arena, &t, 1, MCP_STREAM_SEND_NEXT, 5, 6);            /* of another pipeline */
    add(arena, &t, 2, MCP_STREAM_RECEIVE_PREVIOUS, 0, 118);   /* 5 */
    add(arena, &t, 2, MCP_STREAM_RECEIVE_PREVIOUS, 220, 228); /* 6: was asked for late */
    add(arena, &t, 2, MCP_STREAM_RECEIVE_PREVIOUS, 230, 240); /* 7: nobody sent it */
    add(arena, &t, 2, MCP_STREAM_SEND_PREVIOUS, 390, 395);
    add(arena, &t, 4, MCP_STREAM_RECEIVE_PREVIOUS, 0, 50); /* 9: 2 sends nothing on */
    mcp_spans_pair(arena, &plan, &t);
    const int64_t want[] = {0, 100, 200, 390, 5, 100, 220, 230, 390, 0};
    for (size_t i = 0; i < t.num_spans; i++)
        cr_expect(eq(i64, t.spans[i].start_ns, want[i]), "span %zu", i);
    mcp_arena_free(arena);
}

/* Clocks are not perfect: a span never ends before it begins. */
Test(spans, a_receive_does_not_begin_after_its_end)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_timeline t = {.measured = true};
    struct mcp_plan plan = mcp_plan_default();
    plan.pipeline_parallel = 2;
    add(arena, &t, 0, MCP_STREAM_SEND_NEXT, 105, 120);
    add(arena, &t, 1, MCP_STREAM_RECEIVE_PREVIOUS, 0, 103);
    mcp_spans_pair(arena, &plan, &t);
    cr_expect(eq(i64, t.spans[1].start_ns, 103));
    mcp_arena_free(arena);
}
