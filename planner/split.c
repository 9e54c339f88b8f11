/* planner/split.c: the loop: bound, solve, price exactly, learn the longest path. */
#include "planner/split_parts.h"

#include <string.h>

/* Slots of a step whose longest path is looked for. */
enum { MAX_SLOTS = 1 << 22 };

/* The best split so far. */
struct best {
    bool any;
    int64_t time_ns;
    struct mcp_column *columns; /* [p] */
};

static int64_t exact_ns(struct mcp_splitter *s, const struct mcp_column *const *chain)
{
    int p = s->grid.p, v = s->grid.v;
    struct mcp_mark mark = mcp_arena_mark(s->arena);
    const struct mcp_stage **stages = MCP_ARRAY(s->arena, p * v, const struct mcp_stage *);
    for (int k = 0; k < p * v; k++)
        stages[k] = chain[k % p]->stages[k / p];
    int64_t time_ns = mcp_stages_time_ns(s->pricer, s->plan, stages);
    mcp_arena_rewind(s->arena, mark);
    return time_ns;
}

static bool allowed(const struct mcp_splitter *s, const struct mcp_column *const *chain)
{
    int recomputed = 0, most = s->options->max_recomputed_stages;
    for (int r = 0; r < s->grid.p; r++)
        recomputed += chain[r]->recomputes;
    return most < 0 || recomputed <= most;
}

/* Prices a chain; true when it is the best so far. */
static bool try_chain(struct mcp_splitter *s, struct best *best,
                      const struct mcp_column *const *chain)
{
    int64_t time_ns = exact_ns(s, chain);
    if (!allowed(s, chain) || time_ns >= s->cutoff_ns)
        return false;
    best->any = true;
    best->time_ns = s->cutoff_ns = time_ns;
    for (int r = 0; r < s->grid.p; r++)
        best->columns[r] = *chain[r];
    return true;
}

/* The least largest load, then the least sum of loads. */
static void try_balanced(struct mcp_splitter *s, struct best *best)
{
    struct mcp_mark mark = mcp_arena_mark(s->arena);
    const struct mcp_column **chain = MCP_ARRAY(s->arena, s->grid.p, const struct mcp_column *);
    int64_t *loads = MCP_ARRAY(s->arena, s->grid.count, int64_t);
    for (int i = 0; i < s->grid.count; i++)
        loads[i] = s->grid.columns[i].load_ns;
    int64_t least = mcp_grid_bottleneck(s->arena, &s->grid, loads, NULL);
    for (int i = 0; i < s->grid.count; i++)
        loads[i] = loads[i] <= least ? loads[i] : MCP_NO_WAY;
    if (mcp_grid_chain(s->arena, &s->grid, loads, NULL, chain))
        try_chain(s, best, chain);
    mcp_arena_rewind(s->arena, mark);
}

struct fillers {
    struct mcp_filler *layers;
    struct mcp_chunk_filler *chunks;
};

static void fill(struct mcp_splitter *s, struct fillers *fillers, bool first)
{
    if (s->plan->virtual_stages > 1)
        mcp_fill_chunk_columns(s, fillers->chunks, first);
    else
        mcp_fill_columns(s, fillers->layers, first);
}

/* Where equal layers do not fit: the best that would take little longer than them. */
static void try_wider(struct mcp_splitter *s, struct fillers *fillers, struct best *best)
{
    static const double factors[] = {1.1, 1.4, 2, 4, 10};
    double even = (double)s->fixed_ns + (double)mcp_share_ns(s) * (s->grid.m + s->grid.p - 1);
    int64_t wanted = s->cutoff_ns;
    for (size_t i = 0; i < sizeof factors / sizeof *factors && !best->any; i++) {
        if (even * factors[i] >= (double)wanted)
            return;
        s->cutoff_ns = (int64_t)(even * factors[i]);
        fill(s, fillers, false);
        s->cutoff_ns = wanted;
        try_balanced(s, best);
    }
}

/* --- the proof --- */

struct proof {
    int64_t bound_ns;
    int milps, nodes;
};

static void learn(struct mcp_splitter *s, struct mcp_master *master,
                  const struct mcp_column *const *chain)
{
    struct mcp_path path = mcp_path_longest(s->arena, s->plan, s->grid.m, chain);
    mcp_master_cut(s, master, path);
}

/* Bounds, once more after each better split. False when nothing is left to find. */
static bool narrow(struct mcp_splitter *s, struct mcp_master *master, struct best *best,
                   const struct mcp_column **chains[2])
{
    for (bool better = true; better;) {
        if (!mcp_master_bound(s, master, chains))
            return false;
        better = try_chain(s, best, chains[0]);
        better |= try_chain(s, best, chains[1]);
    }
    return s->fixed_ns + master->update_ns + master->least_ns < s->cutoff_ns;
}

/* Solves and learns until nothing is left, or GLPK gives up and found nothing better. */
static void solve(struct mcp_splitter *s, struct mcp_master *master, struct best *best,
                  const struct mcp_column **chains[2], struct proof *proof)
{
    struct mcp_master_result result;
    for (int i = 0; i < 2; i++)
        learn(s, master, chains[i]);
    for (;;) {
        mcp_master_solve(s, master, chains[0], &result);
        proof->milps++;
        proof->nodes += result.nodes;
        proof->bound_ns = result.bound_ns < s->cutoff_ns ? result.bound_ns : s->cutoff_ns;
        if (!result.solved || result.bound_ns >= s->cutoff_ns)
            return;
        learn(s, master, chains[0]);
        bool better = try_chain(s, best, chains[0]);
        if (better && !narrow(s, master, best, chains)) {
            proof->bound_ns = s->cutoff_ns;
            return;
        }
        if ((!better && !result.optimal) || proof->milps == s->options->max_milps)
            return;
    }
}

