/* core/model.c: the model file: load and save, and kinds of layers. */
#include "core/model.h"
#include "core/model_fields.h"
#include "core/model_hf.h"
#include "core/model_megatron.h"
#include "core/preset.h"
#include "core/text.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define MODEL_SCHEMA "mcpplan.model/1"
#define MAX_FILE_BYTES ((size_t)64 << 20)

const char *const mcp_attention_names[MCP_NUM_ATTENTIONS] = {
    "grouped", "latent", "gated_delta", "lightning", "mamba", "mamba2", "none"};
const char *const mcp_mlp_names[MCP_NUM_MLPS] = {"dense", "experts", "none"};
static const char *const norm_names[MCP_NUM_NORMS] = {"rmsnorm", "layernorm", "layernorm_no_bias",
                                                      "no_weight"};
static const char *const position_names[] = {"rotary", "learned", "alibi", "none"};

/* Kinds ------------------------------------------------------------------- */

bool mcp_layer_kind_equal(const struct mcp_layer_kind *a, const struct mcp_layer_kind *b)
{
    if (a->attention != b->attention || a->mlp != b->mlp)
        return false;
    for (size_t i = 0; i < MCP_COUNT_OF(mcp_kind_fields); i++) {
        const struct mcp_model_field *field = &mcp_kind_fields[i];
        if (field->is_bool ? mcp_field_bool(a, field) != mcp_field_bool(b, field)
                           : mcp_field_int(a, field) != mcp_field_int(b, field))
            return false;
    }
    return true;
}

int mcp_model_add_kind(struct mcp_model *model, const struct mcp_layer_kind *kind)
{
    for (int i = 0; i < model->num_kinds; i++)
        if (mcp_layer_kind_equal(&model->kinds[i], kind))
            return i;
    if (model->num_kinds == MCP_MAX_LAYER_KINDS)
        return -1;
    model->kinds[model->num_kinds] = *kind;
    return model->num_kinds++;
}

const struct mcp_layer_kind *mcp_model_layer(const struct mcp_model *model, int layer)
{
    return &model->kinds[model->layer_kind[layer]];
}

bool mcp_model_has_experts(const struct mcp_model *model)
{
    for (int i = 0; i < model->num_kinds; i++)
        if (model->kinds[i].mlp == MCP_MLP_EXPERTS)
            return true;
    return false;
}

/* Reading our own format -------------------------------------------------- */

static enum mcp_status read_fields(struct mcp_json *json, const struct mcp_model_field *fields,
                                   size_t count, void *object, struct mcp_error *err)
{
    for (size_t i = 0; i < count; i++) {
        void *value = (char *)object + fields[i].offset;
        if (fields[i].is_bool)
            MCP_TRY(mcp_json_maybe_bool(json, fields[i].key, value, err));
        else
            MCP_TRY(mcp_json_maybe_int(json, fields[i].key, value, err));
    }
    return MCP_OK;
}

static enum mcp_status maybe_choice(struct mcp_json *json, const char *key,
                                    const char *const *names, size_t count, int *out,
                                    struct mcp_error *err)
{
    return mcp_json_has(json, key) ? mcp_json_choice(json, key, names, count, out, err) : MCP_OK;
}

/* The multiple of `unit` at or below `value`, at least one `unit`. */
static int multiple_below(int value, int unit)
{
    return value < unit ? unit : value - value % unit;
}

/* head_dim = hidden_size / num_attention_heads where it is not given. */
static enum mcp_status default_head_dim(const struct mcp_json *json, int hidden_size,
                                        struct mcp_layer_kind *kind, struct mcp_error *err)
{
    const int heads = kind->num_attention_heads;
    if (heads < 1 || hidden_size % heads != 0)
        return mcp_json_fail(json, err,
                             "num_attention_heads=%d does not divide hidden_size=%d and head_dim "
                             "is not given; the nearest hidden_size is %d",
                             heads, hidden_size,
                             multiple_below(hidden_size, heads < 1 ? 1 : heads));
    kind->head_dim = hidden_size / heads;
    return MCP_OK;
}

static enum mcp_status read_heads(struct mcp_json *json, const struct mcp_model *model,
                                  struct mcp_layer_kind *kind, struct mcp_error *err)
{
    MCP_TRY(mcp_json_int(json, "num_attention_heads", &kind->num_attention_heads, err));
    if (mcp_has_softmax(kind))
        kind->num_kv_heads = kind->num_attention_heads;
    MCP_TRY(read_fields(json, mcp_kind_fields, MCP_COUNT_OF(mcp_kind_fields), kind, err));
    if (!mcp_json_has(json, "head_dim") && mcp_has_softmax(kind))
        MCP_TRY(default_head_dim(json, model->hidden_size, kind, err));
    if (!mcp_json_has(json, "value_head_dim"))
        kind->value_head_dim = kind->head_dim;
    return MCP_OK;
}

