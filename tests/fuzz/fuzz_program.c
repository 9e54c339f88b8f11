/* tests/fuzz/fuzz_program.c: any bytes as a program: a file that begins with '{', or
 * else changes to a good one. Whatever it is, it is judged, not obeyed. */
#include "step/build.h"
#include "step/dump.h"
#include "step/extents.h"
#include "step/verify.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void judge_file(struct mcp_arena *arena, const uint8_t *data, size_t size)
{
    struct mcp_error err;
    struct mcp_json *json, *again;
    struct mcp_program program, copy;
    if (mcp_json_parse(arena, "input", (const char *)data, size, &json, &err) != MCP_OK ||
        mcp_program_from_json(arena, json, &program, &err) != MCP_OK)
        return;
    const char *text = mcp_json_text(arena, mcp_program_to_json(arena, &program));
    assert(mcp_json_parse(arena, "text", text, strlen(text), &again, &err) == MCP_OK);
    assert(mcp_program_from_json(arena, again, &copy, &err) == MCP_OK);
    assert(strcmp(text, mcp_json_text(arena, mcp_program_to_json(arena, &copy))) == 0);
    if (mcp_program_verify(arena, &program, &err) == MCP_OK)
        (void)mcp_program_check_extents(&program, &err);
}

static void build(struct mcp_arena *arena, uint8_t kind, struct mcp_program *program)
{
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_stack stack;
    struct mcp_error err;
    struct mcp_job job = mcp_job_default();
    struct mcp_question question = {&model, &cluster, &job, &stack};
    struct mcp_plan plan = mcp_plan_default();
    assert(mcp_model_load(arena, "tiny", &model, &err) == MCP_OK);
    assert(mcp_cluster_load(arena, "dgx-h100:1", &cluster, &err) == MCP_OK);
    assert(mcp_stack_load(arena, "megatron-core", &stack, &err) == MCP_OK);
    plan.pipeline_parallel = plan.tensor_parallel = 2;
    plan.data_parallel = 2;
    plan.sequence_parallel = true;
    plan.zero_stage = kind % 4;
    job.sequence_length = 128;
    job.global_batch_size = 4 * plan.data_parallel;
    mcp_plan_uniform_chunks(arena, &plan, model.num_layers, (enum mcp_recompute)(kind / 4 % 3));
    assert(mcp_cluster_take(&cluster, mcp_plan_world(&plan), &err) == MCP_OK);
    mcp_program_build(arena, &question, &plan, program);
}

/* One byte of one op, entry or slot. */
static void change(struct mcp_program *program, const uint8_t *at)
{
    unsigned pick = at[1] | (unsigned)at[2] << 8, byte = at[3];
    unsigned char *target = NULL;
    size_t size = 0;
    if (at[0] % 3 == 0) {
        const struct mcp_layer_type *type = &program->types[pick % (unsigned)program->num_types];
        const struct mcp_block *block = &type->blocks[(pick >> 4) % MCP_NUM_BLOCK_ROLES];
        if (block->num_ops > 0)
            target = (unsigned char *)&block->ops[(pick >> 8) % (unsigned)block->num_ops];
        size = sizeof(struct mcp_op);
    } else if (at[0] % 3 == 1) {
        const struct mcp_entry_list *list = &program->lists[pick % (unsigned)program->num_lists];
        if (list->num_entries > 0)
            target = (unsigned char *)&list->entries[(pick >> 6) % (unsigned)list->num_entries];
        size = sizeof(struct mcp_entry);
    } else {
        const struct mcp_program_class *class =
            &program->classes[pick % (unsigned)program->num_classes];
        target = (unsigned char *)&class->slots[(pick >> 2) % (unsigned)class->num_slots];
        size = sizeof(struct mcp_slot);
    }
    if (target != NULL)
        target[byte % size] = at[4];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_program program;
    struct mcp_error err;
    if (size > 0 && data[0] == '{') {
        judge_file(arena, data, size);
    } else if (size > 0) {
        build(arena, data[0], &program);
        for (size_t i = 1; i + 5 <= size && i < 41; i += 5)
            change(&program, data + i);
        if (mcp_program_verify(arena, &program, &err) == MCP_OK)
            (void)mcp_program_check_extents(&program, &err);
    }
    mcp_arena_free(arena);
    return 0;
}
