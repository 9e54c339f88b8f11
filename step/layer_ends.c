/* step/layer_ends.c: what is no plain decoder layer: embedding, head with loss, MTP module. */
#include "core/stack.h"
#include "step/builder.h"

#include <math.h>

/* The vocabulary is padded so that every tensor rank holds a multiple of 128 rows. */
int64_t mcp_local_vocabulary(const struct mcp_model *model, const struct mcp_plan *plan)
{
    int64_t unit = 128, t = plan->tensor_parallel;
    return (model->vocab_size + unit * t - 1) / (unit * t) * unit;
}

static bool is_one_table(const struct mcp_model *model, const struct mcp_plan *plan)
{
    return model->tied_embeddings && mcp_plan_ends_meet(plan);
}

bool mcp_embedding_is_head(const struct mcp_builder *b)
{
    return is_one_table(b->model, b->plan);
}

int64_t mcp_shared_head_elements(const struct mcp_question *question, const struct mcp_plan *plan)
{
    const struct mcp_model *model = question->model;
    if (!is_one_table(model, plan) && model->num_mtp_layers == 0)
        return 0;
    return mcp_local_vocabulary(model, plan) * model->hidden_size;
}

int64_t mcp_shared_weights_bytes(const struct mcp_question *question, const struct mcp_plan *plan)
{
    enum mcp_dtype weight = mcp_weight_dtype(question, MCP_KIND_HEAD);
    return (int64_t)ceil(mcp_bytes_of(mcp_shared_head_elements(question, plan), 1, weight));
}

int64_t mcp_shared_gradients_bytes(const struct mcp_question *question, const struct mcp_plan *plan)
{
    double elements = (double)mcp_shared_head_elements(question, plan);
    return (int64_t)ceil(elements * mcp_gradient_bytes(question));
}

/* A table that another layer of the rank reads, or whose twin is on another stage. */
static void mark_table(struct mcp_builder *b, int part, bool of_head)
{
    struct mcp_weight *table = mcp_part(b, part);
    table->shared = of_head ? b->shared_head : mcp_embedding_is_head(b);
    table->twin = b->model->tied_embeddings && !mcp_embedding_is_head(b);
    table->duplicate = table->twin && of_head;
}

/* Of the embedding's layer: the vocabulary's table is its first part. */
enum { TABLE = 1 };

/* What else the embedding trains, where the table lives elsewhere; else not set. */
static struct mcp_ref others_apart(const struct mcp_builder *b, int layer_buffer)
{
    bool others = b->type->num_weights > 1 && mcp_embedding_is_head(b);
    return others ? mcp_layer_buffer(layer_buffer) : (struct mcp_ref){0};
}

static void embedding_forward(struct mcp_builder *b, struct mcp_value ids)
{
    mcp_load_ids(b, ids, 0);
    bool reduced = b->plan->tensor_parallel > 1;
    struct mcp_ref rows =
        reduced ? mcp_scratch_activation(b, "rows", b->tokens, b->hidden) : mcp_x(1);
    bool is_mixed = mcp_job_embeds_in_fp32(b->question->job);
    int64_t steps = is_mixed ? b->question->job->fp32_embedding_steps : 0;
    mcp_emit(b, (struct mcp_call){.function = is_mixed ? MCP_FN_EMBEDDING_MIXED_FORWARD
                                                       : MCP_FN_EMBEDDING_FORWARD,
                                  .weight = 1,
                                  .reads = {mcp_at(b, ids), mcp_weights_of(b, TABLE),
                                            others_apart(b, MCP_LAYER_WEIGHTS)},
                                  .writes = {rows},
                                  .dims = {b->tokens, b->hidden, steps, 2 * steps}});
    if (!reduced)
        return;
    bool shards = b->plan->sequence_parallel;
    mcp_emit(b, (struct mcp_call){.function = shards ? MCP_FN_REDUCE_SCATTER : MCP_FN_ALL_REDUCE,
                                  .stream = MCP_STREAM_TENSOR,
                                  .group = MCP_TENSOR,
                                  .reads = {rows},
                                  .writes = {mcp_x(1)},
                                  .dims = {b->tokens * b->hidden}});
}

