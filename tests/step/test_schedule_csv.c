/* tests/step/test_schedule_csv.c: PyTorch's schedule files are read as meant, strictly, and written. */
#include "step/schedule_csv.h"

#include "step/schedule.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

static enum mcp_status parse(struct mcp_arena *arena, const char *text,
                             struct mcp_schedule_file *out, struct mcp_error *err)
{
    return mcp_schedule_csv_parse(arena, "s.csv", text, strlen(text), out, err);
}

struct case_read {
    char name[40];
    char text[200];
    int p, v, m;
    enum mcp_placement placement;
    char want[200]; /* as it is written */
};
ParameterizedTestParameters(schedule_csv, reads)
{
    static struct case_read cases[] = {
        {"one rank", "0F0,0B0", 1, 1, 1, MCP_PLACEMENT_LOOP, "0F0,0B0\r\n"},
        {"1F1B of two", "0F0,0F1,0B0,0B1\r\n,1F0,1B0,1F1,1B1\r\n", 2, 1, 2, MCP_PLACEMENT_LOOP,
         "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n"},
        {"loop of four stages", "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n", 2, 2, 1, MCP_PLACEMENT_LOOP,
         "0F0,2F0,2B0,0B0\r\n1F0,3F0,3B0,1B0\r\n"},
        {"there and back, halves", "0F0,,,3F0,3I0,3W0,0I0,0W0\n,1F0,2F0,,2I0,1I0,2W0,1W0\n", 2, 2,
         1, MCP_PLACEMENT_V, "0F0,3F0,3I0,3W0,0I0,0W0\r\n1F0,2F0,2I0,1I0,2W0,1W0\r\n"},
        {"spaces and byte order mark", "\xef\xbb\xbf 0F0 , 0B0 ", 1, 1, 1, MCP_PLACEMENT_LOOP,
         "0F0,0B0\r\n"},
        {"communication is left out",
         "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n1RECV_F0,1F0,1B0,1SEND_B0", 2,
         1, 1, MCP_PLACEMENT_LOOP, "0F0,0B0\r\n1F0,1B0\r\n"},
        {"side by side", "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2", 1, 1, 3, MCP_PLACEMENT_LOOP,
         "0F0,0F1,0F2,0B0,0B1,0B2\r\n"},
    };
    return cr_make_param_array(struct case_read, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_read *c, schedule_csv, reads)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_schedule_file file;
    cr_assert(parse(arena, c->text, &file, &err) == MCP_OK, "%s: %s", c->name, err.text);
    cr_expect(file.pipeline_parallel == c->p && file.virtual_stages == c->v, "%s", c->name);
    cr_expect(file.num_microbatches == c->m && file.placement == c->placement, "%s", c->name);
    cr_expect(
        eq(str, (char *)mcp_schedule_csv_text(arena, file.placement, c->p, file.rows), c->want));
    mcp_arena_free(arena);
}

Test(schedule_csv, counts_what_it_leaves_out)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_schedule_file file;
    const char *text = "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RESHARD,(0F2;0B0)OVERLAP_F_B";
    cr_assert(parse(arena, text, &file, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(int, file.ignored[MCP_CSV_UNSHARD], 1));
    cr_expect(eq(int, file.ignored[MCP_CSV_SEND_F], 2));
    cr_expect(eq(int, file.ignored[MCP_CSV_RECV_F], 0));
    cr_expect(eq(int, file.num_side_by_side, 1));
    mcp_arena_free(arena);
}

