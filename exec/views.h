/* exec/views.h: a launch as a kernel of any backend sees it: operands with their dtype, a
 * weight's place in its buffer, experts' rows, and the positions of tokens. */
#ifndef MCP_EXEC_VIEWS_H
#define MCP_EXEC_VIEWS_H

#include "exec/backend.h"
#include "step/weights.h"

struct mcp_view {
    char *data;
    enum mcp_dtype dtype; /* MCP_F32, MCP_BF16 or MCP_F16 */
    int64_t elements;     /* of the buffer, from data on */
};

/* Operands of a launch, with the dtype that their buffer has. */
struct mcp_view mcp_read_view(const struct mcp_launch *launch, int index);
struct mcp_view mcp_write_view(const struct mcp_launch *launch, int index);
/* The op's weight part in reads[index], or its gradient in writes[index]; of local expert
 * `copy`. Without a part: the buffer from its start. */
struct mcp_view mcp_weight_view(const struct mcp_launch *launch, int index, int copy);
struct mcp_view mcp_gradient_view(const struct mcp_launch *launch, int index, int copy);
/* Of a product with an epilogue: the bias, from the first row that the op uses; data NULL: none. */
struct mcp_view mcp_epilogue_bias(const struct mcp_launch *launch);
const struct mcp_weight *mcp_launch_weight(const struct mcp_launch *launch); /* NULL: none */
struct mcp_view mcp_view_at(struct mcp_view view, int64_t element);

/* Operand `index` of an 8 bit product c[M][N] = a[M][K] b[N][K]^T: a for 0, b for 1. */
struct mcp_cast_view {
    void *scale; /* fp32 */
    void *bytes; /* [M or N][stride], of each row the first K */
    int64_t stride;
    bool is_e5m2; /* else E4M3 */
};
struct mcp_cast_view mcp_cast_view(const struct mcp_launch *launch, int index);
/* Where a cast of writes[index] begins, its scale first. */
void *mcp_cast_target(const struct mcp_launch *launch, int index);

/* Rows by expert, as all_to_all_v left them; NULL: the op is no expert's. */
const int32_t *mcp_launch_sizes(const struct mcp_launch *launch);
/* Rows that arrived for local expert `expert`, and for all of them. */
int64_t mcp_expert_rows(const struct mcp_launch *launch, const int32_t *sizes, int64_t expert);
int64_t mcp_all_expert_rows(const struct mcp_launch *launch, const int32_t *sizes);

/* Where a rank's tokens lie in a sequence: runs of consecutive positions. Rows are those of
 * the first sequence of a microbatch; those of the others follow sequence_local apart. */
struct mcp_run {
    int64_t row, position, count;
};
enum { MCP_MAX_RUNS = 2 * MCP_MAX_RING };
/* Runs of the tokens of one context rank whose rows begin at `row`; returns how many. */
int mcp_runs_of(const struct mcp_launch *launch, int context, int64_t row, struct mcp_run *runs);
/* Position of local token `row` of [microbatch_size][sequence_local]. */
int64_t mcp_position_of(const struct mcp_launch *launch, int64_t row);

#endif
