/* topologies/cpuinfo.h: how fast a core can multiply, from /proc/cpuinfo's text. */
#ifndef MCP_TOPOLOGIES_CPUINFO_H
#define MCP_TOPOLOGIES_CPUINFO_H

#include "core/arena.h"

struct mcp_cpuinfo {
    const char *model;   /* NULL: unknown */
    const char *vectors; /* "AVX-512" ... */
    int flops_per_cycle; /* fp32, of one core; 0: unknown */
    double clock_hz;     /* highest that any core shows; 0: unknown */
};

/* Two fused multiply-add units of the widest vectors that the flags name: AVX-512
 * 64 operations a cycle, AVX2 with FMA 32, AVX 16, SSE2 8, Arm's Advanced SIMD 16.
 * Never fails: what the text lacks is unknown. */
struct mcp_cpuinfo mcp_cpuinfo_parse(struct mcp_arena *arena, const char *text);

#endif
