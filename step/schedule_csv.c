/* step/schedule_csv.c: schedules in PyTorch's CSV form, read and written. */
#include "step/schedule_csv.h"

#include "core/text.h"
#include "step/pipeline.h"

#include <string.h>

#define MAX_STAGES (MCP_MAX_PIPELINE * 64)
#define MAX_MICROBATCHES (1 << 20)

const char *const mcp_csv_action_names[MCP_NUM_CSV_ACTIONS] = {
    "UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B",
};
/* Those that name no microbatch. */
static bool is_of_stage(enum mcp_csv_action action)
{
    return action <= MCP_CSV_REDUCE_GRAD;
}

struct found { /* a compute action */
    int row, column, stage, microbatch;
    enum mcp_pass pass;
};

struct reader {
    struct mcp_arena *arena;
    struct mcp_error *err;
    const char *name;
    int row, column; /* of the cell, from 0 */
    int line;        /* of the file, from 1: empty ones are no rows */
    int lines[MCP_MAX_PIPELINE];
    const char *cell;
    struct found *found;
    size_t count, capacity;
    struct mcp_schedule_file *out;
};

static enum mcp_status fail(const struct reader *in, const char *why)
{
    return mcp_fail(in->err, MCP_FORMAT, "%s:%d: column %d: \"%.40s\" %s", in->name, in->line,
                    in->column + 1, mcp_printable(in->arena, in->cell), why);
}

/* Digits at *at, which moves behind them; -1: none or too large. */
static int read_number(const char **at, int limit)
{
    int value = 0;
    const char *start = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        value = value < limit ? 10 * value + (**at - '0') : limit;
    return *at == start || value >= limit ? -1 : value;
}

/* Is `word` at *at, not as the beginning of a longer one? Moves behind it. */
static bool read_word(const char **at, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0)
        return false;
    char next = (*at)[length];
    if ((next >= 'A' && next <= 'Z') || next == '_')
        return false;
    *at += length;
    return true;
}

/* Neither kind: false. */
static bool read_type(const char **at, int *pass, int *ignored)
{
    *pass = *ignored = -1;
    for (int i = 0; i < MCP_NUM_CSV_ACTIONS; i++) {
        if (read_word(at, mcp_csv_action_names[i])) {
            *ignored = i;
            return true;
        }
    }
    for (int i = 0; i < MCP_NUM_PASSES; i++) {
        char letter[2] = {0};
        letter[0] = mcp_pass_letters[i];
        if (read_word(at, letter)) {
            *pass = i;
            return true;
        }
    }
    return false;
}

static void keep(struct reader *in, int stage, enum mcp_pass pass, int microbatch)
{
    in->found = mcp_grow(in->arena, in->found, in->count, &in->capacity, sizeof *in->found);
    in->found[in->count++] = (struct found){in->row, in->column, stage, microbatch, pass};
}

static enum mcp_status read_action(struct reader *in, const char **at)
{
    int pass, ignored;
    int stage = read_number(at, MAX_STAGES);
    if (stage < 0)
        return fail(in, "does not begin with a stage");
    if (!read_type(at, &pass, &ignored))
        return fail(in, "is none of F, B, I, W, UNSHARD, RESHARD, REDUCE_GRAD, SEND_F, RECV_F, "
                        "SEND_B, RECV_B");
    bool has_number = **at >= '0' && **at <= '9';
    int microbatch = read_number(at, MAX_MICROBATCHES);
    bool none = ignored >= 0 && is_of_stage((enum mcp_csv_action)ignored);
    if (has_number ? microbatch < 0 : !none)
        return fail(in, "needs a microbatch, as in 0F12");
    if (ignored >= 0)
        in->out->ignored[ignored]++;
    else
        keep(in, stage, (enum mcp_pass)pass, microbatch);
    return MCP_OK;
}

/* "(0F3;7B1)OVERLAP_F_B" from behind the parenthesis. */
static enum mcp_status read_side_by_side(struct reader *in, const char **at)
{
    MCP_TRY(read_action(in, at));
    while (**at == ';') {
        ++*at;
        MCP_TRY(read_action(in, at));
    }
    if (**at != ')')
        return fail(in, "has no closing parenthesis where one is due");
    ++*at;
    if (!read_word(at, "OVERLAP_F_B"))
        return fail(in, "must end with OVERLAP_F_B");
    in->out->num_side_by_side++;
    return MCP_OK;
}

/* The cell without spaces around it. */
static enum mcp_status read_cell(struct reader *in, const char *begin, const char *end)
{
    while (begin < end && *begin == ' ')
        begin++;
    while (end > begin && end[-1] == ' ')
        end--;
    if (begin == end)
        return MCP_OK;
    const char *at = in->cell = mcp_strndup(in->arena, begin, (size_t)(end - begin));
    if (*at == '(') {
        at++;
        MCP_TRY(read_side_by_side(in, &at));
    } else {
        MCP_TRY(read_action(in, &at));
    }
    return *at == '\0' ? MCP_OK : fail(in, "goes on behind the action");
}

/* A rank that computes nothing is no part of a pipeline. */
static enum mcp_status read_line(struct reader *in, const char *at, const char *end)
{
    if (in->row >= MCP_MAX_PIPELINE)
        return mcp_fail(in->err, MCP_FORMAT, "%s:%d: more than %d rows", in->name, in->line,
                        MCP_MAX_PIPELINE);
    size_t before = in->count;
    for (in->column = 0; at <= end; in->column++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        comma = comma ? comma : end;
        MCP_TRY(read_cell(in, at, comma));
        at = comma + 1;
    }
    if (in->count == before)
        return mcp_fail(in->err, MCP_FORMAT, "%s:%d: no action", in->name, in->line);
    in->lines[in->row++] = in->line;
    return MCP_OK;
}

