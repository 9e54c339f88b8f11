/* step/builder.h: how layer builders write ops and buffers. Private to step/.
 *
 * A builder fills one layer type. Values are declared once: a saved value has a
 * frame buffer that backward reads and a block twin that forward writes instead
 * where recompute drops it. Ops are emitted into the block under construction;
 * waits, the recompute block and the split backward are derived from operands. */
#ifndef MCP_STEP_BUILDER_H
#define MCP_STEP_BUILDER_H

#include "core/arena.h"
#include "step/layer.h"
#include "step/program.h"

#include <stdbool.h>
#include <stdint.h>

#define MCP_MAX_TYPE_WEIGHTS 48

/* An operand in a call; all-zero means "none". */
struct mcp_ref {
    bool set;
    struct mcp_operand operand;
};

/* A value of the layer: where forward and backward find it. */
struct mcp_value {
    struct mcp_ref frame; /* not set for scratch */
    struct mcp_ref block;
    bool kept; /* forward writes the frame itself */
};

struct mcp_builder {
    struct mcp_arena *arena;
    const struct mcp_question *question;
    const struct mcp_plan *plan;
    const struct mcp_model *model;
    const struct mcp_layer_kind *kind; /* NULL for the ends */
    const struct mcp_layer_spec *spec;
    struct mcp_layer_type *type;
    struct mcp_buffer buffers[MCP_NUM_SPACES][MCP_MAX_TYPE_BUFFERS];
    /* of frame f: its block twin, and whether forward keeps it */
    unsigned short twin[MCP_MAX_TYPE_BUFFERS];
    bool kept[MCP_MAX_TYPE_BUFFERS];
    int64_t columns[MCP_MAX_TYPE_BUFFERS]; /* ... and of activations, the row's length; else 0 */
    struct mcp_weight weights[MCP_MAX_TYPE_WEIGHTS];
    struct mcp_op *ops; /* [max_ops] of the block under construction */
    int max_ops;
    int num_ops;
    bool in_forward;
    /* shapes every layer needs */
    int64_t hidden, tokens, sharded_tokens; /* h, T, Ts */
    int64_t sequence, sequence_local;       /* s, s / c */
    enum mcp_dtype activation, matmul;      /* dtypes */
    enum mcp_dtype weight;                  /* ... as the layer's weights are kept */
    unsigned dropped; /* modules that recompute runs again (enum mcp_recompute_module) */
    bool drop_all;    /* full recompute */
    bool fused_attention;
    int first_norm;   /* weight part of the layer's first norm, 0: none yet */
    bool shared_head; /* the head's weights live in rank space: tied, or read by MTP too */
};

/* One op to emit; unset fields mean none, compute stream, activation dtype. */
struct mcp_call {
    enum mcp_function function;
    enum mcp_stream stream;
    enum mcp_dtype dtype;
    bool has_dtype;
    unsigned group;
    int delta;
    int weight; /* part + 1; 0: none */
    enum mcp_hiding hiding;
    struct mcp_ref reads[MCP_MAX_READS];
    struct mcp_ref writes[MCP_MAX_WRITES];
    int64_t dims[MCP_MAX_DIMS];
};
void mcp_emit(struct mcp_builder *b, struct mcp_call call);

/* Values. `module` is the recompute module that drops it (0: only full does). */
struct mcp_value mcp_saved(struct mcp_builder *b, const char *name, double bytes,
                           enum mcp_dtype dtype, unsigned module);
struct mcp_value mcp_scratch(struct mcp_builder *b, const char *name, double bytes,
                             enum mcp_dtype dtype);
/* Token ids of a microbatch: kept whatever recompute drops. mcp_load_ids() fills it. */
struct mcp_value mcp_saved_ids(struct mcp_builder *b, const char *name);
/* Of the tokens `ahead` of each position: 0 what is read, 1 what is to be predicted. */
void mcp_load_ids(struct mcp_builder *b, struct mcp_value ids, int ahead);
struct mcp_ref mcp_at(const struct mcp_builder *b, struct mcp_value value);
/* [rows, columns] activations; and those kept only to be read by a weight
 * gradient, which 8 bit recipes keep quantised. */
struct mcp_value mcp_saved_activation(struct mcp_builder *b, const char *name, int64_t rows,
                                      int64_t columns, unsigned module);
struct mcp_value mcp_saved_input(struct mcp_builder *b, const char *name, int64_t rows,
                                 int64_t columns, unsigned module);
struct mcp_ref mcp_scratch_activation(struct mcp_builder *b, const char *name, int64_t rows,
                                      int64_t columns);

