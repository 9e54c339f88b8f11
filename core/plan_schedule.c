/* core/plan_schedule.c: schedules by name, where virtual stages lie, rows as text. */
#include "core/plan_schedule.h"

#include "core/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const mcp_schedule_names[MCP_NUM_SCHEDULES] = {
    [MCP_GPIPE] = "gpipe",   [MCP_1F1B] = "1f1b",   [MCP_INTERLEAVED] = "interleaved",
    [MCP_ZB_H1] = "zb-h1",   [MCP_ZB_H2] = "zb-h2", [MCP_ZB_V] = "zb-v",
    [MCP_V_HALF] = "v-half", [MCP_V_MIN] = "v-min", [MCP_DUALPIPE_V] = "dualpipe-v",
    [MCP_CUSTOM] = "custom",
};
const char mcp_dualpipe_name[] = "dualpipe";
const char mcp_dualpipe_sentence[] =
    "dualpipe holds the weights twice and can be simulated only, by mcpplan sim PLAN --schedule "
    "dualpipe; its half, dualpipe-v, can be planned and trained";
const char *const mcp_placement_names[MCP_NUM_PLACEMENTS] = {
    [MCP_PLACEMENT_LOOP] = "loop",
    [MCP_PLACEMENT_V] = "v",
};
const char mcp_pass_letters[MCP_NUM_PASSES + 1] = "FBIW";

enum mcp_placement mcp_schedule_placement(enum mcp_schedule schedule)
{
    switch (schedule) {
    case MCP_ZB_V:
    case MCP_V_HALF:
    case MCP_V_MIN:
    case MCP_DUALPIPE_V:
        return MCP_PLACEMENT_V;
    default:
        return MCP_PLACEMENT_LOOP;
    }
}

enum mcp_placement mcp_plan_placement(const struct mcp_plan *plan)
{
    return plan->schedule == MCP_CUSTOM ? plan->placement : mcp_schedule_placement(plan->schedule);
}

/* Under V odd chunks run the other way. */
static bool is_mirrored(enum mcp_placement placement, int chunk)
{
    return placement == MCP_PLACEMENT_V && chunk % 2 == 1;
}

int mcp_placed_rank(enum mcp_placement placement, int pipeline_parallel, int virtual_stage)
{
    int chunk = virtual_stage / pipeline_parallel, place = virtual_stage % pipeline_parallel;
    return is_mirrored(placement, chunk) ? pipeline_parallel - 1 - place : place;
}

int mcp_placed_stage(enum mcp_placement placement, int pipeline_parallel, int rank, int chunk)
{
    int place = is_mirrored(placement, chunk) ? pipeline_parallel - 1 - rank : rank;
    return chunk * pipeline_parallel + place;
}

int mcp_plan_rank_of(const struct mcp_plan *plan, int virtual_stage)
{
    return mcp_placed_rank(mcp_plan_placement(plan), plan->pipeline_parallel, virtual_stage);
}

int mcp_plan_chunk_of(const struct mcp_plan *plan, int virtual_stage)
{
    return virtual_stage / plan->pipeline_parallel;
}

int mcp_plan_virtual_stage(const struct mcp_plan *plan, int rank, int chunk)
{
    return mcp_placed_stage(mcp_plan_placement(plan), plan->pipeline_parallel, rank, chunk);
}

bool mcp_plan_is_mirrored(const struct mcp_plan *plan, int virtual_stage)
{
    return is_mirrored(mcp_plan_placement(plan), mcp_plan_chunk_of(plan, virtual_stage));
}

bool mcp_plan_hands_over(const struct mcp_plan *plan, int virtual_stage)
{
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    return virtual_stage + 1 < stages &&
           mcp_plan_rank_of(plan, virtual_stage) == mcp_plan_rank_of(plan, virtual_stage + 1);
}

bool mcp_plan_has_boundary(const struct mcp_plan *plan, int virtual_stage)
{
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    return virtual_stage >= 0 && virtual_stage < stages - 1 &&
           !mcp_plan_hands_over(plan, virtual_stage);
}

