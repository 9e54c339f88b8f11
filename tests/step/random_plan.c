/* tests/step/random_plan.c: legal plans of every kind, drawn from a seed. */
#include "tests/step/random_plan.h"

#include "core/preset.h"
#include "step/schedule.h"
#include "step/synthesis.h"

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
    struct dice aside = *dice; /* so that all else is as it was drawn before */
    stack->fused_epilogues = chance(&aside, 50);
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

static void draw_schedule(struct dice *dice, struct mcp_plan *plan, enum mcp_schedule last)
{
    plan->schedule = (enum mcp_schedule)between(dice, 0, (int)last);
    plan->virtual_stages = plan->schedule == MCP_INTERLEAVED ? between(dice, 2, 4) : 1;
    if (mcp_schedule_placement(plan->schedule) == MCP_PLACEMENT_V)
        plan->virtual_stages = 2;
    if (plan->schedule == MCP_CUSTOM) {
        plan->placement = (enum mcp_placement)between(dice, 0, MCP_NUM_PLACEMENTS - 1);
        plan->virtual_stages = between(dice, 1, 3);
    }
}

static void draw_degrees(struct dice *dice, const struct mcp_model *model, enum mcp_schedule last,
                         struct mcp_plan *plan)
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
    draw_schedule(dice, plan, last);
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

/* --- rows: whatever can run next, in any order --- */

struct rows {
    const struct mcp_plan *plan;
    int m, parts;                         /* percent of backwards that are split */
    int *done[MCP_NUM_PASSES];            /* [p v] of forwards, backwards whole or for inputs, .. */
    bool *split;                          /* [p v][m] */
    int *queue[4], *posted[4], *taken[4]; /* [p][2 v m], [p], [p]: senders by neighbour and kind */
    struct mcp_schedule_row *rows;
};

static int *queue_of(const struct rows *rows, int from, int to, int *queue)
{
    bool mirrored = mcp_plan_is_mirrored(rows->plan, to);
    int rank = mcp_plan_rank_of(rows->plan, to);
    *queue = ((to > from) == mirrored) + 2 * mirrored;
    return rows->queue[*queue] + rank * 2 * rows->plan->virtual_stages * rows->m;
}

/* Has what stage k awaits in this direction come, and is it the first of its queue? */
static bool has_come(const struct rows *rows, int k, bool backward)
{
    int stages = rows->plan->pipeline_parallel * rows->plan->virtual_stages, queue;
    int sender = backward ? k + 1 : k - 1, rank = mcp_plan_rank_of(rows->plan, k);
    int pass = backward ? MCP_PASS_BACKWARD : MCP_PASS_FORWARD;
    if (sender < 0 || sender >= stages)
        return true;
    if (mcp_plan_rank_of(rows->plan, sender) == rank)
        return rows->done[pass][sender] > rows->done[pass][k];
    const int *senders = queue_of(rows, sender, k, &queue);
    int next = rows->taken[queue][rank];
    return next < rows->posted[queue][rank] && senders[next] == sender;
}

static void pass_on(struct rows *rows, int k, bool backward)
{
    int stages = rows->plan->pipeline_parallel * rows->plan->virtual_stages, queue;
    int sender = backward ? k + 1 : k - 1, to = backward ? k - 1 : k + 1;
    int rank = mcp_plan_rank_of(rows->plan, k);
    if (sender >= 0 && sender < stages && mcp_plan_rank_of(rows->plan, sender) != rank) {
        queue_of(rows, sender, k, &queue);
        rows->taken[queue][rank]++;
    }
    if (to >= 0 && to < stages && mcp_plan_rank_of(rows->plan, to) != rank) {
        int *senders = queue_of(rows, k, to, &queue);
        senders[rows->posted[queue][mcp_plan_rank_of(rows->plan, to)]++] = k;
    }
}

