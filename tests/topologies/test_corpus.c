/* tests/topologies/test_corpus.c: what other people's machines printed, against the right
 * answer for each file in MCP_SHARED/corpus. */
#include "tests/topologies/corpus.h"

#include "core/minmax.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct mcp_arena *arena;
static void begin(void)
{
    arena = mcp_arena_new();
}
static void end(void)
{
    mcp_arena_free(arena);
}
TestSuite(corpus, .init = begin, .fini = end);

/* What is refused, and what the sentence must say. */
struct refusal {
    const char *file;
    const char *says;
};
static const struct refusal refusals[] = {
    {"039-p2p-ok-not-topo.txt", "line 2: a peer-to-peer status matrix"},
    {"049-windows-topo-option-error.txt", "an error message and no matrix"},
    {"05-azure-ncv4-graph-not-topo.xml", "<graphs>: rings and trees that NCCL chose"},
    {"11-h200-dump-truncated.xml", "line 53, column 1: no element found; <nic> of line 52"},
    {"12-blog-gpu-under-system.xml", "line 3: <gpu> lies in <system>"},
};

static const char *refusal_of(const char *file)
{
    for (size_t i = 0; i < MCP_COUNT_OF(refusals); i++)
        if (mcp_same(refusals[i].file, file))
            return refusals[i].says;
    return NULL;
}

/* Reads a row, or holds its refusal against what it must say; true when it was read. */
static bool read_row(const struct corpus *corpus, size_t row, struct mcp_dump *dump)
{
    struct mcp_error err;
    const char *file = corpus_cell(corpus, row, "file");
    const char *says = refusal_of(file);
    enum mcp_status status = corpus_read(corpus, row, dump, &err);
    cr_expect(eq(int, status != MCP_OK, says != NULL), "%s: %s", file, err.text);
    cr_expect(says == NULL || strstr(err.text, says) != NULL, "%s: %s", file, err.text);
    return status == MCP_OK;
}

/* Links ---------------------------------------------------------------------------- */

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

/* Every kind of link, and no link beyond those. */
static bool links_agree(const struct corpus *corpus, size_t row, const struct mcp_node *node)
{
    struct range gpus = {0, node->num_gpus}, nics = {node->num_gpus, mcp_node_devices(node)};
    int known = 0, devices = mcp_node_devices(node);
    return agrees(node, gpus, gpus, corpus_cell(corpus, row, "gpu_pairs"), &known) &&
           agrees(node, gpus, nics, corpus_cell(corpus, row, "gpu_nic_pairs"), &known) &&
           agrees(node, nics, nics, corpus_cell(corpus, row, "nic_nic_pairs"), &known) &&
           known == devices * (devices - 1) / 2 - mcp_node_unknown_links(node);
}

/* "unknown pairs gpu-gpu/gpu-nic/nic-nic 1/0/0" */
static bool unknown_agree(const struct corpus *corpus, size_t row, const struct mcp_node *node)
{
    static const char begin_of_counts[] = "gpu-gpu/gpu-nic/nic-nic ";
    const char *counts = strstr(corpus_cell(corpus, row, "right_parse_notes"), begin_of_counts);
    struct range gpus = {0, node->num_gpus}, nics = {node->num_gpus, mcp_node_devices(node)};
    int want[3] = {0, 0, 0};
    if (counts != NULL)
        sscanf(counts + strlen(begin_of_counts), "%d/%d/%d", &want[0], &want[1], &want[2]);
    return count_links(node, gpus, gpus, MCP_LINK_UNKNOWN, 0) == want[0] &&
           count_links(node, gpus, nics, MCP_LINK_UNKNOWN, 0) == want[1] &&
           count_links(node, nics, nics, MCP_LINK_UNKNOWN, 0) == want[2];
}

/* The index's words for what is printed: "-" no such column, "?" row missing. */
static const char *numa_by_gpu(const struct mcp_node *node)
{
    struct mcp_text text = mcp_text_new(arena);
    bool has_column = false;
    for (int i = 0; i < node->num_gpus; i++)
        has_column = has_column || node->gpus[i].numa_affinity != NULL;
    for (int i = 0; i < node->num_gpus; i++) {
        const char *word = node->gpus[i].numa_affinity;
        mcp_text_add(&text, "%s%s", i > 0 ? " | " : "",
                     word == NULL      ? (has_column ? "?" : "-")
                     : word[0] == '\0' ? "(empty)"
                                       : word);
    }
    return text.data;
}

