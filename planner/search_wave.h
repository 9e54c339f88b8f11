/* planner/search_wave.h: families or tuples that are looked at side by side, then joined in
 * order. Private to planner/search.c and planner/search_run.c. */
#ifndef MCP_PLANNER_SEARCH_WAVE_H
#define MCP_PLANNER_SEARCH_WAVE_H

#include "planner/search_parts.h"

enum { MCP_LONGEST_WAVE = 64 };

enum mcp_wave_kind {
    MCP_WAVE_FIRST_ORDER,  /* families, in their first rank order */
    MCP_WAVE_OTHER_ORDERS, /* and in all others */
    MCP_WAVE_SPLITS,       /* tuples */
    MCP_WAVE_EVEN_SPLITS   /* tuples of schedules of which these alone are looked at */
};

struct mcp_wave {
    struct mcp_search *search;
    int class;
    struct mcp_bar bar;
    enum mcp_wave_kind kind;
    int count;
    struct mcp_families *all;    /* that waves are made of */
    struct mcp_family *families; /* [count] */
    struct mcp_tuple *splits;    /* [count] */
    int most_milps;              /* of each of them */
    double each_s;               /* of the wave before, that one of them took */
    /* what each gave */
    struct mcp_tuple *tuples[MCP_LONGEST_WAVE];
    int num_tuples[MCP_LONGEST_WAVE];
    const char *refuted[MCP_LONGEST_WAVE]; /* the whole family, by memory */
    bool skipped[MCP_LONGEST_WAVE];        /* told to stop before */
    int64_t priced[MCP_LONGEST_WAVE], milps[MCP_LONGEST_WAVE];
};

/* Looks at all of the wave and joins what that gave. */
void mcp_wave_run(struct mcp_wave *wave);
/* In the record, where the wave's plans keep all rules. */
void mcp_wave_count(struct mcp_wave *wave, const struct mcp_tuple *tuple);
/* Tuples of the family that the wave's kind has to count. */
int mcp_wave_to_count(const struct mcp_wave *wave, const struct mcp_family *family);
/* Something that keeps the rules and takes no less than this was not settled. */
void mcp_wave_leave_open(const struct mcp_wave *wave, double bound_ns);

/* Are uniform plans not the last word? */
bool mcp_search_splits(const struct mcp_search *search);
/* Has anybody asked to stop? */
bool mcp_search_told_to_stop(const struct mcp_search *search);

/* search_run.c: all classes, each to its end. */
void mcp_search_run(struct mcp_search *search);

#endif
