/* step/legal.c: which plans mean something: one table of rules. */
#include "step/legal_parts.h"

#include "core/text.h"
#include "step/pipeline.h"
#include "step/program.h"

#include <math.h>
#include <stddef.h>

/* Slots of one kind on a rank; keeps every count of slots an int. */
enum { MAX_SLOTS = 1 << 24 };

static bool divides(int64_t divisor, int64_t value)
{
    return value % divisor == 0;
}

/* The product of degrees, INT64_MAX when it cannot be counted. */
static int64_t product(int64_t a, int64_t b, int64_t c)
{
    int64_t result;
    return mcp_multiply(a, b, &result) && mcp_multiply(result, c, &result) ? result : INT64_MAX;
}

/* --- degrees and the world --- */

static bool hold_degrees(const struct ask *ask, int value)
{
    const struct mcp_plan *plan = ask->plan;
    return value >= 1 && plan->context_parallel >= 1 && plan->pipeline_parallel >= 1 &&
           plan->data_parallel >= 1 && plan->expert_parallel >= 1 && plan->virtual_stages >= 1 &&
           plan->microbatch_size >= 1;
}

static const char *say_degrees(struct mcp_arena *arena, const struct ask *ask, int t)
{
    const struct mcp_plan *plan = ask->plan;
    return mcp_format(arena,
                      "tensor, context, pipeline, data, expert parallel %d, %d, %d, %d, %d, "
                      "virtual_stages=%d, microbatch_size=%d: not all are at least 1",
                      t, plan->context_parallel, plan->pipeline_parallel, plan->data_parallel,
                      plan->expert_parallel, plan->virtual_stages, plan->microbatch_size);
}

static int64_t replica_ranks(const struct mcp_plan *plan)
{
    return product(plan->tensor_parallel, plan->context_parallel, plan->pipeline_parallel);
}

static bool hold_world(const struct ask *ask, int d)
{
    return product(replica_ranks(ask->plan), d, 1) == mcp_cluster_gpus(ask->cluster);
}

static const char *say_world(struct mcp_arena *arena, const struct ask *ask, int d)
{
    const struct mcp_plan *plan = ask->plan;
    int64_t replica = replica_ranks(plan), gpus = mcp_cluster_gpus(ask->cluster);
    int64_t whole = gpus / replica * replica;
    const char *sum = mcp_format(
        arena,
        "tensor_parallel x context_parallel x pipeline_parallel x data_parallel = %d x %d x %d x "
        "%d = %lld ranks, the cluster has %lld GPUs",
        plan->tensor_parallel, plan->context_parallel, plan->pipeline_parallel, d,
        (long long)product(replica, d, 1), (long long)gpus);
    if (divides(replica, gpus))
        return sum;
    if (gpus < replica)
        return mcp_format(arena, "%s; one replica alone needs %lld", sum, (long long)replica);
    return mcp_format(arena, "%s; nearest with whole replicas are %lld or %lld GPUs", sum,
                      (long long)whole, (long long)whole + replica);
}

/* --- tensor parallelism --- */

/* The first layer kind that `ranks` ranks cannot share, or NULL. */
typedef bool shares(const struct mcp_layer_kind *kind, int64_t ranks);
static const struct mcp_layer_kind *misfit(const struct ask *ask, int64_t ranks, shares *fits)
{
    for (int i = 0; i < ask->model->num_kinds; i++)
        if (!fits(&ask->model->kinds[i], ranks))
            return &ask->model->kinds[i];
    return NULL;
}

static bool share_heads(const struct mcp_layer_kind *kind, int64_t ranks)
{
    return divides(ranks, kind->num_attention_heads);
}

/* Of layers with states the groups that share queries and keys. */
static int shared_heads(const struct mcp_layer_kind *kind)
{
    return mcp_is_recurrent(kind) ? kind->num_groups : kind->num_kv_heads;
}

/* Whole ones on every rank, or whole copies of one. */
static bool share_kv_heads(const struct mcp_layer_kind *kind, int64_t ranks)
{
    return kind->attention == MCP_ATTENTION_LATENT || kind->attention == MCP_ATTENTION_NONE ||
           divides(ranks, shared_heads(kind)) || divides(shared_heads(kind), ranks);
}

/* Routed experts are not cut over the tensor group; shared ones are. */
static int cut_ffn(const struct mcp_layer_kind *kind)
{
    bool experts = kind->mlp == MCP_MLP_EXPERTS;
    return experts ? kind->shared_expert_ffn_hidden_size : kind->ffn_hidden_size;
}

