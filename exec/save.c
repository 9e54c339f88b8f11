/* exec/save.c: what ranks hold, to checkpoints and back. */
#include "exec/save.h"

#include "exec/half.h"
#include "exec/init.h"
#include "exec/save_errors.h"

#include <string.h>

enum { KEPT_CHECKPOINTS = 2 };

/* One kind of values of one flat buffer, as a rank has it. */
struct values {
    int64_t first, count; /* of the flat buffer */
    char *memory;         /* of the first one */
    enum mcp_value_kind kind;
    unsigned char dtype;
};

struct rank_parts {
    struct mcp_arena *arena;
    const struct mcp_saved_rank *saved;
    struct mcp_checkpoint_parts parts;
    size_t capacity;
};

/* --- what a place holds --- */

/* Truth first: fp32 weights, or the master ones. */
static struct values truth_of(const struct mcp_flat_place *place)
{
    char *weights = place->weights + (place->first - place->held_first) * 4;
    return (struct values){place->first, place->count, place->has_master ? place->state : weights,
                           MCP_VALUE_WEIGHTS, MCP_F32};
}

static struct values moment_of(const struct mcp_flat_place *place, enum mcp_value_kind kind)
{
    const int before = (place->has_master ? 1 : 0) + (kind == MCP_VALUE_SECOND_MOMENT ? 1 : 0);
    return (struct values){place->first, place->count,
                           place->state + before * place->state_stride * 4, kind, MCP_F32};
}

/* All that a rank holds beside its part of the truth: weights that others own too, and
 * what is computed with. */
static struct values held_of(const struct mcp_flat_place *place)
{
    return (struct values){place->held_first, place->held_count, place->weights, MCP_VALUE_WEIGHTS,
                           place->dtype};
}

static const struct mcp_layer_type *type_of(const struct mcp_saved_rank *saved, int layer)
{
    const int type = mcp_pool_type(mcp_interpreter_pool(saved->interpreter), layer);
    return &saved->rank->program->types[type];
}

static int pieces_of(struct mcp_arena *arena, const struct mcp_saved_rank *saved, int layer,
                     enum mcp_flat flat, struct mcp_piece **pieces)
{
    const struct mcp_flat_key key = {&saved->rank->program->plan, saved->rank->rank, layer,
                                     type_of(saved, layer), flat};
    return mcp_flat_pieces(arena, &key, pieces);
}

/* --- saving --- */

static void add_piece(struct rank_parts *list, const struct values *values,
                      const struct mcp_piece *piece)
{
    int64_t begin;
    const int64_t count = mcp_piece_within(piece, values->first, values->count, &begin);
    if (count == 0 || !piece->owned)
        return;
    struct mcp_checkpoint_parts *parts = &list->parts;
    const int64_t from = piece->offset + begin - values->first;
    parts->items = mcp_grow(list->arena, parts->items, (size_t)parts->count, &list->capacity,
                            sizeof *parts->items);
    parts->items[parts->count++] = (struct mcp_checkpoint_part){{values->kind, piece, begin, count},
                                                                values->memory + from * 4};
}

static void add_place(struct rank_parts *list, int layer, const struct mcp_flat_place *place)
{
    const struct values kinds[] = {truth_of(place), moment_of(place, MCP_VALUE_FIRST_MOMENT),
                                   moment_of(place, MCP_VALUE_SECOND_MOMENT)};
    struct mcp_piece *pieces;
    const int count = pieces_of(list->arena, list->saved, layer, place->flat, &pieces);
    for (size_t kind = 0; kind < MCP_COUNT_OF(kinds); kind++)
        for (int i = 0; i < count; i++)
            add_piece(list, &kinds[kind], &pieces[i]);
}

static void add_errors(struct rank_parts *list, int layer)
{
    struct mcp_kept_errors *errors =
        MCP_ARRAY(list->arena, MCP_KEPT_ERRORS, struct mcp_kept_errors);
    const int count = mcp_kept_errors(list->arena, list->saved, layer, errors);
    for (int i = 0; i < count; i++) {
        const struct mcp_piece *piece = &errors[i].piece;
        const struct values values = {0, piece->columns, errors[i].memory, MCP_VALUE_ERROR,
                                      MCP_F32};
        add_piece(list, &values, piece);
    }
}

/* Out of the backend's memory, piece by piece. */
static enum mcp_status fetch_piece(void *context, int index, int64_t first, int64_t bytes,
                                   void *out, struct mcp_error *err)
{
    const struct rank_parts *list = context;
    const struct mcp_saved_rank *saved = list->saved;
    saved->calls->read(saved->backend, (const char *)list->parts.items[index].data + first, out,
                       bytes);
    return mcp_votes_busy(saved->votes, err);
}

