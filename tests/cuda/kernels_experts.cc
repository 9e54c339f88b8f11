/* tests/cuda/kernels_experts.cc: routing, and tokens' rows to their experts and back. */
#include "kit.h"

#include <algorithm>
#include <numeric>

struct routing_case {
    int64_t tokens, experts, chosen, columns;
    int raw, biased;
};
static const routing_case cases[] = {
    {1, 1, 1, 1, 0, 0},   {7, 4, 2, 5, 0, 1},       {100, 40, 3, 24, 1, 0},
    {65, 70, 9, 8, 0, 1}, {17, 300, 2, 1048, 0, 0}, {1100, 3, 1, 1, 0, 0},
};

/* Probabilities and shares as the kernel left them, and a token's experts by number. */
struct routed {
    kit_memory<float> values;
    mcp_cuda_routing r;
    explicit routed(const routing_case &c)
        : values(2 * c.tokens * c.experts), r{values, c.tokens, c.experts, c.chosen, c.raw}
    {
    }
    double probability(int64_t token, int64_t expert) const
    {
        return static_cast<double>(values[token * r.experts + expert]);
    }
    double share(int64_t token, int64_t expert) const
    {
        return static_cast<double>(values[(r.tokens + token) * r.experts + expert]);
    }
};

static void route(const routing_case &c, const kit_array &logits, const kit_array &bias, routed *to)
{
    mcp_cuda_router op = {to->r, logits, {}, {}};
    if (c.biased)
        op.bias = bias;
    mcp_cuda_router_top_k(&op, kit_queue());
}

/* Softmax and the largest, in double precision. */
static std::vector<double> want_values(const routing_case &c, const kit_array &logits,
                                       const kit_array &bias)
{
    std::vector<double> p, shares;
    for (int64_t t = 0; t < c.tokens; t++) {
        std::vector<double> row;
        std::vector<int> order(static_cast<size_t>(c.experts));
        double sum = 0, chosen = 0;
        for (int64_t i = 0; i < c.experts; i++) {
            row.push_back(std::exp(logits.get(t * c.experts + i) + (c.biased ? bias.get(i) : 0)));
            sum += row.back();
        }
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
            return row[static_cast<size_t>(x)] > row[static_cast<size_t>(y)];
        });
        std::vector<double> mine(row.size(), -1);
        for (int64_t k = 0; k < c.chosen; k++)
            chosen += row[static_cast<size_t>(order[static_cast<size_t>(k)])] / sum;
        for (int64_t k = 0; k < c.chosen; k++) {
            const auto i = static_cast<size_t>(order[static_cast<size_t>(k)]);
            mine[i] = row[i] / sum / (c.raw ? 1 : chosen);
        }
        for (double x : row)
            p.push_back(x / sum);
        shares.insert(shares.end(), mine.begin(), mine.end());
    }
    p.insert(p.end(), shares.begin(), shares.end());
    return p;
}

/* d logits from d shares, by the shares and probabilities that there are. */
static std::vector<double> want_logits(const routing_case &c, const routed &r, const kit_array &d)
{
    std::vector<double> out;
    for (int64_t t = 0; t < c.tokens; t++) {
        double sum = 0, inner = 0, product = 0;
        std::vector<double> dp(static_cast<size_t>(c.experts), 0);
        for (int64_t i = 0; i < c.experts; i++)
            if (r.share(t, i) >= 0) {
                sum += r.probability(t, i);
                inner += d.get(t * c.experts + i) * r.share(t, i);
            }
        for (int64_t i = 0; i < c.experts; i++)
            if (r.share(t, i) >= 0) {
                const double mine = d.get(t * c.experts + i);
                dp[static_cast<size_t>(i)] = c.raw ? mine : (mine - inner) / sum;
                product += dp[static_cast<size_t>(i)] * r.probability(t, i);
            }
        for (int64_t i = 0; i < c.experts; i++)
            out.push_back(r.probability(t, i) * (dp[static_cast<size_t>(i)] - product));
    }
    return out;
}

static void check_router(const routing_case &c, mcp_cuda_format format)
{
    kit_array logits(format, c.tokens * c.experts), bias(format, c.experts);
    kit_array d(format, c.tokens * c.experts), d_logits(format, c.tokens * c.experts);
    routed r(c);
    const auto which = static_cast<int>(&c - cases);
    logits.fill(0, 2, 1);
    bias.fill(0, 1, 2);
    d.fill(0, 1, 3);
    route(c, logits, bias, &r);
    kit_compare(r.values.values(), want_values(c, logits, bias), {3e-6, 1e-7}, "routing, case %d",
                which);
    const mcp_cuda_router back = {r.r, d_logits, {}, d};
    mcp_cuda_router_top_k_backward(&back, kit_queue());
    kit_compare(d_logits.values(), want_logits(c, r, d), {kit_rounding(format) + 1e-5, 1e-6},
                "d logits, case %d", which);
}

TEST(experts_router)
{
    for (const routing_case &c : cases)
        for (mcp_cuda_format format : kit_formats)
            check_router(c, format);
}

TEST(experts_ties_go_to_the_lower_number)
{
    const routing_case c = {3, 70, 4, 1, 0, 0};
    kit_array logits(MCP_CUDA_F32, c.tokens * c.experts), bias(MCP_CUDA_F32, c.experts);
    routed r(c);
    logits.fill(1, 0, 1);
    logits.set(50, 2);
    route(c, logits, bias, &r);
    kit_compare(r.values.values(), want_values(c, logits, bias), {3e-6, 1e-7}, "ties");
}

/* --- rows --- */

