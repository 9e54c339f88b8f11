/* tests/exec/test_pretrained.c: models that transformers saved give its loss
 * (tests/golden/make_hugging_face.py). */
#include "alone.h"

#include "core/text.h"
#include "exec/hugging_face.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 2, LENGTH = 11 };

static void load_piece(struct alone *alone, const struct mcp_hf_model *model,
                       const struct mcp_flat_key *key, const struct mcp_piece *piece)
{
    const struct mcp_weight *weight = &key->type->weights[piece->part];
    const int64_t count = piece->rows * piece->columns;
    const struct mcp_value_range range = {MCP_VALUE_WEIGHTS, piece, 0, count};
    const int64_t start = mcp_weight_offset(key->type, piece->part, piece->expert) -
                          mcp_flat_first(key->type, key->flat);
    const struct alone_values values =
        alone_weight(alone, key->layer, weight->name, false, piece->expert);
    float *data = MCP_ARRAY(alone->setup.arena, count, float);
    struct mcp_error err = {""};
    cr_assert(mcp_hf_read(model, key->type, key->layer, &range, data, &err) == MCP_OK, "%s",
              err.text);
    for (int64_t i = 0; i < count; i++)
        alone_set(values, piece->offset - start + i, (double)data[i]);
}

/* The type of a layer, as some entry says. */
static const struct mcp_layer_type *type_of(const struct mcp_program *program, int layer)
{
    for (int l = 0; l < program->num_lists; l++)
        for (int e = 0; e < program->lists[l].num_entries; e++)
            if (program->lists[l].entries[e].layer == layer)
                return &program->types[program->lists[l].entries[e].type];
    return NULL;
}

static void load_model(struct alone *alone, const struct mcp_hf_model *model)
{
    const struct mcp_program *program = &alone->program;
    for (int layer = 0; layer < program->num_layers; layer++)
        for (int flat = 0; flat < MCP_NUM_FLATS; flat++) {
            const struct mcp_flat_key key = {&program->plan, 0, layer, type_of(program, layer),
                                             (enum mcp_flat)flat};
            struct mcp_piece *pieces;
            const int count = mcp_flat_pieces(alone->setup.arena, &key, &pieces);
            for (int i = 0; i < count; i++)
                load_piece(alone, model, &key, &pieces[i]);
        }
}

static double read_expected(struct mcp_arena *arena, const char *folder, int32_t *ids)
{
    struct mcp_error err = {""};
    struct mcp_json *json, *list;
    double loss = 0;
    const char *path = mcp_format(arena, "%s/expected.json", folder);
    cr_assert(mcp_json_read(arena, path, &json, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_json_array(json, "ids", &list, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_json_count(list) == BATCH * (LENGTH + 1));
    for (size_t i = 0; i < BATCH * (LENGTH + 1); i++)
        cr_assert(mcp_json_as_int(mcp_json_at(list, i), &ids[i], &err) == MCP_OK);
    cr_assert(mcp_json_double(json, "loss", &loss, &err) == MCP_OK, "%s", err.text);
    return loss;
}

struct case_pretrained {
    char name[16];
};
ParameterizedTestParameters(pretrained, loss)
{
    static struct case_pretrained cases[] = {{"gpt2"}, {"llama"}, {"qwen2"}, {"mixtral"}};
    return cr_make_param_array(struct case_pretrained, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_pretrained *c, pretrained, loss)
{
    struct alone alone = {.ids = NULL};
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_text config;
    const struct mcp_hf_model *model;
    int32_t ids[BATCH * (LENGTH + 1)];
    const char *folder = mcp_format(arena, "tests/golden/hugging_face/%s", c->name);
    const char *path = mcp_format(arena, "%s/config.json", folder);
    const double want = read_expected(arena, folder, ids);
    cr_assert(mcp_file_read(arena, path, 1 << 20, &config, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_hf_open(arena, folder, &model, &err) == MCP_OK, "%s", err.text);
    alone_model(&alone, config.data, BATCH, LENGTH);
    alone_build(&alone, 1, MCP_RECOMPUTE_NONE);
    load_model(&alone, model);
    alone.ids = ids;
    alone_step(&alone, false);
    const double loss =
        (double)*(const float *)alone.rank_buffers[MCP_RANK_LOSS] / (BATCH * LENGTH);
    cr_expect(fabs(loss - want) <= 1e-5 * want, "%s: loss %.8g, transformers' %.8g", c->name, loss,
              want);
    mcp_arena_free(alone.setup.arena);
    mcp_arena_free(arena);
}