static bool share_ffn(const struct mcp_layer_kind *kind, int64_t ranks)
{
    return divides(ranks, cut_ffn(kind));
}

static bool hold_heads(const struct ask *ask, int t)
{
    return misfit(ask, t, share_heads) == NULL;
}

static bool hold_kv_heads(const struct ask *ask, int t)
{
    return misfit(ask, t, share_kv_heads) == NULL;
}

static bool hold_ffn(const struct ask *ask, int t)
{
    return misfit(ask, t, share_ffn) == NULL;
}

static bool hold_sequence_tokens(const struct ask *ask, int t)
{
    return !ask->plan->sequence_parallel ||
           divides((int64_t)t * ask->plan->context_parallel, ask->job->sequence_length);
}

static bool tensor_legal(const struct ask *ask, int t)
{
    return hold_heads(ask, t) && hold_kv_heads(ask, t) && hold_ffn(ask, t) &&
           hold_sequence_tokens(ask, t);
}

static const char *say_heads(struct mcp_arena *arena, const struct ask *ask, int t)
{
    return mcp_format(arena, "tensor_parallel=%d does not divide num_attention_heads=%d", t,
                      misfit(ask, t, share_heads)->num_attention_heads);
}

static const char *say_kv_heads(struct mcp_arena *arena, const struct ask *ask, int t)
{
    const struct mcp_layer_kind *kind = misfit(ask, t, share_kv_heads);
    return mcp_format(arena, "tensor_parallel=%d neither divides %s=%d nor is a multiple of it", t,
                      mcp_is_recurrent(kind) ? "num_groups" : "num_kv_heads", shared_heads(kind));
}

static const char *say_ffn(struct mcp_arena *arena, const struct ask *ask, int t)
{
    const struct mcp_layer_kind *kind = misfit(ask, t, share_ffn);
    bool shared = kind->mlp == MCP_MLP_EXPERTS;
    return mcp_format(arena, "tensor_parallel=%d does not divide %s=%d", t,
                      shared ? "shared_expert_ffn_hidden_size" : "ffn_hidden_size", cut_ffn(kind));
}

/* --- sequence and context parallelism --- */

static bool hold_sequence_parallel(const struct ask *ask, int t)
{
    return !ask->plan->sequence_parallel || t > 1;
}

static const char *say_sequence_parallel(struct mcp_arena *arena, const struct ask *ask, int t)
{
    return mcp_format(arena,
                      ask->plan->sequence_parallel
                          ? "sequence_parallel=true needs tensor_parallel above 1, it is %d"
                          : "experts with tensor_parallel=%d need sequence_parallel=true",
                      t);
}

static const char *say_sequence_tokens(struct mcp_arena *arena, const struct ask *ask, int t)
{
    int c = ask->plan->context_parallel;
    return mcp_format(arena,
                      "sequence_parallel: tensor_parallel=%d x context_parallel=%d = %lld does "
                      "not divide sequence_length=%lld",
                      t, c, (long long)t * c, (long long)ask->job->sequence_length);
}

/* Ring attention balances causal work by two pieces a rank. */
static bool hold_context_tokens(const struct ask *ask, int c)
{
    bool ring = ask->plan->context_parallel_kind == MCP_CONTEXT_RING;
    bool fits = !ring || c <= MCP_MAX_RING;
    return c == 1 || (fits && divides((ring ? INT64_C(2) : 1) * c, ask->job->sequence_length));
}

static const char *say_context_tokens(struct mcp_arena *arena, const struct ask *ask, int c)
{
    bool ring = ask->plan->context_parallel_kind == MCP_CONTEXT_RING;
    return mcp_format(arena, "%scontext_parallel=%d%s does not divide sequence_length=%lld%s",
                      ring ? "2 x " : "", c, ring ? " of ring attention" : "",
                      (long long)ask->job->sequence_length,
                      ring && c > MCP_MAX_RING ? ", or is too large" : "");
}

/* States pass from token to token, and an indexer looks at all tokens: neither has a
 * way over context ranks here. */
static bool mixes_whole_sequences(const struct mcp_layer_kind *kind, int64_t ranks)
{
    return ranks == 1 || (!mcp_is_recurrent(kind) && kind->index_topk == 0);
}

static bool hold_context_states(const struct ask *ask, int c)
{
    return misfit(ask, c, mixes_whole_sequences) == NULL;
}

