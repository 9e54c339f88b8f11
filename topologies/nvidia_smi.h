/* topologies/nvidia_smi.h: what NVIDIA's nvidia-smi prints about one machine.
 *
 * The link matrix of `nvidia-smi topo -m`: tabs or blanks, CRLF, terminal escapes,
 * NIC columns by device name or as NIC0 with a legend, affinity columns or none,
 * text before and after. A matrix that is cut off leaves links unknown. Refused:
 * P2P status matrices and rocm-smi's numbers (MCP_FORMAT), unknown codes
 * (MCP_FORMAT), and cells that contradict each other across the diagonal
 * (MCP_INVALID); the message names line and devices. */
#ifndef MCP_TOPOLOGIES_NVIDIA_SMI_H
#define MCP_TOPOLOGIES_NVIDIA_SMI_H

#include "topologies/node.h"

#include <stdbool.h>

/* `name` stands for the file in messages. */
enum mcp_status mcp_nvidia_smi_topo(struct mcp_arena *arena, const char *name, const char *text,
                                    size_t length, struct mcp_node *out, struct mcp_error *err);

/* Rows of `nvidia-smi --query-gpu=name,memory.total --format=csv`, columns found by
 * their header; `index` is the row unless there is such a column. */
struct mcp_gpu_list {
    int count;
    struct mcp_node_gpu *items;
};
enum mcp_status mcp_nvidia_smi_csv(struct mcp_arena *arena, const char *name, const char *text,
                                   size_t length, struct mcp_gpu_list *out, struct mcp_error *err);

/* True when the first line is a header of such a list. */
bool mcp_nvidia_smi_is_csv(struct mcp_arena *arena, const char *text);

/* Fills names and memory of the node's GPUs by index; a node without GPUs takes
 * them all, with unknown links. MCP_INVALID when the two disagree on their number. */
enum mcp_status mcp_node_add_gpus(struct mcp_arena *arena, struct mcp_node *node,
                                  const struct mcp_gpu_list *list, struct mcp_error *err);

#endif
