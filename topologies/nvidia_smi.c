/* topologies/nvidia_smi.c: the link matrix of `nvidia-smi topo -m`. */
#include "topologies/nvidia_smi.h"

#include <ctype.h>
#include <string.h>

enum affinity { AFFINITY_CPU, AFFINITY_NUMA, AFFINITY_OTHER };
#define MAX_AFFINITIES 8

struct label {
    const char *name;   /* "GPU0", "NIC3", "mlx5_1" */
    const char *device; /* of a NIC, from the legend */
    int gpu_index;      /* -1: a NIC */
    int line;           /* of its row; 0: none seen */
    int numa_node;
};

struct matrix {
    struct mcp_arena *arena;
    struct mcp_error *err;
    const char *file;
    int count;
    struct label *labels;
    struct mcp_link *cells; /* [count, count] as the rows say */
    int num_affinities;
    enum affinity affinities[MAX_AFFINITIES];
};

struct line {
    int number;
    char *text; /* without escapes and carriage returns */
    bool last;
};

/* The next blank-separated word of *at, NULL at the end; *at moves on. */
static char *next_word(struct mcp_arena *arena, const char **at)
{
    const char *begin = *at + strspn(*at, " \t");
    size_t length = strcspn(begin, " \t");
    *at = begin + length;
    return length == 0 ? NULL : mcp_strndup(arena, begin, length);
}

/* Length of a terminal escape "ESC [ ... letter" at `text`, else 0. */
static size_t escape_length(const char *text, const char *end)
{
    const char *at = text + 2;
    if (end - text < 2 || text[0] != '\033' || text[1] != '[')
        return 0;
    while (at < end && !isalpha((unsigned char)*at))
        at++;
    return (size_t)(at - text) + (at < end);
}

/* Copies the next line without escapes and control characters; false at the end. */
static bool next_line(struct mcp_arena *arena, const char **at, const char *end, struct line *line)
{
    struct mcp_text copy = mcp_text_new(arena);
    if (*at >= end)
        return false;
    while (*at < end && **at != '\n') {
        size_t skip = escape_length(*at, end);
        if (skip == 0 && (**at == '\t' || (unsigned char)**at >= ' '))
            mcp_text_append(&copy, *at, 1);
        *at += skip > 0 ? skip : 1;
    }
    *at += *at < end;
    line->number++;
    line->text = copy.data;
    line->last = *at >= end;
    return true;
}

/* N of "GPUN", else -1. */
static int gpu_number(const char *word)
{
    int64_t number;
    if (!mcp_starts_with(word, "GPU") || !isdigit((unsigned char)word[3]) ||
        !mcp_parse_int64(word + 3, &number) || number > 9999)
        return -1;
    return (int)number;
}

static bool is_label(const char *word)
{
    if (!isalpha((unsigned char)word[0]) || strlen(word) > 32)
        return false;
    for (const char *c = word; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && *c != '_' && *c != '.' && *c != ':' && *c != '-')
            return false;
    return true;
}

/* The words that begin an affinity column's name. */
static bool ends_labels(const char *word)
{
    return mcp_same(word, "CPU") || mcp_same(word, "NUMA") || mcp_same(word, "GPU") ||
           mcp_same(word, "NIC");
}

static bool is_code(const char *word)
{
    return mcp_same(word, "X") || mcp_same(word, "SYS") || mcp_same(word, "NODE") ||
           (mcp_starts_with(word, "NV") && isdigit((unsigned char)word[2])) ||
           mcp_same(word, "PIX") || mcp_same(word, "PXB") || mcp_same(word, "PHB") ||
           mcp_same(word, "SOC");
}

/* "CPU Affinity  NUMA Affinity  GPU NUMA ID": each begins with a known word. */
static void read_affinities(struct matrix *m, const char *word, const char *rest)
{
    for (; word != NULL && m->num_affinities < MAX_AFFINITIES; word = next_word(m->arena, &rest)) {
        enum affinity kind = AFFINITY_OTHER;
        const char *next = rest;
        const char *second = next_word(m->arena, &next);
        if (!ends_labels(word) || second == NULL)
            continue;
        if (mcp_same(word, "CPU"))
            kind = AFFINITY_CPU;
        else if (mcp_same(word, "NUMA") && mcp_same(second, "Affinity"))
            kind = AFFINITY_NUMA;
        else if (mcp_same(word, "NUMA"))
            continue; /* the second word of "GPU NUMA ID" */
        m->affinities[m->num_affinities++] = kind;
    }
}

