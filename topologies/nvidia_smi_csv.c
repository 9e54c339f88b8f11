/* topologies/nvidia_smi_csv.c: GPUs of `nvidia-smi --query-gpu=... --format=csv`. */
#include "topologies/nvidia_smi.h"

#include "core/csv.h"
#include "topologies/nvidia_smi_parts.h"

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

struct table {
    struct mcp_arena *arena;
    const struct mcp_csv *csv;
    size_t row;
};

/* The row's cell in the column called `name`, or `other`, with or without " [unit]";
 * "" when there is no such column. */
static const char *cell(const struct table *t, const char *name, const char *other)
{
    const struct mcp_csv *csv = t->csv;
    for (size_t i = 0; i < csv->num_columns; i++) {
        const char *header = csv->header[i] + strspn(csv->header[i], " \t");
        size_t length = strcspn(header, " \t\r");
        if ((length == strlen(name) && strncmp(header, name, length) == 0) ||
            (length == strlen(other) && strncmp(header, other, length) == 0))
            return trim(t->arena, csv->cells[t->row * csv->num_columns + i]);
    }
    return "";
}

static enum mcp_status read_index(const struct table *t, struct mcp_node_gpu *gpu,
                                  struct mcp_error *err)
{
    const char *text = cell(t, "index", "index");
    int64_t index = (int64_t)t->row;
    if (text[0] != '\0' && (!mcp_parse_int64(text, &index) || index < 0 || index > 9999))
        return mcp_fail(err, MCP_FORMAT, "index '%.40s' is no GPU number",
                        mcp_printable(t->arena, text));
    *gpu = mcp_node_gpu_unknown((int)index);
    return MCP_OK;
}

static enum mcp_status read_gpu(const struct table *t, struct mcp_node_gpu *gpu,
                                struct mcp_error *err)
{
    struct mcp_arena *arena = t->arena;
    double memory_bytes = 0;
    MCP_TRY(read_index(t, gpu, err));
    gpu->name = mcp_smi_known(cell(t, "name", "gpu_name"));
    gpu->uuid = mcp_smi_known(cell(t, "uuid", "gpu_uuid"));
    gpu->bus_id = mcp_bus_id(arena, cell(t, "pci.bus_id", "gpu_bus_id"));
    gpu->mig_mode = mcp_smi_known(cell(t, "mig.mode.current", ""));
    gpu->pcie_generation = mcp_smi_small_number(cell(t, "pcie.link.gen.max", ""));
    gpu->pcie_width = mcp_smi_small_number(cell(t, "pcie.link.width.max", ""));
    MCP_TRY(
        mcp_smi_quantity(arena, cell(t, "memory.total", ""), "MiB", MCP_BYTES, &memory_bytes, err));
    gpu->memory_bytes = (int64_t)memory_bytes;
    MCP_TRY(mcp_smi_quantity(arena, cell(t, "clocks.max.sm", "clocks.max.graphics"), "MHz",
                             MCP_HERTZ, &gpu->clock_hz, err));
    MCP_TRY(mcp_smi_quantity(arena, cell(t, "clocks.max.memory", "clocks.max.mem"), "MHz",
                             MCP_HERTZ, &gpu->memory_clock_hz, err));
    return mcp_smi_quantity(arena, cell(t, "power.limit", "enforced.power.limit"), "W", MCP_WATTS,
                            &gpu->power_limit_watts, err);
}

/* The words that a first line of such a list has in its cells. */
static bool is_field(const char *word, size_t length)
{
    static const char *const fields[] = {"name",      "gpu_name",      "index",      "uuid",
                                         "gpu_uuid",  "pci.bus_id",    "gpu_bus_id", "memory.total",
                                         "timestamp", "driver_version"};
    for (size_t i = 0; i < MCP_COUNT_OF(fields); i++)
        if (length == strlen(fields[i]) && strncmp(word, fields[i], length) == 0)
            return true;
    return false;
}

/* How many cells of the first line name a field, or look like its value. */
static int count_cells(const char *text, bool of_header)
{
    int count = 0;
    text += strspn(text, " \t\r\n");
    const char *end = text + strcspn(text, "\r\n");
    while (text < end) {
        text += strspn(text, " \t");
        size_t length = strcspn(text, ",\r\n"), word = strcspn(text, " \t,\r\n");
        bool value = (length > 4 && strncmp(text + length - 4, " MiB", 4) == 0) ||
                     strncmp(text, "GPU-", 4) == 0 || strncmp(text, "00000000:", 9) == 0;
        char behind = text[word + strspn(text + word, " \t")]; /* "name" or "memory.total [MiB]" */
        bool whole = behind == '[' || strchr(",\r\n", behind) != NULL;
        count += of_header ? whole && is_field(text, word) : value;
        text += length + 1;
    }
    return count;
}

bool mcp_nvidia_smi_is_csv(const char *text)
{
    return count_cells(text, true) > 0 ||
           (count_cells(text, false) > 0 && memchr(text, ',', strcspn(text, "\n")) != NULL);
}

static enum mcp_status check_size(const char *name, const struct mcp_csv *csv,
                                  struct mcp_error *err)
{
    if (csv->num_rows > 0 && csv->num_rows <= MCP_NODE_MAX_DEVICES)
        return MCP_OK;
    return mcp_fail(err, MCP_FORMAT, "%s: %zu GPUs; 1 to %d are understood", name, csv->num_rows,
                    MCP_NODE_MAX_DEVICES);
}

/* GPUs are told apart by their numbers. */
static enum mcp_status check_indices(const struct table *t, const struct mcp_node *node,
                                     struct mcp_error *err)
{
    for (size_t i = 0; i < t->row; i++)
        if (node->gpus[i].index == node->gpus[t->row].index)
            return mcp_fail(err, MCP_INVALID, "GPU %d is listed twice", node->gpus[i].index);
    return MCP_OK;
}

static enum mcp_status read_rows(struct table *t, struct mcp_node *node, struct mcp_error *err)
{
    for (; t->row < t->csv->num_rows; t->row++) {
        enum mcp_status status = read_gpu(t, &node->gpus[t->row], err);
        if (status == MCP_OK)
            status = check_indices(t, node, err);
        if (status == MCP_OK)
            continue;
        mcp_error_prefix(err,
                         mcp_format(t->arena, "%s: line %d", t->csv->path, t->csv->lines[t->row]));
        return status;
    }
    return MCP_OK;
}

enum mcp_status mcp_nvidia_smi_csv(struct mcp_arena *arena, const char *name, const char *text,
                                   size_t length, struct mcp_node *out, struct mcp_error *err)
{
    struct mcp_csv csv;
    struct table first = {arena, &csv, 0};
    struct mcp_node node = {0};
    if (count_cells(text, true) == 0)
        return mcp_fail(err, MCP_FORMAT,
                        "%s: line 1: no header that names the fields; write the list again "
                        "without 'noheader', as `nvidia-smi "
                        "--query-gpu=index,name,uuid,pci.bus_id,memory.total --format=csv`",
                        name);
    MCP_TRY(mcp_csv_parse(arena, name, text, length, &csv, err));
    MCP_TRY(check_size(name, &csv, err));
    mcp_node_alloc(arena, &node, (int)csv.num_rows, 0);
    node.driver = mcp_smi_known(cell(&first, "driver_version", ""));
    int attached = mcp_smi_small_number(cell(&first, "count", ""));
    node.num_gpus_attached = attached > node.num_gpus ? attached : 0;
    MCP_TRY(read_rows(&first, &node, err));
    *out = node;
    return MCP_OK;
}
