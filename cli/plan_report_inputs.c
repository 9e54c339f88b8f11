/* cli/plan_report_inputs.c: every number that a plan rests on, and where it comes from. */
#include "cli/plan_report.h"

#include "core/preset.h"
#include "core/units.h"

#include <math.h>
#include <string.h>

/* Where numbers come from, by the first words of what their file says of them. */
enum origin { ASKED, STATED, MEASURED, FITTED, ASSUMED, DEFINED, NUM_ORIGINS };
static const char *const origin_names[NUM_ORIGINS] = {"asked",  "stated",  "measured",
                                                      "fitted", "assumed", "by definition"};

struct inputs {
    struct mcp_arena *arena;
    struct mcp_table *table;
    struct mcp_json *sources; /* NULL: `source` stands for all */
    const char *source;
    const char *note;   /* of tiers: says how efficiencies and latencies are known; or NULL */
    enum origin origin; /* where the file says nothing of a number */
    int *counts;        /* [NUM_ORIGINS] */
};

static enum origin origin_of(const char *text, enum origin otherwise)
{
    if (mcp_starts_with(text, "fitted"))
        return FITTED;
    if (mcp_starts_with(text, "measured"))
        return MEASURED;
    if (mcp_starts_with(text, "definition"))
        return DEFINED;
    return mcp_contains_ignoring_case(text, "assum") || mcp_starts_with(text, "no published")
               ? ASSUMED
               : otherwise;
}

/* Of "attention_kernels.flash2.ramp_tokens", or what it is part of. */
static const char *source_of(const struct inputs *inputs, const char *path)
{
    char *key = mcp_strdup(inputs->arena, path);
    const char *text = NULL;
    struct mcp_error ignored;
    while (inputs->sources && !text) {
        if (mcp_json_maybe_string(inputs->sources, key, &text, &ignored) != MCP_OK)
            text = NULL;
        char *dot = strrchr(key, '.');
        if (!dot)
            break;
        *dot = '\0';
    }
    bool noted = mcp_ends_with(path, ".efficiency_frac") || mcp_ends_with(path, ".latency_s");
    return text ? text : noted && inputs->note ? inputs->note : inputs->source;
}

static bool has(const char *path, const char *part)
{
    return strstr(path, part) != NULL;
}

static const char *number_text(struct mcp_arena *arena, const char *path, double value)
{
    if (has(path, "flops_per_s"))
        return mcp_show(arena, value, MCP_FLOPS_PER_SECOND);
    if (has(path, "bytes_per_s"))
        return mcp_show(arena, value, MCP_BYTES_PER_SECOND);
    if (mcp_ends_with(path, "_bytes"))
        return mcp_show(arena, value, MCP_BYTES);
    if (mcp_ends_with(path, "_s") || mcp_ends_with(path, "_s_per_rank"))
        return mcp_show(arena, value, MCP_SECONDS);
    if (mcp_ends_with(path, "_watts"))
        return mcp_show(arena, value, MCP_WATTS);
    if (has(path, "_frac"))
        return mcp_format(arena, "%.4g %%", 100 * value);
    if (value == floor(value) && fabs(value) < 1e15)
        return mcp_show_integer(arena, (int64_t)value);
    return mcp_format(arena, "%.6g", value);
}

static void add_scalar(struct inputs *inputs, const char *path, struct mcp_json *value)
{
    struct mcp_error ignored;
    const char *text = NULL, *source = source_of(inputs, path);
    double number;
    if (mcp_json_as_double(value, &number, &ignored) == MCP_OK)
        text = number_text(inputs->arena, path, number);
    else if (mcp_json_as_string(value, &text, &ignored) != MCP_OK)
        text = mcp_strndup(inputs->arena, mcp_json_text(inputs->arena, value),
                           strcspn(mcp_json_text(inputs->arena, value), "\n"));
    if (mcp_same(text, "null") || *text == '\0')
        return; /* unknown, and not used */
    enum origin origin = origin_of(source, inputs->origin);
    inputs->counts[origin]++;
    mcp_table_cell(inputs->table, "%s", path);
    mcp_table_cell(inputs->table, "%s", text);
    mcp_table_cell(inputs->table, "%s", origin_names[origin]);
    mcp_table_cell(inputs->table, "%s", source);
}

