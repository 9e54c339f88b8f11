/* step/timeline_read.c: timelines as files, read span by span: a large one need never be
 * in memory as JSON. */
#include "step/timeline.h"

#include "core/cluster.h"
#include "core/json.h"

#include <math.h>
#include <string.h>

static const char *const function_names[MCP_NUM_FUNCTIONS] = {
#define NAME(id, name, code, elements, bytes, launches) name,
    MCP_FUNCTIONS(NAME)
#undef NAME
};

enum { SPANS_IN_SCRATCH = 512 };

struct reader {
    struct mcp_arena *arena, *scratch;
    int in_scratch;
    const char *name, *text;
    size_t length, at; /* at: where reading goes on */
    int line;
    struct mcp_timeline *out;
};

/* --- values --- */

/* Seconds, as far as a double holds nanoseconds exactly. */
static enum mcp_status read_ns(struct mcp_json *json, const char *key, int64_t *out,
                               struct mcp_error *err)
{
    const double most_s = 1e6;
    double value;
    MCP_TRY(mcp_json_double(json, key, &value, err));
    if (!(value >= 0 && value <= most_s))
        return mcp_json_fail(json, err, "%s is %g, expected 0 to %g seconds", key, value, most_s);
    *out = (int64_t)llround(value * 1e9);
    return MCP_OK;
}

/* One of `names`, `count` where the key is not there. */
static enum mcp_status read_word(struct mcp_json *json, const char *key, const char *const *names,
                                 int count, unsigned char *out, struct mcp_error *err)
{
    int value = count;
    if (mcp_json_has(json, key))
        MCP_TRY(mcp_json_choice(json, key, names, (size_t)count, &value, err));
    *out = (unsigned char)value;
    return MCP_OK;
}

static enum mcp_status read_index(struct mcp_json *json, const char *key, int *out,
                                  struct mcp_error *err)
{
    *out = -1;
    return mcp_json_has(json, key) ? mcp_json_int(json, key, out, err) : MCP_OK;
}

static enum mcp_status check_rank(const struct mcp_json *json, int rank, struct mcp_error *err)
{
    return rank < MCP_MAX_GPUS ? MCP_OK
                               : mcp_json_fail(json, err, "rank %d is beyond the last possible, %d",
                                               rank, MCP_MAX_GPUS - 1);
}

static enum mcp_status read_span(struct mcp_json *json, struct mcp_timeline_span *span,
                                 struct mcp_error *err)
{
    int stream = 0;
    MCP_TRY(mcp_json_int(json, "rank", &span->rank, err));
    MCP_TRY(check_rank(json, span->rank, err));
    MCP_TRY(mcp_json_choice(json, "stream", mcp_stream_names, MCP_NUM_STREAMS, &stream, err));
    MCP_TRY(mcp_json_int(json, "slot", &span->slot, err));
    MCP_TRY(mcp_json_int(json, "entry", &span->entry, err));
    MCP_TRY(mcp_json_int(json, "op", &span->op, err));
    MCP_TRY(read_ns(json, "start_s", &span->start_ns, err));
    MCP_TRY(read_ns(json, "end_s", &span->end_ns, err));
    MCP_TRY(read_word(json, "function", function_names, MCP_NUM_FUNCTIONS, &span->function, err));
    MCP_TRY(read_word(json, "pass", mcp_block_role_names, MCP_NUM_BLOCK_ROLES, &span->pass, err));
    MCP_TRY(read_index(json, "layer", &span->layer, err));
    MCP_TRY(read_index(json, "microbatch", &span->microbatch, err));
    span->stream = (unsigned char)stream;
    if (span->end_ns < span->start_ns)
        return mcp_json_fail(json, err, "the span ends before it begins, at %.9f and %.9f s",
                             1e-9 * (double)span->end_ns, 1e-9 * (double)span->start_ns);
    return mcp_json_done(json, err);
}

/* --- the header --- */

static enum mcp_status read_equal(struct mcp_arena *arena, struct mcp_json *list,
                                  struct mcp_timeline *out, size_t *capacity, struct mcp_error *err)
{
    int first = -1;
    if (!mcp_json_is_array(list) || mcp_json_count(list) == 0)
        return mcp_json_fail(list, err, "expected a list of ranks");
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        int rank;
        MCP_TRY(mcp_json_as_int(mcp_json_at(list, i), &rank, err));
        MCP_TRY(check_rank(list, rank, err));
        first = i == 0 ? rank : first;
        while (out->num_ranks <= rank) {
            out->like =
                mcp_grow(arena, out->like, (size_t)out->num_ranks, capacity, sizeof *out->like);
            out->like[out->num_ranks++] = -1;
        }
        if (out->like[rank] >= 0)
            return mcp_json_fail(list, err, "rank %d is there twice", rank);
        out->like[rank] = first;
    }
    return MCP_OK;
}