static enum mcp_status save_rank(struct mcp_arena *arena, const struct mcp_saved_rank *saved,
                                 const char *folder, int64_t step, struct mcp_file_digest *digest,
                                 struct mcp_error *err)
{
    struct rank_parts list = {.arena = arena, .saved = saved};
    const struct mcp_tensor_source source = {fetch_piece, &list};
    struct mcp_flat_place places[MCP_NUM_FLATS];
    for (int layer = 0; layer < saved->rank->program->num_layers; layer++) {
        const int count = mcp_flat_places(saved->interpreter, saved->rank, layer, places);
        for (int i = 0; i < count; i++)
            if (mcp_answers_for_place(&places[i]))
                add_place(&list, layer, &places[i]);
        if (mcp_sends_signs(places, count))
            add_errors(&list, layer);
    }
    const struct mcp_checkpoint_file file = {folder, step, saved->rank->rank};
    list.parts.source = &source;
    return mcp_checkpoint_write(arena, &file, &list.parts, digest, err);
}

enum mcp_status mcp_save_rank(const struct mcp_saved_rank *saved, const char *folder, int64_t step,
                              struct mcp_file_digest *digest, struct mcp_error *err)
{
    struct mcp_arena *arena = mcp_arena_new();
    const enum mcp_status status = save_rank(arena, saved, folder, step, digest, err);
    mcp_arena_free(arena);
    return status;
}

/* --- all ranks --- */

static enum mcp_status share_digests(struct mcp_arena *arena, const struct mcp_saved_rank *saved,
                                     int world, struct mcp_file_digest *digests,
                                     struct mcp_error *err)
{
    double *bytes = MCP_ARRAY(arena, world, double), *sums = MCP_ARRAY(arena, world, double);
    const int rank = saved->rank->rank;
    bytes[rank] = (double)digests[rank].bytes;
    sums[rank] = digests[rank].crc32c;
    MCP_TRY(saved->calls->agree(saved->backend, bytes, world, '+', err));
    MCP_TRY(saved->calls->agree(saved->backend, sums, world, '+', err));
    for (int i = 0; i < world; i++)
        digests[i] = (struct mcp_file_digest){(int64_t)bytes[i], (uint32_t)sums[i]};
    return MCP_OK;
}

static enum mcp_status commit(struct mcp_arena *arena, const char *folder,
                              const struct mcp_checkpoint_state *state, int world,
                              const struct mcp_file_digest *digests, struct mcp_error *err)
{
    MCP_TRY(mcp_checkpoint_commit(arena, folder, state, world, digests, err));
    return mcp_checkpoint_prune(arena, folder, KEPT_CHECKPOINTS, err);
}

static enum mcp_status save_run(struct mcp_arena *arena, const struct mcp_saved_rank *saved,
                                const char *folder, const struct mcp_checkpoint_state *state,
                                struct mcp_error *err)
{
    const int world = mcp_plan_world(&saved->rank->program->plan), rank = saved->rank->rank;
    struct mcp_file_digest *digests = MCP_ARRAY(arena, world, struct mcp_file_digest);
    enum mcp_status status =
        rank == 0 ? mcp_checkpoint_begin(arena, folder, state->step, err) : MCP_OK;
    MCP_TRY(mcp_votes_all_or_none(saved->votes, status, "begin a checkpoint", err));
    status = mcp_save_rank(saved, folder, state->step, &digests[rank], err);
    MCP_TRY(mcp_votes_all_or_none(saved->votes, status, "write its part of a checkpoint", err));
    MCP_TRY(share_digests(arena, saved, world, digests, err));
    status = rank == 0 ? commit(arena, folder, state, world, digests, err) : MCP_OK;
    return mcp_votes_all_or_none(saved->votes, status, "finish a checkpoint", err);
}

enum mcp_status mcp_save_run(const struct mcp_saved_rank *saved, const char *folder,
                             const struct mcp_checkpoint_state *state, struct mcp_error *err)
{
    struct mcp_arena *arena = mcp_arena_new();
    const enum mcp_status status = save_run(arena, saved, folder, state, err);
    mcp_arena_free(arena);
    return status;
}

/* --- loading --- */

/* From a checkpoint or from a model, whichever is not NULL. */
struct loading {
    struct mcp_arena *arena;
    const struct mcp_saved_rank *saved;
    const struct mcp_checkpoint *checkpoint;
    const struct mcp_hf_model *model;
    int layer;
};

static void write_values(const struct mcp_saved_rank *saved, const struct values *values,
                         int64_t from, const float *data, int64_t count, uint16_t *halves)
{
    if (values->dtype == MCP_F32) {
        saved->calls->write(saved->backend, values->memory + from * 4, data, count * 4);
        return;
    }
    mcp_narrow((enum mcp_dtype)values->dtype, data, count, halves);
    saved->calls->write(saved->backend, values->memory + from * 2, halves, count * 2);
}

/* data[count] comes zeroed: what a model lacks stays so. */
static enum mcp_status fetch(const struct loading *l, const struct mcp_value_range *wanted,
                             float *data, struct mcp_error *err)
{
    if (l->checkpoint != NULL)
        return mcp_checkpoint_read(l->checkpoint, wanted, data, err);
    if (wanted->kind != MCP_VALUE_WEIGHTS)
        return MCP_OK;
    return mcp_hf_read(l->model, type_of(l->saved, l->layer), l->layer, wanted, data, err);
}