/* What says where numbers come from is no number. */
static bool is_prose(const char *key)
{
    return mcp_same(key, "source") || mcp_same(key, "note") || mcp_same(key, "schema") ||
           mcp_same(key, "num_fitted");
}

/* An element's name, where it has one, else its place. */
static const char *element_name(struct mcp_arena *arena, struct mcp_json *element, size_t index)
{
    struct mcp_error ignored;
    const char *name = NULL;
    if (mcp_json_is_object(element) &&
        mcp_json_maybe_string(element, "name", &name, &ignored) == MCP_OK && name)
        return name;
    return mcp_format(arena, "%zu", index);
}

static void add_value(struct inputs *inputs, const char *path, struct mcp_json *value);

static void add_members(struct inputs *inputs, const char *path, struct mcp_json *object)
{
    for (size_t i = 0; i < mcp_json_count(object); i++) {
        const char *key;
        struct mcp_json *member = mcp_json_member(object, i, &key);
        if (is_prose(key) || (mcp_same(key, "name") && *path != '\0'))
            continue;
        add_value(inputs, *path ? mcp_format(inputs->arena, "%s.%s", path, key) : key, member);
    }
}

static void add_value(struct inputs *inputs, const char *path, struct mcp_json *value)
{
    enum { MOST_ELEMENTS = 16 };
    if (mcp_json_is_object(value)) {
        add_members(inputs, path, value);
        return;
    }
    if (!mcp_json_is_array(value)) {
        add_scalar(inputs, path, value);
        return;
    }
    for (size_t i = 0; i < mcp_json_count(value) && i < MOST_ELEMENTS; i++) {
        struct mcp_json *element = mcp_json_at(value, i);
        add_value(inputs,
                  mcp_format(inputs->arena, "%s.%s", path, element_name(inputs->arena, element, i)),
                  element);
    }
}

static void begin_table(struct inputs *inputs)
{
    static const struct mcp_column columns[] = {{"input", "", MCP_LEFT},
                                                {"value", "", MCP_RIGHT},
                                                {"kind", "", MCP_LEFT},
                                                {"source", "", MCP_LEFT}};
    inputs->table = mcp_table_new(inputs->arena, columns, (int)MCP_COUNT_OF(columns));
}

/* The "sources" of a preset or file; of the stack it is based on where it has none. */
static struct mcp_json *read_sources(struct mcp_arena *arena, const char *folder, const char *name)
{
    struct mcp_json *json, *sources = NULL;
    struct mcp_error ignored;
    if (mcp_preset_read(arena, folder, name, &json, &ignored) != MCP_OK ||
        mcp_json_object(json, "sources", &sources, &ignored) != MCP_OK)
        return NULL;
    return sources;
}

static void add_stack(struct mcp_report *report, struct inputs inputs,
                      const struct mcp_stack *stack, const char *name)
{
    struct mcp_json *json = mcp_json_new_object(report->arena);
    mcp_stack_to_json(stack, json);
    inputs.sources = read_sources(report->arena, "stacks", name);
    inputs.source = stack->source;
    inputs.origin = STATED;
    begin_table(&inputs);
    add_members(&inputs, "", json);
    mcp_report_table(report, MCP_REPORT_MORE,
                     mcp_format(report->arena, "The software: stack %s, %zu values", stack->name,
                                mcp_table_num_rows(inputs.table)),
                     inputs.table);
}

/* The preset's sources, unless the cluster's file says other numbers than the preset. */
static struct mcp_json *gpu_sources(struct mcp_arena *arena, const struct mcp_gpu *gpu)
{
    struct mcp_gpu preset;
    struct mcp_error ignored;
    struct mcp_json *a = mcp_json_new_object(arena), *b = mcp_json_new_object(arena);
    bool known = false;
    for (size_t i = 0; i < mcp_preset_count("gpus"); i++)
        known = known || mcp_same(mcp_preset_at("gpus", i)->name, gpu->name);
    if (!known || mcp_gpu_load(arena, gpu->name, &preset, &ignored) != MCP_OK)
        return NULL;
    mcp_gpu_to_json(gpu, a);
    mcp_gpu_to_json(&preset, b);
    return mcp_same(mcp_json_text(arena, a), mcp_json_text(arena, b))
               ? read_sources(arena, "gpus", gpu->name)
               : NULL;
}

