/* tests/step/test_identity.c: random legal plans: their programs mean what they say,
 * survive a file, do the model's work, and play to what was estimated. */
#include "tests/step/play.h"
#include "tests/step/random_plan.h"

#include "step/build.h"
#include "step/dump.h"
#include "step/extents.h"
#include "step/layer.h"
#include "step/verify.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

enum { NUM_PLANS = 1000, PER_BATCH = 50 };

struct drawn {
    struct random_plan random;
    struct mcp_program program;
    const char *says; /* the plan, for a failing test */
};

static struct drawn *draw(struct mcp_arena *arena, int seed)
{
    struct drawn *drawn = MCP_NEW(arena, struct drawn);
    random_plan_draw_any(arena, (uint64_t)seed, &drawn->random);
    mcp_program_build(arena, &drawn->random.question, &drawn->random.plan, &drawn->program);
    drawn->says =
        mcp_format(arena, "seed %d: %s", seed, random_plan_describe(arena, &drawn->random));
    return drawn;
}

/* --- verified, and the same after a journey through a file --- */

static void expect_sound(struct mcp_arena *arena, const struct drawn *drawn)
{
    struct mcp_error err = {""};
    enum mcp_status status = mcp_program_verify(arena, &drawn->program, &err);
    cr_expect(eq(int, (int)status, (int)MCP_OK), "%s: %s", drawn->says, err.text);
    if (mcp_program_check_trained(&drawn->program, &err) != MCP_OK)
        return; /* an indexer's scores are products that no weight is in */
    if (drawn->random.job.precision >= MCP_PRECISION_FP8 && !drawn->random.stack.casts_operands)
        return; /* what its products read no backend could */
    status = mcp_program_check_extents(&drawn->program, &err);
    cr_expect(eq(int, (int)status, (int)MCP_OK), "%s: %s", drawn->says, err.text);
}

static void expect_round_trip(struct mcp_arena *arena, const struct drawn *drawn)
{
    struct mcp_error err = {""};
    struct mcp_json *json;
    struct mcp_program *back = MCP_NEW(arena, struct mcp_program);
    const char *text = mcp_json_text(arena, mcp_program_to_json(arena, &drawn->program));
    cr_assert(eq(int, (int)mcp_json_parse(arena, "dump", text, strlen(text), &json, &err), 0), "%s",
              err.text);
    cr_assert(eq(int, (int)mcp_program_from_json(arena, json, back, &err), 0), "%s: %s",
              drawn->says, err.text);
    const char *again = mcp_json_text(arena, mcp_program_to_json(arena, back));
    cr_expect(eq(int, strcmp(text, again), 0), "%s: changed by dump and load", drawn->says);
    cr_expect(eq(int, (int)mcp_program_verify(arena, back, &err), 0), "%s: %s", drawn->says,
              err.text);
}

/* --- the model's FLOPs, counted without the program --- */

/* Groups of a recurrent layer that ranks hold besides their share: their columns of the
 * projection, and their scores. */
static double repeated_groups(const struct random_plan *random, const struct mcp_layer_kind *kind)
{
    double t = random->plan.tensor_parallel, h = random->model.hidden_size;
    double more = t * fmax(1, floor(kind->num_groups / t)) - kind->num_groups;
    double columns = kind->attention == MCP_ATTENTION_MAMBA ? 0 : 2 * kind->state_size;
    double scores = kind->attention == MCP_ATTENTION_GATED_DELTA ? 2 : 1;
    double chunk = fmin(kind->chunk_size, (double)random->job.sequence_length);
    return 2 * more * (h * columns + scores * chunk * kind->state_size);
}

/* The indexer, which no rank shares. */
static double index_flops(const struct random_plan *random, const struct mcp_layer_kind *kind)
{
    double h = random->model.hidden_size, dim = kind->index_head_dim;
    double heads = kind->index_num_heads, pairs = (double)random->job.sequence_length / 2;
    double q_in = kind->q_lora_rank > 0 ? kind->q_lora_rank : h;
    return 2 * (q_in * heads * dim + h * (dim + heads) + pairs * heads * dim);
}