/* One element-wise op over rows x columns; unset operands are skipped. */
void mcp_map(struct mcp_builder *b, enum mcp_function function, int64_t rows, int64_t columns,
             const struct mcp_ref reads[3], const struct mcp_ref writes[2]);

/* Fixed places. */
struct mcp_ref mcp_x(int layer_offset);
struct mcp_ref mcp_dx(int layer_offset);
struct mcp_ref mcp_layer_buffer(int index);
struct mcp_ref mcp_rank_buffer(int index);

/* Declares a weight part; returns part + 1 for mcp_call.weight. */
int mcp_weight_part(struct mcp_builder *b, const char *name, int64_t rows, int64_t columns,
                    bool replicated);
int mcp_expert_weight_part(struct mcp_builder *b, const char *name, int64_t rows, int64_t columns,
                           int copies);
int mcp_bias_part(struct mcp_builder *b, const char *name, int64_t rows, bool replicated);
/* The declared part, to say how it is cut and begins. */
struct mcp_weight *mcp_part(struct mcp_builder *b, int part);
/* Where weights, and gradients, of a part are; not set for part 0. */
struct mcp_ref mcp_weights_of(const struct mcp_builder *b, int part);
struct mcp_ref mcp_gradients_of(const struct mcp_builder *b, int part);

/* The weight part of `count` norms over `columns` numbers, replicated; 0: no weights. */
int mcp_norm_part(struct mcp_builder *b, const char *name, int count, int64_t columns);
/* A norm over `columns` with weight `part` (0: none); backward adds to the residual gradient
 * when `residual` is set. */
void mcp_norm_forward(struct mcp_builder *b, int part, int64_t rows, int64_t columns,
                      struct mcp_ref x, struct mcp_ref y);
struct mcp_norm_gradient {
    int part;
    int64_t rows, columns;
    struct mcp_ref dy, x, residual, dx;
};
void mcp_norm_backward(struct mcp_builder *b, const struct mcp_norm_gradient *norm);

/* A linear layer y[M,N] = x[M,K] w[N,K]^T; groups > 1 for local experts. */
struct mcp_linear {
    int weight; /* part + 1 */
    int64_t m, n, k;
    int64_t groups;
    bool full_precision;  /* stays 16 bit under 8 and 4 bit recipes */
    int64_t first_row;    /* of the part: where several products share it */
    struct mcp_ref sizes; /* of local experts: rows that are there at run time */
};
/* One group of part `weight`, in the dtype of products. */
struct mcp_linear mcp_linear_of(int weight, int64_t m, int64_t n, int64_t k);
void mcp_linear_forward(struct mcp_builder *b, const struct mcp_linear *linear, struct mcp_ref x,
                        struct mcp_ref y);
/* Products that do what comes after them as they store (the stack's fused_epilogues): y = x w^T +
 * bias; and, where `active` is set, active = GELU by tanh of y. `bias`: a part, 0 for none. */
bool mcp_fuses_epilogues(const struct mcp_builder *b);
void mcp_linear_epilogue(struct mcp_builder *b, const struct mcp_linear *linear, int bias,
                         struct mcp_ref x, const struct mcp_ref out[2]);
void mcp_linear_input_gradient(struct mcp_builder *b, const struct mcp_linear *linear,
                               struct mcp_ref dy, struct mcp_ref dx);
void mcp_linear_weight_gradient(struct mcp_builder *b, const struct mcp_linear *linear,
                                struct mcp_ref x, struct mcp_ref dy);

/* Tensor-parallel joints around linear layers. gather: SP's all-gather, or the
 * value itself when there is nothing to do; reduce: reduce-scatter under SP,
 * all-reduce without, or nothing. Return what the next op reads. */
struct mcp_ref mcp_tensor_gather(struct mcp_builder *b, const char *name, struct mcp_ref shard,
                                 enum mcp_hiding hiding);
struct mcp_ref mcp_tensor_reduce(struct mcp_builder *b, const char *name, struct mcp_ref partial,
                                 enum mcp_hiding hiding);

/* Bytes of rows x columns elements. */
double mcp_bytes_of(int64_t rows, int64_t columns, enum mcp_dtype dtype);

/* Blocks. */
void mcp_begin_block(struct mcp_builder *b, bool forward);
void mcp_end_block(struct mcp_builder *b, enum mcp_block_role role);
/* After forward and backward exist: the ops that bring back what backward reads
 * and forward did not keep. */
void mcp_derive_recompute(struct mcp_builder *b);
/* backward -> backward_input and backward_weight, besides it. */
void mcp_derive_split(struct mcp_builder *b);
/* Last: frames that forward keeps of the layer's activations are quantised when forward is
 * done with them, and dequantised where another block first reads them. */
