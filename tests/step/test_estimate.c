/* tests/step/test_estimate.c: every second is accounted for once, bubbles are those of the
 * literature, and predictions behave as machines do. */
#include "step/estimate.h"

#include "core/json.h"
#include "tests/step/random_plan.h"
#include "tests/step/setup.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

enum { NUM_PLANS = 300 };

static void estimate(struct mcp_arena *arena, const struct mcp_question *question,
                     const struct mcp_plan *plan, struct mcp_prediction *out)
{
    mcp_estimate(mcp_pricer_new(arena, question), plan, out);
}

static double sum_of(const double *cost_s)
{
    double sum = 0;
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        sum += cost_s[i];
    return sum;
}

static void check_accounts(const struct random_plan *drawn, const struct mcp_prediction *p,
                           const char *where)
{
    double exposed = 0;
    for (int r = 0; r < drawn->plan.pipeline_parallel; r++) {
        const double *cost = p->stages[r].cost_s;
        cr_expect(epsilon_eq(dbl, sum_of(cost) / p->iteration_s, 1, 1e-9), "stage %d: %s", r,
                  where);
        for (int i = 0; i < MCP_NUM_COSTS; i++)
            cr_expect(cost[i] >= 0, "stage %d, %s: %s", r, mcp_cost_names[i], where);
        for (int i = MCP_COST_TENSOR; i <= MCP_COST_DATA; i++)
            exposed += cost[i] / drawn->plan.pipeline_parallel;
    }
    for (int i = MCP_COST_TENSOR; i <= MCP_COST_DATA; i++)
        if (i != MCP_COST_PIPELINE) /* whose receives also wait for the sender's slot */
            cr_expect(p->cost_s[i] <= p->comm_s[i] * (1 + 1e-9) + 1e-6, "%s: %s", mcp_cost_names[i],
                      where);
    cr_expect(epsilon_eq(dbl, sum_of(p->cost_s) / p->iteration_s, 1, 1e-9), "%s", where);
    cr_expect(epsilon_eq(dbl, p->exposed_comm_frac, exposed / p->iteration_s, 1e-9), "%s", where);
    cr_expect(epsilon_eq(dbl, p->bubble_frac, p->cost_s[MCP_COST_BUBBLE] / p->iteration_s, 1e-12));
    double tokens = (double)drawn->job.global_batch_size * (double)drawn->job.sequence_length;
    cr_expect(epsilon_eq(dbl, p->tokens_per_s * p->iteration_s / tokens, 1, 1e-12), "%s", where);
}

static void check_memory(const struct random_plan *drawn, const struct mcp_prediction *p,
                         const char *where)
{
    int64_t fullest = 0;
    for (int r = 0; r < drawn->plan.pipeline_parallel; r++) {
        const struct mcp_memory *m = &p->stages[r].memory;
        const int64_t parts[] = {m->weights_bytes,     m->gradients_bytes, m->optimizer_bytes,
                                 m->activations_bytes, m->buffers_bytes,   m->reserve_bytes};
        int64_t total = 0;
        for (int i = 0; i < 6; i++) {
            cr_expect(parts[i] >= 0, "stage %d, part %d: %s", r, i, where);
            total += parts[i];
        }
        cr_expect(eq(i64, total, mcp_memory_total(m)));
        fullest = total > fullest ? total : fullest;
    }
    cr_expect(eq(i64, p->peak_memory_bytes, fullest), "%s", where);
    cr_expect(eq(i64, mcp_memory_total(&p->memory), fullest), "%s", where);
    cr_expect(eq(int, p->fits, fullest <= p->memory_limit_bytes), "%s", where);
}

Test(estimate, accounts_sum_on_every_stage)
{
    static struct mcp_prediction p;
    for (uint64_t seed = 1; seed <= NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        random_plan_draw_any(arena, seed, &drawn);
        estimate(arena, &drawn.question, &drawn.plan, &p);
        const char *where = random_plan_describe(arena, &drawn);
        check_accounts(&drawn, &p, where);
        check_memory(&drawn, &p, where);
        mcp_arena_free(arena);
    }
}

