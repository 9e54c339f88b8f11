/* planner/search_kinder.c: machines that are never slower than the real one, for bounds:
 * groups as near as they can lie, and of a mixed cluster the best of all pools. */
#include "planner/search_parts.h"

#include <limits.h>
#include <math.h>

static double rate_or_16_bit(const double *rates, int precision)
{
    return isfinite(rates[precision]) ? rates[precision] : rates[MCP_PRECISION_BF16];
}

static void take_attention(const struct mcp_gpu *other, struct mcp_gpu *best)
{
    for (int i = 0; i < best->num_attention_kernels; i++)
        for (int k = 0; k < other->num_attention_kernels; k++) {
            struct mcp_attention_kernel *to = &best->attention_kernels[i];
            const struct mcp_attention_kernel *from = &other->attention_kernels[k];
            to->forward_frac = fmax(to->forward_frac, from->forward_frac);
            to->backward_frac = fmax(to->backward_frac, from->backward_frac);
            to->ramp_tokens = fmin(to->ramp_tokens, from->ramp_tokens);
        }
}

static void take_gpu(const struct mcp_gpu *other, struct mcp_gpu *best)
{
    struct mcp_gpu sum = *best;
    for (int i = 0; i < MCP_NUM_PRECISIONS; i++) {
        sum.peak_flops_per_s[i] = fmax(rate_or_16_bit(best->peak_flops_per_s, i),
                                       rate_or_16_bit(other->peak_flops_per_s, i));
        sum.matmul_frac[i] =
            fmax(rate_or_16_bit(best->matmul_frac, i), rate_or_16_bit(other->matmul_frac, i));
    }
    sum.memory_bytes =
        best->memory_bytes > other->memory_bytes ? best->memory_bytes : other->memory_bytes;
    sum.memory_bandwidth_bytes_per_s =
        fmax(best->memory_bandwidth_bytes_per_s, other->memory_bandwidth_bytes_per_s);
    sum.sustained_clock_frac = fmax(best->sustained_clock_frac, other->sustained_clock_frac);
    sum.grouped_matmul_frac = fmax(best->grouped_matmul_frac, other->grouped_matmul_frac);
    sum.host_is_slow = best->host_is_slow && other->host_is_slow;
    sum.num_multiprocessors = 1; /* no wave is left partly empty */
    take_attention(other, &sum);
    *best = sum;
}

/* A pool without the tier has its last in its place. */
static const struct mcp_tier *tier_of(const struct mcp_cluster *cluster, int tier)
{
    return &cluster->tiers[tier < cluster->num_tiers ? tier : cluster->num_tiers - 1];
}

static void take_tiers(const struct mcp_cluster *other, struct mcp_cluster *best)
{
    int most = best->num_tiers > other->num_tiers ? best->num_tiers : other->num_tiers;
    struct mcp_cluster sum = *best;
    sum.num_tiers = most;
    for (int i = 0; i < most; i++) {
        const struct mcp_tier *a = tier_of(best, i), *b = tier_of(other, i);
        struct mcp_tier *to = &sum.tiers[i];
        *to = *a;
        to->ranks = a->ranks > b->ranks ? a->ranks : b->ranks;
        to->bandwidth_bytes_per_s = fmax(a->bandwidth_bytes_per_s, b->bandwidth_bytes_per_s);
        to->efficiency_frac = fmax(a->efficiency_frac, b->efficiency_frac);
        to->latency_s = fmin(a->latency_s, b->latency_s);
        to->round_trip_s = fmin(a->round_trip_s, b->round_trip_s);
        to->in_switch_reduction = a->in_switch_reduction || b->in_switch_reduction;
    }
    *best = sum;
}

/* Domains beyond INT_MAX hold everything all the same. */
static int times(int ranks, int factor)
{
    return ranks > INT_MAX / factor ? INT_MAX : ranks * factor;
}

/* Domains t times as large: then each axis has as much of one as if it came first. */
void mcp_kinder_question(const struct mcp_question *question, int tensor_parallel,
                         struct mcp_cluster *cluster, struct mcp_question *kinder)
{
    int gpus = mcp_cluster_gpus(question->cluster);
    *cluster = *question->cluster;
    for (const struct mcp_cluster *pool = cluster->next; pool != NULL; pool = pool->next) {
        take_gpu(&pool->gpu, &cluster->gpu);
        take_tiers(pool, cluster);
    }
    cluster->next = NULL;
    cluster->tiers[cluster->num_tiers - 1].ranks = gpus;
    for (int tier = 0; tier < cluster->num_tiers; tier++)
        cluster->tiers[tier].ranks = times(cluster->tiers[tier].ranks, tensor_parallel);
    *kinder = *question;
    kinder->cluster = cluster;
}