struct rows {
    kit_array tokens, sorted, d_sorted, d_routing, gathered, added;
    rows(const routing_case &c, mcp_cuda_format f)
        : tokens(f, c.tokens * c.columns), sorted(f, c.tokens * c.chosen * c.columns),
          d_sorted(f, c.tokens * c.chosen * c.columns), d_routing(f, c.tokens * c.experts),
          gathered(f, c.tokens * c.columns), added(f, c.tokens * c.columns)
    {
        tokens.fill(0, 1, 5);
        added.fill(0, 1, 6);
    }
};

/* Row by (expert, token), -1 where there is none; and the tokens of each expert. */
static std::vector<int64_t> places_of(const routing_case &c, const routed &r,
                                      std::vector<double> *sizes)
{
    std::vector<int64_t> places(static_cast<size_t>(c.experts * c.tokens), -1);
    int64_t row = 0;
    for (int64_t e = 0; e < c.experts; e++) {
        const int64_t first = row;
        for (int64_t t = 0; t < c.tokens; t++)
            if (r.share(t, e) >= 0)
                places[static_cast<size_t>(t * c.experts + e)] = row++;
        sizes->push_back(static_cast<double>(row - first));
    }
    return places;
}

static void check_rows(const routing_case &c, mcp_cuda_format format)
{
    kit_array logits(MCP_CUDA_F32, c.tokens * c.experts), bias(MCP_CUDA_F32, c.experts);
    kit_memory<int32_t> sizes(c.experts);
    routed r(c);
    rows a(c, format);
    std::vector<double> want_sizes, want_sorted(static_cast<size_t>(a.sorted.elements));
    logits.fill(0, 2, 1);
    bias.fill(0, 1, 2);
    route(c, logits, bias, &r);
    const std::vector<int64_t> places = places_of(c, r, &want_sizes);
    const auto which = static_cast<int>(&c - cases);
    struct mcp_cuda_permute op = {r.r, a.tokens, a.sorted, a.d_sorted, a.d_routing, c.columns};
    mcp_cuda_expert_counts(&r.r, sizes, kit_queue());
    mcp_cuda_permute(&op, kit_queue());
    kit_compare(sizes.values(), want_sizes, {0, 0}, "counts, case %d", which);

    std::vector<double> sums(static_cast<size_t>(a.tokens.elements)), added = a.added.values();
    std::vector<double> want_routing, want_d(want_sorted.size());
    kit_array made(format, a.sorted.elements); /* what experts make of their rows */
    made.fill(0, 1, 7);
    for (int64_t i = 0; i < c.tokens * c.experts; i++) {
        const int64_t place = places[static_cast<size_t>(i)], t = i / c.experts;
        double dot = 0;
        for (int64_t d = 0; place >= 0 && d < c.columns; d++) {
            const auto at = static_cast<size_t>(place * c.columns + d);
            const auto token = static_cast<size_t>(t * c.columns + d);
            const double x = a.tokens.get(t * c.columns + d);
            const double share = r.share(t, i % c.experts);
            want_sorted[at] = x;
            want_d[at] = share * x;
            sums[token] += share * made.get(place * c.columns + d);
            added[token] += made.get(place * c.columns + d);
            dot += x * made.get(place * c.columns + d);
        }
        want_routing.push_back(dot);
    }
    kit_compare(a.sorted.values(), want_sorted, {0, 0}, "sorted rows, case %d", which);
    const kit_tolerance close = {kit_rounding(format) + 2e-6, 5e-6};
    op.sorted = made;
    mcp_cuda_unpermute_backward(&op, kit_queue());
    kit_compare(a.d_sorted.values(), want_d, close, "d sorted, case %d", which);
    kit_compare(a.d_routing.values(), want_routing, {close.relative, 2e-5}, "d routing, case %d",
                which);
    op.tokens = a.gathered;
    mcp_cuda_unpermute(&op, kit_queue());
    kit_compare(a.gathered.values(), sums, close, "gathered rows, case %d", which);
    op.tokens = a.added;
    mcp_cuda_permute_backward(&op, kit_queue());
    kit_compare(a.added.values(), added, close, "added rows, case %d", which);
}

TEST(experts_rows)
{
    for (const routing_case &c : cases) {
        check_rows(c, MCP_CUDA_F32);
        check_rows(c, MCP_CUDA_BF16);
    }
}

/* A model that has come apart: no row has a place, and none is written out of place. */
TEST(experts_no_numbers)
{
    const routing_case c = {5, 40, 3, 8, 0, 0};
    kit_array logits(MCP_CUDA_F32, c.tokens * c.experts), bias(MCP_CUDA_F32, c.experts);
    kit_memory<int32_t> sizes(c.experts);
    routed r(c);
    rows a(c, MCP_CUDA_F32);
    logits.fill(NAN, 0, 1);
    route(c, logits, bias, &r);
    const struct mcp_cuda_permute op = {r.r,        a.tokens,    a.sorted,
                                        a.d_sorted, a.d_routing, c.columns};
    mcp_cuda_expert_counts(&r.r, sizes, kit_queue());
    mcp_cuda_permute(&op, kit_queue());
    mcp_cuda_unpermute(&op, kit_queue());
    kit_compare(sizes.values(), std::vector<double>(40, 0), {0, 0}, "counts");
    kit_compare(a.tokens.values(), std::vector<double>(40, 0), {0, 0}, "gathered rows");
}

TEST(experts_no_tokens)
{
    kit_memory<int32_t> sizes(3);
    const mcp_cuda_routing r = {nullptr, 0, 3, 1, 0};
    mcp_cuda_expert_counts(&r, sizes, kit_queue());
    kit_compare(sizes.values(), {0, 0, 0}, {0, 0}, "counts");
}