/* --- bubbles --- */

struct case_bubble {
    char name[24];
    enum mcp_schedule schedule;
    int pipeline, virtual_stages, num_microbatches;
};

ParameterizedTestParameters(estimate, bubble)
{
    static const struct case_bubble cases[] = {
        {"1F1B", MCP_1F1B, 4, 1, 8},
        {"1F1B, long", MCP_1F1B, 4, 1, 64},
        {"1F1B, deep", MCP_1F1B, 16, 1, 32},
        {"GPipe", MCP_GPIPE, 4, 1, 8},
        {"interleaved by two", MCP_INTERLEAVED, 4, 2, 8},
        {"interleaved by four", MCP_INTERLEAVED, 4, 4, 16},
        {"no pipeline", MCP_1F1B, 1, 1, 8},
    };
    return cr_make_param_array(struct case_bubble, (struct case_bubble *)cases,
                               sizeof cases / sizeof *cases);
}

/* Equal stages: 32 layers of a tenth of a second, ends and transfers of next to nothing. */
ParameterizedTest(struct case_bubble *c, estimate, bubble)
{
    struct setup s;
    static struct mcp_prediction p;
    setup_load(&s, "llama-3.1-70b", "dgx-h100:16", "megatron-core");
    setup_cut(&s, 32);
    s.model.vocab_size = 128;
    s.job.sequence_length = 8192;
    s.stack.step_overhead_s = 0;
    s.cluster.gpu.memory_bandwidth_bytes_per_s = 1e18;
    for (int tier = 0; tier < s.cluster.num_tiers; tier++)
        s.cluster.tiers[tier].bandwidth_bytes_per_s = 1e18;
    s.plan.microbatch_size = 4;
    s.plan.schedule = c->schedule;
    s.plan.pipeline_parallel = c->pipeline;
    s.plan.virtual_stages = c->virtual_stages;
    setup_finish(&s, c->num_microbatches, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &p);
    double ideal = (double)(c->pipeline - 1) / (c->virtual_stages * c->num_microbatches);
    cr_expect(epsilon_eq(dbl, p.bubble_over_ideal, ideal, 1e-3), "%s", c->name);
    cr_expect(epsilon_eq(dbl, p.bubble_frac, ideal / (1 + ideal), 1e-3), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* --- utilisation --- */

static void large(struct setup *s)
{
    setup_load(s, "llama-3.1-70b", "dgx-h100:16", "megatron-core");
    s->job.sequence_length = 8192;
    s->plan.tensor_parallel = 8;
    s->plan.sequence_parallel = true;
    s->plan.pipeline_parallel = 4;
    s->plan.data_parallel = 2;
    s->plan.zero_stage = 1;
}

/* Model FLOPs over the dense peak; HFU adds one more forward of every layer, not of the
 * head, under full recompute. */
Test(estimate, utilisation)
{
    struct setup s;
    static struct mcp_prediction none, full;
    large(&s);
    s.stack.recompute_whole_layer = true;
    setup_finish(&s, 16, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &none);
    /* 6 x weights that multiply, and 3 x 4 x heads x head size x s / 2 a layer for attention */
    double layer = 8192.0 * (8192 + 2 * 1024 + 8192 + 3 * 28672), head = 8192.0 * 128256;
    double attention = 80 * 12.0 * 8192 * 8192 / 2;
    double flops = (6 * (80 * layer + head) + attention) * 32 * 8192;
    double mfu = flops / (none.iteration_s * 64 * 989e12);
    cr_expect(epsilon_eq(dbl, none.model_flops_utilization / mfu, 1, 1e-9));
    cr_expect(epsilon_eq(dbl, none.hardware_flops_utilization, none.model_flops_utilization, 0));
    setup_finish(&s, 16, MCP_RECOMPUTE_FULL);
    estimate(s.arena, &s.question, &s.plan, &full);
    double again = 1 + (2 * 80 * layer + attention / 3) * 32 * 8192 / flops;
    cr_expect(epsilon_eq(dbl, full.hardware_flops_utilization / full.model_flops_utilization, again,
                         1e-9));
    cr_expect(epsilon_eq(dbl, full.model_flops_utilization * full.iteration_s,
                         none.model_flops_utilization * none.iteration_s, 1e-9));
    mcp_arena_free(s.arena);
}

/* --- data parallelism --- */

/* Reduce-scatter and all-gather of every parameter, nothing hidden: bandwidth in full,
 * latency by the bucket. */
Test(estimate, gradients_cost_their_transfers)
{
    struct setup s;
    static struct mcp_prediction alone, eight;
    setup_load(&s, "llama-3.1-8b", "dgx-h100", "megatron-core");
    s.job.sequence_length = 4096;
    s.plan.overlap = (struct mcp_overlap){.context = true};
    s.plan.zero_stage = 1;
    setup_finish(&s, 4, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &alone);
    cr_expect(eq(dbl, alone.cost_s[MCP_COST_DATA], 0));
    struct mcp_error err = {""};
    cr_assert(mcp_cluster_load(s.arena, "dgx-h100", &s.cluster, &err) == MCP_OK);
    s.plan.data_parallel = 8;
    setup_finish(&s, 4, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &eight);
    double parameters = 8030261248; /* 128,256 words are a multiple of 128 */
    double bus = s.cluster.tiers[0].bandwidth_bytes_per_s * s.cluster.tiers[0].efficiency_frac;
    double least = 7.0 / 8 * parameters * (4 + 2) / bus;
    cr_expect(eight.cost_s[MCP_COST_DATA] > least);
    cr_expect(eight.cost_s[MCP_COST_DATA] < 1.1 * least, "%.4f s over %.4f s",
              eight.cost_s[MCP_COST_DATA], least);
    cr_expect(epsilon_eq(dbl, eight.comm_s[MCP_COST_DATA], eight.cost_s[MCP_COST_DATA], 1e-9));
    mcp_arena_free(s.arena);
}

/* ZeRO-3 whose transfers all hide: what is left is the first layer's gather before the first
 * forward, its reduction after the last backward, and the global norm. */
Test(estimate, edges_of_zero_3)
{
    struct setup s;
    static struct mcp_prediction p;
    setup_load(&s, "llama-3.1-8b", "dgx-h100", "megatron-core");
    s.job.sequence_length = 8192;
    s.model.vocab_size = 12800; /* unlike the head, the embedding has no norm */
    s.stack.data_overlap_frac = 1;
    s.stack.gradient_reduce_bytes = 4;
    s.plan.overlap.data = s.plan.overlap.gather = true;
    s.plan.zero_stage = 3;
    s.plan.data_parallel = 8;
    s.plan.microbatch_size = 4;
    setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &p);
    const struct mcp_pricing pricing = {&s.question, &s.plan};
    unsigned axes = (unsigned)MCP_DATA | MCP_CONTEXT;
    double table = 12800.0 * 4096;
    double want = mcp_collective_seconds(&pricing, MCP_FN_ALL_GATHER, axes, 2 * table) +
                  mcp_collective_seconds(&pricing, MCP_FN_REDUCE_SCATTER, axes, 4 * table) +
                  mcp_collective_seconds(&pricing, MCP_FN_ALL_REDUCE, axes, 4);
    cr_expect(epsilon_eq(dbl, p.cost_s[MCP_COST_DATA], want, 3e-9));
    mcp_arena_free(s.arena);
}

/* --- messages --- */

struct case_message {
    char name[48];
    int virtual_stages;
    bool overlap;
    double least; /* exposed share */
};

ParameterizedTestParameters(estimate, messages)
{
    static const struct case_message cases[] = {
        {"1F1B waits for each", 1, false, 1},
        {"... whatever the switch", 1, true, 1},
        {"interleaved, not overlapped", 2, false, 1},
        {"interleaved, overlapped", 2, true, 0.25},
    };
    return cr_make_param_array(struct case_message, (struct case_message *)cases,
                               sizeof cases / sizeof *cases);
}

/* Every stage sends or receives two messages a chunk and microbatch; a stage's wait shows in
 * its account whether it sends or receives. */
ParameterizedTest(struct case_message *c, estimate, messages)
{
    struct setup s;
    static struct mcp_prediction p;
    large(&s);
    s.stack.pipeline_overlap_frac = 0.75;
    s.plan.virtual_stages = c->virtual_stages;
    s.plan.schedule = c->virtual_stages > 1 ? MCP_INTERLEAVED : MCP_1F1B;
    s.plan.overlap.pipeline = c->overlap;
    setup_finish(&s, 16, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &p);
    const struct mcp_pricing pricing = {&s.question, &s.plan};
    double one = mcp_send_seconds(&pricing, 0, 1, 2.0 * 8192 * 8192 / 8);
    double exposed = 2.0 * 16 * c->virtual_stages * one * c->least;
    for (int r = 0; r < 4; r++) {
        double cost = p.stages[r].cost_s[MCP_COST_PIPELINE];
        cr_expect(cost >= exposed * (1 - 1e-4), "%s, stage %d: %.6f s of %.6f s", c->name, r, cost,
                  exposed);
    }
    cr_expect(p.comm_s[MCP_COST_PIPELINE] * c->least <= p.cost_s[MCP_COST_PIPELINE] + 1e-6, "%s",
              c->name);
    mcp_arena_free(s.arena);
}

/* Over a slow network stages wait for what is under way: that is no bubble. */
Test(estimate, waiting_for_a_message_is_communication)
{
    struct setup s;
    static struct mcp_prediction p;
    large(&s);
    s.stack.pipeline_overlap_frac = 1;
    s.plan.virtual_stages = 2;
    s.plan.schedule = MCP_INTERLEAVED;
    s.plan.overlap.pipeline = true;
    s.plan.data_parallel = 1;
    s.cluster.tiers[1].bandwidth_bytes_per_s /= 1000;
    setup_finish(&s, 16, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &p);
    for (int r = 0; r < 4; r++)
        cr_expect(p.stages[r].cost_s[MCP_COST_PIPELINE] > 0.2 * p.iteration_s, "stage %d", r);
    mcp_arena_free(s.arena);
}

/* --- behaviour --- */

/* Two pricers, two orders, the same bytes: prices are functions of the plan. */
Test(estimate, deterministic)
{
    enum { COUNT = 12 };
    static struct mcp_prediction first[COUNT], second[COUNT];
    struct setup s;
    large(&s);
    struct mcp_plan plans[COUNT];
    setup_finish(&s, 16, MCP_RECOMPUTE_NONE);
    for (int i = 0; i < COUNT; i++) {
        plans[i] = s.plan;
        plans[i].zero_stage = i % 4;
        plans[i].sequence_parallel = i & 1;
        plans[i].overlap.tensor = i & 2;
        plans[i].pipeline_parallel = i < 6 ? 4 : 8;
        plans[i].data_parallel = i < 6 ? 2 : 1;
        mcp_plan_uniform_chunks(s.arena, &plans[i], 80, (enum mcp_recompute)(i % 3));
    }
    struct mcp_pricer *forwards = mcp_pricer_new(s.arena, &s.question);
    struct mcp_pricer *backwards = mcp_pricer_new(s.arena, &s.question);
    for (int i = 0; i < COUNT; i++)
        mcp_estimate(forwards, &plans[i], &first[i]);
    for (int i = COUNT - 1; i >= 0; i--)
        mcp_estimate(backwards, &plans[i], &second[i]);
    for (int i = 0; i < COUNT; i++)
        cr_expect(memcmp(&first[i], &second[i], sizeof first[i]) == 0, "plan %d", i);
    mcp_arena_free(s.arena);
}

/* The same chunks and world under other settings. */
static struct mcp_plan another(const struct mcp_plan *plan, int i)
{
    struct mcp_plan other = *plan;
    other.zero_stage = i & 3;
    other.reshard_after_forward = i & 1;
    other.overlap = (struct mcp_overlap){i & 1, i & 2, i & 4, i & 1, i & 2, true};
    other.context_parallel_kind = (enum mcp_context_kind)(i % MCP_NUM_CONTEXT_KINDS);
    other.sequence_parallel = plan->tensor_parallel > 1 && (i & 2);
    if (i % 5 == 1)
        other.microbatch_size *= 2;
    if (i % 5 == 2 && plan->microbatch_size > 1)
        other.microbatch_size /= 2;
    if (i % 7 == 1) {
        other.tensor_parallel = plan->data_parallel;
        other.data_parallel = plan->tensor_parallel;
    }
    if (i % 7 == 2)
        other.expert_parallel = 1;
    return other;
}

/* A pricer that has seen other plans answers as a fresh one does. */
Test(estimate, caches_change_nothing)
{
    static struct mcp_prediction fresh, used;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        random_plan_draw_any(arena, seed, &drawn);
        struct mcp_pricer *pricer = mcp_pricer_new(arena, &drawn.question);
        memset(&fresh, 0, sizeof fresh);
        memset(&used, 0, sizeof used);
        for (int i = 0; i < 24; i++) {
            struct mcp_plan other = another(&drawn.plan, i);
            struct mcp_refusals refusals;
            if (mcp_legal(arena, &drawn.question, &other, &refusals))
                mcp_estimate(pricer, &other, &used);
        }
        memset(&used, 0, sizeof used);
        mcp_estimate(pricer, &drawn.plan, &used);
        estimate(arena, &drawn.question, &drawn.plan, &fresh);
        cr_expect(memcmp(&fresh, &used, sizeof fresh) == 0, "%s",
                  random_plan_describe(arena, &drawn));
        mcp_arena_free(arena);
    }
}

