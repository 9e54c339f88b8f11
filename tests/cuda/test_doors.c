/* tests/cuda/test_doors.c: what the doors of CUDA, cuBLASLt and NCCL make of their libraries'
 * answers: products as matrices lie, and one sentence for what fails. */
#include "core/arena.h"
#include "exec/cuda_blas.h"
#include "exec/cuda_nccl.h"
#include "exec/cuda_runtime.h"
#include "exec/cuda_wait.h"
#include "exec/half.h"
#include "tests/cuda/fake/engine.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/* --- products --- */

enum { MOST = 64 };

struct case_product {
    char name[40];
    int m, n, k;
    bool a_transposed, b_transposed, accumulate;
};
ParameterizedTestParameters(doors, product)
{
    static struct case_product cases[] = {
        {"forward", 5, 7, 3, false, true, false},
        {"input gradient", 5, 3, 7, false, false, false},
        {"weight gradient", 7, 3, 5, true, false, true},
        {"both transposed", 2, 5, 4, true, true, false},
        {"a column", 6, 1, 2, false, true, true},
        {"nothing to add up", 4, 3, 0, false, true, false},
        {"nothing to add", 4, 3, 0, true, false, true},
        {"no rows", 0, 3, 2, false, true, false},
    };
    return cr_make_param_array(struct case_product, cases, sizeof cases / sizeof *cases);
}

static int at(bool transposed, int row, int column, int rows, int columns)
{
    return transposed ? column * rows + row : row * columns + column;
}

static float want_of(const struct case_product *c, const float *a, const float *b, int i, int j)
{
    float sum = c->accumulate ? 1 : 0;
    for (int l = 0; l < c->k; l++)
        sum += a[at(c->a_transposed, i, l, c->m, c->k)] * b[at(c->b_transposed, l, j, c->k, c->n)];
    return sum;
}

/* On the device, with these values. */
static void *put(struct mcp_arena *arena, const float *values, void *stream)
{
    void *memory;
    cr_assert(mcp_cuda_new_memory(arena, MOST * sizeof *values, &memory, NULL) == MCP_OK);
    cr_assert(mcp_cuda_copy(memory, values, MOST * sizeof *values, stream, NULL) == MCP_OK);
    return memory;
}

ParameterizedTest(struct case_product *c, doors, product)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    float a[MOST], b[MOST], out[MOST];
    void *stream;
    for (int i = 0; i < MOST; i++) {
        a[i] = (float)(i % 11 - 5);
        b[i] = (float)(i % 7 - 2);
        out[i] = 1;
    }
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    const struct mcp_cuda_product product = {
        .m = c->m,
        .n = c->n,
        .k = c->k,
        .a = mcp_cuda_matrix_of(put(arena, a, stream), MCP_F32, c->a_transposed),
        .b = mcp_cuda_matrix_of(put(arena, b, stream), MCP_F32, c->b_transposed),
        .c = mcp_cuda_matrix_of(put(arena, out, stream), MCP_F32, false),
        .accumulate = c->accumulate};
    for (int twice = 0; twice < 2 - c->accumulate; twice++) /* chosen, then found again */
        cr_assert(mcp_cuda_blas_multiply(blas, &product, stream, &err) == MCP_OK, "%s: %s", c->name,
                  err.text);
    cr_assert(mcp_cuda_copy(out, product.c.data, sizeof out, stream, &err) == MCP_OK);
    cr_assert(mcp_cuda_finish_stream(stream, &err) == MCP_OK, "%s", err.text);
    for (int i = 0; i < c->m; i++)
        for (int j = 0; j < c->n; j++)
            cr_expect(eq(flt, out[i * c->n + j], want_of(c, a, b, i, j)), "%s", c->name);
    cr_expect(eq(flt, out[c->m * c->n], 1), "%s: what lies behind", c->name);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