static enum mcp_status read_lines(struct reader *in, const char *at, const char *end)
{
    while (at < end) {
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = feed ? feed : end;
        in->line++;
        if (line_end > at && line_end[-1] == '\r')
            line_end--;
        if (line_end > at)
            MCP_TRY(read_line(in, at, line_end));
        at = feed ? feed + 1 : end;
    }
    return MCP_OK;
}

/* --- where stages lie --- */

static enum mcp_status refuse_place(const struct reader *in, const struct found *action)
{
    const struct mcp_schedule_file *out = in->out;
    int loop = mcp_placed_rank(MCP_PLACEMENT_LOOP, out->pipeline_parallel, action->stage);
    int v = mcp_placed_rank(MCP_PLACEMENT_V, out->pipeline_parallel, action->stage);
    return mcp_fail(in->err, MCP_FORMAT,
                    "%s:%d: column %d: stage %d is on rank %d; of %d ranks rank %d holds it in "
                    "a loop, rank %d there and back",
                    in->name, in->lines[action->row], action->column + 1, action->stage,
                    action->row, out->pipeline_parallel, loop, v);
}

/* The first action that `placement` has on another rank; NULL: none. */
static const struct found *misplaced(const struct reader *in, enum mcp_placement placement)
{
    for (size_t i = 0; i < in->count; i++)
        if (mcp_placed_rank(placement, in->out->pipeline_parallel, in->found[i].stage) !=
            in->found[i].row)
            return &in->found[i];
    return NULL;
}

static enum mcp_status place(struct reader *in)
{
    struct mcp_schedule_file *out = in->out;
    int last = 0;
    for (size_t i = 0; i < in->count; i++) {
        last = in->found[i].stage > last ? in->found[i].stage : last;
        if (in->found[i].microbatch >= out->num_microbatches)
            out->num_microbatches = in->found[i].microbatch + 1;
    }
    out->pipeline_parallel = in->row;
    out->virtual_stages = last / in->row + 1;
    const struct found *loop = misplaced(in, MCP_PLACEMENT_LOOP);
    const struct found *v = misplaced(in, MCP_PLACEMENT_V);
    if (loop && v)
        return refuse_place(in, v > loop ? v : loop);
    out->placement = loop ? MCP_PLACEMENT_V : MCP_PLACEMENT_LOOP;
    return MCP_OK;
}

/* Found actions stand row by row. */
static void fill_rows(struct reader *in)
{
    struct mcp_schedule_file *out = in->out;
    out->rows = MCP_ARRAY(in->arena, out->pipeline_parallel, struct mcp_schedule_row);
    out->lines = MCP_ARRAY(in->arena, out->pipeline_parallel, int);
    memcpy(out->lines, in->lines, (size_t)out->pipeline_parallel * sizeof *out->lines);
    for (size_t i = 0; i < in->count; i++)
        out->rows[in->found[i].row].num_actions++;
    for (int r = 0; r < out->pipeline_parallel; r++) {
        out->rows[r].actions = MCP_ARRAY(in->arena, out->rows[r].num_actions, struct mcp_action);
        out->rows[r].num_actions = 0;
    }
    for (size_t i = 0; i < in->count; i++) {
        const struct found *found = &in->found[i];
        struct mcp_schedule_row *row = &out->rows[found->row];
        row->actions[row->num_actions++] = (struct mcp_action){
            found->stage / out->pipeline_parallel, found->microbatch, found->pass};
    }
}

enum mcp_status mcp_schedule_csv_parse(struct mcp_arena *arena, const char *name, const char *text,
                                       size_t length, struct mcp_schedule_file *out,
                                       struct mcp_error *err)
{
    struct reader in = {.arena = arena, .err = err, .name = name, .out = out};
    *out = (struct mcp_schedule_file){0};
    if (length > MCP_MAX_FILE_BYTES)
        return mcp_fail(err, MCP_FORMAT, "%s: larger than 256 MiB", name);
    if (memchr(text, '\0', length))
        return mcp_fail(err, MCP_FORMAT, "%s: NUL byte", name);
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        length -= 3;
    }
    MCP_TRY(read_lines(&in, text, text + length));
    if (in.count == 0)
        return mcp_fail(err, MCP_FORMAT, "%s: no action, expected one line a rank", name);
    MCP_TRY(place(&in));
    fill_rows(&in);
    return MCP_OK;
}

enum mcp_status mcp_schedule_csv_read(struct mcp_arena *arena, const char *path,
                                      struct mcp_schedule_file *out, struct mcp_error *err)
{
    struct mcp_text text;
    MCP_TRY(mcp_file_read(arena, path, MCP_MAX_FILE_BYTES, &text, err));
    return mcp_schedule_csv_parse(arena, mcp_same(path, "-") ? "standard input" : path, text.data,
                                  text.length, out, err);
}

const char *mcp_schedule_csv_text(struct mcp_arena *arena, enum mcp_placement placement,
                                  int pipeline_parallel, const struct mcp_schedule_row *rows)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int r = 0; r < pipeline_parallel; r++) {
        for (int i = 0; i < rows[r].num_actions; i++) {
            const struct mcp_action *action = &rows[r].actions[i];
            mcp_text_add(&text, "%s%d%c%d", i > 0 ? "," : "",
                         mcp_placed_stage(placement, pipeline_parallel, r, action->chunk),
                         mcp_pass_letters[action->pass], action->microbatch);
        }
        mcp_text_append(&text, "\r\n", 2);
    }
    return text.data;
}
