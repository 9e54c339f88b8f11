/* tests/step/test_price.c: prices of ops against formulas written out again here, and
 * what must hold for every price. */
#include "step/price.h"

#include "tests/step/random_plan.h"
#include "tests/step/setup.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

/* The formulas are at test, not the constants that are fitted: all that prices read
 * is said here. */
static void h100(struct setup *s)
{
    setup_load(s, "llama-3.1-70b", "dgx-h100:16", "megatron-core");
    s->job.sequence_length = 4096;
    struct mcp_gpu *gpu = &s->cluster.gpu;
    gpu->peak_flops_per_s[MCP_PRECISION_BF16] = 989e12;
    gpu->peak_flops_per_s[MCP_PRECISION_FP8] = 1979e12;
    gpu->matmul_frac[MCP_PRECISION_BF16] = 0.83;
    gpu->matmul_frac[MCP_PRECISION_FP8] = 0.80;
    gpu->memory_bandwidth_bytes_per_s = 3.35e12;
    gpu->sustained_clock_frac = 0.8;
    gpu->grouped_matmul_frac = 1.1;
    gpu->num_attention_kernels = 1;
    gpu->attention_kernels[0] = (struct mcp_attention_kernel){"fused", 0.62, 0.5, 600};
    s->cluster.tiers[0] = (struct mcp_tier){"nvlink", 8, 8, 450e9, 0.8, 1e-6, 0, false};
    s->cluster.tiers[1] = (struct mcp_tier){"network", 128, 0, 50e9, 0.85, 2e-6, 0, false};
    s->stack.network_frac = 1;
    s->stack.matmul_frac = 0.9;
    s->stack.elementwise_factor = 1.3;
    s->stack.fp8_cast_factor = 0.84;
    s->stack.fp8_matmul_frac = 1;
    s->stack.gradient_bytes = 4;
    s->stack.deduplicated_dispatch = false;
}

static struct mcp_pricing pricing_of(const struct setup *s)
{
    return (struct mcp_pricing){&s->question, &s->plan};
}

static struct mcp_op op_of(enum mcp_function function, enum mcp_dtype dtype)
{
    struct mcp_op op = {.function = (unsigned char)function, .dtype = (unsigned char)dtype};
    op.weight = MCP_NO_WEIGHT;
    return op;
}

/* --- products --- */

struct case_product {
    char name[48];
    enum mcp_function function;
    enum mcp_precision precision;
    int64_t m, n, k, groups;
    bool memory_bound;
};

ParameterizedTestParameters(price, product)
{
    static const struct case_product cases[] = {
        {"whole tiles", MCP_FN_MATMUL_NT, MCP_PRECISION_BF16, 4096, 8192, 8192, 1, false},
        {"broken tiles", MCP_FN_MATMUL_NT, MCP_PRECISION_BF16, 1000, 1111, 8192, 1, false},
        {"less than one wave", MCP_FN_MATMUL_NN, MCP_PRECISION_BF16, 512, 512, 8192, 1, false},
        {"shallow", MCP_FN_MATMUL_NT, MCP_PRECISION_BF16, 8192, 8192, 64, 1, true},
        {"one row reads the weights", MCP_FN_MATMUL_NT, MCP_PRECISION_BF16, 1, 8192, 8192, 1, true},
        {"accumulates in fp32", MCP_FN_MATMUL_TN_ACCUMULATE, MCP_PRECISION_BF16, 8192, 8192, 64, 1,
         true},
        {"GELU beside its input", MCP_FN_MATMUL_NT_GELU, MCP_PRECISION_BF16, 8192, 8192, 128, 1,
         true},
        {"8 bit", MCP_FN_MATMUL_NT, MCP_PRECISION_FP8, 4096, 8192, 8192, 1, false},
        {"8 bit, few rows", MCP_FN_MATMUL_NT, MCP_PRECISION_FP8, 8, 8192, 8192, 1, true},
        {"experts", MCP_FN_GROUPED_NT, MCP_PRECISION_BF16, 512, 4096, 7168, 16, false},
        {"experts' gradients", MCP_FN_GROUPED_TN_ACCUMULATE, MCP_PRECISION_BF16, 4096, 7168, 64, 16,
         true},
    };
    return cr_make_param_array(struct case_product, (struct case_product *)cases,
                               sizeof cases / sizeof *cases);
}

