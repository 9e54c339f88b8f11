/* tests/exec/test_hugging_face.c: models in Hugging Face's form: names, shapes, transposes;
 * what one layout exports any layout imports. */
#include "exec/hugging_face.h"
#include "tests/exec/layouts.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <unistd.h>

enum { SEED = 5, STEP = 1 };

static char folder[64];

static void set_up(void)
{
    snprintf(folder, sizeof folder, "/tmp/mcp-test-hf-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
}

static void tear_down(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect(eq(int, system(command), 0));
}

static const struct mcp_layer_type *type_of(const struct mcp_program *program, int layer)
{
    const struct mcp_layer_type *type = mcp_program_layer_type(program, layer);
    cr_assert(type != NULL, "no layer %d", layer);
    return type;
}

/* New weights of the layout, exported: the file's path. */
static const char *export_new(struct setup *s, const struct layout *l, enum mcp_hf_naming naming,
                              struct mcp_program *program, const struct mcp_checkpoint **checkpoint)
{
    const struct mcp_checkpoint_state state = {.step = STEP, .seed = SEED};
    struct mcp_error err = {0};
    layout_build(s, l, program);
    const char *path = mcp_format(s->arena, "%s/model.safetensors", folder);
    layout_save(program, folder, &state, NULL);
    cr_assert(eq(int, mcp_checkpoint_open(s->arena, folder, STEP, true, checkpoint, &err), MCP_OK));
    cr_assert(eq(int, mcp_hf_write(path, naming, program, *checkpoint, NULL, &err), MCP_OK), "%s",
              err.text);
    return path;
}

static void expect_equal(struct mcp_arena *arena, const struct mcp_hf_model *model,
                         const struct mcp_checkpoint *checkpoint, const struct mcp_layer_type *type,
                         int layer, const struct mcp_piece *piece)
{
    const int64_t count = piece->rows * piece->columns, begin = count / 3;
    const struct mcp_value_range range = {MCP_VALUE_WEIGHTS, piece, begin, count - begin};
    struct mcp_error err = {0};
    float *got = MCP_ARRAY(arena, count, float), *want = MCP_ARRAY(arena, count, float);
    cr_assert(eq(int, mcp_hf_read(model, type, layer, &range, got, &err), MCP_OK), "%s", err.text);
    cr_assert(eq(int, mcp_checkpoint_read(checkpoint, &range, want, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, memcmp(got, want, (size_t)(count - begin) * sizeof *got), 0), "%s",
              piece->name);
}

struct case_export {
    struct layout from, to;
    enum mcp_hf_naming naming;
    int tensors;
};
ParameterizedTestParameters(hugging_face, round_trip)
{
    static struct case_export cases[] = {
        {{"gpt2-tiny", 2, 1, 2, 1, 1, 1, false},
         {"gpt2-tiny", 4, 1, 1, 1, 1, 0, false},
         MCP_HF_GPT2,
         4 + 4 * 12},
        {{"gpt2-tiny", 1, 1, 1, 1, 1, 0, false},
         {"gpt2-tiny", 1, 1, 2, 2, 1, 3, false},
         MCP_HF_GPT2,
         4 + 4 * 12},
        {{"llama-tiny", 2, 1, 1, 2, 1, 2, true},
         {"llama-tiny", 1, 1, 2, 1, 1, 0, false},
         MCP_HF_LLAMA,
         3 + 4 * 9},
        {{"moe-tiny", 2, 1, 1, 2, 4, 0, false},
         {"moe-tiny", 1, 1, 1, 2, 2, 0, false},
         MCP_HF_MIXTRAL,
         3 + 4 * (7 + 4 * 3)},
        {{"moe-tiny", 1, 1, 1, 1, 1, 0, false},
         {"moe-tiny", 2, 1, 2, 2, 2, 0, false},
         MCP_HF_QWEN_MOE,
         3 + 4 * (7 + 4 * 3)},
    };
    return cr_make_param_array(struct case_export, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_export *c, hugging_face, round_trip, .init = set_up,
                  .fini = tear_down)
{
    struct setup s, other;
    struct mcp_program program;
    struct mcp_safetensors file;
    struct mcp_error err = {0};
    const struct mcp_checkpoint *checkpoint;
    const struct mcp_hf_model *model;
    const char *path = export_new(&s, &c->from, c->naming, &program, &checkpoint);
    cr_assert(eq(int, mcp_safetensors_read(s.arena, path, &file, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, file.num_tensors, c->tensors));
    cr_assert(eq(int, mcp_hf_open(s.arena, folder, &model, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, (int)mcp_hf_naming_of(model), (int)c->naming));
    layout_build(&other, &c->to, &program);
    for (int rank = 0; rank < mcp_plan_world(&program.plan); rank++)
        for (int layer = 0; layer < program.num_layers; layer++)
            for (int flat = 0; flat < MCP_NUM_FLATS; flat++) {
                struct mcp_piece *pieces;
                const struct mcp_layer_type *type = type_of(&program, layer);
                const struct mcp_flat_key key = {&program.plan, rank, layer, type,
                                                 (enum mcp_flat)flat};
                const int count = mcp_flat_pieces(s.arena, &key, &pieces);
                for (int i = 0; i < count; i++)
                    expect_equal(s.arena, model, checkpoint, type, layer, &pieces[i]);
            }
    mcp_arena_free(s.arena);
    mcp_arena_free(other.arena);
}

/* What a program's parts say it is named like. */
struct case_naming {
    char model[16];
    bool qk_norm, attention_bias, router_bias, layernorm;
    enum mcp_hf_naming want;
    char says[64]; /* "": there are names for all */
};
ParameterizedTestParameters(hugging_face, naming_for)
{
    static struct case_naming cases[] = {
        {"gpt2-tiny", false, true, false, true, MCP_HF_GPT2, ""},
        {"llama-tiny", false, false, false, false, MCP_HF_LLAMA, ""},
        {"llama-tiny", true, false, false, false, MCP_HF_LLAMA, ""},
        {"moe-tiny", false, false, false, false, MCP_HF_MIXTRAL, ""},
        {"moe-tiny", true, false, false, false, MCP_HF_QWEN_MOE, ""},
        {"moe-tiny", false, true, false, false, MCP_HF_QWEN_MOE, ""},
        {"moe-tiny", false, false, true, false, MCP_HF_MIXTRAL,
         "layers.1.router_bias: models named like mixtral"},
        {"llama-tiny", false, false, false, true, MCP_HF_LLAMA,
         "layers.1.attention_norm: models named like llama"},
    };
    return cr_make_param_array(struct case_naming, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_naming *c, hugging_face, naming_for)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_error err = {0};
    enum mcp_hf_naming got;
    char path[64];
    snprintf(path, sizeof path, "tests/exec/models/%s.json", c->model);
    setup_load(&s, path, "dgx-a100", "megatron-core");
    for (int i = 0; i < s.model.num_kinds; i++) {
        s.model.kinds[i].qk_norm = c->qk_norm;
        s.model.kinds[i].attention_bias = c->attention_bias;
        s.model.kinds[i].router_bias = c->router_bias;
    }
    s.model.norm = c->layernorm ? MCP_LAYERNORM : MCP_RMSNORM;
    s.job.sequence_length = 32;
    s.job.precision = MCP_PRECISION_FP32;
    setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    cr_expect(eq(int, (int)mcp_hf_naming_for(&program, &got, &err),
                 c->says[0] == '\0' ? MCP_OK : MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s", err.text);
    cr_expect(eq(int, (int)got, (int)c->want), "%s", mcp_hf_naming_names[got]);
    mcp_arena_free(s.arena);
}

/* Names and shapes that the classes of transformers have. */
struct case_name {
    char model[16];
    enum mcp_hf_naming naming;
    char name[64];
    int rows, columns; /* 0: one dimension */
};
ParameterizedTestParameters(hugging_face, names)
{
    static struct case_name cases[] = {
        {"gpt2-tiny", MCP_HF_GPT2, "wte.weight", 200, 48},
        {"gpt2-tiny", MCP_HF_GPT2, "wpe.weight", 64, 48},
        {"gpt2-tiny", MCP_HF_GPT2, "h.0.ln_1.bias", 48, 0},
        {"gpt2-tiny", MCP_HF_GPT2, "h.1.attn.c_attn.weight", 48, 144},
        {"gpt2-tiny", MCP_HF_GPT2, "h.1.attn.c_attn.bias", 144, 0},
        {"gpt2-tiny", MCP_HF_GPT2, "h.2.attn.c_proj.weight", 48, 48},
        {"gpt2-tiny", MCP_HF_GPT2, "h.3.mlp.c_fc.weight", 48, 96},
        {"gpt2-tiny", MCP_HF_GPT2, "h.3.mlp.c_proj.weight", 96, 48},
        {"gpt2-tiny", MCP_HF_GPT2, "h.3.mlp.c_proj.bias", 48, 0},
        {"gpt2-tiny", MCP_HF_GPT2, "ln_f.weight", 48, 0},
        {"llama-tiny", MCP_HF_LLAMA, "model.embed_tokens.weight", 200, 48},
        {"llama-tiny", MCP_HF_LLAMA, "model.layers.0.self_attn.q_proj.weight", 48, 48},
        {"llama-tiny", MCP_HF_LLAMA, "model.layers.3.self_attn.k_proj.weight", 24, 48},
        {"llama-tiny", MCP_HF_LLAMA, "model.layers.3.self_attn.v_proj.weight", 24, 48},
        {"llama-tiny", MCP_HF_LLAMA, "model.layers.0.mlp.gate_proj.weight", -1, 48},
        {"llama-tiny", MCP_HF_LLAMA, "model.layers.0.mlp.down_proj.weight", 48, -1},
        {"llama-tiny", MCP_HF_LLAMA, "model.layers.2.post_attention_layernorm.weight", 48, 0},
        {"llama-tiny", MCP_HF_LLAMA, "model.norm.weight", 48, 0},
        {"llama-tiny", MCP_HF_LLAMA, "lm_head.weight", 200, 48},
        {"moe-tiny", MCP_HF_MIXTRAL, "model.layers.0.block_sparse_moe.gate.weight", 4, 48},
        {"moe-tiny", MCP_HF_MIXTRAL, "model.layers.1.block_sparse_moe.experts.3.w1.weight", 40, 48},
        {"moe-tiny", MCP_HF_MIXTRAL, "model.layers.1.block_sparse_moe.experts.2.w2.weight", 48, 40},
        {"moe-tiny", MCP_HF_QWEN_MOE, "model.layers.1.mlp.experts.0.up_proj.weight", 40, 48},
    };
    return cr_make_param_array(struct case_name, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_name *c, hugging_face, names, .init = set_up, .fini = tear_down)
{
    struct layout layout = {"", 1, 1, 1, 1, 1, 0, false};
    struct setup s;
    struct mcp_program program;
    struct mcp_safetensors file;
    struct mcp_error err = {0};
    const struct mcp_checkpoint *checkpoint;
    memcpy(layout.model, c->model, sizeof layout.model);
    const char *path = export_new(&s, &layout, c->naming, &program, &checkpoint);
    cr_assert(eq(int, mcp_safetensors_read(s.arena, path, &file, &err), MCP_OK), "%s", err.text);
    const struct mcp_tensor *tensor = mcp_safetensors_find(&file, c->name);
    cr_assert(ne(ptr, (void *)tensor, NULL), "%s", c->name);
    cr_expect(eq(int, tensor->num_dims, c->columns == 0 ? 1 : 2));
    cr_expect(c->rows < 0 || tensor->shape[0] == c->rows);
    cr_expect(c->columns <= 0 || tensor->shape[1] == c->columns);
    mcp_arena_free(s.arena);
}

/* Rewrites the exported file with one tensor changed. */
static void spoil(struct mcp_arena *arena, const char *path, const char *name,
                  void (*change)(struct mcp_tensor *))
{
    struct mcp_safetensors file;
    struct mcp_error err = {0};
    cr_assert(eq(int, mcp_safetensors_read(arena, path, &file, &err), MCP_OK));
    for (int i = 0; i < file.num_tensors; i++)
        if (strcmp(file.tensors[i].name, name) == 0)
            change(&file.tensors[i]);
    cr_assert(eq(int, mcp_safetensors_write(arena, &file, NULL, &err), MCP_OK), "%s", err.text);
}

static void rename_it(struct mcp_tensor *tensor)
{
    tensor->name = "other";
}
static void flatten_it(struct mcp_tensor *tensor)
{
    tensor->num_dims = 1;
    tensor->shape[0] *= tensor->shape[1];
}
static void retype_it(struct mcp_tensor *tensor)
{
    tensor->dtype = MCP_I32;
}
static void halve_it(struct mcp_tensor *tensor) /* fp32 bits read as twice as many fp16 */
{
    tensor->dtype = MCP_F16;
}

struct case_spoil {
    char name[40];
    int change;
    char says[72];
};
ParameterizedTestParameters(hugging_face, refused)
{
    static struct case_spoil cases[] = {
        {"h.1.attn.c_attn.weight", 0, "no tensor h.1.attn.c_attn.weight"},
        {"h.1.attn.c_attn.weight", 1, "h.1.attn.c_attn.weight has 1 dimensions, [6912, 1 ..]"},
        {"h.2.mlp.c_fc.bias", 2, "h.2.mlp.c_fc.bias is I32, expected F32"},
        {"wte.weight", 0, "neither wte.weight nor model.embed_tokens.weight"},
        {"h.2.mlp.c_fc.bias", 3, ""},
    };
    return cr_make_param_array(struct case_spoil, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_spoil *c, hugging_face, refused, .init = set_up, .fini = tear_down)
{
    static void (*const changes[])(struct mcp_tensor *) = {rename_it, flatten_it, retype_it,
                                                           halve_it};
    const struct layout layout = {"gpt2-tiny", 1, 1, 1, 1, 1, 0, false};
    struct setup s;
    struct mcp_program program;
    struct still_rank own;
    struct mcp_error err = {0};
    const struct mcp_checkpoint *checkpoint;
    const struct mcp_hf_model *model;
    const char *path = export_new(&s, &layout, MCP_HF_GPT2, &program, &checkpoint);
    spoil(s.arena, path, c->name, changes[c->change]);
    still_rank_new(s.arena, &program, 0, SEED, &own);
    enum mcp_status status = mcp_hf_open(s.arena, path, &model, &err);
    if (status == MCP_OK)
        status = mcp_load_hugging_face(&own.saved, model, &err);
    cr_expect(eq(int, status == MCP_OK, c->says[0] == '\0'), "%s", err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s", err.text);
    mcp_arena_free(s.arena);
}

/* Loaded weights are the exported ones, in fp32 and rounded; states are of no steps. */
Test(hugging_face, loads_into_memory, .init = set_up, .fini = tear_down)
{
    const struct layout layout = {"llama-tiny", 1, 1, 1, 1, 1, 0, false};
    struct setup s;
    struct mcp_program program;
    struct still_rank own;
    struct mcp_error err = {0};
    const struct mcp_checkpoint *checkpoint;
    const struct mcp_hf_model *model;
    struct mcp_flat_place places[MCP_NUM_FLATS];
    const char *path = export_new(&s, &layout, MCP_HF_LLAMA, &program, &checkpoint);
    still_rank_new(s.arena, &program, 0, SEED + 1, &own);
    cr_assert(eq(int, mcp_hf_open(s.arena, path, &model, &err), MCP_OK));
    cr_assert(eq(int, mcp_load_hugging_face(&own.saved, model, &err), MCP_OK), "%s", err.text);
    cr_assert(eq(int, mcp_flat_places(own.saved.interpreter, &own.rank, 2, places), 1));
    float *want = MCP_ARRAY(s.arena, places[0].elements, float);
    mcp_init_flat(&own.rank, 2, type_of(&program, 2), places[0].flat, SEED, want);
    cr_expect(eq(int, memcmp(want, places[0].weights, (size_t)places[0].elements * 4), 0));
    const float *state = (const float *)places[0].state;
    for (int64_t i = 0; i < 2 * places[0].elements; i++)
        cr_assert(state[i] == 0, "state %d", (int)i);
    mcp_arena_free(s.arena);
}
