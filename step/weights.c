/* step/weights.c: the layout of step/weights.h. */
#include "step/weights.h"

const char *const mcp_init_names[MCP_NUM_INITS] = {"normal", "residual", "norm", "zero"};

int64_t mcp_weight_elements(const struct mcp_weight *weight)
{
    return weight->rows * weight->columns;
}

bool mcp_weight_decays(const struct mcp_weight *weight)
{
    return weight->init == MCP_INIT_NORMAL || weight->init == MCP_INIT_RESIDUAL;
}

enum mcp_flat mcp_weight_flat(const struct mcp_weight *weight)
{
    if (weight->expert)
        return MCP_FLAT_EXPERT;
    return weight->shared || weight->twin ? MCP_FLAT_TABLE : MCP_FLAT_DENSE;
}

int64_t mcp_flat_elements(const struct mcp_layer_type *type, enum mcp_flat flat)
{
    int64_t total = 0;
    for (int i = 0; i < type->num_weights; i++)
        if (mcp_weight_flat(&type->weights[i]) == flat)
            total += mcp_weight_elements(&type->weights[i]) * type->weights[i].copies;
    return total;
}

int64_t mcp_flat_replicated(const struct mcp_layer_type *type, enum mcp_flat flat)
{
    int64_t total = 0;
    for (int i = 0; i < type->num_weights; i++)
        if (mcp_weight_flat(&type->weights[i]) == flat && type->weights[i].replicated)
            total += mcp_weight_elements(&type->weights[i]);
    return total;
}

bool mcp_has_shared_table(const struct mcp_layer_type *type)
{
    for (int i = 0; i < type->num_weights; i++)
        if (type->weights[i].shared)
            return true;
    return false;
}

int64_t mcp_flat_first(const struct mcp_layer_type *type, enum mcp_flat flat)
{
    return flat == MCP_FLAT_TABLE && !mcp_has_shared_table(type)
               ? mcp_flat_elements(type, MCP_FLAT_DENSE)
               : 0;
}

enum mcp_flat mcp_flat_at(const struct mcp_layer_type *type, struct mcp_operand at, int64_t first)
{
    if (at.space == MCP_SPACE_RANK)
        return MCP_FLAT_TABLE;
    if (at.space == MCP_SPACE_LAYER && at.index % 2 == 1)
        return MCP_FLAT_EXPERT;
    bool has_table = !mcp_has_shared_table(type) && mcp_flat_elements(type, MCP_FLAT_TABLE) > 0;
    return has_table && first == mcp_flat_first(type, MCP_FLAT_TABLE) ? MCP_FLAT_TABLE
                                                                      : MCP_FLAT_DENSE;
}

int64_t mcp_expert_stride(const struct mcp_layer_type *type)
{
    int64_t total = 0;
    for (int i = 0; i < type->num_weights; i++)
        if (type->weights[i].expert)
            total += mcp_weight_elements(&type->weights[i]);
    return total;
}

/* Does part `a` lie before part `b` of the same flat buffer? */
static bool is_before(const struct mcp_layer_type *type, int a, int b)
{
    const struct mcp_weight *x = &type->weights[a], *y = &type->weights[b];
    return x->replicated == y->replicated ? a < b : x->replicated;
}

int64_t mcp_weight_offset(const struct mcp_layer_type *type, int part, int copy)
{
    enum mcp_flat flat = mcp_weight_flat(&type->weights[part]);
    int64_t offset = mcp_flat_first(type, flat);
    for (int i = 0; i < type->num_weights; i++)
        if (mcp_weight_flat(&type->weights[i]) == flat && is_before(type, i, part))
            offset += mcp_weight_elements(&type->weights[i]);
    return offset + copy * mcp_expert_stride(type);
}

static bool is_cut(const struct mcp_weight *weight, bool by_columns)
{
    return !weight->replicated && !weight->expert && weight->by_columns == by_columns;
}

int64_t mcp_weight_global_rows(const struct mcp_weight *weight, int tensor_parallel)
{
    return is_cut(weight, false) ? weight->rows * tensor_parallel : weight->rows;
}

int64_t mcp_weight_global_columns(const struct mcp_weight *weight, int tensor_parallel)
{
    return is_cut(weight, true) ? weight->columns * tensor_parallel : weight->columns;
}

/* Of local row `row` under a cut by rows. */
static int64_t global_row(const struct mcp_weight *weight, int tensor, int tensor_parallel,
                          int64_t row)
{
    int64_t first = 0, band = weight->rows;
    for (int i = 0; i < MCP_MAX_BANDS && weight->bands[i] > 0; i++) {
        band = weight->bands[i];
        if (row < first + band)
            break;
        first += band;
    }
    return first * tensor_parallel + tensor * band + (row - first);
}

int64_t mcp_weight_global_index(const struct mcp_weight *weight, int tensor, int tensor_parallel,
                                int64_t row, int64_t column)
{
    if (is_cut(weight, false))
        row = global_row(weight, tensor, tensor_parallel, row);
    if (is_cut(weight, true))
        column += tensor * weight->columns;
    return row * mcp_weight_global_columns(weight, tensor_parallel) + column;
}
