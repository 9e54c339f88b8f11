/* sim/noise.h: seeded jitter, the same for the same (seed, rank, slot). Private to sim/. */
#ifndef MCP_SIM_NOISE_H
#define MCP_SIM_NOISE_H

#include <stdint.h>

/* A standard normal draw for `rank` in its slot `slot`. Pure: no state, so the order of
 * draws does not matter. */
double mcp_sim_normal(uint64_t seed, int rank, int slot);

#endif