static const char *say_context_states(struct mcp_arena *arena, const struct ask *ask, int c)
{
    const struct mcp_layer_kind *kind = misfit(ask, c, mixes_whole_sequences);
    if (!mcp_is_recurrent(kind))
        return mcp_format(arena,
                          "context_parallel=%d cuts sequences, but the indexer that chooses "
                          "index_topk=%d keys looks at whole ones",
                          c, kind->index_topk);
    return mcp_format(arena,
                      "context_parallel=%d cuts sequences, but the states of %s layers pass from "
                      "token to token",
                      c, mcp_attention_names[kind->attention]);
}

/* All-to-all attention cuts the heads of a tensor rank again. */
static bool share_all_heads(const struct mcp_layer_kind *kind, int64_t ranks)
{
    return share_heads(kind, ranks) && share_kv_heads(kind, ranks);
}

static bool hold_context_heads(const struct ask *ask, int c)
{
    return ask->plan->context_parallel_kind != MCP_CONTEXT_ALL_TO_ALL || c == 1 ||
           misfit(ask, (int64_t)ask->plan->tensor_parallel * c, share_all_heads) == NULL;
}

static const char *say_context_heads(struct mcp_arena *arena, const struct ask *ask, int c)
{
    int64_t ranks = (int64_t)ask->plan->tensor_parallel * c;
    const struct mcp_layer_kind *kind = misfit(ask, ranks, share_all_heads);
    return mcp_format(arena,
                      "all_to_all: tensor_parallel=%d x context_parallel=%d = %lld does not divide "
                      "num_attention_heads=%d, or neither divides num_kv_heads=%d nor is a "
                      "multiple of it",
                      ask->plan->tensor_parallel, c, (long long)ranks, kind->num_attention_heads,
                      kind->num_kv_heads);
}

static bool context_legal(const struct ask *ask, int c)
{
    return hold_context_tokens(ask, c) && hold_context_heads(ask, c) && hold_context_states(ask, c);
}

/* --- pipelines --- */

static bool hold_stages(const struct ask *ask, int p)
{
    return p <= MCP_MAX_PIPELINE && p <= ask->model->num_layers;
}

static bool stages_legal(const struct ask *ask, int p)
{
    return hold_stages(ask, p) && p <= ask->model->num_layers / (mcp_folds(ask) ? 2 : 1);
}

static const char *say_stages(struct mcp_arena *arena, const struct ask *ask, int p)
{
    bool layers = p > ask->model->num_layers;
    return mcp_format(arena, "pipeline_parallel=%d exceeds %s%d", p,
                      layers ? "num_layers=" : "the most that is understood, ",
                      layers ? ask->model->num_layers : MCP_MAX_PIPELINE);
}

static bool hold_virtual_stages(const struct ask *ask, int v)
{
    return (int64_t)ask->plan->pipeline_parallel * v <= ask->model->num_layers || v == 1;
}

static bool virtual_stages_legal(const struct ask *ask, int v)
{
    return hold_virtual_stages(ask, v) && (v == 2 || !mcp_folds(ask));
}

static bool hold_interleaving(const struct ask *ask, int v)
{
    return v == 1 || ask->plan->pipeline_parallel > 1;
}

static bool interleaving_legal(const struct ask *ask, int v)
{
    return hold_interleaving(ask, v) && (v == 2 || !mcp_folds(ask));
}

static const char *say_interleaving(struct mcp_arena *arena, const struct ask *ask, int v)
{
    return mcp_format(arena, "virtual_stages=%d needs pipeline_parallel above 1, it is %d", v,
                      ask->plan->pipeline_parallel);
}

static int64_t stage_ranks(const struct mcp_plan *plan)
{
    return product(plan->tensor_parallel, plan->context_parallel, plan->data_parallel);
}

/* Stages of a mixed cluster lie in one pool each, and fill the pools. */
static bool fills_pool(const struct ask *ask, int pool)
{
    int64_t stages = 0;
    for (int r = 0; r < ask->plan->pipeline_parallel; r++)
        stages += ask->plan->stage_pool[r] == pool;
    return product(stages, stage_ranks(ask->plan), 1) ==
           mcp_pool_gpus(mcp_cluster_pool(ask->cluster, pool));
}

static bool hold_pools(const struct ask *ask, int p)
{
    int pools = mcp_cluster_num_pools(ask->cluster);
    (void)p;
    if (ask->plan->stage_pool == NULL)
        return pools == 1;
    for (int pool = 0; pool < pools; pool++)
        if (!fills_pool(ask, pool))
            return false;
    return pools == 1 || ask->plan->rank_order[3] == MCP_PIPELINE;
}

