/* exec/hugging_face.c: models of Hugging Face read and written. */
#include "exec/hugging_face.h"

#include "core/json.h"
#include "core/text.h"
#include "exec/half.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct mcp_hf_model {
    const char *path;
    enum mcp_hf_naming naming;
    const char *prefix; /* before each name: "" or "transformer." */
    int num_files;
    struct mcp_safetensors *files;
};

struct layer_piece {
    const struct mcp_layer_type *type;
    int layer;
    const struct mcp_piece *piece;
};

/* --- opening --- */

static const struct mcp_tensor *find_tensor(const struct mcp_hf_model *model, const char *name)
{
    const struct mcp_tensor *tensor = NULL;
    for (int i = 0; tensor == NULL && i < model->num_files; i++)
        tensor = mcp_safetensors_find(&model->files[i], name);
    return tensor;
}

static enum mcp_status find_naming(struct mcp_hf_model *model, struct mcp_error *err)
{
    static const struct {
        const char *name, *prefix;
        enum mcp_hf_naming naming;
    } signs[] = {
        {"wte.weight", "", MCP_HF_GPT2},
        {"transformer.wte.weight", "transformer.", MCP_HF_GPT2},
        {"model.layers.0.block_sparse_moe.gate.weight", "", MCP_HF_MIXTRAL},
        {"model.layers.0.mlp.gate.weight", "", MCP_HF_QWEN_MOE},
        {"model.embed_tokens.weight", "", MCP_HF_LLAMA},
    };
    for (size_t i = 0; i < MCP_COUNT_OF(signs); i++) {
        if (find_tensor(model, signs[i].name) == NULL)
            continue;
        model->naming = signs[i].naming;
        model->prefix = signs[i].prefix;
        return MCP_OK;
    }
    return mcp_fail(err, MCP_FORMAT,
                    "%s: neither wte.weight nor model.embed_tokens.weight in it: no GPT-2, Llama, "
                    "Mistral, Qwen or Mixtral model",
                    model->path);
}

/* Each file of the index once. */
static enum mcp_status open_index(struct mcp_arena *arena, const char *path, const char *folder,
                                  struct mcp_hf_model *model, struct mcp_error *err)
{
    struct mcp_json *index, *map;
    MCP_TRY(mcp_json_read(arena, path, &index, err));
    MCP_TRY(mcp_json_object(index, "weight_map", &map, err));
    const size_t count = mcp_json_count(map);
    model->files = MCP_ARRAY(arena, count, struct mcp_safetensors);
    for (size_t i = 0; i < count; i++) {
        const char *key, *name;
        bool known = false;
        MCP_TRY(mcp_json_as_string(mcp_json_member(map, i, &key), &name, err));
        const char *file = mcp_format(arena, "%s/%s", folder, name);
        for (int k = 0; k < model->num_files; k++)
            known = known || mcp_same(model->files[k].path, file);
        if (!known)
            MCP_TRY(mcp_safetensors_read(arena, file, &model->files[model->num_files++], err));
    }
    return MCP_OK;
}

static const char *folder_of(struct mcp_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? "." : mcp_strndup(arena, path, (size_t)(slash - path));
}

static enum mcp_status open_files(struct mcp_arena *arena, const char *path,
                                  struct mcp_hf_model *model, struct mcp_error *err)
{
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        const char *index = mcp_format(arena, "%s/model.safetensors.index.json", path);
        if (access(index, F_OK) == 0)
            return open_index(arena, index, path, model, err);
        path = mcp_format(arena, "%s/model.safetensors", path);
    }
    if (mcp_ends_with(path, ".json"))
        return open_index(arena, path, folder_of(arena, path), model, err);
    model->files = MCP_NEW(arena, struct mcp_safetensors);
    model->num_files = 1;
    return mcp_safetensors_read(arena, path, model->files, err);
}

enum mcp_status mcp_hf_open(struct mcp_arena *arena, const char *path,
                            const struct mcp_hf_model **out, struct mcp_error *err)
{
    struct mcp_hf_model *model = MCP_NEW(arena, struct mcp_hf_model);
    model->path = mcp_strdup(arena, path);
    *out = model;
    MCP_TRY(open_files(arena, path, model, err));
    return find_naming(model, err);
}

enum mcp_hf_naming mcp_hf_naming_of(const struct mcp_hf_model *model)
{
    return model->naming;
}

/* --- reading --- */