static enum mcp_status read_kind(struct mcp_json *json, const struct mcp_model *model,
                                 struct mcp_layer_kind *kind, struct mcp_error *err)
{
    int attention = MCP_ATTENTION_GROUPED, mlp = MCP_MLP_DENSE;
    MCP_TRY(
        maybe_choice(json, "attention", mcp_attention_names, MCP_NUM_ATTENTIONS, &attention, err));
    MCP_TRY(maybe_choice(json, "mlp", mcp_mlp_names, MCP_NUM_MLPS, &mlp, err));
    *kind = (struct mcp_layer_kind){.attention = (enum mcp_attention_kind)attention,
                                    .mlp = (enum mcp_mlp_kind)mlp};
    if (kind->attention == MCP_ATTENTION_NONE)
        return read_fields(json, mcp_kind_fields, MCP_COUNT_OF(mcp_kind_fields), kind, err);
    return read_heads(json, model, kind, err);
}

static enum mcp_status read_kinds(struct mcp_json *json, struct mcp_model *model,
                                  struct mcp_error *err)
{
    struct mcp_json *kinds;
    MCP_TRY(mcp_json_array(json, "kinds", &kinds, err));
    const size_t count = mcp_json_count(kinds);
    if (count < 1 || count > MCP_MAX_LAYER_KINDS)
        return mcp_json_fail(kinds, err, "%zu kinds of layers; 1..%d are possible", count,
                             MCP_MAX_LAYER_KINDS);
    model->num_kinds = (int)count;
    for (size_t i = 0; i < count; i++)
        MCP_TRY(read_kind(mcp_json_at(kinds, i), model, &model->kinds[i], err));
    return MCP_OK;
}

/* {"kinds": [0, 1], "repeat": 18}: appends 36 layers at *filled. */
static enum mcp_status read_run(struct mcp_json *run, struct mcp_model *model, int *filled,
                                struct mcp_error *err)
{
    struct mcp_json *kinds;
    int repeat = 1;
    MCP_TRY(mcp_json_array(run, "kinds", &kinds, err));
    MCP_TRY(mcp_json_maybe_int(run, "repeat", &repeat, err));
    const int64_t period = (int64_t)mcp_json_count(kinds);
    if (period < 1 || repeat < 1 || repeat > (model->num_layers - *filled) / period)
        return mcp_json_fail(run, err,
                             "%d x %" PRId64 " layers from layer %d on are not 1..%d, which "
                             "num_layers=%d leaves",
                             repeat, period, *filled, model->num_layers - *filled,
                             model->num_layers);
    for (int i = 0; i < (int)period; i++) {
        int kind;
        MCP_TRY(mcp_json_as_int(mcp_json_at(kinds, (size_t)i), &kind, err));
        if (kind < 0 || kind >= model->num_kinds)
            return mcp_json_fail(kinds, err, "kind %d, but there are %d kinds", kind,
                                 model->num_kinds);
        for (int k = 0; k < repeat; k++)
            model->layer_kind[*filled + k * (int)period + i] = (unsigned char)kind;
    }
    *filled += (int)period * repeat;
    return MCP_OK;
}

/* Absent "layers": every layer is of kind 0. */
static enum mcp_status read_layers(struct mcp_arena *arena, struct mcp_json *json,
                                   struct mcp_model *model, struct mcp_error *err)
{
    model->layer_kind = MCP_ARRAY(arena, model->num_layers, unsigned char);
    if (!mcp_json_has(json, "layers")) {
        if (model->num_kinds > 1)
            return mcp_json_fail(json, err,
                                 "%d kinds, but no \"layers\" to say which layer is "
                                 "which",
                                 model->num_kinds);
        return MCP_OK;
    }
    struct mcp_json *runs;
    MCP_TRY(mcp_json_array(json, "layers", &runs, err));
    int filled = 0;
    for (size_t i = 0; i < mcp_json_count(runs); i++)
        MCP_TRY(read_run(mcp_json_at(runs, i), model, &filled, err));
    if (filled != model->num_layers)
        return mcp_json_fail(runs, err, "%d layers, but num_layers=%d", filled, model->num_layers);
    return MCP_OK;
}

static enum mcp_status read_names(struct mcp_json *json, struct mcp_model *model,
                                  struct mcp_error *err)
{
    int norm = MCP_RMSNORM, position = MCP_POSITION_ROTARY;
    MCP_TRY(mcp_json_string(json, "name", &model->name, err));
    MCP_TRY(mcp_json_maybe_string(json, "family", &model->family, err));
    MCP_TRY(mcp_json_maybe_string(json, "source", &model->source, err));
    MCP_TRY(mcp_json_maybe_string(json, "note", &model->note, err));
    MCP_TRY(maybe_choice(json, "norm", norm_names, MCP_COUNT_OF(norm_names), &norm, err));
    MCP_TRY(maybe_choice(json, "position", position_names, MCP_COUNT_OF(position_names), &position,
                         err));
    model->norm = (enum mcp_norm_kind)norm;
    model->position = (enum mcp_position_kind)position;
    return mcp_json_maybe_bool(json, "tied_embeddings", &model->tied_embeddings, err);
}

