/* planner/split_parts.h: what the files of planner/split*.c share. Private to them.
 *
 * A grid has ranks 0 .. p-1 and positions 0 .. length; a column takes one rank from
 * a position to another, and a split is a chain of columns from (0, 0) to (p, length).
 * Positions count layers; with virtual stages, larger chunks. */
#ifndef MCP_PLANNER_SPLIT_PARTS_H
#define MCP_PLANNER_SPLIT_PARTS_H

#include "planner/split.h"

/* One way to fill a rank. */
struct mcp_column {
    int rank, from, size;
    bool recomputes;
    const struct mcp_chunk *chunks;  /* [v]; first_layer is not set */
    const struct mcp_stage **stages; /* [v] */
    int64_t load_ns;                 /* all slots of one microbatch */
    int64_t head_ns, tail_ns;        /* data-parallel edges of the step */
    int64_t update_ns;
};

struct mcp_grid {
    int p, v, m, length;
    bool counted; /* layers are alike: a column of some size may begin anywhere */
    bool cut;     /* columns are missing that fit, but cannot be faster than the cutoff */
    bool partial; /* columns are missing that might be faster: bounds say less */
    struct mcp_column *columns;
    int count;
    size_t room;
    int *first; /* [p + 1] of each rank's columns */
};

/* What layers of each kind cost in one pool, and recompute adds. Sums are exact times
 * of compute, and no more than what is kept. */
struct mcp_layer_times {
    int64_t layer_ns[MCP_MAX_LAYER_KINDS];
    int64_t extra_ns[MCP_MAX_LAYER_KINDS][MCP_NUM_RECOMPUTES];
    int64_t kept_bytes[MCP_MAX_LAYER_KINDS][MCP_NUM_RECOMPUTES];
};

/* What one call of mcp_split_best() works on. */
struct mcp_splitter {
    struct mcp_arena *arena; /* of the call */
    struct mcp_pricer *pricer;
    const struct mcp_question *question;
    const struct mcp_plan *plan;
    const struct mcp_split_options *options;
    int64_t fixed_ns;
    int64_t cutoff_ns; /* of the whole step: as long or longer is not wanted */
    struct mcp_grid grid;
    /* set by mcp_layer_times() */
    struct mcp_layer_times times[MCP_MAX_POOLS]; /* those with a stage */
    int64_t base_ns[2]; /* embedding, of the first stage; head, of the last */
    int64_t base_kept_bytes;
    int64_t *layers_ns[1 << MCP_MAX_POOLS]; /* see mcp_layers_ns() */
};

/* --- columns: split_columns.c (v = 1), split_chunks.c (v > 1), split_price.c,
 * split_times.c --- */

/* Fills the grid: with what a first answer needs, or with all that can be faster
 * than the cutoff. The filler remembers prices from call to call. */
struct mcp_filler;
struct mcp_filler *mcp_filler_new(struct mcp_splitter *s);
void mcp_fill_columns(struct mcp_splitter *s, struct mcp_filler *filler, bool first);
struct mcp_chunk_filler;
/* Which layers the first chunks hold depends on which of them are larger: of so many
 * where layers of another kind come first. -1: too many to tell apart. */
enum { MCP_MOST_LEADS = 4 };
int mcp_num_leads(const struct mcp_splitter *s);
/* leads -1: layers spread as mcp_plan_uniform_chunks() does. */
struct mcp_chunk_filler *mcp_chunk_filler_new(struct mcp_splitter *s, int leads);
/* Of these first chunks, those of `larger` are, bit by bit; false: there is no such split. */
bool mcp_chunk_filler_turn(struct mcp_splitter *s, struct mcp_chunk_filler *filler,
                           unsigned larger);
void mcp_fill_chunk_columns(struct mcp_splitter *s, struct mcp_chunk_filler *filler, bool first);

/* Once, before all else. Where one stage holds all, its layers' times are in the base. */
void mcp_layer_times(struct mcp_splitter *s);
/* [layers + 1] compute of the layers before, without recompute, in the pool of these
 * ranks that is best for each. */
const int64_t *mcp_layers_ns(struct mcp_splitter *s, int first_rank, int last_rank);
/* Some rank computes as long for a microbatch, whatever the split. */
int64_t mcp_share_ns(struct mcp_splitter *s);
int mcp_pool_of(const struct mcp_splitter *s, int rank);
/* Bytes that a rank may hold. */
int64_t mcp_rank_limit(const struct mcp_splitter *s, int rank);
/* By virtual stage: those of one class differ in nothing but their layers. */
int *mcp_stage_classes(struct mcp_splitter *s, int *num_classes);
bool mcp_layers_alike(const struct mcp_model *model);
/* load, head, tail, from the column's stages. */
void mcp_column_price(struct mcp_splitter *s, struct mcp_column *column);
/* Without virtual stages: how much of its tail longer backwards would hide. */
int64_t mcp_column_hideable(struct mcp_splitter *s, const struct mcp_column *column);
/* Does rank `column->rank` hold it? */
bool mcp_column_fits(struct mcp_splitter *s, const struct mcp_column *column);
/* Appends it, unless another of its rank, place and size is as good in everything. */
void mcp_grid_add(struct mcp_splitter *s, const struct mcp_column *column);
void mcp_grid_begin(struct mcp_splitter *s, int length, bool counted);
void mcp_grid_end(struct mcp_splitter *s); /* columns came in order of rank */

