/* tests/exec/test_kernels.c: products and attention against plain loops in double. */
#include "kit.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>

static double tolerance_of(enum mcp_dtype dtype)
{
    return dtype == MCP_F32 ? 1e-6 : 4e-3; /* bf16: one rounding */
}

/* --- products --- */

struct case_product {
    char name[40];
    enum mcp_function function;
    int64_t m, n, k;
    enum mcp_dtype dtype, accumulator;
};

ParameterizedTestParameters(kernels, products)
{
    static struct case_product cases[] = {
        {"forward", MCP_FN_MATMUL_NT, 7, 13, 5, MCP_F32, MCP_F32},
        {"forward, bf16", MCP_FN_MATMUL_NT, 7, 13, 5, MCP_BF16, MCP_BF16},
        {"forward, bf16, blocks", MCP_FN_MATMUL_NT, 101, 99, 300, MCP_BF16, MCP_BF16},
        {"input gradient", MCP_FN_MATMUL_NN, 7, 13, 5, MCP_F32, MCP_F32},
        {"input gradient, bf16, blocks", MCP_FN_MATMUL_NN, 97, 103, 259, MCP_BF16, MCP_BF16},
        {"weight gradient", MCP_FN_MATMUL_TN_ACCUMULATE, 7, 13, 5, MCP_F32, MCP_F32},
        {"weight gradient, bf16 in fp32", MCP_FN_MATMUL_TN_ACCUMULATE, 97, 101, 263, MCP_BF16,
         MCP_F32},
        {"one number", MCP_FN_MATMUL_NT, 1, 1, 1, MCP_F32, MCP_F32},
    };
    return cr_make_param_array(struct case_product, cases, sizeof cases / sizeof *cases);
}

/* a[i][l] b[l][j] as the function has them lie. */
static double element(const struct kit *kit, const struct case_product *c, const int buffers[2],
                      int64_t i, int64_t j)
{
    bool nt = c->function == MCP_FN_MATMUL_NT, nn = c->function == MCP_FN_MATMUL_NN;
    double sum = 0;
    for (int64_t l = 0; l < c->k; l++) {
        int64_t a = nt || nn ? i * c->k + l : l * c->m + i;
        int64_t b = nt ? j * c->k + l : l * c->n + j;
        sum += kit_get(kit, buffers[0], a) * kit_get(kit, buffers[1], b);
    }
    return sum;
}

ParameterizedTest(struct case_product *c, kernels, products)
{
    struct kit kit;
    kit_new(&kit);
    const int in[2] = {kit_random_buffer(&kit, c->dtype, c->m * c->k),
                       kit_random_buffer(&kit, c->dtype, c->k * c->n)};
    int out = kit_buffer(&kit, c->accumulator, c->m * c->n);
    double *want = MCP_ARRAY(kit.arena, c->m * c->n, double);
    bool adds = c->function == MCP_FN_MATMUL_TN_ACCUMULATE;
    if (adds)
        kit_fill(&kit, out);
    for (int64_t i = 0; i < c->m * c->n; i++)
        want[i] = element(&kit, c, in, i / c->n, i % c->n) + (adds ? kit_get(&kit, out, i) : 0);
    KIT_OP(&kit, c->function, c->m, c->n, c->k, 1);
    kit_read(&kit, in[0]);
    kit_read(&kit, in[1]);
    kit_write(&kit, out);
    kit_run(&kit);
    cr_expect(eq(int, kit_different(&kit, out, want, tolerance_of(c->accumulator)), 0), "%s",
              c->name);
    mcp_arena_free(kit.arena);
}

/* --- products that go on with what they have --- */

struct case_epilogue {
    char name[40];
    enum mcp_function function;
    int64_t m, n, k;
    enum mcp_dtype dtype;
    bool biased;
};

