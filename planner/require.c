/* planner/require.c: read requirements, turn them into bounds, judge plans by them. */
#include "planner/require.h"

#include "core/text.h"
#include "core/units.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <string.h>

const char *const mcp_require_names[MCP_NUM_REQUIRE_NAMES] = {
    MCP_KNOB_NAMES,
    [MCP_REQUIRE_NUM_MICROBATCHES] = "num_microbatches",
    [MCP_REQUIRE_RECOMPUTED_STAGES] = "recomputed_stages",
    [MCP_REQUIRE_RECOMPUTED_LAYERS] = "recomputed_layers",
    [MCP_REQUIRE_MOST_LAYERS] = "most_layers",
    [MCP_REQUIRE_ITERATION_S] = "iteration_s",
    [MCP_REQUIRE_PEAK_MEMORY_BYTES] = "peak_memory_bytes",
    [MCP_REQUIRE_PEAK_MEMORY_FRAC] = "peak_memory_frac",
    [MCP_REQUIRE_MFU] = "model_flops_utilization",
    [MCP_REQUIRE_BUBBLE_FRAC] = "bubble_frac",
    [MCP_REQUIRE_EXPOSED_COMM_FRAC] = "exposed_comm_frac",
};

static bool is_knob(enum mcp_require_name name)
{
    return (int)name < MCP_NUM_KNOBS;
}

/* Reading */

struct word {
    const char *const *names;
    int count;
};

/* The words that stand for a knob's values; none where they are numbers. */
static struct word words_of(enum mcp_require_name name)
{
    static const char *const off_on[] = {"off", "on"};
    switch ((int)name) {
    case MCP_KNOB_SEQUENCE_PARALLEL:
    case MCP_KNOB_RESHARD:
        return (struct word){off_on, 2};
    case MCP_KNOB_RANK_ORDER:
        return (struct word){mcp_rank_order_names, MCP_NUM_RANK_ORDERS};
    case MCP_KNOB_CONTEXT_KIND:
        return (struct word){mcp_context_kind_names, MCP_NUM_CONTEXT_KINDS};
    case MCP_KNOB_SCHEDULE:
        return (struct word){mcp_schedule_names, MCP_NUM_SCHEDULES};
    case MCP_KNOB_RECOMPUTE:
        return (struct word){mcp_recompute_names, MCP_NUM_RECOMPUTES};
    default:
        return (struct word){NULL, 0};
    }
}

static const char *join(struct mcp_arena *arena, const char *const *names, int count)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int i = 0; i < count; i++)
        mcp_text_add(&text, "%s%s", i > 0 ? ", " : "", names[i]);
    return text.data;
}

static enum mcp_status read_word(struct mcp_arena *arena, enum mcp_require_name name,
                                 const char *text, double *out, struct mcp_error *err)
{
    struct word words = words_of(name);
    for (int i = 0; i < words.count; i++) {
        if (mcp_same(words.names[i], text)) {
            *out = i;
            return MCP_OK;
        }
    }
    const char *nearest = mcp_nearest(text, words.names, (size_t)words.count);
    return mcp_fail(err, MCP_USAGE, "%s is not \"%s\"; it is one of %s%s%s",
                    mcp_require_names[name], mcp_printable(arena, text),
                    join(arena, words.names, words.count), nearest ? "; did you mean " : "",
                    nearest ? nearest : "");
}

/* "90 %" is 0.9. */
static bool read_percent(struct mcp_arena *arena, const char *text, double *out)
{
    size_t length = strlen(text);
    if (length < 2 || text[length - 1] != '%')
        return false;
    length--;
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    if (!mcp_parse_double(mcp_strndup(arena, text, length), out))
        return false;
    *out /= 100;
    return true;
}

