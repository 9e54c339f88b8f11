/* tests/step/test_dump.c: programs as files: what is refused, and that a file says all. */
#include "step/dump.h"

#include "core/text.h"
#include "step/build.h"
#include "step/verify.h"
#include "tests/step/setup.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

/* A small program with names that repeat, ZeRO-3 copies and messages. */
static void build(struct mcp_arena *arena, struct mcp_program *program)
{
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_stack stack;
    struct mcp_error err;
    struct mcp_job job = mcp_job_default();
    struct mcp_plan plan = mcp_plan_default();
    const struct mcp_question question = {&model, &cluster, &job, &stack};
    cr_assert(eq(int, (int)mcp_model_load(arena, "tiny", &model, &err), 0));
    cr_assert(eq(int, (int)mcp_cluster_load(arena, "dgx-h100:1", &cluster, &err), 0));
    cr_assert(eq(int, (int)mcp_stack_load(arena, "megatron-core", &stack, &err), 0));
    plan.pipeline_parallel = plan.tensor_parallel = plan.data_parallel = 2;
    plan.sequence_parallel = true;
    plan.zero_stage = 3;
    job.sequence_length = 128;
    job.global_batch_size = 8;
    mcp_plan_uniform_chunks(arena, &plan, model.num_layers, MCP_RECOMPUTE_FULL);
    mcp_program_build(arena, &question, &plan, program);
}

static const char *dump(struct mcp_arena *arena, const struct mcp_program *program)
{
    return mcp_json_text(arena, mcp_program_to_json(arena, program));
}

static enum mcp_status load(struct mcp_arena *arena, const char *text, struct mcp_program *program,
                            struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_parse(arena, "program.json", text, strlen(text), &json, err));
    return mcp_program_from_json(arena, json, program, err);
}

/* `text` with the first `find` replaced. */
static const char *replace(struct mcp_arena *arena, const char *text, const char *find,
                           const char *by)
{
    const char *at = strstr(text, find);
    cr_assert(ne(ptr, (void *)at, NULL), "%s", find);
    return mcp_format(arena, "%.*s%s%s", (int)(at - text), text, by, at + strlen(find));
}

static void expect_equal_ops(const struct mcp_block *a, const struct mcp_block *b)
{
    cr_assert(eq(int, a->num_ops, b->num_ops));
    for (int i = 0; i < a->num_ops; i++)
        cr_expect(eq(int, memcmp(&a->ops[i], &b->ops[i], sizeof *a->ops), 0), "op %d", i);
}

Test(dump, loses_nothing)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_program a, b;
    struct mcp_error err = {""};
    build(arena, &a);
    cr_assert(eq(int, (int)load(arena, dump(arena, &a), &b, &err), 0), "%s", err.text);
    cr_expect(eq(int, a.num_types, b.num_types));
    for (int t = 0; t < a.num_types; t++)
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
            expect_equal_ops(&a.types[t].blocks[role], &b.types[t].blocks[role]);
    cr_expect(eq(int, a.num_lists, b.num_lists));
    for (int l = 0; l < a.num_lists; l++)
        cr_expect(eq(int,
                     memcmp(a.lists[l].entries, b.lists[l].entries,
                            (size_t)a.lists[l].num_entries * sizeof(struct mcp_entry)),
                     0));
    cr_expect(eq(int, a.num_classes, b.num_classes));
    cr_expect(eq(int, (int)mcp_program_verify(arena, &b, &err), 0), "%s", err.text);
    cr_expect(eq(str, (char *)dump(arena, &a), (char *)dump(arena, &b)));
    mcp_arena_free(arena);
}

/* Whatever repeats in frames and scratch: operands in layer space name one buffer. */
Test(dump, layer_buffers_have_names_of_their_own)
{
    struct setup s;
    setup_load(&s, "mixtral-8x7b", "dgx-h100", "megatron-core");
    s.plan.data_parallel = s.plan.expert_parallel = 8;
    s.plan.zero_stage = 3;
    struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    const struct mcp_buffer *buffers = type.buffers[MCP_SPACE_LAYER];
    for (int i = 0; i < type.num_buffers[MCP_SPACE_LAYER]; i++)
        for (int j = 0; j < i; j++)
            cr_expect(ne(str, (char *)buffers[i].name, (char *)buffers[j].name));
    cr_expect(eq(str, (char *)buffers[MCP_LAYER_EXPERT_WEIGHTS].name, "expert_weights"));
    mcp_arena_free(s.arena);
}

