/* tests/exec/test_kernels_step.c: what is not products or attention: activations, bf16,
 * the loss over a cut vocabulary, tokens of every rank, the update and its norm. */
#include "kit.h"

#include "core/mesh.h"
#include "exec/cpu_kernels_math.h"
#include "step/weights.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <omp.h>

Test(kernels, exponentials)
{
    double worst = 0;
    for (float x = -87; x < 88; x += 0.0137f) {
        double want = exp((double)x), error = fabs((double)mcp_expf(x) - want) / want;
        worst = !(error <= worst) && !isnan(worst) ? error : worst;
    }
    cr_expect(worst <= 2.5e-7, "off by %g", worst);
    cr_expect(isnan(mcp_expf(NAN)));
    cr_expect(mcp_expf(-INFINITY) < 1e-37f && mcp_expf(1000) > 1e38f);
}

/* --- activations: values and slopes --- */

struct case_activation {
    char name[24];
    enum mcp_activation kind;
    bool gated;
};

ParameterizedTestParameters(kernels, activations)
{
    static struct case_activation cases[] = {
        {"silu, gated", MCP_ACTIVATION_SILU, true},
        {"gelu by tanh", MCP_ACTIVATION_GELU_TANH, false},
        {"gelu by tanh, gated", MCP_ACTIVATION_GELU_TANH, true},
        {"gelu by erf", MCP_ACTIVATION_GELU, false},
        {"relu", MCP_ACTIVATION_RELU, false},
    };
    return cr_make_param_array(struct case_activation, cases, sizeof cases / sizeof *cases);
}

static double activate(enum mcp_activation kind, double x)
{
    switch (kind) {
    case MCP_ACTIVATION_SILU:
        return x / (1 + exp(-x));
    case MCP_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x)));
    case MCP_ACTIVATION_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    default:
        return x > 0 ? x : 0;
    }
}

static double slope(enum mcp_activation kind, double x)
{
    return (activate(kind, x + 1e-5) - activate(kind, x - 1e-5)) / 2e-5;
}

enum { ROWS = 3, WIDTH = 517 };

/* Up to 8 either way, where tails are. */
static int wide_buffer(struct kit *kit, int64_t elements)
{
    int buffer = kit_random_buffer(kit, MCP_F32, elements);
    for (int64_t i = 0; i < elements; i++)
        kit_set(kit, buffer, i, 8 * kit_get(kit, buffer, i));
    return buffer;
}

ParameterizedTest(struct case_activation *c, kernels, activations)
{
    static struct kit kit;
    kit_new(&kit);
    int64_t parts = c->gated ? 2 : 1, n = ROWS * WIDTH;
    kit.type.facts.activation = c->kind;
    kit.type.facts.gated = c->gated;
    int up = wide_buffer(&kit, parts * n), d = kit_random_buffer(&kit, MCP_F32, n);
    int out = kit_buffer(&kit, MCP_F32, n), d_up = kit_buffer(&kit, MCP_F32, parts * n);
    double *want = MCP_ARRAY(kit.arena, n, double),
           *d_want = MCP_ARRAY(kit.arena, parts * n, double);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / WIDTH * parts * WIDTH + i % WIDTH;
        double x = kit_get(&kit, up, at), y = c->gated ? kit_get(&kit, up, at + WIDTH) : 1;
        want[i] = activate(c->kind, x) * y;
        d_want[at] = kit_get(&kit, d, i) * slope(c->kind, x) * y;
        if (c->gated)
            d_want[at + WIDTH] = kit_get(&kit, d, i) * activate(c->kind, x);
    }
    KIT_OP(&kit, c->gated ? MCP_FN_SWIGLU_FORWARD : MCP_FN_GELU_FORWARD, ROWS, WIDTH);
    kit_read(&kit, up);
    kit_write(&kit, out);
    kit_run(&kit);
    KIT_OP(&kit, c->gated ? MCP_FN_SWIGLU_BACKWARD : MCP_FN_GELU_BACKWARD, ROWS, WIDTH);
    kit_read(&kit, d);
    kit_read(&kit, up);
    kit_write(&kit, d_up);
    kit_run(&kit);
    cr_expect(eq(int, kit_different(&kit, out, want, 1e-6), 0), "%s: values", c->name);
    cr_expect(eq(int, kit_different(&kit, d_up, d_want, 1e-6), 0), "%s: slopes", c->name);
    mcp_arena_free(kit.arena);
}