/* Best of four tile shapes: useful share of tiles, and of waves. */
static double tiles(double m, double n, double groups)
{
    static const double shapes[4][3] = {
        {256, 128, 1}, {128, 128, 0.95}, {128, 64, 0.85}, {64, 64, 0.65}};
    double best = 0;
    for (int i = 0; i < 4; i++) {
        double a = ceil(m / shapes[i][0]), b = ceil(n / shapes[i][1]), w = a * b * groups / 132;
        best = fmax(best, shapes[i][2] * (m / (a * shapes[i][0])) * (n / (b * shapes[i][1])) * w /
                              ceil(w));
    }
    return best;
}

ParameterizedTest(struct case_product *c, price, product)
{
    struct setup s;
    h100(&s);
    s.job.precision = c->precision;
    bool low = c->precision == MCP_PRECISION_FP8;
    bool grouped = c->groups > 1;
    struct mcp_op op = op_of(c->function, low ? MCP_F8 : MCP_BF16);
    memcpy(op.dims, (int64_t[4]){c->m, c->n, c->k, c->groups}, sizeof(int64_t[4]));
    double m = (double)c->m, n = (double)c->n, k = (double)c->k, g = (double)c->groups;
    double rate = (low ? 1979e12 * 0.80 : 989e12 * 0.83) * 0.8 * 0.9 * (grouped ? 1.1 : 1);
    double compute = 2 * m * n * k * g / (rate * tiles(m, n, g)) * (1 + (low ? 300 : 100) / k);
    bool adds =
        c->function == MCP_FN_MATMUL_TN_ACCUMULATE || c->function == MCP_FN_GROUPED_TN_ACCUMULATE;
    double result = adds ? 8 : c->function == MCP_FN_MATMUL_NT_GELU ? 4 : 2;
    double bytes = g * ((low ? 1 : 2) * (m * k + k * n) + result * m * n);
    double memory = bytes / (0.8 * 3.35e12) / (grouped ? 1.1 : 1);
    cr_expect(eq(int, memory > compute, c->memory_bound), "%s", c->name);
    struct mcp_pricing pricing = pricing_of(&s);
    double seconds = mcp_op_seconds(&pricing, &op);
    cr_expect(epsilon_eq(dbl, seconds / (fmax(compute, memory) + 3e-6), 1, 1e-12), "%s", c->name);
    cr_expect(eq(dbl, mcp_op_flops(&op), 2 * m * n * k * g), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* --- attention --- */

struct case_attention {
    char name[40];
    enum mcp_function function;
    int64_t heads, head_dim, value_head_dim, pairs;
    double products, frac, start_s; /* over the forward's; of peak; start-up and launches */
};

ParameterizedTestParameters(price, attention)
{
    enum { causal = 4096 * 4096 / 2 };
    static const struct case_attention cases[] = {
        {"forward", MCP_FN_ATTENTION_FORWARD, 64, 128, 128, causal, 1, 0.62, 5e-6 + 2 * 3e-6},
        {"backward", MCP_FN_ATTENTION_BACKWARD, 64, 128, 128, causal, 2.5, 0.5, 10e-6 + 4 * 3e-6},
        {"small heads", MCP_FN_ATTENTION_FORWARD, 64, 64, 64, causal, 1,
         0.62 * (64.0 / 78) * (142.0 / 128), 5e-6 + 2 * 3e-6},
        {"latent heads", MCP_FN_ATTENTION_FORWARD, 128, 192, 128, causal, 1, 0.62, 5e-6 + 2 * 3e-6},
        {"a ring's step", MCP_FN_ATTENTION_STEP_FORWARD, 64, 128, 128, causal / 16, 1, 0.62,
         5e-6 + 2 * 3e-6},
    };
    return cr_make_param_array(struct case_attention, (struct case_attention *)cases,
                               sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_attention *c, price, attention)
{
    struct setup s;
    h100(&s);
    struct mcp_op op = op_of(c->function, MCP_BF16);
    memcpy(op.dims,
           (int64_t[MCP_MAX_DIMS]){c->heads, c->pairs, c->head_dim, c->value_head_dim, 4096, 4096},
           sizeof op.dims);
    double flops = 2.0 * (double)(c->heads * c->pairs * (c->head_dim + c->value_head_dim));
    double want = flops * c->products * (1 + 600.0 / 4096) / (989e12 * 0.8 * c->frac) + c->start_s;
    struct mcp_pricing pricing = pricing_of(&s);
    cr_expect(epsilon_eq(dbl, mcp_op_seconds(&pricing, &op) / want, 1, 1e-12), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* Unfused: two batched products over all scores, and their traffic. */
Test(price, unfused_attention)
{
    for (int i = 0; i < 4; i++) {
        bool backward = i & 1, dropout = i & 2;
        struct setup s;
        h100(&s);
        s.job.dropout = dropout;
        struct mcp_pricing pricing = pricing_of(&s);
        struct mcp_op op =
            op_of(backward ? MCP_FN_ATTENTION_UNFUSED_BACKWARD : MCP_FN_ATTENTION_UNFUSED_FORWARD,
                  MCP_BF16);
        memcpy(op.dims, (int64_t[MCP_MAX_DIMS]){64, 4096LL * 2048, 128, 128, 2048, 4096},
               sizeof op.dims);
        struct mcp_op scores = op_of(MCP_FN_MATMUL_NT, MCP_BF16), values = scores;
        memcpy(scores.dims, (int64_t[4]){2048, 4096, 128, 64}, sizeof(int64_t[4]));
        memcpy(values.dims, (int64_t[4]){2048, 128, 4096, 64}, sizeof(int64_t[4]));
        double products =
            mcp_op_seconds(&pricing, &scores) + mcp_op_seconds(&pricing, &values) - 2 * 3e-6;
        double bytes = 64.0 * 2048 * 4096 * ((backward ? 6 : 4) + (dropout ? 5 : 0));
        double want = products * (backward ? 2 : 1) + bytes * 1.3 / (0.8 * 3.35e12) +
                      (backward ? 8 : 5) * 3e-6;
        cr_expect(epsilon_eq(dbl, mcp_op_seconds(&pricing, &op) / want, 1, 1e-12), "case %d", i);
        mcp_arena_free(s.arena);
    }
}

/* --- element-wise --- */

struct case_map {
    enum mcp_function function;
    double bytes;  /* an element, bf16 */
    double factor; /* the stack's, on the traffic */
    int launches;
};

ParameterizedTestParameters(price, map)
{
    static const struct case_map cases[] = {
        {MCP_FN_NORM_FORWARD, 4, 1.3, 1},
        {MCP_FN_NORM_BACKWARD, 8, 1.3, 2},
        {MCP_FN_RESIDUAL_FORWARD, 6, 1.3, 2},
        {MCP_FN_RESIDUAL_DROPOUT_FORWARD, 7, 1.3, 2},
        {MCP_FN_GELU_FORWARD, 4, 1.3, 1},
        {MCP_FN_GELU_BACKWARD, 6, 1.3, 1},
        {MCP_FN_SWIGLU_FORWARD, 6, 1.3, 1},
        {MCP_FN_SWIGLU_BACKWARD, 10, 1.3, 1},
        {MCP_FN_ROTARY_FORWARD, 4, 1.3, 2},
        {MCP_FN_EMBEDDING_FORWARD, 6, 1.3, 3},
        {MCP_FN_EMBEDDING_BACKWARD, 10, 1.3, 3},
        {MCP_FN_LOSS_FORWARD, 14, 1.3, 4},
        {MCP_FN_LOSS_BACKWARD, 8, 1.3, 2},
        {MCP_FN_CAST, 4, 0.84, 2},
        {MCP_FN_ADAM, 36, 1, 1},
    };
    return cr_make_param_array(struct case_map, (struct case_map *)cases,
                               sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_map *c, price, map)
{
    struct setup s;
    h100(&s);
    struct mcp_op op = op_of(c->function, MCP_BF16);
    op.dims[0] = 4096;
    op.dims[1] = 8192;
    double bytes = 4096.0 * 8192 * c->bytes;
    double want = bytes * c->factor / (0.8 * 3.35e12) + c->launches * 3e-6;
    struct mcp_pricing pricing = pricing_of(&s);
    cr_expect(eq(dbl, mcp_op_moved_bytes(&op), bytes), "%s", mcp_functions[c->function].name);
    cr_expect(epsilon_eq(dbl, mcp_op_seconds(&pricing, &op) / want, 1, 1e-12), "%s",
              mcp_functions[c->function].name);
    mcp_arena_free(s.arena);
}

/* --- transfers --- */

struct case_collective {
    char name[40];
    enum mcp_function function;
    unsigned axes;
    int tensor, context, data, expert;
    int ranks, neighbors; /* of the group, and in one node */
    double bytes;
};

ParameterizedTestParameters(price, collective)
{
    enum { DP = MCP_DATA | MCP_CONTEXT };
    static const struct case_collective cases[] = {
        {"all-reduce in a node", MCP_FN_ALL_REDUCE, MCP_TENSOR, 8, 1, 16, 1, 8, 8, 64e6},
        {"all-gather in a node", MCP_FN_ALL_GATHER, MCP_TENSOR, 4, 1, 32, 1, 4, 4, 64e6},
        {"reduce-scatter, small", MCP_FN_REDUCE_SCATTER, MCP_TENSOR, 8, 1, 16, 1, 8, 8, 1e5},
        {"one port a node", MCP_FN_REDUCE_SCATTER, DP, 8, 1, 16, 1, 16, 1, 1e9},
        {"four ports of a node", MCP_FN_ALL_REDUCE, DP, 2, 1, 64, 1, 64, 4, 1e9},
        {"eight ports", MCP_FN_ALL_GATHER, DP, 1, 1, 128, 1, 128, 8, 1e9},
        {"context and data", MCP_FN_ALL_REDUCE, DP, 4, 2, 16, 1, 32, 2, 1e9},
        {"exchange in a node", MCP_FN_ALL_TO_ALL_V, MCP_EXPERT, 1, 1, 128, 8, 8, 8, 64e6},
        {"exchange over nodes", MCP_FN_ALL_TO_ALL_V, MCP_EXPERT, 1, 1, 128, 32, 32, 8, 64e6},
        {"exchange of context", MCP_FN_ALL_TO_ALL, MCP_CONTEXT, 1, 16, 8, 1, 16, 8, 64e6},
        {"a group of one", MCP_FN_ALL_REDUCE, MCP_TENSOR, 1, 1, 128, 1, 1, 1, 64e6},
        {"nothing to say", MCP_FN_ALL_REDUCE, MCP_TENSOR, 8, 1, 16, 1, 8, 8, 0},
    };
    return cr_make_param_array(struct case_collective, (struct case_collective *)cases,
                               sizeof cases / sizeof *cases);
}

static double collective(const struct case_collective *c)
{
    const double nvlink = 0.8 * 450e9, nic = 0.85 * 50e9;
    double n = c->ranks, g = c->neighbors, M = c->bytes;
    double bus = n > g ? fmin(nvlink, g * nic) : nvlink;
    double latency = 12e-6 + 1e-6 * (g - 1) + 2e-6 * (n / g - 1);
    double ramp = 15e-6 * (1 - exp(-M / 4e6));
    if (n <= 1 || M <= 0)
        return 0;
    if (c->function == MCP_FN_ALL_REDUCE)
        return 1.6 * latency + 2 * M * (n - 1) / n / bus + ramp;
    if (c->function == MCP_FN_ALL_TO_ALL || c->function == MCP_FN_ALL_TO_ALL_V)
        return 12e-6 + fmax(M * (g - 1) / n / nvlink, M * (n - g) / n / nic);
    return latency + M * (n - 1) / n / bus + ramp;
}

static void place(struct setup *s, const struct case_collective *c)
{
    h100(s);
    s->plan.tensor_parallel = c->tensor;
    s->plan.context_parallel = c->context;
    s->plan.data_parallel = c->data;
    s->plan.expert_parallel = c->expert;
}

ParameterizedTest(struct case_collective *c, price, collective)
{
    struct setup s;
    place(&s, c);
    struct mcp_pricing pricing = pricing_of(&s);
    double seconds = mcp_collective_seconds(&pricing, c->function, c->axes, c->bytes);
    cr_expect(epsilon_eq(dbl, seconds, collective(c), 1e-12 + 1e-9 * seconds), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* A dispatcher that sends a token to a node once: N (1 - (1 - 1/N)^k) / k of the bytes. */
Test(price, deduplicated_dispatch)
{
    const struct case_collective c = {"",  MCP_FN_ALL_TO_ALL_V, MCP_EXPERT, 1, 1, 128, 32, 32, 8,
                                      64e6};
    struct setup s;
    place(&s, &c);
    s.model.kinds[0].experts_per_token = 8;
    s.stack.deduplicated_dispatch = true;
    struct mcp_pricing pricing = pricing_of(&s);
    double share = 4 * (1 - pow(0.75, 8)) / 8, nic = 0.85 * 50e9;
    double want = 12e-6 + fmax(64e6 * 7 / 32 / 360e9, 64e6 * 24 / 32 / nic * share);
    cr_expect(
        epsilon_eq(dbl, mcp_collective_seconds(&pricing, c.function, c.axes, c.bytes), want, 1e-9));
    mcp_arena_free(s.arena);
}

struct case_send {
    char name[32];
    int tensor, data, pipeline;
    double bandwidth_bytes_per_s;
};

ParameterizedTestParameters(price, send)
{
    static const struct case_send cases[] = {
        {"between nodes", 8, 2, 8, 0.85 * 50e9},
        {"inside a node", 2, 1, 4, 0.6 * 0.8 * 450e9},
        {"whole nodes apart", 1, 8, 16, 0.85 * 50e9},
    };
    return cr_make_param_array(struct case_send, (struct case_send *)cases,
                               sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_send *c, price, send)
{
    const struct case_collective none = {"", 0, 0, 1, 1, 1, 1, 1, 1, 0};
    struct setup s;
    place(&s, &none);
    s.plan.tensor_parallel = c->tensor;
    s.plan.data_parallel = c->data;
    s.plan.pipeline_parallel = c->pipeline;
    struct mcp_pricing pricing = pricing_of(&s);
    double want = 20e-6 + 64e6 / c->bandwidth_bytes_per_s;
    cr_expect(epsilon_eq(dbl, mcp_send_seconds(&pricing, 0, 1, 64e6), want, 1e-12), "%s", c->name);
    cr_expect(epsilon_eq(dbl, mcp_send_seconds(&pricing, 1, -1, 64e6), want, 1e-12), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* --- what holds for every block of every plan --- */

enum { NUM_PLANS = 60 };

static struct mcp_layer_type layer_of(struct mcp_arena *arena, const struct random_plan *drawn,
                                      int layer)
{
    struct mcp_layer_type type;
    const struct mcp_layer_spec spec = mcp_layer_spec_at(&drawn->question, &drawn->plan, layer);
    mcp_layer_build(arena, &drawn->question, &drawn->plan, &spec, &type);
    return type;
}

/* Embedding, a layer in the middle and the head of many plans. */
static void each_block(void (*check)(struct random_plan *, const struct mcp_block *, const char *))
{
    for (uint64_t seed = 1; seed <= NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        random_plan_draw(arena, seed, &drawn);
        int last = mcp_extended_layers(&drawn.model) - 1;
        const int layers[4] = {0, (last + 1) / 2, last - 1, last};
        for (int i = 0; i < 4; i++) {
            struct mcp_layer_type type = layer_of(arena, &drawn, layers[i]);
            for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
                check(&drawn, &type.blocks[role],
                      mcp_format(arena, "%s of %s: %s", mcp_block_role_names[role], type.name,
                                 random_plan_describe(arena, &drawn)));
        }
        mcp_arena_free(arena);
    }
}

static struct mcp_block_price price_of(const struct random_plan *drawn,
                                       const struct mcp_block *block)
{
    const struct mcp_pricing pricing = {&drawn->question, &drawn->plan};
    struct mcp_block_price price;
    mcp_block_price(&pricing, block, &price);
    return price;
}

static void expect_sums(struct random_plan *drawn, const struct mcp_block *block, const char *where)
{
    struct mcp_block_price price = price_of(drawn, block);
    double sum = 0, flops = 0;
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        cr_expect(price.cost_s[i] >= 0, "%s", where);
        sum += price.cost_s[i];
    }
    for (int i = 0; i < block->num_ops; i++)
        flops += mcp_op_flops(&block->ops[i]);
    cr_expect(epsilon_eq(dbl, sum * 1e9, (double)price.time_ns, 1e-3 * (1 + block->num_ops)), "%s",
              where);
    cr_expect(eq(dbl, price.flops, flops), "%s", where);
    cr_expect(eq(dbl, price.cost_s[MCP_COST_BUBBLE], 0), "%s", where);
}
Test(price, costs_sum_to_the_time)
{
    each_block(expect_sums);
}

/* Exposed communication is part of all of it. */
static void expect_part(struct random_plan *drawn, const struct mcp_block *block, const char *where)
{
    struct mcp_block_price price = price_of(drawn, block);
    for (int i = MCP_COST_TENSOR; i <= MCP_COST_DATA; i++)
        cr_expect(price.cost_s[i] <= price.comm_s[i] + 1e-9 * (1 + block->num_ops), "%s: %s", where,
                  mcp_cost_names[i]);
}
Test(price, exposed_communication_is_part_of_all)
{
    each_block(expect_part);
}

static void expect_overlap(struct random_plan *drawn, const struct mcp_block *block,
                           const char *where)
{
    drawn->plan.overlap = (struct mcp_overlap){.context = true};
    int64_t plain = price_of(drawn, block).time_ns;
    for (int mask = 1; mask < 16; mask++) {
        drawn->plan.overlap =
            (struct mcp_overlap){mask & 1, mask & 2, mask & 4, mask & 8, mask & 2, true};
        cr_expect(price_of(drawn, block).time_ns <= plain, "%s, overlap %d", where, mask);
    }
}
Test(price, overlap_never_slows_a_block)
{
    each_block(expect_overlap);
}

/* Faster parts make no block slower. */
static void expect_faster(struct random_plan *drawn, const struct mcp_block *block,
                          const char *where)
{
    const struct mcp_cluster cluster = drawn->cluster;
    const struct mcp_stack stack = drawn->stack;
    int64_t before = price_of(drawn, block).time_ns;
    for (int part = 0; part < 6; part++) {
        if (part == 0)
            drawn->cluster.gpu.memory_bandwidth_bytes_per_s *= 2;
        for (int i = 0; part == 1 && i < MCP_NUM_PRECISIONS; i++)
            drawn->cluster.gpu.peak_flops_per_s[i] *= 2;
        if (part == 2)
            drawn->cluster.tiers[0].bandwidth_bytes_per_s *= 2;
        if (part == 3)
            drawn->cluster.tiers[drawn->cluster.num_tiers - 1].bandwidth_bytes_per_s *= 2;
        if (part == 4)
            drawn->stack.host_launch_s /= 2;
        if (part == 5)
            drawn->stack.elementwise_factor *= 0.9;
        /* each op's nanoseconds are rounded */
        cr_expect(price_of(drawn, block).time_ns <= before + 1, "%s, part %d", where, part);
        drawn->cluster = cluster;
        drawn->stack = stack;
    }
}
Test(price, better_machines_are_never_slower)
{
    each_block(expect_faster);
}

Test(price, more_bytes_are_never_faster)
{
    for (uint64_t seed = 1; seed <= NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        random_plan_draw(arena, seed, &drawn);
        const struct mcp_pricing pricing = {&drawn.question, &drawn.plan};
        static const unsigned axes[] = {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_EXPERT};
        static const enum mcp_function functions[] = {MCP_FN_ALL_REDUCE, MCP_FN_ALL_GATHER,
                                                      MCP_FN_ALL_TO_ALL, MCP_FN_ALL_TO_ALL_V};
        for (int a = 0; a < 4; a++)
            for (int f = 0; f < 4; f++) {
                double last = 0;
                for (double bytes = 1; bytes < 1e11; bytes *= 3) {
                    double s = mcp_collective_seconds(&pricing, functions[f], axes[a], bytes);
                    cr_expect(s >= last, "%s", random_plan_describe(arena, &drawn));
                    last = s;
                }
            }
        mcp_arena_free(arena);
    }
}

/* --- the host --- */

/* A layer too small for its GPU takes as long as its launches. */
Test(price, launches_bound_small_blocks)
{
    struct setup s;
    setup_load(&s, "gpt2", "dgx-h100", "megatron-core");
    s.job.sequence_length = 64;
    s.stack.host_launch_s = 20e-6;
    s.stack.graph_launch_frac = 0.15;
    struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    struct mcp_pricing pricing = pricing_of(&s);
    struct mcp_block_price slow, fast;
    mcp_block_price(&pricing, &type.blocks[MCP_FORWARD], &slow);
    /* norms 2, layout 2, attention 2, products 4, activation 1, residuals 4 */
    cr_expect(eq(int, slow.launches, 15));
    cr_expect(eq(i64, slow.time_ns, 15 * 20000));
    s.stack.cuda_graph = true;
    mcp_block_price(&pricing, &type.blocks[MCP_FORWARD], &fast);
    cr_expect(eq(i64, fast.time_ns, slow.time_ns - llround(slow.cost_s[MCP_COST_HOST] * 1e9)));
    cr_expect(eq(dbl, fast.cost_s[MCP_COST_HOST], 0));
    mcp_arena_free(s.arena);
}

/* --- what a stack can hide --- */

Test(price, pieces_of_transfers_hide_within_a_domain_alone)
{
    struct setup s;
    const struct mcp_op op = {.function = MCP_FN_REDUCE_SCATTER,
                              .stream = MCP_STREAM_TENSOR,
                              .group = MCP_TENSOR,
                              .hiding = MCP_HIDE_CHUNKED};
    h100(&s);
    s.stack.tensor_overlap_frac = 0.6;
    s.plan.sequence_parallel = true;
    s.plan.overlap.tensor = true;
    const struct mcp_pricing pricing = {&s.question, &s.plan};
    s.plan.tensor_parallel = 8;
    cr_expect(epsilon_eq(dbl, mcp_op_exposed_frac(&pricing, &op), 0.4, 1e-12));
    s.plan.tensor_parallel = 16; /* two nodes */
    cr_expect(eq(dbl, mcp_op_exposed_frac(&pricing, &op), 1));
    mcp_arena_free(s.arena);
}
