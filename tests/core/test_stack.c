/* tests/core/test_stack.c: stacks inherit, state their sources and round-trip to the byte. */
#include "core/stack.h"

#include "core/plan.h"
#include "core/preset.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum mcp_status parse(struct mcp_arena *arena, const char *text, struct mcp_stack *out,
                             struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_parse(arena, "s.json", text, strlen(text), &json, err));
    MCP_TRY(mcp_stack_from_json(arena, json, out, err));
    return mcp_json_done(json, err);
}

static const char *written(struct mcp_arena *arena, const struct mcp_stack *stack)
{
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_stack_to_json(stack, json);
    return mcp_json_text(arena, json);
}

Test(stack, every_preset_round_trips)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    cr_assert(mcp_preset_count("stacks") > 0);
    for (size_t i = 0; i < mcp_preset_count("stacks"); i++) {
        const char *name = mcp_preset_at("stacks", i)->name;
        struct mcp_stack stack, again;
        cr_assert(eq(int, mcp_stack_load(arena, name, &stack, &err), MCP_OK), "%s: %s", name,
                  err.text);
        cr_expect(eq(str, (char *)stack.name, (char *)name));
        const char *text = written(arena, &stack);
        cr_assert(eq(int, parse(arena, text, &again, &err), MCP_OK), "%s: %s", name, err.text);
        cr_expect(eq(str, (char *)written(arena, &again), (char *)text));
    }
    mcp_arena_free(arena);
}

Test(stack, base_states_a_source_for_every_value)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json, *sources;
    struct mcp_stack stack;
    cr_assert(eq(int, mcp_preset_read(arena, "stacks", "megatron-core", &json, &err), MCP_OK));
    cr_assert(eq(int, mcp_stack_from_json(arena, json, &stack, &err), MCP_OK), "%s", err.text);
    cr_assert(eq(int, mcp_json_object(json, "sources", &sources, &err), MCP_OK));
    int fitted = 0;
    for (size_t i = 0; i < mcp_json_count(json); i++) {
        const char *key, *sentence;
        mcp_json_member(json, i, &key);
        if (strcmp(key, "name") == 0 || strcmp(key, "source") == 0 || strcmp(key, "note") == 0 ||
            strcmp(key, "sources") == 0)
            continue;
        cr_assert(eq(int, mcp_json_string(sources, key, &sentence, &err), MCP_OK), "%s", err.text);
        fitted += strncmp(sentence, "fitted", 6) == 0;
    }
    cr_expect(eq(int, stack.num_fitted, fitted));
    mcp_arena_free(arena);
}

Test(stack, inherits_what_it_does_not_state)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_stack base, stack;
    cr_assert(eq(int, mcp_stack_load(arena, "megatron-core", &base, &err), MCP_OK));
    cr_assert(eq(int,
                 parse(arena,
                       "{\"name\": \"mine\", \"based_on\": \"megatron-core\", "
                       "\"matmul_frac\": 0.5, \"selective_modules\": [\"norm\", \"mlp\"], "
                       "\"attention\": \"flash2\", \"cuda_graph\": true, \"bucket_bytes\": 7, "
                       "\"sources\": {\"matmul_frac\": \"fitted by me\", "
                       "\"cuda_graph\": \"my own flag\"}}",
                       &stack, &err),
                 MCP_OK),
              "%s", err.text);
    cr_expect(eq(str, (char *)stack.name, (char *)"mine"));
    cr_expect(eq(dbl, stack.matmul_frac, 0.5));
    cr_expect(eq(uint, stack.selective_modules, MCP_RECOMPUTE_NORM | MCP_RECOMPUTE_MLP));
    cr_expect(eq(uint, base.schedules, 1u << MCP_1F1B | 1u << MCP_INTERLEAVED));
    cr_expect(eq(uint, stack.schedules, base.schedules));
    cr_expect(eq(str, (char *)stack.attention, (char *)"flash2"));
    cr_expect(stack.cuda_graph);
    cr_expect(eq(i64, stack.bucket_bytes, (int64_t)7));
    cr_expect(eq(int, stack.num_fitted, 1), "the base counts its own");
    cr_expect(eq(dbl, stack.elementwise_factor, base.elementwise_factor));
    cr_expect(eq(i64, stack.reserve_bytes, base.reserve_bytes));
    cr_expect(eq(str, (char *)stack.source, (char *)""), "the base's source is not its own");
    mcp_arena_free(arena);
}