static float number_at(const struct mcp_tensor *tensor, int64_t at)
{
    const char *data = tensor->data;
    uint16_t half;
    float value;
    if (tensor->dtype == MCP_F32) {
        memcpy(&value, data + 4 * at, sizeof value);
        return value;
    }
    memcpy(&half, data + 2 * at, sizeof half);
    return mcp_from_half(tensor->dtype, half);
}

/* [rows, columns], or one dimension where one of them is 1. */
static bool has_shape(const struct mcp_tensor *tensor, int64_t rows, int64_t columns)
{
    if (tensor->num_dims == 1)
        return (rows == 1 && tensor->shape[0] == columns) ||
               (columns == 1 && tensor->shape[0] == rows);
    return tensor->num_dims == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns;
}

static enum mcp_status get_tensor(const struct mcp_hf_model *model,
                                  const struct mcp_hf_tensor *place, const struct mcp_tensor **out,
                                  struct mcp_error *err)
{
    char name[sizeof place->name + 16];
    const bool is_head = mcp_same(place->name, "lm_head.weight"); /* beside the transformer */
    snprintf(name, sizeof name, "%s%s", is_head ? "" : model->prefix, place->name);
    const struct mcp_tensor *tensor = *out = find_tensor(model, name);
    const int64_t rows = place->transposed ? place->columns : place->rows;
    const int64_t columns = place->transposed ? place->rows : place->columns;
    if (tensor == NULL)
        return mcp_fail(err, MCP_INVALID, "%s: no tensor %s in it", model->path, name);
    if (tensor->dtype != MCP_F32 && tensor->dtype != MCP_BF16 && tensor->dtype != MCP_F16)
        return mcp_fail(err, MCP_INVALID, "%s: %s is %s, expected F32, BF16 or F16", model->path,
                        name, tensor->dtype_name);
    if (!has_shape(tensor, rows, columns))
        return mcp_fail(err, MCP_INVALID,
                        "%s: %s has %d dimensions, [%lld, %lld ..], the model's "
                        "is [%lld, %lld]",
                        model->path, name, tensor->num_dims,
                        (long long)(tensor->num_dims > 0 ? tensor->shape[0] : 1),
                        (long long)(tensor->num_dims > 1 ? tensor->shape[1] : 1), (long long)rows,
                        (long long)columns);
    return MCP_OK;
}

static enum mcp_status fail_unnamed(enum mcp_hf_naming naming, const struct mcp_piece *piece,
                                    struct mcp_error *err)
{
    return mcp_fail(err, MCP_INVALID, "%s: models named like %s have no such weights", piece->name,
                    mcp_hf_naming_names[naming]);
}

/* The tensor that holds a row, unless it is the one at hand. */
static enum mcp_status reach(const struct mcp_hf_model *model, const struct layer_piece *at,
                             int64_t row, struct mcp_hf_tensor *place,
                             const struct mcp_tensor **tensor, struct mcp_error *err)
{
    if (*tensor != NULL && row < place->first_row + place->rows)
        return MCP_OK;
    if (!mcp_hf_find(model->naming, at->type, at->layer, at->piece, row, place))
        return fail_unnamed(model->naming, at->piece, err);
    return get_tensor(model, place, tensor, err);
}

enum mcp_status mcp_hf_read(const struct mcp_hf_model *model, const struct mcp_layer_type *type,
                            int layer, const struct mcp_value_range *range, float *out,
                            struct mcp_error *err)
{
    const struct mcp_piece *piece = range->piece;
    const struct layer_piece at = {type, layer, piece};
    struct mcp_hf_tensor place = {.rows = 0};
    const struct mcp_tensor *tensor = NULL;
    for (int64_t i = range->begin; i < range->begin + range->count; i++) {
        const int64_t row = piece->first_row + i / piece->columns;
        const int64_t column = piece->first_column + i % piece->columns;
        MCP_TRY(reach(model, &at, row, &place, &tensor, err));
        const int64_t local = row - place.first_row;
        out[i - range->begin] =
            number_at(tensor, place.transposed ? column * place.rows + local
                                               : local * place.columns + column);
    }
    return MCP_OK;
}

/* --- writing --- */

/* Where a tensor's data is in the checkpoint. */
struct export_place {
    struct mcp_piece whole;
    struct mcp_hf_tensor there;
};

struct export
{
    struct mcp_arena *arena;   /* of what is written, and the tensor at hand */
    struct mcp_arena *scratch; /* of the file */
    enum mcp_hf_naming naming;
    const struct mcp_program *program;
    const struct mcp_checkpoint *checkpoint;
    struct mcp_votes *votes;
    struct mcp_tensor *tensors;
    struct export_place *places; /* of each tensor */
    size_t tensors_capacity, places_capacity;
    int count;
    int turned_index; /* of the tensor that is in `turned`, transposed; -1: none */
    const char *turned;
    struct mcp_mark before_turned;
};