/* --- bf16 is fp32 that is rounded --- */

struct case_rounding {
    enum mcp_function function;
    int64_t rows, columns;
    int64_t reads[4], writes[2]; /* elements; 0: none */
    int sums;                    /* of the writes, the first that is added to, or 9 */
};

ParameterizedTestParameters(kernels, rounding)
{
    static struct case_rounding cases[] = {
        {MCP_FN_NORM_FORWARD, 5, 700, {3500}, {3500}, 9},
        {MCP_FN_NORM_BACKWARD, 5, 700, {3500, 3500, 3500}, {3500}, 9},
        {MCP_FN_RESIDUAL_FORWARD, 5, 700, {3500, 3500}, {3500}, 9},
        {MCP_FN_RESIDUAL_BACKWARD, 5, 700, {3500}, {3500}, 9},
        {MCP_FN_ADD, 5, 700, {3500, 3500}, {3500}, 9},
        {MCP_FN_COPY, 5, 700, {3500}, {3500}, 9},
        {MCP_FN_GELU_FORWARD, 5, 700, {3500}, {3500}, 9},
        {MCP_FN_GELU_BACKWARD, 5, 700, {3500, 3500}, {3500}, 9},
        {MCP_FN_ROTARY_FORWARD, 6, 40, {6 * 56}, {6 * 24, 6 * 32}, 9},
        {MCP_FN_ROTARY_BACKWARD, 6, 40, {6 * 24, 6 * 32}, {6 * 56}, 9},
        {MCP_FN_BIAS_FORWARD, 6, 40, {6 * 56}, {6 * 24, 6 * 32}, 9},
        {MCP_FN_BIAS_BACKWARD, 7, 130, {910}, {130}, 0},
        {MCP_FN_LOSS_BACKWARD, 4, 700, {2800, 4}, {2800}, 9},
    };
    return cr_make_param_array(struct case_rounding, cases, sizeof cases / sizeof *cases);
}

static void rounding_facts(struct kit *kit)
{
    kit->rank.inputs.tokens = 4;
    kit->type.facts = (struct mcp_layer_facts){.microbatch_size = 2,
                                               .sequence_local = 3,
                                               .heads = 3,
                                               .kv_heads = 2,
                                               .head_dim = 8,
                                               .value_head_dim = 8,
                                               .rotary_dim = 8,
                                               .rotary_base = 50,
                                               .norm_epsilon = 1e-5,
                                               .norm_centers = 1,
                                               .activation = MCP_ACTIVATION_GELU_TANH};
}

/* The same numbers in either format; returns the first write. */
static void run_rounding(struct kit *kit, const struct case_rounding *c, enum mcp_dtype dtype,
                         int writes[2])
{
    kit->seed = 7;
    KIT_OP(kit, c->function, c->rows, c->columns);
    for (int i = 0; i < 4 && c->reads[i] > 0; i++)
        kit_read(kit, kit_random_buffer(kit, dtype, c->reads[i]));
    for (int i = 0; i < 2 && c->writes[i] > 0; i++) {
        writes[i] = kit_buffer(kit, dtype, c->writes[i]);
        if (i >= c->sums)
            kit_fill(kit, writes[i]);
        kit_write(kit, writes[i]);
    }
    kit_run(kit);
}

ParameterizedTest(struct case_rounding *c, kernels, rounding)
{
    static struct kit kit;
    kit_new(&kit);
    rounding_facts(&kit);
    int exact[2], rounded[2];
    run_rounding(&kit, c, MCP_F32, exact);
    run_rounding(&kit, c, MCP_BF16, rounded);
    for (int i = 0; i < 2 && c->writes[i] > 0; i++) {
        double *want = MCP_ARRAY(kit.arena, c->writes[i], double);
        for (int64_t k = 0; k < c->writes[i]; k++)
            want[k] = kit_get(&kit, exact[i], k);
        cr_expect(eq(int, kit_different(&kit, rounded[i], want, 4e-3), 0), "%s, write %d",
                  mcp_functions[c->function].name, i);
    }
    mcp_arena_free(kit.arena);
}