static void prove(struct mcp_splitter *s, struct best *best, struct proof *proof)
{
    int p = s->grid.p;
    const struct mcp_column **chains[2] = {MCP_ARRAY(s->arena, p, const struct mcp_column *),
                                           MCP_ARRAY(s->arena, p, const struct mcp_column *)};
    struct mcp_master master = {0};
    bool more = narrow(s, &master, best, chains);
    bool fits = more || best->any || s->grid.cut || master.update_ns < MCP_NO_WAY;
    proof->bound_ns = fits ? s->cutoff_ns : INT64_MAX;
    if (!more)
        return;
    if (s->options->max_milps < 0 || (int64_t)p * s->grid.v * s->grid.m > MAX_SLOTS)
        proof->bound_ns = s->fixed_ns + master.update_ns + master.least_ns;
    else
        solve(s, &master, best, chains, proof);
}

/* --- the door --- */

static void write_chunks(struct mcp_arena *arena, const struct mcp_splitter *s,
                         const struct best *best, struct mcp_split *out)
{
    int p = s->grid.p, v = s->grid.v, first = 0;
    out->chunks = MCP_ARRAY(arena, p * v, struct mcp_chunk);
    for (int k = 0; k < p * v; k++) {
        struct mcp_chunk *chunk = &out->chunks[k];
        *chunk = best->columns[k % p].chunks[k / p];
        const struct mcp_recompute_run *runs = chunk->runs;
        chunk->runs = MCP_ARRAY(arena, chunk->num_runs, struct mcp_recompute_run);
        for (int i = 0; i < chunk->num_runs; i++)
            chunk->runs[i] = runs[i];
        chunk->first_layer = first;
        first += chunk->num_layers;
    }
}

static void run(struct mcp_splitter *s, struct fillers *fillers, struct best *best,
                struct proof *proof)
{
    bool any = best->any;
    best->any = false; /* of these columns */
    fill(s, fillers, true);
    try_balanced(s, best);
    if (!best->any)
        try_wider(s, fillers, best);
    fill(s, fillers, false);
    prove(s, best, proof);
    best->any |= any;
}

static void add_proof(struct proof *proof, const struct proof *more)
{
    proof->bound_ns = more->bound_ns < proof->bound_ns ? more->bound_ns : proof->bound_ns;
    proof->milps += more->milps;
    proof->nodes += more->nodes;
}

/* One programme for each choice of larger ones among the first chunks. */
static void split_chunks(struct mcp_splitter *s, struct best *best, struct proof *proof)
{
    int leads = mcp_num_leads(s);
    struct fillers fillers = {.chunks = mcp_chunk_filler_new(s, leads)};
    for (unsigned larger = 1u << (leads > 0 ? leads : 0); larger-- > 0;) {
        struct proof part = {0};
        if (!mcp_chunk_filler_turn(s, fillers.chunks, larger))
            continue;
        run(s, &fillers, best, &part);
        add_proof(proof, &part);
    }
    s->grid.partial = s->options->uneven && leads < 0;
}

static void split(struct mcp_splitter *s, struct best *best, struct proof *proof)
{
    struct fillers fillers = {0};
    proof->bound_ns = INT64_MAX;
    mcp_layer_times(s);
    best->columns = MCP_ARRAY(s->arena, s->plan->pipeline_parallel, struct mcp_column);
    if (s->plan->virtual_stages > 1) {
        split_chunks(s, best, proof);
    } else {
        fillers.layers = mcp_filler_new(s);
        run(s, &fillers, best, proof);
    }
    if (s->grid.partial) { /* of splits that have no column: some rank has its share */
        int64_t share = mcp_share_ns(s) * s->grid.m + s->fixed_ns;
        proof->bound_ns = share < proof->bound_ns ? share : proof->bound_ns;
    }
}

void mcp_split_best(struct mcp_arena *arena, struct mcp_pricer *pricer, const struct mcp_plan *plan,
                    const struct mcp_split_options *options, struct mcp_split *out)
{
    struct best best = {0};
    struct proof proof = {0};
    struct mcp_splitter s = {.arena = mcp_arena_new(),
                             .pricer = pricer,
                             .question = mcp_pricer_question(pricer),
                             .plan = plan,
                             .options = options,
                             .cutoff_ns = options->better_than_ns};
    mcp_pricer_turn(pricer);
    s.fixed_ns = mcp_step_fixed_ns(pricer, plan);
    split(&s, &best, &proof);
    *out = (struct mcp_split){.found = best.any,
                              .time_ns = best.time_ns,
                              .bound_ns = proof.bound_ns,
                              .milps = proof.milps,
                              .nodes = proof.nodes};
    out->proven = out->bound_ns >= (best.any ? best.time_ns : options->better_than_ns);
    if (best.any)
        write_chunks(arena, &s, &best, out);
    mcp_arena_free(s.arena);
}
