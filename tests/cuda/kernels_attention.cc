/* tests/cuda/kernels_attention.cc: attention of heads of any size, forward, backward, merged. */
#include "attention.h"

static const attention_case cases[] = {
    {1, 1, 1, 5, 5, 0, 0, {0, 1, 1, 0, 1, 0}, {0, 1, 1, 0, 1, 0}, 0},
    {2, 2, 1, 16, 24, 0, 0, {0, 1, 1, 0, 37, 0}, {0, 1, 1, 0, 37, 0}, 0},
    {1, 4, 2, 40, 40, 9, 0, {0, 1, 1, 0, 70, 0}, {0, 1, 1, 0, 70, 0}, 0},
    {1, 3, 3, 64, 33, 0, 13, {0, 1, 1, 0, 50, 0}, {0, 1, 1, 0, 50, 0}, 1},
    /* a ring's steps: own keys, an earlier rank's, a later one's; zigzag and not */
    {2, 2, 2, 8, 8, 0, 0, {1, 1, 3, 1, 20, 0}, {0, 1, 3, 1, 20, 0}, 1},
    {1, 2, 1, 8, 8, 0, 0, {0, 1, 3, 1, 36, 0}, {2, 1, 3, 1, 36, 0}, 1},
    {1, 1, 1, 16, 16, 30, 0, {1, 1, 2, 0, 40, 0}, {0, 1, 2, 0, 40, 0}, 0},
    {1, 1, 1, 16, 16, 0, 0, {0, 1, 2, 0, 19, 0}, {1, 1, 2, 0, 19, 0}, 0},
    /* own queries against all keys; all against all */
    {2, 2, 1, 12, 12, 0, 0, {1, 1, 2, 1, 18, 0}, {0, 2, 2, 1, 18, 0}, 0},
    {1, 1, 1, 130, 130, 0, 0, {0, 2, 2, 0, 21, 0}, {0, 2, 2, 0, 21, 0}, 0},
    {1, 1, 1, 200, 72, 0, 16, {0, 1, 1, 0, 33, 0}, {0, 1, 1, 0, 33, 0}, 0},
    {1, 2, 1, 256, 256, 0, 0, {0, 1, 1, 0, 35, 0}, {0, 1, 1, 0, 35, 0}, 0},
};

static void check(const attention_case &c, mcp_cuda_format format)
{
    attention_arrays a(c, format);
    const auto which = static_cast<int>(&c - cases);
    const double rounding = kit_rounding(format);
    for_all(&a, want_forward);
    mcp_cuda_attention(&a.op, kit_queue());
    kit_compare(a.output.values(), a.want_output, {rounding + 2e-6, 2e-6}, "output, case %d",
                which);
    kit_compare(a.statistics.values(), a.want_statistics, {2e-6, 2e-6}, "statistics, case %d",
                which);
    for_all(&a, want_backward);
    mcp_cuda_attention_backward(&a.op, kit_queue());
    kit_compare(a.d_query.values(), a.want_query, {rounding + 1e-5, 1e-5}, "d_query, case %d",
                which);
    kit_compare(a.d_kv.values(), a.want_kv, {rounding + 1e-5, 1e-5}, "d_kv, case %d", which);
}

/* On GPUs whose blocks have 99 KiB too. */
TEST(attention_of_any_size)
{
    mcp_shim_set_shared_limit(99 << 10);
    for (const attention_case &c : cases) {
        check(c, MCP_CUDA_F32);
        check(c, MCP_CUDA_BF16);
    }
    mcp_shim_set_shared_limit(227 << 10);
}

static void merge(const attention_arrays &part, attention_arrays *into)
{
    const struct mcp_cuda_merge op = {part.output,           into->output,    part.statistics,
                                      into->statistics,      part.query_rows, part.op.heads,
                                      part.op.value_head_dim};
    mcp_cuda_attention_merge(&op, kit_queue());
}

/* Two rings' steps, merged, are the whole, and so they are behind two of keys that no query sees;
 * rows of packs, and of less than one. */
static void check_merge(int64_t width)
{
    const attention_case own = {2, 3, 1, 8, width, 0, 0, {1, 1, 2, 0, 11, 0}, {1, 1, 2, 0, 11, 0},
                                0};
    const attention_case earlier = {
        2, 3, 1, 8, width, 0, 0, {1, 1, 2, 0, 11, 0}, {0, 1, 2, 0, 11, 0}, 0};
    const attention_case later = {2, 3, 1, 8, width, 0, 0, {1, 1, 3, 0, 11, 0}, {2, 1, 3, 0, 11, 0},
                                  0};
    const attention_case whole = {2, 3, 1, 8, width, 0, 0, {1, 1, 2, 0, 11, 0}, {0, 2, 2, 0, 11, 0},
                                  0};
    attention_arrays a(own, MCP_CUDA_F32), b(earlier, MCP_CUDA_F32), none(later, MCP_CUDA_F32);
    attention_arrays all(whole, MCP_CUDA_F32), unseen(later, MCP_CUDA_F32);
    for (int64_t i = 0; i < a.kv.elements; i++) {
        all.kv.set(i, b.kv.get(i));
        all.kv.set(a.kv.elements + i, a.kv.get(i));
    }
    for (attention_arrays *one : {&a, &b, &none, &all, &unseen})
        mcp_cuda_attention(&one->op, kit_queue());
    for (const attention_arrays *one : {&none, &b, &a})
        merge(*one, &unseen);
    for (const attention_arrays *one : {&none, &b})
        merge(*one, &a);
    for (const attention_arrays *one : {&a, &unseen}) {
        kit_compare(one->output.values(), all.output.values(), {1e-5, 1e-6}, "merged output");
        kit_compare(one->statistics.values(), all.statistics.values(), {1e-6, 1e-6},
                    "merged statistics");
    }
}

TEST(attention_merge)
{
    for (int64_t width : {5, 8})
        check_merge(width);
}
