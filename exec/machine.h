/* exec/machine.h: is the machine that ranks run on the one that was planned for? */
#ifndef MCP_EXEC_MACHINE_H
#define MCP_EXEC_MACHINE_H

#include "core/arena.h"
#include "core/error.h"

#include <stdint.h>

/* What a rank finds. Fixed size: ranks send it to rank 0 as it is. */
struct mcp_machine {
    char device[128]; /* the product's name */
    int64_t memory_bytes;
    int64_t ranks_beside;           /* on its machine, itself too; 0: unknown */
    char host[64], pci_address[32]; /* where the device is; "": unknown */
};

/* What the plan's cluster has. */
struct mcp_machine_plan {
    const char *gpu; /* preset's name */
    int64_t memory_bytes;
    int64_t gpus_per_node;
};

/* What is different, one clause for each kind of difference, naming how many ranks find it and
 * the first of them; NULL: nothing. Memory counts as less from 5 % on: drivers keep some. */
const char *mcp_machine_differences(struct mcp_arena *arena, const struct mcp_machine_plan *plan,
                                    const struct mcp_machine *ranks, int count);

/* Two ranks on one device, which NCCL refuses: MCP_INVALID names both. */
enum mcp_status mcp_machine_check_devices(const struct mcp_machine *ranks, int count,
                                          struct mcp_error *err);

#endif