static void expect_no_slower(double before, double after, const char *part, const char *where)
{
    /* a rounded nanosecond may move between what keeps a sender busy and what does not */
    cr_expect(after <= before * (1 + 1e-6), "%s: %.9f s, was %.9f s: %s", part, after, before,
              where);
}

/* Better links, switches for overlap: no step takes longer. */
Test(estimate, better_machines_are_never_slower)
{
    static struct mcp_prediction plain, better;
    for (uint64_t seed = 1; seed <= NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        random_plan_draw_any(arena, seed, &drawn);
        const char *where = random_plan_describe(arena, &drawn);
        drawn.plan.overlap = (struct mcp_overlap){.context = true};
        estimate(arena, &drawn.question, &drawn.plan, &plain);
        const struct mcp_cluster cluster = drawn.cluster;
        for (int tier = 0; tier < drawn.cluster.num_tiers; tier++) {
            drawn.cluster.tiers[tier].bandwidth_bytes_per_s *= 2;
            estimate(arena, &drawn.question, &drawn.plan, &better);
            expect_no_slower(plain.iteration_s, better.iteration_s, "links", where);
            drawn.cluster = cluster;
        }
        drawn.cluster.gpu.memory_bandwidth_bytes_per_s *= 2;
        estimate(arena, &drawn.question, &drawn.plan, &better);
        expect_no_slower(plain.iteration_s, better.iteration_s, "memory", where);
        drawn.cluster = cluster;
        drawn.plan.overlap = (struct mcp_overlap){true, true, true, true, true, true};
        estimate(arena, &drawn.question, &drawn.plan, &better);
        expect_no_slower(plain.iteration_s, better.iteration_s, "overlap", where);
        mcp_arena_free(arena);
    }
}

