/* step/layer.c: which layers there are, and building one layer type. */
#include "step/layer.h"

#include "core/stack.h"
#include "step/attention.h"
#include "step/builder.h"

#include <stdio.h>
#include <string.h>

int mcp_extended_layers(const struct mcp_model *model)
{
    return 1 + model->num_layers + model->num_mtp_layers + 1;
}

bool mcp_layer_spec_equal(const struct mcp_layer_spec *a, const struct mcp_layer_spec *b)
{
    return a->kind == b->kind && a->mtp == b->mtp && a->recompute == b->recompute &&
           a->split_backward == b->split_backward && a->mirrored == b->mirrored &&
           a->forward_only == b->forward_only;
}

/* Virtual stage that holds decoder layer `layer`, and its place there. */
static int stage_of(const struct mcp_plan *plan, int layer, int *place)
{
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    for (int k = 0; k < stages; k++) {
        const struct mcp_chunk *chunk = &plan->chunks[k];
        if (layer >= chunk->first_layer && layer < chunk->first_layer + chunk->num_layers) {
            *place = layer - chunk->first_layer;
            return k;
        }
    }
    *place = 0;
    return 0;
}

enum mcp_recompute mcp_chunk_last_recompute(const struct mcp_chunk *chunk)
{
    return chunk->num_runs > 0 ? chunk->runs[chunk->num_runs - 1].recompute : MCP_RECOMPUTE_NONE;
}

struct mcp_layer_spec mcp_end_spec(const struct mcp_model *model, int extended,
                                   enum mcp_recompute recompute)
{
    struct mcp_layer_spec spec = {.kind = MCP_KIND_HEAD};
    if (extended == mcp_extended_layers(model) - 1)
        return spec;
    spec.kind = model->mtp_kind;
    spec.mtp = true;
    spec.recompute = recompute;
    return spec;
}

struct mcp_layer_spec mcp_placed_spec(const struct mcp_plan *plan, int virtual_stage)
{
    return (struct mcp_layer_spec){
        .split_backward = mcp_plan_splits_backward(plan),
        .mirrored = mcp_plan_is_mirrored(plan, virtual_stage),
    };
}

static struct mcp_layer_spec spec_at(const struct mcp_question *question,
                                     const struct mcp_plan *plan, int extended)
{
    const struct mcp_model *model = question->model;
    struct mcp_layer_spec spec = {.kind = MCP_KIND_EMBEDDING};
    int place = 0, last = plan->pipeline_parallel * plan->virtual_stages - 1;
    if (extended == 0)
        return spec;
    if (extended > model->num_layers)
        return mcp_end_spec(model, extended, mcp_chunk_last_recompute(&plan->chunks[last]));
    spec.kind = model->layer_kind[extended - 1];
    int k = stage_of(plan, extended - 1, &place);
    spec.recompute = mcp_plan_recompute(plan, k, place);
    return spec;
}

struct mcp_layer_spec mcp_layer_spec_at(const struct mcp_question *question,
                                        const struct mcp_plan *plan, int extended)
{
    const struct mcp_model *model = question->model;
    struct mcp_layer_spec spec = spec_at(question, plan, extended);
    int place, stage = extended == 0 ? 0 : plan->pipeline_parallel * plan->virtual_stages - 1;
    if (extended > 0 && extended <= model->num_layers)
        stage = stage_of(plan, extended - 1, &place);
    const struct mcp_layer_spec placed = mcp_placed_spec(plan, stage);
    spec.split_backward = placed.split_backward;
    spec.mirrored = placed.mirrored;
    return spec;
}

void mcp_chunk_layers(const struct mcp_model *model, int stages, int k,
                      const struct mcp_chunk *chunk, int *first, int *count)
{
    /* the embedding, and the head, may have a chunk of their own */
    *first = k == 0 ? 0 : (chunk->num_layers > 0 ? chunk->first_layer : model->num_layers) + 1;
    *count = chunk->num_layers + (k == 0 ? 1 : 0);
    if (k == stages - 1)
        *count += model->num_mtp_layers + 1;
}

void mcp_chunk_extent(const struct mcp_question *question, const struct mcp_plan *plan, int k,
                      int *first, int *count)
{
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    mcp_chunk_layers(question->model, stages, k, &plan->chunks[k], first, count);
}

