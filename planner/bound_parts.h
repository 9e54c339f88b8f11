/* planner/bound_parts.h: what the files of planner/bound*.c share. Private to them. */
#ifndef MCP_PLANNER_BOUND_PARTS_H
#define MCP_PLANNER_BOUND_PARTS_H

#include "planner/bound.h"

/* A transfer once a step, exposed: at least the part that is never hidden, and what
 * is more than the compute beside it. */
struct mcp_edge {
    double part, rest; /* rest: -INFINITY where it is not known */
};

static inline double mcp_edge_ns(const struct mcp_edge *edge)
{
    double most = edge->part > edge->rest ? edge->part : edge->rest;
    return most > 1 ? most - 1 : 0;
}

/* One microbatch up and down the pipeline, on the best of pools. */
struct mcp_chain {
    double forward_ns, backward_ns;
    double lead_ns; /* longest, of all stages but the last together */
};

static inline double mcp_floor_pair(const struct mcp_layer_floor *layer)
{
    return layer->forward_ns + layer->backward_ns;
}

static inline double mcp_floor_static(const struct mcp_layer_floor *layer)
{
    return layer->weights_bytes + layer->gradients_bytes + layer->optimizer_bytes;
}

/* Sets num_layers, num_kinds, layer_kind, kind_of and layers_of. */
void mcp_floor_number_kinds(const struct mcp_model *model, struct mcp_floor *out);
struct mcp_chain mcp_floor_chain(const struct mcp_floor *floor);
/* What stage s holds besides layers. */
struct mcp_layer_floor mcp_floor_ends(const struct mcp_floor *floor, int s);
/* mcp_bound_in_flight(), mcp_bound_in_flight_of(). */
int mcp_floor_in_flight(const struct mcp_floor *floor, int s);
int mcp_floor_in_flight_of(const struct mcp_floor *floor, int count, int chunk);
/* Nanoseconds up to stage s and down again besides its slots, at most what is sure. */
double mcp_floor_way(const struct mcp_floor *floor, int s);

/* Of a rank with virtual stages, besides its layers: the path through all its slots, and
 * the one that dwells there after the first microbatch came back. */
struct mcp_bases {
    double through_ns, dwell_ns;
};
struct mcp_bases mcp_floor_bases(const struct mcp_floor *floor, int s);

/* --- several kinds of layers, each stage one chunk: bound_kinds.c --- */

/* Can any split end its pipeline, and stage 0's edges, in time? INFINITY: can any fit? */
bool mcp_kinds_reach(const struct mcp_floor *floor, double time);
/* The same with virtual stages: bound_chunks.c. */
bool mcp_chunks_reach(const struct mcp_floor *floor, double time);

#endif
