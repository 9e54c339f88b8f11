/* tests/step/random_plan.c: legal plans of every kind, drawn from a seed. */
#include "tests/step/random_plan.h"

#include "core/preset.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* splitmix64 (Steele, Lea & Flood 2014) */
struct dice {
    uint64_t state;
};

static uint64_t roll(struct dice *dice)
{
    uint64_t z = dice->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int between(struct dice *dice, int lowest, int highest)
{
    return lowest + (int)(roll(dice) % (uint64_t)(highest - lowest + 1));
}

static bool chance(struct dice *dice, int percent)
{
    return between(dice, 1, 100) <= percent;
}

#define ONE_OF(dice, ...)                                                                          \
    ((const int[]){__VA_ARGS__}[between(                                                           \
        (dice), 0, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)) - 1)])

/* --- model --- */

static void draw_attention(struct dice *dice, struct mcp_layer_kind *kind)
{
    kind->num_attention_heads = ONE_OF(dice, 4, 8, 16);
    kind->head_dim = kind->value_head_dim = ONE_OF(dice, 16, 32, 64);
    kind->num_kv_heads = kind->num_attention_heads / ONE_OF(dice, 1, 1, 2, 4);
    kind->attention_bias = chance(dice, 30);
    kind->attention_output_bias = chance(dice, 30);
    kind->qk_norm = chance(dice, 25);
    kind->sliding_window = chance(dice, 20) ? 48 : 0;
    kind->attention_chunk_size = chance(dice, 10) ? 64 : 0;
    kind->attention_output_gate = chance(dice, 15);
    kind->qk_layernorm_full = !kind->qk_norm && chance(dice, 15);
    kind->keys_are_values = chance(dice, 10);
}

static void draw_latent(struct dice *dice, struct mcp_layer_kind *kind)
{
    kind->attention = MCP_ATTENTION_LATENT;
    kind->num_attention_heads = kind->num_kv_heads = ONE_OF(dice, 4, 8, 16);
    kind->qk_rope_head_dim = 16;
    kind->head_dim = 16 + ONE_OF(dice, 16, 32);
    kind->value_head_dim = ONE_OF(dice, 16, 32);
    kind->kv_lora_rank = 64;
    kind->q_lora_rank = chance(dice, 50) ? 96 : 0;
    kind->qk_norm = kind->attention_bias = kind->qk_layernorm_full = false;
    kind->attention_output_gate = kind->keys_are_values = false;
    kind->sliding_window = kind->attention_chunk_size = 0;
    if (!chance(dice, 30))
        return;
    kind->index_num_heads = ONE_OF(dice, 2, 4);
    kind->index_head_dim = 32;
    kind->index_topk = ONE_OF(dice, 16, 64, 256);
}

/* A recurrent mixer in place of attention. */
static void draw_state(struct dice *dice, struct mcp_layer_kind *kind)
{
    static const enum mcp_attention_kind kinds[] = {MCP_ATTENTION_GATED_DELTA,
                                                    MCP_ATTENTION_LIGHTNING, MCP_ATTENTION_MAMBA,
                                                    MCP_ATTENTION_MAMBA2};
    *kind = (struct mcp_layer_kind){.attention = kinds[between(dice, 0, 3)],
                                    .attention_bias = chance(dice, 20),
                                    .attention_output_bias = chance(dice, 20)};
    bool mamba = kind->attention == MCP_ATTENTION_MAMBA;
    bool lightning = kind->attention == MCP_ATTENTION_LIGHTNING;
    kind->num_attention_heads = mamba ? 64 * between(dice, 1, 4) : ONE_OF(dice, 4, 8, 16);
    kind->head_dim = kind->value_head_dim = mamba ? 1 : ONE_OF(dice, 16, 32);
    kind->num_groups = mamba ? 1 : kind->num_attention_heads / ONE_OF(dice, 1, 2, 4);
    kind->num_groups = lightning ? kind->num_attention_heads : kind->num_groups;
    kind->state_size = ONE_OF(dice, 16, 32, 64);
    kind->chunk_size = mamba ? 1 : ONE_OF(dice, 16, 64, 256);
    kind->conv_kernel = lightning ? 0 : 4;
    kind->conv_bias = !lightning && chance(dice, 50);
    kind->time_step_rank = mamba ? 8 : 0;
    kind->qk_norm = mamba && chance(dice, 50);
}

