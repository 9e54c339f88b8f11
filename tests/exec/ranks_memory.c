/* tests/exec/ranks_memory.c: resident memory beside the planned, of models of some size. */
#include "tests/exec/ranks_memory.h"

#include <malloc.h>
#include <math.h>
#include <unistd.h>

#define WIDE "tests/exec/models/llama-wide.json" /* four times the other's parameters */

static const struct {
    const char *name, *model; /* NULL: the layout's */
    struct ranks_case layout;
} layouts[] = {
    {"one",
     NULL,
     {RANKS_DEMO, 1, 1, 1, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 4,
      MCP_RECOMPUTE_NONE}},
    {"tensor",
     NULL,
     {RANKS_DEMO, 2, 1, 1, 1, 1, true, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 4,
      MCP_RECOMPUTE_NONE}},
    {"context",
     NULL,
     {RANKS_DEMO, 1, 2, 1, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 4,
      MCP_RECOMPUTE_NONE}},
    {"pipeline",
     NULL,
     {RANKS_DEMO, 1, 1, 2, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 2,
      MCP_RECOMPUTE_NONE}},
    {"data",
     NULL,
     {RANKS_DEMO, 1, 1, 1, 2, 1, false, MCP_CONTEXT_RING, 3, true, MCP_1F1B, 1, 2,
      MCP_RECOMPUTE_NONE}},
    {"wide",
     WIDE,
     {RANKS_LLAMA, 1, 1, 1, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 4,
      MCP_RECOMPUTE_NONE}},
    {"wide_data",
     WIDE,
     {RANKS_LLAMA, 1, 1, 1, 2, 1, false, MCP_CONTEXT_RING, 3, true, MCP_1F1B, 1, 2,
      MCP_RECOMPUTE_FULL}},
};

/* Pages of the process that are no file's and no other process's, once libc has given back what
 * runs before have freed. */
static double resident_bytes(void)
{
    malloc_trim(0);
    long long pages = 0, resident = 0, shared = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    bool known = file != NULL && fscanf(file, "%lld %lld %lld", &pages, &resident, &shared) == 3;
    if (file != NULL)
        fclose(file);
    return known ? (double)(resident - shared) * (double)sysconf(_SC_PAGESIZE) : (double)NAN;
}

/* Over the planned bytes; what is furthest from 1. */
static double share_of(struct mcp_cpu_world *world, const struct ranks_case *layout,
                       const char *model)
{
    struct mcp_error refused = {"a layout of memory is not legal"};
    struct mcp_step_report report;
    struct run run;
    if (!plan_model(&run, layout, model, SEQUENCE) || !build_program(&run))
        stop(&refused, "memory");
    const double before = resident_bytes();
    begin(&run, world, false, 0);
    for (int step = 0; step < 2; step++)
        train_step(&run, step, &report);
    const double share = (resident_bytes() - before) /
                         (double)mcp_interpreter_peak_bytes(mcp_trainer_interpreter(run.trainer));
    double most = share, least = share;
    CHECK(run.calls.agree(run.backend, &most, 1, '>', &err));
    CHECK(run.calls.agree(run.backend, &least, 1, '<', &err));
    end(&run);
    return most - 1 > 1 - least ? most : least;
}

void run_memory(struct mcp_cpu_world *world, FILE *out)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (ranks_world(&layouts[i].layout) != mcp_cpu_world_size(world))
            continue;
        const double share = share_of(world, &layouts[i].layout, layouts[i].model);
        if (out != NULL)
            fprintf(out, "memory %s %.4f\n", layouts[i].name, share);
    }
}
