/* topologies/nvidia_smi_parts.h: what the readers of nvidia-smi's outputs share. */
#ifndef MCP_TOPOLOGIES_NVIDIA_SMI_PARTS_H
#define MCP_TOPOLOGIES_NVIDIA_SMI_PARTS_H

#include "core/arena.h"
#include "core/units.h"
#include "topologies/node.h"

#include <stdbool.h>

/* The columns right of the links. */
enum mcp_smi_column { MCP_SMI_CPU, MCP_SMI_NUMA, MCP_SMI_GPU_NUMA, MCP_SMI_OTHER };
#define MCP_SMI_MAX_COLUMNS 8

struct mcp_smi_columns {
    int count;
    enum mcp_smi_column kinds[MCP_SMI_MAX_COLUMNS];
};

/* One row's words there; NULL: no such column or row, "": printed empty. */
struct mcp_smi_affinity {
    const char *cpu;
    const char *numa;
    const char *gpu_numa;
};

/* The next blank-separated word of *at, NULL at the end; *at moves on. */
char *mcp_smi_next_word(struct mcp_arena *arena, const char **at);

/* The columns that a header names in its rest "CPU Affinity  NUMA Affinity ...". */
struct mcp_smi_columns mcp_smi_read_columns(struct mcp_arena *arena, const char *header);

/* The words of a row: by position where each column has one, else by tab, as a list of
 * CPUs may be empty; without tabs a list of CPUs is told by its look. */
struct mcp_smi_affinity mcp_smi_read_affinity(struct mcp_arena *arena,
                                              const struct mcp_smi_columns *columns,
                                              const char *rest);

/* A row without NUMA node, whose list of CPUs has the node's number glued to it: it is
 * cut where the list then has as many CPUs as `whole`, another row's. False, changing
 * nothing, when no cut does. */
bool mcp_smi_unglue(struct mcp_arena *arena, struct mcp_smi_affinity *affinity, const char *whole);

/* CPUs in a list "0-15,32"; -1: it is none. */
int mcp_smi_count_cpus(const char *list);
/* The number at *at, which moves behind it; -1: there is none. It stops growing once it
 * is 100,000 or more. */
int mcp_smi_read_number(const char **at);
/* The first number of "0,3-9"; -1 for NULL, "N/A" and nothing. */
int mcp_smi_first_number(const char *word);

/* A value as nvidia-smi prints it, "81559 MiB", or "81559" under nounits, where `unit`
 * is meant. *out stays as it is for "N/A", "[Not Supported]" and the like. */
enum mcp_status mcp_smi_quantity(struct mcp_arena *arena, const char *text, const char *unit,
                                 enum mcp_dimension dimension, double *out, struct mcp_error *err);
/* The number that "4", "16x" or "x16" tells; 0: none. */
int mcp_smi_small_number(const char *text);
/* NULL for "N/A" and its like, else the text. */
const char *mcp_smi_known(const char *text);

#endif
