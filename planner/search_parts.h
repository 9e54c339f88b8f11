/* planner/search_parts.h: the state of a search. Private to planner/search*.c.
 *
 * A tuple is a candidate without its recompute; a family is tuples that differ in
 * ZeRO, placement and rank order alone. Families are bounded loosely and sorted, then
 * looked into from the best bound on, in waves: what a wave finds lowers the bar for
 * the next. Waves are as long as they are whatever the number of threads, and are
 * joined in order, so nothing in the answer depends on threads. */
#ifndef MCP_PLANNER_SEARCH_PARTS_H
#define MCP_PLANNER_SEARCH_PARTS_H

#include "planner/bound.h"
#include "planner/search.h"

/* Plans that keep the article's rules, and those that break one of them. */
enum mcp_class { MCP_KEEPS_ALL, MCP_BREAKS_PIPELINE, MCP_BREAKS_BATCH, MCP_NUM_CLASSES };

struct mcp_loose;
struct mcp_loose_price;
struct mcp_near;

struct mcp_family {
    double bound; /* loose: nanoseconds, or bytes where they are the objective */
    const struct mcp_loose_price *loose; /* NULL: nothing is known */
    unsigned refuted; /* variants of the first rank order, bit by bit: the same in all orders */
    unsigned heavy;   /* likewise, those that need more memory than the best, where it counts */
    bool reached;     /* within the bar on the near machine, when it was looked into */
    int layout;
    int first; /* of its tuples, over all choices but ZeRO, placement and rank order */
};

struct mcp_families {
    struct mcp_family *items;
    size_t count, capacity;
};

/* A pricer and what belongs to it; layouts with equal tensor, context and expert
 * degrees share one, and so the prices of layers. For one thread at a time. */
struct mcp_desk {
    struct mcp_arena *arena, *scratch; /* NULL: not used yet */
    struct mcp_arena *wave;            /* what families gave, until it is joined; NULL: nothing */
    struct mcp_pricer *pricer;
    struct mcp_prediction *prediction;
    struct mcp_near *near;
    bool used; /* in the wave at hand */
};

enum mcp_tuple_state {
    MCP_TUPLE_BOUNDED, /* cannot win */
    MCP_TUPLE_REFUTED, /* memory: no split fits */
    MCP_TUPLE_FITS,    /* a plan was priced that fits */
    MCP_TUPLE_OPEN,    /* uniform plans do not fit, a split might; of schedules of which even
                          splits alone are looked at: bounded, not priced yet */
    MCP_TUPLE_COUNTED  /* refuted like that with the first rank order, and counted there */
};

struct mcp_tuple { /* looked into */
    enum mcp_tuple_state state;
    const char *refuted; /* what alone is too much */
    int layout;
    int64_t index; /* candidate of the layout with the first recompute */
    int64_t bound_ns;
    bool split, proven;           /* into its best stages; that there are no better ones; both
                                     from the start where layers are spread evenly alone */
    struct mcp_found found;       /* where it fits; without chunks where they are uniform */
    enum mcp_recompute recompute; /* of uniform chunks */
};

struct mcp_tuples {
    struct mcp_tuple *items;
    size_t count, capacity;
};

/* search_heap.c: the least bound first, of equals by layout and index. */
void mcp_tuples_push(struct mcp_arena *arena, struct mcp_tuples *heap,
                     const struct mcp_tuple *tuple);
struct mcp_tuple mcp_tuples_pop(struct mcp_tuples *heap);

struct mcp_lot { /* one layout */
    struct mcp_layout layout;
    struct mcp_choices choices; /* without chunks */
    int desk;
    int variants;                           /* tuples of a family */
    struct mcp_tuple best[MCP_NUM_CLASSES]; /* layout -1: none yet */
};

