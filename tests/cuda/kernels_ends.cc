/* tests/cuda/kernels_ends.cc: embedding, and the loss over a vocabulary that ranks share. */
#include "kit.h"

#include <algorithm>

struct embedding_case {
    int64_t tokens, columns, first, vocab;
    int64_t sequence_local;
    int positions, zigzag;
};
static const embedding_case embeddings[] = {
    {1, 1, 0, 1, 1, 1, 0},
    {12, 7, 4, 5, 6, 1, 1},
    {300, 24, 0, 9, 100, 0, 0},
    {6, 2104, 2, 8, 2, 1, 0},
};

static void check_embedding(const embedding_case &c, mcp_cuda_format format)
{
    kit_memory<int32_t> ids(c.tokens);
    const int64_t ranks = 3, rank = 1, length = ranks * c.sequence_local;
    kit_array table(format, c.vocab * c.columns), positions(format, length * c.columns);
    kit_array rows(format, c.tokens * c.columns), dy(format, c.tokens * c.columns);
    kit_array d_table(MCP_CUDA_F32, c.vocab * c.columns),
        d_positions(MCP_CUDA_F32, length * c.columns);
    unsigned seed = 9;
    for (int64_t i = 0; i < c.tokens; i++)
        ids[i] = static_cast<int32_t>((kit_random(&seed) + 1) * 6);
    table.fill(0, 1, 1);
    positions.fill(0, 1, 2);
    dy.fill(0, 1, 3);
    d_table.fill(0, 1, 4);
    d_positions.fill(0, 1, 5);
    std::vector<double> want, want_table = d_table.values(), want_positions = d_positions.values();
    for (int64_t t = 0; t < c.tokens; t++) {
        const int64_t row = ids[t] - c.first, local = t % c.sequence_local,
                      half = c.sequence_local / 2;
        int64_t position = rank * c.sequence_local + local;
        if (c.zigzag)
            position =
                local < half ? rank * half + local : (2 * ranks - 1 - rank) * half + local - half;
        for (int64_t i = 0; i < c.columns; i++) {
            const bool here = row >= 0 && row < c.vocab;
            const double d = dy.get(t * c.columns + i);
            want.push_back((here ? table.get(row * c.columns + i) : 0) +
                           (c.positions ? positions.get(position * c.columns + i) : 0));
            if (here)
                want_table[(size_t)(row * c.columns + i)] += d;
            if (c.positions)
                want_positions[(size_t)(position * c.columns + i)] += d;
        }
    }
    struct mcp_cuda_embedding op = {};
    op.ids = ids, op.table = table, op.rows = rows;
    if (c.positions)
        op.positions = positions;
    op.tokens = c.tokens, op.columns = c.columns, op.first_id = c.first, op.vocab_local = c.vocab;
    op.place = {rank, 1, ranks, c.zigzag, c.sequence_local, c.tokens};
    mcp_cuda_embedding(&op, kit_queue());
    op.table = d_table, op.rows = dy;
    if (c.positions)
        op.positions = d_positions;
    mcp_cuda_embedding_backward(&op, kit_queue());
    const auto which = static_cast<int>(&c - embeddings);
    kit_compare(rows.values(), want, {kit_rounding(format), 1e-7}, "rows, case %d", which);
    kit_compare(d_table.values(), want_table, {2e-6, 2e-6}, "table, case %d", which);
    kit_compare(d_positions.values(), want_positions, {2e-6, 2e-6}, "positions, case %d", which);
}

TEST(ends_embedding)
{
    for (const embedding_case &c : embeddings)
        for (mcp_cuda_format format : kit_formats)
            check_embedding(c, format);
}

/* A table in fp32 has 1 + 7 parts of 16 to the next number of 16 bits, a position 3 parts, or the
 * other way round: their sum is nearer to that number; of the two rounded, or mostly so, to 1. */
static void check_mixed(mcp_cuda_format format, int64_t columns, bool swapped, float rounding)
{
    const double part = kit_rounding(format) / 8, values[2] = {1 + 7 * part, 3 * part};
    const double next = rounding < 0.3f ? 1 + 16 * part : 1;
    kit_memory<int32_t> ids(1);
    kit_array table(MCP_CUDA_F32, columns), positions(MCP_CUDA_F32, columns), rows(format, columns);
    ids[0] = 0;
    for (int64_t i = 0; i < columns; i++) {
        table.set(i, values[swapped]);
        positions.set(i, values[!swapped]);
    }
    struct mcp_cuda_embedding op = {};
    op.ids = ids, op.table = table, op.positions = positions, op.rows = rows;
    op.tokens = op.vocab_local = 1, op.columns = columns, op.rounding = rounding;
    op.place = {0, 1, 1, false, 1, 1};
    mcp_cuda_embedding(&op, kit_queue());
    kit_compare(rows.values(), std::vector<double>((size_t)columns, next), {0, 0},
                "%d columns, %g mixed in, swapped %d", (int)columns, (double)rounding, swapped);
}

TEST(ends_embedding_mixed)
{
    for (mcp_cuda_format format : {MCP_CUDA_BF16, MCP_CUDA_F16})
        for (int64_t columns : {9, 16})
            for (float rounding : {0.0f, 0.2f, 0.4f, 1.0f})
                for (bool swapped : {false, true})
                    check_mixed(format, columns, swapped, rounding);
}

/* --- loss --- */

struct loss_case {
    int64_t tokens, vocab, vocab_local; /* of all ranks without padding; rows of one rank */
    int ranks, biased;
};
static const loss_case losses[] = {
    {1, 1, 1, 1, 0},   {7, 50, 56, 1, 1},     {5, 1003, 504, 2, 1},
    {33, 10, 8, 3, 0}, {3, 4099, 4104, 1, 0},
};

