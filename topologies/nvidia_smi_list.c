/* topologies/nvidia_smi_list.c: GPUs and MIG devices of `nvidia-smi -L`. */
#include "topologies/nvidia_smi.h"

#include "topologies/nvidia_smi_parts.h"

#include <ctype.h>
#include <string.h>

struct list {
    struct mcp_arena *arena;
    struct mcp_error *err;
    const char *file;
    int line;
    int count;
    struct mcp_node_gpu gpus[MCP_NODE_MAX_DEVICES];
    size_t mig_capacity; /* of the last GPU */
};

/* "(UUID: GPU-...)" at or behind `text`; NULL: none. */
static const char *read_uuid(struct mcp_arena *arena, const char *text)
{
    const char *at = strstr(text, "(UUID: ");
    if (at == NULL)
        return NULL;
    at += strlen("(UUID: ");
    return mcp_strndup(arena, at, strcspn(at, ")"));
}

/* "0: NVIDIA H100 (UUID: GPU-...)" behind "GPU ". */
static enum mcp_status read_gpu(struct list *l, const char *text)
{
    int index = mcp_smi_read_number(&text);
    if (index < 0 || index > 9999 || *text++ != ':')
        return mcp_fail(l->err, MCP_FORMAT, "%s: line %d: no number of a GPU in 'GPU %.40s'",
                        l->file, l->line, mcp_printable(l->arena, text));
    if (l->count == MCP_NODE_MAX_DEVICES)
        return mcp_fail(l->err, MCP_FORMAT, "%s: line %d: more than %d GPUs", l->file, l->line,
                        MCP_NODE_MAX_DEVICES);
    for (int i = 0; i < l->count; i++)
        if (l->gpus[i].index == index)
            return mcp_fail(l->err, MCP_INVALID, "%s: line %d: GPU %d is listed twice", l->file,
                            l->line, index);
    struct mcp_node_gpu *gpu = &l->gpus[l->count++];
    *gpu = mcp_node_gpu_unknown(index);
    text += strspn(text, " \t");
    const char *end = strstr(text, " (UUID:");
    gpu->name = end == NULL ? text : mcp_strndup(l->arena, text, (size_t)(end - text));
    gpu->uuid = read_uuid(l->arena, text);
    l->mig_capacity = 0;
    return MCP_OK;
}

/* "3g.40gb     Device  0: (UUID: MIG-...)" behind "MIG ". */
static enum mcp_status read_mig(struct list *l, const char *text)
{
    const char *device = strstr(text, "Device");
    if (l->count == 0 || device == NULL)
        return mcp_fail(l->err, MCP_FORMAT, "%s: line %d: %s", l->file, l->line,
                        l->count == 0 ? "a MIG device before any GPU"
                                      : "a MIG device without 'Device'");
    struct mcp_node_gpu *gpu = &l->gpus[l->count - 1];
    const char *number = device + strlen("Device");
    number += strspn(number, " ");
    gpu->migs = (struct mcp_node_mig *)mcp_grow(l->arena, gpu->migs, (size_t)gpu->num_migs,
                                                &l->mig_capacity, sizeof *gpu->migs);
    gpu->migs[gpu->num_migs++] = (struct mcp_node_mig){
        .profile = mcp_strndup(l->arena, text, strcspn(text, " ")),
        .index = mcp_smi_read_number(&number),
        .uuid = read_uuid(l->arena, text),
    };
    return MCP_OK;
}

static enum mcp_status read_line(struct list *l, const char *text)
{
    text += strspn(text, " \t");
    if (mcp_starts_with(text, "GPU "))
        return read_gpu(l, text + 4);
    if (mcp_starts_with(text, "MIG "))
        return read_mig(l, text + 4);
    return MCP_OK;
}

bool mcp_nvidia_smi_is_list(const char *text)
{
    const char *line = text;
    while (line != NULL) {
        const char *at = line + strspn(line, " \t");
        if (mcp_starts_with(at, "GPU ") && isdigit((unsigned char)at[4]))
            return at[4 + strspn(at + 4, "0123456789")] == ':';
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return false;
}

enum mcp_status mcp_nvidia_smi_list(struct mcp_arena *arena, const char *name, const char *text,
                                    size_t length, struct mcp_node *out, struct mcp_error *err)
{
    struct list *l = MCP_NEW(arena, struct list);
    const char *end = text + length;
    *l = (struct list){.arena = arena, .err = err, .file = name};
    while (text < end) {
        const char *stop = (const char *)memchr(text, '\n', (size_t)(end - text));
        size_t bytes = (size_t)((stop == NULL ? end : stop) - text);
        struct mcp_mark mark = mcp_arena_mark(arena);
        const char *line = mcp_strndup(arena, text, bytes - (bytes > 0 && text[bytes - 1] == '\r'));
        const char *first = line + strspn(line, " \t");
        l->line++;
        if (mcp_starts_with(first, "GPU ") || mcp_starts_with(first, "MIG "))
            MCP_TRY(read_line(l, line));
        else
            mcp_arena_rewind(arena, mark);
        text += bytes + 1;
    }
    if (l->count == 0)
        return mcp_fail(err, MCP_FORMAT, "%s: no line 'GPU 0: ...' of `nvidia-smi -L`", name);
    *out = (struct mcp_node){0};
    mcp_node_alloc(arena, out, l->count, 0);
    memcpy(out->gpus, l->gpus, (size_t)l->count * sizeof *l->gpus);
    return MCP_OK;
}