/* --- the loss, its vocabulary cut over tensor ranks --- */

struct case_loss {
    char name[32];
    int tensor;
    int64_t vocabulary, local; /* tokens of all; columns of a rank, padded */
    double scale;              /* of logits */
};

ParameterizedTestParameters(kernels, loss)
{
    static struct case_loss cases[] = {
        {"one rank", 1, 700, 768, 1},
        {"three ranks", 3, 700, 256, 1},
        {"a rank of padding", 4, 40, 16, 1},
        {"large logits", 2, 100, 64, 90},
    };
    return cr_make_param_array(struct case_loss, cases, sizeof cases / sizeof *cases);
}

enum { TOKENS = 5 };

struct loss {
    struct kit *kit;
    const struct case_loss *c;
    int logits[4], numbers[4], sum[4], targets;
};

static void run_loss(struct loss *l, enum mcp_function function, int rank)
{
    struct kit *kit = l->kit;
    bool max = function == MCP_FN_LOSS_MAX, last = function == MCP_FN_LOSS_FORWARD;
    kit->rank.at.tensor = rank;
    KIT_OP(kit, function, TOKENS, last ? l->c->local : 3, l->c->local);
    if (max || last)
        kit_read(kit, l->logits[rank]);
    if (!max)
        kit_read(kit, l->numbers[rank]);
    if (max || last)
        kit_read(kit, l->targets);
    kit_write(kit, last ? l->sum[rank] : l->numbers[rank]);
    if (max || last)
        kit_write(kit, l->logits[rank]);
    kit_run(kit);
}

/* The collective between two ops: maxima of the first third, or sums of the rest. */
static void reduce_numbers(struct loss *l, bool max)
{
    for (int i = max ? 0 : TOKENS; i < (max ? TOKENS : 3 * TOKENS); i++) {
        double all = kit_get(l->kit, l->numbers[0], i);
        for (int r = 1; r < l->c->tensor; r++) {
            double other = kit_get(l->kit, l->numbers[r], i);
            all = max ? fmax(all, other) : all + other;
        }
        for (int r = 0; r < l->c->tensor; r++)
            kit_set(l->kit, l->numbers[r], i, all);
    }
}

/* Loss of one token in double; *out becomes its gradient, [vocabulary]. */
static double loss_of(const struct case_loss *c, const double *logits, int target, double *out)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < c->vocabulary; i++)
        largest = fmax(largest, logits[i]);
    for (int64_t i = 0; i < c->vocabulary; i++)
        sum += exp(logits[i] - largest);
    for (int64_t i = 0; i < c->vocabulary; i++)
        out[i] = exp(logits[i] - largest) / sum - (i == target);
    return log(sum) + largest - logits[target];
}

