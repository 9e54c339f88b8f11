/* topologies/dump.h: a file that some tool wrote about a machine, whichever tool it was,
 * and one machine out of several such files.
 *
 * A file is known by its content, never by its name: nvidia-smi topo -m, -L, -q -x,
 * --query-gpu; rocm-smi --showtopo; hwloc's and NCCL's XML. What looks like something
 * else that people have at hand is refused by what it is (MCP_FORMAT). UTF-16 with a mark
 * of its byte order, as PowerShell writes, is understood. */
#ifndef MCP_TOPOLOGIES_DUMP_H
#define MCP_TOPOLOGIES_DUMP_H

#include "topologies/node.h"

enum mcp_dump_kind {
    MCP_DUMP_SMI_TOPO, /* nvidia-smi topo -m */
    MCP_DUMP_SMI_LIST, /* nvidia-smi -L */
    MCP_DUMP_SMI_CSV,  /* nvidia-smi --query-gpu */
    MCP_DUMP_SMI_XML,  /* nvidia-smi -q -x */
    MCP_DUMP_ROCM,     /* rocm-smi --showtopo */
    MCP_DUMP_HWLOC,    /* lstopo --of xml */
    MCP_DUMP_NCCL,     /* NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE */
    MCP_DUMP_NVML,     /* the driver's library, no file */
    MCP_NUM_DUMP_KINDS
};
extern const char *const mcp_dump_kind_names[MCP_NUM_DUMP_KINDS]; /* "nvidia-smi topo -m" ... */

struct mcp_dump {
    const char *name; /* of the file */
    enum mcp_dump_kind kind;
    struct mcp_node node;
};

#define MCP_MAX_DUMP_BYTES ((size_t)64 << 20)

enum mcp_status mcp_dump_parse(struct mcp_arena *arena, const char *name, const char *text,
                               size_t length, struct mcp_dump *out, struct mcp_error *err);
/* "-" is stdin. */
enum mcp_status mcp_dump_read(struct mcp_arena *arena, const char *path, struct mcp_dump *out,
                              struct mcp_error *err);

/* One machine from all that was said about it. GPUs are the same when their bus ids are,
 * else their UUIDs, else their numbers; NICs when their bus ids or names are. A value
 * that one file lacks comes from another. MCP_INVALID, naming both files and both
 * values, when two files contradict each other; only links that a file derives from its
 * tree of PCI devices yield to links that nvidia-smi states. `count` is 1 or more. */
enum mcp_status mcp_dumps_merge(struct mcp_arena *arena, const struct mcp_dump *dumps, int count,
                                struct mcp_node *out, struct mcp_error *err);

#endif