/* Layers of one half: a mixer without an MLP, or an MLP alone. */
static void draw_halves(struct dice *dice, struct mcp_layer_kind *kind)
{
    struct mcp_layer_kind half = {0};
    if (chance(dice, 50)) {
        half = *kind;
        half.mlp = MCP_MLP_NONE;
        half.ffn_hidden_size = half.num_experts = half.experts_per_token = 0;
        half.moe_ffn_hidden_size = half.shared_expert_ffn_hidden_size = 0;
    } else {
        half.attention = MCP_ATTENTION_NONE;
        half.mlp = kind->mlp;
        half.gated_mlp = kind->gated_mlp;
        half.ffn_hidden_size = kind->ffn_hidden_size;
        half.num_experts = kind->num_experts;
        half.experts_per_token = kind->experts_per_token;
        half.moe_ffn_hidden_size = kind->moe_ffn_hidden_size;
    }
    *kind = half;
}

static void draw_mlp(struct dice *dice, struct mcp_layer_kind *kind, bool experts)
{
    kind->gated_mlp = chance(dice, 70);
    kind->mlp_bias = chance(dice, 30);
    kind->ffn_hidden_size = 64 * between(dice, 2, 8);
    if (!experts)
        return;
    kind->mlp = MCP_MLP_EXPERTS;
    kind->mlp_bias = false;
    kind->ffn_hidden_size = 0;
    kind->num_experts = ONE_OF(dice, 4, 8, 16);
    kind->experts_per_token = ONE_OF(dice, 1, 2, 4);
    kind->moe_ffn_hidden_size = 32 * between(dice, 1, 4);
    kind->shared_expert_ffn_hidden_size = chance(dice, 40) ? 128 : 0;
}

static void draw_model(struct mcp_arena *arena, struct dice *dice, struct mcp_model *model)
{
    bool experts = chance(dice, 40), latent = chance(dice, 25), states = chance(dice, 30);
    int dense_first = experts ? between(dice, 0, 2) : 1000;
    *model = (struct mcp_model){.name = "random",
                                .family = "",
                                .source = "",
                                .note = "",
                                .ignored = "",
                                .max_sequence_length = 1024};
    model->num_layers = between(dice, 1, 16);
    model->hidden_size = 64 * between(dice, 1, 8);
    model->vocab_size = between(dice, 100, 5000);
    model->norm = (enum mcp_norm_kind)ONE_OF(dice, 0, 0, 0, 1, 1, 2, 3);
    model->head_bias = chance(dice, 20);
    model->embedding_norm = chance(dice, 10);
    model->extra_positions = chance(dice, 20) ? 2 : 0;
    model->position = (enum mcp_position_kind)between(dice, 0, 2);
    model->tied_embeddings = chance(dice, 40);
    model->norms_per_layer = ONE_OF(dice, 2, 2, 2, 1, 4, 7);
    for (int k = 0; k < 2; k++) {
        struct mcp_layer_kind *kind = &model->kinds[k];
        draw_attention(dice, kind);
        if (latent)
            draw_latent(dice, kind);
        if (states && (k == 0 || chance(dice, 30)))
            draw_state(dice, kind);
        draw_mlp(dice, kind, k == 1 && experts);
        if (chance(dice, 15))
            draw_halves(dice, kind);
    }
    model->num_kinds = 2;
    model->layer_kind = MCP_ARRAY(arena, model->num_layers, unsigned char);
    for (int i = 0; i < model->num_layers; i++)
        model->layer_kind[i] = experts ? i >= dense_first : chance(dice, 30);
    model->num_mtp_layers = chance(dice, 20);
    model->mtp_kind = model->layer_kind[model->num_layers - 1];
    if (latent)
        model->position = MCP_POSITION_ROTARY;
}

