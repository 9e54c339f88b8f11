/* cli/launcher.c: launchers by their variables. */
#include "cli/launcher.h"

#include "core/text.h"

#include <stdlib.h>

/* Who sets `name` has started ranks; with `is_size` if there is more than one of them. */
struct sign {
    const char *name, *rank;
    bool is_size;
};
static const struct sign signs[] = {
    {"TORCHELASTIC_RUN_ID", "RANK", false},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", false},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", true},
    {"PMIX_RANK", "PMIX_RANK", false},
    {"PMI_RANK", "PMI_RANK", false},
};

struct mcp_launcher mcp_launcher_find(struct mcp_arena *arena)
{
    for (size_t i = 0; i < MCP_COUNT_OF(signs); i++) {
        const char *value = getenv(signs[i].name), *rank = getenv(signs[i].rank);
        if (value == NULL)
            continue;
        return (struct mcp_launcher){
            .starts_ranks = !signs[i].is_size || !mcp_same(value, "1"),
            .is_first = rank == NULL || mcp_same(rank, "0"),
            .sign = mcp_format(arena, "%s=%s", signs[i].name, mcp_printable(arena, value))};
    }
    return (struct mcp_launcher){.is_first = true};
}
