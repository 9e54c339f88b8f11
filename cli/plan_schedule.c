/* cli/plan_schedule.c: --schedule, and what the schedule that was found gains. */
#include "cli/plan_schedule.h"

#include "cli/output.h"
#include "step/rows.h"
#include "step/schedule.h"
#include "step/schedule_csv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- what is asked --- */

static enum mcp_status read_name(struct mcp_context *ctx, const char *name,
                                 struct mcp_plan_args *args)
{
    for (int s = 0; s < MCP_CUSTOM; s++) {
        if (!mcp_same(name, mcp_schedule_names[s]))
            continue;
        args->schedules |= 1u << s;
        return MCP_OK;
    }
    if (mcp_same(name, mcp_dualpipe_name))
        return mcp_fail(&ctx->err, MCP_USAGE, "--schedule: %s", mcp_dualpipe_sentence);
    const char *nearest = mcp_nearest(name, mcp_schedule_names, MCP_CUSTOM);
    struct mcp_choice all = {-1, mcp_schedule_names, MCP_CUSTOM};
    return mcp_fail(&ctx->err, MCP_USAGE,
                    "--schedule: unknown schedule \"%s\"%s%s; it is auto, FILE.csv, or some of %s",
                    mcp_printable(ctx->arena, name), nearest ? ", did you mean " : "",
                    nearest ? nearest : "", mcp_choice_names(ctx->arena, &all));
}

static enum mcp_status read_names(struct mcp_context *ctx, const char *text,
                                  struct mcp_plan_args *args)
{
    for (;;) {
        size_t length = strcspn(text, ",");
        MCP_TRY(read_name(ctx, mcp_strndup(ctx->arena, text, length), args));
        if (text[length] == '\0')
            return MCP_OK;
        text += length + 1;
    }
}

/* A degree that the file states, against what was pinned. */
static enum mcp_status hold(struct mcp_context *ctx, const struct mcp_plan_args *args,
                            enum mcp_knob knob, int value)
{
    struct mcp_range range = args->degrees[knob];
    if (range.high == 0 || (range.low <= value && value <= range.high))
        return MCP_OK;
    return mcp_fail(&ctx->err, MCP_INVALID, "%s has %s=%d, which the bounds leave out",
                    args->schedule, mcp_knob_names[knob], value);
}

static void note_ignored(struct mcp_context *ctx, const char *path,
                         const struct mcp_schedule_file *file)
{
    struct mcp_text text = mcp_text_new(ctx->arena);
    for (int i = 0; i < MCP_NUM_CSV_ACTIONS; i++)
        if (file->ignored[i] > 0)
            mcp_text_add(&text, "%s%d %s", text.length > 0 ? ", " : "", file->ignored[i],
                         mcp_csv_action_names[i]);
    if (text.length > 0)
        mcp_note("%s: left out %s: a program derives its own communication", path, text.data);
    if (file->num_side_by_side > 0)
        mcp_note("%s: %d pairs of actions side by side are taken one after the other", path,
                 file->num_side_by_side);
}

/* Can the file's rows be played, whatever the plan? What cannot is named by its line. */
static enum mcp_status check_rows(struct mcp_context *ctx, const char *path,
                                  const struct mcp_schedule_file *file)
{
    int row, length = 0;
    const struct mcp_plan plan = {.pipeline_parallel = file->pipeline_parallel,
                                  .virtual_stages = file->virtual_stages,
                                  .schedule = MCP_CUSTOM,
                                  .placement = file->placement,
                                  .rows = file->rows};
    const char *fault = mcp_rows_fault(ctx->arena, &plan, file->num_microbatches);
    if (fault == NULL)
        return MCP_OK;
    if (sscanf(fault, "schedule.rows[%d]: %n", &row, &length) == 1 && length > 0)
        return mcp_fail(&ctx->err, MCP_FORMAT, "%s:%d: %s", path, file->lines[row], fault + length);
    return mcp_fail(&ctx->err, MCP_FORMAT, "%s: %s", path, fault);
}

enum mcp_status mcp_plan_schedule_read(struct mcp_context *ctx, struct mcp_plan_args *args)
{
    const char *text = args->schedule;
    if (text == NULL || mcp_same(text, "auto"))
        return MCP_OK;
    if (!mcp_ends_with(text, ".csv"))
        return read_names(ctx, text, args);
    struct mcp_schedule_file *file = MCP_NEW(ctx->arena, struct mcp_schedule_file);
    MCP_TRY(mcp_schedule_csv_read(ctx->arena, text, file, &ctx->err));
    MCP_TRY(check_rows(ctx, text, file));
    MCP_TRY(hold(ctx, args, MCP_KNOB_PIPELINE, file->pipeline_parallel));
    MCP_TRY(hold(ctx, args, MCP_KNOB_VIRTUAL_STAGES, file->virtual_stages));
    note_ignored(ctx, text, file);
    args->schedule_file = file;
    return MCP_OK;
}

void mcp_plan_schedule_bound(const struct mcp_plan_args *args, struct mcp_plan_space *space)
{
    const struct mcp_schedule_file *file = args->schedule_file;
    bool one = (args->schedules & (args->schedules - 1)) == 0;
    space->schedules = args->schedules;
    for (int s = 0; s < MCP_CUSTOM && one; s++)
        if (args->schedules >> s & 1)
            mcp_space_pin(space, MCP_KNOB_SCHEDULE, s);
    if (file == NULL)
        return;
    mcp_space_pin(space, MCP_KNOB_SCHEDULE, MCP_CUSTOM);
    mcp_space_pin(space, MCP_KNOB_PIPELINE, file->pipeline_parallel);
    mcp_space_pin(space, MCP_KNOB_VIRTUAL_STAGES, file->virtual_stages);
    space->rows = file->rows;
    space->placement = file->placement;
}

