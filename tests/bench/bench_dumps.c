/* tests/bench/bench_dumps.c: seconds for machine dumps of 1 MB and of 10 MB of the worst
 * kinds: ten times as long is linear. */
#include "topologies/dump.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct input {
    const char *name;
    const char *begin;
    const char *unit; /* repeated */
    const char *end;
};
static const struct input inputs[] = {
    {"matrix, lines of prose", "\tGPU0\tGPU1\nGPU0\tX\tPIX\n", "a line of no matrix\n", ""},
    {"matrix, one long line", "", "a GPU7 X ", ""},
    {"matrix, short lines", "\tGPU0\tGPU1\nGPU0\tX\tPIX\n", "a\n", ""},
    {"matrix, escapes without end", "", "\033[", ""},
    {"matrix, many headers", "", "GPU0 GPU1\n", ""},
    {"list, MIG devices", "GPU 0: A\n", "MIG 1g Device 0:\n", ""},
    {"list, other lines", "GPU 0: A\n", "x\n", ""},
    {"query, many columns", "name", ",c", "\n"},
    {"query, many rows", "name\n", "A\n", ""},
    {"query, one cell", "name\n", "AAAAAAAAAA", "\n"},
    {"rocm-smi", "=== Link Type between two GPUs ===\n", "GPU0 GPU1\nGPU0 0 XGMI\n", ""},
    {"XML, empty elements", "<system>", "<cpu/>", "</system>"},
    {"XML, text", "<system>", "text &amp; ", "</system>"},
    {"XML, mixed text", "<system>", "text<cpu/>", "</system>"},
    {"XML, levels", "", "<system>", ""},
    {"XML, attributes", "<system ", "a=\"\" ", "/>"},
    {"XML, long attribute", "<system a=\"", "aaaaaaaaaa", "\"/>"},
    {"XML, comments", "<system>", "<!-- -->", "</system>"},
    {"NCCL, GPUs", "<system><cpu>", "<pci busid=\"01:00.0\" class=\"0x0302\"/>", "</cpu></system>"},
    {"NCCL, unknown attributes", "<system><cpu>", "<pci a=\"1\" b=\"2\"/>", "</cpu></system>"},
    {"hwloc, NUMA nodes", "<topology><object type=\"Machine\">",
     "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x1\"/>", "</object></topology>"},
    {"hwloc, packages", "<topology><object type=\"Machine\">",
     "<object type=\"Package\"><object type=\"NUMANode\"/></object>", "</object></topology>"},
    {"hwloc, distances",
     "<topology><object type=\"Machine\"/><distances2 name=\"NVLinkBandwidth\" type=\"PU\">",
     "<indexes>1 2 3 </indexes>", "</distances2></topology>"},
    {"hwloc, a long nodeset", "<topology><object type=\"Machine\" nodeset=\"0x1", ",00000000",
     "\"><object type=\"NUMANode\" os_index=\"0\"/><object type=\"NUMANode\" os_index=\"1\"/>"
     "<object type=\"PCIDev\" pci_type=\"0302 [10de:1]\"/></object></topology>"},
};

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double parse_s(const struct input *input, size_t bytes)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text text = mcp_text_new(arena);
    struct mcp_error err;
    struct mcp_dump dump;
    mcp_text_append(&text, input->begin, strlen(input->begin));
    while (text.length < bytes)
        mcp_text_append(&text, input->unit, strlen(input->unit));
    mcp_text_append(&text, input->end, strlen(input->end));
    double begin_s = now_s();
    (void)mcp_dump_parse(arena, "bench", text.data, text.length, &dump, &err);
    double seconds = now_s() - begin_s;
    mcp_arena_free(arena);
    return seconds;
}

int main(void)
{
    printf("%-30s %9s %9s %7s\n", "dump", "1 MB, ms", "10 MB, ms", "ratio");
    for (size_t i = 0; i < MCP_COUNT_OF(inputs); i++) {
        double small = parse_s(&inputs[i], 1000000), large = parse_s(&inputs[i], 10000000);
        printf("%-30s %9.1f %9.1f %7.1f\n", inputs[i].name, 1e3 * small, 1e3 * large,
               large / small);
    }
    return 0;
}
