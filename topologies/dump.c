/* topologies/dump.c: which tool wrote a file, and reading it. */
#include "topologies/dump.h"

#include "topologies/hwloc_xml.h"
#include "topologies/nccl_xml.h"
#include "topologies/nvidia_smi.h"
#include "topologies/rocm_smi.h"
#include "topologies/xml.h"

#include <string.h>

const char *const mcp_dump_kind_names[MCP_NUM_DUMP_KINDS] = {
    "nvidia-smi topo -m", "nvidia-smi -L", "nvidia-smi --query-gpu", "nvidia-smi -q -x",
    "rocm-smi",           "hwloc XML",     "NCCL topology XML",      "NVML",
};

/* What people have at hand and is no description that we read. */
struct lookalike {
    const char *begin; /* of the text, behind blanks */
    const char *answer;
};
static const struct lookalike lookalikes[] = {
    {"NVIDIA-SMI has failed", "an error message of nvidia-smi, not its output"},
    {"Failed to initialize NVML", "an error message of nvidia-smi, not its output"},
    {"No devices", "an error message of nvidia-smi: it found no GPU"},
    {"ERROR:", "an error message and no matrix, of a tool that was called wrongly"},
    {"Error:", "an error message, not a tool's output"},
    {"bash:", "an error message of the shell: the tool is not installed there"},
    {"==============NVSMI LOG", "the text of `nvidia-smi -q`; write it with `nvidia-smi -q -x`"},
    {"Machine (", "lstopo's drawing; write it with `lstopo --of xml`"},
    {"{", "JSON; a cluster file goes to --cluster, a model to --model"},
};

static enum mcp_status refuse_lookalike(struct mcp_arena *arena, const char *name, const char *text,
                                        struct mcp_error *err)
{
    text += strspn(text, " \t\r\n");
    for (size_t i = 0; i < MCP_COUNT_OF(lookalikes); i++) {
        if (!mcp_starts_with(text, lookalikes[i].begin))
            continue;
        size_t length = strcspn(text, "\r\n");
        const char *line = mcp_strndup(arena, text, length < 80 ? length : 80);
        return mcp_fail(err, MCP_FORMAT, "%s: %s: '%s'", name, lookalikes[i].answer,
                        mcp_printable(arena, line));
    }
    return MCP_OK;
}

/* Two bytes of UTF-16; 0 behind the end. */
static unsigned unit_at(const unsigned char *text, size_t length, size_t at, bool high_first)
{
    if (at + 1 >= length)
        return 0;
    return high_first ? text[at] * 256u + text[at + 1] : text[at + 1] * 256u + text[at];
}

static void append_utf8(struct mcp_text *out, unsigned code)
{
    char bytes[4];
    size_t count = 0;
    if (code < 0x80) {
        bytes[count++] = (char)code;
    } else if (code < 0x800) {
        bytes[count++] = (char)(unsigned char)(0xc0 | code >> 6);
        bytes[count++] = (char)(unsigned char)(0x80 | (code & 0x3f));
    } else {
        bytes[count++] = '?'; /* no tool names devices so */
    }
    mcp_text_append(out, bytes, count);
}

/* What PowerShell's > writes is UTF-16; a mark of the byte order tells it. The mark of
 * UTF-8 is left out. */
static const char *as_utf8(struct mcp_arena *arena, const char *text, size_t *length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    struct mcp_text out = mcp_text_new(arena);
    if (*length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        *length -= 3;
        return text + 3;
    }
    if (*length < 2 || (memcmp(text, "\xff\xfe", 2) != 0 && memcmp(text, "\xfe\xff", 2) != 0))
        return text;
    for (size_t at = 2; at + 1 < *length; at += 2)
        append_utf8(&out, unit_at(bytes, *length, at, bytes[0] == 0xfe));
    *length = out.length;
    return out.data;
}

static bool is_xml(const char *text)
{
    text += strspn(text, " \t\r\n");
    return text[0] == '<' && text[1] != '\0' && strchr("?!abcdefghijklmnopqrstuvwxyz", text[1]);
}

