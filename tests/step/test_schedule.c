/* tests/step/test_schedule.c: orders are complete, causal and those of the papers. */
#include "step/schedule.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>

struct case_schedule {
    enum mcp_schedule schedule;
    int p, v, m;
};
#define SCHEDULES                                                                                  \
    {MCP_GPIPE, 1, 1, 1}, {MCP_GPIPE, 4, 1, 7}, {MCP_1F1B, 1, 1, 1}, {MCP_1F1B, 1, 1, 9},          \
        {MCP_1F1B, 4, 1, 16}, {MCP_1F1B, 8, 1, 3}, {MCP_1F1B, 5, 1, 5}, {MCP_1F1B, 8, 1, 1},       \
        {MCP_INTERLEAVED, 2, 2, 2}, {MCP_INTERLEAVED, 4, 2, 4}, {MCP_INTERLEAVED, 4, 3, 12},       \
        {MCP_INTERLEAVED, 8, 2, 8}, {MCP_INTERLEAVED, 8, 5, 24},                                   \
    {                                                                                              \
        MCP_INTERLEAVED, 3, 7, 30                                                                  \
    }

static struct mcp_action *actions_of(struct mcp_arena *arena, const struct case_schedule *c,
                                     int rank)
{
    struct mcp_action *actions =
        MCP_ARRAY(arena, mcp_schedule_length(c->v, c->m), struct mcp_action);
    mcp_schedule_actions(c->schedule, c->p, c->v, c->m, rank, actions);
    return actions;
}

ParameterizedTestParameters(schedule, once_each)
{
    static struct case_schedule cases[] = {SCHEDULES};
    return cr_make_param_array(struct case_schedule, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_schedule *c, schedule, once_each)
{
    struct mcp_arena *arena = mcp_arena_new();
    for (int r = 0; r < c->p; r++) {
        const struct mcp_action *actions = actions_of(arena, c, r);
        int *forward = MCP_ARRAY(arena, c->v, int), *backward = MCP_ARRAY(arena, c->v, int);
        for (int i = 0; i < mcp_schedule_length(c->v, c->m); i++) {
            const struct mcp_action *a = &actions[i];
            cr_assert(a->chunk >= 0 && a->chunk < c->v, "chunk %d", a->chunk);
            int *done = a->pass == MCP_PASS_BACKWARD ? backward : forward;
            cr_assert(eq(int, a->microbatch, done[a->chunk]), "in order");
            done[a->chunk]++;
            cr_assert(backward[a->chunk] <= forward[a->chunk], "backward before its forward");
        }
        for (int k = 0; k < c->v; k++)
            cr_expect(forward[k] == c->m && backward[k] == c->m, "rank %d chunk %d", r, k);
    }
    mcp_arena_free(arena);
}

struct case_order {
    enum mcp_schedule schedule;
    int p, v, m, rank;
    char want[120]; /* F or B, chunk, microbatch */
};
ParameterizedTestParameters(schedule, order)
{
    static struct case_order cases[] = {
        {MCP_GPIPE, 2, 1, 3, 0, "F00 F01 F02 B00 B01 B02 "},
        {MCP_1F1B, 3, 1, 4, 0, "F00 F01 F02 B00 F03 B01 B02 B03 "},
        {MCP_1F1B, 3, 1, 4, 2, "F00 B00 F01 B01 F02 B02 F03 B03 "},
        {MCP_1F1B, 4, 1, 2, 0, "F00 F01 B00 B01 "},
        {MCP_INTERLEAVED, 2, 2, 4, 0,
         "F00 F01 F10 F11 F02 B10 F03 B11 F12 B00 F13 B01 B12 B13 B02 B03 "},
        {MCP_INTERLEAVED, 2, 2, 4, 1,
         "F00 F01 F10 B10 F11 B11 F02 B00 F03 B01 F12 B12 F13 B13 B02 B03 "},
    };
    return cr_make_param_array(struct case_order, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_order *c, schedule, order)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct case_schedule shape = {c->schedule, c->p, c->v, c->m};
    const struct mcp_action *actions = actions_of(arena, &shape, c->rank);
    char got[120] = "";
    for (int i = 0, n = 0; i < mcp_schedule_length(c->v, c->m); i++)
        n += snprintf(got + n, sizeof got - (size_t)n, "%c%d%d ", mcp_pass_letters[actions[i].pass],
                      actions[i].chunk, actions[i].microbatch);
    cr_expect(eq(str, got, c->want));
    mcp_arena_free(arena);
}

struct case_warm_up {
    enum mcp_schedule schedule;
    int p, v, m, rank, want;
};
ParameterizedTestParameters(schedule, warm_up)
{
    static struct case_warm_up cases[] = {
        {MCP_GPIPE, 8, 1, 24, 3, 24}, /* all of them */
        {MCP_1F1B, 8, 1, 24, 0, 7},   /* p - 1 - r */
        {MCP_1F1B, 8, 1, 24, 7, 0},
        {MCP_1F1B, 8, 1, 3, 0, 3},          /* at most m */
        {MCP_INTERLEAVED, 8, 2, 24, 0, 22}, /* 2 (p-1-r) + (v-1) p */
        {MCP_INTERLEAVED, 8, 2, 24, 7, 8},
        {MCP_INTERLEAVED, 8, 2, 8, 0, 16}, /* at most m v */
        {MCP_INTERLEAVED, 16, 6, 192, 0, 110},
    };
    return cr_make_param_array(struct case_warm_up, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_warm_up *c, schedule, warm_up)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct case_schedule shape = {c->schedule, c->p, c->v, c->m};
    const struct mcp_action *actions = actions_of(arena, &shape, c->rank);
    int got = mcp_schedule_warm_up(c->schedule, c->p, c->v, c->m, c->rank), forwards = 0;
    while (actions[forwards].pass == MCP_PASS_FORWARD)
        forwards++;
    bool pairs = got < c->m * c->v; /* then a pair's forward comes before the backward */
    cr_expect(eq(int, got, c->want));
    cr_expect(eq(int, forwards, got + pairs));
    mcp_arena_free(arena);
}
