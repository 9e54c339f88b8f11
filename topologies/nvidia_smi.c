/* topologies/nvidia_smi.c: the link matrix of `nvidia-smi topo -m`. */
#include "topologies/nvidia_smi.h"

#include "topologies/nvidia_smi_parts.h"

#include <ctype.h>
#include <string.h>

struct label {
    const char *name;   /* "GPU0", "NIC3", "mlx5_1" */
    const char *device; /* of a NIC, from the legend */
    int gpu_index;      /* -1: a NIC */
    int line;           /* of its row; 0: none seen */
    const char *rest;   /* of that line, behind the links; NULL: cut before */
    struct mcp_smi_affinity affinity;
};

struct matrix {
    struct mcp_arena *arena;
    struct mcp_error *err;
    const char *file;
    int count;
    struct label *labels;
    struct mcp_link *cells;         /* [count, count] as the rows say */
    struct mcp_smi_columns columns; /* of affinity */
    struct mcp_text notes;
};

struct line {
    int number;
    char *text; /* without escapes and carriage returns */
    char *more; /* a further row glued to it; NULL: none */
    bool last;
    bool cut; /* the text ends in it, without a line end */
};

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

/* Markdown's table and quote marks stand for what they separate. */
static char plain(char c)
{
    if (c == '|')
        return '\t';
    if (c == '`' || c == '*' || c == '>')
        c = ' ';
    return c;
}