bool mcp_plan_ends_meet(const struct mcp_plan *plan)
{
    int last = plan->pipeline_parallel * plan->virtual_stages - 1;
    return mcp_plan_rank_of(plan, last) == mcp_plan_rank_of(plan, 0);
}

static bool has_parts(const struct mcp_schedule_row *row)
{
    for (int i = 0; i < row->num_actions; i++)
        if (row->actions[i].pass > MCP_PASS_BACKWARD)
            return true;
    return false;
}

bool mcp_plan_splits_backward(const struct mcp_plan *plan)
{
    if (plan->rows == NULL)
        return plan->schedule >= MCP_ZB_H1;
    for (int r = 0; r < plan->pipeline_parallel; r++)
        if (has_parts(&plan->rows[r]))
            return true;
    return false;
}

bool mcp_schedule_has_generator(enum mcp_schedule schedule)
{
    return schedule <= MCP_ZB_H2;
}

enum mcp_status mcp_plan_contradicts(const struct mcp_json *json, struct mcp_error *err,
                                     const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    mcp_json_fail(json, err, "%s", text);
    return MCP_INVALID;
}

/* --- rows --- */

/* Digits at *at, which moves behind them; -1: none, or more than an int holds. */
static int read_number(const char **at)
{
    int64_t value = 0;
    const char *start = *at;
    for (; **at >= '0' && **at <= '9' && value <= INT_MAX; (*at)++)
        value = 10 * value + (**at - '0');
    bool padded = *start == '0' && *at - start > 1;
    return *at == start || padded || value > INT_MAX ? -1 : (int)value;
}

struct row_reader {
    const struct mcp_plan *plan;
    const struct mcp_json *json; /* of the row */
    int rank;
    struct mcp_error *err;
};

static enum mcp_status refuse_action(const struct row_reader *reader, int index, const char *text,
                                     const char *why)
{
    int length = (int)strcspn(text, " ");
    return mcp_plan_contradicts(reader->json, reader->err, "action %d \"%.*s\" %s", index,
                                length < 40 ? length : 40, text, why);
}

/* "5F12": virtual stage, letter, microbatch. */
static enum mcp_status read_action(const struct row_reader *reader, const char **at, int index,
                                   struct mcp_action *out)
{
    const struct mcp_plan *plan = reader->plan;
    const char *start = *at;
    int64_t stages = (int64_t)plan->pipeline_parallel * plan->virtual_stages;
    int stage = read_number(at);
    const char *letter = **at == '\0' ? NULL : strchr(mcp_pass_letters, **at);
    *at += letter != NULL;
    int microbatch = letter != NULL ? read_number(at) : -1;
    if (stage < 0 || microbatch < 0 || (**at != '\0' && **at != ' '))
        return refuse_action(reader, index, start,
                             "is not a virtual stage, one of F, B, I, W and a microbatch: 0F12");
    if (stage >= stages || mcp_plan_rank_of(plan, stage) != reader->rank) {
        char why[96];
        snprintf(why, sizeof why, "is of virtual stage %d, which rank %d does not hold", stage,
                 reader->rank);
        return refuse_action(reader, index, start, why);
    }
    *out = (struct mcp_action){mcp_plan_chunk_of(plan, stage), microbatch,
                               (enum mcp_pass)(letter - mcp_pass_letters)};
    return MCP_OK;
}

static enum mcp_status read_row(struct mcp_arena *arena, const struct row_reader *reader,
                                const char *text, struct mcp_schedule_row *out)
{
    int count = text[0] != '\0';
    for (const char *c = text; *c != '\0'; c++)
        count += *c == ' ';
    out->actions = MCP_ARRAY(arena, count, struct mcp_action);
    for (; out->num_actions < count; out->num_actions++) {
        MCP_TRY(read_action(reader, &text, out->num_actions, &out->actions[out->num_actions]));
        text += *text == ' ';
    }
    return MCP_OK;
}