/* Products that every tensor rank repeats, forward, per token. */
static double repeated_flops(const struct random_plan *random, const struct mcp_layer_kind *kind)
{
    const struct mcp_model *model = &random->model;
    double t = random->plan.tensor_parallel, h = model->hidden_size;
    if (kind->attention == MCP_ATTENTION_LATENT)
        return (t - 1) *
               (2 * h * (kind->q_lora_rank + kind->kv_lora_rank + kind->qk_rope_head_dim) +
                index_flops(random, kind));
    if (mcp_is_recurrent(kind))
        return repeated_groups(random, kind);
    if (kind->attention == MCP_ATTENTION_NONE)
        return 0;
    double held = fmax(1, floor(kind->num_kv_heads / t));
    double columns = kind->head_dim + (kind->keys_are_values ? 0 : kind->value_head_dim);
    return 2 * h * (t * held - kind->num_kv_heads) * columns;
}

/* Experts work on whole rows, all on as many as the fullest: what that adds. */
static double rounding_flops(const struct random_plan *random, const struct mcp_layer_kind *kind)
{
    const struct mcp_plan *plan = &random->plan;
    if (kind->mlp != MCP_MLP_EXPERTS)
        return 0;
    int64_t tokens = plan->microbatch_size * random->job.sequence_length / plan->context_parallel /
                     (plan->sequence_parallel ? plan->tensor_parallel : 1);
    int64_t rows = tokens * kind->experts_per_token;
    int64_t groups = kind->num_experts / plan->expert_parallel;
    int64_t whole = (rows + groups - 1) / groups * groups;
    double experts = 2.0 * kind->experts_per_token * (kind->gated_mlp ? 3 : 2) *
                     random->model.hidden_size * kind->moe_ffn_hidden_size;
    return experts * ((double)whole / (double)rows - 1);
}

static double layer_flops(const struct random_plan *random, const struct mcp_layer_kind *kind)
{
    return mcp_layer_flops_per_token_forward(&random->model, kind, random->job.sequence_length) +
           repeated_flops(random, kind) + rounding_flops(random, kind);
}

/* Three passes over the model as it is cut: vocabulary padded, some parts repeated. */
static double expected_flops(const struct random_plan *random)
{
    struct mcp_model padded = random->model;
    int unit = 128 * random->plan.tensor_parallel;
    double h = padded.hidden_size;
    double repeats = random->plan.sequence_parallel ? 0 : random->plan.tensor_parallel - 1;
    padded.vocab_size = (padded.vocab_size + unit - 1) / unit * unit;
    double per_token = mcp_model_flops_per_token_forward(&padded, random->job.sequence_length);
    for (int i = 0; i < padded.num_layers; i++)
        per_token += repeated_flops(random, mcp_model_layer(&padded, i)) +
                     rounding_flops(random, mcp_model_layer(&padded, i));
    const struct mcp_layer_kind *mtp = &padded.kinds[padded.mtp_kind];
    per_token += padded.num_mtp_layers *
                 (repeated_flops(random, mtp) + rounding_flops(random, mtp) + repeats * 4 * h * h);
    return 3 * per_token * (double)random->job.global_batch_size *
           (double)random->job.sequence_length;
}

/* Attention counts whole (query, key) pairs of each ring step. */
static const double tolerance = 1e-3;

/* Products that backward may read nothing of: at most those of one MLP's end, or of the output
 * projection where there is none; and an indexer's scores. */
static double last_products(const struct random_plan *random, const struct mcp_layer_kind *kind)
{
    double h = random->model.hidden_size, pairs = (double)random->job.sequence_length / 2;
    double scores = 2 * random->plan.tensor_parallel * pairs * kind->index_num_heads *
                    (double)kind->index_head_dim;
    if (kind->mlp == MCP_MLP_NONE)
        return 2 * h * kind->num_attention_heads * kind->value_head_dim + scores;
    return 2 * h * (kind->ffn_hidden_size + kind->shared_expert_ffn_hidden_size) + scores;
}

/* Full recompute repeats the forward of its layers, but for those. */
static void expect_recompute(const struct drawn *drawn, double recompute_flops)
{
    const struct random_plan *random = &drawn->random;
    double most = 0, least = 0;
    for (int i = 1; i < drawn->program.num_layers - 1; i++) {
        struct mcp_layer_spec spec = mcp_layer_spec_at(&random->question, &random->plan, i);
        const struct mcp_layer_kind *kind = &random->model.kinds[spec.kind];
        double layer = layer_flops(random, kind);
        double t = random->plan.tensor_parallel, h = random->model.hidden_size;
        double head = 2 * h * (random->model.vocab_size + 128 * t) + 4 * h * h * t;
        most += spec.recompute == MCP_RECOMPUTE_NONE ? 0 : layer + (spec.mtp ? head : 0);
        least += spec.recompute == MCP_RECOMPUTE_FULL ? layer - last_products(random, kind) : 0;
    }
    double tokens = (double)random->job.global_batch_size * (double)random->job.sequence_length;
    cr_expect(le(dbl, recompute_flops, most * tokens * (1 + tolerance)), "%s", drawn->says);
    cr_expect(ge(dbl, recompute_flops, least * tokens * (1 - tolerance)), "%s", drawn->says);
}

