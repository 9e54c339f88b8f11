/* tests/topologies/test_corpus.c: link matrices that other people's machines printed,
 * against a count of their cells by hand (MCP_SHARED/corpus/nvidia-smi-topo). */
#include "core/csv.h"
#include "topologies/nvidia_smi.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct range { /* of devices, without `to` */
    int from, to;
};

static int count_links(const struct mcp_node *node, struct range a, struct range b,
                       enum mcp_link_kind kind, int count)
{
    int found = 0;
    for (int i = a.from; i < a.to; i++)
        for (int j = b.from; j < b.to; j++) {
            const struct mcp_link *link = mcp_node_link(node, i, j);
            bool pair = a.from != b.from || i < j;
            found += pair && link->kind == kind && (count == 0 || link->count == count);
        }
    return found;
}

/* `want` is "NV12:2 SYS:4", or "-". */
static bool agrees(const struct mcp_node *node, struct range a, struct range b, const char *want,
                   int *known)
{
    char code[16];
    int count, length;
    for (; sscanf(want, " %15[^: ]:%d%n", code, &count, &length) == 2; want += length) {
        enum mcp_link_kind kind = MCP_LINK_UNKNOWN;
        int bonded = 0;
        if (strncmp(code, "NV", 2) == 0) {
            kind = MCP_LINK_NVLINK;
            bonded = (int)strtol(code + 2, NULL, 10);
        }
        for (int k = 0; k < MCP_NUM_LINK_KINDS; k++)
            if (mcp_same(code, mcp_link_kind_names[k]) ||
                (k == MCP_LINK_SYS && mcp_same(code, "SOC")))
                kind = (enum mcp_link_kind)k;
        if (count_links(node, a, b, kind, bonded) != count)
            return false;
        *known += count;
    }
    return true;
}

/* Devices, every kind of link, and no link beyond those. */
static bool row_agrees(const struct mcp_csv *index, size_t row, const struct mcp_node *node)
{
    struct range gpus = {0, node->num_gpus}, nics = {node->num_gpus, mcp_node_devices(node)};
    int known = 0, devices = mcp_node_devices(node);
    int64_t want_gpus = -1, want_nics = -1;
    (void)mcp_parse_int64(mcp_csv_cell(index, row, "gpus"), &want_gpus);
    (void)mcp_parse_int64(mcp_csv_cell(index, row, "nics"), &want_nics);
    return node->num_gpus == want_gpus && node->num_nics == want_nics &&
           agrees(node, gpus, gpus, mcp_csv_cell(index, row, "gpu_pairs"), &known) &&
           agrees(node, gpus, nics, mcp_csv_cell(index, row, "gpu_nic_pairs"), &known) &&
           agrees(node, nics, nics, mcp_csv_cell(index, row, "nic_nic_pairs"), &known) &&
           known == devices * (devices - 1) / 2 - mcp_node_unknown_links(node);
}

/* Not matrices of topo -m, or ones that contradict themselves. */
static const char *const refused[] = {
    "030-amd-mi300a-4.txt",
    "031-amd-single.txt",
    "039-p2p-ok-not-topo.txt",
    "049-windows-topo-option-error.txt",
};

static bool is_refused(const char *file)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (mcp_same(refused[i], file))
            return true;
    return false;
}

Test(corpus, every_link_matrix_is_read_or_refused_as_it_should_be)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    const char *shared = getenv("MCP_SHARED");
    const char *folder =
        mcp_format(arena, "%s/corpus/nvidia-smi-topo", shared != NULL ? shared : "../shared");
    struct mcp_csv index;
    if (mcp_csv_read(arena, mcp_format(arena, "%s/index.csv", folder), &index, &err) != MCP_OK) {
        cr_log_info("no corpus: %s", err.text);
        mcp_arena_free(arena);
        return;
    }
    for (size_t row = 0; row < index.num_rows; row++) {
        const char *file = mcp_csv_cell(&index, row, "file");
        struct mcp_text text;
        struct mcp_node node;
        const char *path = mcp_format(arena, "%s/%s", folder, file);
        cr_assert(eq(int, (int)mcp_file_read(arena, path, 1 << 20, &text, &err), MCP_OK));
        enum mcp_status got = mcp_nvidia_smi_topo(arena, file, text.data, text.length, &node, &err);
        cr_expect(eq(int, got != MCP_OK, is_refused(file)), "%s: %s", file, err.text);
        if (got == MCP_OK)
            cr_expect(row_agrees(&index, row, &node), "%s", file);
    }
    mcp_arena_free(arena);
}
