/* tests/cuda/fake/nccl_sums.c: what collectives do to numbers. */
#include "exec/half.h"
#include "tests/cuda/fake/nccl_parts.h"

#include <stdlib.h>
#include <string.h>

size_t type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclFloat64:
        return 8;
    default:
        fake_stop("a collective of type %d", type);
    }
}

static double get(ncclDataType_t type, const char *data, size_t i)
{
    switch (type) {
    case ncclFloat32:
        return (double)((const float *)(const void *)data)[i];
    case ncclBfloat16:
        return (double)mcp_from_bf16(((const uint16_t *)(const void *)data)[i]);
    case ncclFloat16:
        return (double)mcp_from_f16(((const uint16_t *)(const void *)data)[i]);
    case ncclFloat64:
        return ((const double *)(const void *)data)[i];
    case ncclInt32:
        return ((const int32_t *)(const void *)data)[i];
    default:
        fake_stop("a sum of type %d", type);
    }
}

static void set(ncclDataType_t type, char *data, size_t i, double value)
{
    switch (type) {
    case ncclFloat32:
        ((float *)(void *)data)[i] = (float)value;
        break;
    case ncclBfloat16:
        ((uint16_t *)(void *)data)[i] = mcp_to_bf16((float)value);
        break;
    case ncclFloat16:
        ((uint16_t *)(void *)data)[i] = mcp_to_f16((float)value);
        break;
    case ncclFloat64:
        ((double *)(void *)data)[i] = value;
        break;
    default:
        ((int32_t *)(void *)data)[i] = (int32_t)value;
    }
}

static double combine(ncclRedOp_t operation, double a, double b)
{
    switch (operation) {
    case ncclSum:
        return a + b;
    case ncclMax:
        return a != a || a > b ? a : b;
    case ncclMin:
        return a != a || a < b ? a : b;
    default:
        fake_stop("reduction %d", operation);
    }
}

/* As a ring does it: part i of k begins with member i + 1 and goes round; every partial result
 * is rounded to the type, as it travels. */
static char *reduce(struct piece *const *pieces, int members, size_t count)
{
    ncclDataType_t type = pieces[0]->type;
    char *sums = malloc(count * type_bytes(type) + 1);
    size_t part = (count + (size_t)members - 1) / (size_t)members;
    for (size_t x = 0; x < count; x++) {
        size_t first = x / part + 1;
        set(type, sums, x, get(type, pieces[first % (size_t)members]->from, x));
        for (size_t i = 1; i < (size_t)members; i++)
            set(type, sums, x,
                combine(pieces[0]->operation, get(type, sums, x),
                        get(type, pieces[(first + i) % (size_t)members]->from, x)));
    }
    return sums;
}

static char *concatenate(struct piece *const *pieces, int members, size_t bytes)
{
    char *whole = malloc(bytes * (size_t)members + 1);
    for (int i = 0; i < members; i++)
        memcpy(whole + (size_t)i * bytes, pieces[i]->from, bytes);
    return whole;
}

void do_collective(struct piece *const *pieces, int members, int only)
{
    const struct piece *p = pieces[0];
    size_t bytes = p->count * type_bytes(p->type);
    bool scatters = p->kind == REDUCE_SCATTER;
    char *result;
    if (p->count == 0)
        return;
    if (p->kind == ALL_GATHER)
        result = concatenate(pieces, members, bytes);
    else if (p->kind == BROADCAST)
        result = concatenate(pieces + p->peer, 1, bytes);
    else
        result = reduce(pieces, members, scatters ? p->count * (size_t)members : p->count);
    for (int i = 0; i < members; i++)
        if (only >= 0 && i != only)
            continue;
        else if (p->kind == ALL_GATHER)
            memcpy(pieces[i]->to, result, bytes * (size_t)members);
        else if (p->kind != REDUCE || i == p->peer)
            memcpy(pieces[i]->to, result + (scatters ? (size_t)i * bytes : 0), bytes);
    free(result);
}