static int64_t tokens_of(const struct mcp_question *question, const struct mcp_plan *plan)
{
    return plan->microbatch_size * (question->job->sequence_length / plan->context_parallel);
}

static int64_t sharded_tokens_of(const struct mcp_question *question, const struct mcp_plan *plan)
{
    int64_t tokens = tokens_of(question, plan);
    return plan->sequence_parallel ? tokens / plan->tensor_parallel : tokens;
}

int64_t mcp_residual_bytes(const struct mcp_question *question, const struct mcp_plan *plan)
{
    return (int64_t)mcp_bytes_of(sharded_tokens_of(question, plan), question->model->hidden_size,
                                 mcp_activation_dtype(question->job->precision));
}

bool mcp_message_is_scattered(const struct mcp_question *question, const struct mcp_plan *plan)
{
    return question->stack->scatter_gather_pipeline && !plan->sequence_parallel &&
           plan->tensor_parallel > 1;
}

int64_t mcp_message_bytes(const struct mcp_question *question, const struct mcp_plan *plan)
{
    return mcp_residual_bytes(question, plan) /
           (mcp_message_is_scattered(question, plan) ? plan->tensor_parallel : 1);
}

static void set_shapes(struct mcp_builder *b)
{
    const struct mcp_plan *plan = b->plan;
    const struct mcp_job *job = b->question->job;
    b->hidden = b->model->hidden_size;
    b->sequence = job->sequence_length;
    b->sequence_local = job->sequence_length / plan->context_parallel;
    b->tokens = tokens_of(b->question, plan);
    b->sharded_tokens = sharded_tokens_of(b->question, plan);
    b->activation = mcp_activation_dtype(job->precision);
    b->matmul = mcp_matmul_dtype(job->precision);
    b->weight = mcp_weight_dtype(b->question, b->spec->kind);
    b->fused_attention = b->kind != NULL && mcp_attention_is_fused(b->question, b->kind);
}

static void set_recompute(struct mcp_builder *b)
{
    b->drop_all = b->spec->forward_only;
    if (b->kind == NULL || b->spec->forward_only)
        return;
    b->drop_all = b->spec->recompute == MCP_RECOMPUTE_FULL;
    if (b->spec->recompute == MCP_RECOMPUTE_SELECTIVE)
        b->dropped = b->question->stack->selective_modules;
}

/* X and DX, which every layer type has: the embedding's own are empty. */
static void declare_residual_stream(struct mcp_builder *b)
{
    static const char *const names[2] = {"x", "dx"};
    bool empty = b->spec->kind == MCP_KIND_EMBEDDING || b->spec->kind == MCP_KIND_STEP;
    int64_t bytes = empty ? 0 : mcp_residual_bytes(b->question, b->plan);
    for (int i = 0; i < 2; i++) {
        struct mcp_buffer *buffer = &b->buffers[MCP_SPACE_FRAME][i];
        snprintf(buffer->name, sizeof buffer->name, "%s", names[i]);
        buffer->bytes = buffer->capacity_bytes = bytes;
        buffer->dtype = (unsigned char)b->activation;
        buffer->kind = MCP_BUFFER_ACTIVATION;
        b->kept[i] = true;
    }
    b->type->num_buffers[MCP_SPACE_FRAME] = 2;
}

static const char *const recompute_suffix[MCP_NUM_RECOMPUTES] = {"", "_selective", "_full"};

static void name_type(struct mcp_builder *b)
{
    const struct mcp_layer_spec *spec = b->spec;
    char *name = b->type->name;
    size_t size = sizeof b->type->name;
    if (spec->kind == MCP_KIND_EMBEDDING)
        snprintf(name, size, "embedding");
    else if (spec->kind == MCP_KIND_HEAD)
        snprintf(name, size, "head");
    else if (spec->kind == MCP_KIND_STEP)
        snprintf(name, size, "step");
    else
        snprintf(name, size, "%s%d%s%s", spec->mtp ? "mtp" : "layer", spec->kind,
                 recompute_suffix[spec->recompute], spec->mirrored ? "_mirrored" : "");
}

