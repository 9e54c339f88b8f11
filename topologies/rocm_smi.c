/* topologies/rocm_smi.c: tables of rocm-smi --showtopo. */
#include "topologies/rocm_smi.h"

#include "topologies/nvidia_smi_parts.h"

#include <ctype.h>
#include <string.h>

enum table { TABLE_NONE, TABLE_HOPS, TABLE_TYPE };

struct reader {
    struct mcp_arena *arena;
    struct mcp_error *err;
    const char *file;
    int line;
    enum table table;
    int count;                           /* GPUs, 0: no table of types yet */
    int index[MCP_NODE_MAX_DEVICES];     /* of the columns */
    char (*types)[MCP_NODE_MAX_DEVICES]; /* 'X' XGMI, 'P' PCIE, 0 unknown, by index */
    unsigned char (*hops)[MCP_NODE_MAX_DEVICES];
    int numa[MCP_NODE_MAX_DEVICES];
    bool printed[MCP_NODE_MAX_DEVICES]; /* a NUMA node, by index */
};

static enum mcp_status fail(const struct reader *r, const char *problem, const char *value)
{
    return mcp_fail(r->err, MCP_FORMAT, "%s: line %d: %s '%.40s'", r->file, r->line, problem,
                    mcp_printable(r->arena, value));
}

/* N of "GPUN" or "GPU[N]", else -1. */
static int gpu_number(const char *word)
{
    if (!mcp_starts_with(word, "GPU"))
        return -1;
    word += 3 + (word[3] == '[');
    return isdigit((unsigned char)*word) ? mcp_smi_small_number(word) : -1;
}

static void begin_table(struct reader *r, const char *title)
{
    r->table = strstr(title, "Hops between") != NULL        ? TABLE_HOPS
               : strstr(title, "Link Type between") != NULL ? TABLE_TYPE
                                                            : TABLE_NONE;
}

static enum mcp_status read_header(struct reader *r, const char *rest)
{
    const char *word;
    r->count = 0;
    while ((word = mcp_smi_next_word(r->arena, &rest)) != NULL) {
        int number = gpu_number(word);
        if (number < 0 || number >= MCP_NODE_MAX_DEVICES || r->count == MCP_NODE_MAX_DEVICES)
            return fail(r, "no GPU's name, or one above 511:", word);
        for (int i = 0; i < r->count; i++)
            if (r->index[i] == number)
                return fail(r, "GPU named twice:", word);
        r->index[r->count++] = number;
    }
    return MCP_OK;
}

static enum mcp_status read_cell(struct reader *r, int row, int column, const char *word)
{
    if (row == column)
        return MCP_OK;
    if (r->table == TABLE_HOPS)
        r->hops[row][column] = (unsigned char)mcp_smi_small_number(word);
    else if (mcp_same(word, "XGMI") || mcp_same(word, "PCIE"))
        r->types[row][column] = word[0];
    else if (!mcp_same(word, "N/A"))
        return fail(r, "no link type (XGMI, PCIE):", word);
    return MCP_OK;
}

static enum mcp_status read_row(struct reader *r, int row, const char *rest)
{
    for (int i = 0; i < r->count; i++) {
        const char *word = mcp_smi_next_word(r->arena, &rest);
        if (word == NULL)
            return MCP_OK; /* cut: the other half may tell */
        MCP_TRY(read_cell(r, row, r->index[i], word));
    }
    return MCP_OK;
}

/* "GPU[0]  : (Topology) Numa Node: 0" */
static void read_numa(struct reader *r, int gpu, const char *line)
{
    const char *at = strstr(line, "Numa Node: ");
    if (at == NULL || gpu < 0 || gpu >= MCP_NODE_MAX_DEVICES)
        return;
    r->numa[gpu] = mcp_smi_first_number(at + strlen("Numa Node: "));
    r->printed[gpu] = true;
}

static enum mcp_status read_line(struct reader *r, const char *line)
{
    const char *rest = line;
    const char *word = mcp_smi_next_word(r->arena, &rest);
    if (word == NULL)
        return MCP_OK;
    if (word[0] == '=') {
        begin_table(r, line);
        return MCP_OK;
    }
    int gpu = gpu_number(word);
    if (strchr(word, '[') != NULL)
        read_numa(r, gpu, line);
    if (gpu < 0 || gpu >= MCP_NODE_MAX_DEVICES || r->table == TABLE_NONE ||
        strchr(word, '[') != NULL)
        return MCP_OK;
    const char *next = rest + strspn(rest, " \t");
    if (*next == '\0' || gpu_number(next) >= 0)
        return read_header(r, line);
    return read_row(r, gpu, rest);
}

