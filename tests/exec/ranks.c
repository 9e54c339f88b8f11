/* tests/exec/ranks.c: trains the cases of one world size, each beside one rank. */
#include "tests/exec/ranks_bits.h"
#include "tests/exec/ranks_edits.h"
#include "tests/exec/ranks_eight.h"
#include "tests/exec/ranks_memory.h"
#include "tests/exec/ranks_numbers.h"
#include "tests/exec/ranks_places.h"

#include "exec/init.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- gradients in one order: first moments after the first step, times a constant --- */

struct tensor {
    char name[64];
    uint64_t key;
    int64_t first, elements;
};
struct gradients {
    struct tensor tensors[256];
    int num_tensors;
    int64_t count;
    double *values;
};

static uint64_t key_of(const struct mcp_weight *w, int layer, int expert)
{
    return w->twin ? mcp_init_key(0, "embedding", 0, 0) : mcp_init_key(0, w->name, layer, expert);
}

static struct tensor *find(struct gradients *g, uint64_t key)
{
    for (int i = 0; i < g->num_tensors; i++)
        if (g->tensors[i].key == key)
            return &g->tensors[i];
    return NULL;
}

/* All tensors of the model, from a program of one rank. */
static void list_tensors(const struct run *one, struct gradients *g)
{
    const struct mcp_pool *pool = mcp_interpreter_pool(mcp_trainer_interpreter(one->trainer));
    for (int layer = 0; layer < one->program.num_layers; layer++) {
        const struct mcp_layer_type *type = &one->program.types[mcp_pool_type(pool, layer)];
        for (int i = 0; i < type->num_weights; i++)
            for (int copy = 0; copy < type->weights[i].copies; copy++) {
                int64_t elements = mcp_weight_elements(&type->weights[i]);
                struct tensor *tensor = &g->tensors[g->num_tensors++];
                snprintf(tensor->name, sizeof tensor->name, "%d.%s.%d", layer,
                         type->weights[i].name, copy);
                tensor->key = key_of(&type->weights[i], layer, type->weights[i].expert ? copy : 0);
                tensor->first = g->count;
                tensor->elements = elements;
                g->count += elements;
            }
    }
    g->values = MCP_ARRAY(one->arena, g->count, double);
}

struct collected {
    double *sums, *counts;
};

static void collect_part(const struct run *run, const struct mcp_flat_place *place,
                         const float *moments, int layer, int part, struct gradients *g,
                         const struct collected *out)
{
    const struct mcp_rank *rank = mcp_trainer_rank(run->trainer);
    const struct mcp_pool *pool = mcp_interpreter_pool(mcp_trainer_interpreter(run->trainer));
    const struct mcp_layer_type *type = &run->program.types[mcp_pool_type(pool, layer)];
    const struct mcp_weight *w = &type->weights[part];
    int member = mcp_group_index(&run->plan, MCP_EXPERT, rank->rank);
    for (int copy = 0; copy < w->copies; copy++) {
        struct tensor *tensor =
            find(g, key_of(w, layer, w->expert ? member * w->copies + copy : 0));
        int64_t offset =
            mcp_weight_offset(type, part, copy) - mcp_flat_first(type, place->flat) - place->first;
        for (int64_t x = 0; x < mcp_weight_elements(w); x++) {
            int64_t at = mcp_weight_global_index(w, rank->at.tensor, run->plan.tensor_parallel,
                                                 x / w->columns, x % w->columns);
            if (offset + x < 0 || offset + x >= place->count || at >= tensor->elements)
                continue;
            out->sums[tensor->first + at] += (double)moments[offset + x];
            out->counts[tensor->first + at] += 1;
        }
    }
}

