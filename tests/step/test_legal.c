/* tests/step/test_legal.c: every rule refuses what it should, alone, and proposes a value
 * that holds. */
#include "step/legal.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Zeros stand for what is legal: see with_defaults(). */
struct case_legal {
    char name[56];
    int heads, kv_heads, ffn, experts, shared_ffn, layers;
    int gpus, batch, sequence;
    int t, c, p, d, e, v, b, zero;
    bool sp;
    enum mcp_context_kind kind;
    enum mcp_schedule schedule; /* GPipe stands for the one that suits v */
    char rules[120];
    char says[160];
};

static int otherwise(int value, int usual)
{
    return value != 0 ? value : usual;
}

struct world {
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_plan plan;
    struct mcp_question question;
};

static void set_model(const struct case_legal *c, struct mcp_model *model)
{
    struct mcp_layer_kind *kind = &model->kinds[0];
    model->num_layers = otherwise(c->layers, 80);
    model->num_kinds = 1;
    kind->num_attention_heads = otherwise(c->heads, 64);
    kind->num_kv_heads = otherwise(c->kv_heads, 8);
    kind->ffn_hidden_size = otherwise(c->ffn, 28672);
    kind->mlp = c->experts > 0 ? MCP_MLP_EXPERTS : MCP_MLP_DENSE;
    kind->num_experts = c->experts;
    kind->shared_expert_ffn_hidden_size = c->shared_ffn;
}

static void set_plan(const struct case_legal *c, struct mcp_plan *plan)
{
    *plan = mcp_plan_default();
    plan->tensor_parallel = otherwise(c->t, 1);
    plan->context_parallel = otherwise(c->c, 1);
    plan->pipeline_parallel = otherwise(c->p, 1);
    plan->data_parallel = otherwise(c->d, 1);
    plan->expert_parallel = otherwise(c->e, 1);
    plan->virtual_stages = otherwise(c->v, 1);
    plan->microbatch_size = otherwise(c->b, 1);
    plan->zero_stage = c->zero;
    plan->sequence_parallel = c->sp;
    plan->context_parallel_kind = c->kind;
    plan->schedule = c->schedule != MCP_GPIPE   ? c->schedule
                     : plan->virtual_stages > 1 ? MCP_INTERLEAVED
                                                : MCP_1F1B;
}

static void set_world(const struct case_legal *c, struct world *world)
{
    memset(world, 0, sizeof *world);
    set_model(c, &world->model);
    set_plan(c, &world->plan);
    world->job = mcp_job_default();
    world->job.global_batch_size = otherwise(c->batch, 512);
    world->job.sequence_length = otherwise(c->sequence, 8192);
    world->cluster.num_nodes = otherwise(c->gpus, mcp_plan_world(&world->plan));
    world->cluster.gpus_per_node = 1;
    world->cluster.gpu.name = "a gpu";
    world->cluster.gpu.peak_flops_per_s[MCP_PRECISION_FP8] = (double)NAN;
    world->cluster.gpu.num_attention_kernels = 1;
    world->cluster.gpu.attention_kernels[0].name = "fused";
    world->question =
        (struct mcp_question){&world->model, &world->cluster, &world->job, &world->stack};
}

static void join(const struct mcp_refusals *refusals, char *text, size_t size, bool sentences)
{
    text[0] = '\0';
    for (int i = 0, n = 0; i < refusals->count && n < (int)size; i++)
        n += snprintf(text + n, size - (size_t)n, "%s%s", i > 0 ? " " : "",
                      sentences ? refusals->items[i].text : refusals->items[i].rule);
}