/* --- machines, job, stack --- */

static void draw_cluster(struct mcp_arena *arena, struct dice *dice, struct mcp_cluster *cluster)
{
    static const char *const names[] = {"dgx-a100:512", "dgx-h100:512", "dgx-b200:512"};
    struct mcp_error err;
    enum mcp_status status = mcp_cluster_load(arena, names[between(dice, 0, 2)], cluster, &err);
    assert(status == MCP_OK);
}

static void draw_stack(struct mcp_arena *arena, struct dice *dice, struct mcp_stack *stack)
{
    size_t index = (size_t)between(dice, 0, (int)mcp_preset_count("stacks") - 1);
    struct mcp_error err;
    enum mcp_status status =
        mcp_stack_load(arena, mcp_preset_at("stacks", index)->name, stack, &err);
    assert(status == MCP_OK);
}

static void draw_job(struct dice *dice, struct mcp_job *job)
{
    *job = mcp_job_default();
    job->sequence_length = 64 * between(dice, 1, 12);
    job->precision = (enum mcp_precision)between(dice, 0, MCP_NUM_PRECISIONS - 1);
    job->dropout = chance(dice, 20);
    job->attention = chance(dice, 20) ? "unfused" : "";
}

/* --- plan --- */

static void draw_degrees(struct dice *dice, const struct mcp_model *model, struct mcp_plan *plan)
{
    *plan = mcp_plan_default();
    plan->tensor_parallel = ONE_OF(dice, 1, 1, 2, 4, 8);
    plan->context_parallel = ONE_OF(dice, 1, 1, 1, 2, 3, 4);
    plan->pipeline_parallel = ONE_OF(dice, 1, 1, 2, 2, 3, 4, 5, 8);
    plan->data_parallel = ONE_OF(dice, 1, 1, 2, 3, 4, 8);
    plan->expert_parallel = model->kinds[1].num_experts > 0 ? ONE_OF(dice, 1, 2, 4, 8) : 1;
    plan->sequence_parallel = plan->tensor_parallel > 1 && chance(dice, 70);
    plan->context_parallel_kind =
        (enum mcp_context_kind)between(dice, 0, MCP_NUM_CONTEXT_KINDS - 1);
    plan->zero_stage = between(dice, 0, 3);
    plan->reshard_after_forward = chance(dice, 50);
    plan->microbatch_size = ONE_OF(dice, 1, 1, 2, 4);
    plan->schedule = (enum mcp_schedule)between(dice, 0, MCP_INTERLEAVED);
    plan->virtual_stages = plan->schedule == MCP_INTERLEAVED ? between(dice, 2, 4) : 1;
    plan->overlap = (struct mcp_overlap){.tensor = chance(dice, 50),
                                         .data = chance(dice, 50),
                                         .pipeline = chance(dice, 50),
                                         .expert = chance(dice, 50)};
    struct dice aside = *dice; /* so that all else is as it was drawn before */
    plan->overlap.gather = chance(&aside, 50);
    plan->overlap.context = chance(&aside, 50);
    for (int i = 3; i > 0; i--) {
        int j = between(dice, 0, i);
        enum mcp_axis axis = plan->rank_order[i];
        plan->rank_order[i] = plan->rank_order[j];
        plan->rank_order[j] = axis;
    }
}

static void draw_runs(struct mcp_arena *arena, struct dice *dice, struct mcp_chunk *chunk)
{
    chunk->runs = MCP_ARRAY(arena, chunk->num_layers, struct mcp_recompute_run);
    for (int i = 0; i < chunk->num_layers; i++) {
        enum mcp_recompute recompute = (enum mcp_recompute)between(dice, 0, MCP_NUM_RECOMPUTES - 1);
        struct mcp_recompute_run *last =
            chunk->num_runs > 0 ? &chunk->runs[chunk->num_runs - 1] : NULL;
        if (last == NULL || last->recompute != recompute) {
            last = &chunk->runs[chunk->num_runs++];
            last->recompute = recompute;
        }
        last->num_layers++;
    }
}