/* Mean over whoever holds an element; all hold the same. */
static void collect(const struct run *run, struct gradients *g, double *out)
{
    struct mcp_flat_place places[MCP_NUM_FLATS];
    const struct mcp_interpreter *in = mcp_trainer_interpreter(run->trainer);
    const struct collected sums = {MCP_ARRAY(run->arena, g->count, double),
                                   MCP_ARRAY(run->arena, g->count, double)};
    for (int layer = 0; layer < run->program.num_layers; layer++) {
        int count = mcp_flat_places(in, mcp_trainer_rank(run->trainer), layer, places);
        for (int i = 0; i < count; i++) {
            const struct mcp_layer_type *type =
                &run->program.types[mcp_pool_type(mcp_interpreter_pool(in), layer)];
            const float *moments = (const float *)(const void *)places[i].state;
            moments += places[i].has_master ? places[i].state_stride : 0;
            for (int part = 0; part < type->num_weights; part++)
                if (mcp_weight_flat(&type->weights[part]) == places[i].flat)
                    collect_part(run, &places[i], moments, layer, part, g, &sums);
        }
    }
    CHECK(run->calls.agree(run->backend, sums.sums, (int)g->count, '+', &err));
    CHECK(run->calls.agree(run->backend, sums.counts, (int)g->count, '+', &err));
    for (int64_t i = 0; i < g->count; i++)
        out[i] = sums.sums[i] / sums.counts[i];
}

/* The largest over tensors of |a - b| / |b|, and of which; what NaN fails. */
static double distance(const struct gradients *g, const double *a, const double *b,
                       const char **which)
{
    double worst = 0;
    for (int i = 0; i < g->num_tensors; i++) {
        double apart = 0, norm = 0;
        for (int64_t x = g->tensors[i].first; x < g->tensors[i].first + g->tensors[i].elements;
             x++) {
            apart += (a[x] - b[x]) * (a[x] - b[x]);
            norm += b[x] * b[x];
        }
        double relative = norm > 0 ? sqrt(apart / norm) : sqrt(apart);
        if (!isnan(worst) && !(relative <= worst))
            *which = g->tensors[i].name;
        worst = ranks_worse(worst, relative);
    }
    return worst;
}

/* --- one case --- */

struct result {
    double losses[RANKS_STEPS], norms[RANKS_STEPS];
    int64_t peak_bytes;
};

static void train(struct run *run, struct gradients *g, double *gradients, struct result *out)
{
    struct mcp_step_report report;
    for (int step = 0; step < RANKS_STEPS; step++) {
        train_step(run, step, &report);
        out->losses[step] = report.loss;
        out->norms[step] = report.grad_norm;
        if (step == 0 && g != NULL)
            collect(run, g, gradients);
    }
    out->peak_bytes =
        mcp_pool_peak_bytes(mcp_interpreter_pool(mcp_trainer_interpreter(run->trainer)));
}

/* The planner's peak of this rank's stage without what it reserves. */
static int64_t planned_bytes(struct run *run, int stage)
{
    struct mcp_pricer *pricer = mcp_pricer_new(run->arena, &run->question);
    mcp_estimate(pricer, &run->plan, &run->prediction);
    return mcp_memory_allocated(&run->prediction.stages[stage].memory);
}

/* What one rank makes of a model: the first trains it, once, and tells the others. */
struct reference {
    bool made;
    struct run run;
    struct gradients gradients;
    struct result result;
};

static struct reference *reference_of(struct mcp_cpu_world *world, struct reference *all,
                                      const struct ranks_case *c)
{
    struct reference *one = &all[c->model];
    const struct ranks_case alone = ranks_alone(c->model);
    if (one->made)
        return one;
    one->made = plan_case(&one->run, &alone);
    build_program(&one->run);
    begin(&one->run, world, true, 0);
    list_tensors(&one->run, &one->gradients);
    if (mcp_cpu_world_rank(world) == 0)
        train(&one->run, &one->gradients, one->gradients.values, &one->result);
    CHECK(mcp_cpu_world_agree(world, one->gradients.values, (int)one->gradients.count, '+', &err));
    CHECK(mcp_cpu_world_agree(world, one->result.losses, RANKS_STEPS, '+', &err));
    CHECK(mcp_cpu_world_agree(world, one->result.norms, RANKS_STEPS, '+', &err));
    return one;
}

/* "case, worst loss, worst norm, worst gradient, memory beyond the planned, first loss, last"; of
 * a case that does not end its number alone. False: it is not legal, and nothing is written. */