/* Off where no file says; then it is not written, so that plans stay as they were. */
Test(stack, fused_epilogues_are_off_unless_said)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_stack off, on, again;
    cr_assert(eq(int, mcp_stack_load(arena, "megatron-core", &off, &err), MCP_OK), "%s", err.text);
    cr_expect(not(off.fused_epilogues));
    cr_expect(eq(ptr, strstr(written(arena, &off), "fused_epilogues"), NULL));
    cr_assert(eq(int,
                 parse(arena,
                       "{\"name\": \"mine\", \"based_on\": \"megatron-core\", "
                       "\"fused_epilogues\": true}",
                       &on, &err),
                 MCP_OK),
              "%s", err.text);
    cr_expect(on.fused_epilogues);
    cr_assert(eq(int, parse(arena, written(arena, &on), &again, &err), MCP_OK), "%s", err.text);
    cr_expect(again.fused_epilogues);
    mcp_arena_free(arena);
}

struct case_refused {
    char name[48];
    char text[200];
    enum mcp_status want;
    char says[96];
};
#define BASED "{\"name\": \"mine\", \"based_on\": \"megatron-core\", "
ParameterizedTestParameters(stack, refused)
{
    static struct case_refused cases[] = {
        {"incomplete without a base", "{\"name\": \"mine\", \"matmul_frac\": 1}", MCP_FORMAT,
         "elementwise_factor"},
        {"no name", "{\"based_on\": \"megatron-core\"}", MCP_FORMAT, "name"},
        {"unknown base", "{\"name\": \"mine\", \"based_on\": \"megatron-cor\"}", MCP_IO,
         "megatron-core"},
        {"misspelt key", BASED "\"matmul_fraq\": 1}", MCP_FORMAT, "matmul_frac"},
        {"out of range", BASED "\"data_overlap_frac\": 1.5}", MCP_FORMAT,
         "data_overlap_frac=1.5 is not between 0 and 1"},
        {"zero rate", BASED "\"matmul_frac\": 0}", MCP_FORMAT, "not between 0.01 and 2"},
        {"negative count", BASED "\"moe_launches\": -1}", MCP_FORMAT, "moe_launches"},
        {"number as text", BASED "\"matmul_frac\": \"1\"}", MCP_FORMAT, "matmul_frac"},
        {"unknown module", BASED "\"selective_modules\": [\"nrom\"]}", MCP_FORMAT,
         "selective_modules[0]: unknown module"},
        {"unknown schedule", BASED "\"schedules\": [\"zbv\"]}", MCP_FORMAT,
         "schedules[0]: unknown schedule \"zbv\", did you mean \"zb-v\""},
        {"no schedule", BASED "\"schedules\": []}", MCP_FORMAT, "schedules names none"},
        {"source of no value", BASED "\"sources\": {\"matmul_fraq\": \"fitted\"}}", MCP_FORMAT,
         "did you mean matmul_frac"},
        {"source without its value", BASED "\"sources\": {\"matmul_frac\": \"fitted\"}}",
         MCP_FORMAT, "matmul_frac has a source but no value"},
        {"source no sentence", BASED "\"matmul_frac\": 1, \"sources\": {\"matmul_frac\": 1}}",
         MCP_FORMAT, "sources"},
    };
    return cr_make_param_array(struct case_refused, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_refused *c, stack, refused)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_stack stack = {.moe_launches = -7};
    cr_expect(eq(int, parse(arena, c->text, &stack, &err), (int)c->want), "%s: %s", c->name,
              err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
    mcp_arena_free(arena);
}

Test(stack, a_circle_of_bases_is_refused)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *path = mcp_format(arena, P_tmpdir "/mcpplan-circle-%d.json", (int)getpid());
    struct mcp_error err = {""};
    struct mcp_stack stack;
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_json_set_string(json, "name", "round");
    mcp_json_set_string(json, "based_on", path);
    cr_assert(eq(int, mcp_json_write(path, json, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, mcp_stack_load(arena, path, &stack, &err), MCP_FORMAT));
    cr_expect(ne(ptr, strstr(err.text, "a circle?"), NULL), "%s", err.text);
    remove(path);
    mcp_arena_free(arena);
}