static const char *say_pools(struct mcp_arena *arena, const struct ask *ask, int p)
{
    struct mcp_text sizes = mcp_text_new(arena);
    for (const struct mcp_cluster *pool = ask->cluster; pool != NULL; pool = pool->next)
        mcp_text_add(&sizes, "%s%d", pool == ask->cluster ? "" : " and ", mcp_pool_gpus(pool));
    return mcp_format(arena,
                      "pipeline_parallel=%d: stages of %lld GPUs, pipeline slowest in rank_order, "
                      "do not fill pools of %s GPUs",
                      p, (long long)stage_ranks(ask->plan), sizes.data);
}

/* --- batches --- */

static bool hold_data(const struct ask *ask, int d)
{
    return divides(d, ask->job->global_batch_size);
}

static bool hold_microbatch(const struct ask *ask, int b)
{
    int64_t batch = ask->job->global_batch_size, d = ask->plan->data_parallel;
    return divides(d * b, batch) || !divides(d, batch);
}

static const char *say_batch(struct mcp_arena *arena, const struct ask *ask, int value)
{
    (void)value;
    int d = ask->plan->data_parallel, b = ask->plan->microbatch_size;
    return mcp_format(arena,
                      "data_parallel=%d x microbatch_size=%d = %lld does not divide "
                      "global_batch_size=%lld",
                      d, b, (long long)d * b, (long long)ask->job->global_batch_size);
}

static bool hold_groups(const struct ask *ask, int v)
{
    const struct mcp_plan *plan = ask->plan;
    return plan->schedule != MCP_INTERLEAVED || plan->rows != NULL || v == 1 ||
           !divides((int64_t)plan->data_parallel * plan->microbatch_size,
                    ask->job->global_batch_size) ||
           divides(plan->pipeline_parallel, mcp_num_microbatches(plan, ask->job));
}

static const char *say_groups(struct mcp_arena *arena, const struct ask *ask, int v)
{
    int64_t m = mcp_num_microbatches(ask->plan, ask->job), p = ask->plan->pipeline_parallel;
    return mcp_format(arena,
                      "virtual_stages=%d needs a multiple of pipeline_parallel=%lld microbatches, "
                      "there are %lld; nearest legal %lld, or virtual_stages=1",
                      v, (long long)p, (long long)m,
                      (long long)(m < p || m % p * 2 > p ? (m / p + 1) * p : m / p * p));
}

static bool hold_slots(const struct ask *ask, int v)
{
    return product(mcp_num_microbatches(ask->plan, ask->job), v, 1) <= MAX_SLOTS;
}

static const char *say_slots(struct mcp_arena *arena, const struct ask *ask, int v)
{
    return mcp_format(arena,
                      "%lld microbatches x virtual_stages=%d are more than %d slots on a rank",
                      (long long)mcp_num_microbatches(ask->plan, ask->job), v, MAX_SLOTS);
}

/* --- experts --- */

static bool share_experts(const struct mcp_layer_kind *kind, int64_t ranks)
{
    return kind->mlp != MCP_MLP_EXPERTS || divides(ranks, kind->num_experts);
}

static bool has_no_experts(const struct mcp_layer_kind *kind, int64_t ranks)
{
    (void)ranks;
    return kind->mlp != MCP_MLP_EXPERTS;
}

static bool hold_experts(const struct ask *ask, int e)
{
    return e == 1 || (misfit(ask, e, share_experts) == NULL && misfit(ask, e, has_no_experts));
}

static const char *say_experts(struct mcp_arena *arena, const struct ask *ask, int e)
{
    const struct mcp_layer_kind *kind = misfit(ask, e, share_experts);
    if (kind == NULL)
        return mcp_format(arena, "expert_parallel=%d, but the model has no experts", e);
    return mcp_format(arena, "expert_parallel=%d does not divide num_experts=%d", e,
                      kind->num_experts);
}

static int64_t expert_world(const struct mcp_plan *plan)
{
    return product(plan->tensor_parallel, plan->context_parallel, plan->data_parallel);
}

static bool hold_expert_ranks(const struct ask *ask, int e)
{
    return divides(e, expert_world(ask->plan));
}

