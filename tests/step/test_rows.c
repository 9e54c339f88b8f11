/* tests/step/test_rows.c: rows that can be played, and sentences about those that cannot. */
#include "step/schedule.h"

#include "tests/step/random_plan.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

Test(rows, any_order_that_messages_allow)
{
    for (int i = 0; i < 400; i++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct mcp_plan plan = mcp_plan_default();
        plan.pipeline_parallel = 2 + i % 6;
        plan.virtual_stages = 1 + i % 3;
        plan.placement = (enum mcp_placement)(i % MCP_NUM_PLACEMENTS);
        random_rows_draw(arena, (uint64_t)i, 1 + i % 9, &plan);
        const char *fault = mcp_rows_fault(arena, &plan, 1 + i % 9);
        cr_expect(fault == NULL, "case %d: %s", i, fault);
        mcp_arena_free(arena);
    }
}

/* The generators' rows can be played; ZB-H1 keeps p microbatches on every rank, ZB-H2 2p-1. */
Test(rows, generators_keep_what_they_say)
{
    for (int p = 2; p <= 9; p++)
        for (int schedule = MCP_ZB_H1; schedule <= MCP_ZB_H2; schedule++) {
            struct mcp_arena *arena = mcp_arena_new();
            struct mcp_plan plan = mcp_plan_default();
            struct mcp_schedule_row *rows = MCP_ARRAY(arena, p, struct mcp_schedule_row);
            int m = 3 * p, most = schedule == MCP_ZB_H1 ? p : 2 * p - 1;
            plan.pipeline_parallel = p;
            plan.schedule = (enum mcp_schedule)schedule;
            for (int r = 0; r < p; r++) {
                int kept = 0, fullest = 0;
                rows[r] = mcp_plan_row(arena, &plan, m, r);
                for (int i = 0; i < rows[r].num_actions; i++) {
                    enum mcp_pass pass = rows[r].actions[i].pass;
                    kept += (pass == MCP_PASS_FORWARD) - (pass == MCP_PASS_BACKWARD_WEIGHT);
                    fullest = kept > fullest ? kept : fullest;
                }
                cr_expect(eq(int, fullest, most), "p=%d rank %d", p, r);
            }
            plan.rows = rows;
            cr_expect(mcp_rows_fault(arena, &plan, m) == NULL);
            mcp_arena_free(arena);
        }
}

struct case_fault {
    char name[40];
    enum mcp_placement placement;
    int v, m;
    char rows[2][64]; /* by rank; as in plan.json */
    char says[96];    /* empty: they can be played */
};
ParameterizedTestParameters(rows, faults)
{
    static struct case_fault cases[] = {
        {"1F1B", 0, 1, 2, {"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"}, ""},
        {"in parts and whole", 0, 1, 2, {"0F0 0F1 0I0 0B1 0W0", "1F0 1I0 1W0 1F1 1B1"}, ""},
        {"there and back", 1, 2, 1, {"0F0 3F0 3B0 0B0", "1F0 2F0 2I0 2W0 1B0"}, ""},
        {"too few", 0, 1, 2, {"0F0 0F1 0B0", "1F0"}, "have 4 actions; 2 virtual stages need"},
        {"forward missing",
         0,
         1,
         1,
         {"0F0 0I0 0W0", "1F0"},
         "schedule.rows[1]: no backward of virtual stage 1, microbatch 0"},
        {"weights missing",
         0,
         1,
         1,
         {"0F0 0B0", "1F0 1I0"},
         "schedule.rows[1]: no backward for weights of virtual stage 1"},
        {"twice",
         0,
         1,
         1,
         {"0F0 0F0 0B0", "1F0 1B0"},
         "schedule.rows[0]: action 1 \"0F0\" comes a second time"},
        {"too early", 0, 1, 1, {"0B0 0F0", "1F0 1B0"}, "action 0 \"0B0\" comes before its forward"},
        {"weights first",
         0,
         1,
         1,
         {"0F0 0W0 0I0", "1F0 1B0"},
         "action 1 \"0W0\" comes before its backward for inputs"},
        {"whole and in parts",
         0,
         1,
         1,
         {"0F0 0B0 0I0", "1F0 1B0"},
         "\"0I0\" does what another action has done"},
        {"no such microbatch", 0, 1, 1, {"0F0 0B0", "1F1 1B1"}, "\"1F1\" is of microbatch 1 of 1"},
        {"waits for ever",
         0,
         1,
         2,
         {"0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"},
         "\"0B0\" waits for ever"},
        {"on its own rank",
         1,
         2,
         1,
         {"0F0 3F0 3B0 0B0", "2F0 1F0 2B0 1B0"},
         "schedule.rows[0]: action 1 \"3F0\" waits for ever"},
        {"overtaken",
         0,
         1,
         2,
         {"0F0 0F1 0B0 0B1", "1F1 1F0 1B0 1B1"},
         "\"1F1\" awaits a message that 0F0 overtakes"},
    };
    return cr_make_param_array(struct case_fault, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_fault *c, rows, faults)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_schedule_row rows[2] = {{0}};
    struct mcp_plan plan = mcp_plan_default();
    plan.pipeline_parallel = 2;
    plan.virtual_stages = c->v;
    plan.schedule = MCP_CUSTOM;
    plan.placement = c->placement;
    plan.rows = rows;
    for (int r = 0; r < 2; r++) {
        rows[r].actions = MCP_ARRAY(arena, 32, struct mcp_action);
        for (const char *at = c->rows[r]; *at != '\0'; at += at[3] == ' ' ? 4 : 3)
            rows[r].actions[rows[r].num_actions++] = (struct mcp_action){
                mcp_plan_chunk_of(&plan, at[0] - '0'), at[2] - '0',
                (enum mcp_pass)(strchr(mcp_pass_letters, at[1]) - mcp_pass_letters)};
    }
    const char *fault = mcp_rows_fault(arena, &plan, c->m);
    cr_expect(eq(int, fault == NULL, c->says[0] == '\0'), "%s: %s", c->name,
              fault ? fault : "none");
    cr_expect(fault == NULL || strstr(fault, c->says) != NULL, "%s: %s", c->name, fault);
    mcp_arena_free(arena);
}