/* Recompute costs time and saves memory. */
Test(estimate, recompute_trades_time_for_memory)
{
    static struct mcp_prediction none, full;
    for (uint64_t seed = 1; seed <= NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        random_plan_draw_any(arena, seed, &drawn);
        const char *where = random_plan_describe(arena, &drawn);
        mcp_plan_uniform_chunks(arena, &drawn.plan, drawn.model.num_layers, MCP_RECOMPUTE_NONE);
        estimate(arena, &drawn.question, &drawn.plan, &none);
        mcp_plan_uniform_chunks(arena, &drawn.plan, drawn.model.num_layers, MCP_RECOMPUTE_FULL);
        estimate(arena, &drawn.question, &drawn.plan, &full);
        cr_expect(full.iteration_s > none.iteration_s, "%s", where);
        cr_expect(full.hardware_flops_utilization > full.model_flops_utilization, "%s", where);
        for (int r = 0; r < drawn.plan.pipeline_parallel; r++)
            cr_expect(full.stages[r].memory.activations_bytes <=
                          none.stages[r].memory.activations_bytes,
                      "stage %d: %s", r, where);
        mcp_arena_free(arena);
    }
}

/* Twice the microbatches take less than twice as long, and more than once. */
Test(estimate, fill_and_drain_are_paid_once)
{
    struct setup s;
    static struct mcp_prediction few, many;
    large(&s);
    setup_finish(&s, 16, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &few);
    setup_finish(&s, 32, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &many);
    cr_expect(many.iteration_s > 1.5 * few.iteration_s && many.iteration_s < 2 * few.iteration_s);
    cr_expect(many.bubble_frac < few.bubble_frac);
    cr_expect(eq(i64, many.peak_memory_bytes, few.peak_memory_bytes));
    mcp_arena_free(s.arena);
}

