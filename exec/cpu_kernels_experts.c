/* exec/cpu_kernels_experts.c: which experts a token goes to, and its rows on their way.
 *
 * Routing values: step/facts.h. Rows are sorted by expert, then by token; a token's row of
 * an expert is found by counting. Shares of the chosen experts are their probabilities
 * (softmax over all experts), divided by their sum unless they stay raw. */
#include "exec/cpu_kernels_math.h"
#include "exec/cpu_kernels_parts.h"

#include <math.h>

static void soften(int64_t count, float *x)
{
    float largest = x[0], sum = 0;
    for (int64_t i = 1; i < count; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < count; i++)
        x[i] = mcp_expf(x[i] - largest);
    for (int64_t i = 0; i < count; i++)
        sum += x[i];
    for (int64_t i = 0; i < count; i++)
        x[i] /= sum;
}

/* The `chosen` largest get shares, ties to the lower number; the others -1. */
static void choose(const struct mcp_layer_facts *facts, const float *probabilities, float *shares)
{
    float sum = 0;
    for (int64_t i = 0; i < facts->num_experts; i++)
        shares[i] = -1;
    for (int64_t k = 0; k < facts->experts_per_token; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < facts->num_experts; i++)
            if (shares[i] < 0 && (best < 0 || probabilities[i] > probabilities[best]))
                best = i;
        shares[best] = probabilities[best];
        sum += probabilities[best];
    }
    for (int64_t i = 0; i < facts->num_experts; i++)
        if (shares[i] >= 0 && !facts->raw_top_k)
            shares[i] /= sum;
}

/* reads logits, bias if any; writes routing */
void mcp_cpu_router_top_k(const struct mcp_launch *launch)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    int64_t tokens = launch->op->dims[0], experts = launch->op->dims[1];
    struct mcp_view logits = mcp_read_view(launch, 0), bias = {0};
    float *routing = launch->writes[0];
    if (launch->op->weight != MCP_NO_WEIGHT)
        bias = mcp_weight_view(launch, 1, 0);
#pragma omp parallel for schedule(static) if (tokens * experts > MCP_SERIAL)
    for (int64_t token = 0; token < tokens; token++) {
        float *row = routing + token * experts, room[MCP_CHUNK];
        for (int64_t c = 0; c < experts; c += MCP_CHUNK) {
            int count = mcp_chunk(experts - c);
            memcpy(row + c, mcp_get(logits, token * experts + c, count, room),
                   (size_t)count * sizeof *row);
            const float *more = bias.data == NULL ? NULL : mcp_get(bias, c, count, room);
            for (int i = 0; more != NULL && i < count; i++)
                row[c + i] += more[i];
        }
        soften(experts, row);
        choose(facts, row, routing + (tokens + token) * experts);
    }
}

/* Through the division by the sum, then through the softmax: d is the gradient of shares,
 * becomes that of logits. */
static void back_row(const struct mcp_layer_facts *facts, const float *p, const float *shares,
                     float *d)
{
    int64_t experts = facts->num_experts;
    float sum = 0, inner = 0, product = 0;
    for (int64_t i = 0; i < experts; i++) {
        d[i] = shares[i] < 0 ? 0 : d[i];
        sum += shares[i] < 0 ? 0 : p[i];
        inner += shares[i] < 0 ? 0 : d[i] * shares[i];
    }
    for (int64_t i = 0; i < experts && !facts->raw_top_k; i++)
        d[i] = shares[i] < 0 ? 0 : (d[i] - inner) / sum;
    for (int64_t i = 0; i < experts; i++)
        product += d[i] * p[i];
    for (int64_t i = 0; i < experts; i++)
        d[i] = p[i] * (d[i] - product);
}

/* reads d_routing [tokens][experts], routing; writes d_logits, the bias's gradient if any */
void mcp_cpu_router_top_k_backward(const struct mcp_launch *launch)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    const struct mcp_routing r = mcp_routing_of(launch, 1);
    struct mcp_view from = mcp_read_view(launch, 0), to = mcp_write_view(launch, 0);
    int64_t experts = r.experts;
#pragma omp parallel for schedule(static) if (r.tokens * experts > MCP_SERIAL)
    for (int64_t token = 0; token < r.tokens; token++) {
        float room[MCP_MAX_ROUTED], d[MCP_MAX_ROUTED];
        memcpy(d, mcp_get(from, token * experts, (int)experts, room), (size_t)experts * sizeof *d);
        back_row(facts, r.probabilities + token * experts, r.shares + token * experts, d);
        mcp_put(to, token * experts, (int)experts, d);
    }
    if (launch->op->weight != MCP_NO_WEIGHT)
        mcp_add_column_sums(to, r.tokens, experts, experts, mcp_gradient_view(launch, 1, 0));
}

/* reads routing; writes sizes: rows of this rank for each expert, [experts]. The second
 * half, what others have for its experts, is the backend's; a rank alone has the same. */
void mcp_cpu_expert_counts(const struct mcp_launch *launch)
{
    const struct mcp_routing r = mcp_routing_of(launch, 0);
    int32_t *sizes = launch->writes[0];
    memset(sizes, 0, (size_t)r.experts * sizeof *sizes);
    for (int64_t i = 0; i < r.tokens * r.experts; i++)
        sizes[i % r.experts] += r.shares[i] >= 0;
    memcpy(sizes + r.experts, sizes, (size_t)r.experts * sizeof *sizes);
}

/* --- rows: one expert after the other, and in each by token --- */

