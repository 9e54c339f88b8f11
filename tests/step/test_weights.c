/* tests/step/test_weights.c: where the parts of weights lie, alone and as parts of whole
 * tensors; and the facts that travel with a program. */
#include "core/text.h"
#include "step/build.h"
#include "step/dump.h"
#include "step/weights.h"
#include "tests/step/setup.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

struct case_layout {
    char model[24];
    int kind; /* of the layer: -1 embedding, -2 head, else an index */
    int tensor, pipeline, expert;
};

ParameterizedTestParameters(weights, layout)
{
    static struct case_layout cases[] = {
        {"gpt2", 0, 1, 1, 1},          {"gpt2", -1, 1, 1, 1},        {"gpt2", -2, 1, 1, 1},
        {"gpt2", -1, 4, 2, 1},         {"gpt2", -2, 4, 2, 1},        {"llama-3.1-8b", 0, 8, 1, 1},
        {"llama-3.1-8b", -2, 2, 4, 1}, {"mixtral-8x7b", 0, 2, 1, 4}, {"qwen3-30b-a3b", 0, 4, 1, 8},
        {"deepseek-v3", 1, 2, 2, 8},   {"qwen3-32b", 0, 8, 1, 1},
    };
    return cr_make_param_array(struct case_layout, cases, sizeof cases / sizeof *cases);
}

static struct mcp_layer_type layer_of(struct setup *s, const struct case_layout *c)
{
    setup_load(s, c->model, "dgx-h100:8", "megatron-core");
    s->job.sequence_length = 1024;
    s->plan.tensor_parallel = c->tensor;
    s->plan.sequence_parallel = c->tensor > 1;
    s->plan.pipeline_parallel = c->pipeline;
    s->plan.data_parallel = s->plan.expert_parallel = c->expert;
    return setup_layer(s, c->kind, MCP_RECOMPUTE_NONE);
}

static bool same_buffer(const struct mcp_weight *a, const struct mcp_weight *b)
{
    return a->expert == b->expert && a->shared == b->shared;
}

/* Parts fill their buffers, without holes or overlaps; replicated ones are first. */
ParameterizedTest(struct case_layout *c, weights, layout)
{
    struct setup s;
    struct mcp_layer_type type = layer_of(&s, c);
    for (int i = 0; i < type.num_weights; i++) {
        const struct mcp_weight *weight = &type.weights[i];
        int64_t before = 0, offset = mcp_weight_offset(&type, i, 0);
        for (int k = 0; k < type.num_weights; k++) {
            const struct mcp_weight *other = &type.weights[k];
            int64_t at = mcp_weight_offset(&type, k, 0);
            if (!same_buffer(weight, other) || i == k)
                continue;
            before += at < offset ? mcp_weight_elements(other) : 0;
            bool first = !weight->replicated || other->replicated || offset < at;
            cr_expect(eq(int, first, true), "%s: %s, %s", c->model, weight->name, other->name);
        }
        cr_expect(eq(i64, offset, before), "%s: %s", c->model, weight->name);
        cr_expect(eq(i64, mcp_weight_offset(&type, i, 1) - offset, mcp_expert_stride(&type)));
    }
    int64_t dense = mcp_flat_elements(&type, MCP_FLAT_DENSE);
    int64_t table = mcp_has_shared_table(&type) ? 0 : mcp_flat_elements(&type, MCP_FLAT_TABLE);
    cr_expect(eq(i64, 2 * (dense + table), type.buffers[MCP_SPACE_LAYER][MCP_LAYER_WEIGHTS].bytes),
              "%s: bf16 weights", c->model);
    mcp_arena_free(s.arena);
}

/* Tensor ranks' elements are all of the whole tensor, each once; replicas have the same. */
ParameterizedTestParameters(weights, whole)
{
    static struct case_layout cases[] = {
        {"tiny", 0, 2, 1, 1},
        {"tiny", -1, 2, 1, 1},
        {"tiny", -2, 4, 2, 1},

    };
    return cr_make_param_array(struct case_layout, cases, sizeof cases / sizeof *cases);
}

