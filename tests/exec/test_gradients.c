/* tests/exec/test_gradients.c: losses and every gradient against PyTorch's
 * (tests/golden/make_gradients.py). */
#include "alone.h"

#include "core/safetensors.h"
#include "core/text.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 2, LENGTH = 11 };
#define FP32 MCP_PRECISION_FP32
#define BF16 MCP_PRECISION_BF16

struct case_golden {
    char name[16];
    int num_microbatches;
    enum mcp_recompute recompute;
    enum mcp_precision precision;
};

/* fp32 as the judge; bf16 rounds every value that is kept. */
static double tolerance_of(const struct case_golden *c)
{
    return c->precision == MCP_PRECISION_FP32 ? 1e-5 : 0.08;
}

/* One of "weights." and "gradients.": L, PART, and how many copies of it there are. */
struct key {
    int layer, copies;
    const char *part;
    int64_t elements; /* of a copy */
};

static bool parse_key(const struct mcp_tensor *tensor, const char *prefix, struct key *out)
{
    const char *text = tensor->name;
    if (!mcp_starts_with(text, prefix))
        return false;
    text += strlen(prefix);
    out->layer = text[0] - '0';
    out->part = text + 2;
    out->copies = tensor->num_dims == 3 ? (int)tensor->shape[0] : 1;
    out->elements = tensor->bytes / 4 / out->copies;
    return true;
}

static double value_at(const struct mcp_tensor *tensor, int64_t element)
{
    float value;
    memcpy(&value, (const char *)tensor->data + element * 4, sizeof value);
    return (double)value;
}

static void load_weights(struct alone *alone, const struct mcp_safetensors *file)
{
    for (int i = 0; i < file->num_tensors; i++) {
        const struct mcp_tensor *tensor = &file->tensors[i];
        struct key key;
        if (!parse_key(tensor, "weights.", &key))
            continue;
        for (int copy = 0; copy < key.copies; copy++) {
            struct alone_values weight = alone_weight(alone, key.layer, key.part, false, copy);
            cr_assert(weight.data != NULL, "no %s in layer %d", key.part, key.layer);
            for (int64_t k = 0; k < key.elements; k++)
                alone_set(weight, k, value_at(tensor, copy * key.elements + k));
        }
    }
}

/* A gradient beside PyTorch's: the length of their difference, and of the judge; and the
 * largest difference of two elements, and the judge's largest. */
struct distance {
    double length, of, largest, largest_of;
};

static struct distance distance_to(struct alone *alone, const struct mcp_tensor *tensor,
                                   const struct key *key)
{
    struct distance d = {.length = 0};
    for (int copy = 0; copy < key->copies; copy++) {
        struct alone_values got = alone_weight(alone, key->layer, key->part, true, copy);
        for (int64_t k = 0; k < key->elements; k++) {
            double want = value_at(tensor, copy * key->elements + k);
            double error = alone_get(got, k) - want;
            d.length += error * error; /* keeps a NaN */
            d.of += want * want;
            d.largest = fmax(d.largest, fabs(error));
            d.largest_of = fmax(d.largest_of, fabs(want));
        }
    }
    d.length = sqrt(d.length);
    d.of = sqrt(d.of);
    return d;
}

static void expect_gradients(struct alone *alone, const struct mcp_safetensors *file,
                             const struct case_golden *c)
{
    const char *name = c->name;
    int checked = 0;
    for (int i = 0; i < file->num_tensors; i++) {
        struct key key;
        if (!parse_key(&file->tensors[i], "gradients.", &key))
            continue;
        struct distance d = distance_to(alone, &file->tensors[i], &key);
        cr_expect(d.length <= tolerance_of(c) * d.of, "%s: %s is off by %g of %g", name,
                  file->tensors[i].name, d.length, d.of);
        if (c->precision == MCP_PRECISION_FP32)
            cr_expect(d.largest <= tolerance_of(c) * d.largest_of, "%s: %s", name,
                      file->tensors[i].name);
        checked++;
    }
    cr_expect(checked >= 9, "%s: %d gradients", name, checked);
}

ParameterizedTestParameters(gradients, like_pytorch)
{
    static struct case_golden cases[] = {
        {"gpt2", 1, MCP_RECOMPUTE_NONE, FP32},       {"gpt2", 2, MCP_RECOMPUTE_FULL, FP32},
        {"gpt2_erf", 1, MCP_RECOMPUTE_NONE, FP32},   {"llama", 1, MCP_RECOMPUTE_NONE, FP32},
        {"llama", 2, MCP_RECOMPUTE_SELECTIVE, FP32}, {"mixtral", 1, MCP_RECOMPUTE_NONE, FP32},
        {"mixtral", 2, MCP_RECOMPUTE_FULL, FP32},    {"qwen2", 1, MCP_RECOMPUTE_NONE, FP32},
        {"qwen3_moe", 1, MCP_RECOMPUTE_NONE, FP32},  {"gpt2", 1, MCP_RECOMPUTE_FULL, BF16},
        {"llama", 2, MCP_RECOMPUTE_NONE, BF16},      {"gpt2_erf", 1, MCP_RECOMPUTE_NONE, BF16},
    };
    return cr_make_param_array(struct case_golden, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_golden *c, gradients, like_pytorch)
{
    struct alone alone = {.ids = NULL};
    struct mcp_safetensors file;
    struct mcp_error err = {""};
    char path[64];
    struct mcp_arena *arena = mcp_arena_new();
    snprintf(path, sizeof path, "tests/golden/gradients/%s.safetensors", c->name);
    cr_assert(mcp_safetensors_read(arena, path, &file, &err) == MCP_OK, "%s", err.text);
    alone_model(&alone, mcp_safetensors_note(&file, "config"), BATCH / c->num_microbatches, LENGTH);
    alone.setup.job.precision = c->precision;
    alone_build(&alone, c->num_microbatches, c->recompute);
    load_weights(&alone, &file);
    int32_t ids[BATCH * (LENGTH + 1)];
    memcpy(ids, mcp_safetensors_find(&file, "ids")->data, sizeof ids);
    alone.ids = ids;
    alone_step(&alone, false);
    double want = value_at(mcp_safetensors_find(&file, "loss"), 0);
    double loss = (double)*(float *)alone.rank_buffers[MCP_RANK_LOSS] / (BATCH * LENGTH);
    cr_expect(fabs(loss - want) <= tolerance_of(c) / 4 * want, "%s: loss %.7g, PyTorch %.7g",
              c->name, loss, want);
    expect_gradients(&alone, &file, c);
    mcp_arena_free(alone.setup.arena);
    mcp_arena_free(arena);
}