/* "NIC names NIC0=mlx5_0 NIC1=mlx5_1" */
static bool nics_agree(const struct corpus *corpus, size_t row, const struct mcp_node *node)
{
    const char *at = strstr(corpus_cell(corpus, row, "right_parse_notes"), "NIC names ");
    char name[40];
    int number, length;
    for (at = at == NULL ? "" : at + strlen("NIC names ");
         sscanf(at, " NIC%d=%39[^ ]%n", &number, name, &length) == 2; at += length)
        if (number >= node->num_nics || !mcp_same(node->nics[number].name, name))
            return false;
    return true;
}

Test(corpus, link_matrices)
{
    struct corpus corpus;
    if (!corpus_open(arena, "nvidia-smi-topo", &corpus))
        return;
    for (size_t row = 0; row < corpus.index.num_rows; row++) {
        struct mcp_dump dump;
        const char *file = corpus_cell(&corpus, row, "file");
        if (!read_row(&corpus, row, &dump))
            continue;
        const struct mcp_node *node = &dump.node;
        cr_expect(eq(int, node->num_gpus, corpus_int(&corpus, row, "gpus")), "%s", file);
        cr_expect(eq(int, node->num_nics, corpus_int(&corpus, row, "nics")), "%s", file);
        cr_expect(links_agree(&corpus, row, node), "%s", file);
        cr_expect(unknown_agree(&corpus, row, node), "%s", file);
        cr_expect(nics_agree(&corpus, row, node), "%s", file);
        const char *numa = corpus_cell(&corpus, row, "numa_by_gpu");
        cr_expect(mcp_same(numa_by_gpu(node), numa) || (numa[0] == '\0' && node->num_gpus == 0) ||
                      (mcp_same(numa, "-") && node->gpus[0].numa_affinity == NULL),
                  "%s: %s, not %s", file, numa_by_gpu(node), numa);
    }
}

/* What only the notes of the index tell. */
Test(corpus, single_matrices)
{
    struct corpus corpus;
    if (!corpus_open(arena, "nvidia-smi-topo", &corpus))
        return;
    for (size_t row = 0; row < corpus.index.num_rows; row++) {
        static const int memory_nodes[] = {2, 10, 18, 26};
        struct mcp_dump dump;
        struct mcp_error err;
        const char *file = corpus_cell(&corpus, row, "file");
        if (corpus_read(&corpus, row, &dump, &err) != MCP_OK)
            continue;
        const char *notes = dump.node.notes != NULL ? dump.node.notes : "";
        for (int i = 0; i < 4 && mcp_starts_with(file, "001-"); i++)
            cr_expect(eq(int, dump.node.gpus[i].memory_numa_node, memory_nodes[i]));
        if (mcp_starts_with(file, "008-"))
            cr_expect(strstr(notes, "of 6 pairs: GPU0-NIC3 is NODE in line 2") != NULL, "%s",
                      notes);
        if (mcp_starts_with(file, "019-"))
            cr_expect(eq(str, (char *)dump.node.gpus[0].cpu_affinity, "0-31,64-95"));
        if (mcp_starts_with(file, "024-"))
            cr_expect(strstr(notes, "no row of GPU7") != NULL, "%s", notes);
        if (mcp_starts_with(file, "015-")) /* "NIC Affinity" is no GPU NUMA ID */
            cr_expect(eq(int, dump.node.gpus[0].memory_numa_node, -1));
    }
}

/* The lists ------------------------------------------------------------------------- */

static int count_migs(const struct mcp_node *node)
{
    int count = 0;
    for (int i = 0; i < node->num_gpus; i++)
        count += node->gpus[i].num_migs;
    return count;
}

Test(corpus, lists)
{
    struct corpus corpus;
    if (!corpus_open(arena, "nvidia-smi-L", &corpus))
        return;
    for (size_t row = 0; row < corpus.index.num_rows; row++) {
        struct mcp_dump dump;
        const char *file = corpus_cell(&corpus, row, "file");
        if (!read_row(&corpus, row, &dump))
            continue;
        const struct mcp_node_gpu *gpu = &dump.node.gpus[0];
        cr_expect(eq(int, (int)dump.kind, MCP_DUMP_SMI_LIST), "%s", file);
        cr_expect(eq(int, dump.node.num_gpus, corpus_int(&corpus, row, "gpus")), "%s", file);
        cr_expect(eq(int, count_migs(&dump.node), corpus_int(&corpus, row, "mig_devices")), "%s",
                  file);
        cr_expect(mcp_same(gpu->name, corpus_cell(&corpus, row, "product")), "%s", file);
        cr_expect(mcp_starts_with(gpu->uuid, "GPU-"), "%s", file);
        for (int i = 0; i < gpu->num_migs; i++)
            cr_expect(strstr(corpus_cell(&corpus, row, "odd"), gpu->migs[i].profile) != NULL);
    }
}