static enum mcp_status fail_line(const struct matrix *m, int line, const char *problem,
                                 const char *value)
{
    return mcp_fail(m->err, MCP_FORMAT, "%s: line %d: %s '%.40s'", m->file, line, problem,
                    mcp_printable(m->arena, value));
}

static int find_label(const struct matrix *m, const char *name)
{
    for (int i = 0; i < m->count; i++)
        if (mcp_same(m->labels[i].name, name))
            return i;
    return -1;
}

/* True when the line begins the matrix: GPU0, further labels, affinity names. */
static bool is_header(struct matrix *m, const struct line *line)
{
    const char *rest = line->text;
    const char *first = next_word(m->arena, &rest);
    const char *second = next_word(m->arena, &rest);
    if (first == NULL || gpu_number(first) < 0)
        return false;
    return second == NULL || ends_labels(second) ||
           (is_label(second) && !is_code(second) && strpbrk(second, "0123456789") != NULL);
}

static enum mcp_status read_header(struct matrix *m, const struct line *line)
{
    const char *rest = line->text;
    const char *word = next_word(m->arena, &rest);
    m->labels = MCP_ARRAY(m->arena, MCP_NODE_MAX_DEVICES, struct label);
    for (; word != NULL && !ends_labels(word); word = next_word(m->arena, &rest)) {
        if (!is_label(word))
            return fail_line(m, line->number, "no device name:", word);
        if (find_label(m, word) >= 0)
            return fail_line(m, line->number, "device named twice:", word);
        if (m->count == MCP_NODE_MAX_DEVICES)
            return fail_line(m, line->number, "more than 512 devices, the last is", word);
        m->labels[m->count++] = (struct label){word, NULL, gpu_number(word), 0, -1};
    }
    m->cells = MCP_ARRAY(m->arena, (size_t)m->count * (size_t)m->count, struct mcp_link);
    read_affinities(m, word, rest);
    return MCP_OK;
}

/* False, leaving *out, when the word is no code. */
static bool parse_code(const char *word, struct mcp_link *out)
{
    int64_t count;
    if (mcp_starts_with(word, "NV")) {
        if (!mcp_parse_int64(word + 2, &count) || count < 1 || count > 999)
            return false;
        *out = (struct mcp_link){MCP_LINK_NVLINK, (int)count};
        return true;
    }
    if (mcp_same(word, "SOC")) /* SYS before 2018 */
        word = mcp_link_kind_names[MCP_LINK_SYS];
    for (int kind = MCP_LINK_PIX; kind < MCP_NUM_LINK_KINDS; kind++) {
        if (!mcp_same(word, mcp_link_kind_names[kind]))
            continue;
        *out = (struct mcp_link){(enum mcp_link_kind)kind, 1};
        return true;
    }
    return false;
}

static enum mcp_status refuse_cell(const struct matrix *m, const struct line *line, int row,
                                   int column, const char *word)
{
    static const char *const p2p[] = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "PCNS", "U", "WO"};
    for (size_t i = 0; i < sizeof p2p / sizeof *p2p; i++)
        if (mcp_same(word, p2p[i]))
            return fail_line(
                m, line->number,
                "a peer-to-peer status matrix, not that of `nvidia-smi topo -m`:", word);
    if (isdigit((unsigned char)word[0]))
        return fail_line(m, line->number,
                         "a matrix of numbers, not that of `nvidia-smi topo -m`:", word);
    return mcp_fail(
        m->err, MCP_FORMAT,
        "%s: line %d: %s-%s: '%.40s' is no link code (X, NV#, PIX, PXB, PHB, NODE, SYS)", m->file,
        line->number, m->labels[row].name, m->labels[column].name, mcp_printable(m->arena, word));
}

