/* tests/cli/test_examples.c: examples run, and their pages print what they give. */
#include "core/json.h"
#include "core/text.h"
#include "core/units.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXAMPLE "examples/two-data-centres/"

enum { MOST_ROWS = 16 };

struct row {
    const char *name;
    double iteration_s, exposed_comm_frac, played_s;
};

/* One run of the script; its folder is removed again. */
struct run {
    struct mcp_arena *arena;
    int count;
    struct row rows[MOST_ROWS];
    double warm_s, frozen_s, average_s;
    long long report_bytes;
};

static void read_rows(struct run *run, struct mcp_json *plan)
{
    struct mcp_json *list, *phases;
    struct mcp_error err = {""};
    cr_assert(eq(int, (int)mcp_json_array(plan, "savings", &list, &err), 0), "%s", err.text);
    run->count = (int)mcp_json_count(list);
    cr_assert(le(int, run->count, MOST_ROWS));
    for (int i = 0; i < run->count; i++) {
        struct mcp_json *row = mcp_json_at(list, (size_t)i);
        struct row *out = &run->rows[i];
        cr_assert(eq(int, (int)mcp_json_string(row, "switch", &out->name, &err), 0));
        cr_assert(eq(int, (int)mcp_json_double(row, "iteration_s", &out->iteration_s, &err), 0));
        cr_assert(eq(int, (int)mcp_json_double(row, "played_s", &out->played_s, &err), 0));
        cr_assert(eq(
            int, (int)mcp_json_double(row, "exposed_comm_frac", &out->exposed_comm_frac, &err), 0));
    }
    cr_assert(eq(int, (int)mcp_json_object(plan, "phases", &phases, &err), 0), "%s", err.text);
    cr_assert(eq(int, (int)mcp_json_double(phases, "warm_s", &run->warm_s, &err), 0));
    cr_assert(eq(int, (int)mcp_json_double(phases, "frozen_s", &run->frozen_s, &err), 0));
    cr_assert(eq(int, (int)mcp_json_double(phases, "average_s", &run->average_s, &err), 0));
}

static void run_script(struct run *run)
{
    char folder[] = "/tmp/mcpplan-example-XXXXXX";
    struct mcp_json *plan;
    struct mcp_error err = {""};
    struct stat report = {0};
    run->arena = mcp_arena_new();
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
    setenv("MCPPLAN", "build/release/mcpplan", 0);
    const char *command =
        mcp_format(run->arena, "sh " EXAMPLE "run.sh %s >%s/out 2>&1", folder, folder);
    const char *plan_path = mcp_format(run->arena, "%s/two-data-centres.json", folder);
    const char *report_path = mcp_format(run->arena, "%s/two-data-centres.html", folder);
    int status = system(command);
    cr_assert(eq(int, status, 0), "the script fails; see %s/out", folder);
    cr_assert(eq(int, (int)mcp_json_read(run->arena, plan_path, &plan, &err), 0), "%s", err.text);
    read_rows(run, plan);
    cr_expect(eq(int, stat(report_path, &report), 0));
    run->report_bytes = (long long)report.st_size;
    unlink(plan_path);
    unlink(report_path);
    unlink(mcp_format(run->arena, "%s/out", folder));
    rmdir(folder);
}

static const struct row *row_of(const struct run *run, const char *name)
{
    for (int i = 0; i < run->count; i++)
        if (strcmp(run->rows[i].name, name) == 0)
            return &run->rows[i];
    cr_expect(false, "no row %s", name);
    return &run->rows[0];
}

/* A line of the page's table as a run of the script has it. */
static const char *line_of(const struct run *run, int i)
{
    const struct row *row = &run->rows[i];
    double saved = 100 * (1 - row->iteration_s / run->rows[0].iteration_s);
    return mcp_format(run->arena, "| %s |%s| %.1f %% | %s |\n",
                      mcp_show(run->arena, row->iteration_s, MCP_SECONDS),
                      i == 0 ? " " : mcp_format(run->arena, " %.1f %% ", saved),
                      100 * row->exposed_comm_frac,
                      mcp_show(run->arena, row->played_s, MCP_SECONDS));
}

Test(examples, two_data_centres)
{
    struct run run = {0};
    struct mcp_text page;
    struct mcp_error err = {""};
    run_script(&run);
    const struct row *none = &run.rows[0], *all = &run.rows[run.count - 1];
    for (int i = 0; i < run.count; i++) {
        const struct row *row = &run.rows[i];
        cr_expect(le(dbl, row->iteration_s, none->iteration_s), "%s", row->name);
        cr_expect(ge(dbl, row->iteration_s, all->iteration_s), "%s", row->name);
        cr_expect(lt(dbl, fabs(row->played_s / row->iteration_s - 1), 0.01), "%s", row->name);
    }
    const char *const levers[] = {"overlap", "one_bit_adam", "topology"};
    for (int i = 0; i < 3; i++)
        cr_expect(lt(dbl, row_of(&run, levers[i])->exposed_comm_frac, none->exposed_comm_frac));
    cr_expect(lt(dbl, all->exposed_comm_frac, none->exposed_comm_frac / 2));
    cr_expect(epsilon_eq(dbl, run.frozen_s, all->iteration_s, 1e-9));
    cr_expect(epsilon_eq(dbl, run.average_s, 0.2 * run.warm_s + 0.8 * run.frozen_s, 1e-9));
    cr_expect(gt(i64, (int64_t)run.report_bytes, (int64_t)20000));
    cr_assert(eq(int, (int)mcp_file_read(run.arena, EXAMPLE "README.md", 1 << 20, &page, &err), 0));
    for (int i = 0; i < run.count; i++)
        cr_expect(ne(ptr, strstr(page.data, line_of(&run, i)), NULL), "the page lacks %s%s",
                  run.rows[i].name, line_of(&run, i));
    double saved[3], together = 0;
    for (int i = 0; i < 3; i++)
        together += saved[i] = 100 * (1 - row_of(&run, levers[i])->iteration_s / none->iteration_s);
    const char *sum = mcp_format(run.arena, "%.1f + %.1f + %.1f = %.1f %%", saved[0], saved[1],
                                 saved[2], together);
    cr_expect(ne(ptr, strstr(page.data, sum), NULL), "the page lacks %s", sum);
    mcp_arena_free(run.arena);
}