static void add_pool(struct mcp_report *report, struct inputs inputs,
                     const struct mcp_cluster *pool)
{
    struct mcp_arena *arena = report->arena;
    struct mcp_json *json = mcp_json_new_object(arena), *cluster = mcp_json_new_object(arena);
    struct mcp_json *tiers;
    struct mcp_error ignored;
    mcp_gpu_to_json(&pool->gpu, json);
    inputs.sources = gpu_sources(arena, &pool->gpu);
    inputs.source = pool->gpu.source;
    inputs.origin = STATED;
    begin_table(&inputs);
    add_members(&inputs, "", json);
    inputs.sources = NULL;
    inputs.source = pool->source;
    inputs.note = pool->note;
    mcp_cluster_to_json(pool, cluster);
    if (mcp_json_array(cluster, "tiers", &tiers, &ignored) == MCP_OK)
        add_value(&inputs, "tiers", tiers);
    mcp_report_table(report, MCP_REPORT_MORE,
                     mcp_format(arena, "The machines: %s, %zu values", pool->name,
                                mcp_table_num_rows(inputs.table)),
                     inputs.table);
}

static void add_asked(struct mcp_report *report, struct inputs inputs,
                      const struct mcp_question *question)
{
    struct mcp_arena *arena = report->arena;
    struct mcp_json *job = mcp_json_new_object(arena), *model = mcp_json_new_object(arena);
    mcp_job_to_json(question->job, job);
    mcp_model_to_json(question->model, model);
    begin_table(&inputs);
    inputs.source = "the command";
    inputs.origin = ASKED;
    add_members(&inputs, "", job);
    inputs.source = question->model->source ? question->model->source : "the model's file";
    inputs.origin = STATED;
    add_members(&inputs, "", model);
    mcp_report_table(
        report, MCP_REPORT_MORE,
        mcp_format(arena, "The job and the model, %zu values", mcp_table_num_rows(inputs.table)),
        inputs.table);
}

static const char *counts_text(struct mcp_arena *arena, const int counts[NUM_ORIGINS])
{
    struct mcp_text text = mcp_text_new(arena);
    int sum = 0;
    for (int i = 0; i < NUM_ORIGINS; i++)
        sum += counts[i];
    mcp_text_add(&text, "Of the %d inputs below", sum);
    for (int i = 0; i < NUM_ORIGINS; i++)
        if (counts[i] > 0)
            mcp_text_add(&text, ", %d %s %s", counts[i], counts[i] == 1 ? "is" : "are",
                         origin_names[i]);
    mcp_text_add(&text, ".");
    return text.data;
}

static void add_assumptions(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_prediction *p = view->prediction;
    const char *const points[] = {
        mcp_format(arena,
                   "Uncertainty: ± %.1f %% of the iteration, the interval that the stack's file "
                   "states for such models, from its errors on published runs.",
                   100 * p->uncertainty_frac),
        "Computed: parameters, FLOPs, bytes moved and sent, memory buffer by buffer, and the exact "
        "schedule of the pipeline.",
        "Measured: rates of kernels and links in public micro-benchmarks. Fitted: a few physical "
        "numbers, on published training runs. Stated: data sheets and files. None belongs to one "
        "run or one model.",
        "Kernels are priced by roofline with tiles and waves, collectives by the tiers that their "
        "group spans.",
        "Not modelled: stragglers, failures, links shared with others, reading data.",
    };
    for (size_t i = 0; i < MCP_COUNT_OF(points); i++)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN, points[i]);
}

void mcp_plan_report_inputs(struct mcp_report *report, const struct mcp_plan_view *view,
                            const char *stack)
{
    const struct mcp_question *question = view->question;
    int counts[NUM_ORIGINS] = {0};
    struct inputs inputs = {.arena = report->arena, .counts = counts};
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Inputs and assumptions");
    add_assumptions(report, view);
    size_t place = report->num_blocks;
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN, "");
    add_asked(report, inputs, question);
    for (int i = 0; i < mcp_cluster_num_pools(question->cluster); i++)
        add_pool(report, inputs, mcp_cluster_pool(question->cluster, i));
    add_stack(report, inputs, question->stack, stack);
    report->blocks[place].text = counts_text(report->arena, counts);
}