static void keep_tables(struct mcp_builder *b)
{
    struct mcp_layer_type *type = b->type;
    for (int s = MCP_SPACE_LAYER; s < MCP_NUM_SPACES; s++) {
        int count = type->num_buffers[s];
        type->buffers[s] = MCP_ARRAY(b->arena, count, struct mcp_buffer);
        memcpy(type->buffers[s], b->buffers[s], (size_t)count * sizeof **b->buffers);
    }
    type->weights = MCP_ARRAY(b->arena, type->num_weights, struct mcp_weight);
    memcpy(type->weights, b->weights, (size_t)type->num_weights * sizeof *b->weights);
}

/* The builder itself is scratch: `workshop` goes when the type is done. */
static struct mcp_builder *new_builder(struct mcp_arena *workshop,
                                       const struct mcp_question *question,
                                       const struct mcp_plan *plan,
                                       const struct mcp_layer_spec *spec,
                                       struct mcp_layer_type *type)
{
    struct mcp_builder *b = MCP_NEW(workshop, struct mcp_builder);
    int ring = plan->context_parallel < MCP_MAX_RING ? plan->context_parallel : MCP_MAX_RING;
    b->max_ops = MCP_MAX_BLOCK_OPS - 4 * (MCP_MAX_RING - ring);
    b->ops = MCP_ARRAY(workshop, b->max_ops, struct mcp_op);
    b->question = question;
    b->plan = plan;
    b->model = question->model;
    b->spec = spec;
    b->type = type;
    b->kind = spec->kind >= 0 ? &question->model->kinds[spec->kind] : NULL;
    b->shared_head = mcp_shared_head_elements(question, plan) > 0;
    set_shapes(b);
    set_recompute(b);
    return b;
}

void mcp_layer_build(struct mcp_arena *arena, const struct mcp_question *question,
                     const struct mcp_plan *plan, const struct mcp_layer_spec *spec,
                     struct mcp_layer_type *out)
{
    struct mcp_arena *workshop = mcp_arena_new();
    mcp_layer_build_in(workshop, arena, question, plan, spec, out);
    mcp_arena_free(workshop);
}

void mcp_layer_build_in(struct mcp_arena *workshop, struct mcp_arena *arena,
                        const struct mcp_question *question, const struct mcp_plan *plan,
                        const struct mcp_layer_spec *spec, struct mcp_layer_type *out)
{
    struct mcp_mark mark = mcp_arena_mark(workshop);
    memset(out, 0, sizeof *out);
    out->recompute = spec->recompute;
    struct mcp_builder *b = new_builder(workshop, question, plan, spec, out);
    b->arena = arena;
    declare_residual_stream(b);
    name_type(b);
    if (spec->kind == MCP_KIND_STEP)
        mcp_build_step(b);
    else if (spec->kind == MCP_KIND_EMBEDDING)
        mcp_build_embedding(b);
    else if (spec->kind == MCP_KIND_HEAD)
        mcp_build_head(b);
    else
        mcp_build_decoder(b);
    mcp_facts_fill(b);
    if (spec->kind != MCP_KIND_STEP) {
        mcp_build_data_blocks(b);
        mcp_build_message_blocks(b);
    }
    keep_tables(b);
    mcp_arena_rewind(workshop, mark);
}

void mcp_layer_data_build(struct mcp_arena *arena, const struct mcp_question *question,
                          const struct mcp_plan *plan, const struct mcp_layer_spec *spec,
                          struct mcp_layer_type *type)
{
    struct mcp_arena *workshop = mcp_arena_new();
    struct mcp_builder *b = new_builder(workshop, question, plan, spec, type);
    b->arena = arena;
    memcpy(b->weights, type->weights, (size_t)type->num_weights * sizeof *b->weights);
    mcp_build_data_blocks(b);
    type->weights = MCP_ARRAY(arena, type->num_weights, struct mcp_weight);
    memcpy(type->weights, b->weights, (size_t)type->num_weights * sizeof *b->weights);
    type->buffers[MCP_SPACE_LAYER] = MCP_ARRAY(arena, MCP_MAX_LAYER_BUFFERS, struct mcp_buffer);
    memcpy(type->buffers[MCP_SPACE_LAYER], b->buffers[MCP_SPACE_LAYER],
           MCP_MAX_LAYER_BUFFERS * sizeof(struct mcp_buffer));
    mcp_arena_free(workshop);
}
