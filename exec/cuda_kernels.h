/* exec/cuda_kernels.h: what a GPU computes but products: one launcher for each function of a
 * program, in plain C.
 *
 * A launcher queues kernels and returns: at once, allocating nothing, waiting for nothing.
 * What it could not queue shows in the runtime's last error, which the caller asks for. All
 * pointers are to device memory but those said to be the host's; structs are read before the
 * return. Meaning, operands and layouts are those of exec/cpu_kernels*.c.
 *
 * Arithmetic is fp32 whatever the storage; operands of one op may differ in format. Sums are
 * taken in an order that the shapes alone decide, without atomics: equal inputs give equal
 * bits on every device. Rows and columns may be multiples of nothing; 16-byte aligned operands
 * whose columns are multiples of 8, or of 4 where one of them is fp32, move so many at a time.
 *
 * "Moves" says what an op must read and write at least, in elements of its operands' formats
 * unless bytes are said: that over the time is its share of the memory's bandwidth. */
#ifndef MCP_EXEC_CUDA_KERNELS_H
#define MCP_EXEC_CUDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum mcp_cuda_format { MCP_CUDA_F32, MCP_CUDA_BF16, MCP_CUDA_F16 };

/* An operand, from its first element on. Kernels write only those that outputs are said to be. */
struct mcp_cuda_array {
    void *data; /* NULL: none, where that is allowed */
    enum mcp_cuda_format format;
};

/* Where an op is queued. Ops of one queue may share the scratch memory, those of two may not. */
struct mcp_cuda_queue {
    void *stream;  /* cudaStream_t */
    void *scratch; /* MCP_CUDA_SCRATCH_BYTES, 256-byte aligned */
};
#define MCP_CUDA_SCRATCH_BYTES (INT64_C(16) << 20)

/* --- element by element: cuda_kernels_map.cu --- */

/* to = value. Moves 1. */
void mcp_cuda_fill(struct mcp_cuda_array to, int64_t elements, float value,
                   const struct mcp_cuda_queue *queue);
/* to = factor x from; in place too; a cast where formats differ. With factor 1 the copy is
 * exact. Moves 2. */
void mcp_cuda_scale(struct mcp_cuda_array from, struct mcp_cuda_array to, int64_t elements,
                    float factor, const struct mcp_cuda_queue *queue);
/* sum = x + y; in place too. Moves 3. */
void mcp_cuda_add(struct mcp_cuda_array x, struct mcp_cuda_array y, struct mcp_cuda_array sum,
                  int64_t elements, const struct mcp_cuda_queue *queue);

/* `columns` of each row of one matrix into another. Moves 2. */
struct mcp_cuda_columns {
    struct mcp_cuda_array from, to;
    int64_t rows, columns;
    int64_t from_stride, to_stride; /* elements from row to row */
};
void mcp_cuda_copy_columns(const struct mcp_cuda_columns *op, const struct mcp_cuda_queue *queue);

/* gradient[columns] += sums over rows of from[rows][from_stride]; `to` is the gradient.
 * Moves 1 (and 2 x columns). */
void mcp_cuda_add_column_sums(const struct mcp_cuda_columns *op,
                              const struct mcp_cuda_queue *queue);

/* output = branch + input + bias, [rows][columns]. Moves 3. */
struct mcp_cuda_residual {
    struct mcp_cuda_array branch, input, bias /* or none */, output;
    int64_t rows, columns;
};
void mcp_cuda_residual(const struct mcp_cuda_residual *op, const struct mcp_cuda_queue *queue);

enum mcp_cuda_curve {
    MCP_CUDA_SILU,
    MCP_CUDA_GELU_TANH,
    MCP_CUDA_GELU, /* by erf */
    MCP_CUDA_RELU
};

/* active = curve(up + bias) x (other + bias of other), [rows][width]; without `other` the curve
 * alone. Moves 2, with `other` 3. */
struct mcp_cuda_activation {
    struct mcp_cuda_array up;
    struct mcp_cuda_array other;      /* or none */
    struct mcp_cuda_array bias;       /* or none */
    struct mcp_cuda_array other_bias; /* or none */
    struct mcp_cuda_array active;     /* forward: output */
    struct mcp_cuda_array d_active;   /* backward: input */
    struct mcp_cuda_array d_up;       /* backward: output, [rows][width], then as wide d_other */
    enum mcp_cuda_curve curve;
    int64_t rows, width;
    int64_t up_stride, other_stride; /* elements from row to row */
};
void mcp_cuda_activation(const struct mcp_cuda_activation *op, const struct mcp_cuda_queue *queue);
/* Biases' gradients: mcp_cuda_add_column_sums() of d_up. Moves 3, with `other` 5. */
void mcp_cuda_activation_backward(const struct mcp_cuda_activation *op,
                                  const struct mcp_cuda_queue *queue);

