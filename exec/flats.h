/* exec/flats.h: flat buffers of weights, gradients and optimizer state as one rank's update sees
 * them, for kernels of any backend: which elements are its own, where they lie, what decays.
 * Layout: step/weights.h; dimensions: step/function.h. */
#ifndef MCP_EXEC_FLATS_H
#define MCP_EXEC_FLATS_H

#include "exec/views.h"

/* A step's scalars, fp32, 0 beyond these: what gradients are multiplied with (1 / loss scale,
 * clipping; 0 when the step is skipped), and whether it is. */
enum { MCP_SCALAR_FACTOR, MCP_SCALAR_SKIPPED };

/* The flat buffer an op works on, and what of it this rank owns. */
struct mcp_share {
    enum mcp_flat kind;
    int64_t elements, first;       /* of the whole, in its buffer */
    int64_t shard, own_first, own; /* elements of a shard; this rank's, of the whole */
    int64_t shard_first;           /* in buffers of shards */
    int member;                    /* of the ranks that share the flat buffer */
    bool sharded;
};
/* `at`: the gradients or the weights. */
struct mcp_share mcp_share_of(const struct mcp_launch *launch, struct mcp_operand at);
/* The rank's own elements in a buffer of the whole, or of shards. */
struct mcp_view mcp_own_view(const struct mcp_share *share, struct mcp_operand at,
                             struct mcp_view view);
/* What MCP_FN_ZERO clears: dims[0] x dims[1] elements from here on. */
struct mcp_view mcp_cleared_view(const struct mcp_launch *launch);
/* Ranks that reduce the op's gradients, reads[0], or would. */
int mcp_reducing_ranks(const struct mcp_launch *launch);

/* What of the gradients this rank alone counts in their norm: its shard; or the whole, on the
 * first rank that has it, on each where all have their own; replicated weights on tensor rank
 * 0; a tied table where the embedding is. */
struct mcp_squares {
    struct mcp_view view; /* its first `elements` count */
    int64_t elements;
    double factor; /* of their squares */
};
struct mcp_squares mcp_squares_of(const struct mcp_launch *launch);

/* AdamW of this rank's own elements: adam, adam_frozen. */
struct mcp_update {
    struct mcp_view weights;
    float *master, *first, *second; /* state; master NULL: the weights are it */
    float beta1, beta2, epsilon, rate;
    float correction1, correction2; /* 1 / (1 - beta^t) */
};
struct mcp_update mcp_update_of(const struct mcp_launch *launch, const struct mcp_share *share);
/* Where the first moments that MCP_FN_MOMENTUM moves lie: share->elements of them. */
float *mcp_moment_of(const struct mcp_launch *launch, const struct mcp_share *share);

/* Elements of one part, of the rank's own, that decay alike; weight by weight. */
struct mcp_range {
    int64_t first, last;
    float decay;
    int part, copy; /* the next one to look at; begin with a struct of zeros */
};
bool mcp_next_range(const struct mcp_launch *launch, const struct mcp_share *share,
                    struct mcp_range *range);

/* What an op compresses to signs: all of a range, or the share of it that this rank averages.
 * `error`: the operand of errors. */
struct mcp_span {
    int64_t elements; /* with padding */
    int64_t real;     /* without */
    int64_t first;    /* of the range */
};
struct mcp_span mcp_span_of(const struct mcp_launch *launch, struct mcp_operand error);

#endif
