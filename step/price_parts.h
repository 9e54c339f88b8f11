/* step/price_parts.h: pieces of a price. Private to step/, and to whoever plays its ops. */
#ifndef MCP_STEP_PRICE_PARTS_H
#define MCP_STEP_PRICE_PARTS_H

#include "step/price.h"

#include "core/cluster.h"

static inline enum mcp_code mcp_op_code(const struct mcp_op *op)
{
    return (enum mcp_code)mcp_functions[op->function].code;
}

/* Seconds of a local op, without its kernels' start-up. */
double mcp_compute_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op);
/* ... and that start-up. */
double mcp_op_start_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op);
/* Launches the host makes for the op. */
int mcp_op_launches(const struct mcp_pricing *pricing, const struct mcp_op *op);
/* Seconds of a transfer between ranks. Sends are priced at their slowest boundary. */
double mcp_transfer_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op);

/* A block's ops as they are wherever ranks lie: of those that are no transfers nanoseconds, and
 * how many of them a kernel takes to start. */
struct mcp_local_op {
    int64_t whole_ns, start_ns;
    double flops;
    int launches;
};
/* out: [block->num_ops]. */
void mcp_block_local(const struct mcp_pricing *pricing, const struct mcp_block *block,
                     struct mcp_local_op *out);
/* mcp_block_price() where these are known. */
void mcp_block_play(const struct mcp_pricing *pricing, const struct mcp_block *block,
                    const struct mcp_local_op *local, struct mcp_block_price *out);

/* The kind of time an op's seconds are. */
enum mcp_cost mcp_op_cost(const struct mcp_op *op);
/* How much of tensor and expert transfers a stack hides is measured as a share of them; what
 * is left of that share stands alone: compute stops for it. So it does for ring steps that
 * are not to be hidden; others hide as far as the play of their block says. */
bool mcp_op_stops_compute(const struct mcp_op *op);

/* Seconds as integer nanoseconds, to nearest. */
int64_t mcp_to_ns(double seconds);

/* What a rank gets of one tier's links, bytes per second and direction: large messages,
 * as the stack drives them. */
double mcp_tier_bandwidth(const struct mcp_pricing *pricing, int tier);
/* Members of a group of `ranks` in one domain of `tier`; all of them in the last. */
int mcp_members_in(const struct mcp_pricing *pricing, unsigned axes, int tier, int ranks);

/* A transfer as it goes over links: phases, one after the other. In each, latency comes
 * first; then the ports of its ranks are in use, `loads` of a rank's in each tier, sent
 * and received alike. Alone on its links a phase takes latency_s + links_s. */
struct mcp_transfer_phase {
    double latency_s;
    double links_s;
    double loads[MCP_MAX_TIERS]; /* 0 .. 1 */
};
#define MCP_MAX_PHASES (2 * MCP_MAX_TIERS - 1)
struct mcp_transfer {
    int num_phases; /* 0: nothing to send */
    struct mcp_transfer_phase phases[MCP_MAX_PHASES];
};
/* Collectives and shifts; no phases for other ops. */
void mcp_transfer_of(const struct mcp_pricing *pricing, const struct mcp_op *op,
                     struct mcp_transfer *out);
double mcp_transfer_sum(const struct mcp_transfer *transfer);

/* bytes: as for mcp_collective_seconds(); of latency and ramp it pays `latency_share`. */
struct mcp_payload {
    double bytes, latency_share;
};
/* By the stack's algorithm (price_collective.c). */
void mcp_collective_of(const struct mcp_pricing *pricing, enum mcp_function function, unsigned axes,
                       const struct mcp_payload *payload, struct mcp_transfer *out);
/* One step of a ring: its slowest hop. */
void mcp_shift_of(const struct mcp_pricing *pricing, unsigned axes, double bytes,
                  struct mcp_transfer *out);

#endif