static enum mcp_status read_rows(struct mcp_arena *arena, struct mcp_json *json,
                                 struct mcp_plan *plan, struct mcp_error *err)
{
    struct mcp_json *list;
    if (!mcp_json_has(json, "rows"))
        return MCP_OK;
    MCP_TRY(mcp_json_array(json, "rows", &list, err));
    size_t count = mcp_json_count(list);
    if (count == 0)
        return MCP_OK;
    if (count != (size_t)plan->pipeline_parallel)
        return mcp_plan_contradicts(list, err, "%zu rows where pipeline_parallel=%d", count,
                                    plan->pipeline_parallel);
    struct mcp_schedule_row *rows = MCP_ARRAY(arena, count, struct mcp_schedule_row);
    for (size_t r = 0; r < count; r++) {
        const char *text;
        struct mcp_json *row = mcp_json_at(list, r);
        MCP_TRY(mcp_json_as_string(row, &text, err));
        MCP_TRY(read_row(arena, &(struct row_reader){plan, row, (int)r, err}, text, &rows[r]));
    }
    plan->rows = rows;
    return MCP_OK;
}

/* May be left out where the name implies it. */
static enum mcp_status read_placement(struct mcp_json *json, struct mcp_plan *plan,
                                      struct mcp_error *err)
{
    int placement;
    if (!mcp_json_has(json, "placement"))
        return MCP_OK;
    MCP_TRY(mcp_json_choice(json, "placement", mcp_placement_names, MCP_NUM_PLACEMENTS, &placement,
                            err));
    plan->placement = (enum mcp_placement)placement;
    if (mcp_plan_placement(plan) == plan->placement)
        return MCP_OK;
    return mcp_plan_contradicts(json, err, "placement \"%s\", but schedule %s has \"%s\"",
                                mcp_placement_names[placement], mcp_schedule_names[plan->schedule],
                                mcp_placement_names[mcp_plan_placement(plan)]);
}

enum mcp_status mcp_plan_schedule_from_json(struct mcp_arena *arena, struct mcp_json *file,
                                            struct mcp_plan *plan, struct mcp_error *err)
{
    struct mcp_json *json;
    const char *word;
    int name;
    MCP_TRY(mcp_json_object(file, "schedule", &json, err));
    MCP_TRY(mcp_json_string(json, "name", &word, err));
    if (mcp_same(word, mcp_dualpipe_name))
        return mcp_json_fail(json, err, "%s", mcp_dualpipe_sentence);
    MCP_TRY(mcp_json_choice(json, "name", mcp_schedule_names, MCP_NUM_SCHEDULES, &name, err));
    plan->schedule = (enum mcp_schedule)name;
    MCP_TRY(read_placement(json, plan, err));
    return read_rows(arena, json, plan, err);
}

static void write_row(const struct mcp_plan *plan, int rank, struct mcp_json *rows)
{
    const struct mcp_schedule_row *row = &plan->rows[rank];
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_text text = mcp_text_new(scratch);
    for (int i = 0; i < row->num_actions; i++) {
        const struct mcp_action *a = &row->actions[i];
        mcp_text_add(&text, "%s%d%c%d", i > 0 ? " " : "",
                     mcp_plan_virtual_stage(plan, rank, a->chunk), mcp_pass_letters[a->pass],
                     a->microbatch);
    }
    mcp_json_add_string(rows, text.data);
    mcp_arena_free(scratch);
}

void mcp_plan_schedule_to_json(const struct mcp_plan *plan, struct mcp_json *object)
{
    enum mcp_placement placement = mcp_plan_placement(plan);
    mcp_json_set_string(object, "name", mcp_schedule_names[plan->schedule]);
    if (plan->schedule == MCP_CUSTOM || placement != MCP_PLACEMENT_LOOP)
        mcp_json_set_string(object, "placement", mcp_placement_names[placement]);
    struct mcp_json *rows = mcp_json_set_array(object, "rows");
    for (int r = 0; plan->rows != NULL && r < plan->pipeline_parallel; r++)
        write_row(plan, r, rows);
}