ParameterizedTestParameters(legal, rules)
{
    static struct case_legal cases[] = {
        {"the smallest plan", .rules = ""},
        {"70B on 512 GPUs", .t = 8, .c = 2, .p = 4, .d = 8, .v = 5, .sp = true, .b = 2},
        {"experts over tensor, context and data", .experts = 128, .ffn = 1, .t = 4, .c = 2, .d = 8,
         .e = 64, .sp = true},
        {"replicated KV heads", .kv_heads = 2, .t = 8},
        {"too few ranks", .gpus = 128, .t = 4, .c = 4, .p = 4, .rules = "world_equals_gpus",
         .says = "= 4 x 4 x 4 x 1 = 64 ranks, the cluster has 128 GPUs; nearest legal "
                 "data_parallel=2 (of 2)"},
        {"the article's own example", .gpus = 64, .ffn = 22016, .layers = 48, .t = 6, .c = 4,
         .p = 4,
         .rules = "world_equals_gpus tensor_parallel_divides_heads "
                  "tensor_parallel_shares_kv_heads tensor_parallel_divides_ffn",
         .says = "6 x 4 x 4 x 1 = 96 ranks, the cluster has 64 GPUs; one replica alone needs 96"},
        {"a replica that does not divide", .batch = 504, .gpus = 100, .t = 8, .p = 2, .d = 6,
         .rules = "world_equals_gpus", .says = "nearest with whole replicas are 96 or 112 GPUs"},
        {"idle GPUs", .gpus = 64, .t = 8, .rules = "world_equals_gpus",
         .says = "nearest legal data_parallel=8 (of 8)"},
        {"13B on 3", .heads = 40, .kv_heads = 40, .ffn = 13824, .t = 3,
         .rules = "tensor_parallel_divides_heads tensor_parallel_shares_kv_heads",
         .says = "(of 1, 2, 4, 8)"},
        {"70B on 5", .t = 5,
         .rules = "tensor_parallel_divides_heads tensor_parallel_shares_kv_heads "
                  "tensor_parallel_divides_ffn",
         .says = "tensor_parallel=5 does not divide num_attention_heads=64"},
        {"28 heads on 8", .heads = 28, .kv_heads = 4, .ffn = 18944, .t = 8,
         .rules = "tensor_parallel_divides_heads",
         .says = "nearest legal tensor_parallel=4 (of 1, 2, 4)"},
        {"28 heads, 4 KV heads on 14", .heads = 28, .kv_heads = 4, .ffn = 28672, .t = 14,
         .rules = "tensor_parallel_shares_kv_heads",
         .says = "neither divides num_kv_heads=4 nor is a multiple of it; nearest legal "
                 "tensor_parallel=4 (of 1, 2, 4, 28)"},
        {"52 heads on 8", .heads = 52, .kv_heads = 52, .ffn = 26624, .t = 8,
         .rules = "tensor_parallel_divides_heads tensor_parallel_shares_kv_heads",
         .says = "nearest legal tensor_parallel=4"},
        {"two errors at once", .heads = 64, .kv_heads = 1, .ffn = 1, .experts = 256, .t = 3, .e = 3,
         .sp = true, .sequence = 12288,
         .rules = "tensor_parallel_divides_heads expert_parallel_divides_experts",
         .says = "expert_parallel=3 does not divide num_experts=256"},
        {"odd FFN", .ffn = 11008, .t = 32, .heads = 32, .kv_heads = 32, .layers = 32},
        {"FFN", .ffn = 11004, .t = 8, .rules = "tensor_parallel_divides_ffn",
         .says = "tensor_parallel=8 does not divide ffn_hidden_size=11004"},
        {"shared expert", .experts = 8, .shared_ffn = 1407, .t = 2, .sp = true,
         .rules = "tensor_parallel_divides_ffn", .says = "shared_expert_ffn_hidden_size=1407"},
        {"routed experts are whole", .experts = 8, .ffn = 1407, .t = 2, .sp = true},
        {"SP without TP", .sp = true, .rules = "sequence_parallel_needs_tensor_parallel"},
        {"SP cuts tokens", .t = 8, .c = 2, .d = 2, .sp = true, .sequence = 8,
         .rules = "sequence_parallel_divides_tokens", .says = "8 x context_parallel=2 = 16"},
        {"ring", .c = 4, .sequence = 4100, .rules = "context_parallel_divides_sequence",
         .says = "2 x context_parallel=4 of ring attention does not divide sequence_length=4100"},
        {"a ring too long", .c = 512, .sequence = 65536,
         .rules = "context_parallel_divides_sequence",
         .says = "or is too large; nearest legal context_parallel=256"},
        {"all-gather", .c = 4, .sequence = 4100, .kind = MCP_CONTEXT_ALL_GATHER},
        {"all-gather of many", .c = 1024, .sequence = 65536, .kind = MCP_CONTEXT_ALL_GATHER},
        {"all-to-all", .t = 8, .c = 8, .kind = MCP_CONTEXT_ALL_TO_ALL},
        {"all-to-all heads", .t = 8, .c = 16, .kind = MCP_CONTEXT_ALL_TO_ALL,
         .rules = "context_parallel_divides_heads", .says = "nearest legal context_parallel=8"},
        {"all-to-all KV heads", .kv_heads = 12, .heads = 96, .t = 2, .c = 4,
         .kind = MCP_CONTEXT_ALL_TO_ALL, .rules = "context_parallel_divides_heads",
         .says = "num_kv_heads=12"},
        {"deeper than the model", .layers = 8, .p = 16, .rules = "pipeline_within_layers",
         .says = "pipeline_parallel=16 exceeds num_layers=8; nearest legal pipeline_parallel=8"},
        {"more stages than understood", .layers = 4096, .p = 1024, .batch = 1024,
         .rules = "pipeline_within_layers", .says = "exceeds the most that is understood, 512"},
        {"more chunks than layers", .p = 8, .v = 16, .rules = "virtual_stages_within_layers",
         .says = "= 128 exceeds num_layers=80; nearest legal virtual_stages=10"},
        {"more chunks than layers, whatever their number", .layers = 4, .p = 4, .v = 2,
         .schedule = MCP_ZB_V, .rules = "virtual_stages_within_layers schedule_has_rows",
         .says = "exceeds num_layers=4, and schedule zb-v has two chunks a rank; nearest "
                 "legal pipeline_parallel=2"},
        {"deeper than two chunks a rank", .layers = 8, .p = 16, .v = 2, .schedule = MCP_ZB_V,
         .rules = "pipeline_within_layers virtual_stages_within_layers schedule_has_rows",
         .says = "pipeline_parallel=16 exceeds num_layers=8; nearest legal pipeline_parallel=4"},
        {"three layers on two chunks a rank", .layers = 3, .p = 2, .v = 2, .schedule = MCP_V_MIN,
         .rules = "virtual_stages_within_layers schedule_has_rows",
         .says = "and schedule v-min has two chunks a rank; nearest legal schedule 1f1b"},
        {"v without p", .v = 2, .rules = "interleaving_needs_pipeline",
         .says = "nearest legal virtual_stages=1"},
        {"interleaved without v", .p = 4, .schedule = MCP_INTERLEAVED,
         .rules = "schedule_fits_virtual_stages", .says = "nearest legal schedule 1f1b"},
        {"v without interleaving", .p = 4, .v = 2, .schedule = MCP_1F1B,
         .rules = "schedule_fits_virtual_stages", .says = "nearest legal schedule interleaved"},
        {"V on one chunk", .p = 4, .schedule = MCP_ZB_V,
         .rules = "schedule_fits_virtual_stages schedule_has_rows",
         .says = "schedule zb-v does not go with virtual_stages=1; nearest legal virtual_stages=2"},
        {"zero bubble on two chunks", .p = 4, .v = 2, .schedule = MCP_ZB_H1,
         .rules = "schedule_fits_virtual_stages", .says = "nearest legal schedule interleaved"},
        {"groups of p", .p = 4, .v = 3, .batch = 9, .rules = "interleaving_needs_whole_groups",
         .says = "there are 9; nearest legal 8"},
        {"groups of p, too few", .p = 4, .v = 2, .batch = 2,
         .rules = "interleaving_needs_whole_groups", .says = "there are 2; nearest legal 4"},
        {"DualPipeV half full", .p = 4, .v = 2, .batch = 6, .schedule = MCP_DUALPIPE_V,
         .rules = "dualpipe_fills_pipeline schedule_has_rows",
         .says = "needs 8 microbatches or more, there are 6; nearest legal 3"},
        {"data over batch", .d = 6, .batch = 64, .rules = "data_parallel_divides_batch",
         .says = "data_parallel=6 x microbatch_size=1 = 6 does not divide global_batch_size=64; "
                 "nearest legal data_parallel=4"},
        {"microbatch over batch", .d = 4, .b = 3, .batch = 64, .rules = "microbatch_divides_batch",
         .says = "nearest legal microbatch_size=2 (of 1, 2, 4, 8, 16)"},
        {"more ranks than sequences", .d = 128, .batch = 64, .rules = "data_parallel_divides_batch",
         .says = "nearest legal data_parallel=64"},
        {"too many microbatches", .batch = 1 << 25, .rules = "microbatches_within_limit",
         .says = "33554432 microbatches x virtual_stages=1 are more than 16777216"},
        {"experts", .experts = 8, .e = 16, .d = 16, .rules = "expert_parallel_divides_experts",
         .says = "nearest legal expert_parallel=8 (of 1, 2, 4, 8)"},
        {"expert ranks", .experts = 128, .e = 32, .d = 16, .rules = "expert_parallel_divides_ranks",
         .says = "= 16 ranks; nearest legal expert_parallel=16"},
        {"experts of a dense model", .e = 2, .d = 2, .rules = "expert_parallel_divides_experts",
         .says = "the model has no experts; nearest legal expert_parallel=1"},
        {"experts need SP", .experts = 8, .t = 2, .rules = "experts_need_sequence_parallel",
         .says = "experts with tensor_parallel=2 need sequence_parallel=true"},
        {"zero stage", .zero = 4, .rules = "zero_stage_known", .says = "nearest legal 3"},
        {"negative zero stage", .zero = -1, .rules = "zero_stage_known", .says = "nearest legal 0"},
        {"negative degree", .c = -2, .gpus = 8, .zero = 9, .rules = "degrees_at_least_1",
         .says = "1, -2, 1, 1, 1"},
    };
    return cr_make_param_array(struct case_legal, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_legal *c, legal, rules)
{
    static struct world world;
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_refusals refusals;
    char text[4096];
    set_world(c, &world);
    bool legal = mcp_legal(arena, &world.question, &world.plan, &refusals);
    const char *first = mcp_illegal_rule(&world.question, &world.plan);
    join(&refusals, text, sizeof text, false);
    cr_expect(eq(str, text, c->rules), "%s", c->name);
    cr_expect(legal == (c->rules[0] == '\0'), "%s", c->name);
    cr_expect(legal ? first == NULL : strcmp(first, refusals.items[0].rule) == 0, "%s", c->name);
    join(&refusals, text, sizeof text, true);
    cr_expect(strstr(text, c->says) != NULL, "%s: %s", c->name, text);
    mcp_arena_free(arena);
}

Test(legal, job_and_chunks)
{
    static struct world world;
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_refusals refusals;
    set_world(&(struct case_legal){.p = 4}, &world);
    world.job.attention = "fusd";
    world.job.precision = MCP_PRECISION_FP8;
    mcp_plan_uniform_chunks(arena, &world.plan, 79, MCP_RECOMPUTE_NONE);
    cr_assert(not(mcp_legal(arena, &world.question, &world.plan, &refusals)));
    cr_assert(eq(int, refusals.count, 3));
    cr_expect(strstr(refusals.items[0].text, "no known rate in precision fp8; legal: bf16") != NULL,
              "%s", refusals.items[0].text);
    cr_expect(strstr(refusals.items[1].text, "legal: fused, unfused") != NULL, "%s",
              refusals.items[1].text);
    cr_expect(strstr(refusals.items[2].text, "layers 0 .. 79 once each") != NULL, "%s",
              refusals.items[2].text);
    world.job.attention = "unfused";
    world.job.precision = MCP_PRECISION_BF16;
    mcp_plan_uniform_chunks(arena, &world.plan, 80, MCP_RECOMPUTE_NONE);
    cr_expect(mcp_legal(arena, &world.question, &world.plan, &refusals));
    world.plan.chunks[1].first_layer++;
    cr_expect(not(mcp_legal(arena, &world.question, &world.plan, &refusals)));
    cr_expect(mcp_illegal_rule(&world.question, &world.plan) == NULL, "chunks are not looked at");
    mcp_arena_free(arena);
}

Test(legal, rows)
{
    static struct world world;
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_refusals refusals;
    struct mcp_schedule_row rows[4] = {{0}};
    set_world(&(struct case_legal){.p = 4, .v = 2, .schedule = MCP_V_HALF}, &world);
    cr_assert(not(mcp_legal(arena, &world.question, &world.plan, &refusals)));
    cr_expect(eq(int, refusals.count, 1));
    cr_expect(eq(str, (char *)refusals.items[0].text,
                 "schedule v-half has no order of its own: schedule.rows must say it"));
    world.plan.rows = rows;
    cr_assert(not(mcp_legal(arena, &world.question, &world.plan, &refusals)));
    cr_expect(eq(str, (char *)refusals.items[0].rule, "rows_can_be_played"));
    cr_expect(strstr(refusals.items[0].text, "schedule.rows have 0 actions") != NULL, "%s",
              refusals.items[0].text);
    cr_expect(mcp_illegal_rule(&world.question, &world.plan) == NULL, "rows are not looked at");
    mcp_arena_free(arena);
}

static bool breaks(const struct mcp_refusals *refusals, const char *rule)
{
    for (int i = 0; i < refusals->count; i++)
        if (strcmp(refusals->items[i].rule, rule) == 0)
            return true;
    return false;
}

static bool set_degree(struct mcp_plan *plan, const char *key, int value)
{
    const struct {
        const char *key;
        int *at;
    } degrees[] = {
        {"tensor_parallel", &plan->tensor_parallel},
        {"context_parallel", &plan->context_parallel},
        {"pipeline_parallel", &plan->pipeline_parallel},
        {"data_parallel", &plan->data_parallel},
        {"expert_parallel", &plan->expert_parallel},
        {"virtual_stages", &plan->virtual_stages},
        {"microbatch_size", &plan->microbatch_size},
    };
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        if (strcmp(degrees[i].key, key) == 0) {
            *degrees[i].at = value;
            return true;
        }
    }
    return false;
}

