/* tests/exec/test_events.c: event files equal those of TensorBoard's own classes
 * (tests/golden/make_events.py), byte for byte. */
#include "core/file.h"
#include "exec/events.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(events, bytes_are_tensorboards)
{
    const float values[] = {-3, 0.75f, 0.75f, 0, NAN, INFINITY};
    char folder[] = "/tmp/mcp-test-events-XXXXXX";
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_histogram histogram = mcp_histogram_new();
    struct mcp_file_view got, want;
    struct mcp_events *events;
    struct mcp_error err = {0};
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
    cr_assert(eq(int, mcp_events_open(arena, folder, 1700000000.25, &events, &err), MCP_OK), "%s",
              err.text);
    cr_expect(eq(int, mcp_events_flush(events, 0, 0, &err), MCP_OK)); /* nothing to say */
    mcp_events_scalar(events, "loss", 5.5);
    mcp_events_scalar(events, "learning_rate", 5e-5);
    cr_assert(eq(int, mcp_events_flush(events, 1700000001.5, 1, &err), MCP_OK));
    mcp_histogram_add(&histogram, values, 6);
    mcp_events_histogram(events, "weights/layers.1.qkv", &histogram);
    mcp_events_scalar(events, "loss", (double)NAN);
    cr_assert(eq(int, mcp_events_flush(events, 1700000002.5, 300, &err), MCP_OK));
    const char *path = mcp_format(arena, "%s/events.out.tfevents.1700000000.mcpplan", folder);
    cr_assert(eq(int, mcp_file_map(arena, path, &got, &err), MCP_OK), "%s", err.text);
    cr_assert(eq(int, mcp_file_map(arena, "tests/golden/events.tfevents", &want, &err), MCP_OK),
              "%s", err.text);
    cr_assert(eq(sz, got.length, want.length));
    for (size_t i = 0; i < got.length; i++)
        cr_assert(got.data[i] == want.data[i], "byte %zu", i);
    unlink(path);
    rmdir(folder);
    mcp_arena_free(arena);
}

Test(events, buckets_hold_their_values)
{
    for (int exponent = -120; exponent < 20; exponent++)
        for (int sign = -1; sign <= 1; sign += 2)
            for (int step = 0; step < 3; step++) {
                struct mcp_histogram histogram = mcp_histogram_new();
                const float x = (float)(sign * exp2(exponent / 2.0 + 0.2 * step));
                int bucket = 0;
                mcp_histogram_add(&histogram, &x, 1);
                while (histogram.buckets[bucket] == 0)
                    bucket++;
                const double below = bucket > 0 ? mcp_histogram_limit(bucket - 1) : -HUGE_VAL;
                const double top = mcp_histogram_limit(bucket), slack = 1e-6 * fabs((double)x);
                cr_expect(below - slack <= (double)x && (double)x <= top + slack, "%g in (%g, %g]",
                          (double)x, below, top);
            }
}

/* None of three runs that begin in one second writes over another. */
Test(events, of_one_second)
{
    static const char *const names[] = {"", ".1", ".2"};
    struct mcp_arena *arena = mcp_arena_new();
    char folder[] = "/tmp/mcp-test-events-XXXXXX";
    struct mcp_error err = {0};
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
    for (int i = 0; i < 3; i++) {
        struct mcp_events *events;
        cr_assert(eq(int, mcp_events_open(arena, folder, 7.25, &events, &err), MCP_OK), "%s",
                  err.text);
        cr_expect(eq(int, mcp_events_flush(events, 8, i, &err), MCP_OK));
    }
    for (int i = 0; i < 3; i++)
        cr_expect(eq(int,
                     unlink(mcp_format(arena, "%s/events.out.tfevents.0000000007.mcpplan%s", folder,
                                       names[i])),
                     0));
    cr_expect(eq(int, rmdir(folder), 0));
    mcp_arena_free(arena);
}

Test(events, a_folder_that_cannot_be)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_events *events;
    struct mcp_error err = {0};
    cr_expect(eq(int, mcp_events_open(arena, "/proc/no/such", 1, &events, &err), MCP_IO));
    cr_expect(ne(ptr, strstr(err.text, "/proc/no/such"), NULL), "%s", err.text);
    mcp_arena_free(arena);
}