static void embedding_backward(struct mcp_builder *b, struct mcp_value ids)
{
    struct mcp_ref dy = mcp_tensor_gather(b, "d_rows", mcp_dx(1), MCP_HIDE_NOT);
    mcp_emit(b, (struct mcp_call){
                    .function = MCP_FN_EMBEDDING_BACKWARD,
                    .weight = 1,
                    .reads = {dy, mcp_at(b, ids)},
                    .writes = {mcp_gradients_of(b, TABLE), others_apart(b, MCP_LAYER_GRADIENTS)},
                    .dims = {b->tokens, b->hidden}});
}

static int64_t position_rows(const struct mcp_builder *b)
{
    int64_t longest = b->model->max_sequence_length;
    return (longest > 0 ? longest : b->sequence) + b->model->extra_positions;
}

/* A norm over the embeddings has weights here; its traffic is small change. */
void mcp_build_embedding(struct mcp_builder *b)
{
    mcp_weight_part(b, "embedding", mcp_local_vocabulary(b->model, b->plan), b->hidden, false);
    mark_table(b, TABLE, false);
    if (b->model->position == MCP_POSITION_LEARNED)
        b->type->facts.positions_part =
            mcp_weight_part(b, "positions", position_rows(b), b->hidden, true);
    if (b->model->embedding_norm)
        mcp_norm_part(b, "embedding_norm", 1, b->hidden);
    struct mcp_value ids = mcp_saved_ids(b, "token_ids");
    mcp_begin_block(b, true);
    embedding_forward(b, ids);
    mcp_end_block(b, MCP_FORWARD);
    if (b->spec->forward_only)
        return;
    mcp_begin_block(b, false);
    embedding_backward(b, ids);
    mcp_end_block(b, MCP_BACKWARD);
    if (b->spec->split_backward)
        mcp_derive_split(b);
}

struct mcp_head_values {
    struct mcp_value targets; /* [T] token ids */
    struct mcp_value norm;    /* [Ts, h] */
    struct mcp_value logits;  /* [T, V / t] */
    int64_t vocabulary;
    struct mcp_ref weights, gradients;
    int part; /* 0: another layer's */
    int norm_weight, bias;
};

struct mcp_head_values *mcp_head_declare(struct mcp_builder *b, bool own_weights)
{
    struct mcp_head_values *v = MCP_NEW(b->arena, struct mcp_head_values);
    v->vocabulary = mcp_local_vocabulary(b->model, b->plan);
    v->norm_weight = mcp_norm_part(b, "final_norm", 1, b->hidden);
    if (own_weights) {
        v->part = mcp_weight_part(b, "head", v->vocabulary, b->hidden, false);
        mark_table(b, v->part, true);
    }
    if (b->model->head_bias && !b->spec->mtp) /* MTP modules read the head's */
        v->bias = mcp_bias_part(b, "head_bias", v->vocabulary, false);
    v->weights = b->shared_head ? mcp_rank_buffer(MCP_RANK_TIED_WEIGHTS)
                                : mcp_layer_buffer(MCP_LAYER_WEIGHTS);
    v->gradients = b->shared_head ? mcp_rank_buffer(MCP_RANK_TIED_GRADIENTS)
                                  : mcp_layer_buffer(MCP_LAYER_GRADIENTS);
    v->targets = mcp_saved_ids(b, "targets");
    v->norm = mcp_saved_activation(b, "final_norm", b->sharded_tokens, b->hidden, 0);
    v->logits = mcp_saved_activation(b, "logits", b->tokens, v->vocabulary, 0);
    return v;
}

/* The head's matrix as products take it: rounded anew where it is kept in fp32. */
static struct mcp_ref head_weights(struct mcp_builder *b, struct mcp_head_values *v)
{
    if (b->weight == b->activation || b->kind != NULL)
        return v->weights;
    struct mcp_ref rounded = mcp_scratch_activation(b, "head_16_bit", v->vocabulary, b->hidden);
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_COPY,
                                  .weight = v->part,
                                  .reads = {v->weights},
                                  .writes = {rounded},
                                  .dims = {v->vocabulary, b->hidden}});
    return rounded;
}

