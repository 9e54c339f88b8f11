/* exec/views.c: operands, rows and positions of a launch, as kernels see them. */
#include "exec/views.h"

#include "step/casts.h"

static struct mcp_view view_of(const struct mcp_launch *launch, struct mcp_operand at, void *data,
                               int64_t bytes)
{
    const struct mcp_buffer *buffer = mcp_operand_buffer(launch->rank->program, launch->type, at);
    enum mcp_dtype dtype = (enum mcp_dtype)buffer->dtype;
    return (struct mcp_view){data, dtype, bytes / (int64_t)mcp_dtype_bytes(dtype)};
}

struct mcp_view mcp_read_view(const struct mcp_launch *launch, int index)
{
    return view_of(launch, launch->op->reads[index], launch->reads[index],
                   launch->read_bytes[index]);
}

struct mcp_view mcp_write_view(const struct mcp_launch *launch, int index)
{
    return view_of(launch, launch->op->writes[index], launch->writes[index],
                   launch->write_bytes[index]);
}

struct mcp_view mcp_view_at(struct mcp_view view, int64_t element)
{
    view.data += element * (view.dtype == MCP_F32 ? 4 : 2);
    view.elements -= element;
    return view;
}

/* A part's gradients can wait in a frame, and it can be copied: nothing else is there. */
static int64_t part_offset(const struct mcp_launch *launch, struct mcp_operand at, int copy)
{
    int part = launch->op->weight;
    bool alone =
        part == MCP_NO_WEIGHT || at.space == MCP_SPACE_FRAME || at.space == MCP_SPACE_BLOCK;
    return alone ? 0 : mcp_weight_offset(launch->type, part, copy);
}

struct mcp_view mcp_weight_view(const struct mcp_launch *launch, int index, int copy)
{
    return mcp_view_at(mcp_read_view(launch, index),
                       part_offset(launch, launch->op->reads[index], copy));
}

struct mcp_view mcp_gradient_view(const struct mcp_launch *launch, int index, int copy)
{
    return mcp_view_at(mcp_write_view(launch, index),
                       part_offset(launch, launch->op->writes[index], copy));
}

struct mcp_view mcp_epilogue_bias(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    if (d[5] == 0)
        return (struct mcp_view){.data = NULL};
    return mcp_view_at(mcp_read_view(launch, 1),
                       mcp_weight_offset(launch->type, (int)d[5] - 1, 0) + d[4]);
}

const struct mcp_weight *mcp_launch_weight(const struct mcp_launch *launch)
{
    int part = launch->op->weight;
    return part == MCP_NO_WEIGHT ? NULL : &launch->type->weights[part];
}

static char *cast_at(const struct mcp_launch *launch, struct mcp_operand at, void *data)
{
    const int part = launch->op->weight;
    const bool alone = part == MCP_NO_WEIGHT || at.space != MCP_SPACE_LAYER;
    return (char *)data + (alone ? 0 : mcp_cast_weight_offset(launch->type, part));
}

void *mcp_cast_target(const struct mcp_launch *launch, int index)
{
    return cast_at(launch, launch->op->writes[index], launch->writes[index]);
}

/* Of weights some rows, or of those transposed some columns. */
struct mcp_cast_view mcp_cast_view(const struct mcp_launch *launch, int index)
{
    const struct mcp_op *op = launch->op;
    const struct mcp_operand at = op->reads[index];
    char *start = cast_at(launch, at, launch->reads[index]);
    struct mcp_cast_view view = {
        .scale = start, .stride = op->dims[2], .is_e5m2 = mcp_op_reads_gradients(op, index)};
    int64_t first = 0;
    if (at.space == MCP_SPACE_LAYER) {
        const struct mcp_weight *part = &launch->type->weights[op->weight];
        const bool transposed = at.index == MCP_LAYER_CAST_COLUMNS;
        view.stride = transposed ? part->rows : part->columns;
        first = transposed ? op->dims[4] : op->dims[4] * part->columns;
    }
    view.bytes = start + MCP_CAST_HEADER_BYTES + first;
    return view;
}

/* --- experts --- */

const int32_t *mcp_launch_sizes(const struct mcp_launch *launch)
{
    const int read = mcp_op_expert_sizes(launch->rank->program, launch->type, launch->op);
    return read < 0 ? NULL : launch->reads[read];
}

int64_t mcp_expert_rows(const struct mcp_launch *launch, const int32_t *sizes, int64_t expert)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    int64_t rows = 0;
    for (int64_t i = expert; i < facts->num_experts; i += facts->local_experts)
        rows += sizes[facts->num_experts + i];
    return rows;
}

int64_t mcp_all_expert_rows(const struct mcp_launch *launch, const int32_t *sizes)
{
    int64_t rows = 0, experts = launch->type->facts.num_experts;
    for (int64_t i = 0; i < experts; i++)
        rows += sizes[experts + i];
    return rows;
}

/* --- positions --- */

int mcp_runs_of(const struct mcp_launch *launch, int context, int64_t row, struct mcp_run *runs)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    int64_t count = facts->sequence_local;
    int ranks = launch->rank->program->plan.context_parallel;
    if (!facts->zigzag) {
        runs[0] = (struct mcp_run){row, context * count, count};
        return 1;
    }
    int64_t half = count / 2;
    runs[0] = (struct mcp_run){row, context * half, half};
    runs[1] = (struct mcp_run){row + half, (2 * ranks - 1 - context) * half, half};
    return 2;
}

int64_t mcp_position_of(const struct mcp_launch *launch, int64_t row)
{
    struct mcp_run runs[2];
    int count = mcp_runs_of(launch, launch->rank->at.context, 0, runs);
    int64_t local = row % launch->type->facts.sequence_local;
    const struct mcp_run *run = &runs[count == 2 && local >= runs[1].row];
    return run->position + local - run->row;
}
