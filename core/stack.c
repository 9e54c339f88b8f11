/* core/stack.c: stacks/NAME.json <-> struct mcp_stack, by one table of fields. */
#include "core/stack.h"

#include "core/plan.h"
#include "core/preset.h"
#include "core/text.h"

#include <stddef.h>

const char *const mcp_collective_algorithm_names[MCP_NUM_COLLECTIVE_ALGORITHMS] = {
    "ring", "tree", "in-switch", "hierarchical", "fastest"};

enum field_type { REAL, FLAG, SWITCH, COUNT, BYTES, TEXT, ALGORITHM, MODULES, SCHEDULES };

struct field {
    const char *key;
    enum field_type type;
    size_t offset;
    double low, high; /* of reals, inclusive */
};

#define FIELD(type, key, low, high)                                                                \
    {                                                                                              \
#key, type, offsetof(struct mcp_stack, key), low, high                                     \
    }
#define FRAC(key) FIELD(REAL, key, 0, 1)
#define RATE(key) FIELD(REAL, key, 0.01, 2)
#define AMOUNT(key) FIELD(REAL, key, 0, 1e6)
#define OTHER(type, key) FIELD(type, key, 0, 0)

static const struct field fields[] = {
    FIELD(REAL, elementwise_factor, 0.01, 100),
    RATE(matmul_frac),
    AMOUNT(host_launch_s),
    FRAC(graph_launch_frac),
    OTHER(FLAG, cuda_graph),
    AMOUNT(step_overhead_s),
    AMOUNT(fp8_cast_factor),
    RATE(fp8_matmul_frac),
    OTHER(FLAG, fused_casts),
    OTHER(SWITCH, fused_epilogues),
    OTHER(SWITCH, casts_operands),
    FRAC(tensor_overlap_frac),
    FRAC(data_overlap_frac),
    FRAC(pipeline_overlap_frac),
    FRAC(expert_overlap_frac),
    FRAC(regather_exposed_frac),
    RATE(network_frac),
    FIELD(REAL, message_network_frac, 0.01, 10),
    OTHER(ALGORITHM, collective_algorithm),
    OTHER(TEXT, attention),
    OTHER(FLAG, fused_attention_sinks),
    OTHER(FLAG, scatter_gather_pipeline),
    OTHER(FLAG, all_reduce_gradients),
    OTHER(FLAG, deduplicated_dispatch),
    OTHER(FLAG, recompute_whole_layer),
    OTHER(MODULES, selective_modules),
    OTHER(SCHEDULES, schedules),
    AMOUNT(broadcast_s_per_rank),
    OTHER(BYTES, bucket_bytes),
    OTHER(COUNT, moe_launches),
    FIELD(REAL, expert_capacity_factor, 1, 1e6),
    AMOUNT(moe_sync_s),
    OTHER(COUNT, moe_fp8_launches),
    AMOUNT(gradient_bytes),
    AMOUNT(dummy_gradient_bytes),
    AMOUNT(gradient_reduce_bytes),
    AMOUNT(optimizer_bytes),
    FIELD(REAL, activation_memory_factor, 0.01, 100),
    AMOUNT(logits_bytes),
    OTHER(SWITCH, message_copies),
    OTHER(BYTES, reserve_bytes),
    FIELD(REAL, fragmentation_frac, 0, 10),
    FIELD(REAL, uncertainty_frac, 0, 10),
    FIELD(REAL, moe_uncertainty_frac, 0, 10),
};
enum { NUM_FIELDS = sizeof fields / sizeof *fields };

/* Bit i of enum mcp_recompute_module. */
static const char *const module_names[] = {"attention_core", "norm", "activation",
                                           "mla_up",         "mlp",  "alternate_matmuls"};
enum { NUM_MODULES = sizeof module_names / sizeof *module_names };

enum { MAX_BASES = 8 };

static enum mcp_status read_real(struct mcp_json *json, const struct field *field, double *out,
                                 struct mcp_error *err)
{
    MCP_TRY(mcp_json_double(json, field->key, out, err));
    if (*out >= field->low && *out <= field->high)
        return MCP_OK;
    return mcp_json_fail(json, err, "%s=%g is not between %g and %g", field->key, *out, field->low,
                         field->high);
}

/* What a list of names is called, and its names. */
struct words {
    const char *what;
    const char *const *names;
    size_t count;
};
static const struct words modules = {"module", module_names, NUM_MODULES};
static const struct words schedules = {"schedule", mcp_schedule_names, MCP_CUSTOM};

