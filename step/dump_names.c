/* step/dump_names.c: words that writing and reading a program share. */
#include "step/dump_names.h"

#include <assert.h>
#include <string.h>

const char *const mcp_row_names[MCP_NUM_ROWS] = {"buffer", "weight", "op", "entry", "slot"};

const char *const mcp_row_columns[MCP_NUM_ROWS][MCP_MAX_COLUMNS] = {
    {"name", "dtype", "kind", "bytes", "capacity_bytes"},
    {"name", "rows", "columns", "copies", "expert", "replicated", "shared", "twin", "duplicate",
     "by_columns", "cast", "init", "bands"},
    {"function", "stream", "dtype", "group", "delta", "weight", "hiding", "reads", "writes",
     "waits", "dims"},
    {"role", "type", "layer", "microbatch_offset", "copy"},
    {"pass", "chunk", "microbatch", "list", "lead"},
};

const char *const mcp_hiding_names[MCP_NUM_HIDINGS] = {
    [MCP_HIDE_NOT] = "exposed",
    [MCP_HIDE_CHUNKED] = "chunked",
    [MCP_HIDE_BULK] = "bulk",
};

const char *const mcp_group_axis_names[MCP_NUM_GROUP_AXES] = {
    "tensor", "context", "data", "pipeline", "expert", "expert_data", "ends",
};

const char *const mcp_space_keys[MCP_NUM_SPACES] = {
    [MCP_SPACE_LAYER] = "layer_buffers",
    [MCP_SPACE_FRAME] = "frame_buffers",
    [MCP_SPACE_BLOCK] = "block_buffers",
};

struct mcp_name_list mcp_buffer_names(const struct mcp_buffer *buffers, int count)
{
    static_assert(offsetof(struct mcp_buffer, name) == 0, "a list of names is strided");
    return (struct mcp_name_list){(const char *)buffers, sizeof *buffers, count};
}

struct mcp_name_list mcp_weight_names(const struct mcp_weight *weights, int count)
{
    static_assert(offsetof(struct mcp_weight, name) == 0, "a list of names is strided");
    return (struct mcp_name_list){(const char *)weights, sizeof *weights, count};
}

const char *mcp_name_at(const struct mcp_name_list *list, int index)
{
    assert(index >= 0 && index < list->count);
    return list->first + (size_t)index * list->stride;
}

int mcp_name_find(const struct mcp_name_list *list, const char *name, size_t length)
{
    for (int i = 0; i < list->count; i++) {
        const char *other = mcp_name_at(list, i);
        if (strncmp(other, name, length) == 0 && other[length] == '\0')
            return i;
    }
    return -1;
}

struct mcp_name_list mcp_space_buffers(const struct mcp_program *program,
                                       const struct mcp_layer_type *type, int space)
{
    if (space == MCP_SPACE_RANK)
        return mcp_buffer_names(program->rank_buffers, program->num_rank_buffers);
    return mcp_buffer_names(type->buffers[space], type->num_buffers[space]);
}
