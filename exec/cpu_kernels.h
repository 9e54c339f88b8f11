/* exec/cpu_kernels.h: what a CPU can compute: one kernel for each function of a program.
 *
 * A kernel looks at nothing but its launch: the op's dimensions and dtype, the facts of its
 * layer type, where the rank sits in the mesh, and operands in memory. It uses OpenMP over
 * rows or BLAS inside, allocates nothing and cannot fail. Which ops may run beside it is
 * not its concern. Sums across rows are taken in a fixed order: the same inputs give the
 * same bits whatever the number of threads. */
#ifndef MCP_EXEC_CPU_KERNELS_H
#define MCP_EXEC_CPU_KERNELS_H

#include "exec/backend.h"

struct mcp_cpu_kernel {
    void (*run)(const struct mcp_launch *launch); /* NULL: none, or a transfer */
    unsigned dtypes;                              /* bit 1 << enum mcp_dtype of the op */
};

/* By enum mcp_function; host functions included. Transfers are the backend's own. */
extern const struct mcp_cpu_kernel mcp_cpu_kernels[MCP_NUM_FUNCTIONS];

#endif