static enum mcp_status read_header(struct reader *reader, struct mcp_json *json,
                                   struct mcp_error *err)
{
    struct mcp_timeline *out = reader->out;
    struct mcp_json *lists;
    const char *schema = "";
    int kind = 0;
    size_t capacity = 0;
    MCP_TRY(mcp_json_string(json, "schema", &schema, err));
    if (!mcp_same(schema, "mcpplan.timeline/1"))
        return mcp_json_fail(json, err, "schema is \"%.60s\", expected \"mcpplan.timeline/1\"",
                             schema);
    MCP_TRY(mcp_json_choice(json, "kind", mcp_timeline_kind_names, 2, &kind, err));
    out->measured = kind == 1;
    if (mcp_json_has(json, "iteration_s"))
        MCP_TRY(read_ns(json, "iteration_s", &out->iteration_ns, err));
    if (mcp_json_has(json, "until_s"))
        MCP_TRY(read_ns(json, "until_s", &out->until_ns, err));
    if (mcp_json_has(json, "equal_ranks")) {
        MCP_TRY(mcp_json_array(json, "equal_ranks", &lists, err));
        for (size_t i = 0; i < mcp_json_count(lists); i++)
            MCP_TRY(read_equal(reader->arena, mcp_json_at(lists, i), out, &capacity, err));
    }
    return MCP_OK;
}

/* --- text cut into objects --- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip_blanks(struct reader *reader)
{
    for (; reader->at < reader->length && is_blank(reader->text[reader->at]); reader->at++)
        reader->line += reader->text[reader->at] == '\n';
}

/* Behind the string that begins at `at`. */
static size_t string_end(const struct reader *reader, size_t at)
{
    for (at++; at < reader->length && reader->text[at] != '"'; at++)
        at += reader->text[at] == '\\';
    return at < reader->length ? at + 1 : reader->length;
}

