/* tests/exec/test_votes.c: one rank's votes, the other's being written down here. */
#include "exec/votes.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

enum { MAX_CALLS = 8, NUM_VOTES = 3 };

/* The other rank: what it brings to each agreement, in turn. Of sums: a sentence. */
struct other {
    double brings[MAX_CALLS][NUM_VOTES]; /* busy, failed, done */
    const char *reason;
    int calls, fails_at; /* the call from which it is lost; 0: none */
    double clock_s;
};

static enum mcp_status agree(struct mcp_backend *backend, double *values, int count, char op,
                             struct mcp_error *err)
{
    struct other *other = (struct other *)(void *)backend;
    const int call = other->calls++;
    cr_assert(call < MAX_CALLS, "it asks for ever");
    if (other->fails_at > 0 && call + 1 >= other->fails_at)
        return mcp_fail(err, MCP_RUN_FAILURE, "ranks have waited");
    for (int i = 0; op == '>' && i < count; i++)
        values[i] = values[i] > other->brings[call][i] ? values[i] : other->brings[call][i];
    if (op == '+' && other->reason != NULL) {
        for (int i = 0; other->reason[i] != '\0'; i++)
            values[i] += (unsigned char)other->reason[i];
        values[count - 1] += MCP_IO;
    }
    return MCP_OK;
}

static double read_clock(struct mcp_backend *backend)
{
    return ((struct other *)(void *)backend)->clock_s;
}

static const struct mcp_backend_calls calls = {.name = "two", .agree = agree, .clock = read_clock};

static struct mcp_votes votes_with(struct other *other, int rank)
{
    return (struct mcp_votes){&calls, (struct mcp_backend *)(void *)other, rank, 2, 0};
}

Test(votes, who_is_done_waits_for_who_is_busy)
{
    struct other other = {.brings = {{1, 0, 0}, {1, 0, 0}, {0, 0, 1}}};
    struct mcp_votes votes = votes_with(&other, 0);
    struct mcp_error err = {""};
    cr_expect(eq(int, mcp_votes_all_or_none(&votes, MCP_OK, "save", &err), MCP_OK));
    cr_expect(eq(int, other.calls, 3));
}

Test(votes, who_is_busy_says_so_once_a_second)
{
    struct other other = {.brings = {{0, 0, 1}, {0, 0, 1}, {0, 0, 1}, {0, 0, 1}}};
    struct mcp_votes votes = votes_with(&other, 0);
    struct mcp_error err = {""};
    for (int i = 0; i < 25; i++) {
        other.clock_s += 0.125;
        cr_expect(eq(int, mcp_votes_busy(&votes, &err), MCP_OK));
    }
    cr_expect(eq(int, other.calls, 3));
    cr_expect(eq(int, mcp_votes_busy(NULL, &err), MCP_OK));
}

/* Of two ranks: whose part went how, and what both then say. */
Test(votes, the_first_reason_is_everybodys)
{
    static const struct {
        int rank;
        enum mcp_status mine, want;
        double other[NUM_VOTES];
        const char *reason, *says;
    } cases[] = {
        {0, MCP_OK, MCP_IO, {0, 1, 0}, "disk full", "rank 1 cannot save: disk full"},
        {1, MCP_OK, MCP_IO, {0, 2, 0}, "disk full", "rank 0 cannot save: disk full"},
        {1, MCP_FORMAT, MCP_FORMAT, {0, 0, 1}, NULL, "rank 1 cannot save: mine"},
        {1, MCP_FORMAT, MCP_FORMAT, {0, 2, 0}, NULL, "mine"}, /* both: each its own */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct other other = {.reason = cases[i].reason};
        struct mcp_votes votes = votes_with(&other, cases[i].rank);
        struct mcp_error err = {"mine"};
        memcpy(other.brings[0], cases[i].other, sizeof other.brings[0]);
        cr_expect(eq(int, (int)mcp_votes_all_or_none(&votes, cases[i].mine, "save", &err),
                     (int)cases[i].want));
        cr_expect(eq(str, err.text, (char *)cases[i].says));
    }
}

/* Who has a reason keeps it when the other rank answers no more. */
Test(votes, a_lost_rank)
{
    for (int fails_at = 1; fails_at <= 2; fails_at++) {
        struct other other = {.brings = {{0, 0, 1}}, .fails_at = fails_at};
        struct mcp_votes votes = votes_with(&other, 0);
        struct mcp_error err = {"mine"};
        cr_expect(eq(int, mcp_votes_all_or_none(&votes, MCP_FORMAT, "save", &err), MCP_FORMAT));
        cr_expect(eq(str, err.text, "mine"));
    }
    struct other other = {.fails_at = 1};
    struct mcp_votes votes = votes_with(&other, 0);
    struct mcp_error err = {""};
    cr_expect(eq(int, mcp_votes_all_or_none(&votes, MCP_OK, "save", &err), MCP_RUN_FAILURE));
    cr_expect(eq(str, err.text, "ranks have waited"));
    other.clock_s = 2;
    other.calls = 0;
    cr_expect(eq(int, mcp_votes_busy(&votes, &err), MCP_RUN_FAILURE));
}