void mcp_plan_schedule_note(struct mcp_context *ctx, const struct mcp_plan_args *args,
                            const struct mcp_stack *stack)
{
    struct mcp_text text = mcp_text_new(ctx->arena);
    unsigned others = args->schedules & ~stack->schedules;
    for (int s = 0; s < MCP_CUSTOM; s++)
        if (others >> s & 1)
            mcp_text_add(&text, "%s%s", text.length > 0 ? ", " : "", mcp_schedule_names[s]);
    if (text.length > 0)
        mcp_note("%s does not run %s: planned as if it did", stack->name, text.data);
}

/* --- what was found --- */

void mcp_plan_schedule_polish(struct mcp_arena *arena, const struct mcp_question *question,
                              const struct mcp_requirements *requirements, struct mcp_found *found)
{
    struct mcp_error unused;
    struct mcp_plan plan = found->plan;
    if (!mcp_schedule_is_made(plan.schedule))
        return;
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_pricer *pricer = mcp_pricer_new(scratch, question);
    struct mcp_prediction *prediction = MCP_NEW(scratch, struct mcp_prediction);
    if (mcp_plan_make_rows(arena, pricer, &plan, &unused) == MCP_OK) {
        mcp_estimate(pricer, &plan, prediction);
        bool holds = prediction->fits &&
                     mcp_require_broken_priced(requirements, question, &plan, prediction) == NULL;
        if (holds && prediction->iteration_s < found->iteration_s)
            *found =
                (struct mcp_found){plan, prediction->iteration_s, prediction->peak_memory_bytes};
    }
    mcp_arena_free(scratch);
}

/* The same degrees and recompute in 1F1B. */
static struct mcp_plan as_1f1b(struct mcp_arena *arena, const struct mcp_plan_view *view)
{
    struct mcp_plan plan = view->plan;
    enum mcp_recompute recompute = mcp_uniform_recompute(&plan);
    plan.schedule = MCP_1F1B;
    plan.virtual_stages = 1;
    plan.rows = NULL;
    mcp_plan_uniform_chunks(arena, &plan, view->question->model->num_layers,
                            recompute < MCP_NUM_RECOMPUTES ? recompute : MCP_RECOMPUTE_NONE);
    return plan;
}

unsigned mcp_plan_schedules_looked_at(const struct mcp_plan_view *view)
{
    return view->space != NULL ? mcp_space_schedules(view->space, view->question->stack)
                               : 1u << MCP_1F1B; /* the rule of thumb knows no other */
}

bool mcp_plan_in_1f1b(struct mcp_arena *arena, const struct mcp_plan_view *view,
                      struct mcp_plan_in_1f1b *out)
{
    struct mcp_refusals refusals;
    const struct mcp_plan *plan = &view->plan;
    if (plan->schedule == MCP_1F1B || plan->pipeline_parallel == 1 || !view->priced ||
        mcp_uniform_recompute(plan) == MCP_NUM_RECOMPUTES)
        return false;
    struct mcp_plan other = as_1f1b(arena, view);
    if (!mcp_legal(arena, view->question, &other, &refusals))
        return false;
    struct mcp_prediction *p = MCP_NEW(arena, struct mcp_prediction);
    mcp_estimate(mcp_pricer_new(arena, view->question), &other, p);
    *out = (struct mcp_plan_in_1f1b){p->iteration_s, p->peak_memory_bytes, p->fits};
    return true;
}

const char *mcp_plan_schedule_gain(struct mcp_arena *arena, const struct mcp_plan_view *view)
{
    struct mcp_plan_in_1f1b other;
    if (!mcp_plan_in_1f1b(arena, view, &other))
        return NULL;
    double frac = other.iteration_s / view->prediction->iteration_s - 1;
    int64_t bytes = view->prediction->peak_memory_bytes - other.peak_memory_bytes;
    return mcp_format(arena, "%s instead of 1f1b: %.1f %% %s (%s), %s %s at the peak%s",
                      mcp_schedule_names[view->plan.schedule], fabs(frac) * 100,
                      frac >= 0 ? "faster" : "slower",
                      mcp_show(arena, other.iteration_s, MCP_SECONDS),
                      mcp_plan_gib(arena, bytes < 0 ? -bytes : bytes), bytes < 0 ? "less" : "more",
                      other.fits ? "" : "; 1f1b would not fit");
}

const char *mcp_plan_schedule_proof(struct mcp_arena *arena, const struct mcp_plan_view *view)
{
    struct mcp_text text = mcp_text_new(arena);
    unsigned schedules = mcp_plan_schedules_looked_at(view);
    bool made = false;
    for (int s = 0; s < MCP_NUM_SCHEDULES; s++) {
        bool stands_for = (schedules >> MCP_ZB_V & 1) != 0 && (s == MCP_V_HALF || s == MCP_V_MIN);
        if ((schedules >> s & 1) == 0 || !mcp_schedule_is_even((enum mcp_schedule)s) || stands_for)
            continue;
        mcp_text_add(&text, "%s%s", text.length > 0 ? ", " : "", mcp_schedule_names[s]);
        made = made || mcp_schedule_is_made((enum mcp_schedule)s);
    }
    if (text.length == 0)
        return "";
    return mcp_format(arena, "; %s with layers spread evenly%s", text.data,
                      made ? " and rows as they are made here" : "");
}
