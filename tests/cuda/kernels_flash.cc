/* tests/cuda/kernels_flash.cc: attention by tensor cores, and the instructions that it is made of
 * as the host plays them. */
#include "attention.h"
#include "exec/cuda_attention.cuh"
#include "exec/cuda_ptx.cuh"

static const attention_case cases[] = {
    {1, 1, 1, 64, 64, 0, 0, {0, 1, 1, 0, 1, 0}, {0, 1, 1, 0, 1, 0}, 0},
    {1, 2, 1, 64, 64, 0, 0, {0, 1, 1, 0, 150, 0}, {0, 1, 1, 0, 150, 0}, 0},
    {1, 4, 2, 128, 128, 0, 0, {0, 1, 1, 0, 45, 0}, {0, 1, 1, 0, 45, 0}, 0},
    {1, 1, 1, 64, 64, 13, 0, {0, 1, 1, 0, 170, 0}, {0, 1, 1, 0, 170, 0}, 1},
    {1, 1, 1, 128, 128, 0, 37, {0, 1, 1, 0, 140, 0}, {0, 1, 1, 0, 140, 0}, 1},
    {1, 1, 1, 64, 64, 30, 41, {0, 1, 1, 0, 99, 0}, {0, 1, 1, 0, 99, 0}, 0},
    /* a ring's steps: own keys, an earlier rank's, a later one's; zigzag and not */
    {2, 1, 1, 64, 64, 0, 0, {1, 1, 3, 1, 90, 0}, {1, 1, 3, 1, 90, 0}, 1},
    {1, 1, 1, 64, 64, 0, 0, {1, 1, 3, 1, 70, 0}, {0, 1, 3, 1, 70, 0}, 0},
    {1, 2, 1, 128, 128, 0, 0, {0, 1, 3, 1, 36, 0}, {2, 1, 3, 1, 36, 0}, 1},
    {1, 1, 1, 64, 64, 50, 0, {1, 1, 2, 0, 80, 0}, {0, 1, 2, 0, 80, 0}, 0},
    {1, 1, 1, 64, 64, 0, 0, {0, 1, 2, 0, 19, 0}, {1, 1, 2, 0, 19, 0}, 0},
    /* own queries against all keys; all against all */
    {2, 1, 1, 64, 64, 0, 0, {1, 1, 2, 1, 66, 0}, {0, 2, 2, 1, 66, 0}, 0},
    {1, 1, 1, 128, 128, 0, 0, {0, 2, 2, 0, 37, 0}, {0, 2, 2, 0, 37, 0}, 0},
};

/* Beside the rounding of results: weights are bf16 where they meet values, and what gradients of
 * scores are made of where they meet queries and keys. */
constexpr kit_tolerance of_output = {1.0 / 256, 1.0 / 512};
constexpr kit_tolerance of_gradients = {1.0 / 128, 1.0 / 128};

/* With so much scratch memory, of which only what has been written may be read. */
static void check_backward(attention_arrays *a, int64_t scratch_bytes, int which)
{
    memset(kit_queue()->scratch, 0xff, static_cast<size_t>(a->statistics.count) * sizeof(float));
    if (!mcp_flash_attention_backward(&a->op, scratch_bytes, kit_queue()))
        kit_fail("case %d: not for tensor cores backward", which);
    kit_compare(a->d_query.values(), a->want_query, of_gradients, "d_query, case %d", which);
    kit_compare(a->d_kv.values(), a->want_kv, of_gradients, "d_kv, case %d", which);
}

static void check(const attention_case &c, int64_t scratch_bytes)
{
    attention_arrays a(c, MCP_CUDA_BF16);
    const auto which = static_cast<int>(&c - cases);
    for_all(&a, want_forward);
    if (!mcp_flash_attention(&a.op, kit_queue()))
        kit_fail("case %d: not for tensor cores", which);
    kit_compare(a.output.values(), a.want_output, of_output, "output, case %d", which);
    kit_compare(a.statistics.values(), a.want_statistics, {4e-6, 4e-6}, "statistics, case %d",
                which);
    for_all(&a, want_backward);
    check_backward(&a, scratch_bytes, which);
}

TEST(flash)
{
    for (const attention_case &c : cases)
        check(c, MCP_CUDA_SCRATCH_BYTES);
}

/* The scratch memory has room for the queries of one head of keys, of two. */
TEST(flash_by_parts)
{
    check(cases[2], 45 * 2 * 4);
}

/* With 99 KiB a block there are kernels of their own for heads of 128. */
TEST(flash_in_99_kib)
{
    mcp_shim_set_shared_limit(99 << 10);
    for (int which : {2, 4, 8})
        check(cases[which], MCP_CUDA_SCRATCH_BYTES);
    mcp_shim_set_shared_limit(227 << 10);
}

/* --- for others: nothing is queued --- */

struct refusal {
    const char *why;
    mcp_cuda_format format;
    int64_t width, value_width, offset;
    float scale;
};
static const refusal refusals[] = {
    {"fp32", MCP_CUDA_F32, 64, 64, 0, 1},         {"fp16", MCP_CUDA_F16, 64, 64, 0, 1},
    {"heads of 96", MCP_CUDA_BF16, 96, 96, 0, 1}, {"other values", MCP_CUDA_BF16, 128, 64, 0, 1},
    {"not aligned", MCP_CUDA_BF16, 64, 64, 1, 1}, {"scale of 0", MCP_CUDA_BF16, 64, 64, 0, 0},
};