struct case_load {
    char name[40];
    char find[48], by[48];
    char says[80];
};

ParameterizedTestParameters(dump, refusals)
{
    static struct case_load cases[] = {
        {"another schema", "mcpplan.program/1", "mcpplan.program/2",
         "expected \"mcpplan.program/1\""},
        {"an unknown key", "\"num_layers\": 6", "\"num_layers\": 6, \"layers\": 6",
         "unknown key 'layers'"},
        {"a missing key", "\"num_layers\"", "\"num_layer\"", "num_layers"},
        {"another column", "\"capacity_bytes\"", "\"room\"",
         "column 4 is \"room\" where \"capacity_bytes\""},
        {"an unknown function", "\"matmul_nt\"", "\"matmul_mt\"", "the closest is \"matmul_nt\""},
        {"an unknown stream", "\"matmul_nt\", \"compute\"", "\"matmul_nt\", \"tensors\"",
         "the closest is \"tensor\""},
        {"an unknown format", "\"bf16\"", "\"bf61\"", "\"bf61\" is not known here"},
        {"an unknown group", "\"tensor+context", "\"tensor+kontext", "does not begin with an axis"},
        {"an unknown buffer", "layer.weights\"", "layer.wights\"", "\"layer.wights\" is no buffer"},
        {"an unknown space", "rank.norm\"", "bank.norm\"", "\"bank.norm\" is no buffer"},
        {"an index of another name", "rank.norm\"", "rank.norm#0\"",
         "\"rank.norm#0\" is no buffer"},
        {"an index beyond the table", "rank.norm\"", "rank.norm#99\"", "is no buffer"},
        {"a distance beyond its type", "\"tensor\", 0,", "\"tensor\", 500,",
         "500 is not an integer from -128 to 127"},
        {"half a distance", "\"tensor\", 0,", "\"tensor\", 0.5,", "0.5 is not an integer"},
        {"a short row", "[\"loss\", \"f32\", ", "[\"loss\", ", "4 cells"},
        {"a row that is none", "[\"loss\",", "7, [\"loss\",", "a row must be an array"},
        {"more held than there is room", "\"scratch\", 4, 4", "\"scratch\", 4, 3",
         "3 is not an integer from 4"},
        {"a name with a blank", "[\"loss\"", "[\"lo ss\"", "\"lo ss\" is not a name"},
        {"a name that is empty", "[\"loss\"", "[\"\"", "\"\" is not a name"},
        {"a number for a word", "[\"loss\"", "[12", "string"},
        {"an unknown role", "[\"receive_forward\",", "[\"receive_foward\",",
         "the closest is \"receive_forward\""},
        {"a type that does not exist", "[\"receive_forward\", ", "[\"receive_forward\", 9",
         "is not an integer from 0 to"},
        {"a pass that is none", "[\"epilogue\", -1, -1", "[\"gather\", -1, -1",
         "\"gather\" is not known here"},
        {"a list that does not exist", "[\"epilogue\", -1, -1, ", "[\"epilogue\", -1, -1, 9",
         "is not an integer from 0"},
        {"a chunk that does not exist", "[\"epilogue\", -1, -1, ", "[\"epilogue\", 1, -1, ",
         "1 is not an integer from -1 to 0"},
        {"a wrong plan", "\"zero_stage\": 3", "\"zero_stage\": 4", "zero_stage"},
    };
    return cr_make_param_array(struct case_load, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_load *c, dump, refusals)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_program program, back;
    struct mcp_error err = {""};
    build(arena, &program);
    const char *text = replace(arena, dump(arena, &program), c->find, c->by);
    cr_expect(ne(int, (int)load(arena, text, &back, &err), (int)MCP_OK), "%s", c->name);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
    cr_expect(eq(int, strncmp(err.text, "program.json: ", 14), 0), "%s: %s", c->name, err.text);
    mcp_arena_free(arena);
}