/* A word that the end of the text cut: a beginning of some code. */
static bool is_cut_code(const char *word)
{
    static const char *const codes[] = {"NV", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (mcp_starts_with(codes[i], word))
            return true;
    return false;
}

/* The first number of "0,3-9"; -1 for "N/A" and nothing. */
static int first_number(const char *word)
{
    int number = 0;
    if (!isdigit((unsigned char)word[0]))
        return -1;
    for (; isdigit((unsigned char)*word) && number < 100000; word++)
        number = number * 10 + (*word - '0');
    return number;
}

static int count_words(struct mcp_arena *arena, const char *text)
{
    int count = 0;
    while (next_word(arena, &text) != NULL)
        count++;
    return count;
}

/* The word under affinity column `index`: by position where every column has a
 * word, else by tab, as a CPU list may be empty. */
static const char *affinity_word(struct matrix *m, const char *rest, int index)
{
    const char *word = NULL;
    if (count_words(m->arena, rest) >= m->num_affinities || strchr(rest, '\t') == NULL) {
        for (int i = 0; i <= index; i++)
            word = next_word(m->arena, &rest);
        return word;
    }
    for (int i = 0; i <= index && rest != NULL; i++) {
        rest = strchr(rest, '\t');
        rest = rest == NULL ? NULL : rest + 1;
    }
    if (rest == NULL)
        return NULL;
    rest = mcp_strndup(m->arena, rest, strcspn(rest, "\t"));
    return next_word(m->arena, &rest);
}

static void read_numa(struct matrix *m, int row, const char *rest)
{
    for (int i = 0; i < m->num_affinities; i++) {
        if (m->affinities[i] != AFFINITY_NUMA)
            continue;
        const char *word = affinity_word(m, rest, i);
        if (word != NULL)
            m->labels[row].numa_node = first_number(word);
    }
}

/* One row; a row that ends early leaves its other cells unknown. */
static enum mcp_status read_row(struct matrix *m, const struct line *line, int row,
                                const char *rest)
{
    m->labels[row].line = line->number;
    for (int column = 0; column < m->count; column++) {
        struct mcp_link *cell = &m->cells[row * m->count + column];
        const char *word = next_word(m->arena, &rest);
        bool is_self = word != NULL && mcp_same(word, "X");
        if (word == NULL)
            return MCP_OK;
        if (is_self != (row == column) && is_code(word))
            return mcp_fail(m->err, MCP_FORMAT,
                            "%s: line %d: %s-%s is '%.40s', but X stands for self and only there",
                            m->file, line->number, m->labels[row].name, m->labels[column].name,
                            word);
        if (is_self || parse_code(word, cell))
            continue;
        if (line->last && *rest == '\0' && is_cut_code(word))
            return MCP_OK;
        return refuse_cell(m, line, row, column, word);
    }
    read_numa(m, row, rest);
    return MCP_OK;
}

/* "  NIC0: mlx5_0" below the matrix. */
static void read_legend(struct matrix *m, const struct line *line)
{
    const char *rest = line->text;
    char *word = next_word(m->arena, &rest);
    const char *device = next_word(m->arena, &rest);
    size_t length = word == NULL ? 0 : strlen(word);
    if (length < 2 || word[length - 1] != ':' || device == NULL || !is_label(device))
        return;
    word[length - 1] = '\0';
    int index = find_label(m, word);
    if (index >= 0 && m->labels[index].gpu_index < 0)
        m->labels[index].device = device;
}

static enum mcp_status read_matrix(struct matrix *m, const char *text, const char *end)
{
    struct line line = {0};
    while (m->count == 0 && next_line(m->arena, &text, end, &line))
        if (is_header(m, &line))
            MCP_TRY(read_header(m, &line));
    while (next_line(m->arena, &text, end, &line)) {
        const char *rest = line.text;
        const char *word = next_word(m->arena, &rest);
        int row = word == NULL ? -1 : find_label(m, word);
        if (row >= 0 && m->labels[row].line > 0)
            break; /* another matrix */
        if (row >= 0)
            MCP_TRY(read_row(m, &line, row, rest));
        else
            read_legend(m, &line);
    }
    return MCP_OK;
}

static const char *show_link(struct mcp_arena *arena, const struct mcp_link *link)
{
    if (link->kind == MCP_LINK_NVLINK)
        return mcp_format(arena, "NV%d", link->count);
    return mcp_link_kind_names[link->kind];
}

static bool contradict(const struct mcp_link *a, const struct mcp_link *b)
{
    return a->kind != MCP_LINK_UNKNOWN && b->kind != MCP_LINK_UNKNOWN &&
           (a->kind != b->kind || a->count != b->count);
}

/* Names the first pairs whose two cells differ. */
static enum mcp_status check_symmetry(const struct matrix *m)
{
    struct mcp_text pairs = mcp_text_new(m->arena);
    int count = 0;
    for (int i = 0; i < m->count; i++)
        for (int j = i + 1; j < m->count; j++) {
            const struct mcp_link *row = &m->cells[i * m->count + j];
            const struct mcp_link *mirror = &m->cells[j * m->count + i];
            if (!contradict(row, mirror) || ++count > 8)
                continue;
            mcp_text_add(&pairs, "%s%s-%s is %s in line %d but %s in line %d",
                         count > 1 ? ", " : "", m->labels[i].name, m->labels[j].name,
                         show_link(m->arena, row), m->labels[i].line, show_link(m->arena, mirror),
                         m->labels[j].line);
        }
    if (count == 0)
        return MCP_OK;
    return mcp_fail(m->err, MCP_INVALID, "%s: asymmetric matrix, %d pair%s: %s%s", m->file, count,
                    count == 1 ? "" : "s", pairs.data, count > 8 ? " ..." : "");
}

/* Both halves of the matrix into `links`, devices in the given order. */
static void merge_halves(const struct matrix *m, const int *order, struct mcp_link *links)
{
    for (int i = 0; i < m->count; i++)
        for (int j = 0; j < m->count; j++) {
            const struct mcp_link *row = &m->cells[order[i] * m->count + order[j]];
            const struct mcp_link *mirror = &m->cells[order[j] * m->count + order[i]];
            links[i * m->count + j] = row->kind != MCP_LINK_UNKNOWN ? *row : *mirror;
        }
}

/* Any link but SYS stays within a NUMA node: a NIC is where such GPUs are, if they
 * agree. */
static void place_nics(struct mcp_node *node)
{
    for (int n = 0; n < node->num_nics; n++) {
        int found = -1;
        bool agree = true;
        for (int g = 0; g < node->num_gpus; g++) {
            enum mcp_link_kind kind = mcp_node_link(node, g, node->num_gpus + n)->kind;
            int numa = node->gpus[g].numa_node;
            if (kind == MCP_LINK_UNKNOWN || kind == MCP_LINK_SYS || numa < 0)
                continue;
            agree = agree && (found < 0 || found == numa);
            found = numa;
        }
        if (node->nics[n].numa_node < 0 && agree)
            node->nics[n].numa_node = found;
    }
}

/* GPUs first, in the order of the columns, then NICs. */
static void build_node(const struct matrix *m, struct mcp_node *out)
{
    int *order = MCP_ARRAY(m->arena, m->count, int);
    int count = 0;
    *out = (struct mcp_node){0};
    out->gpus = MCP_ARRAY(m->arena, m->count, struct mcp_node_gpu);
    out->nics = MCP_ARRAY(m->arena, m->count, struct mcp_node_nic);
    out->links = MCP_ARRAY(m->arena, (size_t)m->count * (size_t)m->count, struct mcp_link);
    for (int i = 0; i < m->count; i++) {
        const struct label *l = &m->labels[i];
        if (l->gpu_index < 0)
            continue;
        out->gpus[out->num_gpus++] = (struct mcp_node_gpu){NULL, l->gpu_index, l->numa_node, 0};
        order[count++] = i;
    }
    for (int i = 0; i < m->count; i++) {
        const struct label *l = &m->labels[i];
        if (l->gpu_index >= 0)
            continue;
        out->nics[out->num_nics++] =
            (struct mcp_node_nic){l->device != NULL ? l->device : l->name, l->numa_node};
        order[count++] = i;
    }
    merge_halves(m, order, out->links);
    place_nics(out);
}

enum mcp_status mcp_nvidia_smi_topo(struct mcp_arena *arena, const char *name, const char *text,
                                    size_t length, struct mcp_node *out, struct mcp_error *err)
{
    struct matrix m = {.arena = arena, .err = err, .file = name};
    MCP_TRY(read_matrix(&m, text, text + length));
    if (m.count == 0) {
        const char *begin = mcp_strndup(arena, text, length < 60 ? length : 60);
        return mcp_fail(err, MCP_FORMAT, "%s: no matrix of `nvidia-smi topo -m`; it begins '%s'",
                        name, mcp_printable(arena, begin));
    }
    int rows = 0;
    for (int i = 0; i < m.count; i++)
        rows += m.labels[i].line > 0;
    if (rows == 0)
        return mcp_fail(err, MCP_FORMAT, "%s: the matrix has a header but no rows", name);
    MCP_TRY(check_symmetry(&m));
    build_node(&m, out);
    return MCP_OK;
}