static const char *say_expert_ranks(struct mcp_arena *arena, const struct ask *ask, int e)
{
    const struct mcp_plan *plan = ask->plan;
    return mcp_format(arena,
                      "expert_parallel=%d does not divide tensor_parallel=%d x "
                      "context_parallel=%d x data_parallel=%d = %lld ranks",
                      e, plan->tensor_parallel, plan->context_parallel, plan->data_parallel,
                      (long long)expert_world(plan));
}

static bool expert_parallel_legal(const struct ask *ask, int e)
{
    return hold_experts(ask, e) && hold_expert_ranks(ask, e);
}

static bool hold_expert_tokens(const struct ask *ask, int t)
{
    return t == 1 || ask->plan->sequence_parallel || misfit(ask, t, has_no_experts) == NULL;
}

static bool hold_precision(const struct ask *ask, int value)
{
    (void)value;
    for (const struct mcp_cluster *pool = ask->cluster; pool != NULL; pool = pool->next)
        if (isnan(pool->gpu.peak_flops_per_s[ask->job->precision]))
            return false;
    return true;
}

static const char *say_precision(struct mcp_arena *arena, const struct ask *ask, int value)
{
    (void)value;
    struct mcp_text can = mcp_text_new(arena);
    for (int i = 0; i < MCP_NUM_PRECISIONS; i++)
        if (!isnan(ask->cluster->gpu.peak_flops_per_s[i]))
            mcp_text_add(&can, "%s%s", can.length > 0 ? ", " : "", mcp_precision_names[i]);
    return mcp_format(arena, "%s has no known rate in precision %s; legal: %s",
                      ask->cluster->gpu.name, mcp_precision_names[ask->job->precision], can.data);
}

static bool hold_attention(const struct ask *ask, int value)
{
    (void)value;
    const char *name = ask->job->attention;
    if (name[0] == '\0' || mcp_same(name, "unfused"))
        return true;
    for (int i = 0; i < ask->cluster->gpu.num_attention_kernels; i++)
        if (mcp_same(name, ask->cluster->gpu.attention_kernels[i].name))
            return true;
    return false;
}

static const char *say_attention(struct mcp_arena *arena, const struct ask *ask, int value)
{
    (void)value;
    const struct mcp_gpu *gpu = &ask->cluster->gpu;
    struct mcp_text can = mcp_text_new(arena);
    for (int i = 0; i < gpu->num_attention_kernels; i++)
        mcp_text_add(&can, "%s, ", gpu->attention_kernels[i].name);
    return mcp_format(arena, "%s has no attention kernel \"%s\"; legal: %sunfused", gpu->name,
                      ask->job->attention, can.data);
}

static bool hold_chunks(const struct ask *ask, int p)
{
    int64_t layers = 0;
    const struct mcp_chunk *chunks = ask->plan->chunks;
    if (chunks == NULL)
        return true;
    for (int k = 0; k < p * ask->plan->virtual_stages; k++) {
        if (chunks[k].first_layer != layers)
            return false;
        layers += chunks[k].num_layers;
    }
    return layers == ask->model->num_layers;
}

static const char *say_chunks(struct mcp_arena *arena, const struct ask *ask, int p)
{
    return mcp_format(arena,
                      "the chunks of %d stages do not hold layers 0 .. %d once each, in order", p,
                      ask->model->num_layers - 1);
}

/* Unless the first holds the others cannot be asked; only the last look at rows and
 * chunks. Those that refuse most of a search's plans come early. */
#define TELL(name, key, what, say, also)                                                           \
    {                                                                                              \
        name, #key, offsetof(struct mcp_plan, key), hold_##what, say, also                         \
    }