Test(corpus, queries)
{
    struct corpus corpus;
    if (!corpus_open(arena, "nvidia-smi-csv", &corpus))
        return;
    for (size_t row = 0; row < corpus.index.num_rows; row++) {
        struct mcp_dump dump;
        struct mcp_csv csv;
        const char *file = corpus_cell(&corpus, row, "file");
        struct mcp_text text = corpus_text(&corpus, row);
        if (!read_row(&corpus, row, &dump))
            continue;
        const struct mcp_node_gpu *gpu = &dump.node.gpus[0];
        cr_assert(
            eq(int, (int)mcp_csv_parse(arena, file, text.data, text.length, &csv, NULL), MCP_OK));
        cr_expect(eq(int, (int)csv.num_columns, corpus_int(&corpus, row, "header_cells")), "%s",
                  file);
        cr_expect(eq(int, dump.node.num_gpus, corpus_int(&corpus, row, "gpus")), "%s", file);
        cr_expect(mcp_starts_with(gpu->name, "NVIDIA ") && gpu->memory_bytes > (int64_t)7 << 30,
                  "%s", file);
        cr_expect(gpu->bus_id != NULL && gpu->pcie_generation >= 3 && gpu->pcie_width == 16 &&
                      gpu->clock_hz > 1e9 && gpu->memory_clock_hz > 1e9 &&
                      gpu->power_limit_watts > 100,
                  "%s", file);
    }
}

Test(corpus, queries_in_xml)
{
    struct corpus corpus;
    if (!corpus_open(arena, "nvidia-smi-xml", &corpus))
        return;
    for (size_t row = 0; row < corpus.index.num_rows; row++) {
        struct mcp_dump dump;
        const char *file = corpus_cell(&corpus, row, "file");
        if (!read_row(&corpus, row, &dump))
            continue;
        const struct mcp_node_gpu *gpu = &dump.node.gpus[0];
        cr_expect(eq(int, dump.node.num_gpus, corpus_int(&corpus, row, "gpus")), "%s", file);
        cr_expect(mcp_same(dump.node.driver, corpus_cell(&corpus, row, "driver")), "%s", file);
        cr_expect(mcp_same(gpu->name, corpus_cell(&corpus, row, "product")), "%s", file);
        cr_expect(mcp_same(mcp_format(arena, "%lld MiB", (long long)(gpu->memory_bytes >> 20)),
                           corpus_cell(&corpus, row, "fb_total")),
                  "%s", file);
        cr_expect(mcp_same(gpu->bus_id, mcp_bus_id(arena, corpus_cell(&corpus, row, "bus_id"))),
                  "%s", file);
        cr_expect(mcp_same(mcp_format(arena, "%dx%dx", gpu->pcie_generation, gpu->pcie_width),
                           corpus_cell(&corpus, row, "pcie_max")),
                  "%s", file);
        const char *mig = corpus_cell(&corpus, row, "mig");
        bool has_mig = strcmp(mig, "-") != 0 && strcmp(mig, "N/A") != 0;
        cr_expect(mcp_same(gpu->mig_mode, has_mig ? mig : NULL), "%s", file);
        cr_expect(gpu->num_migs == 0 && gpu->clock_hz > 1e9 && gpu->power_limit_watts > 50, "%s",
                  file);
    }
}

/* hwloc ------------------------------------------------------------------------------ */

/* All network devices by name, "-" for none: verbs devices and their interfaces. */
static bool nets_agree(const struct mcp_node *node, const char *want)
{
    struct mcp_text names = mcp_text_new(arena);
    size_t words = 0, found = 0;
    for (int i = 0; i < node->num_nics; i++)
        mcp_text_add(&names, " %s %s ", node->nics[i].name,
                     node->nics[i].interfaces != NULL ? node->nics[i].interfaces : "");
    for (const char *at = names.data; *at != '\0'; at += strcspn(at, " "), words++)
        if (*(at += strspn(at, " ")) == '\0')
            break;
    for (want += mcp_same(want, "-"); *want != '\0'; want += strspn(want, " ")) {
        size_t length = strcspn(want, " ");
        const char *name = mcp_strndup(arena, want, length);
        found++;
        if (strstr(names.data, mcp_format(arena, " %s ", name)) == NULL)
            return false;
        want += length;
    }
    return words == found;
}

