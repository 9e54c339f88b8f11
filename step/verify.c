/* step/verify.c: the verifier's door: counts, then blocks, classes, and all together. */
#include "step/verify.h"

#include "core/units.h"
#include "step/verify_parts.h"

#include <string.h>

/* Entries that a program may run in all; a limit on time, not on meaning. */
#define MAX_ENTRIES_RUN ((int64_t)1 << 27)

static enum mcp_status check_counts(const struct mcp_program *program, struct mcp_error *err)
{
    const struct mcp_plan *plan = &program->plan;
    if (program->num_classes != plan->pipeline_parallel || program->num_classes < 1)
        return mcp_fail(err, MCP_INVALID, "%d classes where pipeline_parallel=%d",
                        program->num_classes, plan->pipeline_parallel);
    if (program->num_microbatches < 1 || program->num_layers < 1 || program->num_types < 1 ||
        plan->virtual_stages < 1)
        return mcp_fail(err, MCP_INVALID,
                        "%d microbatches, %d layers, %d layer types, %d virtual stages: at least "
                        "one of each is needed",
                        program->num_microbatches, program->num_layers, program->num_types,
                        plan->virtual_stages);
    return MCP_OK;
}

/* Each layer runs each microbatch forward, so the product is bounded by what the
 * slots run: a small file cannot ask for much memory or time. */
static enum mcp_status check_size(const struct mcp_program *program, struct mcp_error *err)
{
    int64_t entries = 0;
    for (int c = 0; c < program->num_classes; c++)
        for (int s = 0; s < program->classes[c].num_slots; s++) {
            const struct mcp_slot *slot = &program->classes[c].slots[s];
            if (slot->list >= 0 && slot->list < program->num_lists)
                entries += program->lists[slot->list].num_entries;
        }
    int64_t passes = (int64_t)program->num_layers * program->num_microbatches;
    if (entries > MAX_ENTRIES_RUN)
        return mcp_fail(err, MCP_INVALID, "%lld entries to run are more than %lld",
                        (long long)entries, (long long)MAX_ENTRIES_RUN);
    if (passes > entries)
        return mcp_fail(err, MCP_INVALID,
                        "%d layers of %d microbatches where the slots run %lld entries",
                        program->num_layers, program->num_microbatches, (long long)entries);
    return MCP_OK;
}

unsigned char *mcp_verify_ran(const struct mcp_verify *verify, int layer, int microbatch)
{
    return &verify->ran[(size_t)layer * (size_t)verify->program->num_microbatches +
                        (size_t)microbatch];
}

static void size_tables(struct mcp_verify *verify)
{
    const struct mcp_program *program = verify->program;
    verify->frame_stride = MCP_FRAME_DX + 1;
    verify->layer_stride = MCP_MAX_LAYER_BUFFERS;
    for (int t = 0; t < program->num_types; t++) {
        const struct mcp_layer_type *type = &program->types[t];
        int frames = type->num_buffers[MCP_SPACE_FRAME],
            layers = type->num_buffers[MCP_SPACE_LAYER];
        verify->frame_stride = frames > verify->frame_stride ? frames : verify->frame_stride;
        verify->layer_stride = layers > verify->layer_stride ? layers : verify->layer_stride;
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
            if (type->blocks[role].num_ops > verify->max_block_ops)
                verify->max_block_ops = type->blocks[role].num_ops;
    }
}

/* A gathered value is written by a gather block from elsewhere, not in place. */
static void mark_gathered(struct mcp_verify *verify, int t)
{
    const struct mcp_block *gather = &verify->program->types[t].blocks[MCP_GATHER];
    for (int i = 0; i < gather->num_ops; i++)
        for (int w = 0; w < gather->ops[i].num_writes; w++) {
            struct mcp_operand at = gather->ops[i].writes[w];
            if (at.space == MCP_SPACE_LAYER && !mcp_op_accumulates(&gather->ops[i], at))
                verify->gathered[t * verify->layer_stride + at.index] = true;
        }
}