static int64_t rows_before(const struct mcp_routing *r, int64_t expert)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < r->tokens * r->experts; i++)
        rows += i % r->experts < expert && r->shares[i] >= 0;
    return rows;
}

/* A copy of each token's row for each of its experts: reads norm, routing; writes sorted. */
void mcp_cpu_permute(const struct mcp_launch *launch)
{
    const struct mcp_routing r = mcp_routing_of(launch, 1);
    struct mcp_view from = mcp_read_view(launch, 0), to = mcp_write_view(launch, 0);
    int64_t columns = launch->op->dims[1], size = from.dtype == MCP_F32 ? 4 : 2;
#pragma omp parallel for schedule(dynamic) if (r.tokens * columns > MCP_SERIAL)
    for (int64_t expert = 0; expert < r.experts; expert++) {
        int64_t row = rows_before(&r, expert);
        for (int64_t token = 0; token < r.tokens; token++) {
            if (r.shares[token * r.experts + expert] < 0)
                continue;
            memcpy(mcp_view_at(to, row * columns).data, mcp_view_at(from, token * columns).data,
                   (size_t)(columns * size));
            row++;
        }
    }
}

/* to[row] = share x from[token]; returns from[token] . with[row] */
static float share_row(const struct mcp_view views[3], int64_t token, int64_t row, int64_t columns,
                       float share)
{
    float dot = 0;
    for (int64_t c = 0; c < columns; c += MCP_CHUNK) {
        float rooms[3][MCP_CHUNK];
        int count = mcp_chunk(columns - c);
        const float *from = mcp_get(views[0], token * columns + c, count, rooms[0]);
        const float *with = mcp_get(views[1], row * columns + c, count, rooms[1]);
        float *to = mcp_room(views[2], row * columns + c, rooms[2]);
#pragma omp simd reduction(+ : dot)
        for (int i = 0; i < count; i++)
            dot += from[i] * with[i];
        for (int i = 0; i < count; i++)
            to[i] = share * from[i];
        mcp_put(views[2], row * columns + c, count, to);
    }
    return dot;
}

/* reads d_branch [tokens][columns], routing, combined [rows][columns]; writes d_combined,
 * d_routing [tokens][experts] */
void mcp_cpu_unpermute_backward(const struct mcp_launch *launch)
{
    const struct mcp_routing r = mcp_routing_of(launch, 1);
    const struct mcp_view views[3] = {mcp_read_view(launch, 0), mcp_read_view(launch, 2),
                                      mcp_write_view(launch, 0)};
    struct mcp_view d_routing = mcp_write_view(launch, 1);
    int64_t columns = launch->op->dims[1];
#pragma omp parallel for schedule(dynamic) if (r.tokens * columns > MCP_SERIAL)
    for (int64_t expert = 0; expert < r.experts; expert++) {
        int64_t row = rows_before(&r, expert);
        for (int64_t token = 0; token < r.tokens; token++) {
            float share = r.shares[token * r.experts + expert], dot = 0;
            if (share >= 0)
                dot = share_row(views, token, row++, columns, share);
            mcp_put(d_routing, token * r.experts + expert, 1, &dot);
        }
    }
}

/* sums[token] = what is there if `adds`, plus share (or 1) x rows of its experts, columns
 * [first, first + count) */
static void gather_rows(const struct mcp_routing *r, const struct mcp_view views[2],
                        int64_t columns, int64_t first, bool adds)
{
    int64_t next[MCP_MAX_ROUTED] = {0};
    int count = mcp_chunk(columns - first);
    for (int64_t i = 0; i < r->tokens * r->experts; i++)
        if (i % r->experts + 1 < r->experts)
            next[i % r->experts + 1] += r->shares[i] >= 0;
    for (int64_t i = 1; i < r->experts; i++)
        next[i] += next[i - 1];
    for (int64_t token = 0; token < r->tokens; token++) {
        float sum[MCP_CHUNK] = {0}, room[MCP_CHUNK];
        for (int64_t expert = 0; expert < r->experts; expert++) {
            float share = r->shares[token * r->experts + expert];
            if (share < 0)
                continue;
            const float *from = mcp_get(views[0], next[expert]++ * columns + first, count, room);
            for (int i = 0; i < count; i++)
                sum[i] += (adds ? 1 : share) * from[i];
        }
        if (adds)
            mcp_add_to(views[1], token * columns + first, count, sum);
        else
            mcp_put(views[1], token * columns + first, count, sum);
    }
}

/* The weighted sum of what a token's experts made of it: reads combined, routing. */
void mcp_cpu_unpermute(const struct mcp_launch *launch)
{
    const struct mcp_routing r = mcp_routing_of(launch, 1);
    const struct mcp_view views[2] = {mcp_read_view(launch, 0), mcp_write_view(launch, 0)};
    int64_t columns = launch->op->dims[1];
#pragma omp parallel for schedule(static) if (r.tokens * columns > MCP_SERIAL)
    for (int64_t first = 0; first < columns; first += MCP_CHUNK)
        gather_rows(&r, views, columns, first, false);
}

/* reads gradients of sorted rows, routing, d_norm; adds the first to the last, in place */
void mcp_cpu_permute_backward(const struct mcp_launch *launch)
{
    const struct mcp_routing r = mcp_routing_of(launch, 1);
    const struct mcp_view views[2] = {mcp_read_view(launch, 0), mcp_write_view(launch, 0)};
    int64_t columns = launch->op->dims[1];
#pragma omp parallel for schedule(static) if (r.tokens * columns > MCP_SERIAL)
    for (int64_t first = 0; first < columns; first += MCP_CHUNK)
        gather_rows(&r, views, columns, first, true);
}