Test(corpus, hwloc)
{
    struct corpus corpus;
    if (!corpus_open(arena, "hwloc-xml", &corpus))
        return;
    for (size_t row = 0; row < corpus.index.num_rows; row++) {
        struct mcp_dump dump;
        const char *file = corpus_cell(&corpus, row, "file");
        if (!read_row(&corpus, row, &dump))
            continue;
        const struct mcp_node *node = &dump.node;
        cr_expect(eq(int, (int)dump.kind, MCP_DUMP_HWLOC), "%s", file);
        cr_expect(eq(int, node->num_packages, corpus_int(&corpus, row, "packages")), "%s", file);
        cr_expect(eq(int, node->num_numa_nodes, corpus_int(&corpus, row, "numa_nodes")), "%s",
                  file);
        cr_expect(eq(int, node->num_hardware_threads, corpus_int(&corpus, row, "pus")), "%s", file);
        cr_expect(eq(int, node->num_gpus, corpus_int(&corpus, row, "of_which_display_class_03xx")),
                  "%s", file);
        cr_expect(nets_agree(node, corpus_cell(&corpus, row, "net_osdevs")), "%s", file);
    }
}

/* What only the right_parse column tells. */
Test(corpus, single_hwloc)
{
    struct corpus corpus;
    if (!corpus_open(arena, "hwloc-xml", &corpus))
        return;
    for (size_t row = 0; row < corpus.index.num_rows; row++) {
        struct mcp_dump dump;
        struct mcp_error err;
        const char *file = corpus_cell(&corpus, row, "file");
        cr_assert(eq(int, (int)corpus_read(&corpus, row, &dump, &err), MCP_OK), "%s", err.text);
        const struct mcp_node *node = &dump.node;
        struct range gpus = {0, node->num_gpus};
        if (mcp_starts_with(file, "01-")) { /* all to all, though the matrix has two halves */
            cr_expect(eq(int, node->num_nvlink_switches, 12));
            cr_expect(eq(int, count_links(node, gpus, gpus, MCP_LINK_NVLINK, 6), 120));
        }
        if (mcp_starts_with(file, "02-"))
            cr_expect(eq(int, count_links(node, gpus, gpus, MCP_LINK_NVLINK, 2), 2));
        if (mcp_starts_with(file, "03-"))
            cr_expect(strstr(node->notes, "no PCI devices") != NULL, "%s", node->notes);
        if (mcp_starts_with(file, "09-")) { /* pairs of kinds of memory */
            int sets = 0, hbm = 0;
            for (int i = 0; i < node->num_numa_nodes; i++) {
                hbm += mcp_same(node->numa_nodes[i].kind, "HBM") &&
                       node->numa_nodes[i].memory_bytes == (int64_t)2 << 30;
                sets += node->numa_nodes[i].cpu_set == i;
            }
            cr_expect(eq(int, sets, 4));
            cr_expect(eq(int, hbm, 4));
        }
    }
}

/* NCCL -------------------------------------------------------------------------------- */

static bool numas_agree(const struct mcp_node *node, const char *want)
{
    for (int i = 0; i < node->num_numa_nodes; i++) {
        char *rest;
        if (node->numa_nodes[i].id != (int)strtol(want, &rest, 10) || rest == want)
            return false;
        want = rest;
    }
    return *want == '\0';
}

static int count_switch_links(const struct mcp_node *node)
{
    int count = 0;
    for (int i = 0; i < node->num_gpus; i++)
        count += node->gpus[i].switch_links;
    return count;
}

Test(corpus, nccl)
{
    struct corpus corpus;
    if (!corpus_open(arena, "nccl-topo-xml", &corpus))
        return;
    for (size_t row = 0; row < corpus.index.num_rows; row++) {
        struct mcp_dump dump;
        const char *file = corpus_cell(&corpus, row, "file");
        if (!read_row(&corpus, row, &dump))
            continue;
        const struct mcp_node *node = &dump.node;
        int gpus = mcp_max_int(corpus_int(&corpus, row, "gpu_tags"),
                               corpus_int(&corpus, row, "pci_class_gpu"));
        int nics = mcp_max_int(corpus_int(&corpus, row, "net_tags"),
                               corpus_int(&corpus, row, "pci_class_net"));
        const char *links = corpus_cell(&corpus, row, "nvlink_count_by_tclass");
        nics = mcp_starts_with(file, "13-") ? 1 : nics; /* a <nic> with its name in it */
        cr_expect(eq(int, node->num_gpus, gpus), "%s", file);
        cr_expect(eq(int, node->num_nics, nics), "%s", file);
        cr_expect(eq(int, node->num_numa_nodes, corpus_int(&corpus, row, "cpu_nodes")), "%s", file);
        cr_expect(numas_agree(node, corpus_cell(&corpus, row, "numa_ids")), "%s", file);
        cr_expect(eq(int, node->num_pcie_switches, corpus_int(&corpus, row, "pci_with_children")),
                  "%s", file);
        int want = 0;
        if (mcp_starts_with(links, "0x068000:"))
            want = (int)strtol(links + strlen("0x068000:"), NULL, 10);
        cr_expect(eq(int, count_switch_links(node), want), "%s", file);
    }
}

