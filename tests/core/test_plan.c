/* tests/core/test_plan.c: plans round-trip to the byte; contradictory ones are refused. */
#include "core/plan.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

static enum mcp_status parse(struct mcp_arena *arena, const char *text, struct mcp_plan *out,
                             struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_parse(arena, "plan.json", text, strlen(text), &json, err));
    MCP_TRY(mcp_plan_from_json(arena, json, out, err));
    return mcp_json_done(json, err);
}

static const char *written(struct mcp_arena *arena, const struct mcp_plan *plan)
{
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_plan_to_json(plan, json);
    return mcp_json_text(arena, json);
}

/* Every key, in the order they are written; 8 layers, 2 stages of 2 chunks. */
static const char example[] =
    "{\n"
    "  \"parallel\": {\n"
    "    \"tensor_parallel\": 8,\n"
    "    \"context_parallel\": 3,\n"
    "    \"pipeline_parallel\": 2,\n"
    "    \"data_parallel\": 5,\n"
    "    \"expert_parallel\": 4,\n"
    "    \"virtual_stages\": 2,\n"
    "    \"sequence_parallel\": true,\n"
    "    \"context_parallel_kind\": \"all_gather\",\n"
    "    \"zero_stage\": 3,\n"
    "    \"reshard_after_forward\": false\n"
    "  },\n"
    "  \"microbatch_size\": 6,\n"
    "  \"schedule\": {\n"
    "    \"name\": \"interleaved\",\n"
    "    \"rows\": []\n"
    "  },\n"
    "  \"stages\": [\n"
    "    {\n"
    "      \"chunks\": [\n"
    "        {\n"
    "          \"layers\": [0, 0],\n"
    "          \"recompute\": []\n"
    "        },\n"
    "        {\n"
    "          \"layers\": [3, 4],\n"
    "          \"recompute\": [\"full\", 1, \"selective\", 2, \"none\", 1]\n"
    "        }\n"
    "      ]\n"
    "    },\n"
    "    {\n"
    "      \"chunks\": [\n"
    "        {\n"
    "          \"layers\": [0, 3],\n"
    "          \"recompute\": [\"full\", 1, \"full\", 2]\n"
    "        },\n"
    "        {\n"
    "          \"layers\": [7, 1],\n"
    "          \"recompute\": [\"none\", 1]\n"
    "        }\n"
    "      ]\n"
    "    }\n"
    "  ],\n"
    "  \"rank_order\": [\"context_parallel\", \"tensor_parallel\", \"pipeline_parallel\", "
    "\"data_parallel\"],\n"
    "  \"placement\": [1, 0],\n"
    "  \"overlap\": {\n"
    "    \"tensor\": true,\n"
    "    \"data\": false,\n"
    "    \"pipeline\": true,\n"
    "    \"expert\": true,\n"
    "    \"gather\": false,\n"
    "    \"context\": true\n"
    "  }\n"
    "}\n";