struct mcp_search {
    struct mcp_arena *arena;
    const struct mcp_question *question;
    const struct mcp_plan_space *space;
    const struct mcp_search_options *options;
    enum mcp_objective objective;
    bool unlimited; /* memory refuses nothing */
    /* The rule besides the article's that refuses a family, by its first plan; NULL: none.
     * Where it is NULL itself, nobody asks. */
    const char *(*refuse)(const void *context, const struct mcp_plan *plan);
    const void *refuse_context;
    bool recompute[MCP_NUM_RECOMPUTES]; /* allowed */
    bool stopped;                       /* asked to stop before all was settled */
    double open_ns;                     /* least bound of what was left open; INFINITY: nothing */
    int num_lots, num_desks, num_threads;
    struct mcp_lot *lots;
    struct mcp_desk *desks;
    struct mcp_families families[MCP_NUM_CLASSES];
    struct mcp_families even[MCP_NUM_CLASSES]; /* of which even splits alone are looked at, and
                                                  last: against what the others gave */
    struct mcp_tuples kept[MCP_NUM_CLASSES];   /* that a split may make the best */
    struct mcp_search_record record;
};

/* Below 0: `a` is better: by objective, then time and memory, then the smaller value
 * of the first knob that differs. */
int mcp_found_compare(enum mcp_objective objective, const struct mcp_found *a,
                      const struct mcp_found *b);
int mcp_plan_compare(const struct mcp_plan *a, const struct mcp_plan *b); /* the last of these */
void mcp_record_refuse(struct mcp_search_record *record, const char *rule, int64_t count);
/* Memory refuses; by: what alone is too much, NULL where it was priced. */
void mcp_record_refute(struct mcp_search_record *record, const char *by, int64_t count);
void mcp_record_sort(struct mcp_search_record *record);

/* search_tuples.c: lots, and families by class, legal and not dominated, ascending by
 * bound; counts what rules refuse. */
void mcp_search_enumerate(struct mcp_search *search);
/* What rules say of a plan without chunks; MCP_NUM_CLASSES: nobody asks for it. *refused: the
 * rule that is counted, NULL: none. */
enum mcp_class mcp_search_class(const struct mcp_search *search, const struct mcp_plan *plan,
                                const char **refused);
/* The family's plan with variant 0 <= k < lot->variants, no chunks. */
int64_t mcp_family_index(const struct mcp_lot *lot, const struct mcp_family *family, int variant);

/* search_kinder.c: the question on a machine that is never slower, of one pool. */
void mcp_kinder_question(const struct mcp_question *question, int tensor_parallel,
                         struct mcp_cluster *cluster, struct mcp_question *kinder);

/* search_loose.c: bounds on kinder machines. Turned to each tensor and context degree
 * in turn. */
struct mcp_loose *mcp_loose_new(struct mcp_search *search);
void mcp_loose_turn(struct mcp_loose *loose, const struct mcp_layout *layout);
void mcp_loose_free(struct mcp_loose *loose);
/* Sets bound and loose. */
void mcp_loose_bound(struct mcp_loose *loose, const struct mcp_plan *plan,
                     struct mcp_family *family);
const char *mcp_loose_refute(const struct mcp_family *family, const struct mcp_search *search,
                             const struct mcp_plan *plan);
/* Can the family end in time, within memory, if all it holds between steps is sharded? */
bool mcp_loose_reaches(const struct mcp_family *family, const struct mcp_search *search,
                       const struct mcp_plan *plan, int64_t time_ns);
/* pricer: of the real machine; lives as long. */
struct mcp_near *mcp_near_new(struct mcp_arena *arena, const struct mcp_pricer *pricer,
                              int tensor_parallel);
/* Can the slots of `plan` end in time in any rank order, memory aside? */
bool mcp_near_reaches(struct mcp_near *near, const struct mcp_plan *plan, const bool *recompute,
                      int64_t time_ns);