struct case_refused {
    char text[80];
    char says[120];
};
ParameterizedTestParameters(schedule_csv, refuses)
{
    static struct case_refused cases[] = {
        {"", "no action"},
        {",,\n,", ":1: no action"},
        {"0F0\n1SEND_B0,,", ":2: no action"},
        {"0F0\n\n1F0,1Q0", ":3: column 2: \"1Q0\""},
        {"F0", ":1: column 1: \"F0\" does not begin with a stage"},
        {"0F0,0Q0", ":1: column 2: \"0Q0\" is none of"},
        {"0F0\n1F0,1B0x", ":2: column 2: \"1B0x\" goes on behind the action"},
        {"0F0 0B0", "\"0F0 0B0\" goes on behind the action"},
        {"0F", "\"0F\" needs a microbatch"},
        {"0SEND_F", "\"0SEND_F\" needs a microbatch"},
        {"0FF0", "\"0FF0\" is none of"},
        {"0F-1", "\"0F-1\" needs a microbatch"},
        {"0F99999999999", "needs a microbatch"},
        {"99999999999F0", "does not begin with a stage"},
        {"\"0F0\"", "does not begin with a stage"},
        {"(0F0;0B0)", "must end with OVERLAP_F_B"},
        {"(0F0;0B0OVERLAP_F_B", "no closing parenthesis"},
        {"(0F0;0B0)OVERLAP_F_B1", "goes on behind the action"},
        {"()OVERLAP_F_B", "does not begin with a stage"},
        {"0F0\n0B0", ":2: column 1: stage 0 is on rank 1"},
        {"0F0,1F0\n2F0,3F0", ":1: column 2: stage 1 is on rank 0; of 2 ranks rank 1 holds it"},
        {"0F0,2F0\n1F0,2F0", ":2: column 2: stage 2 is on rank 1"},
        {"0F0,3F0\n1F0,3F0", "stage 3"},
    };
    return cr_make_param_array(struct case_refused, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_refused *c, schedule_csv, refuses)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_schedule_file file;
    cr_expect(parse(arena, c->text, &file, &err) == MCP_FORMAT, "\"%s\"", c->text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "\"%s\": %s", c->text, err.text);
    mcp_arena_free(arena);
}

Test(schedule_csv, refuses_nul)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_schedule_file file;
    cr_expect(mcp_schedule_csv_parse(arena, "s.csv", "0F0\0,0B0", 8, &file, &err) == MCP_FORMAT);
    cr_expect(eq(str, err.text, "s.csv: NUL byte"));
    mcp_arena_free(arena);
}

/* What generators make comes back as it was. */
Test(schedule_csv, round_trip)
{
    static const int shapes[][4] = {{MCP_GPIPE, 4, 1, 7},
                                    {MCP_1F1B, 8, 1, 24},
                                    {MCP_INTERLEAVED, 4, 3, 12},
                                    {MCP_ZB_H1, 5, 1, 9}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct mcp_arena *arena = mcp_arena_new();
        int p = shapes[i][1], v = shapes[i][2], m = shapes[i][3];
        struct mcp_schedule_row *rows = MCP_ARRAY(arena, p, struct mcp_schedule_row);
        struct mcp_plan plan = mcp_plan_default();
        plan.schedule = (enum mcp_schedule)shapes[i][0];
        plan.pipeline_parallel = p;
        plan.virtual_stages = v;
        for (int r = 0; r < p; r++)
            rows[r] = mcp_plan_row(arena, &plan, m, r);
        const char *text = mcp_schedule_csv_text(arena, MCP_PLACEMENT_LOOP, p, rows);
        struct mcp_error err = {0};
        struct mcp_schedule_file file;
        cr_assert(parse(arena, text, &file, &err) == MCP_OK, "%s", err.text);
        cr_expect(file.pipeline_parallel == p && file.virtual_stages == v);
        cr_expect(file.num_microbatches == m && file.placement == MCP_PLACEMENT_LOOP);
        cr_expect(eq(str, (char *)mcp_schedule_csv_text(arena, file.placement, p, file.rows),
                     (char *)text));
        for (int r = 0; r < p; r++)
            cr_expect(memcmp(file.rows[r].actions, rows[r].actions,
                             (size_t)rows[r].num_actions * sizeof(struct mcp_action)) == 0);
        mcp_arena_free(arena);
    }
}