static enum mcp_status read_schema(struct mcp_json *json, struct mcp_error *err)
{
    const char *schema;
    MCP_TRY(mcp_json_string(json, "schema", &schema, err));
    if (!mcp_same(schema, MODEL_SCHEMA))
        return mcp_json_fail(json, err, "schema \"%s\" is not \"%s\"", schema, MODEL_SCHEMA);
    return MCP_OK;
}

/* `mcpplan model --json` writes the shapes and what follows from them; the
 * latter is computed again here, never believed. */
static void skip_derived(struct mcp_json *json)
{
    static const char *const keys[] = {
        "parameters",      "active_parameters",        "flops_per_token_forward",
        "sequence_length", "flops_per_token_training", "derived",
    };
    for (size_t i = 0; i < MCP_COUNT_OF(keys); i++)
        (void)mcp_json_has(json, keys[i]);
}

static enum mcp_status read_own(struct mcp_arena *arena, struct mcp_json *json,
                                struct mcp_model *model, struct mcp_error *err)
{
    MCP_TRY(read_schema(json, err));
    MCP_TRY(read_names(json, model, err));
    MCP_TRY(mcp_json_int(json, "num_layers", &model->num_layers, err));
    MCP_TRY(mcp_json_int(json, "hidden_size", &model->hidden_size, err));
    MCP_TRY(mcp_json_int(json, "vocab_size", &model->vocab_size, err));
    MCP_TRY(read_fields(json, mcp_model_fields, MCP_COUNT_OF(mcp_model_fields), model, err));
    MCP_TRY(mcp_json_maybe_int(json, "mtp_kind", &model->mtp_kind, err));
    MCP_TRY(mcp_fields_check(model, mcp_model_fields, MCP_COUNT_OF(mcp_model_fields), err));
    MCP_TRY(read_kinds(json, model, err));
    MCP_TRY(read_layers(arena, json, model, err));
    MCP_TRY(mcp_numerics_from_json(json, &model->numerics, err));
    skip_derived(json);
    return mcp_json_done(json, err);
}

enum mcp_status mcp_model_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                    struct mcp_model *out, struct mcp_error *err)
{
    struct mcp_model model = {
        .name = "", .family = "", .source = "", .note = "", .ignored = "", .norms_per_layer = 2};
    if (!mcp_json_is_object(json))
        return mcp_json_fail(json, err, "a model is an object {...}");
    if (mcp_json_has(json, "schema"))
        MCP_TRY(read_own(arena, json, &model, err));
    else
        MCP_TRY(mcp_model_from_config(arena, json, &model, err));
    MCP_TRY(mcp_model_check(&model, err));
    *out = model;
    return MCP_OK;
}

/* "a/b/config.json" is b, "a/llama.json" is llama; "./config.json" names no folder. */
static const char *name_of_file(struct mcp_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash == NULL ? path : slash + 1;
    if (mcp_same(base, "config.json") && slash != NULL) {
        const char *folder = slash;
        while (folder > path && folder[-1] != '/')
            folder--;
        const char *name = mcp_strndup(arena, folder, (size_t)(slash - folder));
        if (*name != '\0' && !mcp_same(name, ".") && !mcp_same(name, ".."))
            return name;
    }
    const size_t length = strlen(base);
    return mcp_strndup(arena, base, mcp_ends_with(base, ".json") ? length - 5 : length);
}

static bool is_preset(const char *name)
{
    for (size_t i = 0; i < mcp_preset_count("models"); i++)
        if (mcp_same(mcp_preset_at("models", i)->name, name))
            return true;
    return false;
}

/* Megatron's arguments, or JSON as Python writes it. */
static enum mcp_status read_file(struct mcp_arena *arena, const char *path, struct mcp_model *out,
                                 struct mcp_error *err)
{
    struct mcp_text text;
    struct mcp_json *json;
    size_t not_finite = 0;
    const char *file = mcp_same(path, "-") ? "standard input" : path;
    MCP_TRY(mcp_file_read(arena, path, MAX_FILE_BYTES, &text, err));
    if (strlen(text.data) == text.length && mcp_is_megatron(text.data)) {
        MCP_TRY(mcp_model_from_megatron(arena, file, text.data, out, err));
        out->name = name_of_file(arena, file);
        return mcp_model_check(out, err);
    }
    MCP_TRY(mcp_json_parse_python(arena, file, text.data, text.length, &json, &not_finite, err));
    MCP_TRY(mcp_model_from_json(arena, json, out, err));
    if (!mcp_json_has(json, "schema"))
        out->name = name_of_file(arena, file);
    if (not_finite > 0)
        out->ignored = mcp_format(arena, "%s%snumbers that are not finite, read as null: %zu",
                                  out->ignored, out->ignored[0] == '\0' ? "" : ", ", not_finite);
    return MCP_OK;
}