static enum mcp_status read_word(struct mcp_json *item, const struct words *words, unsigned *bits,
                                 struct mcp_error *err)
{
    const char *name;
    MCP_TRY(mcp_json_as_string(item, &name, err));
    for (size_t i = 0; i < words->count; i++) {
        if (mcp_same(name, words->names[i])) {
            *bits |= 1u << i;
            return MCP_OK;
        }
    }
    const char *nearest = mcp_nearest(name, words->names, words->count);
    return mcp_json_fail(item, err, "unknown %s \"%s\", did you mean \"%s\"", words->what, name,
                         nearest ? nearest : words->names[0]);
}

static enum mcp_status read_words(struct mcp_json *json, const char *key, const struct words *words,
                                  unsigned *out, struct mcp_error *err)
{
    struct mcp_json *list;
    MCP_TRY(mcp_json_array(json, key, &list, err));
    *out = 0;
    for (size_t i = 0; i < mcp_json_count(list); i++)
        MCP_TRY(read_word(mcp_json_at(list, i), words, out, err));
    return MCP_OK;
}

static enum mcp_status read_schedules(struct mcp_json *json, const char *key, unsigned *out,
                                      struct mcp_error *err)
{
    MCP_TRY(read_words(json, key, &schedules, out, err));
    return *out != 0 ? MCP_OK : mcp_json_fail(json, err, "%s names none", key);
}

static enum mcp_status read_algorithm(struct mcp_json *json, const char *key,
                                      enum mcp_collective_algorithm *out, struct mcp_error *err)
{
    int index = *out;
    if (mcp_json_has(json, key))
        MCP_TRY(mcp_json_choice(json, key, mcp_collective_algorithm_names,
                                MCP_NUM_COLLECTIVE_ALGORITHMS, &index, err));
    *out = (enum mcp_collective_algorithm)index;
    return MCP_OK;
}

/* A flag that came later: off in files that do not know it. */
static enum mcp_status read_switch(struct mcp_json *json, const char *key, bool *out,
                                   struct mcp_error *err)
{
    return mcp_json_has(json, key) ? mcp_json_bool(json, key, out, err) : MCP_OK;
}

static enum mcp_status read_field(struct mcp_json *json, const struct field *field,
                                  struct mcp_stack *stack, struct mcp_error *err)
{
    void *at = (char *)stack + field->offset;
    switch (field->type) {
    case REAL:
        return read_real(json, field, at, err);
    case FLAG:
        return mcp_json_bool(json, field->key, at, err);
    case SWITCH:
        return read_switch(json, field->key, at, err);
    case COUNT:
        return mcp_json_int(json, field->key, at, err);
    case BYTES:
        return mcp_json_int64(json, field->key, at, err);
    case TEXT:
        return mcp_json_string(json, field->key, at, err);
    case ALGORITHM:
        return read_algorithm(json, field->key, at, err);
    case SCHEDULES:
        return read_schedules(json, field->key, at, err);
    default:
        return read_words(json, field->key, &modules, at, err);
    }
}

static enum mcp_status check_source_key(const struct mcp_json *sources, const char *key,
                                        struct mcp_error *err)
{
    const char *keys[NUM_FIELDS];
    for (size_t i = 0; i < NUM_FIELDS; i++) {
        if (mcp_same(key, fields[i].key))
            return MCP_OK;
        keys[i] = fields[i].key;
    }
    const char *nearest = mcp_nearest(key, keys, NUM_FIELDS);
    return mcp_json_fail(sources, err, "\"%s\" is no value of a stack%s%s", key,
                         nearest ? ", did you mean " : "", nearest ? nearest : "");
}

/* A source must belong to a value of the same file: the base states its own. */
static enum mcp_status read_sources(struct mcp_json *json, struct mcp_stack *stack,
                                    struct mcp_error *err)
{
    if (!mcp_json_has(json, "sources"))
        return MCP_OK;
    struct mcp_json *sources;
    MCP_TRY(mcp_json_object(json, "sources", &sources, err));
    for (size_t i = 0; i < mcp_json_count(sources); i++) {
        const char *key, *sentence;
        struct mcp_json *value = mcp_json_member(sources, i, &key);
        MCP_TRY(check_source_key(sources, key, err));
        if (!mcp_json_has(json, key))
            return mcp_json_fail(sources, err, "%s has a source but no value in this file", key);
        MCP_TRY(mcp_json_as_string(value, &sentence, err));
        stack->num_fitted += mcp_starts_with(sentence, "fitted");
    }
    return MCP_OK;
}

static enum mcp_status stack_read(struct mcp_arena *arena, struct mcp_json *json, int depth,
                                  struct mcp_stack *out, struct mcp_error *err);

static enum mcp_status read_base(struct mcp_arena *arena, struct mcp_json *json, int depth,
                                 struct mcp_stack *out, struct mcp_error *err)
{
    const char *name;
    struct mcp_json *base;
    MCP_TRY(mcp_json_string(json, "based_on", &name, err));
    if (depth == MAX_BASES)
        return mcp_json_fail(json, err, "based_on \"%s\" is the %dth base in a row: a circle?",
                             name, MAX_BASES);
    MCP_TRY(mcp_preset_read(arena, "stacks", name, &base, err));
    MCP_TRY(stack_read(arena, base, depth + 1, out, err));
    return mcp_json_done(base, err);
}

