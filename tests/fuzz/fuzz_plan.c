/* tests/fuzz/fuzz_plan.c: any bytes as a plan: what is read is written and read again
 * equal, can be judged, and plays alike with and without skipping. */
#include "core/plan.h"
#include "step/legal.h"
#include "step/pipeline.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *text_of(struct mcp_arena *arena, const struct mcp_plan *plan)
{
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_plan_to_json(plan, json);
    return mcp_json_text(arena, json);
}

static void read_again(struct mcp_arena *arena, const struct mcp_plan *plan)
{
    struct mcp_error err = {""};
    struct mcp_plan again;
    struct mcp_json *parsed;
    const char *text = text_of(arena, plan);
    assert(mcp_json_parse(arena, "text", text, strlen(text), &parsed, &err) == MCP_OK);
    assert(mcp_plan_from_json(arena, parsed, &again, &err) == MCP_OK);
    assert(strcmp(text, text_of(arena, &again)) == 0);
}

static int layers_of(const struct mcp_plan *plan)
{
    const struct mcp_chunk *last =
        &plan->chunks[plan->pipeline_parallel * plan->virtual_stages - 1];
    return last->first_layer + last->num_layers;
}

static bool judge(struct mcp_arena *arena, const struct mcp_plan *plan, int64_t *microbatches)
{
    struct mcp_model model = {.num_layers = layers_of(plan), .num_kinds = 1};
    struct mcp_cluster cluster = {.num_nodes = mcp_plan_world(plan), .gpus_per_node = 1};
    struct mcp_job job = mcp_job_default();
    struct mcp_stack stack = {.name = ""};
    struct mcp_question question = {&model, &cluster, &job, &stack};
    struct mcp_refusals refusals;
    model.kinds[0] = (struct mcp_layer_kind){
        .num_attention_heads = 48, .num_kv_heads = 8, .ffn_hidden_size = 768};
    job.global_batch_size = 960;
    bool legal = mcp_legal(arena, &question, plan, &refusals);
    const char *rule = mcp_illegal_rule(&question, plan);
    assert(legal ? rule == NULL : rule == NULL || strcmp(rule, refusals.items[0].rule) == 0);
    *microbatches = mcp_num_microbatches(plan, &job);
    return legal;
}

/* Prices from the plan's own numbers: any will do. */
static void play(struct mcp_arena *arena, const struct mcp_plan *plan, int microbatches)
{
    int p = plan->pipeline_parallel, v = plan->virtual_stages;
    struct mcp_slot_price *prices = MCP_ARRAY(arena, p * v, struct mcp_slot_price);
    struct mcp_pipeline_rank *fast = MCP_ARRAY(arena, p, struct mcp_pipeline_rank);
    struct mcp_pipeline_rank *full = MCP_ARRAY(arena, p, struct mcp_pipeline_rank);
    for (int k = 0; k < p * v; k++)
        prices[k] =
            (struct mcp_slot_price){plan->chunks[k].num_runs % 3, plan->chunks[k].num_layers, k % 2,
                                    plan->chunks[k].first_layer % 5, 0};
    struct mcp_pipeline pipeline = {.schedule = plan->schedule,
                                    .pipeline_parallel = p,
                                    .virtual_stages = v,
                                    .num_microbatches = microbatches,
                                    .forward = prices,
                                    .backward = prices,
                                    .backward_input = prices,
                                    .backward_weight = prices,
                                    .placement = mcp_plan_placement(plan),
                                    .rows = plan->rows};
    assert(mcp_pipeline_play(arena, &pipeline, fast, NULL) ==
           mcp_pipeline_play_all(arena, &pipeline, full, NULL));
    assert(memcmp(fast, full, (size_t)p * sizeof *fast) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json;
    struct mcp_plan plan;
    int64_t microbatches;
    if (mcp_json_parse(arena, "input", (const char *)data, size, &json, &err) == MCP_OK &&
        mcp_plan_from_json(arena, json, &plan, &err) == MCP_OK) {
        read_again(arena, &plan);
        if (judge(arena, &plan, &microbatches))
            play(arena, &plan, (int)microbatches);
    } else {
        assert(err.text[0] != '\0');
    }
    mcp_arena_free(arena);
    return 0;
}