static void expect_whole(const struct mcp_weight *weight, int tensor, unsigned char *seen)
{
    int64_t rows = mcp_weight_global_rows(weight, tensor);
    int64_t all = rows * mcp_weight_global_columns(weight, tensor);
    memset(seen, 0, (size_t)all);
    for (int r = 0; r < tensor; r++)
        for (int64_t i = 0; i < mcp_weight_elements(weight); i++) {
            int64_t at = mcp_weight_global_index(weight, r, tensor, i / weight->columns,
                                                 i % weight->columns);
            cr_assert(at >= 0 && at < all, "%s", weight->name);
            seen[at]++;
        }
    for (int64_t i = 0; i < all; i++)
        cr_assert(seen[i] == (weight->replicated ? tensor : 1), "%s: element %lld %d times",
                  weight->name, (long long)i, seen[i]);
}

ParameterizedTest(struct case_layout *c, weights, whole)
{
    struct setup s;
    struct mcp_layer_type type = layer_of(&s, c);
    for (int i = 0; i < type.num_weights; i++) {
        int64_t all = mcp_weight_elements(&type.weights[i]) * c->tensor;
        expect_whole(&type.weights[i], c->tensor, MCP_ARRAY(s.arena, all, unsigned char));
    }
    mcp_arena_free(s.arena);
}

/* Rows of queries, keys and values of two ranks, in the whole of them. */
Test(weights, bands)
{
    const struct mcp_weight qkv = {.rows = 8, .columns = 3, .copies = 1, .bands = {4, 2, 2}};
    static const int64_t rows[2][8] = {{0, 1, 2, 3, 8, 9, 12, 13}, {4, 5, 6, 7, 10, 11, 14, 15}};
    for (int r = 0; r < 2; r++)
        for (int64_t i = 0; i < 8; i++)
            cr_expect(eq(i64, mcp_weight_global_index(&qkv, r, 2, i, 1), rows[r][i] * 3 + 1));
}

static bool same_weight(const struct mcp_weight *a, const struct mcp_weight *b)
{
    return mcp_same(a->name, b->name) && a->rows == b->rows && a->columns == b->columns &&
           a->copies == b->copies && a->expert == b->expert && a->replicated == b->replicated &&
           a->shared == b->shared && a->twin == b->twin && a->duplicate == b->duplicate &&
           a->by_columns == b->by_columns && a->cast == b->cast && a->init == b->init &&
           memcmp(a->bands, b->bands, sizeof a->bands) == 0;
}

struct case_file {
    char model[24];
    int pipeline;
};

ParameterizedTestParameters(weights, file)
{
    static struct case_file cases[] = {
        {"gpt2", 2}, {"llama-3.1-8b", 1}, {"mixtral-8x7b", 4}, {"gpt-oss-120b", 4}};
    return cr_make_param_array(struct case_file, cases, sizeof cases / sizeof *cases);
}

/* What a program file brings back: weights and facts, to the last digit. */
ParameterizedTest(struct case_file *c, weights, file)
{
    struct setup s;
    struct mcp_program program, back;
    struct mcp_error err = {""};
    struct mcp_json *json;
    setup_load(&s, c->model, "dgx-h100:8", "megatron-core");
    s.plan.pipeline_parallel = c->pipeline;
    setup_finish(&s, c->pipeline, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    const char *text = mcp_json_text(s.arena, mcp_program_to_json(s.arena, &program));
    cr_assert(mcp_json_parse(s.arena, "program", text, strlen(text), &json, &err) == MCP_OK);
    cr_assert(mcp_program_from_json(s.arena, json, &back, &err) == MCP_OK, "%s", err.text);
    for (int t = 0; t < program.num_types; t++) {
        const struct mcp_layer_type *a = &program.types[t], *b = &back.types[t];
        cr_expect(memcmp(&a->facts, &b->facts, sizeof a->facts) == 0, "%s: facts of %s", c->model,
                  a->name);
        for (int i = 0; i < a->num_weights; i++)
            cr_expect(same_weight(&a->weights[i], &b->weights[i]), "%s: %s", c->model,
                      a->weights[i].name);
    }
    mcp_arena_free(s.arena);
}
