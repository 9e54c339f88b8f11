/* exec/main_rooflines.h: mcpplan-exec-cuda --rooflines: what ops of a program take on this GPU.
 *
 *     mcpplan-exec-cuda --rooflines --program step.json [--output rooflines.json] [--repeats N]
 *         [--product-size N] [--copy-bytes N] [--flush-bytes N]
 *
 * The program is one that `mcpplan plan --gpus 1 --dump-program` wrote. A table goes to standard
 * output, the same as JSON to the output. exec/cuda_rooflines.h says what is measured. */
#ifndef MCP_EXEC_MAIN_ROOFLINES_H
#define MCP_EXEC_MAIN_ROOFLINES_H

/* argv[1] is --rooflines. Returns the exit status. */
int mcp_main_rooflines(int argc, char **argv);

#endif