/* search_open.c. What cannot take less than cutoff_ns is bounded. */
struct mcp_look {
    const struct mcp_search *search;
    struct mcp_desk *desk;
    const struct mcp_lot *lot;
    int64_t cutoff_ns, cutoff_bytes; /* INT64_MAX: none */
    bool fixed;                      /* what is found does not lower them */
    int64_t priced, milps;           /* counted here */
};
/* What of the family cannot fit, however sharded; NULL: some tuple may. */
const char *mcp_family_refuted(const struct mcp_look *look, const struct mcp_family *family);
/* Can the family's slots alone end in time, in any rank order? */
bool mcp_family_reaches(const struct mcp_look *look, const struct mcp_family *family);
/* Looks into the variants with that order; out: [lot->variants / rank orders]. Where even
 * splits alone are looked at and time counts, they are bounded and left for mcp_look_even(). */
void mcp_look_into(struct mcp_look *look, struct mcp_family *family, int order,
                   struct mcp_tuple *out);
/* --- search_rows.c: schedules of which even splits alone are looked at --- */

/* Sets plan->rows where its schedule's name does not say them, as the search makes them: of
 * equal prices the same. Chunks are there; rows go to the arena. false: not
 * even a microbatch fits, or nothing can take less than cutoff_ns, which *bounded says. True at
 * once for the three schedules of whole backwards. */
struct mcp_rows_order {
    struct mcp_arena *arena;
    struct mcp_pricer *pricer;
    bool unlimited; /* memory refuses nothing */
    int64_t cutoff_ns;
};
bool mcp_search_order(const struct mcp_rows_order *order, struct mcp_plan *plan, bool *bounded);
/* What no rows, or no rows that are made here, beat; INT64_MAX: not even a microbatch fits. */
int64_t mcp_search_rows_bound_ns(const struct mcp_rows_order *order, const struct mcp_plan *plan);
/* The first broken rule besides the lack of such rows; NULL: none. */
const char *mcp_search_illegal(const struct mcp_question *question, const struct mcp_plan *plan);
/* mcp_rule_zb_v, or NULL. */
const char *mcp_search_stands_for(const struct mcp_search *search, const struct mcp_plan *plan);
/* Is an even split without recompute never slower than with, if it fits? Rows that are made hold
 * as much as there is room for: those of leaner microbatches may be faster. */
bool mcp_none_is_fastest(const struct mcp_search *search, const struct mcp_plan *plan);
/* search_open.c: prices the tuple's even splits that beat cutoff_ns. */
void mcp_look_even(struct mcp_look *look, struct mcp_tuple *tuple);
/* search_split.c: the tuple's best split that beats cutoff_ns. */
void mcp_look_split(struct mcp_look *look, int max_milps, struct mcp_tuple *tuple);
void mcp_desk_open(struct mcp_desk *desk, const struct mcp_question *question, int tensor_parallel);
void mcp_desks_close(struct mcp_search *search);

/* --- search_best.c: the best so far, and what others must beat --- */

/* What a tuple must beat to be of use: in time or bytes, by objective. */
struct mcp_bar {
    int64_t ns, bytes;
};
struct mcp_bar mcp_bar_at(const struct mcp_search *search, const struct mcp_found *found);
/* The last of the plans to keep; as far as anybody asks while there are fewer. */
struct mcp_bar mcp_common_bar(const struct mcp_search *search, int class, int top);
/* Plans that break a rule are of interest up to so many times the best that keeps all: 1 where
 * making rows is what the search takes longest for. */
double mcp_beyond_factor(const struct mcp_search *search);
/* A layout has to beat its own best too: only one of its plans is kept. */
struct mcp_bar mcp_bar_of(const struct mcp_search *search, const struct mcp_lot *lot, int class,
                          struct mcp_bar common);
/* The best tuples of different layouts, best first; returns how many, at most `top`. */
int mcp_leaders(const struct mcp_search *search, int class, int top,
                const struct mcp_tuple **order);
/* Into `arena`. */
void mcp_search_answer(struct mcp_arena *arena, const struct mcp_search *search,
                       struct mcp_answer *out);

/* search_record.c: what was found, with chunks and rows of its own in `arena`. */
struct mcp_found mcp_search_keep(struct mcp_arena *arena, const struct mcp_question *question,
                                 const struct mcp_tuple *tuple, bool unlimited);

#endif