ParameterizedTestParameters(kernels, epilogues)
{
    static struct case_epilogue cases[] = {
        {"a bias", MCP_FN_MATMUL_NT_BIAS, 7, 13, 5, MCP_F32, true},
        {"a bias, bf16", MCP_FN_MATMUL_NT_BIAS, 3, 700, 9, MCP_BF16, true},
        {"GELU", MCP_FN_MATMUL_NT_GELU, 7, 13, 5, MCP_F32, false},
        {"a bias, then GELU", MCP_FN_MATMUL_NT_GELU, 4, 530, 5, MCP_F32, true},
        {"a bias, then GELU, bf16", MCP_FN_MATMUL_NT_GELU, 7, 16, 5, MCP_BF16, true},
    };
    return cr_make_param_array(struct case_epilogue, cases, sizeof cases / sizeof *cases);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/* The weights from their third row on, and the bias behind them, from its own. Of 16 bits the
 * product is rounded, and so is the sum. */
ParameterizedTest(struct case_epilogue *c, kernels, epilogues)
{
    enum { FIRST = 2 };
    struct kit kit;
    struct mcp_weight weights[2] = {
        {.name = "up", .rows = c->n + FIRST, .columns = c->k, .copies = 1},
        {.name = "up_bias", .rows = c->n + FIRST, .columns = 1, .copies = 1}};
    const int64_t bias = (c->n + FIRST) * c->k + FIRST;
    kit_new(&kit);
    kit.type.weights = weights;
    kit.type.num_weights = 2;
    int x = kit_random_buffer(&kit, c->dtype, c->m * c->k);
    int w = kit_random_buffer(&kit, c->dtype, (c->n + FIRST) * (c->k + 1));
    int y = kit_buffer(&kit, c->dtype, c->m * c->n),
        active = kit_buffer(&kit, c->dtype, c->m * c->n);
    double *sums = MCP_ARRAY(kit.arena, c->m * c->n, double);
    double *values = MCP_ARRAY(kit.arena, c->m * c->n, double);
    for (int64_t i = 0; i < c->m * c->n; i++) {
        for (int64_t l = 0; l < c->k; l++)
            sums[i] += kit_get(&kit, x, i / c->n * c->k + l) *
                       kit_get(&kit, w, (FIRST + i % c->n) * c->k + l);
        sums[i] += c->biased ? kit_get(&kit, w, bias + i % c->n) : 0;
        values[i] = gelu(sums[i]);
    }
    KIT_OP(&kit, c->function, c->m, c->n, c->k, 1, FIRST, c->biased ? 2 : 0);
    kit.op.weight = 0;
    kit_read(&kit, x);
    kit_read(&kit, w);
    kit_write(&kit, y);
    if (c->function == MCP_FN_MATMUL_NT_GELU)
        kit_write(&kit, active);
    kit_run(&kit);
    const double tolerance = 2 * tolerance_of(c->dtype);
    cr_expect(eq(int, kit_different(&kit, y, sums, tolerance), 0), "%s", c->name);
    if (c->function == MCP_FN_MATMUL_NT_GELU)
        cr_expect(eq(int, kit_different(&kit, active, values, tolerance), 0), "%s", c->name);
    mcp_arena_free(kit.arena);
}

/* --- attention: the whole of it in double, and on the ranks of a context group --- */

struct case_attention {
    char name[40];
    int64_t batch, sequence, heads, kv_heads, width, value_width, window, chunk;
    enum mcp_dtype dtype;
    int ranks;
    enum mcp_context_kind kind;
};

ParameterizedTestParameters(kernels, attention)
{
    static struct case_attention cases[] = {
        {"one tile", 2, 11, 3, 3, 8, 8, 0, 0, MCP_F32, 1, MCP_CONTEXT_RING},
        {"several tiles", 1, 151, 2, 2, 24, 24, 0, 0, MCP_F32, 1, MCP_CONTEXT_RING},
        {"grouped heads", 2, 70, 6, 2, 10, 10, 0, 0, MCP_F32, 1, MCP_CONTEXT_RING},
        {"a window", 1, 150, 2, 1, 12, 12, 37, 0, MCP_F32, 1, MCP_CONTEXT_RING},
        {"chunks", 1, 150, 2, 1, 12, 12, 0, 40, MCP_F32, 1, MCP_CONTEXT_RING},
        {"narrow values", 1, 67, 2, 2, 20, 7, 0, 0, MCP_F32, 1, MCP_CONTEXT_RING},
        {"one token", 3, 1, 2, 2, 8, 8, 0, 0, MCP_F32, 1, MCP_CONTEXT_RING},
        {"wide heads", 1, 65, 1, 1, 256, 256, 0, 0, MCP_F32, 1, MCP_CONTEXT_RING},
        {"bf16", 2, 70, 4, 2, 16, 16, 0, 0, MCP_BF16, 1, MCP_CONTEXT_RING},
        {"a ring of 2", 2, 20, 4, 2, 8, 8, 0, 0, MCP_F32, 2, MCP_CONTEXT_RING},
        {"a ring of 4", 1, 136, 4, 2, 8, 8, 0, 0, MCP_F32, 4, MCP_CONTEXT_RING},
        {"a ring with a window", 2, 48, 4, 2, 8, 8, 9, 0, MCP_F32, 4, MCP_CONTEXT_RING},
        {"a ring of 3 unequal cuts", 1, 27, 2, 2, 8, 8, 0, 0, MCP_F32, 3, MCP_CONTEXT_RING},
        {"gathered keys", 2, 40, 4, 2, 8, 8, 0, 0, MCP_F32, 4, MCP_CONTEXT_ALL_GATHER},
        {"gathered keys, no zigzag", 2, 36, 4, 2, 8, 8, 0, 0, MCP_F32, 4, MCP_CONTEXT_ALL_GATHER},
        {"heads for tokens", 2, 40, 8, 4, 6, 6, 0, 0, MCP_F32, 4, MCP_CONTEXT_ALL_TO_ALL},
        {"heads for tokens, a window", 2, 18, 4, 2, 6, 5, 7, 0, MCP_F32, 2, MCP_CONTEXT_ALL_TO_ALL},
    };
    return cr_make_param_array(struct case_attention, cases, sizeof cases / sizeof *cases);
}

/* What the whole group holds, by sequence and position, in double. */
struct whole {
    const struct case_attention *c;
    double *query, *kv, *output, *d_output, *d_query, *d_kv;
    double *weight; /* of one query, [sequence] */
};

static int64_t kv_columns(const struct case_attention *c)
{
    return c->kv_heads * (c->width + c->value_width);
}

static double *key(const struct whole *w, double *kv, int64_t row, int64_t head)
{
    return kv + row * kv_columns(w->c) + head * w->c->width;
}

static double *value(const struct whole *w, double *kv, int64_t row, int64_t head)
{
    return kv + row * kv_columns(w->c) + w->c->kv_heads * w->c->width + head * w->c->value_width;
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static bool sees(const struct case_attention *c, int64_t query, int64_t at)
{
    bool in_window = c->window == 0 || at > query - c->window;
    bool in_chunk = c->chunk == 0 || at / c->chunk == query / c->chunk;
    return at <= query && in_window && in_chunk;
}

/* One query: its output, and what it adds to all gradients. */
static void attend(struct whole *w, int64_t b, int64_t position, int64_t head)
{
    const struct case_attention *c = w->c;
    int64_t first = b * c->sequence, row = first + position, kv = head / (c->heads / c->kv_heads);
    const double *q = w->query + (row * c->heads + head) * c->width;
    const double *d_out = w->d_output + (row * c->heads + head) * c->value_width;
    double *out = w->output + (row * c->heads + head) * c->value_width;
    double *dq = w->d_query + (row * c->heads + head) * c->width;
    double scale = 1 / sqrt((double)c->width), sum = 0;
    for (int64_t j = 0; j < c->sequence; j++) {
        double score = scale * dot(q, key(w, w->kv, first + j, kv), c->width);
        w->weight[j] = sees(c, position, j) ? exp(score) : 0;
        sum += w->weight[j];
    }
    for (int64_t j = 0; j < c->sequence; j++)
        for (int64_t d = 0; d < c->value_width; d++)
            out[d] += w->weight[j] / sum * value(w, w->kv, first + j, kv)[d];
    double inner = dot(out, d_out, c->value_width);
    for (int64_t j = 0; j < c->sequence; j++) {
        double p = w->weight[j] / sum, *v = value(w, w->kv, first + j, kv);
        double ds = p * (dot(d_out, v, c->value_width) - inner) * scale;
        for (int64_t d = 0; d < c->value_width; d++)
            value(w, w->d_kv, first + j, kv)[d] += p * d_out[d];
        for (int64_t d = 0; d < c->width; d++) {
            dq[d] += ds * key(w, w->kv, first + j, kv)[d];
            key(w, w->d_kv, first + j, kv)[d] += ds * q[d];
        }
    }
}

static double *doubles(struct kit *kit, int64_t count, bool random)
{
    double *values = MCP_ARRAY(kit->arena, count, double);
    for (int64_t i = 0; i < count; i++)
        values[i] = random ? kit_random(kit) : 0;
    return values;
}

static void attend_all(struct kit *kit, const struct case_attention *c, struct whole *w)
{
    int64_t tokens = c->batch * c->sequence;
    w->c = c;
    w->query = doubles(kit, tokens * c->heads * c->width, true);
    w->kv = doubles(kit, tokens * kv_columns(c), true);
    w->d_output = doubles(kit, tokens * c->heads * c->value_width, true);
    w->output = doubles(kit, tokens * c->heads * c->value_width, false);
    w->d_query = doubles(kit, tokens * c->heads * c->width, false);
    w->d_kv = doubles(kit, tokens * kv_columns(c), false);
    w->weight = doubles(kit, c->sequence, false);
    for (int64_t i = 0; i < tokens * c->heads; i++)
        attend(w, i / c->heads / c->sequence, i / c->heads % c->sequence, i % c->heads);
}

/* --- the group: one kit, buffers of every rank --- */

enum { MAX_RANKS = 4 };

struct group {
    struct kit *kit;
    const struct case_attention *c;
    int64_t local; /* tokens of a rank */
    int query[MAX_RANKS], kv[MAX_RANKS], output[MAX_RANKS], statistics[MAX_RANKS];
    int d_output[MAX_RANKS], d_query[MAX_RANKS], d_kv[MAX_RANKS];
};

static void set_facts(struct kit *kit, const struct case_attention *c)
{
    struct mcp_plan *plan = &kit->program.plan;
    plan->context_parallel = c->ranks;
    plan->context_parallel_kind = c->kind;
    kit->type.facts = (struct mcp_layer_facts){
        .microbatch_size = c->batch,
        .sequence_length = c->sequence,
        .sequence_local = c->sequence / c->ranks,
        .zigzag = c->ranks > 1 && c->sequence % (2 * c->ranks) == 0,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->width,
        .value_head_dim = c->value_width,
        .sliding_window = c->window,
        .attention_chunk_size = c->chunk,
        .softmax_scale = 1 / sqrt((double)c->width),
    };
}

/* Whole row of local row `row` of a rank: zigzag pieces, or one piece. */
static int64_t whole_row(const struct group *g, int rank, int64_t row)
{
    const struct case_attention *c = g->c;
    int64_t count = c->sequence / c->ranks, local = row % count, half = count / 2;
    int64_t position = rank * count + local;
    if (c->ranks > 1 && c->sequence % (2 * c->ranks) == 0)
        position =
            local < half ? rank * half + local : (2 * c->ranks - 1 - rank) * half + local - half;
    return row / count * c->sequence + position;
}

static int local_part(struct group *g, int rank, const double *whole, int64_t columns)
{
    int buffer = kit_buffer(g->kit, g->c->dtype, g->local * columns);
    for (int64_t i = 0; i < g->local * columns; i++)
        kit_set(g->kit, buffer, i, whole[whole_row(g, rank, i / columns) * columns + i % columns]);
    return buffer;
}

static void expect_part(struct group *g, int rank, int buffer, const double *whole,
                        const char *what)
{
    int64_t count = kit_count(g->kit, buffer), columns = count / g->local;
    double *want = MCP_ARRAY(g->kit->arena, count, double);
    for (int64_t i = 0; i < count; i++)
        want[i] = whole[whole_row(g, rank, i / columns) * columns + i % columns];
    double tolerance = g->c->dtype == MCP_F32 ? 4e-6 : 1e-2;
    cr_expect(eq(int, kit_different(g->kit, buffer, want, tolerance), 0), "%s: %s of rank %d",
              g->c->name, what, rank);
}

/* Buffers of all ranks one after the other, as an all-gather leaves them. */
static int joined(struct group *g, const int *parts)
{
    int64_t count = kit_count(g->kit, parts[0]);
    int buffer = kit_buffer(g->kit, g->c->dtype, count * g->c->ranks);
    for (int r = 0; r < g->c->ranks; r++)
        for (int64_t i = 0; i < count; i++)
            kit_set(g->kit, buffer, r * count + i, kit_get(g->kit, parts[r], i));
    return buffer;
}

static void attention_op(struct group *g, enum mcp_function function, int hops)
{
    const struct case_attention *c = g->c;
    KIT_OP(g->kit, function, c->batch * c->heads, 1, c->width, c->value_width,
           c->sequence / c->ranks, c->sequence, hops);
}

static void forward(struct group *g, int query, int kv, int output, int statistics)
{
    kit_read(g->kit, query);
    kit_read(g->kit, kv);
    kit_write(g->kit, output);
    kit_write(g->kit, statistics);
    kit_run(g->kit);
}

static void backward(struct group *g, const int reads[5], int d_query, int d_kv, bool adds)
{
    for (int i = 0; i < 5; i++)
        kit_read(g->kit, reads[i]);
    if (adds)
        kit_read(g->kit, d_query);
    kit_write(g->kit, d_query);
    kit_write(g->kit, d_kv);
    kit_run(g->kit);
}

static void ring_of(struct group *g, int rank)
{
    struct kit *kit = g->kit;
    int ranks = g->c->ranks;
    int part = kit_buffer(kit, g->c->dtype, kit_count(kit, g->output[rank]));
    int part_statistics = kit_buffer(kit, MCP_F32, kit_count(kit, g->statistics[rank]));
    for (int hops = 0; hops < ranks; hops++) {
        attention_op(g, MCP_FN_ATTENTION_STEP_FORWARD, hops);
        forward(g, g->query[rank], g->kv[(rank + ranks - hops) % ranks],
                hops == 0 ? g->output[rank] : part,
                hops == 0 ? g->statistics[rank] : part_statistics);
        if (hops == 0)
            continue;
        KIT_OP(kit, MCP_FN_MERGE, g->local, g->c->heads * g->c->value_width);
        kit_read(kit, part);
        kit_read(kit, part_statistics);
        kit_read(kit, g->output[rank]);
        kit_read(kit, g->statistics[rank]);
        kit_write(kit, g->output[rank]);
        kit_write(kit, g->statistics[rank]);
        kit_run(kit);
    }
}

static void add_to(struct kit *kit, int sum, int64_t first, int part, int64_t from)
{
    for (int64_t i = 0; i < kit_count(kit, sum) - first && i < kit_count(kit, part) - from; i++)
        kit_set(kit, sum, first + i, kit_get(kit, sum, first + i) + kit_get(kit, part, from + i));
}

static void zero(struct kit *kit, int buffer)
{
    memset(kit->memory[buffer], 0, (size_t)kit->buffers[buffer].bytes);
}

/* Every rank's part of every other's gradients, as the ring brings them home. */
static void ring_back(struct group *g, int rank)
{
    int ranks = g->c->ranks, part = kit_buffer(g->kit, g->c->dtype, kit_count(g->kit, g->kv[0]));
    for (int hops = ranks - 1; hops >= 0; hops--) {
        int owner = (rank + ranks - hops) % ranks;
        const int reads[5] = {g->query[rank], g->kv[owner], g->output[rank], g->d_output[rank],
                              g->statistics[rank]};
        attention_op(g, MCP_FN_ATTENTION_STEP_BACKWARD, hops);
        backward(g, reads, g->d_query[rank], part, hops < ranks - 1);
        add_to(g->kit, g->d_kv[owner], 0, part, 0);
    }
}

static void gathered(struct group *g, int rank, int all)
{
    attention_op(g, MCP_FN_ATTENTION_FORWARD, 0);
    forward(g, g->query[rank], all, g->output[rank], g->statistics[rank]);
}

static void gathered_back(struct group *g, int rank, int all)
{
    int d_all = kit_buffer(g->kit, g->c->dtype, kit_count(g->kit, all));
    const int reads[5] = {g->query[rank], all, g->output[rank], g->d_output[rank],
                          g->statistics[rank]};
    attention_op(g, MCP_FN_ATTENTION_BACKWARD, 0);
    backward(g, reads, g->d_query[rank], d_all, false);
    for (int r = 0; r < g->c->ranks; r++)
        add_to(g->kit, g->d_kv[r], 0, d_all, r * kit_count(g->kit, g->d_kv[r]));
}

/* All columns of own tokens for a share of every token's: pack, exchange; or back. */
static void exchange(struct group *g, const int *from, int *to, int64_t first_band, bool pack)
{
    struct kit *kit = g->kit;
    int ranks = g->c->ranks, packed[MAX_RANKS];
    int64_t count = kit_count(kit, from[0]), columns = count / g->local, block = count / ranks;
    const int *sent = pack ? packed : from;
    for (int r = 0; r < ranks; r++) {
        packed[r] = kit_buffer(kit, g->c->dtype, count);
        KIT_OP(kit, MCP_FN_PACK_HEADS, g->local, columns, ranks, first_band);
        kit_read(kit, from[r]);
        kit_write(kit, packed[r]);
        if (pack)
            kit_run(kit);
    }
    for (int r = 0; r < ranks; r++) {
        int arrived = pack ? to[r] : kit_buffer(kit, g->c->dtype, count);
        for (int64_t i = 0; i < count; i++)
            kit_set(kit, arrived, i, kit_get(kit, sent[i / block], r * block + i % block));
        KIT_OP(kit, MCP_FN_UNPACK_HEADS, g->local, columns, ranks, first_band);
        kit_read(kit, arrived);
        kit_write(kit, to[r]);
        if (!pack)
            kit_run(kit);
    }
}

static void new_buffers(struct group *g, const int *like, int *out)
{
    for (int r = 0; r < g->c->ranks; r++)
        out[r] = kit_buffer(g->kit, g->c->dtype, kit_count(g->kit, like[r]));
}

static void exchanged(struct group *g)
{
    int q[MAX_RANKS], kv[MAX_RANKS], o[MAX_RANKS], d_o[MAX_RANKS], dq[MAX_RANKS], dkv[MAX_RANKS];
    int64_t keys = g->c->kv_heads * g->c->width;
    new_buffers(g, g->query, q), new_buffers(g, g->kv, kv), new_buffers(g, g->output, o);
    new_buffers(g, g->output, d_o), new_buffers(g, g->query, dq), new_buffers(g, g->kv, dkv);
    exchange(g, g->query, q, 0, true);
    exchange(g, g->kv, kv, keys, true);
    exchange(g, g->d_output, d_o, 0, true);
    for (int r = 0; r < g->c->ranks; r++) {
        const int reads[5] = {q[r], kv[r], o[r], d_o[r], g->statistics[r]};
        attention_op(g, MCP_FN_ATTENTION_FORWARD, 0);
        forward(g, q[r], kv[r], o[r], g->statistics[r]);
        attention_op(g, MCP_FN_ATTENTION_BACKWARD, 0);
        backward(g, reads, dq[r], dkv[r], false);
    }
    exchange(g, o, g->output, 0, false);
    exchange(g, dq, g->d_query, 0, false);
    exchange(g, dkv, g->d_kv, keys, false);
}

static void run_group(struct group *g)
{
    bool ring = g->c->kind == MCP_CONTEXT_RING && g->c->ranks > 1;
    int all = ring || g->c->kind == MCP_CONTEXT_ALL_TO_ALL ? -1 : joined(g, g->kv);
    if (g->c->ranks == 1)
        all = g->kv[0];
    if (g->c->kind == MCP_CONTEXT_ALL_TO_ALL) {
        exchanged(g);
        return;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < g->c->ranks; r++) {
            g->kit->rank.at.context = r;
            if (ring)
                (pass == 0 ? ring_of : ring_back)(g, r);
            else
                (pass == 0 ? gathered : gathered_back)(g, r, all);
        }
}

static void fill_group(struct group *g, const struct whole *w)
{
    const struct case_attention *c = g->c;
    for (int r = 0; r < c->ranks; r++) {
        g->query[r] = local_part(g, r, w->query, c->heads * c->width);
        g->kv[r] = local_part(g, r, w->kv, kv_columns(c));
        g->d_output[r] = local_part(g, r, w->d_output, c->heads * c->value_width);
        g->output[r] = kit_buffer(g->kit, c->dtype, g->local * c->heads * c->value_width);
        g->statistics[r] = kit_buffer(g->kit, MCP_F32, g->local * c->heads);
        g->d_query[r] = kit_buffer(g->kit, c->dtype, g->local * c->heads * c->width);
        g->d_kv[r] = kit_buffer(g->kit, c->dtype, g->local * kv_columns(c));
        zero(g->kit, g->d_kv[r]);
    }
}

ParameterizedTest(struct case_attention *c, kernels, attention)
{
    static struct kit kit;
    struct whole whole;
    kit_new(&kit);
    struct group group = {.kit = &kit, .c = c, .local = c->batch * c->sequence / c->ranks};
    attend_all(&kit, c, &whole);
    set_facts(&kit, c);
    fill_group(&group, &whole);
    run_group(&group);
    for (int r = 0; r < c->ranks; r++) {
        expect_part(&group, r, group.output[r], whole.output, "output");
        expect_part(&group, r, group.d_query[r], whole.d_query, "queries' gradient");
        expect_part(&group, r, group.d_kv[r], whole.d_kv, "keys' and values' gradient");
    }
    mcp_arena_free(kit.arena);
}