/* What one rank has of a case: its part of the logits. */
struct loss_rank {
    kit_array logits, bias;
    kit_memory<float> numbers, loss;
    struct mcp_cuda_loss op;
    loss_rank(const loss_case &c, mcp_cuda_format format, int rank, const int32_t *targets)
        : logits(format, c.tokens * c.vocab_local), bias(format, c.vocab_local),
          numbers(3 * c.tokens), loss(1), op()
    {
        logits.fill(1, 4, 10 + static_cast<unsigned>(rank));
        bias.fill(0, 1, 20 + static_cast<unsigned>(rank));
        op.logits = logits;
        if (c.biased)
            op.bias = bias;
        op.targets = targets;
        op.numbers = numbers;
        op.loss = loss;
        op.tokens = c.tokens;
        op.stride = c.vocab_local;
        op.columns = std::clamp(c.vocab - rank * c.vocab_local, INT64_C(0), c.vocab_local);
        op.first_id = rank * c.vocab_local;
        op.vocab_local = c.vocab_local;
        loss[0] = 0.5f;
    }
};

/* What the tensor group does to the numbers of its ranks. */
static void reduce(const std::vector<std::unique_ptr<loss_rank>> &ranks, int64_t first,
                   int64_t count, bool largest)
{
    for (int64_t i = first; i < first + count; i++) {
        float value = ranks[0]->numbers[i];
        for (size_t r = 1; r < ranks.size(); r++) {
            const float other = ranks[r]->numbers[i];
            value = largest ? std::max(value, other) : value + other;
        }
        for (const auto &rank : ranks)
            rank->numbers[i] = value;
    }
}

/* Softmax less the target, and the sum of losses, in double precision. */
static double want_loss(const loss_case &c, const std::vector<double> &logits,
                        const int32_t *targets, std::vector<double> *gradient)
{
    double loss = 0.5;
    for (int64_t t = 0; t < c.tokens; t++) {
        const double *row = &logits[(size_t)(t * c.vocab)];
        const double largest = *std::max_element(row, row + c.vocab);
        double sum = 0;
        for (int64_t i = 0; i < c.vocab; i++)
            sum += std::exp(row[i] - largest);
        for (int64_t i = 0; i < c.vocab; i++)
            gradient->push_back(std::exp(row[i] - largest) / sum - (i == targets[t] ? 1 : 0));
        loss += largest + std::log(sum) - row[targets[t]];
    }
    return loss;
}

/* A rank's part of all logits [tokens][vocab], padding as 0. */
static std::vector<double> part_of(const loss_case &c, const std::vector<double> &all, int rank)
{
    std::vector<double> part;
    for (int64_t t = 0; t < c.tokens; t++)
        for (int64_t i = 0; i < c.vocab_local; i++) {
            const int64_t id = rank * c.vocab_local + i;
            part.push_back(id < c.vocab ? all[(size_t)(t * c.vocab + id)] : 0);
        }
    return part;
}

static void check_loss(const loss_case &c, mcp_cuda_format format)
{
    kit_memory<int32_t> targets(c.tokens);
    std::vector<std::unique_ptr<loss_rank>> ranks;
    unsigned seed = 3;
    for (int64_t t = 0; t < c.tokens; t++)
        targets[t] =
            static_cast<int32_t>((kit_random(&seed) + 1) / 2 * static_cast<double>(c.vocab));
    for (int r = 0; r < c.ranks; r++)
        ranks.push_back(std::make_unique<loss_rank>(c, format, r, targets));
    for (const auto &rank : ranks)
        mcp_cuda_loss_max(&rank->op, kit_queue());
    std::vector<double> logits, gradient;
    for (int64_t t = 0; t < c.tokens; t++)
        for (int64_t id = 0; id < c.vocab; id++)
            logits.push_back(ranks[(size_t)(id / c.vocab_local)]->logits.get(t * c.vocab_local +
                                                                             id % c.vocab_local));
    const double loss = want_loss(c, logits, targets, &gradient);
    reduce(ranks, 0, c.tokens, true);
    for (const auto &rank : ranks)
        mcp_cuda_loss_sums(&rank->op, kit_queue());
    reduce(ranks, c.tokens, 2 * c.tokens, false);
    for (int r = 0; r < c.ranks; r++) {
        mcp_cuda_loss_forward(&ranks[(size_t)r]->op, kit_queue());
        kit_compare(ranks[(size_t)r]->loss.values(), {loss}, {2e-6, 2e-6}, "loss of %d",
                    (int)c.vocab);
        kit_compare(ranks[(size_t)r]->logits.values(), part_of(c, gradient, r),
                    {kit_rounding(format) + 3e-6, 1e-6}, "softmax of %d, rank %d", (int)c.vocab, r);
    }
}

TEST(ends_loss)
{
    for (const loss_case &c : losses)
        for (mcp_cuda_format format : kit_formats)
            check_loss(c, format);
}

/* The bias is added to logits as they are stored, and padding is not. */
TEST(ends_loss_bias)
{
    const loss_case c = {4, 13, 16, 1, 1};
    kit_memory<int32_t> targets(4);
    for (int i = 0; i < 4; i++)
        targets[i] = i;
    loss_rank rank(c, MCP_CUDA_BF16, 0, targets);
    std::vector<double> want = rank.logits.values();
    for (int64_t i = 0; i < 64; i++)
        want[(size_t)i] += i % 16 < 13 ? rank.bias.get(i % 16) : 0;
    mcp_cuda_loss_max(&rank.op, kit_queue());
    kit_compare(rank.logits.values(), want, {1.0 / 256, 0}, "logits and bias");
}
