/* exec/cpu_binding.h: binds a rank to cores of its place in the plan. */
#ifndef MCP_EXEC_CPU_BINDING_H
#define MCP_EXEC_CPU_BINDING_H

#include "core/arena.h"
#include "exec/cpu_mpi.h"

/* Before the first thread: the ranks of each machine share out its cores in the order of their
 * places in the plan, as many for each as OMP_NUM_THREADS says, else all. A launcher that has
 * given ranks different cores is not contradicted. *note: why ranks have no cores of their own;
 * NULL: they have. All ranks call it. Fails only as messages do. */
enum mcp_status mcp_cpu_bind(struct mcp_arena *arena, struct mcp_cpu_world *world,
                             const struct mcp_plan *plan, const char **note, struct mcp_error *err);

#endif
