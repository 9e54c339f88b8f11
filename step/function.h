/* step/function.h: the vocabulary of ops: what each function is called, what its
 * dimensions mean, and how much it reads and writes.
 *
 * dims by code (unused ones are 0)
 *   matmul      M, N, K, groups, first row of the weight part      C[M,N] per group
 *   attention   batch x heads, pairs, head_dim, value_head_dim, queries, keys
 *               pairs = (query, key) pairs computed per head
 *   scan        batch x heads, tokens, state_size, head_dim, batch x groups, chunk_size
 *   map, reduce rows, columns; further ones by function, below
 *   collective  elements of the full-size buffer n (docs/COST_MODEL.md 4.1), bytes of the
 *               collective whose bucket it goes with (0: its own), first element, first of
 *               the shard where that is a buffer of its own, and elements of the whole
 *               where only this rank's own shard of it is reduced (ends)
 *               all_to_all_v: expected elements, 0, columns of a row; delta 1 to the
 *               experts, -1 back
 *   send, receive, shift   elements of the message
 *   host        step_scalars: 1: the norm is found, and nothing is clipped by it
 *
 * Further dimensions, which cost nothing:
 *   zero, adam, sum_squares   elements of a shard, 1, of the whole flat buffer, first element
 *                             of that in its buffer, first of its shard in buffers of
 *                             shards and of each moment (step/weights.h)
 *                             sum_squares: and then 1 where gradients are not reduced, each
 *                             rank's its own share of a sum: squares times their number
 *   momentum, adam_frozen     as adam
 *   add_error                 elements with padding, 1, first in the buffer of errors, first
 *                             of what is added in its buffer, elements of the range without
 *                             padding, ranks that share it (1: this one has all of it)
 *   compress_signs            the same, but dims[3]: the range's first variance in the state
 *   average_signs             elements of this rank, ranks
 *   decompress_signs          elements, 1, first moment in the state
 *   cast_rows, _columns, _both   rows, columns, 1 of gradients: to E5M2 (step/casts.h). Two passes:
 *                             the second knows the largest
 *   quantise, dequantise      rows, columns: blocks of MCP_QUANTISED_BLOCK of a row have a scale
 *   pack_heads, unpack_heads  tokens, columns, ranks, columns of the first band (0: one)
 *   matmul_nt_bias, matmul_nt_gelu   the part of the bias + 1 (0: none), which lies in the buffer
 *                             of the weights and is read from the same row on; _gelu writes what
 *                             it adds up, then GELU by tanh of that
 *   embedding_mixed_forward   tokens, columns; up to which step of the run what is looked up in
 *                             fp32 stays so, and from which on it is rounded as the rest is
 *   load_microbatch           tokens, 1, how many tokens ahead
 *
 * What operands are, beside their order: a buffer of I32 that products and activations of
 * experts read holds rows by expert (exec/backend.h: all_to_all_v); an op with a weight
 * part reads it last of its reads but those, and adds to its gradients last of its writes.
 *
 * FLOPs, bytes and seconds are functions of an op, never fields of it. */
#ifndef MCP_STEP_FUNCTION_H
#define MCP_STEP_FUNCTION_H

enum mcp_code {
    MCP_MATMUL,
    MCP_ATTENTION,
    MCP_SCAN,
    MCP_MAP,
    MCP_REDUCTION,
    MCP_COLLECTIVE,
    MCP_SEND,
    MCP_RECEIVE,
    MCP_SHIFT,
    MCP_HOST,
    MCP_NUM_CODES
};
extern const char *const mcp_code_names[MCP_NUM_CODES];

/* X(enumerator, "name", code, elements moved per element of rows x columns,
 *   further bytes moved per element, kernel launches; transfers' start-up is latency) */
