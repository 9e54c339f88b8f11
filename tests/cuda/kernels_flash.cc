/* tests/cuda/kernels_flash.cc: attention by tensor cores, and the host's twins of their
 * instructions. */
#include "attention.h"
#include "exec/cuda_attention.cuh"
#include "ptx.h"

static const attention_case cases[] = {
    {1, 1, 1, 64, 64, 0, 0, {0, 1, 1, 0, 1, 0}, {0, 1, 1, 0, 1, 0}, 0},
    {2, 2, 1, 64, 64, 0, 0, {0, 1, 1, 0, 150, 0}, {0, 1, 1, 0, 150, 0}, 0},
    {1, 4, 2, 128, 128, 0, 0, {0, 1, 1, 0, 75, 0}, {0, 1, 1, 0, 75, 0}, 0},
    {1, 2, 2, 64, 64, 13, 0, {0, 1, 1, 0, 170, 0}, {0, 1, 1, 0, 170, 0}, 1},
    {1, 1, 1, 128, 128, 0, 37, {0, 1, 1, 0, 140, 0}, {0, 1, 1, 0, 140, 0}, 1},
    {1, 1, 1, 64, 64, 30, 41, {0, 1, 1, 0, 99, 0}, {0, 1, 1, 0, 99, 0}, 0},
    /* a ring's steps: own keys, an earlier rank's, a later one's; zigzag and not */
    {2, 2, 2, 64, 64, 0, 0, {1, 1, 3, 1, 90, 0}, {1, 1, 3, 1, 90, 0}, 1},
    {2, 1, 1, 64, 64, 0, 0, {1, 1, 3, 1, 70, 0}, {0, 1, 3, 1, 70, 0}, 0},
    {1, 2, 1, 128, 128, 0, 0, {0, 1, 3, 1, 36, 0}, {2, 1, 3, 1, 36, 0}, 1},
    {1, 1, 1, 64, 64, 50, 0, {1, 1, 2, 0, 80, 0}, {0, 1, 2, 0, 80, 0}, 0},
    {1, 1, 1, 64, 64, 0, 0, {0, 1, 2, 0, 19, 0}, {1, 1, 2, 0, 19, 0}, 0},
    /* own queries against all keys; all against all */
    {2, 2, 1, 64, 64, 0, 0, {1, 1, 2, 1, 66, 0}, {0, 2, 2, 1, 66, 0}, 0},
    {1, 1, 1, 128, 128, 0, 0, {0, 2, 2, 0, 37, 0}, {0, 2, 2, 0, 37, 0}, 0},
};

/* Weights are rounded to bf16 where they meet values: an error of their part of 1. */
static const kit_tolerance of_output = {1.0 / 256, 1.0 / 512};

static void check_backward(attention_arrays *a, int64_t scratch_bytes, int which)
{
    if (!mcp_flash_attention_backward(&a->op, scratch_bytes, kit_queue()))
        kit_fail("case %d: not for tensor cores backward", which);
    kit_compare(a->d_query.values(), a->want_query, {1.0 / 128, 1.0 / 256}, "d_query, case %d",
                which);
    kit_compare(a->d_kv.values(), a->want_kv, {1.0 / 128, 1.0 / 128}, "d_kv, case %d", which);
}

static void check(const attention_case &c)
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
    check_backward(&a, MCP_CUDA_SCRATCH_BYTES, which);
}

TEST(flash)
{
    for (const attention_case &c : cases)
        check(c);
}
