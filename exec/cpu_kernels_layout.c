/* exec/cpu_kernels_layout.c: from the projection to queries, keys and values: biases and
 * rotary positions; and the exchange of tokens for heads. */
#include "exec/cpu_kernels_parts.h"

#include <math.h>

enum { MAX_TURNS = MCP_MAX_HEAD_DIM / 2 }; /* pairs of columns of a head that turn */

struct turns {
    int count;
    float frequency[MAX_TURNS];
};

struct turn { /* of one position */
    int count;
    float cosine[MAX_TURNS], sine[MAX_TURNS];
};

static void set_turn(const struct turns *turns, int64_t position, float sign, struct turn *out)
{
    out->count = turns->count;
    for (int i = 0; i < turns->count; i++) {
        float angle = (float)position * turns->frequency[i];
        out->cosine[i] = cosf(angle);
        out->sine[i] = sign * sinf(angle);
    }
}

/* Column i turns with column i + count (Hugging Face's rotate_half). */
static void turn_head(const struct turn *turn, float *head)
{
    for (int i = 0; i < turn->count; i++) {
        float x = head[i], y = head[i + turn->count];
        head[i] = x * turn->cosine[i] - y * turn->sine[i];
        head[i + turn->count] = y * turn->cosine[i] + x * turn->sine[i];
    }
}

/* A head of a row on its way from one buffer to another. */
struct move {
    struct mcp_view from, to, bias; /* bias.data NULL: none */
    int64_t from_at, to_at, bias_at;
    int width;
    const struct turn *turn; /* NULL: none */
};

static void move_head(const struct move *move)
{
    float room[MCP_CHUNK], bias_room[MCP_CHUNK], values[MCP_CHUNK];
    const float *from = mcp_get(move->from, move->from_at, move->width, room);
    memcpy(values, from, (size_t)move->width * sizeof *values);
    if (move->bias.data != NULL) {
        const float *bias = mcp_get(move->bias, move->bias_at, move->width, bias_room);
        for (int i = 0; i < move->width; i++)
            values[i] += bias[i];
    }
    if (move->turn != NULL)
        turn_head(move->turn, values);
    mcp_put(move->to, move->to_at, move->width, values);
}

/* Heads of a projected row: where each begins there, and in queries or keys and values. */
struct heads {
    const struct mcp_layer_facts *facts;
    int64_t query_columns, kv_columns, columns;
};

static struct heads heads_of(const struct mcp_launch *launch)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    struct heads h = {.facts = facts};
    h.query_columns = facts->heads * facts->head_dim;
    h.kv_columns = facts->kv_heads * (facts->head_dim + facts->value_head_dim);
    h.columns = h.query_columns + h.kv_columns;
    return h;
}

/* Calls move_head for every head of one row; `forward` splits, else joins. */
static void move_row(const struct heads *h, const struct mcp_launch *launch, int64_t row,
                     bool forward, const struct turn *turn)
{
    const struct mcp_layer_facts *facts = h->facts;
    int64_t all = facts->heads + 2 * facts->kv_heads, column = 0;
    struct move move = {.width = (int)facts->head_dim, .turn = turn};
    if (forward && launch->op->weight != MCP_NO_WEIGHT)
        move.bias = mcp_weight_view(launch, 1, 0);
    for (int64_t i = 0; i < all; i++) {
        bool query = i < facts->heads, value = i >= facts->heads + facts->kv_heads;
        struct mcp_view part =
            forward ? mcp_write_view(launch, !query) : mcp_read_view(launch, !query);
        struct mcp_view whole = forward ? mcp_read_view(launch, 0) : mcp_write_view(launch, 0);
        int64_t part_at = query ? row * h->query_columns + column
                                : row * h->kv_columns + column - h->query_columns;
        move.width = (int)(value ? facts->value_head_dim : facts->head_dim);
        move.turn = value ? NULL : turn;
        move.bias_at = column;
        move.from = forward ? whole : part;
        move.to = forward ? part : whole;
        move.from_at = forward ? row * h->columns + column : part_at;
        move.to_at = forward ? part_at : row * h->columns + column;
        move_head(&move);
        column += move.width;
    }
}

static void move_rows(const struct mcp_launch *launch, bool forward, bool rotary)
{
    struct heads h = heads_of(launch);
    struct turns turns = {0};
    int64_t rows = launch->op->dims[0];
    if (rotary)
        turns.count = mcp_rotary_frequencies(h.facts, turns.frequency);
#pragma omp parallel for schedule(static) if (rows * h.columns > MCP_SERIAL)
    for (int64_t row = 0; row < rows; row++) {
        struct turn turn;
        if (rotary)
            set_turn(&turns, mcp_position_of(launch, row), forward ? 1 : -1, &turn);
        move_row(&h, launch, row, forward, rotary ? &turn : NULL);
    }
    if (!forward && launch->op->weight != MCP_NO_WEIGHT)
        mcp_add_column_sums(mcp_write_view(launch, 0), rows, h.columns, h.columns,
                            mcp_gradient_view(launch, 1, 0));
}

void mcp_cpu_rotary_forward(const struct mcp_launch *launch)
{
    move_rows(launch, true, true);
}

void mcp_cpu_rotary_backward(const struct mcp_launch *launch)
{
    move_rows(launch, false, true);
}

void mcp_cpu_bias_forward(const struct mcp_launch *launch)
{
    move_rows(launch, true, false);
}

/* Of queries, keys and values; with one operand of that alone. */
void mcp_cpu_bias_backward(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    if (launch->op->num_reads == 1)
        mcp_add_column_sums(mcp_read_view(launch, 0), d[0], d[1], d[1],
                            mcp_gradient_view(launch, 0, 0));
    else
        move_rows(launch, false, false);
}

/* Tokens' columns [bands][ranks x share] to [ranks][tokens][bands][share], or back. */
static void exchange(const struct mcp_launch *launch, bool pack)
{
    const int64_t *d = launch->op->dims;
    int64_t tokens = d[0], ranks = d[2], bands[2] = {d[3], d[1] - d[3]};
    struct mcp_view from = mcp_read_view(launch, 0), to = mcp_write_view(launch, 0);
    size_t size = from.dtype == MCP_F32 ? 4 : 2;
#pragma omp parallel for schedule(static) if (tokens * d[1] > MCP_SERIAL)
    for (int64_t i = 0; i < tokens * ranks; i++) {
        int64_t token = i / ranks, rank = i % ranks, column = 0;
        int64_t apart = (rank * tokens + token) * (d[1] / ranks), whole = token * d[1];
        for (int b = 0; b < 2; b++) {
            int64_t share = bands[b] / ranks, at = whole + column + rank * share;
            memcpy(mcp_view_at(to, pack ? apart : at).data,
                   mcp_view_at(from, pack ? at : apart).data, (size_t)share * size);
            apart += share;
            column += bands[b];
        }
    }
}

void mcp_cpu_pack_heads(const struct mcp_launch *launch)
{
    exchange(launch, true);
}

void mcp_cpu_unpack_heads(const struct mcp_launch *launch)
{
    exchange(launch, false);
}