/* Runs the pass of stage k if it can. */
static bool try_pass(struct rows *rows, int k, enum mcp_pass pass)
{
    int rank = mcp_plan_rank_of(rows->plan, k), next = rows->done[pass][k];
    struct mcp_schedule_row *row = &rows->rows[rank];
    if (next >= rows->m)
        return false;
    if (pass == MCP_PASS_BACKWARD_WEIGHT) {
        rows->done[pass][k] += next < rows->done[MCP_PASS_BACKWARD][k];
        if (next == rows->done[MCP_PASS_BACKWARD][k] || !rows->split[k * rows->m + next])
            return next < rows->done[MCP_PASS_BACKWARD][k];
    } else {
        bool backward = pass == MCP_PASS_BACKWARD;
        if ((backward && next >= rows->done[MCP_PASS_FORWARD][k]) || !has_come(rows, k, backward))
            return false;
        rows->done[pass][k]++;
        pass_on(rows, k, backward);
        if (backward && rows->split[k * rows->m + next])
            pass = MCP_PASS_BACKWARD_INPUT;
    }
    row->actions[row->num_actions++] =
        (struct mcp_action){mcp_plan_chunk_of(rows->plan, k), next, pass};
    return true;
}

static void draw_rows(struct mcp_arena *arena, struct dice *dice, int m, struct mcp_plan *plan)
{
    /* a deadlock cannot come: what is first on its way can always be taken */
    static const enum mcp_pass passes[3] = {MCP_PASS_FORWARD, MCP_PASS_BACKWARD,
                                            MCP_PASS_BACKWARD_WEIGHT};
    int p = plan->pipeline_parallel, stages = p * plan->virtual_stages, left = 3 * stages * m;
    struct rows rows = {.plan = plan, .m = m, .parts = ONE_OF(dice, 0, 60, 100, 100)};
    rows.split = MCP_ARRAY(arena, stages * m, bool);
    rows.rows = MCP_ARRAY(arena, p, struct mcp_schedule_row);
    for (int i = 0; i < MCP_NUM_PASSES; i++)
        rows.done[i] = MCP_ARRAY(arena, stages, int);
    for (int i = 0; i < 4; i++) {
        rows.queue[i] = MCP_ARRAY(arena, p * 2 * plan->virtual_stages * m, int);
        rows.posted[i] = MCP_ARRAY(arena, p, int);
        rows.taken[i] = MCP_ARRAY(arena, p, int);
    }
    for (int i = 0; i < stages * m; i++)
        rows.split[i] = chance(dice, rows.parts);
    for (int r = 0; r < p; r++)
        rows.rows[r].actions = MCP_ARRAY(arena, 3 * plan->virtual_stages * m, struct mcp_action);
    while (left > 0)
        left -= try_pass(&rows, between(dice, 0, stages - 1), passes[between(dice, 0, 2)]);
    plan->rows = rows.rows;
}

void random_rows_draw(struct mcp_arena *arena, uint64_t seed, int m, struct mcp_plan *plan)
{
    struct dice dice = {seed * UINT64_C(0x2545f4914f6cdd1d) + 1};
    plan->schedule = MCP_CUSTOM;
    draw_rows(arena, &dice, m, plan);
}

/* Of stages that are equal, or nearly. */
static void make_rows(struct mcp_arena *arena, struct dice *dice, int m, struct mcp_plan *plan)
{
    int p = plan->pipeline_parallel, stages = p * plan->virtual_stages;
    struct mcp_synthesis_stage *costs = MCP_ARRAY(arena, stages, struct mcp_synthesis_stage);
    int64_t *limit = MCP_ARRAY(arena, p, int64_t);
    struct mcp_schedule_row *rows = MCP_ARRAY(arena, p, struct mcp_schedule_row);
    struct mcp_error err;
    for (int k = 0; k < stages; k++)
        costs[k] = (struct mcp_synthesis_stage){.forward_ns = between(dice, 900, 1100),
                                                .backward_input_ns = between(dice, 900, 1300),
                                                .backward_weight_ns = between(dice, 700, 1000),
                                                .kept_bytes = 34,
                                                .kept_for_weight_bytes = 32};
    struct mcp_synthesis problem = {.placement = mcp_plan_placement(plan),
                                    .pipeline_parallel = p,
                                    .virtual_stages = plan->virtual_stages,
                                    .num_microbatches = m,
                                    .stages = costs,
                                    .limit_bytes = limit,
                                    .max_work = 1000};
    mcp_synthesis_limit(plan->schedule, &problem, limit);
    enum mcp_status status = mcp_synthesize(arena, &problem, rows, NULL, &err);
    assert(status == MCP_OK);
    plan->rows = rows;
}

