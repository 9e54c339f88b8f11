/* cli/launcher.h: has mpirun, srun or torchrun started us, as one of several ranks? */
#ifndef MCP_CLI_LAUNCHER_H
#define MCP_CLI_LAUNCHER_H

#include "core/arena.h"

#include <stdbool.h>

struct mcp_launcher {
    bool starts_ranks; /* each process that it started is one */
    bool is_first;     /* we are the first of them, or the only one */
    const char *sign;  /* what of the environment says so: "PMIX_RANK=2"; NULL: nothing */
};

/* By the environment. Open MPI's own variables come from an mpirun, TORCHELASTIC_* from torchrun;
 * a Slurm step of one task is a shell, in which ranks are still to be started, whatever srun has
 * set up for it; a batch script has no step. PMIX_RANK and PMI_RANK alone are of another
 * launcher. */
struct mcp_launcher mcp_launcher_find(struct mcp_arena *arena);

#endif