/* --- norms: cuda_kernels_norm.cu --- */

/* LayerNorm (`centers`) or RMSNorm of `segments` x `columns` numbers of each row, one beside the
 * other from x on (heads; else 1 segment), each with the same weights. What else is in a row is
 * not touched: mcp_cuda_copy_columns(). Forward moves 2, backward 3, with a residual 4. */
struct mcp_cuda_norm {
    struct mcp_cuda_array x;
    struct mcp_cuda_array weight;          /* [columns], or none */
    struct mcp_cuda_array bias;            /* [columns], or none */
    struct mcp_cuda_array y;               /* forward: output */
    struct mcp_cuda_array dy;              /* backward: input */
    struct mcp_cuda_array residual;        /* backward: added to dx, laid out as x; or none */
    struct mcp_cuda_array dx;              /* backward: output; may be dy or the residual */
    struct mcp_cuda_array weight_gradient; /* backward: added to; with weight */
    struct mcp_cuda_array bias_gradient;   /* backward: added to; with bias */
    int64_t rows, segments, columns;
    int64_t stride; /* elements from row to row of every matrix */
    float epsilon;
    int centers;
};
void mcp_cuda_norm(const struct mcp_cuda_norm *op, const struct mcp_cuda_queue *queue);
void mcp_cuda_norm_backward(const struct mcp_cuda_norm *op, const struct mcp_cuda_queue *queue);

/* --- heads and positions: cuda_kernels_layout.cu --- */

/* Where tokens lie in a sequence (step/facts.h): rows are those of context ranks [first_rank,
 * first_rank + num_ranks) of all_ranks, one rank's after the other's and rank_rows apart; of each
 * the first sequence_local are its first sequence's, then the next sequence's. */
struct mcp_cuda_tokens {
    int first_rank, num_ranks, all_ranks;
    int zigzag; /* a rank holds pieces r and 2 all_ranks - 1 - r, else piece r */
    int64_t sequence_local;
    int64_t rank_rows;
};

/* Column i of a head turns with column i + count by position x frequency[i]. */
enum { MCP_CUDA_MAX_TURNS = 128 };
struct mcp_cuda_turns {
    int count; /* 0: none turns */
    float frequency[MCP_CUDA_MAX_TURNS];
};

/* whole [rows][heads x head_dim, kv_heads x head_dim, kv_heads x value_head_dim] to query
 * [rows][heads][head_dim] and kv [rows][kv_heads x head_dim, kv_heads x value_head_dim], bias
 * added, heads of queries and keys turned. Moves 2. */
struct mcp_cuda_heads {
    struct mcp_cuda_array whole, query, kv;
    struct mcp_cuda_array bias; /* of a row of whole, or none; split alone */
    int64_t rows, heads, kv_heads, head_dim, value_head_dim;
    struct mcp_cuda_tokens tokens; /* of one rank */
    struct mcp_cuda_turns turns;
};
void mcp_cuda_split_heads(const struct mcp_cuda_heads *op, const struct mcp_cuda_queue *queue);
/* The way back, turned back: from query and kv to whole. */
void mcp_cuda_join_heads(const struct mcp_cuda_heads *op, const struct mcp_cuda_queue *queue);

/* Tokens' columns [bands][ranks x share] to [ranks][tokens][bands][share] (`packs`) or back; of
 * two bands, the first band's columns wide and the rest. Formats are equal. Moves 2. */
struct mcp_cuda_exchange {
    struct mcp_cuda_array from, to;
    int64_t tokens, columns, ranks, first_band;
    int packs;
};
void mcp_cuda_exchange_heads(const struct mcp_cuda_exchange *op,
                             const struct mcp_cuda_queue *queue);

/* --- attention: cuda_kernels_attention.cu --- */