static enum mcp_status read_fields(struct mcp_json *json, bool has_base, struct mcp_stack *stack,
                                   struct mcp_error *err)
{
    for (size_t i = 0; i < NUM_FIELDS; i++)
        if (!has_base || mcp_json_has(json, fields[i].key))
            MCP_TRY(read_field(json, &fields[i], stack, err));
    return MCP_OK;
}

static enum mcp_status read_samples(struct mcp_arena *arena, struct mcp_json *json,
                                    struct mcp_stack *stack, struct mcp_error *err)
{
    if (!mcp_json_has(json, "samples"))
        return MCP_OK;
    struct mcp_calibration *calibration = MCP_NEW(arena, struct mcp_calibration);
    struct mcp_json *list;
    MCP_TRY(mcp_json_array(json, "samples", &list, err));
    stack->calibration = calibration;
    return mcp_calibration_from_json(arena, list, calibration, err);
}

static enum mcp_status stack_read(struct mcp_arena *arena, struct mcp_json *json, int depth,
                                  struct mcp_stack *out, struct mcp_error *err)
{
    struct mcp_stack stack = {0};
    bool has_base = mcp_json_has(json, "based_on");
    if (has_base)
        MCP_TRY(read_base(arena, json, depth, &stack, err));
    const char *note = "";
    stack.source = "";
    stack.num_fitted = 0;
    MCP_TRY(mcp_json_string(json, "name", &stack.name, err));
    MCP_TRY(mcp_json_maybe_string(json, "source", &stack.source, err));
    MCP_TRY(mcp_json_maybe_string(json, "note", &note, err));
    MCP_TRY(read_fields(json, has_base, &stack, err));
    MCP_TRY(mcp_json_maybe_int(json, "num_fitted", &stack.num_fitted, err));
    MCP_TRY(read_sources(json, &stack, err));
    MCP_TRY(read_samples(arena, json, &stack, err));
    *out = stack;
    return MCP_OK;
}

enum mcp_status mcp_stack_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                    struct mcp_stack *out, struct mcp_error *err)
{
    return stack_read(arena, json, 0, out, err);
}

enum mcp_status mcp_stack_load(struct mcp_arena *arena, const char *name_or_path,
                               struct mcp_stack *out, struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_preset_read(arena, "stacks", name_or_path, &json, err));
    MCP_TRY(mcp_stack_from_json(arena, json, out, err));
    return mcp_json_done(json, err);
}

static void write_words(struct mcp_json *object, const char *key, const struct words *words,
                        unsigned bits)
{
    struct mcp_json *list = mcp_json_set_array(object, key);
    for (size_t i = 0; i < words->count; i++)
        if (bits & 1u << i)
            mcp_json_add_string(list, words->names[i]);
}

static void write_field(struct mcp_json *object, const struct field *field,
                        const struct mcp_stack *stack)
{
    const void *at = (const char *)stack + field->offset;
    switch (field->type) {
    case REAL:
        mcp_json_set_double(object, field->key, *(const double *)at);
        break;
    case FLAG:
        mcp_json_set_bool(object, field->key, *(const bool *)at);
        break;
    case SWITCH:
        if (*(const bool *)at)
            mcp_json_set_bool(object, field->key, true);
        break;
    case COUNT:
        mcp_json_set_int(object, field->key, *(const int *)at);
        break;
    case BYTES:
        mcp_json_set_int(object, field->key, *(const int64_t *)at);
        break;
    case TEXT:
        mcp_json_set_string(object, field->key, *(const char *const *)at);
        break;
    case ALGORITHM:
        mcp_json_set_string(
            object, field->key,
            mcp_collective_algorithm_names[*(const enum mcp_collective_algorithm *)at]);
        break;
    case SCHEDULES:
        write_words(object, field->key, &schedules, *(const unsigned *)at);
        break;
    default:
        write_words(object, field->key, &modules, *(const unsigned *)at);
        break;
    }
}

void mcp_stack_to_json(const struct mcp_stack *stack, struct mcp_json *object)
{
    mcp_json_set_string(object, "name", stack->name);
    for (size_t i = 0; i < NUM_FIELDS; i++)
        write_field(object, &fields[i], stack);
    mcp_json_set_string(object, "source", stack->source);
    mcp_json_set_int(object, "num_fitted", stack->num_fitted);
    if (stack->calibration != NULL)
        mcp_calibration_to_json(stack->calibration, mcp_json_set_array(object, "samples"));
}