/* The value that a sentence proposes must satisfy the rule that proposed it. */
static int check_proposals(struct mcp_arena *arena, const struct world *world,
                           const struct mcp_refusals *refusals)
{
    int proposals = 0;
    for (int i = 0; i < refusals->count; i++) {
        struct mcp_refusals after;
        struct mcp_plan better = world->plan;
        char key[32];
        int value;
        const char *at = strstr(refusals->items[i].text, "; nearest legal ");
        if (!at || sscanf(at, "; nearest legal %31[a-z_]=%d", key, &value) != 2)
            continue;
        cr_assert(set_degree(&better, key, value), "%s", key);
        mcp_legal(arena, &world->question, &better, &after);
        cr_assert(not(breaks(&after, refusals->items[i].rule)), "%s", refusals->items[i].text);
        proposals++;
    }
    return proposals;
}

Test(legal, proposals_hold)
{
    static struct world world;
    unsigned random = 3;
    int proposals = 0;
#define PICK(...)                                                                                  \
    ((const int[]){__VA_ARGS__})[((random = random * 1664525u + 1013904223u) >> 16) %              \
                                 (sizeof((const int[]){__VA_ARGS__}) / sizeof(int))]
    for (int i = 0; i < 3000; i++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct mcp_refusals refusals;
        struct case_legal c = {.heads = PICK(12, 40, 64, 96),
                               .kv_heads = PICK(4, 8, 40),
                               .ffn = PICK(11008, 28672, 1407),
                               .experts = PICK(0, 0, 8, 60),
                               .layers = PICK(12, 61, 80),
                               .gpus = PICK(64, 96, 1024),
                               .batch = PICK(48, 512, 1000),
                               .sequence = PICK(2048, 4100),
                               .t = PICK(1, 2, 3, 8),
                               .c = PICK(1, 2, 6),
                               .p = PICK(1, 3, 4, 16),
                               .d = PICK(1, 2, 7, 16),
                               .e = PICK(1, 1, 4, 7),
                               .v = PICK(1, 1, 2, 9),
                               .b = PICK(1, 2, 3),
                               .sp = PICK(0, 1) == 1,
                               .kind = (enum mcp_context_kind)PICK(0, 1, 2)};
        set_world(&c, &world);
        bool legal = mcp_legal(arena, &world.question, &world.plan, &refusals);
        const char *first = mcp_illegal_rule(&world.question, &world.plan);
        cr_assert(legal ? first == NULL : strcmp(first, refusals.items[0].rule) == 0);
        proposals += check_proposals(arena, &world, &refusals);
        mcp_arena_free(arena);
    }
    cr_expect(proposals > 1000, "%d", proposals);
}

struct case_article {
    int layers, p, d, b, batch;
    bool pipeline, per_batch;
};
ParameterizedTestParameters(legal, the_articles_rules)
{
    static struct case_article cases[] = {
        {4, 1, 1, 1, 8, true, true},   /* one stage is always legal */
        {48, 9, 1, 1, 18, true, true}, /* floor(48 / 5) */
        {48, 10, 1, 1, 18, false, false}, {80, 4, 2, 2, 16, true, true}, /* 16 / 2 = 8 = 2 x 4 */
        {80, 4, 2, 2, 24, true, false}, /* 12 is no multiple of 8 */
        {80, 4, 3, 1, 16, true, false},
    };
    return cr_make_param_array(struct case_article, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_article *c, legal, the_articles_rules)
{
    static struct world world;
    set_world(
        &(struct case_legal){
            .layers = c->layers, .p = c->p, .d = c->d, .b = c->b, .batch = c->batch},
        &world);
    cr_expect(mcp_pipeline_rule(&world.question, &world.plan) == c->pipeline);
    cr_expect(mcp_batch_rule(&world.question, &world.plan) == c->per_batch);
}
