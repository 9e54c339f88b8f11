/* reports/runs_cluster.c: a row's machines: GPU label and link text -> cluster. */
#include "reports/runs_row.h"

#include <ctype.h>
#include <string.h>

/* Parts sold in some countries with slower links and the same chip. */
static const struct {
    const char *label, *chip;
} twins[] = {{"a800", "a100"}, {"h800", "h100"}};

/* The next of the words that '-', ' ' and '_' separate, in lower case; false
 * when none is left. */
static bool next_word(const char **text, char *word, size_t size)
{
    size_t length = 0;
    while (**text != '\0' && strchr("- _", **text) != NULL)
        (*text)++;
    if (**text == '\0')
        return false;
    for (; **text != '\0' && strchr("- _", **text) == NULL; (*text)++)
        if (length + 1 < size)
            word[length++] = (char)tolower((unsigned char)**text);
    word[length] = '\0';
    return true;
}

/* "sxm" and "sxm4" are the same word. */
static bool has_word(const char *text, const char *word)
{
    char other[32];
    while (next_word(&text, other, sizeof other))
        if (mcp_starts_with(other, word) || mcp_starts_with(word, other))
            return true;
    return false;
}

/* Words of `label` that `name` has; 0 unless the first, the chip, is the same. */
static int shared_words(const char *label, const char *name)
{
    char chip[32], word[32];
    int shared = 1;
    if (!next_word(&label, chip, sizeof chip) || !next_word(&name, word, sizeof word))
        return 0;
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        if (mcp_same(chip, twins[i].label))
            strncpy(chip, twins[i].chip, sizeof chip - 1);
    if (!mcp_same(chip, word))
        return 0;
    while (next_word(&label, word, sizeof word))
        shared += has_word(name, word);
    return shared;
}

/* The preset that shares most words with the label; of equals the one with the
 * fastest memory, which is meant where no variant is named. NULL when none is of
 * that chip. */
static const struct mcp_gpu *find_gpu(const struct mcp_run_row *row)
{
    const char *label = mcp_row_cell(row, "gpu");
    const struct mcp_gpu *found = NULL;
    int best = 0;
    for (int i = 0; i < row->runs->num_gpus; i++) {
        const struct mcp_gpu *gpu = &row->runs->gpus[i];
        const int shared = shared_words(label, gpu->name);
        if (shared > best ||
            (found != NULL && shared == best &&
             gpu->memory_bandwidth_bytes_per_s > found->memory_bandwidth_bytes_per_s))
            found = gpu;
        best = shared > best ? shared : best;
    }
    return found;
}

/* The machine built with this GPU, of the stated node size where there is one. */
static enum mcp_status find_platform(struct mcp_run_row *row, const struct mcp_gpu *gpu,
                                     int gpus_per_node, struct mcp_cluster *out,
                                     struct mcp_error *err)
{
    const struct mcp_cluster *found = NULL;
    for (int i = 0; i < row->runs->num_clusters; i++) {
        const struct mcp_cluster *cluster = &row->runs->clusters[i];
        if (!mcp_same(cluster->gpu.name, gpu->name))
            continue;
        if (found == NULL || cluster->gpus_per_node == gpus_per_node)
            found = cluster;
    }
    if (found == NULL)
        return mcp_fail(err, MCP_INVALID, "no topology is built with GPU %s", gpu->name);
    *out = *found;
    out->gpu = *gpu;
    return MCP_OK;
}

/* "RoCE 4x100Gb/s per node", "400 Gb/s RDMA per GPU": bytes per second of one
 * GPU and direction; 0 when the text states no rate. */
static double link_rate(const char *text, int gpus_per_node)
{
    const char *unit = strstr(text, "Gb/s");
    int gigabits, ports = 1;
    if (unit == NULL || !mcp_number_before(text, "Gb/s", &gigabits))
        return 0;
    const char *digit = unit;
    while (digit > text && (digit[-1] == ' ' || isdigit((unsigned char)digit[-1])))
        digit--;
    if (digit > text && digit[-1] == 'x')
        (void)mcp_number_before(text, "x", &ports);
    const double node = 1e9 / 8 * gigabits * ports;
    return strstr(text, "per GPU") != NULL ? node : node / gpus_per_node;
}

enum mcp_status mcp_run_read_cluster(struct mcp_run_row *row, struct mcp_cluster *out,
                                     struct mcp_error *err)
{
    const struct mcp_gpu *gpu = find_gpu(row);
    int gpus, gpus_per_node;
    MCP_TRY(mcp_row_need(row, "gpus", &gpus, err));
    if (gpu == NULL)
        return mcp_fail(err, MCP_INVALID, "no GPU file describes a \"%.40s\"",
                        mcp_row_cell(row, "gpu"));
    MCP_TRY(mcp_row_int(row, "gpus_per_node", 8, &gpus_per_node, err));
    if (gpus_per_node < 1)
        return mcp_fail(err, MCP_INVALID, "gpus_per_node=0");
    MCP_TRY(find_platform(row, gpu, gpus_per_node, out, err));
    MCP_TRY(mcp_cluster_set_gpus(out, gpus, err));
    const double rate = link_rate(mcp_row_cell(row, "inter_node_link"), gpus_per_node);
    struct mcp_tier *network = &out->tiers[out->num_tiers - 1];
    if (rate > 0 && out->num_tiers > 1)
        network->bandwidth_bytes_per_s = rate;
    else if (gpus > out->gpus_per_node)
        mcp_row_note(row, "network as in %s", out->name);
    return mcp_cluster_check(out, err);
}