/* Softmax attention of `batch` sequences: a query at position p sees keys at p and before,
 * within the window or chunk. A ring's step has other tokens for keys than for queries; after
 * an exchange of tokens for heads both are of all ranks. Rows of queries and outputs
 * [heads][head_dim], [heads][value_head_dim]; of kv as in struct mcp_cuda_heads. Where all is
 * bf16, aligned, and heads are 64 or 128 wide, tensor cores work (cuda_kernels_flash*.cu): there
 * weights and gradients of scores are rounded to bf16 before they are multiplied. */
struct mcp_cuda_attention {
    struct mcp_cuda_array query, kv;
    struct mcp_cuda_array output; /* forward: output; rows that see no key are 0 */
    float *statistics;            /* [rows][heads] log-sum-exp; -infinity: saw no key */
    struct mcp_cuda_array d_output;
    struct mcp_cuda_array d_query, d_kv; /* backward: outputs */
    int64_t batch, heads, kv_heads, head_dim, value_head_dim;
    int64_t window, chunk; /* 0: none */
    float scale;
    int adds; /* backward: d_query is added to */
    struct mcp_cuda_tokens queries, keys;
};
/* Moves query, kv, output; computes 2 (head_dim + value_head_dim) FLOPs a pair and head. */
void mcp_cuda_attention(const struct mcp_cuda_attention *op, const struct mcp_cuda_queue *queue);
/* Moves query, kv, output, d_output, d_query, d_kv; 2.5 times the forward's FLOPs are needed. */
void mcp_cuda_attention_backward(const struct mcp_cuda_attention *op,
                                 const struct mcp_cuda_queue *queue);

/* (output, statistics) of the keys so far, and of new ones (part, part_statistics), become those
 * of both. Moves 3. */
struct mcp_cuda_merge {
    struct mcp_cuda_array part, output; /* [rows][heads][width] */
    const float *part_statistics;
    float *statistics;
    int64_t rows, heads, width;
};
void mcp_cuda_attention_merge(const struct mcp_cuda_merge *op, const struct mcp_cuda_queue *queue);

/* --- embedding and loss: cuda_kernels_ends.cu --- */

/* Rows of this rank's part of the vocabulary, [vocab_local] from first_id on. */
struct mcp_cuda_embedding {
    const int32_t *ids;              /* [tokens] */
    struct mcp_cuda_array table;     /* [vocab_local][columns]; backward: gradients, added to */
    struct mcp_cuda_array positions; /* [sequence][columns], the same; or none */
    struct mcp_cuda_array rows;      /* [tokens][columns]; backward: their gradients */
    int64_t tokens, columns;
    int64_t first_id, vocab_local;
    float rounding; /* of fp32 tables: how much of what 16 bits do to them is done first, 0 to 1 */
    struct mcp_cuda_tokens place; /* of one rank */
};
/* rows = table[id], 0 where another rank has it, + positions. Moves 2, with positions 3. */
void mcp_cuda_embedding(const struct mcp_cuda_embedding *op, const struct mcp_cuda_queue *queue);
/* Moves 3, with positions 5. */
void mcp_cuda_embedding_backward(const struct mcp_cuda_embedding *op,
                                 const struct mcp_cuda_queue *queue);

/* Cross-entropy over a vocabulary that ranks share. numbers, fp32 [3][tokens]: largest logit,
 * sum of exponentials beside it (by loss_max its logarithm, from 0), the target's logit. */
struct mcp_cuda_loss {
    struct mcp_cuda_array logits; /* [tokens][stride] */
    struct mcp_cuda_array bias;   /* loss_max adds it, in place; or none */
    const int32_t *targets;
    float *numbers;
    float *loss; /* loss_forward adds the tokens' losses to it */
    int64_t tokens, stride;
    int64_t columns; /* that stand for tokens; what follows is padding */
    int64_t first_id, vocab_local;
};
/* numbers of this rank. Moves 1, with a bias 2. */
void mcp_cuda_loss_max(const struct mcp_cuda_loss *op, const struct mcp_cuda_queue *queue);
/* numbers[0] has become the largest of all ranks: sums beside it. Moves 12 bytes a token. */
void mcp_cuda_loss_sums(const struct mcp_cuda_loss *op, const struct mcp_cuda_queue *queue);
/* numbers are those of all ranks: the loss; logits become softmax less 1 at the target, and 0 in
 * padding. Scaled to a mean by mcp_cuda_scale(). Moves 2. */
void mcp_cuda_loss_forward(const struct mcp_cuda_loss *op, const struct mcp_cuda_queue *queue);

/* --- once a step: cuda_kernels_update.cu --- */

