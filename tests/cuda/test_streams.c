/* tests/cuda/test_streams.c: how far the host runs ahead of a device, and when ops began. */
#include "core/arena.h"
#include "exec/cuda_runtime.h"
#include "exec/cuda_streams.h"
#include "tests/cuda/fake/engine.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

enum { OPS = 20 };

static struct mcp_cuda_streams streams;
static struct mcp_error err;
static void *memory;

static struct mcp_arena *open_streams(bool timed, int ahead)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_nccl_place alone = {.size = 1};
    struct mcp_nccl_world *world;
    fake_begin(1, 1 << 20);
    cr_assert(mcp_nccl_world_open(arena, &alone, &world, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_streams_open(arena, world, timed, ahead, &streams, &err) == MCP_OK);
    cr_assert(mcp_cuda_new_memory(arena, 1, &memory, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_streams_start(&streams, &err) == MCP_OK, "%s", err.text);
    return arena;
}

/* What takes one tick of the fake's clock. */
static struct mcp_ticket queue_op(enum mcp_stream stream)
{
    const struct mcp_op op = {.function = MCP_FN_ZERO, .stream = (unsigned char)stream};
    const struct mcp_launch launch = {.op = &op};
    struct mcp_ticket ticket = {0, 0};
    cr_assert(mcp_cuda_begin_op(&streams, &launch, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_set_bytes(memory, 0, 1, streams.each[stream].handle, &err) == MCP_OK);
    cr_assert(mcp_cuda_end_op(&streams, &launch, &ticket, &err) == MCP_OK, "%s", err.text);
    return ticket;
}

static void close_streams(struct mcp_arena *arena)
{
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

struct case_ahead {
    char name[32];
    int ahead, at_most;
    enum mcp_stream stream;
};
ParameterizedTestParameters(streams, ahead)
{
    static struct case_ahead cases[] = {
        {"any number", 0, OPS, MCP_STREAM_COMPUTE},
        {"a few", 3, 3, MCP_STREAM_COMPUTE},
        {"one by one", 1, 1, MCP_STREAM_COMPUTE},
        {"transfers are not held back", 3, OPS, MCP_STREAM_TENSOR},
    };
    return cr_make_param_array(struct case_ahead, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_ahead *c, streams, ahead)
{
    struct mcp_arena *arena = open_streams(false, c->ahead);
    int64_t most = 0;
    for (int i = 0; i < OPS; i++) {
        queue_op(c->stream);
        int64_t queued = (int64_t)(i + 1) - fake_ops_run();
        most = queued > most ? queued : most;
    }
    cr_expect(eq(i64, most, c->at_most), "%s", c->name);
    cr_assert(mcp_cuda_empty_stream(&streams, c->stream, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(i64, fake_ops_run(), OPS), "%s", c->name);
    close_streams(arena);
}

/* Queued behind each other an op begins where the one before it ends; after a wait, or a pause of
 * the host, later. */
Test(streams, ops_begin_when_they_do)
{
    struct mcp_arena *arena = open_streams(true, 0);
    struct mcp_ticket tickets[4];
    struct mcp_op_times times[4];
    tickets[0] = queue_op(MCP_STREAM_COMPUTE);
    tickets[1] = queue_op(MCP_STREAM_COMPUTE);
    tickets[2] = queue_op(MCP_STREAM_TENSOR);
    streams.each[MCP_STREAM_COMPUTE].waits[MCP_STREAM_TENSOR] = tickets[2].number;
    tickets[3] = queue_op(MCP_STREAM_COMPUTE);
    cr_assert(mcp_cuda_empty_stream(&streams, MCP_STREAM_COMPUTE, &err) == MCP_OK);
    bool moved;
    cr_assert(mcp_cuda_look(&streams, &moved, &err) == MCP_OK, "%s", err.text);
    for (int i = 0; i < 4; i++)
        cr_assert(mcp_cuda_times_of(&streams, tickets[i], &times[i]), "op %d", i);
    cr_expect(eq(dbl, times[1].start_s, times[0].end_s));
    cr_expect(times[1].end_s > times[1].start_s);
    cr_expect(times[3].start_s >= times[2].end_s && times[3].start_s >= times[1].end_s);
    cr_expect(times[3].end_s > times[3].start_s);
    close_streams(arena);
}