static void head_matmul(struct mcp_builder *b, const struct mcp_head_values *v,
                        enum mcp_function function, const int64_t dims[3],
                        const struct mcp_ref refs[3])
{
    mcp_emit(b, (struct mcp_call){.function = function,
                                  .weight = v->part,
                                  .reads = {refs[0], refs[1]},
                                  .writes = {refs[2]},
                                  .dims = {dims[0], dims[1], dims[2], 1}});
}

/* Vocabulary-parallel cross-entropy: three numbers a token go over the tensor
 * group, in fp32; logits are never gathered. They are [3][T]: the largest logit, the sum of
 * exponentials beside it (before the largest of all ranks is known: its logarithm, whole),
 * and the target's logit on the rank that has it. */
static void loss_reduction(struct mcp_builder *b, enum mcp_function function, int64_t first,
                           int64_t elements, struct mcp_ref numbers)
{
    if (b->plan->tensor_parallel == 1)
        return;
    mcp_emit(b, (struct mcp_call){.function = function,
                                  .stream = MCP_STREAM_TENSOR,
                                  .group = MCP_TENSOR,
                                  .dtype = MCP_F32,
                                  .has_dtype = true,
                                  .reads = {numbers},
                                  .writes = {numbers},
                                  .dims = {elements, 0, first}});
}

void mcp_head_forward(struct mcp_builder *b, struct mcp_head_values *v, struct mcp_ref input)
{
    int64_t tokens = b->tokens, vocabulary = v->vocabulary;
    struct mcp_ref norm = mcp_at(b, v->norm), logits = mcp_at(b, v->logits);
    struct mcp_ref targets = mcp_at(b, v->targets);
    mcp_load_ids(b, v->targets, b->spec->mtp ? 2 : 1);
    mcp_norm_forward(b, v->norm_weight, b->sharded_tokens, b->hidden, input, norm);
    struct mcp_ref x = mcp_tensor_gather(b, "final_norm_whole", norm, MCP_HIDE_NOT);
    head_matmul(b, v, MCP_FN_MATMUL_NT, (int64_t[3]){tokens, vocabulary, b->hidden},
                (struct mcp_ref[3]){x, head_weights(b, v), logits});
    double working = b->question->stack->logits_bytes - 2 * mcp_dtype_bytes(b->activation);
    struct mcp_ref softmax =
        mcp_scratch(b, "softmax", (working > 0 ? working : 0) * (double)tokens * (double)vocabulary,
                    MCP_F32)
            .block;
    struct mcp_ref numbers = mcp_scratch(b, "loss_numbers", 12.0 * (double)tokens, MCP_F32).block;
    /* logits become what is added to them by a bias, then their own gradient, unscaled */
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_LOSS_MAX,
                                  .weight = v->bias,
                                  .reads = {logits, targets, mcp_weights_of(b, v->bias)},
                                  .writes = {numbers, logits, softmax},
                                  .dims = {tokens, 3, vocabulary}});
    loss_reduction(b, MCP_FN_ALL_REDUCE_MAX, 0, tokens, numbers);
    mcp_map(b, MCP_FN_LOSS_SUMS, tokens, 3, (struct mcp_ref[3]){numbers},
            (struct mcp_ref[2]){numbers});
    loss_reduction(b, MCP_FN_ALL_REDUCE, tokens, 2 * tokens, numbers);
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_LOSS_FORWARD,
                                  .reads = {logits, numbers, targets},
                                  .writes = {mcp_rank_buffer(MCP_RANK_LOSS), logits, softmax},
                                  .dims = {tokens, vocabulary}});
}