static void expect_work(const struct drawn *drawn, const struct play_result *played)
{
    double expected = expected_flops(&drawn->random);
    double done = played->flops - played->recompute_flops;
    cr_expect(lt(dbl, fabs(done / expected - 1), tolerance), "%s: %g FLOPs done, %g expected",
              drawn->says, done, expected);
    cr_expect(eq(dbl, played->sent_bytes, played->received_bytes), "%s", drawn->says);
    expect_recompute(drawn, played->recompute_flops);
}

/* --- estimated = played --- */

static void expect_stage(const struct drawn *drawn, int stage,
                         const struct mcp_stage_prediction *predicted,
                         const struct play_result *played)
{
    const struct mcp_memory *a = &predicted->memory, *b = &played->memory[stage];
    cr_expect(eq(i64, predicted->end_ns, played->earliest_end_ns[stage]), "%s", drawn->says);
    cr_expect(eq(i64, predicted->end_ns, played->latest_end_ns[stage]), "%s", drawn->says);
    cr_expect(eq(i64, predicted->static_bytes,
                 b->weights_bytes + b->gradients_bytes + b->optimizer_bytes),
              "%s: stage %d", drawn->says, stage);
    cr_expect(eq(i64, a->weights_bytes, b->weights_bytes), "%s: stage %d", drawn->says, stage);
    cr_expect(eq(i64, a->gradients_bytes, b->gradients_bytes), "%s: stage %d", drawn->says, stage);
    cr_expect(eq(i64, a->optimizer_bytes, b->optimizer_bytes), "%s: stage %d", drawn->says, stage);
    cr_expect(eq(i64, a->activations_bytes, b->activations_bytes), "%s: stage %d", drawn->says,
              stage);
    cr_expect(eq(i64, a->buffers_bytes, b->buffers_bytes), "%s: stage %d", drawn->says, stage);
    cr_expect(eq(i64, a->reserve_bytes, b->reserve_bytes), "%s: stage %d", drawn->says, stage);
}

static void expect_identity(struct mcp_arena *arena, struct mcp_pricer *pricer,
                            const struct drawn *drawn, const struct play_result *played)
{
    struct mcp_prediction *predicted = MCP_NEW(arena, struct mcp_prediction);
    mcp_estimate(pricer, &drawn->random.plan, predicted);
    int64_t step_ns = (int64_t)llround(predicted->iteration_s * 1e9);
    cr_expect(eq(i64, step_ns, played->step_ns), "%s", drawn->says);
    cr_expect(eq(i64, predicted->peak_memory_bytes, played->peak_memory_bytes), "%s", drawn->says);
    for (int s = 0; s < drawn->program.num_classes; s++)
        expect_stage(drawn, s, &predicted->stages[s], played);
}

struct batch {
    int first_seed;
};

ParameterizedTestParameters(identity, random_plans)
{
    static struct batch batches[NUM_PLANS / PER_BATCH];
    for (int i = 0; i < NUM_PLANS / PER_BATCH; i++)
        batches[i].first_seed = i * PER_BATCH;
    return cr_make_param_array(struct batch, batches, NUM_PLANS / PER_BATCH);
}

ParameterizedTest(struct batch *batch, identity, random_plans)
{
    for (int seed = batch->first_seed; seed < batch->first_seed + PER_BATCH; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *drawn = draw(arena, seed);
        struct play_result *played = MCP_NEW(arena, struct play_result);
        struct mcp_pricer *pricer = mcp_pricer_new(arena, &drawn->random.question);
        play_program(arena, &drawn->random.question, &drawn->program, played);
        expect_sound(arena, drawn);
        expect_round_trip(arena, drawn);
        expect_work(drawn, played);
        expect_identity(arena, pricer, drawn, played);
        mcp_arena_free(arena);
    }
}