/* *sum += factor x the sum of squares. Moves 1. */
void mcp_cuda_add_sum_squares(struct mcp_cuda_array from, int64_t elements, double factor,
                              float *sum, const struct mcp_cuda_queue *queue);
/* Numbers as they lie by magnitude, those that are not finite left out: smallest, largest, count,
 * sum, sum of squares, then how many each bucket holds (struct mcp_histogram of exec/events.h,
 * which this is). histogram[MCP_CUDA_HISTOGRAM]. Moves 1. cuda_kernels_histogram.cu */
enum { MCP_CUDA_BUCKETS = 257, MCP_CUDA_HISTOGRAM = 5 + MCP_CUDA_BUCKETS };
void mcp_cuda_histogram(struct mcp_cuda_array from, int64_t elements, double *histogram,
                        const struct mcp_cuda_queue *queue);

/* moments[0] = sum, moments[1] = sum of squares, fp64. Moves 1. */
void mcp_cuda_moments(struct mcp_cuda_array from, int64_t elements, double *moments,
                      const struct mcp_cuda_queue *queue);

struct mcp_cuda_range { /* elements that decay alike */
    int64_t first, count;
    float decay;
};
/* AdamW over ranges of a flat buffer. scalars[0] multiplies gradients, and if scalars[1] > 0
 * nothing moves. Moves 36 bytes an element (gradients and weights of 2 bytes: 28). */
struct mcp_cuda_adam {
    struct mcp_cuda_array gradients; /* not of adam_frozen */
    struct mcp_cuda_array weights;   /* output */
    float *master;                   /* NULL: the weights are it */
    float *first, *second;           /* moments */
    const float *scalars;
    const struct mcp_cuda_range *ranges; /* the host's */
    int num_ranges;
    float beta1, beta2, epsilon, rate;
    float correction1, correction2; /* 1 / (1 - beta^t) */
};
void mcp_cuda_adam(const struct mcp_cuda_adam *op, const struct mcp_cuda_queue *queue);
/* By the first moment as it is; what has no variance stays. Moves 20 bytes an element. */
void mcp_cuda_adam_frozen(const struct mcp_cuda_adam *op, const struct mcp_cuda_queue *queue);
/* weight_squares and update_squares of AdamW's last step, taken back from its state (weights or
 * master as `truth`), of elements [0, elements): sums[0], sums[1], fp64. Moves 12 bytes an
 * element. */
struct mcp_cuda_update_norms {
    const float *truth, *first, *second;
    double *sums;
    int64_t elements;
    double decay, epsilon, rate, correction1, correction2;
    int frozen; /* what has no variance did not move */
};
void mcp_cuda_update_norms(const struct mcp_cuda_update_norms *op,
                           const struct mcp_cuda_queue *queue);

/* --- 1-bit Adam: cuda_kernels_one_bit.cu; step/layer_data.h has the arithmetic --- */

/* moment = beta moment + (1 - beta) factor gradient, unless scalars[1] > 0. Moves 12 bytes. */
struct mcp_cuda_momentum {
    struct mcp_cuda_array gradients;
    float *moment;
    const float *scalars;
    int64_t elements;
    float beta, factor;
};
void mcp_cuda_momentum(const struct mcp_cuda_momentum *op, const struct mcp_cuda_queue *queue);

/* Of `elements` with padding the first `real` count. Bit i % 8 of byte i / 8 of the signs is 1
 * where element i is below 0. */
struct mcp_cuda_signs {
    const float *value;    /* add_error adds it */
    const float *variance; /* compress: elements with none have no sign's error */
    float *error;
    unsigned char *signs; /* compress: output, [elements / 8] */
    float *scale;         /* compress: output */
    const float *scalars; /* scalars[1] > 0: errors stay; signs and scale are 0 */
    int64_t elements, real;
};
/* error += value. Moves 12 bytes. */
void mcp_cuda_add_error(const struct mcp_cuda_signs *op, const struct mcp_cuda_queue *queue);
/* scale, signs; error -= what they say. Moves 20 bytes. */
void mcp_cuda_compress_signs(const struct mcp_cuda_signs *op, const struct mcp_cuda_queue *queue);