static void prepare(struct mcp_verify *verify)
{
    const struct mcp_program *program = verify->program;
    size_t layers = (size_t)program->num_layers, types = (size_t)program->num_types;
    size_tables(verify);
    verify->clocks = mcp_clocks_new(verify->arena);
    verify->events = MCP_ARRAY(verify->arena, program->num_classes, struct mcp_class_events);
    verify->ran = mcp_alloc(verify->arena, layers, (size_t)program->num_microbatches);
    verify->home = MCP_ARRAY(verify->arena, layers, int);
    verify->type_of = MCP_ARRAY(verify->arena, layers, int);
    verify->num_backwards = MCP_ARRAY(verify->arena, layers, int);
    verify->num_optimised = MCP_ARRAY(verify->arena, layers, int);
    verify->gathered = MCP_ARRAY(verify->arena, types * (size_t)verify->layer_stride, bool);
    verify->ends_input = MCP_ARRAY(verify->arena, types, bool);
    verify->summaries =
        MCP_ARRAY(verify->arena, types * MCP_NUM_BLOCK_ROLES, struct mcp_block_summary);
    for (size_t layer = 0; layer < layers; layer++)
        verify->home[layer] = verify->type_of[layer] = -1;
    for (int t = 0; t < program->num_types; t++) {
        mark_gathered(verify, t);
        verify->ends_input[t] = mcp_input_ends_with_forward(&program->types[t]);
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
            mcp_summarise_block(verify->arena, &program->types[t].blocks[role],
                                &verify->summaries[t * MCP_NUM_BLOCK_ROLES + role]);
    }
}

static const char *missing_pass(const struct mcp_layer_type *type, unsigned ran)
{
    if (!(ran & MCP_RAN(MCP_FORWARD)))
        return "forward";
    if ((ran & MCP_RAN(MCP_BACKWARD)) || mcp_is_forward_only(type))
        return NULL;
    bool parts = (ran & (MCP_RAN(MCP_BACKWARD_INPUT) | MCP_RAN(MCP_BACKWARD_WEIGHT))) != 0;
    bool has_weight = type->blocks[MCP_BACKWARD_WEIGHT].num_ops > 0;
    if (parts && has_weight && !(ran & MCP_RAN(MCP_BACKWARD_WEIGHT)))
        return "backward_weight";
    return parts ? NULL : "backward";
}

static enum mcp_status check_complete(const struct mcp_verify *verify)
{
    const struct mcp_program *program = verify->program;
    for (int layer = 0; layer < program->num_layers; layer++) {
        const struct mcp_layer_type *type =
            &program->types[verify->type_of[layer] < 0 ? 0 : verify->type_of[layer]];
        for (int mb = 0; mb < program->num_microbatches; mb++) {
            const char *missing = missing_pass(type, *mcp_verify_ran(verify, layer, mb));
            if (missing != NULL)
                return mcp_fail(verify->err, MCP_INVALID,
                                "no class runs %s of layer %d microbatch %d", missing, layer, mb);
        }
        if (type->blocks[MCP_OPTIMIZER].num_ops > 0 && verify->num_optimised[layer] == 0)
            return mcp_fail(verify->err, MCP_INVALID, "no class runs optimizer of layer %d", layer);
    }
    return MCP_OK;
}

static enum mcp_status verify_all(struct mcp_arena *scratch, const struct mcp_program *program,
                                  struct mcp_error *err)
{
    struct mcp_verify verify = {.arena = scratch, .program = program, .err = err};
    MCP_TRY(check_counts(program, err));
    MCP_TRY(check_size(program, err));
    MCP_TRY(mcp_verify_blocks(scratch, program, err));
    prepare(&verify);
    for (int class = 0; class < program->num_classes; class ++)
        MCP_TRY(mcp_verify_class(&verify, class));
    MCP_TRY(mcp_verify_play(&verify));
    return check_complete(&verify);
}

enum mcp_status mcp_program_verify(struct mcp_arena *scratch, const struct mcp_program *program,
                                   struct mcp_error *err)
{
    struct mcp_mark mark = mcp_arena_mark(scratch);
    enum mcp_status status = verify_all(scratch, program, err);
    mcp_arena_rewind(scratch, mark);
    return status;
}
