/* step/synthesis_parts.h: the state of one synthesis. Private to step/synthesis*.c. */
#ifndef MCP_STEP_SYNTHESIS_PARTS_H
#define MCP_STEP_SYNTHESIS_PARTS_H

#include "step/synthesis.h"

#include <stddef.h>

/* Slots that rows are made of. */
enum mcp_synth_pass { MCP_SYNTH_F, MCP_SYNTH_B, MCP_SYNTH_W, MCP_SYNTH_PASSES };

struct mcp_synth_slot {
    int pass; /* enum mcp_synth_pass */
    int chunk, microbatch;
};

struct mcp_synth { /* p ranks of v chunks, m microbatches */
    const struct mcp_synthesis *problem;
    struct mcp_arena *scratch;
    int p, v, m;
    int ordered;                          /* 2 v m: forwards and backwards of a rank */
    int length;                           /* 3 v m: all slots of a rank */
    int *rank_of, *chunk_of;              /* [p v] by virtual stage */
    int *stage_of;                        /* [p][v] */
    int64_t (*pass_ns)[MCP_SYNTH_PASSES]; /* [p v] */
    /* [p v] from the end of F and B to when their consumer can start: less its lead. */
    int64_t (*delay_ns)[2];
    int64_t work; /* slots played so far */
    /* From where on what list scheduling gives is of no use, with a barrier; INT64_MAX. */
    int64_t give_up_ns;

    /* The order that list scheduling follows: forwards and backwards of each rank. */
    int *position;  /* [p][2][v][m] */
    int64_t *level; /* [p][ordered] bytes kept there, were each W run at once */
    int64_t *date;  /* [p][2][v][m] by which the order is sorted */

    struct mcp_synth_slot *played;   /* [p][length] what list scheduling gave */
    int64_t *start, *latest;         /* [p][3][v][m] of rows last timed */
    struct mcp_synth_greedy *greedy; /* state of list scheduling */
};

/* How list scheduling chooses. */
struct mcp_synth_policy {
    int slack;    /* a W may delay the next arrival by so many percent of itself */
    int patience; /* wait so many percent of a forward for what comes first in the order */
    int window;   /* run what is so far ahead in the order */
};

static inline size_t mcp_synth_at(const struct mcp_synth *s, int passes, int rank,
                                  struct mcp_synth_slot slot)
{
    size_t row = ((size_t)rank * (size_t)passes + (size_t)slot.pass) * (size_t)s->v;
    return (row + (size_t)slot.chunk) * (size_t)s->m + (size_t)slot.microbatch;
}
static inline size_t mcp_synth_ordered(const struct mcp_synth *s, int rank,
                                       struct mcp_synth_slot slot)
{
    return mcp_synth_at(s, 2, rank, slot);
}
static inline size_t mcp_synth_timed(const struct mcp_synth *s, int rank,
                                     struct mcp_synth_slot slot)
{
    return mcp_synth_at(s, MCP_SYNTH_PASSES, rank, slot);
}
static inline int mcp_synth_stage(const struct mcp_synth *s, int rank, int chunk)
{
    return s->stage_of[rank * s->v + chunk];
}
static inline int64_t mcp_synth_slot_ns(const struct mcp_synth *s, int rank,
                                        struct mcp_synth_slot slot)
{
    return s->pass_ns[mcp_synth_stage(s, rank, slot.chunk)][slot.pass];
}
/* By how much the slot changes what its rank keeps. */
int64_t mcp_synth_change_bytes(const struct mcp_synth *s, int stage, int pass);

/* --- synthesis_order.c --- */

/* A period in parts; how long a microbatch stays at a stage, by pass and chunk of even and
 * odd number; what lies between its last forward and first backward. */
struct mcp_synth_pattern {
    int64_t period;
    int64_t stay[2][2];
    int64_t gap;
};
/* Do all ranks keep their limits, were each W run at once? */
bool mcp_synth_pattern_fits(struct mcp_synth *s, const struct mcp_synth_pattern *pattern);
/* Sets position and level; false where they do not fit. */
bool mcp_synth_order_by_pattern(struct mcp_synth *s, const struct mcp_synth_pattern *pattern);
bool mcp_synth_order_by_date(struct mcp_synth *s);
/* The published order of ZB-V into `rows`, all ranks. v must be 2, the placement V. */
void mcp_synth_zb_v(const struct mcp_synth *s, struct mcp_synth_slot *rows);

/* --- synthesis_greedy.c --- */

struct mcp_synth_greedy *mcp_synth_greedy_new(const struct mcp_synth *s);
/* Sets played; returns what it takes, INT64_MAX where it came to a stop or gave up. */
int64_t mcp_synth_play(struct mcp_synth *s, const struct mcp_synth_policy *policy);

/* --- synthesis_times.c --- */

struct mcp_synth_result {
    int64_t time_ns; /* INT64_MAX: rows cannot be played */
    int64_t sum_ns;  /* of all ranks' */
    int worst;       /* rank */
};
/* Sets start. */
struct mcp_synth_result mcp_synth_time(struct mcp_synth *s, const struct mcp_synth_slot *rows);
/* Sets latest: starts of rows that mcp_synth_time() timed, with which time_ns is kept. */
void mcp_synth_latest(struct mcp_synth *s, const struct mcp_synth_slot *rows, int64_t time_ns);
/* Could rows take no more than time_ns, were slots index and index + 1 of the rank swapped?
 * By starts and latest starts for that time: the longest way through the two. */
bool mcp_synth_swap_pays(const struct mcp_synth *s, int rank, const struct mcp_synth_slot *row,
                         int index, int64_t time_ns);
/* Do rows of `rank` keep its limit? */
bool mcp_synth_fits(const struct mcp_synth *s, int rank, const struct mcp_synth_slot *row);

/* --- synthesis_repair.c --- */

/* Swaps neighbours on the critical path while that helps and work is left. */
int64_t mcp_synth_repair(struct mcp_synth *s, struct mcp_synth_slot *rows, int64_t max_work);

#endif