struct case_epilogue {
    char name[40];
    int m, n, k;
    bool biased, gelu;
    enum mcp_status want;
};
ParameterizedTestParameters(doors, epilogue)
{
    static struct case_epilogue cases[] = {
        {"a bias", 5, 7, 3, true, false, MCP_OK},
        {"GELU", 3, 8, 5, false, true, MCP_OK},
        {"a bias, then GELU", 2, 16, 3, true, true, MCP_OK},
        {"no rows", 0, 8, 3, true, true, MCP_OK},
        {"columns that GELU has not", 3, 12, 3, true, true, MCP_RUN_FAILURE},
        {"nothing to add a bias to", 3, 8, 0, true, false, MCP_RUN_FAILURE},
    };
    return cr_make_param_array(struct case_epilogue, cases, sizeof cases / sizeof *cases);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

struct epilogue_numbers {
    float a[MOST], b[MOST], bias[MOST], before[MOST], out[MOST];
};

static void compare_epilogue(const struct case_epilogue *c, const struct epilogue_numbers *of)
{
    const struct case_product product = {"", c->m, c->n, c->k, false, true, false};
    for (int i = 0; i < c->m * c->n; i++) {
        double sum = (double)want_of(&product, of->a, of->b, i / c->n, i % c->n);
        sum += c->biased ? (double)of->bias[i % c->n] : 0;
        if (c->gelu)
            cr_expect(eq(dbl, (double)of->before[i], sum), "%s", c->name);
        cr_expect(epsilon_eq(dbl, (double)of->out[i], c->gelu ? gelu(sum) : sum, 1e-5), "%s",
                  c->name);
    }
    cr_expect(eq(flt, of->out[c->m * c->n], 1), "%s: what lies behind", c->name);
    cr_expect(eq(flt, of->before[c->gelu ? c->m * c->n : 0], 1), "%s: what lies behind", c->name);
}

/* With another bias first, whose place the algorithm was chosen for. */
ParameterizedTest(struct case_epilogue *c, doors, epilogue)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    struct epilogue_numbers of;
    void *stream;
    for (int i = 0; i < MOST; i++) {
        of.a[i] = (float)(i % 5 - 2);
        of.b[i] = (float)(i % 7 - 3) / 4;
        of.bias[i] = (float)(i % 3 - 1) / 2;
        of.out[i] = of.before[i] = 1;
    }
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    struct mcp_cuda_product product = {.m = c->m, .n = c->n, .k = c->k};
    product.a = mcp_cuda_matrix_of(put(arena, of.a, stream), MCP_F32, false);
    product.b = mcp_cuda_matrix_of(put(arena, of.b, stream), MCP_F32, true);
    product.c = mcp_cuda_matrix_of(put(arena, of.out, stream), MCP_F32, false);
    void *biases[2] = {put(arena, of.a, stream), put(arena, of.bias, stream)};
    if (c->gelu)
        product.before_gelu = mcp_cuda_matrix_of(put(arena, of.before, stream), MCP_F32, false);
    for (int i = 0; i < 2; i++) {
        if (c->biased)
            product.bias = mcp_cuda_matrix_of(biases[i], MCP_F32, false);
        cr_expect(eq(int, (int)mcp_cuda_blas_multiply(blas, &product, stream, &err), (int)c->want),
                  "%s: %s", c->name, err.text);
    }
    cr_assert(mcp_cuda_copy(of.out, product.c.data, sizeof of.out, stream, &err) == MCP_OK);
    if (c->gelu)
        cr_assert(mcp_cuda_copy(of.before, product.before_gelu.data, sizeof of.before, stream,
                                &err) == MCP_OK);
    cr_assert(mcp_cuda_finish_stream(stream, &err) == MCP_OK, "%s", err.text);
    if (c->want == MCP_OK)
        compare_epilogue(c, &of);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

Test(doors, formats_that_no_product_has)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    const struct mcp_cuda_product product = {
        .m = 1, .n = 1, .k = 1, .a.dtype = MCP_BF16, .b.dtype = MCP_F32, .c.dtype = MCP_F32};
    cr_expect(mcp_cuda_blas_multiply(blas, &product, NULL, &err) == MCP_RUN_FAILURE);
    cr_expect(strstr(err.text, "no product of bf16 and f32 into f32") != NULL, "%s", err.text);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

Test(doors, an_algorithm_is_asked_for_once)
{
    enum { SIDE = 10, STEP = 16 }; /* sizes are round */
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    void *stream, *memory;
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_new_memory(arena, 1 << 20, &memory, &err) == MCP_OK, "%s", err.text);
    const struct mcp_cuda_matrix numbers = mcp_cuda_matrix_of(memory, MCP_F32, false);
    const int before = fake_algorithms_chosen();
    for (int i = 0; i < 2 * SIDE * SIDE; i++) {
        const struct mcp_cuda_product product = {.m = STEP * (1 + i % SIDE),
                                                 .n = STEP * (1 + i / SIDE % SIDE),
                                                 .k = 1,
                                                 .a = numbers,
                                                 .b = numbers,
                                                 .c = numbers};
        cr_assert(mcp_cuda_blas_multiply(blas, &product, stream, &err) == MCP_OK, "%s", err.text);
    }
    cr_expect(eq(int, fake_algorithms_chosen() - before, SIDE * SIDE));
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

/* Half of the sum is no number of bf16, and the whole is. */
Test(doors, sums_are_in_fp32)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    const float a[4] = {256, 1, -256, 0}, ones[4] = {1, 1, 1, 1};
    uint16_t bits[3][4] = {{0}};
    void *stream, *memory[3];
    for (int i = 0; i < 4; i++) {
        bits[0][i] = mcp_to_bf16(a[i]);
        bits[1][i] = mcp_to_bf16(ones[i]);
    }
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        cr_assert(mcp_cuda_new_memory(arena, sizeof bits[i], &memory[i], &err) == MCP_OK);
        cr_assert(mcp_cuda_copy(memory[i], bits[i], sizeof bits[i], stream, &err) == MCP_OK);
    }
    const struct mcp_cuda_product product = {.m = 1,
                                             .n = 1,
                                             .k = 4,
                                             .a = mcp_cuda_matrix_of(memory[0], MCP_BF16, false),
                                             .b = mcp_cuda_matrix_of(memory[1], MCP_BF16, false),
                                             .c = mcp_cuda_matrix_of(memory[2], MCP_BF16, false)};
    cr_assert(mcp_cuda_blas_multiply(blas, &product, stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_copy(bits[2], memory[2], sizeof bits[2], stream, &err) == MCP_OK);
    cr_assert(mcp_cuda_finish_stream(stream, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(flt, mcp_from_bf16(bits[2][0]), 1));
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

/* --- devices --- */

Test(doors, no_device_and_no_driver_are_alike)
{
    static const int errors[] = {35, 100}; /* insufficient driver, no device */
    for (int i = 0; i < 2; i++) {
        struct mcp_error err = {""};
        int count;
        fake_begin(1, 1 << 20);
        fake_set_device_error(errors[i]);
        cr_expect(mcp_cuda_count(&count, &err) == MCP_RUN_FAILURE);
        cr_expect(strstr(err.text, "no CUDA device: ") == err.text, "%d: %s", errors[i], err.text);
        fake_set_device_error(0);
        cr_expect(mcp_cuda_count(&count, &err) == MCP_OK && count == 1);
        fake_end();
    }
}

Test(doors, memory_that_is_not_there)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    void *memory;
    fake_begin(1, 1 << 20);
    cr_expect(mcp_cuda_new_memory(arena, 1 << 21, &memory, &err) == MCP_RUN_FAILURE);
    cr_expect(strstr(err.text, "1048576 bytes free, and 2097152 more") != NULL, "%s", err.text);
    cr_expect(mcp_cuda_new_memory(arena, 1 << 10, &memory, &err) == MCP_OK, "%s", err.text);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

Test(doors, what_is_not_ready_is_no_error)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    void *stream, *memory;
    bool empty = true;
    fake_begin(1, 1 << 20);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_new_memory(arena, 1, &memory, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_set_bytes(memory, 0, 1, stream, &err) == MCP_OK, "%s", err.text);
    cr_expect(mcp_cuda_stream_empty(stream, &empty, &err) == MCP_OK && !empty);
    cr_expect(mcp_cuda_check_launch("a kernel", &err) == MCP_OK, "%s", err.text);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

/* --- transfers --- */

struct member {
    struct mcp_nccl_place place;
    enum mcp_status (*act)(struct mcp_arena *arena, struct member *member);
    enum mcp_status status;
    struct mcp_error err;
    float sum;
};

static enum mcp_status sum_ranks(struct mcp_arena *arena, struct member *member)
{
    struct mcp_nccl_world *world;
    struct mcp_nccl *pair;
    struct mcp_error *err = &member->err;
    void *stream, *memory, *host;
    MCP_TRY(mcp_cuda_choose(member->place.rank, err));
    MCP_TRY(mcp_cuda_new_stream(arena, true, &stream, err));
    MCP_TRY(mcp_cuda_new_memory(arena, sizeof(float), &memory, err));
    MCP_TRY(mcp_cuda_new_host_memory(arena, sizeof(float), &host, err));
    MCP_TRY(mcp_nccl_world_open(arena, &member->place, &world, err));
    MCP_TRY(mcp_nccl_split(world, &(struct mcp_nccl_part){.key = -member->place.rank}, &pair, err));
    *(float *)host = (float)(member->place.rank + 1);
    MCP_TRY(mcp_cuda_copy(memory, host, sizeof(float), stream, err));
    const struct mcp_nccl_data data = {memory, memory, 1, MCP_NCCL_F32};
    MCP_TRY(mcp_nccl_all_reduce(pair, &data, '+', stream, err));
    MCP_TRY(mcp_cuda_copy(host, memory, sizeof(float), stream, err));
    MCP_TRY(mcp_cuda_await(world, stream, "the sum", err));
    member->sum = *(const float *)host;
    return MCP_OK;
}

static pthread_barrier_t both;

/* Calls of two communicators wait for a rank that will not call. */
static enum mcp_status give_up(struct mcp_arena *arena, struct member *member)
{
    struct mcp_nccl_world *world;
    struct mcp_nccl *pair;
    struct mcp_error *err = &member->err;
    void *streams[2], *memory;
    MCP_TRY(mcp_cuda_choose(member->place.rank, err));
    MCP_TRY(mcp_cuda_new_memory(arena, sizeof(float), &memory, err));
    MCP_TRY(mcp_nccl_world_open(arena, &member->place, &world, err));
    MCP_TRY(mcp_nccl_split(world, &(struct mcp_nccl_part){.key = 0}, &pair, err));
    struct mcp_nccl *const comms[2] = {pair, mcp_nccl_everybody(world)};
    const struct mcp_nccl_data data = {memory, memory, 1, MCP_NCCL_F32};
    for (int i = 0; i < 2; i++) {
        MCP_TRY(mcp_cuda_new_stream(arena, true, &streams[i], err));
        if (member->place.rank == 0)
            MCP_TRY(mcp_nccl_all_reduce(comms[i], &data, '+', streams[i], err));
    }
    pthread_barrier_wait(&both);
    mcp_nccl_abort(world);
    for (int i = 0; i < 2; i++)
        MCP_TRY(mcp_cuda_finish_stream(streams[i], err));
    return MCP_OK;
}

static void *live(void *argument)
{
    struct member *member = argument;
    struct mcp_arena *arena = mcp_arena_new();
    member->status = member->act(arena, member);
    mcp_arena_free(arena);
    return NULL;
}

static void run_pair(struct member members[2],
                     enum mcp_status (*act)(struct mcp_arena *, struct member *))
{
    pthread_t threads[2];
    struct mcp_nccl_id id;
    cr_assert(mcp_nccl_make_id(&id, NULL) == MCP_OK);
    for (int i = 0; i < 2; i++) {
        members[i].place = (struct mcp_nccl_place){.id = id, .rank = i, .size = 2, .timeout_s = 30};
        members[i].act = act;
        pthread_create(&threads[i], NULL, live, &members[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

Test(doors, ranks_sum)
{
    static struct member members[2];
    fake_begin(2, 1 << 20);
    run_pair(members, sum_ranks);
    for (int i = 0; i < 2; i++) {
        cr_expect(eq(int, (int)members[i].status, MCP_OK), "%s", members[i].err.text);
        cr_expect(eq(flt, members[i].sum, 3));
    }
    cr_expect(eq(int, fake_end(), 0));
}

Test(doors, all_communicators_are_given_up_together)
{
    static struct member members[2];
    fake_begin(2, 1 << 20);
    pthread_barrier_init(&both, NULL, 2);
    run_pair(members, give_up);
    pthread_barrier_destroy(&both);
    for (int i = 0; i < 2; i++)
        cr_expect(eq(int, (int)members[i].status, MCP_OK), "%s", members[i].err.text);
    cr_expect(eq(int, fake_end(), 0));
}

Test(doors, a_transfer_that_fails_is_everybodys)
{
    static struct member members[2];
    fake_begin(2, 1 << 20);
    fake_fail_collective(1, 0);
    run_pair(members, sum_ranks);
    for (int i = 0; i < 2; i++) {
        char rank[] = "rank 0: ";
        rank[5] += (char)i;
        cr_expect(eq(int, (int)members[i].status, MCP_RUN_FAILURE));
        cr_expect(strstr(members[i].err.text, rank) == members[i].err.text, "%s",
                  members[i].err.text);
        cr_expect(strstr(members[i].err.text, "NCCL says: ") != NULL, "%s", members[i].err.text);
    }
    fake_end();
}