void mcp_derive_quantised(struct mcp_builder *b);
/* After all of these: 8 bit products read copies that casts of their own leave. */
void mcp_derive_casts(struct mcp_builder *b);
/* Fills waits of a block's ops from their operands. */
void mcp_derive_waits(struct mcp_op *ops, int num_ops);

/* The parts of layers: step/layer_*.c. */
void mcp_build_decoder(struct mcp_builder *b);
void mcp_build_embedding(struct mcp_builder *b);
void mcp_build_head(struct mcp_builder *b);
void mcp_build_step(struct mcp_builder *b);
/* Facts of the finished type. */
void mcp_facts_fill(const struct mcp_builder *b);
/* Rows of the vocabulary's table on one tensor rank, padded. */
int64_t mcp_local_vocabulary(const struct mcp_model *model, const struct mcp_plan *plan);
/* Tied weights with both ends on one rank: one table in rank space serves both. */
bool mcp_embedding_is_head(const struct mcp_builder *b);

/* Joins of a half with the residual stream. The mask exists under dropout; norms of
 * the branch where the model has them. */
struct mcp_residual {
    struct mcp_value mask;
    struct mcp_value branch; /* [Ts, norms x h] before each of its norms */
    int norms, norm_weight;
    int bias; /* weight part of the branch's bias, added once after its reduction; 0: none */
};
void mcp_residual_declare(struct mcp_builder *b, struct mcp_residual *residual, const char *name,
                          int norms);
void mcp_residual_forward(struct mcp_builder *b, const struct mcp_residual *residual,
                          struct mcp_ref branch, struct mcp_ref input, struct mcp_ref output);
/* Returns the gradient of the branch. */
struct mcp_ref mcp_residual_backward(struct mcp_builder *b, const struct mcp_residual *residual,
                                     struct mcp_ref d_output);

/* An attention or MLP half: forward reads `input` and writes `output`. */
struct mcp_half {
    struct mcp_ref input, output;     /* residual stream */
    struct mcp_ref d_output, d_input; /* its gradients */
};
/* Its first op's gradient: that of the norm, and of the residual beside the half. */
void mcp_half_norm_backward(struct mcp_builder *b, const struct mcp_half *half, int part,
                            struct mcp_ref d_norm);
struct mcp_attention_values;
struct mcp_attention_values *mcp_attention_declare(struct mcp_builder *b);
void mcp_attention_forward(struct mcp_builder *b, struct mcp_attention_values *v,
                           const struct mcp_half *half);
void mcp_attention_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                            const struct mcp_half *half);
/* The same for layers that keep a state: step/layer_state.c. */
struct mcp_state_values;
struct mcp_state_values *mcp_state_declare(struct mcp_builder *b);
void mcp_state_forward(struct mcp_builder *b, struct mcp_state_values *v,
                       const struct mcp_half *half);
void mcp_state_backward(struct mcp_builder *b, struct mcp_state_values *v,
                        const struct mcp_half *half);
/* The indexer of sparse attention: step/layer_index.c. It reads `x`, and `q` for its
 * queries; backward adds to the gradients of both. */
struct mcp_index_values;
struct mcp_index_values *mcp_index_declare(struct mcp_builder *b);
void mcp_index_forward(struct mcp_builder *b, struct mcp_index_values *v, struct mcp_ref x,
                       struct mcp_ref q);
void mcp_index_backward(struct mcp_builder *b, struct mcp_index_values *v,
                        const struct mcp_ref in[2], const struct mcp_ref out[2]);
struct mcp_mlp_values;
struct mcp_mlp_values *mcp_mlp_declare(struct mcp_builder *b);
void mcp_mlp_forward(struct mcp_builder *b, struct mcp_mlp_values *v, const struct mcp_half *half);
void mcp_mlp_backward(struct mcp_builder *b, struct mcp_mlp_values *v, const struct mcp_half *half);
struct mcp_head_values;
struct mcp_head_values *mcp_head_declare(struct mcp_builder *b, bool own_weights);
void mcp_head_forward(struct mcp_builder *b, struct mcp_head_values *v, struct mcp_ref input);
void mcp_head_backward(struct mcp_builder *b, struct mcp_head_values *v, struct mcp_ref input,
                       struct mcp_ref d_input);

/* Data-parallel blocks and pipeline messages, from the declared weights. */
void mcp_build_data_blocks(struct mcp_builder *b);
void mcp_build_message_blocks(struct mcp_builder *b);

#endif