Test(plan, every_field_round_trips)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_plan plan;
    cr_assert(eq(int, parse(arena, example, &plan, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(str, (char *)written(arena, &plan), (char *)example));
    cr_expect(eq(int, mcp_plan_world(&plan), 8 * 3 * 2 * 5));
    cr_expect(eq(int, plan.chunks[1].num_layers, 3), "virtual stage 1 is chunk 0 of rank 1");
    cr_expect(eq(int, plan.chunks[2].num_layers, 4), "virtual stage 2 is chunk 1 of rank 0");
    cr_expect(eq(int, (int)mcp_plan_recompute(&plan, 2, 0), MCP_RECOMPUTE_FULL));
    cr_expect(eq(int, (int)mcp_plan_recompute(&plan, 2, 2), MCP_RECOMPUTE_SELECTIVE));
    cr_expect(eq(int, (int)mcp_plan_recompute(&plan, 2, 3), MCP_RECOMPUTE_NONE));
    mcp_arena_free(arena);
}

struct case_edit {
    char name[48];
    char find[80];
    char put[80];
    enum mcp_status want;
    char says[96];
};
ParameterizedTestParameters(plan, edits)
{
    static struct case_edit cases[] = {
        {"overlap may be empty", "\"tensor\": true", "\"tensor\": null", MCP_OK, ""},
        {"zero degree", "\"tensor_parallel\": 8", "\"tensor_parallel\": 0", MCP_INVALID,
         "plan.json: parallel: tensor_parallel=0"},
        {"negative degree", "\"data_parallel\": 5", "\"data_parallel\": -5", MCP_FORMAT,
         "data_parallel"},
        {"fractional degree", "\"data_parallel\": 5", "\"data_parallel\": 5.0", MCP_FORMAT,
         "data_parallel"},
        {"world beyond int", "\"data_parallel\": 5", "\"data_parallel\": 2000000000", MCP_INVALID,
         "is more than 2147483647 ranks"},
        {"missing degree", "\"expert_parallel\": 4,", "", MCP_FORMAT, "expert_parallel"},
        {"misspelt key", "\"zero_stage\": 3", "\"zero_stages\": 3", MCP_FORMAT, "zero_stage"},
        {"unknown key", "\"microbatch_size\": 6", "\"microbatch_size\": 6, \"depth\": 1",
         MCP_FORMAT, "depth"},
        {"zero stage", "\"zero_stage\": 3", "\"zero_stage\": 4", MCP_INVALID,
         "zero_stage=4 is not one of 0, 1, 2, 3"},
        {"microbatch", "\"microbatch_size\": 6", "\"microbatch_size\": 0", MCP_INVALID,
         "microbatch_size=0"},
        {"two copies of the weights", "\"interleaved\"", "\"dualpipe\"", MCP_FORMAT,
         "can be simulated only"},
        {"unknown schedule", "\"interleaved\"", "\"interleave\"", MCP_FORMAT, "interleaved"},
        {"rows", "\"rows\": []", "\"rows\": [1]", MCP_INVALID,
         "schedule.rows: 1 rows where pipeline_parallel=2"},
        {"row no text", "\"rows\": []", "\"rows\": [\"\", 1]", MCP_FORMAT, "schedule.rows[1]"},
        {"pass unknown", "\"rows\": []", "\"rows\": [\"0F0\", \"1F0 1X0\"]", MCP_INVALID,
         "schedule.rows[1]: action 1 \"1X0\" is not"},
        {"pass without microbatch", "\"rows\": []", "\"rows\": [\"0F\", \"\"]", MCP_INVALID,
         "schedule.rows[0]: action 0 \"0F\" is not"},
        {"two spaces", "\"rows\": []", "\"rows\": [\"0F0  0B0\", \"\"]", MCP_INVALID,
         "schedule.rows[0]: action 1 \"\" is not"},
        {"leading zero", "\"rows\": []", "\"rows\": [\"0F00\", \"\"]", MCP_INVALID,
         "schedule.rows[0]: action 0 \"0F00\" is not"},
        {"microbatch beyond int", "\"rows\": []", "\"rows\": [\"0F2147483648\", \"\"]", MCP_INVALID,
         "action 0 \"0F2147483648\" is not"},
        {"stage elsewhere", "\"rows\": []", "\"rows\": [\"0F0 1F0\", \"\"]", MCP_INVALID,
         "action 1 \"1F0\" is of virtual stage 1, which rank 0 does not hold"},
        {"stage nowhere", "\"rows\": []", "\"rows\": [\"4F0\", \"\"]", MCP_INVALID,
         "virtual stage 4, which rank 0 does not hold"},
        {"placement against the name", "\"rows\": []", "\"placement\": \"v\", \"rows\": []",
         MCP_INVALID, "placement \"v\", but schedule interleaved has \"loop\""},
        {"placement", "\"placement\": [1, 0]", "\"placement\": [0, 1, 0]", MCP_INVALID,
         "placement: 3 pools for pipeline_parallel=2"},
        {"pool", "\"placement\": [1, 0]", "\"placement\": [4, 0]", MCP_INVALID, "pool 4"},
        {"stages missing", "\"pipeline_parallel\": 2", "\"pipeline_parallel\": 3", MCP_INVALID,
         "stages: 2 stages where pipeline_parallel=3"},
        {"chunks missing", "\"virtual_stages\": 2", "\"virtual_stages\": 1", MCP_INVALID,
         "stages[0].chunks: 2 chunks where virtual_stages=1"},
        {"claims without content", "\"virtual_stages\": 2", "\"virtual_stages\": 2147483647",
         MCP_INVALID, "2 chunks where virtual_stages=2147483647"},
        {"gap", "\"layers\": [3, 4]", "\"layers\": [4, 4]", MCP_INVALID,
         "stage 0, chunk 1 starts at layer 4, not at 3"},
        {"overlapping layers", "\"layers\": [7, 1]", "\"layers\": [6, 1]", MCP_INVALID,
         "stage 1, chunk 1 starts at layer 6, not at 7"},
        {"empty chunk inside", "\"layers\": [0, 3]", "\"layers\": [0, 0]", MCP_INVALID,
         "recompute names 3 layers, the chunk has 0"},
        {"negative layer", "\"layers\": [0, 0]", "\"layers\": [-1, 1]", MCP_FORMAT, "layers"},
        {"layers no pair", "\"layers\": [0, 3]", "\"layers\": [0, 3, 4]", MCP_FORMAT,
         "not [first, count]"},
        {"recompute short", "\"selective\", 2", "\"selective\", 1", MCP_INVALID,
         "recompute names 3 layers, the chunk has 4"},
        {"recompute zero", "\"full\", 1, \"full\", 2", "\"full\", 0, \"full\", 3", MCP_INVALID,
         "stages[1].chunks[0].recompute[1]: 0 layers"},
        {"recompute beyond int", "\"full\", 1, \"full\", 2",
         "\"full\", 2147483647, \"full\", 2147483647", MCP_INVALID, "4294967294 layers"},
        {"recompute unknown", "\"selective\", 2", "\"some\", 2", MCP_FORMAT,
         "\"some\" is not none, selective or full"},
        {"recompute no pairs", "\"full\", 1, \"full\", 2", "\"full\", 1, \"full\"", MCP_FORMAT,
         "no pairs"},
        {"axis twice", "\"context_parallel\", \"tensor_parallel\"",
         "\"tensor_parallel\", \"tensor_parallel\"", MCP_INVALID, "is named twice"},
        {"axis missing", "\"context_parallel\", \"tensor_parallel\"", "\"context_parallel\"",
         MCP_INVALID, "3 axes where all 4 are needed"},
        {"axis unknown", "\"context_parallel\", \"tensor_parallel\"",
         "\"context\", \"tensor_parallel\"", MCP_FORMAT, "\"context\" is no axis"},
        {"flag no bool", "\"sequence_parallel\": true", "\"sequence_parallel\": 1", MCP_FORMAT,
         "sequence_parallel"},
    };
    return cr_make_param_array(struct case_edit, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_edit *c, plan, edits)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_plan plan;
    const char *at = strstr(example, c->find);
    cr_assert(at != NULL, "%s: nothing to edit", c->name);
    const char *text =
        mcp_format(arena, "%.*s%s%s", (int)(at - example), example, c->put, at + strlen(c->find));
    cr_expect(eq(int, parse(arena, text, &plan, &err), (int)c->want), "%s: %s", c->name, err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
    mcp_arena_free(arena);
}

/* Rows as they are written; under V rank 0 holds virtual stages 0 and 3. */
Test(plan, rows_round_trip)
{
    static const char schedule[] = "\"name\": \"custom\",\n"
                                   "    \"placement\": \"v\",\n"
                                   "    \"rows\": [\"0F0 0F10 3F0 3I0 0B0\", \"1F0 2F0 2W0\"]\n";
    static const char before[] = "\"name\": \"interleaved\",\n    \"rows\": []\n";
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_plan plan;
    const char *at = strstr(example, before);
    const char *tail = strstr(at, "  \"rank_order\"");
    struct mcp_plan base;
    cr_assert(eq(int, parse(arena, example, &base, &err), MCP_OK), "%s", err.text);
    base.schedule = MCP_CUSTOM;
    base.placement = MCP_PLACEMENT_V; /* chunks stay by virtual stage */
    const char *whole = written(arena, &base), *stages = strstr(whole, "  \"stages\"");
    const char *end = strstr(stages, "  \"rank_order\"");
    const char *text = mcp_format(arena, "%.*s%s  },\n%.*s%s", (int)(at - example), example,
                                  schedule, (int)(end - stages), stages, tail);
    cr_assert(eq(int, parse(arena, text, &plan, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(str, (char *)written(arena, &plan), (char *)text));
    cr_expect(eq(int, plan.rows[0].num_actions, 5));
    cr_expect(eq(int, plan.rows[0].actions[1].microbatch, 10));
    cr_expect(eq(int, plan.rows[0].actions[2].chunk, 1));
    cr_expect(eq(int, (int)plan.rows[1].actions[2].pass, MCP_PASS_BACKWARD_WEIGHT));
    cr_expect(eq(int, plan.chunks[3].first_layer, 7), "virtual stage 3 is chunk 1 of rank 0");
    mcp_arena_free(arena);
}

/* Each placement puts every virtual stage on one rank, and knows its way back. */
Test(plan, placements_are_inverses)
{
    for (int placement = 0; placement < MCP_NUM_PLACEMENTS; placement++)
        for (int p = 1; p <= 9; p++)
            for (int k = 0; k < 4 * p; k++) {
                enum mcp_placement as = (enum mcp_placement)placement;
                int rank = mcp_placed_rank(as, p, k);
                cr_assert(rank >= 0 && rank < p);
                cr_assert(eq(int, mcp_placed_stage(as, p, rank, k / p), k));
            }
    cr_expect(eq(int, mcp_placed_rank(MCP_PLACEMENT_V, 4, 3), 3));
    cr_expect(eq(int, mcp_placed_rank(MCP_PLACEMENT_V, 4, 4), 3), "the turn");
    cr_expect(eq(int, mcp_placed_rank(MCP_PLACEMENT_V, 4, 7), 0), "and back");
    cr_expect(eq(int, mcp_placed_rank(MCP_PLACEMENT_LOOP, 4, 7), 3));
}

/* What may stand beside the plan in plan.json. */
struct case_key {
    char key[24];
    enum mcp_status want;
    char says[64];
};
ParameterizedTestParameters(plan, keys_of_its_file)
{
    static struct case_key cases[] = {
        {"search", MCP_OK, ""},
        {"memory_waterfall", MCP_OK, ""},
        {"serach", MCP_FORMAT, "unknown key 'serach' (did you mean 'search'?)"},
        {"overlaps", MCP_FORMAT, "unknown key 'overlaps' (did you mean 'overlap'?)"},
    };
    return cr_make_param_array(struct case_key, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_key *c, plan, keys_of_its_file)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_plan plan;
    struct mcp_json *json;
    const char *text = mcp_format(arena, "{\"%s\": {\"a\": 1}, %s", c->key, example + 1);
    cr_assert(eq(int, mcp_json_parse(arena, "plan.json", text, strlen(text), &json, &err), MCP_OK));
    cr_assert(eq(int, mcp_plan_from_json(arena, json, &plan, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, mcp_plan_file_done(json, &err), (int)c->want), "%s: %s", c->key, err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->key, err.text);
    mcp_arena_free(arena);
}

Test(plan, only_the_ends_do_without_layers)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_plan plan = mcp_plan_default(), again;
    plan.pipeline_parallel = 3;
    mcp_plan_uniform_chunks(arena, &plan, 2, MCP_RECOMPUTE_NONE);
    cr_expect(eq(int, parse(arena, written(arena, &plan), &again, &err), MCP_OK), "%s", err.text);
    plan.pipeline_parallel = 4;
    mcp_plan_uniform_chunks(arena, &plan, 2, MCP_RECOMPUTE_NONE);
    cr_expect(eq(int, parse(arena, written(arena, &plan), &again, &err), MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, "stage 2, chunk 0 has no layers"), NULL), "%s", err.text);
    mcp_arena_free(arena);
}

struct case_uniform {
    int p, v, layers;
    int want[8];
};
ParameterizedTestParameters(plan, uniform_chunks)
{
    static struct case_uniform cases[] = {
        {1, 1, 32, {32}},
        {4, 1, 32, {8, 8, 8, 8}},
        {4, 1, 30, {8, 8, 7, 7}},
        {2, 3, 8, {2, 2, 1, 1, 1, 1}},
        {8, 1, 8, {1, 1, 1, 1, 1, 1, 1, 1}},
    };
    return cr_make_param_array(struct case_uniform, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_uniform *c, plan, uniform_chunks)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_plan plan = mcp_plan_default();
    plan.pipeline_parallel = c->p;
    plan.virtual_stages = c->v;
    mcp_plan_uniform_chunks(arena, &plan, c->layers, MCP_RECOMPUTE_SELECTIVE);
    for (int k = 0, first = 0; k < c->p * c->v; k++) {
        cr_expect(eq(int, plan.chunks[k].first_layer, first));
        cr_expect(eq(int, plan.chunks[k].num_layers, c->want[k]));
        cr_expect(
            eq(int, (int)mcp_plan_recompute(&plan, k, c->want[k] - 1), MCP_RECOMPUTE_SELECTIVE));
        first += c->want[k];
    }
    mcp_arena_free(arena);
}

Test(plan, microbatches)
{
    struct mcp_plan plan = mcp_plan_default();
    struct mcp_job job = mcp_job_default();
    job.global_batch_size = 1536;
    plan.data_parallel = 8;
    plan.microbatch_size = 4;
    cr_expect(eq(i64, mcp_num_microbatches(&plan, &job), (int64_t)48));
}