static bool run_case(struct mcp_cpu_world *world, struct reference *all, int number,
                     const struct ranks_case *c, FILE *out)
{
    struct reference *one = reference_of(world, all, c);
    struct run run, *many = &run;
    struct result got;
    bool legal = plan_case(many, c);
    many->stack.fused_epilogues = ranks_is_fused(c);
    if (!legal || !build_program(many)) {
        mcp_arena_free(many->arena);
        return false;
    }
    if (out != NULL) {
        fprintf(out, "%d", number);
        fflush(out);
    }
    begin(many, world, false, 0);
    double *gradients = MCP_ARRAY(many->arena, one->gradients.count, double);
    train(many, &one->gradients, gradients, &got);
    const struct mcp_rank *rank = mcp_trainer_rank(many->trainer);
    double beyond = (double)(got.peak_bytes - planned_bytes(many, rank->at.pipeline));
    CHECK(many->calls.agree(many->backend, &beyond, 1, '>', &err));
    const char *which = "none";
    double apart = distance(&one->gradients, gradients, one->gradients.values, &which);
    if (out != NULL)
        fprintf(out, " %.3g %.3g %.3g %.0f %.6f %.6f %s\n",
                worst_of(got.losses, one->result.losses), worst_of(got.norms, one->result.norms),
                apart, beyond, got.losses[0], got.losses[RANKS_STEPS - 1], which);
    end(many);
    return true;
}

/* Every case that the environment asks for; one only, where it is >= 0. */
static void run_cover(struct mcp_cpu_world *world, struct reference *all, int only, FILE *out)
{
    for (int i = 0; i < ranks_num_cases; i++)
        if (ranks_world(&ranks_cases[i]) == mcp_cpu_world_size(world) &&
            (only < 0 ? ranks_is_chosen(i) : only == i) &&
            !run_case(world, all, i, &ranks_cases[i], out) && out != NULL)
            fprintf(out, "%d\n", i); /* refused */
}

static void run_product(struct mcp_cpu_world *world, struct reference *all, int only, FILE *out)
{
    int every = ranks_every(), found = 0, legal = 0;
    struct ranks_case c;
    for (int i = only < 0 ? 0 : only; i < (only < 0 ? ranks_product : only + 1); i++)
        if (ranks_of_product(i, mcp_cpu_world_size(world), &c) &&
            (found++ % every == 0 || only >= 0))
            legal += run_case(world, all, i, &c, out);
    if (out != NULL)
        fprintf(out, "legal %d\n", legal);
}

int main(int argc, char **argv)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_cpu_world *world = NULL;
    CHECK(mcp_cpu_world_open(arena, &argc, &argv, &world, &err));
    bool writes = mcp_cpu_world_rank(world) == 0;
    FILE *out = writes && argc > 1 ? fopen(argv[1], "w") : NULL;
    struct reference *all = MCP_ARRAY(arena, RANKS_MODELS, struct reference);
    int only = argc > 2 ? atoi(argv[2]) : -1;
    bool is_whole = !ranks_full() && ranks_every() == 1;
    int misplaced = misplaced_ranks(world);
    if (out != NULL)
        fprintf(out, "misplaced %d\n", misplaced);
    (ranks_full() ? run_product : run_cover)(world, all, only, out);
    if (only < 0 && is_whole) {
        run_edits(world, out);
        run_memory(world, out);
    }
    if ((only < 0 && is_whole) || (only == ranks_num_cases && !ranks_full()))
        run_bits(world, out);
    if ((only < 0 && is_whole) || (only == ranks_num_cases + 1 && !ranks_full()))
        run_numbers(world, out);
    if ((only < 0 && is_whole) || (only > ranks_num_cases + 1 && !ranks_full()))
        run_eight(world, out);
    if (out != NULL)
        fclose(out);
    for (int i = 0; i < RANKS_MODELS; i++)
        if (all[i].made)
            mcp_arena_free(all[i].run.arena);
    mcp_arena_free(arena);
    return 0;
}