#define MCP_FUNCTIONS(X)                                                                           \
    X(MATMUL_NT, "matmul_nt", MATMUL, 0, 0, 1)                                                     \
    X(MATMUL_NT_BIAS, "matmul_nt_bias", MATMUL, 0, 0, 1)                                           \
    X(MATMUL_NT_GELU, "matmul_nt_gelu", MATMUL, 0, 0, 1)                                           \
    X(MATMUL_NN, "matmul_nn", MATMUL, 0, 0, 1)                                                     \
    X(MATMUL_TN_ACCUMULATE, "matmul_tn_accumulate", MATMUL, 0, 0, 1)                               \
    X(MATMUL_TN, "matmul_tn", MATMUL, 0, 0, 1)                                                     \
    X(GROUPED_NT, "grouped_nt", MATMUL, 0, 0, 1)                                                   \
    X(GROUPED_NN, "grouped_nn", MATMUL, 0, 0, 1)                                                   \
    X(GROUPED_TN_ACCUMULATE, "grouped_tn_accumulate", MATMUL, 0, 0, 1)                             \
    X(ATTENTION_FORWARD, "attention_forward", ATTENTION, 0, 0, 2)                                  \
    X(ATTENTION_BACKWARD, "attention_backward", ATTENTION, 0, 0, 4)                                \
    X(ATTENTION_STEP_FORWARD, "attention_zigzag_step", ATTENTION, 0, 0, 2)                         \
    X(ATTENTION_STEP_BACKWARD, "attention_zigzag_step_backward", ATTENTION, 0, 0, 4)               \
    X(ATTENTION_UNFUSED_FORWARD, "attention_unfused_forward", ATTENTION, 0, 0, 5)                  \
    X(ATTENTION_UNFUSED_BACKWARD, "attention_unfused_backward", ATTENTION, 0, 0, 8)                \
    X(SCAN_FORWARD, "scan_forward", SCAN, 0, 0, 5)                                                 \
    X(SCAN_BACKWARD, "scan_backward", SCAN, 0, 0, 10)                                              \
    X(DELTA_FORWARD, "delta_rule_forward", SCAN, 0, 0, 6)                                          \
    X(DELTA_BACKWARD, "delta_rule_backward", SCAN, 0, 0, 12)                                       \
    X(SELECTIVE_FORWARD, "selective_scan_forward", SCAN, 4, 0, 1)                                  \
    X(SELECTIVE_BACKWARD, "selective_scan_backward", SCAN, 7, 0, 1)                                \
    X(NORM_FORWARD, "norm_forward", MAP, 2, 0, 1)                                                  \
    X(NORM_BACKWARD, "norm_backward", MAP, 4, 0, 2)                                                \
    X(ROTARY_FORWARD, "rotary_forward", MAP, 2, 0, 2)                                              \
    X(ROTARY_BACKWARD, "rotary_backward", MAP, 2, 0, 2)                                            \
    X(BIAS_FORWARD, "bias_forward", MAP, 2, 0, 2)                                                  \
    X(BIAS_BACKWARD, "bias_backward", MAP, 2, 0, 2)                                                \
    X(RESIDUAL_FORWARD, "residual_forward", MAP, 3, 0, 2)                                          \
    X(RESIDUAL_DROPOUT_FORWARD, "residual_dropout_forward", MAP, 3, 1, 2)                          \
    X(RESIDUAL_BACKWARD, "residual_backward", MAP, 3, 0, 2)                                        \
    X(RESIDUAL_DROPOUT_BACKWARD, "residual_dropout_backward", MAP, 3, 1, 2)                        \
    X(GELU_FORWARD, "gelu_forward", MAP, 2, 0, 1)                                                  \
    X(GELU_BACKWARD, "gelu_backward", MAP, 3, 0, 1)                                                \
    X(SWIGLU_FORWARD, "swiglu_forward", MAP, 3, 0, 1)                                              \
    X(SWIGLU_BACKWARD, "swiglu_backward", MAP, 5, 0, 1)                                            \
    X(CONV_FORWARD, "conv_forward", MAP, 2, 0, 1)                                                  \
    X(CONV_BACKWARD, "conv_backward", MAP, 4, 0, 2)                                                \
    X(GATE_FORWARD, "gate_forward", MAP, 3, 0, 1)                                                  \
    X(GATE_BACKWARD, "gate_backward", MAP, 5, 0, 2)                                                \
    X(LATENT_FORWARD, "latent_forward", MAP, 2, 0, 8)                                              \
    X(LATENT_BACKWARD, "latent_backward", MAP, 4, 0, 8)                                            \
    X(CAST, "cast", MAP, 0, 4, 2)                                                                  \
    X(CAST_ROWS, "cast_rows", MAP, 0, 5, 2)                                                        \
    X(CAST_COLUMNS, "cast_columns", MAP, 0, 5, 2)                                                  \
    X(CAST_BOTH, "cast_both", MAP, 0, 6, 2)                                                        \
    X(QUANTISE, "quantise", MAP, 1, 1, 1)                                                          \
    X(DEQUANTISE, "dequantise", MAP, 1, 1, 1)                                                      \
    X(ROUTER_TOP_K, "router_top_k", MAP, 0, 8, 0)                                                  \
    X(ROUTER_TOP_K_BACKWARD, "router_top_k_backward", MAP, 0, 8, 0)                                \
    X(PERMUTE, "permute", MAP, 2, 0, 0)                                                            \
    X(PERMUTE_BACKWARD, "permute_backward", MAP, 2, 0, 0)                                          \
    X(UNPERMUTE, "unpermute", MAP, 2, 0, 0)                                                        \
    X(UNPERMUTE_BACKWARD, "unpermute_backward", MAP, 2, 0, 0)                                      \
    X(PACK_HEADS, "pack_heads", MAP, 2, 0, 0)                                                      \
    X(UNPACK_HEADS, "unpack_heads", MAP, 2, 0, 0)                                                  \
    X(ADD, "add", MAP, 3, 0, 1)                                                                    \
    X(MERGE, "attention_merge", MAP, 3, 0, 1)                                                      \
    X(EMBEDDING_FORWARD, "embedding_forward", MAP, 3, 0, 3)                                        \
    X(EMBEDDING_MIXED_FORWARD, "embedding_mixed_forward", MAP, 3, 2, 3)                            \
    X(EMBEDDING_BACKWARD, "embedding_backward", MAP, 5, 0, 3)                                      \
    X(CONCATENATE, "concatenate", MAP, 2, 0, 1)                                                    \
    X(COPY, "copy", MAP, 2, 0, 1)                                                                  \
    X(ZERO, "zero", MAP, 1, 0, 1)                                                                  \
    X(ADAM, "adam", MAP, 0, 36, 1)                                                                 \
    X(MOMENTUM, "momentum", MAP, 0, 12, 1)                                                         \
    X(ADD_ERROR, "add_error", MAP, 0, 12, 1)                                                       \
    X(COMPRESS_SIGNS, "compress_signs", MAP, 0, 20, 3)                                             \
    X(AVERAGE_SIGNS, "average_signs", MAP, 0, 1, 1)                                                \
    X(DECOMPRESS_SIGNS, "decompress_signs", MAP, 0, 4, 1)                                          \
    X(ADAM_FROZEN, "adam_frozen", MAP, 0, 20, 1)                                                   \
    X(LOSS_MAX, "loss_max", MAP, 2, 0, 1)                                                          \
    X(LOSS_SUMS, "loss_sums", MAP, 0, 0, 0)                                                        \
    X(LOSS_FORWARD, "loss_forward", REDUCTION, 0, 14, 4)                                           \
    X(LOSS_BACKWARD, "loss_backward", REDUCTION, 0, 8, 2)                                          \
    X(SUM_SQUARES, "sum_squares", REDUCTION, 1, 0, 1)                                              \
    X(ALL_REDUCE, "all_reduce", COLLECTIVE, 0, 0, 0)                                               \
    X(ALL_REDUCE_MAX, "all_reduce_max", COLLECTIVE, 0, 0, 0)                                       \
    X(REDUCE_SCATTER, "reduce_scatter", COLLECTIVE, 0, 0, 0)                                       \
    X(ALL_GATHER, "all_gather", COLLECTIVE, 0, 0, 0)                                               \
    X(ALL_TO_ALL, "all_to_all", COLLECTIVE, 0, 0, 0)                                               \
    X(ALL_TO_ALL_V, "all_to_all_v", COLLECTIVE, 0, 0, 0)                                           \
    X(SEND, "send", SEND, 0, 0, 0)                                                                 \
    X(RECEIVE, "receive", RECEIVE, 0, 0, 0)                                                        \
    X(SHIFT, "shift", SHIFT, 0, 0, 0)                                                              \
    X(LOAD_MICROBATCH, "load_microbatch", HOST, 0, 0, 0)                                           \
    X(EXPERT_COUNTS, "expert_counts", HOST, 0, 0, 0)                                               \
    X(CLEAR_SCALARS, "clear_scalars", HOST, 0, 0, 0)                                               \
    X(STEP_SCALARS, "step_scalars", HOST, 0, 0, 0)

#define MCP_FUNCTION_ENUM(id, name, code, elements, bytes, launches) MCP_FN_##id,
enum mcp_function { MCP_FUNCTIONS(MCP_FUNCTION_ENUM) MCP_NUM_FUNCTIONS };

struct mcp_function_traits {
    const char *name;
    unsigned char code;
    unsigned char elements_moved; /* maps and reductions, per element */
    unsigned char bytes_moved;    /* ... and these bytes whatever the dtype */
    unsigned char launches;
};
extern const struct mcp_function_traits mcp_functions[MCP_NUM_FUNCTIONS];

#endif