/* What joins two GPUs: either half of the table may tell. */
static enum mcp_status read_link(const struct reader *r, int a, int b, struct mcp_link *out)
{
    int type = r->types[a][b] != 0 ? r->types[a][b] : r->types[b][a];
    int hops = r->hops[a][b] > 0 ? r->hops[a][b] : r->hops[b][a];
    if (r->types[a][b] != 0 && r->types[b][a] != 0 && r->types[a][b] != r->types[b][a])
        return mcp_fail(r->err, MCP_INVALID, "%s: GPU%d-GPU%d is %s one way and %s the other",
                        r->file, a, b, r->types[a][b] == 'X' ? "XGMI" : "PCIE",
                        r->types[b][a] == 'X' ? "XGMI" : "PCIE");
    if (type == 'X')
        *out = (struct mcp_link){MCP_LINK_XGMI, 1};
    else if (type == 'P' && r->numa[a] >= 0 && r->numa[b] >= 0)
        *out = (struct mcp_link){r->numa[a] == r->numa[b] ? MCP_LINK_NODE : MCP_LINK_SYS, 1};
    else if (type == 'P' && hops > 0)
        *out = (struct mcp_link){hops <= 2 ? MCP_LINK_NODE : MCP_LINK_SYS, 1};
    return MCP_OK;
}

/* Of GPU `i` to those before it. */
static enum mcp_status read_links(const struct reader *r, int i, struct mcp_node *node)
{
    for (int j = 0; j < i; j++) {
        struct mcp_link link = {MCP_LINK_UNKNOWN, 0};
        MCP_TRY(read_link(r, r->index[j], r->index[i], &link));
        mcp_node_set_link(node, i, j, link);
    }
    return MCP_OK;
}

static enum mcp_status build_node(const struct reader *r, struct mcp_node *node)
{
    mcp_node_alloc(r->arena, node, r->count, 0);
    for (int i = 0; i < r->count; i++) {
        int index = r->index[i];
        node->gpus[i] = mcp_node_gpu_unknown(index);
        node->gpus[i].numa_node = r->numa[index];
        if (r->printed[index])
            node->gpus[i].numa_affinity =
                r->numa[index] < 0 ? "N/A" : mcp_format(r->arena, "%d", r->numa[index]);
        MCP_TRY(read_links(r, i, node));
    }
    return MCP_OK;
}

bool mcp_rocm_smi_is_topo(const char *text)
{
    return strstr(text, "ROCm System Management Interface") != NULL ||
           strstr(text, "ROCm SMI Log") != NULL || strstr(text, "between two GPUs ===") != NULL;
}

enum mcp_status mcp_rocm_smi_topo(struct mcp_arena *arena, const char *name, const char *text,
                                  size_t length, struct mcp_node *out, struct mcp_error *err)
{
    struct reader *r = MCP_NEW(arena, struct reader);
    bool has_types = false;
    const char *end = text + length;
    *r = (struct reader){.arena = arena, .err = err, .file = name};
    r->types = mcp_alloc(arena, MCP_NODE_MAX_DEVICES, sizeof *r->types);
    r->hops = mcp_alloc(arena, MCP_NODE_MAX_DEVICES, sizeof *r->hops);
    for (int i = 0; i < MCP_NODE_MAX_DEVICES; i++)
        r->numa[i] = -1;
    while (text < end) {
        const char *stop = (const char *)memchr(text, '\n', (size_t)(end - text));
        size_t bytes = (size_t)((stop == NULL ? end : stop) - text);
        struct mcp_mark mark = mcp_arena_mark(arena);
        r->line++;
        MCP_TRY(
            read_line(r, mcp_strndup(arena, text, bytes - (bytes > 0 && text[bytes - 1] == '\r'))));
        mcp_arena_rewind(arena, mark);
        has_types = has_types || r->table == TABLE_TYPE;
        text += bytes + 1;
    }
    if (!has_types || r->count == 0)
        return mcp_fail(err, MCP_FORMAT,
                        "%s: rocm-smi's numbers do not tell what joins the GPUs; add the table of "
                        "link types, as `rocm-smi --showtopo` prints it",
                        name);
    struct mcp_node node = {0};
    MCP_TRY(build_node(r, &node));
    *out = node;
    return MCP_OK;
}