static enum mcp_status load_piece(const struct loading *l, const struct values *values,
                                  const struct mcp_piece *piece, struct mcp_error *err)
{
    struct mcp_value_range wanted = {.kind = values->kind, .piece = piece};
    wanted.count = mcp_piece_within(piece, values->first, values->count, &wanted.begin);
    const struct mcp_mark mark = mcp_arena_mark(l->arena);
    float *data = MCP_ARRAY(l->arena, wanted.count, float);
    uint16_t *halves = MCP_ARRAY(l->arena, wanted.count, uint16_t);
    MCP_TRY(fetch(l, &wanted, data, err));
    write_values(l->saved, values, piece->offset + wanted.begin - values->first, data, wanted.count,
                 halves);
    mcp_arena_rewind(l->arena, mark);
    return mcp_votes_busy(l->saved->votes, err);
}

static enum mcp_status load_place(const struct loading *l, const struct mcp_flat_place *place,
                                  struct mcp_error *err)
{
    const struct values kinds[] = {held_of(place), truth_of(place),
                                   moment_of(place, MCP_VALUE_FIRST_MOMENT),
                                   moment_of(place, MCP_VALUE_SECOND_MOMENT)};
    struct mcp_piece *pieces;
    const int count = pieces_of(l->arena, l->saved, l->layer, place->flat, &pieces);
    for (size_t kind = 0; kind < MCP_COUNT_OF(kinds); kind++)
        for (int i = 0; i < count; i++)
            MCP_TRY(load_piece(l, &kinds[kind], &pieces[i], err));
    return MCP_OK;
}

/* Of this very rank in this very layout, if the checkpoint has them; else they stay 0. */
static enum mcp_status load_errors(const struct loading *l, struct mcp_error *err)
{
    struct mcp_kept_errors errors[MCP_KEPT_ERRORS];
    const int count =
        l->checkpoint == NULL ? 0 : mcp_kept_errors(l->arena, l->saved, l->layer, errors);
    for (int i = 0; i < count; i++) {
        const struct mcp_piece *piece = &errors[i].piece;
        const struct values values = {0, piece->columns, errors[i].memory, MCP_VALUE_ERROR,
                                      MCP_F32};
        if (mcp_checkpoint_has(l->checkpoint, MCP_VALUE_ERROR, piece))
            MCP_TRY(load_piece(l, &values, piece, err));
    }
    return MCP_OK;
}

static enum mcp_status load_layers(struct loading *l, struct mcp_error *err)
{
    struct mcp_flat_place places[MCP_NUM_FLATS];
    for (l->layer = 0; l->layer < l->saved->rank->program->num_layers; l->layer++) {
        const int count = mcp_flat_places(l->saved->interpreter, l->saved->rank, l->layer, places);
        for (int i = 0; i < count; i++)
            MCP_TRY(load_place(l, &places[i], err));
        if (count > 0)
            MCP_TRY(load_errors(l, err));
    }
    return MCP_OK;
}

static enum mcp_status load_rank(struct loading loading, struct mcp_error *err)
{
    loading.arena = mcp_arena_new();
    const enum mcp_status status = load_layers(&loading, err);
    mcp_arena_free(loading.arena);
    return status;
}

enum mcp_status mcp_load_rank(const struct mcp_saved_rank *saved,
                              const struct mcp_checkpoint *checkpoint, struct mcp_error *err)
{
    return load_rank((struct loading){.saved = saved, .checkpoint = checkpoint}, err);
}

enum mcp_status mcp_load_hugging_face(const struct mcp_saved_rank *saved,
                                      const struct mcp_hf_model *model, struct mcp_error *err)
{
    return load_rank((struct loading){.saved = saved, .model = model}, err);
}

enum mcp_status mcp_load_newest(struct mcp_arena *arena, const struct mcp_saved_rank *saved,
                                const char *folder, const struct mcp_checkpoint **out,
                                struct mcp_text *passed_over, struct mcp_error *err)
{
    enum mcp_status status = MCP_OK;
    double step = -1; /* rank 0's; others have less */
    *out = NULL;
    if (saved->rank->rank == 0) {
        status = mcp_checkpoint_newest(arena, folder, saved->votes, out, passed_over, err);
        step = status == MCP_OK && *out != NULL ? (double)mcp_checkpoint_state(*out).step : -1;
    }
    MCP_TRY(mcp_votes_all_or_none(saved->votes, status, "open a checkpoint", err));
    MCP_TRY(saved->calls->agree(saved->backend, &step, 1, '>', err));
    if (step < 0)
        return MCP_OK;
    if (*out == NULL)
        status = mcp_checkpoint_open(arena, folder, (int64_t)step, false, out, err);
    return mcp_votes_all_or_none(saved->votes, status, "open the checkpoint", err);
}
