/* step/layer.h: the ops and buffers of one layer under a plan: the only place
 * that knows what an embedding, attention, an expert or a head is.
 *
 * Shapes and traffic: reference tables are docs/COST_MODEL.md sections 2 and 3.
 * Notation there and here: b microbatch, s sequence, h hidden, t tensor,
 * c context, e expert degree; T = b s / c tokens of a rank, Ts = T / t under
 * sequence parallelism. */
#ifndef MCP_STEP_LAYER_H
#define MCP_STEP_LAYER_H

#include "core/arena.h"
#include "step/legal.h"
#include "step/program.h"

/* Layer kinds beyond the model's own. */
enum { MCP_KIND_EMBEDDING = -1, MCP_KIND_HEAD = -2, MCP_KIND_STEP = -3 };

struct mcp_layer_spec {
    int kind; /* index into model->kinds, or one of the three above */
    bool mtp; /* a decoder layer of an MTP module: projection, layer, head */
    enum mcp_recompute recompute;
    bool split_backward; /* backward_input and backward_weight besides backward */
    bool mirrored;       /* of a chunk that runs from the last rank to the first */
    bool forward_only;   /* for evaluation: nothing is kept, and nothing learnt */
};

bool mcp_layer_spec_equal(const struct mcp_layer_spec *a, const struct mcp_layer_spec *b);

/* Builds every block the plan's passes can ask for. The plan must be legal. */
void mcp_layer_build(struct mcp_arena *arena, const struct mcp_question *question,
                     const struct mcp_plan *plan, const struct mcp_layer_spec *spec,
                     struct mcp_layer_type *out);

/* The same for who builds many: with scratch room in a workshop, which is left as it was found. */
void mcp_layer_build_in(struct mcp_arena *workshop, struct mcp_arena *arena,
                        const struct mcp_question *question, const struct mcp_plan *plan,
                        const struct mcp_layer_spec *spec, struct mcp_layer_type *out);

/* For a type whose weights are known: its layer buffers and the blocks prologue,
 * gather, reduce, optimizer and epilogue under another data degree or ZeRO stage.
 * Its other blocks are left as they are. */
void mcp_layer_data_build(struct mcp_arena *arena, const struct mcp_question *question,
                          const struct mcp_plan *plan, const struct mcp_layer_spec *spec,
                          struct mcp_layer_type *type);

/* Elements of the head's weights on one rank when they live in rank space: tied to
 * the embedding on the same rank, or read by MTP modules too; else 0. */
int64_t mcp_shared_head_elements(const struct mcp_question *question, const struct mcp_plan *plan);
/* Bytes of those weights, and of their gradients. */
int64_t mcp_shared_weights_bytes(const struct mcp_question *question, const struct mcp_plan *plan);
int64_t mcp_shared_gradients_bytes(const struct mcp_question *question,
                                   const struct mcp_plan *plan);

/* Bytes that a parameter's gradient, and its optimizer, take under the job: in fp32 the
 * weights are their own master, and gradients are no smaller. */
double mcp_gradient_bytes(const struct mcp_question *question);
enum mcp_dtype mcp_gradient_dtype(const struct mcp_question *question); /* as they are added up */
double mcp_optimizer_bytes(const struct mcp_question *question, enum mcp_dtype weight);
/* What the weights of a layer of `kind` are kept in: as activations are, but for embeddings,
 * and a head that is tied to them, where the job keeps those in fp32. */
enum mcp_dtype mcp_weight_dtype(const struct mcp_question *question, int kind);

/* Layers of the extended list: embedding, decoder layers, MTP modules, head. */
int mcp_extended_layers(const struct mcp_model *model);
/* What layer `extended` of it is under the plan's chunks. */
struct mcp_layer_spec mcp_layer_spec_at(const struct mcp_question *question,
                                        const struct mcp_plan *plan, int extended);
/* The same for an MTP module or the head in a chunk whose last layer does `recompute`. */
struct mcp_layer_spec mcp_end_spec(const struct mcp_model *model, int extended,
                                   enum mcp_recompute recompute);
/* What of it follows from the place alone: split_backward, mirrored. */
struct mcp_layer_spec mcp_placed_spec(const struct mcp_plan *plan, int virtual_stage);
/* Recompute of a chunk's last layer; none where it has no layer. */
enum mcp_recompute mcp_chunk_last_recompute(const struct mcp_chunk *chunk);
/* The extended layers of virtual stage k: [*first, *first + *count). */
void mcp_chunk_extent(const struct mcp_question *question, const struct mcp_plan *plan, int k,
                      int *first, int *count);
/* The same for a chunk on virtual stage k of `stages`, whatever plan it is in. */
void mcp_chunk_layers(const struct mcp_model *model, int stages, int k,
                      const struct mcp_chunk *chunk, int *first, int *count);

/* The residual stream between two layers, of one rank and microbatch: X, and DX. */
int64_t mcp_residual_bytes(const struct mcp_question *question, const struct mcp_plan *plan);
/* What of it one rank sends: all, or its share where a message is cut over the tensor group. */
int64_t mcp_message_bytes(const struct mcp_question *question, const struct mcp_plan *plan);
bool mcp_message_is_scattered(const struct mcp_question *question, const struct mcp_plan *plan);

/* Parameters one rank holds of a layer type; before any ZeRO sharding. */
int64_t mcp_layer_type_parameters(const struct mcp_layer_type *type, bool expert);

#endif
