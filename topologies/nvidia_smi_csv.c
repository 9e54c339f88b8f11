/* topologies/nvidia_smi_csv.c: GPU names and memory of `nvidia-smi --query-gpu`. */
#include "topologies/nvidia_smi.h"

#include "core/csv.h"
#include "core/units.h"

#include <ctype.h>
#include <string.h>

/* Text without blanks around it. */
static const char *trim(struct mcp_arena *arena, const char *text)
{
    size_t length;
    while (isspace((unsigned char)*text))
        text++;
    length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    return mcp_strndup(arena, text, length);
}

/* The column called `name`, with or without " [unit]"; -1: none. */
static int find_column(struct mcp_arena *arena, const struct mcp_csv *csv, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < csv->num_columns; i++) {
        const char *header = trim(arena, csv->header[i]);
        if (mcp_starts_with(header, name) && (header[length] == '\0' || header[length] == ' '))
            return (int)i;
    }
    return -1;
}

static const char *cell(struct mcp_arena *arena, const struct mcp_csv *csv, size_t row, int column)
{
    return column < 0 ? "" : trim(arena, csv->cells[row * csv->num_columns + (size_t)column]);
}

/* "81559 MiB", or under nounits "81559"; "[N/A]" is unknown. */
static enum mcp_status parse_memory(const char *text, int64_t *bytes, struct mcp_error *err)
{
    double value = 0;
    int64_t mebibytes;
    if (text[0] == '\0' || text[0] == '[' || mcp_same(text, "N/A"))
        return MCP_OK;
    if (mcp_parse_int64(text, &mebibytes) && mebibytes >= 0 && mebibytes < ((int64_t)1 << 40)) {
        *bytes = mebibytes << 20;
        return MCP_OK;
    }
    MCP_TRY(mcp_quantity_parse(text, MCP_BYTES, &value, err));
    if (value > 0x1p60)
        return mcp_fail(err, MCP_FORMAT, "memory.total '%s' is too large", text);
    *bytes = (int64_t)value;
    return MCP_OK;
}

static enum mcp_status read_gpu(struct mcp_arena *arena, const struct mcp_csv *csv, size_t row,
                                struct mcp_node_gpu *gpu, struct mcp_error *err)
{
    int index_column = find_column(arena, csv, "index");
    int64_t index = (int64_t)row;
    *gpu = (struct mcp_node_gpu){.numa_node = -1};
    gpu->name = cell(arena, csv, row, find_column(arena, csv, "name"));
    if (index_column >= 0 && !mcp_parse_int64(cell(arena, csv, row, index_column), &index))
        index = -1;
    if (index < 0 || index > 9999)
        return mcp_fail(err, MCP_FORMAT, "%s: line %d: index '%s' is no GPU number", csv->path,
                        csv->lines[row], cell(arena, csv, row, index_column));
    gpu->index = (int)index;
    enum mcp_status status = parse_memory(
        cell(arena, csv, row, find_column(arena, csv, "memory.total")), &gpu->memory_bytes, err);
    if (status != MCP_OK)
        mcp_error_prefix(err, mcp_format(arena, "%s: line %d", csv->path, csv->lines[row]));
    return status;
}

enum mcp_status mcp_nvidia_smi_csv(struct mcp_arena *arena, const char *name, const char *text,
                                   size_t length, struct mcp_gpu_list *out, struct mcp_error *err)
{
    struct mcp_csv csv;
    MCP_TRY(mcp_csv_parse(arena, name, text, length, &csv, err));
    if (find_column(arena, &csv, "name") < 0)
        return mcp_fail(err, MCP_FORMAT,
                        "%s: no column 'name'; write it with `nvidia-smi "
                        "--query-gpu=index,name,memory.total --format=csv`",
                        name);
    if (csv.num_rows == 0 || csv.num_rows > MCP_NODE_MAX_DEVICES)
        return mcp_fail(err, MCP_FORMAT, "%s: %zu GPUs; 1 to %d are understood", name, csv.num_rows,
                        MCP_NODE_MAX_DEVICES);
    out->count = (int)csv.num_rows;
    out->items = MCP_ARRAY(arena, csv.num_rows, struct mcp_node_gpu);
    for (size_t row = 0; row < csv.num_rows; row++)
        MCP_TRY(read_gpu(arena, &csv, row, &out->items[row], err));
    return MCP_OK;
}

bool mcp_nvidia_smi_is_csv(struct mcp_arena *arena, const char *text)
{
    text += strspn(text, " \t\r\n");
    const char *end = text + strcspn(text, "\n");
    while (text < end) {
        size_t length = strcspn(text, ",\n");
        if (mcp_same(trim(arena, mcp_strndup(arena, text, length)), "name"))
            return true;
        text += length + 1;
    }
    return false;
}

static struct mcp_node_gpu *find_gpu(const struct mcp_node *node, int index)
{
    for (int i = 0; i < node->num_gpus; i++)
        if (node->gpus[i].index == index)
            return &node->gpus[i];
    return NULL;
}

enum mcp_status mcp_node_add_gpus(struct mcp_arena *arena, struct mcp_node *node,
                                  const struct mcp_gpu_list *list, struct mcp_error *err)
{
    if (node->num_gpus == 0 && node->num_nics == 0) {
        node->num_gpus = list->count;
        node->gpus = list->items;
        node->links = MCP_ARRAY(arena, (size_t)list->count * (size_t)list->count, struct mcp_link);
        return MCP_OK;
    }
    if (node->num_gpus != list->count)
        return mcp_fail(err, MCP_INVALID, "the matrix has %d GPUs, the list of names %d",
                        node->num_gpus, list->count);
    for (int i = 0; i < list->count; i++) {
        struct mcp_node_gpu *gpu = find_gpu(node, list->items[i].index);
        if (gpu == NULL)
            return mcp_fail(err, MCP_INVALID, "the list names GPU%d, which the matrix lacks",
                            list->items[i].index);
        gpu->name = list->items[i].name;
        gpu->memory_bytes = list->items[i].memory_bytes;
    }
    return MCP_OK;
}
