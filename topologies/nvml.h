/* topologies/nvml.h: this machine's NVIDIA GPUs through NVML, the driver's own library.
 *
 * It is opened when it is there and never linked, so that the program runs without it.
 * What an old driver's library lacks stays unknown. Written from NVML's documentation
 * and tested against a stand-in (tests/topologies/fake/nvml.c); it never ran on a GPU yet. */
#ifndef MCP_TOPOLOGIES_NVML_H
#define MCP_TOPOLOGIES_NVML_H

#include "topologies/node.h"

#define MCP_NVML_LIBRARY "libnvidia-ml.so.1"

/* *found is false, and *out as it was, when the library is not there, when it does not
 * start (then *note says why), and when it finds no GPU. NICs are none of NVML's. */
enum mcp_status mcp_nvml_read(struct mcp_arena *arena, const char *library, struct mcp_node *out,
                              bool *found, const char **note, struct mcp_error *err);

#endif