enum mcp_status mcp_model_load(struct mcp_arena *arena, const char *name_or_path,
                               struct mcp_model *out, struct mcp_error *err)
{
    struct mcp_json *json;
    const bool is_file = !is_preset(name_or_path) &&
                         (mcp_same(name_or_path, "-") || access(name_or_path, F_OK) == 0);
    enum mcp_status status;
    if (is_file) {
        status = read_file(arena, name_or_path, out, err);
    } else {
        MCP_TRY(mcp_preset_read(arena, "models", name_or_path, &json, err));
        status = mcp_model_from_json(arena, json, out, err);
    }
    if (status == MCP_INVALID) /* unlike a format error it does not name the file */
        mcp_error_prefix(err, mcp_printable(arena, name_or_path));
    return status;
}

/* Writing ----------------------------------------------------------------- */

/* Zeros and falses go without saying. */
static void write_fields(const void *object, const struct mcp_model_field *fields, size_t count,
                         struct mcp_json *json)
{
    for (size_t i = 0; i < count; i++) {
        if (fields[i].is_bool && mcp_field_bool(object, &fields[i]))
            mcp_json_set_bool(json, fields[i].key, true);
        if (!fields[i].is_bool && mcp_field_int(object, &fields[i]) != 0)
            mcp_json_set_int(json, fields[i].key, mcp_field_int(object, &fields[i]));
    }
}

/* How often the `period` kinds from `first` on follow one another. */
static int count_repeats(const struct mcp_model *model, int first, int period)
{
    int layer = first + period;
    while (layer < model->num_layers &&
           model->layer_kind[layer] == model->layer_kind[layer - period])
        layer++;
    return (layer - first) / period;
}

/* The period that covers most layers from `first` on; the shortest of equals. */
static int best_period(const struct mcp_model *model, int first)
{
    int best = 1;
    for (int period = 2; period <= MCP_MAX_LAYER_KINDS && first + period <= model->num_layers;
         period++) {
        const int repeats = count_repeats(model, first, period);
        if (repeats > 1 && repeats * period > best * count_repeats(model, first, best))
            best = period;
    }
    return best;
}

static void write_layers(const struct mcp_model *model, struct mcp_json *json)
{
    struct mcp_json *runs = mcp_json_set_array(json, "layers");
    for (int first = 0; first < model->num_layers;) {
        const int period = best_period(model, first);
        const int repeats = count_repeats(model, first, period);
        struct mcp_json *run = mcp_json_add_object(runs);
        struct mcp_json *kinds = mcp_json_set_array(run, "kinds");
        for (int i = 0; i < period; i++)
            mcp_json_add_int(kinds, model->layer_kind[first + i]);
        mcp_json_set_int(run, "repeat", repeats);
        first += period * repeats;
    }
}

static void write_text(struct mcp_json *json, const char *key, const char *value)
{
    if (value != NULL && value[0] != '\0')
        mcp_json_set_string(json, key, value);
}

void mcp_model_to_json(const struct mcp_model *model, struct mcp_json *object)
{
    mcp_json_set_string(object, "schema", MODEL_SCHEMA);
    mcp_json_set_string(object, "name", model->name);
    write_text(object, "family", model->family);
    write_text(object, "source", model->source);
    write_text(object, "note", model->note);
    write_fields(model, mcp_model_fields, MCP_COUNT_OF(mcp_model_fields), object);
    if (model->num_mtp_layers > 0)
        mcp_json_set_int(object, "mtp_kind", model->mtp_kind);
    mcp_json_set_string(object, "norm", norm_names[model->norm]);
    mcp_json_set_string(object, "position", position_names[model->position]);
    mcp_json_set_bool(object, "tied_embeddings", model->tied_embeddings);
    struct mcp_json *kinds = mcp_json_set_array(object, "kinds");
    for (int i = 0; i < model->num_kinds; i++) {
        struct mcp_json *kind = mcp_json_add_object(kinds);
        mcp_json_set_string(kind, "attention", mcp_attention_names[model->kinds[i].attention]);
        mcp_json_set_string(kind, "mlp", mcp_mlp_names[model->kinds[i].mlp]);
        write_fields(&model->kinds[i], mcp_kind_fields, MCP_COUNT_OF(mcp_kind_fields), kind);
    }
    if (model->num_kinds > 1)
        write_layers(model, object);
    mcp_numerics_to_json(&model->numerics, object);
}
