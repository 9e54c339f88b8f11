/* step/layer_data.h: the parts of a layer's weights that are reduced over one group.
 * Private to step/. */
#ifndef MCP_STEP_LAYER_DATA_H
#define MCP_STEP_LAYER_DATA_H

#include "step/builder.h"

struct part { /* one flat buffer of a layer's weights: step/weights.h */
    int64_t parameters;
    bool expert;
    bool in_rank;        /* weights shared with another layer */
    int64_t first;       /* element, in buffers of the whole */
    int64_t shard_first; /* ... in those of shards, and of moments */
};
enum { MCP_MAX_PARTS = 4 };

/* Of two layer buffers that stand side by side, the part's. */
int mcp_part_index(const struct part *part, int dense_index);
struct mcp_ref mcp_part_buffer(const struct part *part, int dense_index);

/* 1-bit Adam (step/layer_one_bit.c): what a part keeps beside moments and master, in both
 * phases; and its update once the variance is frozen:
 *
 *   momentum       m = b1 m + (1 - b1) k g, of this rank's own gradient: gradients are shares
 *                  of a sum, and what is sent are shares of a mean
 *   add_error      u = m + worker error
 *   compress_signs q = (||u|| / sqrt(n)) sign(u), worker error = u - q; sign(0) = +1
 *   all_to_all     the signs, n / 8 bytes: each of k ranks averages n / k elements
 *   all_gather     the scales, 4 k bytes
 *   average_signs, add_error, compress_signs, all_gather twice: the same with the averages
 *   decompress_signs  m = what all averages say
 *   adam_frozen    weights by m and the variance as it is
 *
 * Sent by a rank: 2 (k - 1) / k n / 8 + 8 (k - 1) bytes, 1/32 of an all-reduce in fp32
 * and the scales. n is padded so that each rank averages whole bytes of signs. Tang et al. 2021
 * (arXiv 2102.02888), Algorithm 1; DeepSpeed's runtime/comm. What never had a gradient (rows
 * of no token, positions beyond the sequence) would drift, since signs know no zero: an element
 * whose variance is 0 is masked, as padding is: n does not count it, its error stays 0 and
 * its weight what it is.
 *
 * A step whose gradients are not finite on some rank, by the norm (core/job.h), moves neither
 * momenta nor errors nor weights on any: what is sent then says nothing. */
void mcp_one_bit_size(struct mcp_builder *b, const struct part *part);
void mcp_one_bit_update(struct mcp_builder *b, const struct part *part);
/* Elements of signs that are sent for `parameters` over `ranks`: a multiple of 8 ranks. */
int64_t mcp_one_bit_elements(int64_t parameters, int ranks);

#endif
