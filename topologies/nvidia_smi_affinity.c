/* topologies/nvidia_smi_affinity.c: the columns right of the links in
 * `nvidia-smi topo -m`: CPU Affinity, NUMA Affinity, GPU NUMA ID. */
#include "topologies/nvidia_smi_parts.h"

#include "core/text.h"

#include <ctype.h>
#include <string.h>

#define MOST_CPUS 100000

char *mcp_smi_next_word(struct mcp_arena *arena, const char **at)
{
    const char *begin = *at + strspn(*at, " \t");
    size_t length = strcspn(begin, " \t");
    *at = begin + length;
    return length == 0 ? NULL : mcp_strndup(arena, begin, length);
}

static char *without_blanks(struct mcp_arena *arena, const char *text)
{
    struct mcp_text out = mcp_text_new(arena);
    for (; *text != '\0'; text++)
        if (*text != ' ' && *text != '\t')
            mcp_text_append(&out, text, 1);
    return out.data;
}

/* Headers lose blanks when they are pasted, so they are read without any. */
struct mcp_smi_columns mcp_smi_read_columns(struct mcp_arena *arena, const char *header)
{
    static const char *const names[] = {"CPUAffinity", "NUMAAffinity", "GPUNUMAID", "NICAffinity"};
    struct mcp_smi_columns columns = {0};
    const char *at = without_blanks(arena, header);
    while (columns.count < MCP_SMI_MAX_COLUMNS) {
        size_t kind = 0;
        while (kind < MCP_COUNT_OF(names) && !mcp_starts_with(at, names[kind]))
            kind++;
        if (kind == MCP_COUNT_OF(names))
            break;
        columns.kinds[columns.count++] = (enum mcp_smi_column)kind;
        at += strlen(names[kind]);
    }
    return columns;
}

static int count_words(struct mcp_arena *arena, const char *text)
{
    int count = 0;
    while (mcp_smi_next_word(arena, &text) != NULL)
        count++;
    return count;
}

static const char *word_at(struct mcp_arena *arena, const char *rest, int index)
{
    const char *word = NULL;
    for (int i = 0; i <= index; i++)
        word = mcp_smi_next_word(arena, &rest);
    return word == NULL ? "" : word;
}

static const char *last_word(struct mcp_arena *arena, const char *rest)
{
    return word_at(arena, rest, count_words(arena, rest) - 1);
}

/* The word between tab `index` and the next. */
static const char *tab_cell(struct mcp_arena *arena, const char *rest, int index)
{
    for (int i = 0; i <= index && rest != NULL; i++) {
        rest = strchr(rest, '\t');
        rest = rest == NULL ? NULL : rest + 1;
    }
    if (rest == NULL)
        return "";
    return word_at(arena, mcp_strndup(arena, rest, strcspn(rest, "\t")), 0);
}

/* "0-15" or "0,2": what is no NUMA node's lone number. */
static bool looks_like_cpus(const char *word)
{
    return isdigit((unsigned char)word[0]) && strpbrk(word, "-,") != NULL;
}

static const char *column_word(struct mcp_arena *arena, const struct mcp_smi_columns *columns,
                               const char *rest, int index)
{
    int words = count_words(arena, rest);
    if (words >= columns->count)
        return word_at(arena, rest, index);
    if (strchr(rest, '\t') != NULL) {
        const char *word = tab_cell(arena, rest, index);
        /* nvidia-smi prints two tabs before the last column */
        bool last = columns->kinds[index] == MCP_SMI_GPU_NUMA && word[0] == '\0';
        return last && words > 0 ? last_word(arena, rest) : word;
    }
    if (columns->kinds[index] == MCP_SMI_GPU_NUMA)
        return words > 0 && index > 0 ? last_word(arena, rest) : "";
    bool has_cpus = words > 0 && looks_like_cpus(word_at(arena, rest, 0));
    int place = has_cpus ? index : index - 1;
    bool taken =
        columns->kinds[columns->count - 1] == MCP_SMI_GPU_NUMA && place == words - 1 && words > 1;
    return place < 0 || taken ? "" : word_at(arena, rest, place);
}

struct mcp_smi_affinity mcp_smi_read_affinity(struct mcp_arena *arena,
                                              const struct mcp_smi_columns *columns,
                                              const char *rest)
{
    struct mcp_smi_affinity out = {NULL, NULL, NULL};
    for (int i = 0; i < columns->count; i++) {
        const char *word = column_word(arena, columns, rest, i);
        if (columns->kinds[i] == MCP_SMI_CPU)
            out.cpu = word;
        else if (columns->kinds[i] == MCP_SMI_NUMA)
            out.numa = word;
        else if (columns->kinds[i] == MCP_SMI_GPU_NUMA)
            out.gpu_numa = word;
    }
    return out;
}

int mcp_smi_count_cpus(const char *list)
{
    int count = 0;
    for (const char *at = list;; at++) {
        int first = mcp_smi_read_number(&at), last = first;
        if (*at == '-') {
            at++;
            last = mcp_smi_read_number(&at);
        }
        if (first < 0 || last < first || last > MOST_CPUS || count > MOST_CPUS)
            return -1;
        count += last - first + 1;
        if (*at != ',')
            return *at == '\0' ? count : -1;
    }
}

int mcp_smi_first_number(const char *word)
{
    return word == NULL ? -1 : mcp_smi_read_number(&word);
}

bool mcp_smi_unglue(struct mcp_arena *arena, struct mcp_smi_affinity *affinity, const char *whole)
{
    int want = mcp_smi_count_cpus(whole);
    size_t length = strlen(affinity->cpu);
    for (size_t digits = 1; digits <= 2 && digits < length && want > 0; digits++) {
        const char *cpus = mcp_strndup(arena, affinity->cpu, length - digits);
        if (mcp_smi_count_cpus(cpus) != want)
            continue;
        affinity->numa = mcp_strdup(arena, affinity->cpu + length - digits);
        affinity->cpu = cpus;
        return true;
    }
    return false;
}
