/* exec/names.c: pieces of whole tensors in flat buffers. */
#include "exec/names.h"

#include "core/minmax.h"
#include "core/text.h"

#include <stdio.h>
#include <stdlib.h>

struct listing {
    struct mcp_arena *arena;
    const struct mcp_flat_key *key;
    struct mcp_coordinate at;
    struct mcp_piece *pieces;
    size_t capacity;
    int count;
};

/* Rows that pad the vocabulary: only these parts have them. */
static bool is_vocabulary(const struct mcp_weight *weight)
{
    static const char *const names[] = {"embedding", "head", "head_bias"};
    for (size_t i = 0; i < MCP_COUNT_OF(names); i++)
        if (mcp_same(weight->name, names[i]))
            return true;
    return false;
}

int64_t mcp_part_parameters(const struct mcp_plan *plan, const struct mcp_layer_type *type,
                            int part)
{
    const struct mcp_weight *weight = &type->weights[part];
    const int64_t rows = is_vocabulary(weight)
                             ? type->facts.vocab_size
                             : mcp_weight_global_rows(weight, plan->tensor_parallel);
    const int64_t experts = weight->expert ? (int64_t)weight->copies * plan->expert_parallel : 1;
    return rows * mcp_weight_global_columns(weight, plan->tensor_parallel) * experts;
}

static void set_name(const struct listing *list, const struct mcp_weight *weight,
                     struct mcp_piece *piece)
{
    if (weight->twin)
        snprintf(piece->name, sizeof piece->name, "layers.0.embedding");
    else if (weight->expert)
        snprintf(piece->name, sizeof piece->name, "layers.%d.%s.%d", list->key->layer, weight->name,
                 piece->expert);
    else
        snprintf(piece->name, sizeof piece->name, "layers.%d.%s", list->key->layer, weight->name);
}

/* Rows [first, first + rows) of a copy of a part, which are one band or all of it. */
static void add_band(struct listing *list, struct mcp_piece piece, int64_t first, int64_t rows)
{
    const struct mcp_weight *weight = &list->key->type->weights[piece.part];
    const int t = list->key->plan->tensor_parallel;
    const int64_t index = mcp_weight_global_index(weight, list->at.tensor, t, first, 0);
    piece.tensor_rows = mcp_weight_global_rows(weight, t);
    piece.tensor_columns = mcp_weight_global_columns(weight, t);
    piece.first_row = index / piece.tensor_columns;
    piece.first_column = index % piece.tensor_columns;
    piece.rows = rows;
    piece.columns = weight->columns;
    piece.offset += first * weight->columns;
    if (is_vocabulary(weight)) {
        piece.tensor_rows = list->key->type->facts.vocab_size;
        piece.rows = mcp_min_int64(rows, piece.tensor_rows - piece.first_row);
    }
    if (piece.rows <= 0)
        return;
    set_name(list, weight, &piece);
    list->pieces = mcp_grow(list->arena, list->pieces, (size_t)list->count, &list->capacity,
                            sizeof *list->pieces);
    list->pieces[list->count++] = piece;
}

static void add_copy(struct listing *list, const struct mcp_piece *piece)
{
    const struct mcp_weight *weight = &list->key->type->weights[piece->part];
    int64_t first = 0;
    for (int i = 0; i < MCP_MAX_BANDS && weight->bands[i] > 0; i++) {
        add_band(list, *piece, first, weight->bands[i]);
        first += weight->bands[i];
    }
    if (first < weight->rows)
        add_band(list, *piece, first, weight->rows - first);
}

static int compare_offsets(const void *a, const void *b)
{
    const struct mcp_piece *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int mcp_flat_pieces(struct mcp_arena *arena, const struct mcp_flat_key *key, struct mcp_piece **out)
{
    const struct mcp_layer_type *type = key->type;
    const int member = mcp_group_index(key->plan, MCP_EXPERT, key->rank);
    struct listing list = {
        .arena = arena, .key = key, .at = mcp_mesh_coordinate(key->plan, key->rank)};
    for (int part = 0; part < type->num_weights; part++) {
        const struct mcp_weight *weight = &type->weights[part];
        for (int copy = 0; mcp_weight_flat(weight) == key->flat && copy < weight->copies; copy++)
            add_copy(
                &list,
                &(struct mcp_piece){
                    .part = part,
                    .expert = weight->expert ? member * weight->copies + copy : 0,
                    .offset = mcp_weight_offset(type, part, copy) - mcp_flat_first(type, key->flat),
                    .owned = !weight->duplicate && (!weight->replicated || list.at.tensor == 0)});
    }
    if (list.count > 0)
        qsort(list.pieces, (size_t)list.count, sizeof *list.pieces, compare_offsets);
    *out = list.pieces;
    return list.count;
}

int64_t mcp_piece_within(const struct mcp_piece *piece, int64_t first, int64_t count,
                         int64_t *begin)
{
    const int64_t elements = piece->rows * piece->columns;
    const int64_t low = first > piece->offset ? first - piece->offset : 0;
    const int64_t high = mcp_min_int64(first + count - piece->offset, elements);
    *begin = low;
    return high > low ? high - low : 0;
}