/* signs [ranks][own / 8] and scales [ranks] of all ranks. */
struct mcp_cuda_votes {
    const unsigned char *signs;
    const float *scales;
    float *out;
    const float *scalars; /* decompress: scalars[1] > 0: out stays */
    int64_t own, ranks;
    int64_t elements; /* decompress: of all ranks, without padding */
};
/* out[own] = their mean, in the order of ranks. Moves ranks / 8 + 4 bytes. */
void mcp_cuda_average_signs(const struct mcp_cuda_votes *op, const struct mcp_cuda_queue *queue);
/* out[elements] = each rank's own elements, one rank after the other. Moves 4 bytes. */
void mcp_cuda_decompress_signs(const struct mcp_cuda_votes *op, const struct mcp_cuda_queue *queue);

/* --- saved activations of 8 bits: cuda_kernels_quantise.cu; step/quantised.h --- */

struct mcp_cuda_quantised {
    struct mcp_cuda_array whole; /* [rows][columns] */
    float *scales;               /* [rows][blocks] of 64 columns */
    signed char *bytes;          /* [rows][columns] */
    int64_t rows, columns;
};
/* Both move 1 and 1 byte. */
void mcp_cuda_quantise(const struct mcp_cuda_quantised *op, const struct mcp_cuda_queue *queue);
void mcp_cuda_dequantise(const struct mcp_cuda_quantised *op, const struct mcp_cuda_queue *queue);

/* --- operands of 8 bit products: cuda_kernels_cast.cu; step/casts.h --- */

struct mcp_cuda_cast {
    struct mcp_cuda_array from; /* [rows][columns], both multiples of 16; bf16 or fp16, aligned */
    void *rows, *columns;       /* casts, as it lies and transposed, 256-byte aligned; or none */
    int64_t num_rows, num_columns;
    int of_gradients; /* to E5M2, else to E4M3 */
};
/* Reads from twice: moves 2 and a byte for each cast. Of what has a number that is none, or
 * infinite, the scale and all bytes are NaN. */
void mcp_cuda_cast(const struct mcp_cuda_cast *op, const struct mcp_cuda_queue *queue);

/* --- experts: cuda_kernels_experts.cu --- */

/* values: fp32 [tokens][experts] probabilities, then [tokens][experts] shares of the chosen
 * experts, below 0 for all others. */
struct mcp_cuda_routing {
    float *values;
    int64_t tokens, experts, experts_per_token;
    int raw_top_k; /* 0: shares of a token's experts sum to 1 */
};
struct mcp_cuda_router {
    struct mcp_cuda_routing routing; /* forward: output */
    struct mcp_cuda_array logits;    /* [tokens][experts]; backward: output, their gradients */
    struct mcp_cuda_array bias;      /* [experts], or none; forward alone */
    struct mcp_cuda_array d_routing; /* backward: [tokens][experts], gradients of shares */
};
void mcp_cuda_router_top_k(const struct mcp_cuda_router *op, const struct mcp_cuda_queue *queue);
/* The bias's gradient: mcp_cuda_add_column_sums() of logits. */
void mcp_cuda_router_top_k_backward(const struct mcp_cuda_router *op,
                                    const struct mcp_cuda_queue *queue);
/* sizes[experts] = tokens of each. */
void mcp_cuda_expert_counts(const struct mcp_cuda_routing *routing, int32_t *sizes,
                            const struct mcp_cuda_queue *queue);

/* Tokens' rows [tokens][columns] and their copies sorted by expert, then by token. Needs fewer than
 * 2^20 experts: counts of tiles of tokens are in the scratch memory. */
struct mcp_cuda_permute {
    struct mcp_cuda_routing routing;
    struct mcp_cuda_array tokens; /* [tokens][columns] */
    struct mcp_cuda_array sorted; /* [tokens x experts_per_token][columns] */
    struct mcp_cuda_array d_sorted, d_routing;
    int64_t columns;
};
/* sorted = copies of tokens. */
void mcp_cuda_permute(const struct mcp_cuda_permute *op, const struct mcp_cuda_queue *queue);
/* tokens += sums of their sorted rows. */
void mcp_cuda_permute_backward(const struct mcp_cuda_permute *op,
                               const struct mcp_cuda_queue *queue);
/* tokens = sums of share x sorted rows. */
void mcp_cuda_unpermute(const struct mcp_cuda_permute *op, const struct mcp_cuda_queue *queue);
/* tokens are gradients: d_sorted = share x them, d_routing [tokens][experts] = sorted . them. */
void mcp_cuda_unpermute_backward(const struct mcp_cuda_permute *op,
                                 const struct mcp_cuda_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