/* ZeRO-3 with pipelines moves weights for every microbatch; keeping them does not. */
Test(estimate, zero_3_multiplies_traffic)
{
    struct setup s;
    static struct mcp_prediction again, kept, sharded;
    large(&s);
    s.plan.zero_stage = 1;
    setup_finish(&s, 16, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &sharded);
    s.plan.zero_stage = 3;
    estimate(s.arena, &s.question, &s.plan, &again);
    s.plan.reshard_after_forward = false;
    estimate(s.arena, &s.question, &s.plan, &kept);
    cr_expect(again.comm_s[MCP_COST_DATA] > 10 * sharded.comm_s[MCP_COST_DATA]);
    cr_expect(kept.comm_s[MCP_COST_DATA] < again.comm_s[MCP_COST_DATA]);
    cr_expect(kept.peak_memory_bytes > again.peak_memory_bytes);
    mcp_arena_free(s.arena);
}

/* Interval: dense and mixture of experts are known differently well. */
Test(estimate, uncertainty_comes_from_the_stack)
{
    static const char *const models[2] = {"llama-3.1-8b", "mixtral-8x7b"};
    for (int i = 0; i < 2; i++) {
        struct setup s;
        static struct mcp_prediction p;
        setup_load(&s, models[i], "dgx-h100", "megatron-core");
        setup_finish(&s, 1, MCP_RECOMPUTE_FULL);
        estimate(s.arena, &s.question, &s.plan, &p);
        cr_expect(eq(dbl, p.uncertainty_frac,
                     i == 0 ? s.stack.uncertainty_frac : s.stack.moe_uncertainty_frac));
        mcp_arena_free(s.arena);
    }
}