static enum mcp_status read_rows(const struct export *e, const struct export_place *place,
                                 int64_t first, int64_t count, float *out, struct mcp_error *err)
{
    const struct mcp_value_range range = {MCP_VALUE_WEIGHTS, &place->whole,
                                          place->there.first_row * place->there.columns + first,
                                          count};
    return mcp_checkpoint_read(e->checkpoint, &range, out, err);
}

/* All of one tensor, its columns for rows; one at a time. */
static enum mcp_status turn(struct export *e, int index, struct mcp_error *err)
{
    const struct mcp_hf_tensor *there = &e->places[index].there;
    const int64_t count = there->rows * there->columns;
    if (e->turned_index >= 0)
        mcp_arena_rewind(e->arena, e->before_turned);
    e->turned_index = index;
    e->before_turned = mcp_arena_mark(e->arena);
    float *rows = MCP_ARRAY(e->arena, count, float), *columns = MCP_ARRAY(e->arena, count, float);
    MCP_TRY(read_rows(e, &e->places[index], 0, count, rows, err));
    for (int64_t i = 0; i < count; i++)
        columns[i % there->columns * there->rows + i / there->columns] = rows[i];
    e->turned = (const char *)columns;
    return MCP_OK;
}

/* Of a tensor's data, as the checkpoint has it, turned round where it is there. */
static enum mcp_status fetch(void *context, int index, int64_t first, int64_t bytes, void *out,
                             struct mcp_error *err)
{
    struct export *e = context;
    MCP_TRY(mcp_votes_busy(e->votes, err));
    if (!e->places[index].there.transposed)
        return read_rows(e, &e->places[index], first / 4, bytes / 4, out, err);
    if (e->turned_index != index)
        MCP_TRY(turn(e, index, err));
    memcpy(out, e->turned + first, (size_t)bytes);
    return MCP_OK;
}

static void set_shape(const struct mcp_hf_tensor *place, struct mcp_tensor *out)
{
    const bool is_vector = place->rows == 1 || place->columns == 1;
    out->num_dims = is_vector ? 1 : 2;
    out->shape[0] = is_vector ? place->rows * place->columns
                              : (place->transposed ? place->columns : place->rows);
    out->shape[1] = place->transposed ? place->rows : place->columns;
}

static enum mcp_status add_part(struct export *e, const struct mcp_layer_type *type, int layer,
                                const struct mcp_piece *piece, struct mcp_error *err)
{
    struct mcp_piece whole = *piece;
    struct mcp_hf_tensor place;
    whole.first_row = whole.first_column = 0;
    whole.rows = whole.tensor_rows;
    whole.columns = whole.tensor_columns;
    for (int64_t row = 0; row < whole.rows; row += place.rows) {
        if (!mcp_hf_find(e->naming, type, layer, &whole, row, &place))
            return fail_unnamed(e->naming, piece, err);
        e->tensors = mcp_grow(e->arena, e->tensors, (size_t)e->count, &e->tensors_capacity,
                              sizeof *e->tensors);
        e->places =
            mcp_grow(e->arena, e->places, (size_t)e->count, &e->places_capacity, sizeof *e->places);
        e->places[e->count] = (struct export_place){whole, place};
        struct mcp_tensor *tensor = &e->tensors[e->count++];
        *tensor = (struct mcp_tensor){.name = mcp_strdup(e->arena, place.name), .dtype = MCP_F32};
        set_shape(&place, tensor);
    }
    return MCP_OK;
}

/* Of ranks that hold the same the first: dense parts need one rank, experts one of each
 * member of their group. */
static bool is_first(const struct mcp_plan *plan, int rank, int flat)
{
    const struct mcp_coordinate at = mcp_mesh_coordinate(plan, rank);
    if (at.pipeline > 0)
        return false;
    if (flat == MCP_FLAT_EXPERT)
        return mcp_group_index(plan, MCP_EXPERT_DATA, rank) == 0;
    return at.tensor == 0 && at.context == 0 && at.data == 0;
}

/* Whole tensors, each where its first element is. */
static enum mcp_status add_flat(struct export *e, const struct mcp_flat_key *key,
                                struct mcp_error *err)
{
    struct mcp_piece *pieces;
    const int count = mcp_flat_pieces(e->arena, key, &pieces);
    for (int i = 0; i < count; i++)
        if (pieces[i].first_row == 0 && pieces[i].first_column == 0 &&
            !key->type->weights[pieces[i].part].duplicate)
            MCP_TRY(add_part(e, key->type, key->layer, &pieces[i], err));
    return MCP_OK;
}

