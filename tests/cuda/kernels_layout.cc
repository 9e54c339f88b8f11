/* tests/cuda/kernels_layout.cc: heads, positions, and the exchange of tokens for heads. */
#include "kit.h"

struct heads_case {
    int64_t rows, heads, kv_heads, head_dim, value_dim, turns;
    int rank, ranks, zigzag;
    int64_t sequence_local;
    int biased;
};
static const heads_case cases[] = {
    {5, 2, 1, 6, 4, 2, 0, 1, 0, 5, 1},    {6, 4, 2, 16, 16, 8, 1, 2, 0, 3, 0},
    {8, 3, 3, 64, 64, 32, 1, 3, 1, 4, 1}, {4, 2, 2, 40, 24, 16, 2, 3, 1, 2, 1},
    {3, 5, 1, 7, 9, 0, 0, 1, 0, 3, 1},    {2, 40, 8, 128, 128, 64, 0, 2, 1, 2, 0},
};

static int64_t position_of(const heads_case &c, int64_t row)
{
    const int64_t local = row % c.sequence_local, half = c.sequence_local / 2;
    if (!c.zigzag)
        return c.rank * c.sequence_local + local;
    return local < half ? c.rank * half + local : (2 * c.ranks - 1 - c.rank) * half + local - half;
}

static mcp_cuda_turns turns_of(const heads_case &c)
{
    mcp_cuda_turns turns = {};
    turns.count = static_cast<int>(c.turns);
    for (int i = 0; i < turns.count; i++)
        turns.frequency[i] = static_cast<float>(std::pow(100.0, -1.0 * i / turns.count));
    return turns;
}

/* A head in double precision, in place. */
static void turn_head(const mcp_cuda_turns &turns, int64_t position, double sign, double *head)
{
    for (int i = 0; i < turns.count; i++) {
        const double angle = static_cast<double>(static_cast<float>(position) * turns.frequency[i]);
        const double x = head[i], y = head[i + turns.count];
        head[i] = x * std::cos(angle) - sign * y * std::sin(angle);
        head[i + turns.count] = y * std::cos(angle) + sign * x * std::sin(angle);
    }
}

static void check(const heads_case &c, mcp_cuda_format format)
{
    const int64_t query = c.heads * c.head_dim, key = c.kv_heads * c.head_dim;
    const int64_t kv_columns = key + c.kv_heads * c.value_dim, columns = query + kv_columns;
    kit_array whole(format, c.rows * columns), q(format, c.rows * query);
    kit_array kv(format, c.rows * kv_columns), bias(format, columns),
        back(format, c.rows * columns);
    mcp_cuda_heads op = {};
    whole.fill(0, 1, 1);
    bias.fill(0, 1, 2);
    op.whole = whole, op.query = q, op.kv = kv;
    if (c.biased)
        op.bias = bias;
    op.rows = c.rows, op.heads = c.heads, op.kv_heads = c.kv_heads;
    op.head_dim = c.head_dim, op.value_head_dim = c.value_dim;
    op.tokens = {c.rank, 1, c.ranks, c.zigzag, c.sequence_local, c.rows};
    op.turns = turns_of(c);
    std::vector<double> want_q, want_kv, sums;
    for (int64_t r = 0; r < c.rows; r++) {
        std::vector<double> row(static_cast<size_t>(columns));
        for (int64_t i = 0; i < columns; i++) {
            row[(size_t)i] = whole.get(r * columns + i) + (c.biased ? bias.get(i) : 0);
            sums.push_back(row[(size_t)i]);
        }
        for (int64_t h = 0; h < c.heads + c.kv_heads; h++)
            turn_head(op.turns, position_of(c, r), 1, &row[(size_t)(h * c.head_dim)]);
        want_q.insert(want_q.end(), row.begin(), row.begin() + query);
        want_kv.insert(want_kv.end(), row.begin() + query, row.end());
    }
    mcp_cuda_split_heads(&op, kit_queue());
    const double rounding = kit_rounding(format);
    const auto which = static_cast<int>(&c - cases);
    kit_compare(q.values(), want_q, {rounding + 1e-6, 1e-6}, "queries, case %d", which);
    kit_compare(kv.values(), want_kv, {rounding + 1e-6, 1e-6}, "keys and values, case %d", which);
    op.whole = back;
    mcp_cuda_join_heads(&op, kit_queue());
    kit_compare(back.values(), sums, {2 * rounding, 4 * rounding + 1e-6}, "back, case %d", which);
}

TEST(layout_heads)
{
    for (const heads_case &c : cases)
        for (mcp_cuda_format format : kit_formats)
            check(c, format);
}

TEST(layout_exchange)
{
    /* tokens, columns, ranks, first band */
    const int64_t shapes[][4] = {{3, 12, 2, 8}, {5, 20, 1, 0}, {4, 96, 3, 48}, {7, 64, 4, 0}};
    for (const auto &s : shapes) {
        kit_array x(MCP_CUDA_BF16, s[0] * s[1]), y(MCP_CUDA_BF16, s[0] * s[1]);
        kit_array z(MCP_CUDA_BF16, s[0] * s[1]);
        x.fill(0, 1, 1);
        std::vector<double> want;
        for (int64_t rank = 0; rank < s[2]; rank++)
            for (int64_t t = 0; t < s[0]; t++)
                for (int band = 0; band < 2; band++) {
                    const int64_t first = band ? s[3] : 0;
                    const int64_t share = (band ? s[1] - s[3] : s[3]) / s[2];
                    for (int64_t i = 0; i < share; i++)
                        want.push_back(x.get(t * s[1] + first + rank * share + i));
                }
        mcp_cuda_exchange op = {x, y, s[0], s[1], s[2], s[3], 1};
        mcp_cuda_exchange_heads(&op, kit_queue());
        kit_compare(y.values(), want, {0, 0}, "pack");
        op.from = y, op.to = z, op.packs = 0;
        mcp_cuda_exchange_heads(&op, kit_queue());
        kit_compare(z.values(), x.values(), {0, 0}, "unpack");
    }
}