static enum mcp_status read_value(struct mcp_arena *arena, enum mcp_require_name name,
                                  const char *text, double *out, struct mcp_error *err)
{
    struct mcp_error unused;
    int64_t whole;
    if (words_of(name).count > 0)
        return read_word(arena, name, text, out, err);
    bool counts = name < MCP_REQUIRE_ITERATION_S;
    if (counts && mcp_parse_int64(text, &whole) && whole >= 0 && whole <= INT_MAX) {
        *out = (double)whole;
        return MCP_OK;
    }
    if (!counts && mcp_parse_double(text, out) && *out >= 0)
        return MCP_OK;
    if (name == MCP_REQUIRE_ITERATION_S &&
        mcp_quantity_parse(text, MCP_SECONDS, out, &unused) == MCP_OK)
        return MCP_OK;
    if (name == MCP_REQUIRE_PEAK_MEMORY_BYTES &&
        mcp_quantity_parse(text, MCP_BYTES, out, &unused) == MCP_OK)
        return MCP_OK;
    if (name >= MCP_REQUIRE_PEAK_MEMORY_FRAC && read_percent(arena, text, out))
        return MCP_OK;
    return mcp_fail(err, MCP_USAGE, "%s needs %s, not \"%s\"", mcp_require_names[name],
                    counts                                  ? "a whole number"
                    : name == MCP_REQUIRE_ITERATION_S       ? "seconds (12.5, \"800 ms\")"
                    : name == MCP_REQUIRE_PEAK_MEMORY_BYTES ? "bytes (\"60 GiB\")"
                                                            : "a share (0.9, \"90 %\")",
                    mcp_printable(arena, text));
}

/* Where blanks at both ends are gone. */
static const char *trimmed(struct mcp_arena *arena, const char *text, size_t length)
{
    while (length > 0 && isspace((unsigned char)text[0])) {
        text++;
        length--;
    }
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    return mcp_strndup(arena, text, length);
}

static enum mcp_status read_values(struct mcp_arena *arena, const char *text,
                                   struct mcp_requirement *out, struct mcp_error *err)
{
    bool many = out->op == MCP_ONE_OF || out->op == MCP_NONE_OF;
    for (;;) {
        size_t length = many ? strcspn(text, ",") : strlen(text);
        if (out->count == MCP_MOST_VALUES)
            return mcp_fail(err, MCP_USAGE, "%s: at most %d values can be listed",
                            mcp_require_names[out->name], MCP_MOST_VALUES);
        MCP_TRY(read_value(arena, out->name, trimmed(arena, text, length),
                           &out->values[out->count++], err));
        if (text[length] == '\0')
            return MCP_OK;
        text += length + 1;
    }
}

static enum mcp_status read_name(struct mcp_arena *arena, const char *text,
                                 enum mcp_require_name *out, struct mcp_error *err)
{
    for (int i = 0; i < MCP_NUM_REQUIRE_NAMES; i++) {
        if (mcp_same(mcp_require_names[i], text)) {
            *out = (enum mcp_require_name)i;
            return MCP_OK;
        }
    }
    const char *nearest = mcp_nearest(text, mcp_require_names, MCP_NUM_REQUIRE_NAMES);
    if (nearest)
        return mcp_fail(err, MCP_USAGE, "nothing is called \"%s\"; did you mean %s?",
                        mcp_printable(arena, text), nearest);
    return mcp_fail(err, MCP_USAGE, "nothing is called \"%s\"; what can be required is %s",
                    mcp_printable(arena, text),
                    join(arena, mcp_require_names, MCP_NUM_REQUIRE_NAMES));
}

struct op_text {
    const char *text;
    enum mcp_require_op op;
};