static void new_loss(struct loss *l, int32_t *targets)
{
    struct kit *kit = l->kit;
    kit->type.facts.vocab_size = l->c->vocabulary;
    kit->type.facts.vocab_local = l->c->local;
    l->targets = kit_buffer(kit, MCP_I32, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        targets[i] = (int32_t)((i * 37 + 5) % l->c->vocabulary);
    memcpy(kit->memory[l->targets], targets, TOKENS * sizeof *targets);
    for (int r = 0; r < l->c->tensor; r++) {
        l->logits[r] = kit_random_buffer(kit, MCP_F32, TOKENS * l->c->local);
        l->numbers[r] = kit_buffer(kit, MCP_F32, 3 * TOKENS);
        l->sum[r] = kit_buffer(kit, MCP_F32, 1);
        kit_set(kit, l->sum[r], 0, 0);
        for (int64_t i = 0; i < TOKENS * l->c->local; i++)
            kit_set(kit, l->logits[r], i, l->c->scale * kit_get(kit, l->logits[r], i));
    }
}

ParameterizedTest(struct case_loss *c, kernels, loss)
{
    static struct kit kit;
    kit_new(&kit);
    struct loss l = {.kit = &kit, .c = c};
    int32_t targets[TOKENS];
    double want = 0;
    new_loss(&l, targets);
    double *whole = MCP_ARRAY(kit.arena, c->tensor * c->local, double);
    double *gradients = MCP_ARRAY(kit.arena, TOKENS * c->tensor * c->local, double);
    for (int t = 0; t < TOKENS; t++) {
        for (int64_t i = 0; i < c->tensor * c->local; i++)
            whole[i] = kit_get(&kit, l.logits[i / c->local], t * c->local + i % c->local);
        want += loss_of(c, whole, targets[t], gradients + t * c->tensor * c->local);
    }
    for (int r = 0; r < c->tensor; r++)
        run_loss(&l, MCP_FN_LOSS_MAX, r);
    reduce_numbers(&l, true);
    for (int r = 0; r < c->tensor; r++)
        run_loss(&l, MCP_FN_LOSS_SUMS, r);
    reduce_numbers(&l, false);
    for (int r = 0; r < c->tensor; r++) {
        run_loss(&l, MCP_FN_LOSS_FORWARD, r);
        double got = kit_get(&kit, l.sum[r], 0);
        cr_expect(fabs(got - want) <= 1e-5 * want, "%s: %.8g for %.8g", c->name, got, want);
        double *mine = MCP_ARRAY(kit.arena, TOKENS * c->local, double);
        for (int64_t i = 0; i < TOKENS * c->local; i++)
            mine[i] = gradients[(i / c->local * c->tensor + r) * c->local + i % c->local];
        for (int64_t i = 0; i < TOKENS * c->local; i++) {
            double error = kit_get(&kit, l.logits[r], i) - mine[i];
            cr_assert(error <= 2e-5 && error >= -2e-5, "%s: gradient %lld of rank %d", c->name,
                      (long long)i, r);
        }
    }
    mcp_arena_free(kit.arena);
}

/* --- tokens --- */

static const int32_t *numbered(void *context, int64_t index)
{
    int32_t *ids = context;
    for (int i = 0; i < 64; i++)
        ids[i] = (int32_t)(index * 64 + i);
    return ids;
}

struct case_tokens {
    int data, context, microbatch_size, num_microbatches, ahead;
    int64_t sequence;
};

ParameterizedTestParameters(kernels, tokens)
{
    static struct case_tokens cases[] = {
        {1, 1, 1, 1, 0, 11}, {2, 1, 3, 2, 1, 11}, {1, 3, 2, 1, 0, 12},
        {2, 4, 1, 3, 1, 16}, {1, 3, 1, 2, 0, 9},
    };
    return cr_make_param_array(struct case_tokens, cases, sizeof cases / sizeof *cases);
}

/* Every position of every sequence comes to one rank and microbatch, and to one only. */
ParameterizedTest(struct case_tokens *c, kernels, tokens)
{
    static struct kit kit;
    static int32_t ids[64];
    static int seen[64 * 64];
    const struct mcp_batch batch = {.sequence = numbered, .context = ids};
    kit_new(&kit);
    memset(seen, 0, sizeof seen);
    kit.rank.batch = &batch;
    kit.program.plan.data_parallel = c->data;
    kit.program.plan.context_parallel = c->context;
    kit.program.plan.microbatch_size = (int)c->microbatch_size;
    int64_t local = c->sequence / c->context, count = local * c->microbatch_size;
    kit.type.facts =
        (struct mcp_layer_facts){.microbatch_size = c->microbatch_size,
                                 .sequence_local = local,
                                 .zigzag = c->sequence % (2 * c->context) == 0 && c->context > 1};
    int out = kit_buffer(&kit, MCP_I32, count);
    for (int i = 0; i < c->data * c->context * c->num_microbatches; i++) {
        kit.rank.rank = i % (c->data * c->context);
        kit.rank.at = mcp_mesh_coordinate(&kit.program.plan, kit.rank.rank);
        KIT_OP(&kit, MCP_FN_LOAD_MICROBATCH, count, 1, c->ahead);
        kit.launch.microbatch = i / c->data / c->context;
        kit_write(&kit, out);
        kit_run(&kit);
        for (int64_t k = 0; k < count; k++)
            seen[((const int32_t *)kit.memory[out])[k]]++;
    }
    int64_t sequences = c->data * c->microbatch_size * c->num_microbatches;
    for (int64_t i = 0; i < 64 * 64; i++) {
        int64_t position = i % 64 - c->ahead;
        bool wanted = i / 64 < sequences && position >= 0 && position < c->sequence;
        cr_assert(seen[i] == wanted, "token %lld: %d times", (long long)i, seen[i]);
    }
    mcp_arena_free(kit.arena);
}

/* --- threads --- */

struct case_threads {
    enum mcp_function function;
};

ParameterizedTestParameters(kernels, threads)
{
    static struct case_threads cases[] = {
        {MCP_FN_NORM_BACKWARD}, {MCP_FN_BIAS_BACKWARD},      {MCP_FN_ATTENTION_FORWARD},
        {MCP_FN_SUM_SQUARES},   {MCP_FN_ATTENTION_BACKWARD},
    };
    return cr_make_param_array(struct case_threads, cases, sizeof cases / sizeof *cases);
}

enum { TALL = 300, BROAD = 640 };

static void threads_facts(struct kit *kit)
{
    kit->type.facts = (struct mcp_layer_facts){.microbatch_size = 2,
                                               .sequence_local = TALL / 2,
                                               .heads = 5,
                                               .kv_heads = 5,
                                               .head_dim = 128,
                                               .value_head_dim = 128,
                                               .softmax_scale = 0.1,
                                               .norm_epsilon = 1e-5,
                                               .norm_centers = 1};
}

/* dy, x, output or nothing, ...: as many as any of them reads; values like each other. */
static void run_on(struct kit *kit, enum mcp_function function, int threads, int writes[2])
{
    static const int reads[MCP_NUM_FUNCTIONS] = {[MCP_FN_NORM_BACKWARD] = 3,
                                                 [MCP_FN_BIAS_BACKWARD] = 1,
                                                 [MCP_FN_SUM_SQUARES] = 1,
                                                 [MCP_FN_ATTENTION_FORWARD] = 2,
                                                 [MCP_FN_ATTENTION_BACKWARD] = 5};
    bool sums = function == MCP_FN_SUM_SQUARES;
    kit->seed = 3;
    omp_set_num_threads(threads);
    KIT_OP(kit, function, sums ? TALL * BROAD : TALL, sums ? 1 : BROAD, TALL * BROAD);
    for (int i = 0; i < reads[function]; i++)
        kit_read(kit, kit_random_buffer(kit, MCP_F32,
                                        (int64_t)TALL * BROAD *
                                            (function < MCP_FN_SCAN_FORWARD && i == 1 ? 2 : 1)));
    for (int i = 0; i < 2; i++) {
        writes[i] = kit_buffer(kit, MCP_F32, (int64_t)TALL * BROAD * 2);
        memset(kit->memory[writes[i]], 0, (size_t)kit_bytes(kit, writes[i]));
        kit_write(kit, writes[i]);
    }
    kit_run(kit);
}

/* The same bits on one thread and on three. */
ParameterizedTest(struct case_threads *c, kernels, threads)
{
    static struct kit kit;
    int one[2], three[2];
    kit_new(&kit);
    threads_facts(&kit);
    run_on(&kit, c->function, 1, one);
    run_on(&kit, c->function, 3, three);
    for (int i = 0; i < 2; i++)
        cr_expect(
            memcmp(kit.memory[one[i]], kit.memory[three[i]], (size_t)kit_bytes(&kit, one[i])) == 0,
            "%s, write %d", mcp_functions[c->function].name, i);
    cr_expect(kit_get(&kit, one[0], 0) != 0);
    mcp_arena_free(kit.arena);
}