#define RULE(name, key, what, also) TELL(name, key, what, say_##what, also)
static const struct rule rules[] = {
    RULE("degrees_at_least_1", tensor_parallel, degrees, NULL),
    RULE("world_equals_gpus", data_parallel, world, hold_world),
    TELL("data_parallel_divides_batch", data_parallel, data, say_batch, hold_data),
    TELL("microbatch_divides_batch", microbatch_size, microbatch, say_batch, hold_microbatch),
    RULE("tensor_parallel_divides_heads", tensor_parallel, heads, tensor_legal),
    RULE("tensor_parallel_shares_kv_heads", tensor_parallel, kv_heads, tensor_legal),
    RULE("tensor_parallel_divides_ffn", tensor_parallel, ffn, tensor_legal),
    RULE("sequence_parallel_needs_tensor_parallel", tensor_parallel, sequence_parallel, NULL),
    RULE("sequence_parallel_divides_tokens", tensor_parallel, sequence_tokens, tensor_legal),
    RULE("context_parallel_divides_sequence", context_parallel, context_tokens, context_legal),
    RULE("context_parallel_divides_heads", context_parallel, context_heads, context_legal),
    RULE("context_parallel_keeps_states", context_parallel, context_states, context_legal),
    RULE("pipeline_within_layers", pipeline_parallel, stages, stages_legal),
    {"virtual_stages_within_layers", "virtual_stages", offsetof(struct mcp_plan, virtual_stages),
     hold_virtual_stages, mcp_say_virtual_stages, virtual_stages_legal},
    RULE("stages_fill_pools", pipeline_parallel, pools, NULL),
    RULE("interleaving_needs_pipeline", virtual_stages, interleaving, interleaving_legal),
    {"schedule_fits_virtual_stages", "virtual_stages", offsetof(struct mcp_plan, virtual_stages),
     mcp_hold_schedule, mcp_say_schedule, NULL},
    RULE("interleaving_needs_whole_groups", virtual_stages, groups, NULL),
    {"dualpipe_fills_pipeline", "pipeline_parallel", offsetof(struct mcp_plan, pipeline_parallel),
     mcp_hold_dualpipe, mcp_say_dualpipe, NULL},
    RULE("microbatches_within_limit", virtual_stages, slots, NULL),
    RULE("expert_parallel_divides_experts", expert_parallel, experts, expert_parallel_legal),
    RULE("expert_parallel_divides_ranks", expert_parallel, expert_ranks, expert_parallel_legal),
    TELL("experts_need_sequence_parallel", tensor_parallel, expert_tokens, say_sequence_parallel,
         NULL),
    {"zero_stage_known", "zero_stage", offsetof(struct mcp_plan, zero_stage), mcp_hold_zero,
     mcp_say_zero, NULL},
    {"one_bit_adam_keeps_state_whole", "zero_stage", offsetof(struct mcp_plan, zero_stage),
     mcp_hold_whole_state, mcp_say_whole_state, NULL},
    {"one_bit_adam_has_no_global_norm", "zero_stage", offsetof(struct mcp_plan, zero_stage),
     mcp_hold_clip, mcp_say_clip, NULL},
    {"rank_map_fits_plan", "data_parallel", offsetof(struct mcp_plan, data_parallel),
     mcp_hold_rank_map, mcp_say_rank_map, NULL},
    RULE("precision_supported", tensor_parallel, precision, NULL),
    {"precision_runs_in_stack", "tensor_parallel", offsetof(struct mcp_plan, tensor_parallel),
     mcp_hold_casts, mcp_say_casts, NULL},
    RULE("attention_kernel_known", tensor_parallel, attention, NULL),
    {"schedule_has_rows", "pipeline_parallel", offsetof(struct mcp_plan, pipeline_parallel),
     mcp_hold_named_rows, mcp_say_named_rows, NULL},
    {"rows_can_be_played", "pipeline_parallel", offsetof(struct mcp_plan, pipeline_parallel),
     mcp_hold_rows, mcp_say_rows, NULL},
    RULE("chunks_cover_layers", pipeline_parallel, chunks, NULL),
};
enum { NUM_OF_WHOLE_PLANS = 3 }; /* the last of them, which searches need not ask */
enum { NUM_RULES = sizeof rules / sizeof *rules };
_Static_assert(NUM_RULES <= MCP_MAX_REFUSALS, "every rule can be broken at once");

bool mcp_legal(struct mcp_arena *arena, const struct mcp_question *question,
               const struct mcp_plan *plan, struct mcp_refusals *out)
{
    struct ask ask = {question->model, question->cluster, question->job, question->stack, plan};
    int count = hold_degrees(&ask, plan->tensor_parallel) ? NUM_RULES : 1;
    out->count = 0;
    for (int i = 0; i < count; i++)
        if (!rules[i].holds(&ask, mcp_judged(&rules[i], plan)))
            out->items[out->count++] = mcp_refuse(arena, &ask, &rules[i]);
    return out->count == 0;
}

const char *mcp_illegal_rule(const struct mcp_question *question, const struct mcp_plan *plan)
{
    struct ask ask = {question->model, question->cluster, question->job, question->stack, plan};
    for (int i = 0; i < NUM_RULES - NUM_OF_WHOLE_PLANS; i++)
        if (!rules[i].holds(&ask, mcp_judged(&rules[i], plan)))
            return rules[i].name;
    return NULL;
}