static void take_dualpipe_rows(struct mcp_arena *arena, int m, struct mcp_plan *plan)
{
    int p = plan->pipeline_parallel;
    struct mcp_schedule_row *rows = MCP_ARRAY(arena, p, struct mcp_schedule_row);
    for (int r = 0; r < p; r++)
        rows[r] = mcp_dualpipe_v_row(arena, p, m, r);
    plan->rows = rows;
}

static bool draw_plan(struct mcp_arena *arena, struct dice *dice, enum mcp_schedule last,
                      struct random_plan *out)
{
    struct mcp_error err;
    struct mcp_refusals refusals;
    draw_degrees(dice, &out->model, last, &out->plan);
    int p = out->plan.pipeline_parallel;
    bool groups = out->plan.schedule == MCP_INTERLEAVED;
    int m = groups ? p * between(dice, 1, 3) : between(dice, 1, 12);
    out->job.global_batch_size = (int64_t)m * out->plan.data_parallel * out->plan.microbatch_size;
    struct mcp_cluster whole = out->cluster;
    bool legal = mcp_cluster_take(&out->cluster, mcp_plan_world(&out->plan), &err) == MCP_OK &&
                 mcp_illegal_rule(&out->question, &out->plan) == NULL &&
                 draw_chunks(arena, dice, &out->model, &out->plan);
    if (legal && out->plan.schedule == MCP_CUSTOM)
        draw_rows(arena, dice, m, &out->plan);
    else if (legal && out->plan.schedule == MCP_DUALPIPE_V)
        take_dualpipe_rows(arena, m, &out->plan);
    else if (legal && !mcp_schedule_has_generator(out->plan.schedule))
        make_rows(arena, dice, m, &out->plan);
    legal = legal && mcp_legal(arena, &out->question, &out->plan, &refusals);
    if (!legal)
        out->cluster = whole;
    return legal;
}

/* From the seed, so that nothing else changes: half of the stacks use rings. */
static void draw_collectives(uint64_t seed, struct random_plan *out)
{
    int other = (int)(seed / 2 % MCP_NUM_COLLECTIVE_ALGORITHMS);
    out->stack.collective_algorithm =
        seed % 2 == 0 ? MCP_RING : (enum mcp_collective_algorithm)other;
    for (int k = 0; k < out->cluster.num_tiers; k++)
        out->cluster.tiers[k].in_switch_reduction = (seed / 4 >> k) % 2 != 0;
}

static void draw(struct mcp_arena *arena, uint64_t seed, enum mcp_schedule last,
                 struct random_plan *out)
{
    struct dice dice = {seed * UINT64_C(0x2545f4914f6cdd1d) + 1};
    struct mcp_error err;
    out->question = (struct mcp_question){&out->model, &out->cluster, &out->job, &out->stack};
    for (;;) {
        draw_model(arena, &dice, &out->model);
        draw_cluster(arena, &dice, &out->cluster);
        draw_job(&dice, &out->job);
        draw_stack(arena, &dice, &out->stack);
        if (out->job.precision > MCP_PRECISION_FP8) /* blocks with scales of their own */
            out->stack.casts_operands = false;
        if (mcp_model_check(&out->model, &err) != MCP_OK)
            continue;
        for (int attempt = 0; attempt < 40; attempt++)
            if (draw_plan(arena, &dice, last, out)) {
                draw_collectives(seed, out);
                return;
            }
    }
}

void random_plan_draw(struct mcp_arena *arena, uint64_t seed, struct random_plan *out)
{
    draw(arena, seed, MCP_INTERLEAVED, out);
}

void random_plan_draw_any(struct mcp_arena *arena, uint64_t seed, struct random_plan *out)
{
    draw(arena, seed, MCP_CUSTOM, out);
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