/* Copies the next line without escapes and control characters; false at the end. */
static bool copy_line(struct mcp_arena *arena, const char **at, const char *end, struct line *line)
{
    struct mcp_text copy = mcp_text_new(arena);
    if (*at >= end)
        return false;
    while (*at < end && **at != '\n') {
        size_t skip = escape_length(*at, end);
        char c = plain(**at);
        if (skip == 0 && (c == '\t' || (unsigned char)c >= ' '))
            mcp_text_append(&copy, &c, 1);
        *at += skip > 0 ? skip : 1;
    }
    line->cut = *at == end;
    *at += *at < end;
    line->last = *at == end;
    line->number++;
    line->text = copy.data;
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

/* The words that begin the columns right of the links. */
static bool ends_labels(const char *word)
{
    return mcp_starts_with(word, "CPU") || mcp_starts_with(word, "NUMA") || mcp_same(word, "GPU") ||
           mcp_same(word, "NIC");
}

/* Length of the link code that `text` begins with, 0: none. */
static size_t code_length(const char *text)
{
    static const char *const codes[] = {"X", "SYS", "NODE", "PIX", "PXB", "PHB", "SOC"};
    if (mcp_starts_with(text, "NV") && isdigit((unsigned char)text[2]))
        return 2 + strspn(text + 2, "0123456789");
    for (size_t i = 0; i < MCP_COUNT_OF(codes); i++)
        if (mcp_starts_with(text, codes[i]))
            return strlen(codes[i]);
    return 0;
}

static bool is_code(const char *word)
{
    size_t length = code_length(word);
    return length > 0 && word[length] == '\0';
}

/* One code, or several that lost the blanks between them; a row has no more. */
static bool is_codes(const char *word)
{
    int count = 0;
    for (size_t length; (length = code_length(word)) > 0 && count <= MCP_NODE_MAX_DEVICES; count++)
        word += length;
    return count > 0 && (*word == ' ' || *word == '\t' || *word == '\0');
}

/* The next cell of a row: a word, or one code of several that lost their blanks. */
static const char *next_cell(struct mcp_arena *arena, const char **rest)
{
    const char *begin = *rest + strspn(*rest, " \t");
    size_t length = code_length(begin);
    if (!is_codes(begin))
        return mcp_smi_next_word(arena, rest);
    *rest = begin + length;
    return mcp_strndup(arena, begin, length);
}

/* Ends the line before a device's name that a code follows: there a row begins. */
static void cut_glued_rows(struct mcp_arena *arena, struct line *line)
{
    const char *rest = line->text;
    const char *word = mcp_smi_next_word(arena, &rest);
    line->more = NULL;
    while (word != NULL) {
        word = mcp_smi_next_word(arena, &rest);
        const char *begin = word == NULL ? NULL : rest - strlen(word);
        const char *next = rest + strspn(rest, " \t");
        if (word == NULL || !is_label(word) || is_codes(word) || code_length(next) == 0 ||
            strpbrk(word, "0123456789") == NULL)
            continue;
        line->more = line->text + (begin - line->text);
        line->more[-1] = '\0'; /* a blank stood there */
        return;
    }
}

static bool next_line(struct mcp_arena *arena, const char **at, const char *end, struct line *line)
{
    if (line->more != NULL)
        line->text = line->more;
    else if (!copy_line(arena, at, end, line))
        return false;
    cut_glued_rows(arena, line);
    return true;
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
    const char *first = mcp_smi_next_word(m->arena, &rest);
    const char *second = mcp_smi_next_word(m->arena, &rest);
    if (first == NULL || gpu_number(first) < 0)
        return false;
    return second == NULL || ends_labels(second) ||
           (is_label(second) && !is_codes(second) && strpbrk(second, "0123456789") != NULL);
}

static enum mcp_status read_header(struct matrix *m, const struct line *line)
{
    const char *rest = line->text;
    const char *word = mcp_smi_next_word(m->arena, &rest);
    if (m->labels == NULL)
        m->labels = MCP_ARRAY(m->arena, MCP_NODE_MAX_DEVICES, struct label);
    m->count = 0;
    m->columns.count = 0;
    for (; word != NULL && !ends_labels(word); word = mcp_smi_next_word(m->arena, &rest)) {
        if (!is_label(word))
            return fail_line(m, line->number, "no device name:", word);
        if (find_label(m, word) >= 0)
            return fail_line(m, line->number, "device named twice:", word);
        if (m->count == MCP_NODE_MAX_DEVICES)
            return fail_line(m, line->number, "more than 512 devices, the last is", word);
        m->labels[m->count++] = (struct label){.name = word, .gpu_index = gpu_number(word)};
    }
    if (word != NULL)
        m->columns = mcp_smi_read_columns(m->arena, rest - strlen(word));
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

/* A word that the end of the text cut: a part of some code. */
static bool is_cut_code(const char *word)
{
    static const char *const codes[] = {"NV", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (mcp_starts_with(codes[i], word) && !mcp_same(codes[i], word))
            return true;
    return false;
}

/* True when the text may end within this word: a part of some code, or, without a line
 * end, a count of NVLinks (the last row of a whole matrix ends with X). */
static bool may_be_cut(const struct line *line, const char *word, const char *rest)
{
    return line->last && line->more == NULL && *rest == '\0' &&
           (is_cut_code(word) || (line->cut && mcp_starts_with(word, "NV")));
}

/* One row; a row that ends early leaves its other cells unknown. */
static enum mcp_status read_row(struct matrix *m, const struct line *line, int row,
                                const char *rest)
{
    m->labels[row].line = line->number;
    if (m->cells == NULL)
        m->cells = MCP_ARRAY(m->arena, (size_t)m->count * (size_t)m->count, struct mcp_link);
    for (int column = 0; column < m->count; column++) {
        struct mcp_link *cell = &m->cells[row * m->count + column];
        const char *word = next_cell(m->arena, &rest);
        bool is_self = word != NULL && mcp_same(word, "X");
        if (word == NULL || may_be_cut(line, word, rest))
            return MCP_OK;
        if (is_self != (row == column) && is_code(word))
            return mcp_fail(m->err, MCP_FORMAT,
                            "%s: line %d: %s-%s is '%.40s', but X stands for self and only there",
                            m->file, line->number, m->labels[row].name, m->labels[column].name,
                            word);
        if (!is_self && !parse_code(word, cell))
            return refuse_cell(m, line, row, column, word);
    }
    m->labels[row].rest = rest;
    return MCP_OK;
}

/* "  NIC0: mlx5_0" below the matrix. */
static bool read_legend(struct matrix *m, const struct line *line)
{
    const char *rest = line->text;
    char *word = mcp_smi_next_word(m->arena, &rest);
    const char *device = mcp_smi_next_word(m->arena, &rest);
    size_t length = word == NULL ? 0 : strlen(word);
    if (length < 2 || word[length - 1] != ':' || device == NULL || !is_label(device))
        return false;
    word[length - 1] = '\0';
    int index = find_label(m, word);
    if (index < 0 || m->labels[index].gpu_index >= 0)
        return false;
    m->labels[index].device = device;
    return true;
}

/* A list of CPUs with all words beside it, to measure glued ones by; NULL: none. */
static const char *whole_list(const struct matrix *m)
{
    for (int i = 0; i < m->count; i++) {
        const struct mcp_smi_affinity *a = &m->labels[i].affinity;
        if (a->cpu != NULL && a->numa != NULL && isdigit((unsigned char)a->numa[0]) &&
            mcp_smi_count_cpus(a->cpu) > 1)
            return a->cpu;
    }
    return NULL;
}

static void read_affinities(struct matrix *m)
{
    for (int i = 0; i < m->count; i++)
        if (m->labels[i].rest != NULL && m->labels[i].gpu_index >= 0)
            m->labels[i].affinity = mcp_smi_read_affinity(m->arena, &m->columns, m->labels[i].rest);
    const char *whole = whole_list(m);
    for (int i = 0; i < m->count && whole != NULL; i++) {
        struct mcp_smi_affinity *a = &m->labels[i].affinity;
        if (a->numa != NULL && a->numa[0] == '\0' && mcp_smi_unglue(m->arena, a, whole))
            mcp_text_add(&m->notes,
                         "%s: line %d: the CPU list and the NUMA node of %s are glued: read as %s "
                         "and %s\n",
                         m->file, m->labels[i].line, m->labels[i].name, a->cpu, a->numa);
    }
}

static enum mcp_status read_matrix(struct matrix *m, const char *text, const char *end)
{
    struct line line = {0};
    struct mcp_mark mark = mcp_arena_mark(m->arena);
    while (m->count == 0 && next_line(m->arena, &text, end, &line)) {
        if (is_header(m, &line))
            MCP_TRY(read_header(m, &line));
        else if (line.more == NULL)
            mcp_arena_rewind(m->arena, mark);
    }
    mark = mcp_arena_mark(m->arena);
    while (next_line(m->arena, &text, end, &line)) {
        const char *rest = line.text;
        const char *word = mcp_smi_next_word(m->arena, &rest);
        int row = word == NULL ? -1 : find_label(m, word);
        if (row >= 0 && m->labels[row].line > 0)
            break; /* another matrix */
        if (row >= 0 && m->cells == NULL && is_header(m, &line))
            MCP_TRY(read_header(m, &line)); /* the first was prose */
        else if (row >= 0)
            MCP_TRY(read_row(m, &line, row, rest));
        else if (!read_legend(m, &line) && line.more == NULL) {
            mcp_arena_rewind(m->arena, mark);
            continue;
        }
        mark = mcp_arena_mark(m->arena);
    }
    read_affinities(m);
    return MCP_OK;
}

static bool contradict(const struct mcp_link *a, const struct mcp_link *b)
{
    return a->kind != MCP_LINK_UNKNOWN && b->kind != MCP_LINK_UNKNOWN &&
           (a->kind != b->kind || a->count != b->count);
}

/* The pairs whose two cells differ, of GPUs or of others; how many in *count. */
static const char *list_contradictions(const struct matrix *m, bool of_gpus, int *count)
{
    struct mcp_text pairs = mcp_text_new(m->arena);
    *count = 0;
    for (int i = 0; i < m->count; i++)
        for (int j = i + 1; j < m->count; j++) {
            const struct label *a = &m->labels[i], *b = &m->labels[j];
            const struct mcp_link *row = &m->cells[i * m->count + j];
            const struct mcp_link *mirror = &m->cells[j * m->count + i];
            if ((a->gpu_index >= 0 && b->gpu_index >= 0) != of_gpus || !contradict(row, mirror) ||
                ++*count > 8)
                continue;
            mcp_text_add(&pairs, "%s%s-%s is %s in line %d but %s in line %d",
                         *count > 1 ? ", " : "", a->name, b->name, mcp_link_name(m->arena, row),
                         a->line, mcp_link_name(m->arena, mirror), b->line);
        }
    return mcp_format(m->arena, "%d pair%s: %s%s", *count, *count == 1 ? "" : "s", pairs.data,
                      *count > 8 ? " ..." : "");
}

/* Contradictions between GPUs are refused: a cluster is made of those links. Of a GPU
 * and a NIC the GPU's row counts. */
static enum mcp_status check_symmetry(struct matrix *m)
{
    int count;
    const char *pairs = list_contradictions(m, true, &count);
    if (count > 0)
        return mcp_fail(m->err, MCP_INVALID, "%s: asymmetric matrix, %s", m->file, pairs);
    pairs = list_contradictions(m, false, &count);
    if (count > 0)
        mcp_text_add(&m->notes, "%s: asymmetric matrix, the first counts, of %s\n", m->file, pairs);
    return MCP_OK;
}

/* Both halves of the matrix into the node's links, devices in the given order. */
static void merge_halves(const struct matrix *m, const int *order, struct mcp_node *node)
{
    for (int i = 0; i < m->count; i++)
        for (int j = i + 1; j < m->count; j++) {
            const struct mcp_link *row = &m->cells[order[i] * m->count + order[j]];
            const struct mcp_link *mirror = &m->cells[order[j] * m->count + order[i]];
            mcp_node_set_link(node, i, j, row->kind != MCP_LINK_UNKNOWN ? *row : *mirror);
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

static void fill_gpu(const struct label *label, struct mcp_node_gpu *gpu)
{
    const struct mcp_smi_affinity *affinity = &label->affinity;
    *gpu = mcp_node_gpu_unknown(label->gpu_index);
    gpu->cpu_affinity = affinity->cpu;
    gpu->numa_affinity = affinity->numa;
    gpu->numa_node = mcp_smi_first_number(affinity->numa);
    gpu->memory_numa_node = mcp_smi_first_number(affinity->gpu_numa);
}

/* GPUs first, in the order of the columns, then NICs. */
static void build_node(const struct matrix *m, struct mcp_node *out)
{
    int *order = MCP_ARRAY(m->arena, m->count, int);
    int num_gpus = 0, gpu = 0;
    for (int i = 0; i < m->count; i++)
        num_gpus += m->labels[i].gpu_index >= 0;
    mcp_node_alloc(m->arena, out, num_gpus, m->count - num_gpus);
    for (int i = 0, nic = 0; i < m->count; i++) {
        const struct label *l = &m->labels[i];
        if (l->gpu_index >= 0)
            fill_gpu(l, &out->gpus[gpu]);
        else
            out->nics[nic] = mcp_node_nic_unknown(l->device != NULL ? l->device : l->name);
        order[l->gpu_index >= 0 ? gpu++ : num_gpus + nic++] = i;
    }
    merge_halves(m, order, out);
    place_nics(out);
}

/* Rows that the header promises and the text lacks. */
static void note_missing_rows(struct matrix *m)
{
    struct mcp_text names = mcp_text_new(m->arena);
    int count = 0;
    for (int i = 0; i < m->count; i++)
        if (m->labels[i].line == 0 && ++count <= 8)
            mcp_text_add(&names, "%s%s", count > 1 ? ", " : "", m->labels[i].name);
    if (count > 0)
        mcp_text_add(&m->notes, "%s: the matrix is cut: no row of %s%s\n", m->file, names.data,
                     count > 8 ? mcp_format(m->arena, " and %d more", count - 8) : "");
}

enum mcp_status mcp_nvidia_smi_topo(struct mcp_arena *arena, const char *name, const char *text,
                                    size_t length, struct mcp_node *out, struct mcp_error *err)
{
    struct matrix m = {.arena = arena, .err = err, .file = name, .notes = mcp_text_new(arena)};
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
    note_missing_rows(&m);
    struct mcp_node node = {0};
    build_node(&m, &node);
    node.notes = m.notes.length > 0 ? m.notes.data : NULL;
    *out = node;
    return MCP_OK;
}
