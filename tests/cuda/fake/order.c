/* tests/cuda/fake/order.c: which of the ops that may run is the first, by policy. */
#include "tests/cuda/fake/parts.h"

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

long fake_rank_of(const struct fake_op *op, const struct fake_policy *policy, uint64_t *random)
{
    switch (policy->order) {
    case FAKE_NEWEST:
        return -op->number;
    case FAKE_TRANSFERS_LAST:
        return op->work == FAKE_TRANSFER;
    case FAKE_TRANSFERS_FIRST:
        return op->work != FAKE_TRANSFER;
    case FAKE_KERNELS_LAST:
        return op->work == FAKE_KERNEL ? 1 : -op->number;
    case FAKE_STREAM_LAST:
        return op->stream->index == policy->stream;
    case FAKE_RANDOM:
        return (long)(next_random(random) >> 1);
    default:
        return op->number;
    }
}
