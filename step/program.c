/* step/program.c: names of the program's vocabulary, and operand look-up. */
#include "step/program.h"

#include <assert.h>

const char *const mcp_stream_names[MCP_NUM_STREAMS] = {
    "compute",
    "tensor",
    "context",
    "expert",
    "data",
    "copy",
    "send_next",
    "receive_previous",
    "send_previous",
    "receive_next",
    "mirrored_send_previous",
    "mirrored_receive_next",
    "mirrored_send_next",
    "mirrored_receive_previous",
};
const char *const mcp_space_names[MCP_NUM_SPACES] = {"rank", "layer", "frame", "block"};
const char *const mcp_buffer_kind_names[MCP_NUM_BUFFER_KINDS] = {
    "weight", "gradient", "optimizer", "activation", "scratch",
};
const char *const mcp_block_role_names[MCP_NUM_BLOCK_ROLES] = {
    "forward",      "backward",        "backward_input", "backward_weight",  "prologue",
    "epilogue",     "recompute",       "gather",         "reduce",           "optimizer",
    "send_forward", "receive_forward", "send_backward",  "receive_backward",
};

const struct mcp_buffer *mcp_operand_buffer(const struct mcp_program *program,
                                            const struct mcp_layer_type *type,
                                            struct mcp_operand operand)
{
    if (operand.space == MCP_SPACE_RANK) {
        assert(operand.index < program->num_rank_buffers);
        return &program->rank_buffers[operand.index];
    }
    assert(operand.index < type->num_buffers[operand.space]);
    return &type->buffers[operand.space][operand.index];
}

int mcp_op_expert_sizes(const struct mcp_program *program, const struct mcp_layer_type *type,
                        const struct mcp_op *op)
{
    for (int i = 0; i < op->num_reads; i++)
        if (mcp_operand_buffer(program, type, op->reads[i])->dtype == MCP_I32)
            return i;
    return -1;
}

bool mcp_op_has_epilogue(const struct mcp_op *op)
{
    return op->function == MCP_FN_MATMUL_NT_BIAS || op->function == MCP_FN_MATMUL_NT_GELU;
}

/* Elements of a buffer. */
struct range {
    int64_t first, count;
};

/* At least what the op touches of `at`, on any rank; false: not known. */
static bool range_of(const struct mcp_op *op, struct mcp_operand at, struct range *out)
{
    const int64_t *dims = op->dims;
    if (at.space != MCP_SPACE_LAYER)
        return false;
    if (op->function == MCP_FN_ALL_REDUCE)
        *out = (struct range){dims[2], dims[4] > dims[0] ? dims[4] : dims[0]};
    else if (op->function == MCP_FN_SUM_SQUARES)
        *out = mcp_is_of_shards(at) ? (struct range){dims[4], dims[0]}
                                    : (struct range){dims[3], dims[2]};
    else
        return false;
    return true;
}

static bool is_behind(struct range later, struct range earlier)
{
    return later.first >= earlier.first && later.first - earlier.first >= earlier.count;
}

bool mcp_read_is_apart(const struct mcp_op *reader, const struct mcp_op *writer,
                       struct mcp_operand at)
{
    struct range read, written;
    return range_of(reader, at, &read) && range_of(writer, at, &written) &&
           (is_behind(read, written) || is_behind(written, read));
}

enum mcp_status mcp_program_check_trained(const struct mcp_program *program, struct mcp_error *err)
{
    for (int t = 0; t < program->num_types; t++)
        if (program->types[t].facts.lack[0] != '\0')
            return mcp_fail(err, MCP_INVALID, "no backend can train layers of type '%s': %s",
                            program->types[t].name, program->types[t].facts.lack);
    return MCP_OK;
}

static bool mentions_input(const struct mcp_operand *places, int count)
{
    for (int i = 0; i < count; i++)
        if (places[i].space == MCP_SPACE_FRAME && places[i].layer_offset == 0 &&
            places[i].index == MCP_FRAME_X)
            return true;
    return false;
}

bool mcp_input_ends_with_forward(const struct mcp_layer_type *type)
{
    static const enum mcp_block_role later[] = {MCP_RECOMPUTE, MCP_BACKWARD, MCP_BACKWARD_INPUT,
                                                MCP_BACKWARD_WEIGHT};
    for (size_t r = 0; r < sizeof later / sizeof *later; r++) {
        const struct mcp_block *block = &type->blocks[later[r]];
        for (int i = 0; i < block->num_ops; i++)
            if (mentions_input(block->ops[i].reads, block->ops[i].num_reads) ||
                mentions_input(block->ops[i].writes, block->ops[i].num_writes))
                return false;
    }
    return true;
}

bool mcp_op_is_transfer(const struct mcp_op *op)
{
    enum mcp_code code = (enum mcp_code)mcp_functions[op->function].code;
    return code == MCP_COLLECTIVE || code == MCP_SEND || code == MCP_RECEIVE || code == MCP_SHIFT;
}

const struct mcp_layer_type *mcp_program_layer_type(const struct mcp_program *program, int layer)
{
    for (int l = 0; l < program->num_lists; l++)
        for (int i = 0; i < program->lists[l].num_entries; i++)
            if (program->lists[l].entries[i].layer == layer)
                return &program->types[program->lists[l].entries[i].type];
    return NULL;
}
