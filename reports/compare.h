/* reports/compare.h: two timelines of one step, op by op.
 *
 * Spans join by (rank, slot, entry, op). A timeline in which equal ranks stand for each other
 * is compared with one that has every rank: each rank is looked up in both. Differences are
 * B less A. Sums by kind of op are means over the ranks compared. */
#ifndef MCP_REPORTS_COMPARE_H
#define MCP_REPORTS_COMPARE_H

#include "step/account.h"

struct mcp_compare_kind {
    const char *name;     /* of the function; transfers with their stream: "all_reduce (data)" */
    int64_t num_both;     /* spans that both have, of all ranks compared */
    double a_s, b_s;      /* their seconds, mean over ranks */
    int64_t num_a, num_b; /* spans that one alone has */
    double only_a_s, only_b_s;
};
/* b_s / a_s; NaN where A's is 0. */
double mcp_compare_ratio(const struct mcp_compare_kind *kind);

/* One op of one rank. */
struct mcp_compare_pair {
    int rank;
    const struct mcp_timeline_span *a, *b;
};

struct mcp_compare {
    const struct mcp_timeline *a, *b;
    struct mcp_timeline_ends ends_a, ends_b;
    int num_ranks; /* that both have */
    const int *ranks;
    int num_only_a, num_only_b; /* ranks that one alone has */
    /* Keys that both have, for other functions, passes, layers or microbatches: in one alone. */
    int64_t num_other;
    int num_kinds;
    const struct mcp_compare_kind *kinds; /* the largest difference first */
    struct mcp_compare_kind all;          /* their sums */
    double gross_s;                       /* sum of the kinds' differences without their signs */
    int num_worst;
    const struct mcp_compare_pair *worst; /* the largest difference first */
    int64_t until_ns; /* accounts go so far, as one timeline holds no more; 0: the whole step */
    const struct mcp_account *accounts_a, *accounts_b; /* [num_ranks] */
    struct mcp_account mean_a, mean_b;                 /* over those ranks */
};

/* `most_worst`: spans to keep. MCP_INVALID when no rank, or no op, is in both. */
enum mcp_status mcp_compare(struct mcp_arena *arena, const struct mcp_timeline *a,
                            const struct mcp_timeline *b, int most_worst, struct mcp_compare *out,
                            struct mcp_error *err);

/* The rank whose spans are those of `rank`; -1: the timeline does not have it. */
int mcp_timeline_find_rank(const struct mcp_timeline *timeline, int rank);
/* Its spans; `*count` is 0 when there are none. */
const struct mcp_timeline_span *mcp_timeline_spans_of(const struct mcp_timeline *timeline, int rank,
                                                      size_t *count);

#endif
