/* exec/save_errors.c: names of errors, by the layout in which they hold. */
#include "exec/save_errors.h"

#include "core/crc32c.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint32_t add_piece(uint32_t sum, const struct mcp_piece *piece)
{
    const int64_t numbers[] = {piece->first_row, piece->rows, piece->first_column, piece->columns,
                               piece->offset};
    return mcp_crc32c(mcp_crc32c(sum, piece->name, strlen(piece->name)), numbers, sizeof numbers);
}

/* Of how many ranks there are, and of what this one holds of the layer. */
static uint32_t layout_sum(struct mcp_arena *arena, const struct mcp_saved_rank *saved, int layer)
{
    const struct mcp_plan *plan = &saved->rank->program->plan;
    const int64_t world = mcp_plan_world(plan);
    const int type = mcp_pool_type(mcp_interpreter_pool(saved->interpreter), layer);
    uint32_t sum = mcp_crc32c(0, &world, sizeof world);
    for (int flat = 0; flat < MCP_NUM_FLATS; flat++) {
        const struct mcp_flat_key key = {plan, saved->rank->rank, layer,
                                         &saved->rank->program->types[type], (enum mcp_flat)flat};
        struct mcp_piece *pieces;
        const int count = mcp_flat_pieces(arena, &key, &pieces);
        for (int i = 0; i < count; i++)
            sum = add_piece(sum, &pieces[i]);
    }
    return sum;
}

int mcp_kept_errors(struct mcp_arena *arena, const struct mcp_saved_rank *saved, int layer,
                    struct mcp_kept_errors errors[MCP_KEPT_ERRORS])
{
    int count = 0;
    for (int i = 0; i < MCP_KEPT_ERRORS; i++) {
        int64_t bytes = 0;
        void *memory =
            mcp_interpreter_buffer(saved->interpreter, layer, MCP_NUM_LAYER_BUFFERS + i, &bytes);
        if (memory == NULL)
            continue;
        struct mcp_kept_errors *kept = &errors[count++];
        uint32_t sum = layout_sum(arena, saved, layer);
        *kept = (struct mcp_kept_errors){.memory = memory};
        kept->piece.tensor_rows = kept->piece.rows = 1;
        kept->piece.tensor_columns = kept->piece.columns = bytes / 4;
        kept->piece.owned = true;
        snprintf(kept->piece.name, sizeof kept->piece.name,
                 "layers.%d.errors.%d.rank.%d.%08" PRIx32, layer, i, saved->rank->rank,
                 mcp_crc32c(sum, &bytes, sizeof bytes));
    }
    return count;
}

bool mcp_sends_signs(const struct mcp_flat_place *places, int count)
{
    for (int i = 0; i < count; i++)
        if (places[i].gradients == NULL)
            return true;
    return false;
}