/* A file that breaks off is refused; what it holds so far tells people which it was. */
static enum mcp_status fail_broken(struct mcp_arena *arena, const char *name,
                                   const struct mcp_xml *root, struct mcp_error *err)
{
    struct mcp_node node = {0};
    struct mcp_error ignored;
    if (!mcp_same(root->name, "system") ||
        mcp_nccl_xml(arena, name, root, &node, &ignored) != MCP_OK)
        return MCP_FORMAT;
    const char *problem = mcp_strdup(arena, err->text);
    struct mcp_text notes = mcp_text_new(arena);
    for (const char *at = node.notes; at != NULL && *at != '\0'; at += strcspn(at, "\n") + 1) {
        const char *note = at + strlen(name) + 2; /* behind the file's name */
        mcp_text_add(&notes, "; %.*s", (int)strcspn(note, "\n"), note);
    }
    return mcp_fail(
        err, MCP_FORMAT, "%s; before it stand %d GPUs, %d NICs%s%s", problem, node.num_gpus,
        node.num_nics,
        node.num_gpus > 0 && node.gpus[0].switch_links > 0
            ? mcp_format(arena, ", %d NVLinks a GPU to a switch", node.gpus[0].switch_links)
            : "",
        notes.data);
}

static enum mcp_status parse_xml(struct mcp_arena *arena, const char *name, const char *text,
                                 size_t length, struct mcp_dump *out, struct mcp_error *err)
{
    struct mcp_xml *root;
    enum mcp_status status = mcp_xml_parse(arena, name, text, length, &root, err);
    if (status != MCP_OK)
        return root == NULL || status != MCP_FORMAT ? status : fail_broken(arena, name, root, err);
    if (mcp_same(root->name, "nvidia_smi_log")) {
        out->kind = MCP_DUMP_SMI_XML;
        return mcp_nvidia_smi_xml(arena, name, root, &out->node, err);
    }
    if (mcp_same(root->name, "topology")) {
        out->kind = MCP_DUMP_HWLOC;
        return mcp_hwloc_xml(arena, name, root, &out->node, err);
    }
    out->kind = MCP_DUMP_NCCL;
    if (mcp_same(root->name, "system"))
        return mcp_nccl_xml(arena, name, root, &out->node, err);
    if (mcp_same(root->name, "graphs"))
        return mcp_fail(err, MCP_FORMAT,
                        "%s: <graphs>: rings and trees that NCCL chose (NCCL_GRAPH_FILE), not a "
                        "machine; NCCL_TOPO_DUMP_FILE writes <system>",
                        name);
    return mcp_fail(err, MCP_FORMAT,
                    "%s: line %d: <%.40s> is none of <topology> (hwloc), <nvidia_smi_log> "
                    "(nvidia-smi -q -x), <system> (NCCL)",
                    name, root->line, mcp_printable(arena, root->name));
}

enum mcp_status mcp_dump_parse(struct mcp_arena *arena, const char *name, const char *text,
                               size_t length, struct mcp_dump *out, struct mcp_error *err)
{
    *out = (struct mcp_dump){.name = mcp_strdup(arena, name), .kind = MCP_DUMP_SMI_TOPO};
    name = mcp_printable(arena, name);
    text = as_utf8(arena, text, &length);
    if (text[strspn(text, " \t\r\n")] == '\0')
        return mcp_fail(err, MCP_FORMAT, "%s: empty; nothing was written to it", name);
    if (is_xml(text))
        return parse_xml(arena, name, text, length, out, err);
    MCP_TRY(refuse_lookalike(arena, name, text, err));
    if (mcp_rocm_smi_is_topo(text)) {
        out->kind = MCP_DUMP_ROCM;
        return mcp_rocm_smi_topo(arena, name, text, length, &out->node, err);
    }
    if (mcp_nvidia_smi_is_csv(text)) {
        out->kind = MCP_DUMP_SMI_CSV;
        return mcp_nvidia_smi_csv(arena, name, text, length, &out->node, err);
    }
    if (mcp_nvidia_smi_is_list(text)) {
        out->kind = MCP_DUMP_SMI_LIST;
        return mcp_nvidia_smi_list(arena, name, text, length, &out->node, err);
    }
    return mcp_nvidia_smi_topo(arena, name, text, length, &out->node, err);
}

enum mcp_status mcp_dump_read(struct mcp_arena *arena, const char *path, struct mcp_dump *out,
                              struct mcp_error *err)
{
    struct mcp_text text;
    MCP_TRY(mcp_file_read(arena, path, MCP_MAX_DUMP_BYTES, &text, err));
    return mcp_dump_parse(arena, mcp_same(path, "-") ? "standard input" : path, text.data,
                          text.length, out, err);
}
