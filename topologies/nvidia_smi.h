/* topologies/nvidia_smi.h: what NVIDIA's nvidia-smi prints about one machine.
 *
 * Each reader fills what its output tells and leaves the rest unknown; numbers of GPUs
 * are nvidia-smi's own. `name` stands for the file in messages, which name the line. */
#ifndef MCP_TOPOLOGIES_NVIDIA_SMI_H
#define MCP_TOPOLOGIES_NVIDIA_SMI_H

#include "topologies/node.h"
#include "topologies/xml.h"

#include <stdbool.h>

/* The link matrix of `nvidia-smi topo -m`: tabs or blanks, CRLF, terminal escapes,
 * Markdown, NIC columns by device name or as NIC0 with a legend, affinity columns or
 * none, text before and after, rows and cells that lost the blanks between them. A
 * matrix that is cut off leaves links unknown. Refused: P2P status matrices and
 * rocm-smi's numbers (MCP_FORMAT), unknown codes (MCP_FORMAT), and links of GPUs that
 * contradict each other across the diagonal (MCP_INVALID). */
enum mcp_status mcp_nvidia_smi_topo(struct mcp_arena *arena, const char *name, const char *text,
                                    size_t length, struct mcp_node *out, struct mcp_error *err);

/* Rows of `nvidia-smi --query-gpu=... --format=csv`, columns found by their header
 * alone; `index` is the row unless there is such a column. MCP_FORMAT for a row that is
 * cut, and without a header. */
enum mcp_status mcp_nvidia_smi_csv(struct mcp_arena *arena, const char *name, const char *text,
                                   size_t length, struct mcp_node *out, struct mcp_error *err);
/* True when the first line is a header, or a row, of such a list. */
bool mcp_nvidia_smi_is_csv(const char *text);

/* `nvidia-smi -L`: MIG devices belong to the GPU above them. */
enum mcp_status mcp_nvidia_smi_list(struct mcp_arena *arena, const char *name, const char *text,
                                    size_t length, struct mcp_node *out, struct mcp_error *err);
bool mcp_nvidia_smi_is_list(const char *text);

/* `nvidia-smi -q -x`: `root` is <nvidia_smi_log>. */
enum mcp_status mcp_nvidia_smi_xml(struct mcp_arena *arena, const char *name,
                                   const struct mcp_xml *root, struct mcp_node *out,
                                   struct mcp_error *err);

#endif