static enum mcp_status add_layer(struct export *e, const struct mcp_layer_type *type, int layer,
                                 struct mcp_error *err)
{
    const struct mcp_plan *plan = &e->program->plan;
    const int world = mcp_plan_world(plan);
    for (int cut = 0; cut < MCP_NUM_FLATS * world; cut++) {
        const struct mcp_flat_key key = {plan, cut % world, layer, type,
                                         (enum mcp_flat)(cut / world)};
        if (is_first(plan, key.rank, (int)key.flat))
            MCP_TRY(add_flat(e, &key, err));
    }
    return MCP_OK;
}

static enum mcp_status list_tensors(struct export *e, struct mcp_error *err)
{
    for (int layer = 0; layer < e->program->num_layers; layer++) {
        const struct mcp_layer_type *type = mcp_program_layer_type(e->program, layer);
        if (type != NULL)
            MCP_TRY(add_layer(e, type, layer, err));
    }
    return MCP_OK;
}

static enum mcp_status export_model(struct export *e, const char *path, struct mcp_error *err)
{
    struct mcp_tensor_note note = {"format", "pt"}; /* transformers asks for it */
    MCP_TRY(list_tensors(e, err));
    const struct mcp_safetensors file = {path, e->count, e->tensors, 1, &note};
    const struct mcp_tensor_source source = {fetch, e};
    return mcp_safetensors_stream(e->scratch, &file, &source, NULL, err);
}

static enum mcp_status check_tensors(struct export *e, const struct mcp_hf_model *model,
                                     struct mcp_error *err)
{
    const struct mcp_tensor *tensor;
    MCP_TRY(list_tensors(e, err));
    for (int i = 0; i < e->count; i++)
        MCP_TRY(get_tensor(model, &e->places[i].there, &tensor, err));
    return MCP_OK;
}

enum mcp_status mcp_hf_check(const struct mcp_hf_model *model, const struct mcp_program *program,
                             struct mcp_error *err)
{
    struct export export = {.arena = mcp_arena_new(), .naming = model->naming, .program = program};
    const enum mcp_status status = check_tensors(&export, model, err);
    mcp_arena_free(export.arena);
    return status;
}

static bool has_part(const struct mcp_layer_type *type, const char *name)
{
    for (int i = 0; i < type->num_weights; i++)
        if (mcp_same(type->weights[i].name, name))
            return true;
    return false;
}

static enum mcp_status check_names(const struct mcp_program *program, enum mcp_hf_naming naming,
                                   struct mcp_error *err)
{
    struct export export = {.arena = mcp_arena_new(), .naming = naming, .program = program};
    const enum mcp_status status = list_tensors(&export, err);
    mcp_arena_free(export.arena);
    return status;
}

enum mcp_status mcp_hf_naming_for(const struct mcp_program *program, enum mcp_hf_naming *out,
                                  struct mcp_error *err)
{
    bool learned = false, experts = false, qwen = false, decoder = false;
    for (int t = 0; t < program->num_types; t++) {
        const struct mcp_layer_facts *facts = &program->types[t].facts;
        learned = learned || facts->positions_part > 0;
        experts = experts || facts->num_experts > 0;
        decoder = decoder || facts->heads > 0;
        qwen = qwen || has_part(&program->types[t], "qk_norm") ||
               has_part(&program->types[t], "qkv_bias");
    }
    const enum mcp_hf_naming mixture = qwen ? MCP_HF_QWEN_MOE : MCP_HF_MIXTRAL;
    *out = learned ? MCP_HF_GPT2 : experts ? mixture : MCP_HF_LLAMA;
    return decoder ? check_names(program, *out, err)
                   : mcp_fail(err, MCP_INVALID, "the program has no decoder layer");
}

enum mcp_status mcp_hf_write(const char *path, enum mcp_hf_naming naming,
                             const struct mcp_program *program,
                             const struct mcp_checkpoint *checkpoint, struct mcp_votes *votes,
                             struct mcp_error *err)
{
    struct export export = {.arena = mcp_arena_new(),
                            .scratch = mcp_arena_new(),
                            .naming = naming,
                            .program = program,
                            .checkpoint = checkpoint,
                            .votes = votes,
                            .turned_index = -1};
    const enum mcp_status status = export_model(&export, path, err);
    mcp_arena_free(export.scratch);
    mcp_arena_free(export.arena);
    return status;
}