TEST(flash_refuses)
{
    for (const refusal &r : refusals) {
        const attention_case c = {
            1, 1, 1, r.width, r.value_width, 0, 0, {0, 1, 1, 0, 9, 0}, {0, 1, 1, 0, 9, 0}, 0};
        attention_arrays a(c, r.format);
        kit_array moved(r.format, a.query.elements, r.offset);
        a.op.query = moved;
        a.op.scale = r.scale;
        if (mcp_flash_attention(&a.op, kit_queue()) ||
            mcp_flash_attention_backward(&a.op, MCP_CUDA_SCRATCH_BYTES, kit_queue()))
            kit_fail("%s: taken", r.why);
    }
    attention_arrays a(cases[1], MCP_CUDA_BF16);
    if (mcp_flash_attention_backward(&a.op, 150 * 2 * 4 - 1, kit_queue()))
        kit_fail("no room for a head: taken");
    for (double d : a.d_kv.values())
        if (!std::isnan(d))
            kit_fail("something has been queued");
}

/* --- instructions, by the words of the PTX ISA --- */

/* a[16][16] b[16][8]; fragments are put together by hand. */
static __global__ void multiply(const unsigned short *a, const unsigned short *b, float *sum)
{
    const int lane = static_cast<int>(threadIdx.x), group = lane / 4, in_group = lane % 4;
    unsigned a_words[4] = {}, b_words[2] = {};
    float c[4];
    for (int i = 0; i < 8; i++) {
        const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
        const int column = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
        a_words[i / 2] |= static_cast<unsigned>(a[row * 16 + column]) << 16 * (i % 2);
    }
    for (int i = 0; i < 4; i++) {
        const int row = in_group * 2 + (i & 1) + (i < 2 ? 0 : 8);
        b_words[i / 2] |= static_cast<unsigned>(b[row * 8 + group]) << 16 * (i % 2);
    }
    for (int i = 0; i < 4; i++)
        c[i] = static_cast<float>(i);
    mcp_multiply_bf16(a_words, b_words[0], b_words[1], c);
    for (int i = 0; i < 4; i++)
        sum[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = c[i];
}

TEST(flash_products)
{
    kit_array a(MCP_CUDA_BF16, 256), b(MCP_CUDA_BF16, 128);
    kit_memory<float> sum(128);
    std::vector<double> want(128);
    a.fill(0, 1, 1);
    b.fill(0, 1, 2);
    for (int64_t row = 0; row < 16; row++)
        for (int64_t column = 0; column < 8; column++) {
            double &w = want[static_cast<size_t>(row * 8 + column)];
            w = static_cast<double>(row / 8 * 2 + column % 2);
            for (int64_t k = 0; k < 16; k++)
                w += a.get(row * 16 + k) * b.get(k * 8 + column);
        }
    MCP_LAUNCH(multiply, 1, 32, 0, nullptr, static_cast<unsigned short *>(a.at(0).data),
               static_cast<unsigned short *>(b.at(0).data), sum.data);
    kit_compare(sum.values(), want, {1e-6, 1e-6}, "product");
}

/* Words that lanes get of matrices whose numbers are their places; copied, and late ones zeros. */
static __global__ void load(const unsigned short *from, unsigned *words, unsigned *turned)
{
    MCP_SHARED(unsigned short, tile, 256 + 8);
    const int lane = static_cast<int>(threadIdx.x);
    unsigned to[4];
    mcp_copy_async<16>(tile + 8 * lane, from + 8 * lane, lane != 31);
    if (lane < 4)
        mcp_copy_async<4>(tile + 256 + 2 * lane, from + 2 * lane, lane != 3);
    const bool early = tile[8 * lane] == 0xffff;
    mcp_wait_for_copies();
    __syncthreads();
    mcp_load_matrices(tile + 8 * lane, to);
    for (int i = 0; i < 4; i++)
        words[4 * lane + i] = early ? to[i] : 0xffffffffu;
    mcp_load_transposed(tile + 8 * lane, to);
    for (int i = 0; i < 4; i++)
        turned[4 * lane + i] = to[i];
    if (lane == 0)
        turned[128] = tile[256 + 5] + 16u * tile[256 + 6];
}

TEST(flash_loads)
{
    kit_memory<unsigned short> from(256);
    kit_memory<unsigned> words(128), turned(129);
    for (int i = 0; i < 256; i++)
        from[i] = static_cast<unsigned short>(i);
    MCP_LAUNCH(load, 1, 32, 0, nullptr, from.data, words.data, turned.data);
    for (int lane = 0; lane < 32; lane++)
        for (int matrix = 0; matrix < 4; matrix++) {
            const int row = lane / 4, column = lane % 4 * 2;
            const auto place = [&](int r, int c) {
                const int at = 64 * matrix + 8 * r + c;
                return static_cast<unsigned>(at < 248 ? at : 0);
            };
            const unsigned want = place(row, column) | place(row, column + 1) << 16;
            const unsigned want_turned = place(column, row) | place(column + 1, row) << 16;
            if (words[4 * lane + matrix] != want || turned[4 * lane + matrix] != want_turned)
                kit_fail("matrix %d, lane %d: %x, turned %x", matrix, lane,
                         words[4 * lane + matrix], turned[4 * lane + matrix]);
        }
    if (turned[128] != 5)
        kit_fail("copies of 4 bytes: %u", turned[128]);
}