/* Behind the object that begins at `at`; the text's end where it does not close. */
static size_t object_end(const struct reader *reader, size_t at)
{
    int depth = 0;
    while (at < reader->length) {
        char c = reader->text[at];
        if (c == '"') {
            at = string_end(reader, at);
            continue;
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        at++;
        if (depth <= 0)
            return at;
    }
    return reader->length;
}

static enum mcp_status fail_line(const struct reader *reader, struct mcp_error *err,
                                 const char *problem)
{
    return mcp_fail(err, MCP_FORMAT, "%s: line %d: %s", reader->name, reader->line, problem);
}

/* The span that begins here; goes on behind it. */
static enum mcp_status take_span(struct reader *reader, struct mcp_error *err)
{
    size_t end = object_end(reader, reader->at);
    struct mcp_json *json;
    struct mcp_timeline_span span;
    if (reader->in_scratch++ % SPANS_IN_SCRATCH == 0) {
        mcp_arena_free(reader->scratch);
        reader->scratch = mcp_arena_new();
    }
    const char *name = mcp_format(reader->scratch, "%s: line %d", reader->name, reader->line);
    MCP_TRY(mcp_json_parse(reader->scratch, name, reader->text + reader->at, end - reader->at,
                           &json, err));
    MCP_TRY(read_span(json, &span, err));
    mcp_timeline_add(reader->arena, reader->out, &span);
    for (; reader->at < end; reader->at++)
        reader->line += reader->text[reader->at] == '\n';
    return MCP_OK;
}

/* Objects up to the list's end. */
static enum mcp_status take_list(struct reader *reader, struct mcp_error *err)
{
    for (bool first = true;; first = false) {
        skip_blanks(reader);
        if (reader->at < reader->length && reader->text[reader->at] == ']')
            return MCP_OK;
        if (!first) {
            if (reader->at == reader->length || reader->text[reader->at] != ',')
                return fail_line(reader, err, "expected ',' or ']' after a span");
            reader->at++;
            skip_blanks(reader);
        }
        if (reader->at == reader->length || reader->text[reader->at] != '{')
            return fail_line(reader, err, "expected a span, an object");
        MCP_TRY(take_span(reader, err));
    }
}

/* Is the text at `at` the key "spans" and the '[' of its list? *open: behind that. */
static bool opens_spans(const struct reader *reader, size_t at, size_t *open)
{
    static const char key[] = "\"spans\"";
    if (reader->length - at < sizeof key || memcmp(reader->text + at, key, sizeof key - 1) != 0)
        return false;
    at += sizeof key - 1;
    for (const char *wanted = ":["; *wanted != '\0'; wanted++) {
        while (at < reader->length && is_blank(reader->text[at]))
            at++;
        if (at == reader->length || reader->text[at++] != *wanted)
            return false;
    }
    *open = at;
    return true;
}

/* Behind the '[' of the top object's spans; 0: there are none. */
static size_t find_spans(const struct reader *reader)
{
    int depth = 0;
    size_t open = 0;
    for (size_t at = 0; at < reader->length;) {
        char c = reader->text[at];
        if (c == '"' && depth == 1 && opens_spans(reader, at, &open))
            return open;
        if (c == '"') {
            at = string_end(reader, at);
            continue;
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        at++;
    }
    return 0;
}

/* One object. Its spans are taken first; then what stands around them is read as JSON
 * whose list is empty, with line ends in their place. */
static enum mcp_status read_object(struct reader *reader, size_t open, struct mcp_error *err)
{
    struct mcp_text around = mcp_text_new(reader->arena);
    struct mcp_json *json, *spans;
    mcp_text_append(&around, reader->text, open);
    for (reader->at = 0; reader->at < open; reader->at++)
        reader->line += reader->text[reader->at] == '\n';
    int line = reader->line;
    MCP_TRY(take_list(reader, err));
    for (; line < reader->line; line++)
        mcp_text_add(&around, "\n");
    mcp_text_append(&around, reader->text + reader->at, reader->length - reader->at);
    MCP_TRY(mcp_json_parse(reader->arena, reader->name, around.data, around.length, &json, err));
    MCP_TRY(read_header(reader, json, err));
    MCP_TRY(mcp_json_array(json, "spans", &spans, err));
    return mcp_json_done(json, err);
}

/* The first line is the header, each other a span. */
static enum mcp_status read_lines(struct reader *reader, struct mcp_error *err)
{
    struct mcp_json *json;
    skip_blanks(reader);
    size_t end = object_end(reader, reader->at);
    MCP_TRY(mcp_json_parse(reader->arena, reader->name, reader->text, end, &json, err));
    MCP_TRY(read_header(reader, json, err));
    MCP_TRY(mcp_json_done(json, err));
    for (reader->at = end;;) {
        skip_blanks(reader);
        if (reader->at == reader->length)
            return MCP_OK;
        if (reader->text[reader->at] != '{')
            return fail_line(reader, err, "expected a span, an object");
        MCP_TRY(take_span(reader, err));
    }
}

/* --- order --- */

static bool same_key(const struct mcp_timeline_span *a, const struct mcp_timeline_span *b)
{
    return a->rank == b->rank && a->slot == b->slot && a->entry == b->entry && a->op == b->op;
}

static enum mcp_status settle(struct mcp_timeline *timeline, const char *name,
                              struct mcp_error *err)
{
    mcp_timeline_sort(timeline);
    for (size_t i = 0; i < timeline->num_spans; i++) {
        const struct mcp_timeline_span *span = &timeline->spans[i];
        if (i > 0 && same_key(span - 1, span))
            return mcp_fail(err, MCP_INVALID,
                            "%s: two spans have rank %d, slot %d, entry %d, op %d", name,
                            span->rank, span->slot, span->entry, span->op);
        if (span->rank < timeline->num_ranks && timeline->like[span->rank] >= 0 &&
            timeline->like[span->rank] != span->rank)
            return mcp_fail(err, MCP_INVALID,
                            "%s: rank %d has spans, but equal_ranks says that those of rank %d "
                            "are its own",
                            name, span->rank, timeline->like[span->rank]);
    }
    return MCP_OK;
}

enum mcp_status mcp_timeline_parse(struct mcp_arena *arena, const char *name, const char *text,
                                   size_t length, struct mcp_timeline *out, struct mcp_error *err)
{
    struct reader reader = {.arena = arena,
                            .scratch = mcp_arena_new(),
                            .name = mcp_printable(arena, name),
                            .text = text,
                            .length = length,
                            .line = 1,
                            .out = out};
    *out = (struct mcp_timeline){0};
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        reader.text += 3;
        reader.length -= 3;
    }
    size_t open = find_spans(&reader);
    enum mcp_status status = open > 0 ? read_object(&reader, open, err) : read_lines(&reader, err);
    mcp_arena_free(reader.scratch);
    return status == MCP_OK ? settle(out, reader.name, err) : status;
}

enum mcp_status mcp_timeline_read(struct mcp_arena *arena, const char *path,
                                  struct mcp_timeline *out, struct mcp_error *err)
{
    struct mcp_text text;
    MCP_TRY(mcp_file_read(arena, path, MCP_MAX_FILE_BYTES, &text, err));
    return mcp_timeline_parse(arena, path, text.data, text.length, out, err);
}
