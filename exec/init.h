/* exec/init.h: new weights: functions of a seed and of what a weight is, never of the layout.
 *
 * Element x of a part's whole tensor (step/weights.h) in layer l begins as
 *     normal, residual   std x normal(key(seed, name of the part, l, expert), x)
 *     norm               ones, or zeros in rows of biases
 *     zero               0
 * normal(): Box and Muller (1958) on the two halves of a 64-bit counter-based hash
 * (splitmix64, Steele, Lea and Flood 2014). Every layout of a model, and any restart, so
 * begins with the same bits. The twin of a tied table is layer 0's "embedding". */
#ifndef MCP_EXEC_INIT_H
#define MCP_EXEC_INIT_H

#include "core/mesh.h"
#include "exec/interpret.h"
#include "step/weights.h"

/* Names a tensor's stream of numbers; its x-th standard normal one. */
uint64_t mcp_init_key(uint64_t seed, const char *name, int layer, int expert);
float mcp_init_normal(uint64_t key, int64_t x);

/* Where one flat buffer of a layer lies in a rank's memory, and what of it. */
struct mcp_flat_place {
    enum mcp_flat flat;
    int index;                      /* of the rank among those that hold or share it */
    int64_t elements;               /* of the flat buffer */
    int64_t first, count;           /* of it: this rank's shard, whose optimizer state it holds */
    int64_t held_first, held_count; /* ... the weights it holds between steps */
    char *weights;                  /* of held_first; in the backend's memory */
    unsigned char dtype;            /* of weights */
    unsigned char gradients_dtype;
    char *gradients;      /* of first, after a step; NULL: 1-bit Adam keeps none */
    char *state;          /* fp32: master if has_master, first, second moments */
    int64_t state_stride; /* elements from one of them to the next */
    bool has_master;
};
/* Those of a layer that the rank runs, at most MCP_NUM_FLATS; returns how many. */
int mcp_flat_places(const struct mcp_interpreter *interpreter, const struct mcp_rank *rank,
                    int layer, struct mcp_flat_place places[MCP_NUM_FLATS]);

/* Does this rank save the place, and count it in sums over ranks? Of those that hold all of it
 * the first does, of a shard its owner. */
bool mcp_answers_for_place(const struct mcp_flat_place *place);

/* First values of a flat buffer of a layer, as `rank` has it. out[its elements]. */
void mcp_init_flat(const struct mcp_rank *rank, int layer, const struct mcp_layer_type *type,
                   enum mcp_flat flat, uint64_t seed, float *out);

/* Gives all weights and optimizer states of a rank their first values. `scratch` holds one
 * layer's at a time. */
void mcp_init_rank(struct mcp_arena *scratch, const struct mcp_interpreter *interpreter,
                   const struct mcp_rank *rank, const struct mcp_backend_calls *calls,
                   struct mcp_backend *backend, uint64_t seed);

#endif