/* The operator that `text` begins with, NULL when none. */
static const struct op_text *find_op(const char *text)
{
    static const struct op_text ops[] = {
        {"<=", MCP_AT_MOST}, {">=", MCP_AT_LEAST}, {"!=", MCP_NONE_OF}, {"==", MCP_ONE_OF},
        {"<", MCP_BELOW},    {">", MCP_ABOVE},     {"=", MCP_ONE_OF},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (mcp_starts_with(text, ops[i].text))
            return &ops[i];
    static const struct op_text in = {"in", MCP_ONE_OF};
    return mcp_starts_with(text, "in") && isspace((unsigned char)text[2]) ? &in : NULL;
}

static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Names may be written as options are: with '-'. */
static const char *key_of(struct mcp_arena *arena, const char *text, size_t length)
{
    char *key = mcp_strndup(arena, text, length);
    for (char *c = key; *c; c++)
        if (*c == '-')
            *c = '_';
    return key;
}

enum mcp_status mcp_requirement_parse(struct mcp_arena *arena, const char *text,
                                      struct mcp_requirement *out, struct mcp_error *err)
{
    struct mcp_requirement read = {.text = text};
    const char *at = text + strspn(text, " \t");
    size_t length = 0;
    while (in_name(at[length]))
        length++;
    const char *rest = at + length + strspn(at + length, " \t");
    const struct op_text *op = find_op(rest);
    if (length == 0 || op == NULL)
        return mcp_fail(err, MCP_USAGE,
                        "\"%s\" is no requirement; write NAME<=VALUE, NAME>=VALUE, NAME=VALUE, "
                        "NAME!=VALUE or \"NAME in VALUE,VALUE\"",
                        mcp_printable(arena, text));
    MCP_TRY(read_name(arena, key_of(arena, at, length), &read.name, err));
    read.op = op->op;
    if (words_of(read.name).count > 0 && read.op != MCP_ONE_OF && read.op != MCP_NONE_OF)
        return mcp_fail(err, MCP_USAGE, "%s has no order; use =, != or in, not %s",
                        mcp_require_names[read.name], op->text);
    MCP_TRY(read_values(arena, rest + strlen(op->text), &read, err));
    *out = read;
    return MCP_OK;
}

/* Bounds */

struct hull {
    double low, high;
};

static struct hull hull_of(const struct mcp_requirement *r)
{
    struct hull hull = {0, INT_MAX};
    switch (r->op) {
    case MCP_AT_MOST:
        hull.high = r->values[0];
        break;
    case MCP_BELOW:
        hull.high = r->values[0] - 1;
        break;
    case MCP_AT_LEAST:
        hull.low = r->values[0];
        break;
    case MCP_ABOVE:
        hull.low = r->values[0] + 1;
        break;
    case MCP_ONE_OF:
        hull = (struct hull){r->values[0], r->values[0]};
        for (int i = 1; i < r->count; i++)
            hull = (struct hull){fmin(hull.low, r->values[i]), fmax(hull.high, r->values[i])};
        break;
    case MCP_NONE_OF:
        break;
    }
    return hull;
}

/* The lowest and highest value a knob can have. */
static struct hull range_of(enum mcp_knob knob)
{
    int words = words_of((enum mcp_require_name)knob).count;
    if (words > 0)
        return (struct hull){0, words - 1};
    if (knob == MCP_KNOB_ZERO_STAGE)
        return (struct hull){0, 3};
    return (struct hull){1, INT_MAX};
}

static enum mcp_status narrow(const struct mcp_requirement *r, struct mcp_interval *interval,
                              struct mcp_error *err)
{
    enum mcp_knob knob = (enum mcp_knob)r->name;
    struct hull hull = hull_of(r), range = range_of(knob);
    double low = fmax(hull.low, range.low), high = fmin(hull.high, range.high);
    if (low > high)
        return mcp_fail(err, MCP_INVALID, "%s leaves %s no value; it is %s", r->text,
                        mcp_require_names[r->name], range.high < 4 ? "0 to 3" : "1 at least");
    if (low <= range.low && high >= range.high)
        return MCP_OK;
    if (interval->given) {
        low = fmax(low, interval->low);
        high = fmin(high, interval->high);
    }
    if (low > high)
        return mcp_fail(err, MCP_INVALID, "%s contradicts the bounds %d..%d that %s already has",
                        r->text, interval->low, interval->high, mcp_require_names[r->name]);
    *interval = (struct mcp_interval){true, (int)low, (int)high};
    return MCP_OK;
}

enum mcp_status mcp_require_bound(const struct mcp_requirements *requirements,
                                  struct mcp_plan_space *space, struct mcp_error *err)
{
    for (int i = 0; i < requirements->count; i++) {
        const struct mcp_requirement *r = &requirements->items[i];
        if (is_knob(r->name) && r->op != MCP_NONE_OF)
            MCP_TRY(narrow(r, &space->knobs[r->name], err));
    }
    return MCP_OK;
}

/* Every whole number of the hull is listed. */
static bool contiguous(const struct mcp_requirement *r)
{
    struct hull hull = hull_of(r);
    if (hull.high - hull.low >= MCP_MOST_VALUES)
        return false;
    for (double value = hull.low; value <= hull.high; value++)
        if (!mcp_requirement_holds(r, value))
            return false;
    return true;
}

bool mcp_require_more(const struct mcp_requirements *requirements)
{
    for (int i = 0; i < requirements->count; i++) {
        const struct mcp_requirement *r = &requirements->items[i];
        if (!is_knob(r->name) || r->op == MCP_NONE_OF || (r->op == MCP_ONE_OF && !contiguous(r)))
            return true;
    }
    return false;
}

/* Judging */

static int layers_of_stage(const struct mcp_plan *plan, int stage)
{
    int layers = 0;
    for (int c = 0; c < plan->virtual_stages; c++)
        layers += plan->chunks[mcp_plan_virtual_stage(plan, stage, c)].num_layers;
    return layers;
}

static int recomputed_of_stage(const struct mcp_plan *plan, int stage)
{
    int layers = 0;
    for (int c = 0; c < plan->virtual_stages; c++) {
        const struct mcp_chunk *chunk = &plan->chunks[mcp_plan_virtual_stage(plan, stage, c)];
        for (int i = 0; i < chunk->num_runs; i++)
            if (chunk->runs[i].recompute != MCP_RECOMPUTE_NONE)
                layers += chunk->runs[i].num_layers;
    }
    return layers;
}

/* Of MCP_REQUIRE_RECOMPUTED_STAGES .. MCP_REQUIRE_MOST_LAYERS. */
static double stages_value(enum mcp_require_name name, const struct mcp_plan *plan)
{
    int stages = 0, recomputed = 0, most = 0;
    for (int stage = 0; stage < plan->pipeline_parallel; stage++) {
        int again = recomputed_of_stage(plan, stage), layers = layers_of_stage(plan, stage);
        stages += again > 0;
        recomputed += again;
        most = layers > most ? layers : most;
    }
    return name == MCP_REQUIRE_RECOMPUTED_STAGES   ? stages
           : name == MCP_REQUIRE_RECOMPUTED_LAYERS ? recomputed
                                                   : most;
}

/* As mcp_knob_value(), of a plan that may have no chunks. */
static double knob_value(enum mcp_knob knob, const struct mcp_plan *plan)
{
    struct mcp_recompute_run run = {MCP_RECOMPUTE_NONE, 1};
    struct mcp_chunk one = {0, 1, 1, &run};
    struct mcp_plan whole = *plan;
    if (!whole.chunks) {
        whole.chunks = &one;
        whole.pipeline_parallel = whole.virtual_stages = 1;
    }
    return knob == MCP_KNOB_PIPELINE         ? plan->pipeline_parallel
           : knob == MCP_KNOB_VIRTUAL_STAGES ? plan->virtual_stages
                                             : mcp_knob_value(knob, &whole);
}

/* Of the device of which most is in use, whichever pool it is from. */
static double memory_frac(const struct mcp_question *question, const struct mcp_plan *plan,
                          const struct mcp_prediction *prediction)
{
    double most = 0;
    for (int s = 0; s < plan->pipeline_parallel; s++) {
        int pool = plan->stage_pool != NULL ? plan->stage_pool[s] : 0;
        double all = (double)mcp_cluster_pool(question->cluster, pool)->gpu.memory_bytes;
        most = fmax(most, (double)mcp_memory_total(&prediction->stages[s].memory) / all);
    }
    return most;
}

double mcp_require_value(const struct mcp_question *question, enum mcp_require_name name,
                         const struct mcp_plan *plan, const struct mcp_prediction *prediction)
{
    switch ((int)name) {
    case MCP_REQUIRE_NUM_MICROBATCHES:
        return (double)mcp_num_microbatches(plan, question->job);
    case MCP_REQUIRE_RECOMPUTED_STAGES:
    case MCP_REQUIRE_RECOMPUTED_LAYERS:
    case MCP_REQUIRE_MOST_LAYERS:
        return stages_value(name, plan);
    case MCP_REQUIRE_ITERATION_S:
        return prediction->iteration_s;
    case MCP_REQUIRE_PEAK_MEMORY_BYTES:
        return (double)prediction->peak_memory_bytes;
    case MCP_REQUIRE_PEAK_MEMORY_FRAC:
        return memory_frac(question, plan, prediction);
    case MCP_REQUIRE_MFU:
        return prediction->model_flops_utilization;
    case MCP_REQUIRE_BUBBLE_FRAC:
        return prediction->bubble_frac;
    case MCP_REQUIRE_EXPOSED_COMM_FRAC:
        return prediction->exposed_comm_frac;
    default:
        return knob_value((enum mcp_knob)name, plan);
    }
}

bool mcp_requirement_holds(const struct mcp_requirement *requirement, double value)
{
    bool listed = false;
    for (int i = 0; i < requirement->count; i++)
        listed = listed || requirement->values[i] == value;
    switch (requirement->op) {
    case MCP_AT_MOST:
        return value <= requirement->values[0];
    case MCP_AT_LEAST:
        return value >= requirement->values[0];
    case MCP_BELOW:
        return value < requirement->values[0];
    case MCP_ABOVE:
        return value > requirement->values[0];
    case MCP_ONE_OF:
        return listed;
    case MCP_NONE_OF:
        return !listed;
    }
    return false;
}

/* Every layer's recompute must be one that the requirement allows. */
static bool recompute_holds(const struct mcp_requirement *requirement, const struct mcp_plan *plan)
{
    for (int k = 0; k < plan->pipeline_parallel * plan->virtual_stages; k++)
        for (int i = 0; i < plan->chunks[k].num_runs; i++)
            if (!mcp_requirement_holds(requirement, plan->chunks[k].runs[i].recompute))
                return false;
    return true;
}

/* Known before layers are split. */
static bool is_early(const struct mcp_requirement *r)
{
    return r->name == MCP_REQUIRE_NUM_MICROBATCHES ||
           (is_knob(r->name) && (int)r->name != MCP_KNOB_RECOMPUTE);
}

const struct mcp_requirement *mcp_require_broken(const struct mcp_requirements *requirements,
                                                 const struct mcp_question *question,
                                                 const struct mcp_plan *plan)
{
    for (int i = 0; i < requirements->count; i++) {
        const struct mcp_requirement *r = &requirements->items[i];
        if (is_early(r) &&
            !mcp_requirement_holds(r, mcp_require_value(question, r->name, plan, NULL)))
            return r;
    }
    return NULL;
}

const struct mcp_requirement *mcp_require_broken_family(const struct mcp_requirements *requirements,
                                                        const struct mcp_question *question,
                                                        const struct mcp_plan *plan)
{
    for (int i = 0; i < requirements->count; i++) {
        const struct mcp_requirement *r = &requirements->items[i];
        int knob = (int)r->name;
        bool own =
            knob == MCP_KNOB_ZERO_STAGE || knob == MCP_KNOB_RESHARD || knob == MCP_KNOB_RANK_ORDER;
        if (is_early(r) && !own &&
            !mcp_requirement_holds(r, mcp_require_value(question, r->name, plan, NULL)))
            return r;
    }
    return NULL;
}

const struct mcp_requirement *mcp_require_broken_priced(const struct mcp_requirements *requirements,
                                                        const struct mcp_question *question,
                                                        const struct mcp_plan *plan,
                                                        const struct mcp_prediction *prediction)
{
    for (int i = 0; i < requirements->count; i++) {
        const struct mcp_requirement *r = &requirements->items[i];
        bool holds =
            (int)r->name == MCP_KNOB_RECOMPUTE
                ? recompute_holds(r, plan)
                : mcp_requirement_holds(r, mcp_require_value(question, r->name, plan, prediction));
        if (!holds)
            return r;
    }
    return NULL;
}