void mcp_head_backward(struct mcp_builder *b, struct mcp_head_values *v, struct mcp_ref input,
                       struct mcp_ref d_input)
{
    int64_t tokens = b->tokens, vocabulary = v->vocabulary, h = b->hidden;
    struct mcp_ref d_logits = mcp_scratch_activation(b, "d_logits", tokens, vocabulary);
    mcp_map(b, MCP_FN_LOSS_BACKWARD, tokens, vocabulary,
            (struct mcp_ref[3]){mcp_at(b, v->logits), mcp_at(b, v->targets)},
            (struct mcp_ref[2]){d_logits});
    if (v->bias > 0)
        mcp_emit(b, (struct mcp_call){.function = MCP_FN_BIAS_BACKWARD,
                                      .weight = v->bias,
                                      .reads = {d_logits},
                                      .writes = {mcp_gradients_of(b, v->bias)},
                                      .dims = {tokens, vocabulary}});
    struct mcp_ref x = mcp_tensor_gather(b, "final_norm_again", mcp_at(b, v->norm), MCP_HIDE_BULK);
    struct mcp_ref dx = mcp_scratch_activation(b, "d_final_norm", tokens, h);
    head_matmul(b, v, MCP_FN_MATMUL_NN, (int64_t[3]){tokens, h, vocabulary},
                (struct mcp_ref[3]){d_logits, head_weights(b, v), dx});
    struct mcp_ref reduced = mcp_tensor_reduce(b, "d_final_norm_shard", dx, MCP_HIDE_BULK);
    head_matmul(b, v, MCP_FN_MATMUL_TN_ACCUMULATE, (int64_t[3]){vocabulary, h, tokens},
                (struct mcp_ref[3]){d_logits, x, v->gradients});
    mcp_norm_backward(b, &(struct mcp_norm_gradient){.part = v->norm_weight,
                                                     .rows = b->sharded_tokens,
                                                     .columns = h,
                                                     .dy = reduced,
                                                     .x = input,
                                                     .dx = d_input});
}

void mcp_build_head(struct mcp_builder *b)
{
    struct mcp_head_values *v = mcp_head_declare(b, !mcp_embedding_is_head(b));
    mcp_begin_block(b, true);
    mcp_head_forward(b, v, mcp_x(0));
    mcp_end_block(b, MCP_FORWARD);
    if (b->spec->forward_only)
        return;
    mcp_begin_block(b, false);
    mcp_head_backward(b, v, mcp_x(0), mcp_dx(0));
    mcp_end_block(b, MCP_BACKWARD);
    if (b->spec->split_backward)
        mcp_derive_split(b);
}

/* What belongs to no layer: scalars that all ranks agree on once a step. */
void mcp_build_step(struct mcp_builder *b)
{
    bool has_norm = mcp_job_finds_norm(b->question->job) && !b->spec->forward_only;
    struct mcp_ref loss = mcp_rank_buffer(MCP_RANK_LOSS), norm = mcp_rank_buffer(MCP_RANK_NORM);
    struct mcp_ref scalars = mcp_rank_buffer(MCP_RANK_SCALARS);
    unsigned all = (unsigned)MCP_TENSOR | MCP_CONTEXT | MCP_DATA | MCP_PIPELINE;
    mcp_begin_block(b, false);
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_CLEAR_SCALARS, .writes = {loss, norm}});
    mcp_end_block(b, MCP_PROLOGUE);
    mcp_begin_block(b, false);
    if (has_norm)
        mcp_emit(b, (struct mcp_call){.function = MCP_FN_ALL_REDUCE,
                                      .stream = MCP_STREAM_DATA,
                                      .group = all,
                                      .dtype = MCP_F32,
                                      .has_dtype = true,
                                      .reads = {norm},
                                      .writes = {norm},
                                      .dims = {1}});
    mcp_emit(b, (struct mcp_call){
                    .function = MCP_FN_STEP_SCALARS,
                    .reads = {has_norm ? norm : loss, has_norm ? loss : (struct mcp_ref){0}},
                    .writes = {scalars},
                    .dims = {has_norm && !mcp_job_clips(b->question->job)}});
    mcp_end_block(b, MCP_EPILOGUE);
}