/* --- paths through the step: split_path.c --- */

/* A chain of slots, each after the one before or after its message. Whatever the
 * split, the step takes as long as any path; the longest is its time. */
struct mcp_path {
    int *slots[2];             /* forward, backward: [p v] on the path */
    int *waits[2];             /* ... of them entered by their message */
    int first_rank, last_rank; /* whose head and tail are on it; -1: none */
};

/* To rank r, all its slots, and back to rank 0. */
struct mcp_path mcp_path_through(struct mcp_arena *arena, const struct mcp_plan *plan, int m,
                                 int r);
/* The first microbatch through all ranks and back to rank r, and its slots from there.
 * With one chunk a rank, until the last forward; then that microbatch through all
 * ranks. Back to rank 0. */
struct mcp_path mcp_path_dwell(struct mcp_arena *arena, const struct mcp_plan *plan, int m, int r);
/* Part of all of these: every virtual stage once, forward; with one chunk backward too. */
struct mcp_path mcp_path_common(struct mcp_arena *arena, const struct mcp_plan *plan);
/* They may as well begin on rank r, unless they dwell on a rank before it: what they
 * gain (its head), and lose (forwards before it). The same for their end. */
struct mcp_path mcp_path_gain(struct mcp_arena *arena, const struct mcp_plan *plan, int r,
                              bool end);
struct mcp_path mcp_path_loss(struct mcp_arena *arena, const struct mcp_plan *plan, int r,
                              bool end);
/* The longest of a split: columns[p]. */
struct mcp_path mcp_path_longest(struct mcp_arena *arena, const struct mcp_plan *plan, int m,
                                 const struct mcp_column *const *columns);
/* The part of a path's time that one column decides. */
int64_t mcp_path_ns(const struct mcp_grid *grid, const struct mcp_path *path,
                    const struct mcp_column *column);

/* --- dynamic programmes over the grid: split_grid.c --- */

#define MCP_NO_WAY (INT64_MAX / 4)

/* ahead[(p + 1) x (length + 1)]: least weight from (0, 0); MCP_NO_WAY where none.
 * weights[columns], MCP_NO_WAY: not that column. */
void mcp_grid_ahead(const struct mcp_grid *grid, const int64_t *weights, int64_t *ahead);
void mcp_grid_behind(const struct mcp_grid *grid, const int64_t *weights, int64_t *behind);
/* The same for the largest weight instead of the sum; -MCP_NO_WAY: of none. */
void mcp_grid_worst_ahead(const struct mcp_grid *grid, const int64_t *weights, const int64_t *after,
                          int64_t *ahead);
void mcp_grid_worst_behind(const struct mcp_grid *grid, const int64_t *weights,
                           const int64_t *after, int64_t *behind);
/* The least largest weight. `after`, NULL or as `behind`: what weighs on a column too,
 * by its rank and where it ends. */
int64_t mcp_grid_bottleneck(struct mcp_arena *arena, const struct mcp_grid *grid,
                            const int64_t *weights, const int64_t *after);
/* The chain of least weight, of those whose largest other weight is no more than the
 * limit's (NULL: all). False when there is none. */
struct mcp_limit {
    const int64_t *weights, *after;
    int64_t most;
};
bool mcp_grid_chain(struct mcp_arena *arena, const struct mcp_grid *grid, const int64_t *weights,
                    const struct mcp_limit *limit, const struct mcp_column **chain);

/* --- bounds and the integer programme: split_bound.c, split_ilp.c --- */

/* Paths that dwell on rank `first` or a later one may begin and end on ranks up to it. */
struct mcp_dwell {
    int first;
    int64_t rest_ns; /* above the common path: as much for the longest of them */
    struct mcp_path gains[2][4], losses[2][4]; /* by begin and end, rank 0 .. first */
};
#define MCP_MAX_DWELLS 3 /* first 0, 1, 3 */

/* What is known of all splits that may be faster than the cutoff. */
struct mcp_master {
    int64_t update_ns;                        /* the longest update takes as long */
    int64_t least_ns;                         /* the pipeline takes as long */
    struct mcp_path common, *through, *paths; /* [p] mcp_path_through(), mcp_path_dwell() */
    struct mcp_dwell dwells[MCP_MAX_DWELLS];
    int num_dwells;
    struct mcp_path *cuts;
    size_t num_cuts, room;
};

/* Drops columns that cannot beat the cutoff. False when no chain is left, else
 * chains[0] has the least largest load, chains[1] the least longest rest. */
bool mcp_master_bound(struct mcp_splitter *s, struct mcp_master *master,
                      const struct mcp_column **chains[2]);
void mcp_master_cut(struct mcp_splitter *s, struct mcp_master *master, struct mcp_path path);
/* What the master knows of a chain: nanoseconds of the step, at least. */
int64_t mcp_master_ns(const struct mcp_splitter *s, const struct mcp_master *master,
                      const struct mcp_column *const *chain);

struct mcp_master_result {
    bool solved;          /* chain is set */
    bool optimal;         /* ... to the one of the least mcp_master_ns() */
    int64_t objective_ns; /* what GLPK says of the chain: no more than it takes */
    int64_t bound_ns;     /* no chain takes less; the cutoff where none takes less than that */
    int nodes;
};
void mcp_master_solve(struct mcp_splitter *s, const struct mcp_master *master,
                      const struct mcp_column **chain, struct mcp_master_result *out);

#endif