/* The key "predicted" of a plan file: numbers that others read. */
Test(estimate, json_has_what_is_documented)
{
    static const char *const keys[] = {"iteration_s",
                                       "tokens_per_s",
                                       "model_flops_utilization",
                                       "hardware_flops_utilization",
                                       "bubble_frac",
                                       "bubble_over_ideal",
                                       "exposed_comm_frac",
                                       "peak_memory_bytes",
                                       "uncertainty_frac"};
    static const char *const parts[] = {"weights_bytes",     "gradients_bytes", "optimizer_bytes",
                                        "activations_bytes", "buffers_bytes",   "reserve_bytes"};
    struct setup s;
    static struct mcp_prediction p;
    struct mcp_json *memory;
    struct mcp_error err = {""};
    large(&s);
    setup_finish(&s, 16, MCP_RECOMPUTE_NONE);
    estimate(s.arena, &s.question, &s.plan, &p);
    struct mcp_json *json = mcp_json_new_object(s.arena);
    mcp_prediction_to_json(&p, json);
    double number = 0, total = 0, peak = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        cr_expect(mcp_json_double(json, keys[i], &number, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_json_object(json, "memory", &memory, &err) == MCP_OK, "%s", err.text);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        cr_expect(mcp_json_double(memory, parts[i], &number, &err) == MCP_OK, "%s", err.text);
        total += number;
    }
    cr_expect(mcp_json_double(json, "peak_memory_bytes", &peak, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(dbl, total, peak));
    mcp_arena_free(s.arena);
}