Test(corpus, single_nccl)
{
    static const struct refusal notes[] = {
        {"01-azure-ndv2-8xv100.xml", "does not tell whether NVLinks join"},
        {"04-azure-ncv4-4xa100-self-nvlink.xml", "NVLinks of a GPU to itself mean nothing"},
        {"07-aws-p5-nics-only.xml", "names no GPU; of 32 PCI devices it does not tell"},
        {"08-aws-g5-bare-busids.xml", "names no GPU; of 9 PCI devices it does not tell"},
        {"13-handmade-gpu-nic-attrs.xml", "NCCL does not know: gpu/@pci, gpu/@nvlink, nic/@pci, "
                                          "nic/@net"},
    };
    struct corpus corpus;
    if (!corpus_open(arena, "nccl-topo-xml", &corpus))
        return;
    for (size_t row = 0; row < corpus.index.num_rows; row++) {
        struct mcp_dump dump;
        struct mcp_error err;
        if (corpus_read(&corpus, row, &dump, &err) != MCP_OK)
            continue;
        const char *file = corpus_cell(&corpus, row, "file");
        for (size_t i = 0; i < MCP_COUNT_OF(notes); i++)
            cr_expect(mcp_same(file, notes[i].file) == false ||
                          (dump.node.notes != NULL && strstr(dump.node.notes, notes[i].says)),
                      "%s: %s", file, dump.node.notes);
        struct range gpus = {0, dump.node.num_gpus};
        int nv18 = count_links(&dump.node, gpus, gpus, MCP_LINK_NVLINK, 18);
        cr_expect(eq(int, nv18, mcp_starts_with(file, "09-") ? 28 : 0), "%s", file);
        if (mcp_starts_with(file, "04-"))
            cr_expect(dump.node.nics[0].bytes_per_s > 12.4e9 &&
                      dump.node.nics[0].bytes_per_s < 12.6e9);
    }
}

/* Damage ------------------------------------------------------------------------------ */

static unsigned draw(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Cut, and with bytes changed: an answer or a refusal, but always one. */
static void damage(const struct corpus *corpus, size_t row)
{
    struct mcp_text text = corpus_text(corpus, row);
    unsigned state = (unsigned)row + 1;
    int times = text.length > 100000 ? 6 : 40;
    for (int i = 0; i < 2 * times && text.length > 0; i++) {
        struct mcp_arena *own = mcp_arena_new();
        struct mcp_error err = {""};
        struct mcp_dump dump;
        size_t length = i < times ? draw(&state) % text.length : text.length;
        char *copy = mcp_strndup(own, text.data, length);
        for (int change = 0; i >= times && change <= i % 4; change++)
            copy[draw(&state) % length] = (char)draw(&state);
        enum mcp_status status = mcp_dump_parse(own, "damaged", copy, length, &dump, &err);
        cr_expect(status == MCP_OK || strlen(err.text) > 20, "%s: %d: '%s'",
                  corpus_cell(corpus, row, "file"), i, err.text);
        if (status == MCP_OK)
            cr_expect(dump.node.num_gpus >= 0 && mcp_node_unknown_links(&dump.node) >= 0);
        mcp_arena_free(own);
    }
}

struct case_folder {
    char name[24];
};
ParameterizedTestParameters(corpus, damaged)
{
    static struct case_folder cases[] = {{"nvidia-smi-topo"}, {"nvidia-smi-L"}, {"nvidia-smi-csv"},
                                         {"nvidia-smi-xml"},  {"hwloc-xml"},    {"nccl-topo-xml"}};
    return cr_make_param_array(struct case_folder, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_folder *c, corpus, damaged)
{
    struct corpus corpus;
    if (!corpus_open(arena, c->name, &corpus))
        return;
    for (size_t row = 0; row < corpus.index.num_rows; row++)
        damage(&corpus, row);
}