/* Uneven chunks: one layer each, the others anywhere. The first and last chunk, which
 * have the embedding and the head, may do without. */
static bool draw_chunks(struct mcp_arena *arena, struct dice *dice, const struct mcp_model *model,
                        struct mcp_plan *plan)
{
    int count = plan->pipeline_parallel * plan->virtual_stages, first = 0;
    int low = count > 2 && chance(dice, 15), high = count - 1 - (count > 2 && chance(dice, 15));
    if (model->num_layers < count)
        return false;
    plan->chunks = MCP_ARRAY(arena, count, struct mcp_chunk);
    for (int i = 0; i < model->num_layers; i++)
        plan->chunks[low + i <= high ? low + i : between(dice, low, high)].num_layers++;
    for (int k = 0; k < count; k++) {
        plan->chunks[k].first_layer = first;
        first += plan->chunks[k].num_layers;
        draw_runs(arena, dice, &plan->chunks[k]);
    }
    return true;
}

static bool draw_plan(struct mcp_arena *arena, struct dice *dice, struct random_plan *out)
{
    struct mcp_error err;
    struct mcp_refusals refusals;
    draw_degrees(dice, &out->model, &out->plan);
    int p = out->plan.pipeline_parallel;
    int m = out->plan.virtual_stages > 1 ? p * between(dice, 1, 3) : between(dice, 1, 12);
    out->job.global_batch_size = (int64_t)m * out->plan.data_parallel * out->plan.microbatch_size;
    struct mcp_cluster whole = out->cluster;
    bool legal = mcp_cluster_take(&out->cluster, mcp_plan_world(&out->plan), &err) == MCP_OK &&
                 mcp_illegal_rule(&out->question, &out->plan) == NULL &&
                 draw_chunks(arena, dice, &out->model, &out->plan) &&
                 mcp_legal(arena, &out->question, &out->plan, &refusals);
    if (!legal)
        out->cluster = whole;
    return legal;
}

void random_plan_draw(struct mcp_arena *arena, uint64_t seed, struct random_plan *out)
{
    struct dice dice = {seed * UINT64_C(0x2545f4914f6cdd1d) + 1};
    struct mcp_error err;
    out->question = (struct mcp_question){&out->model, &out->cluster, &out->job, &out->stack};
    for (;;) {
        draw_model(arena, &dice, &out->model);
        draw_cluster(arena, &dice, &out->cluster);
        draw_job(&dice, &out->job);
        draw_stack(arena, &dice, &out->stack);
        if (mcp_model_check(&out->model, &err) != MCP_OK)
            continue;
        for (int attempt = 0; attempt < 40; attempt++)
            if (draw_plan(arena, &dice, out))
                return;
    }
}

const char *random_plan_describe(struct mcp_arena *arena, const struct random_plan *drawn)
{
    const struct mcp_plan *plan = &drawn->plan;
    return mcp_format(
        arena,
        "%s on %s, %d layers, t%d c%d (%s) p%d v%d (%s) d%d e%d b%d m%d sp%d zero%d "
        "%s %s mtp%d tied%d",
        drawn->stack.name, drawn->cluster.name, drawn->model.num_layers, plan->tensor_parallel,
        plan->context_parallel, mcp_context_kind_names[plan->context_parallel_kind],
        plan->pipeline_parallel, plan->virtual_stages, mcp_schedule_names[plan->schedule],
        plan->data_parallel, plan->expert_parallel, plan->microbatch_size,
        (int)mcp_num_microbatches(plan, &drawn->job), plan->sequence_parallel, plan->zero_stage,
        mcp_precision_names[drawn->job.precision], drawn->job.attention,
        drawn->model.num_mtp_layers, drawn->model.tied_embeddings);
}
