/* step/schedule_dualpipe.c: DualPipeV's order of slots on a pipeline rank. */
#include "step/schedule.h"

#include <assert.h>

struct writer {
    struct mcp_schedule_row row;
    int forwards[2], backwards[2]; /* microbatches so far, by chunk */
    struct mcp_action *left;       /* weight gradients put off: first in, first out */
    int num_left, num_done;
};

static void add(struct writer *w, int chunk, int microbatch, enum mcp_pass pass)
{
    w->row.actions[w->row.num_actions++] = (struct mcp_action){chunk, microbatch, pass};
}

static void forward(struct writer *w, int chunk)
{
    add(w, chunk, w->forwards[chunk]++, MCP_PASS_FORWARD);
}

static void backward(struct writer *w, int chunk)
{
    add(w, chunk, w->backwards[chunk]++, MCP_PASS_BACKWARD);
}

/* Its weight gradient comes later. */
static void backward_input(struct writer *w, int chunk)
{
    int microbatch = w->backwards[chunk]++;
    add(w, chunk, microbatch, MCP_PASS_BACKWARD_INPUT);
    w->left[w->num_left++] = (struct mcp_action){chunk, microbatch, MCP_PASS_BACKWARD_WEIGHT};
}

static void backward_weight(struct writer *w)
{
    assert(w->num_done < w->num_left);
    w->row.actions[w->row.num_actions++] = w->left[w->num_done++];
}

/* Down into the V, and the first microbatches back out of it. */
static void warm_up(struct writer *w, int p, int rank)
{
    for (int i = 0; i < 2 * (p - 1 - rank); i++)
        forward(w, 0);
    for (int i = 0; i < rank + 1; i++) {
        forward(w, 0);
        forward(w, 1);
    }
    for (int i = 0; i < p - 1 - rank; i++) {
        backward_input(w, 1);
        backward_weight(w);
        forward(w, 1);
    }
}

/* A forward of one chunk beside a backward of the other, and the other way round. */
static void steady(struct writer *w, int p, int m, int rank)
{
    for (int i = 0; i < m - 2 * p + rank + 1; i++) {
        forward(w, 0);
        backward(w, 1);
        forward(w, 1);
        backward(w, 0);
    }
    for (int i = 0; i < p - 1 - rank; i++) {
        backward(w, 1);
        forward(w, 1);
        backward(w, 0);
    }
}

/* The last rank + 1 backwards and all that follow put their weight gradients off. */
static void cool_down(struct writer *w, int p, int rank)
{
    for (int i = 0; i < 2 * (rank + 1); i++) {
        int chunk = i % 2 == 0;
        if (i < rank + 1)
            backward(w, chunk);
        else
            backward_input(w, chunk);
    }
    for (int i = 0; i < p - 1 - rank; i++) {
        backward_weight(w);
        backward_input(w, 0);
    }
    for (int i = 0; i < rank + 1; i++)
        backward_weight(w);
}

struct mcp_schedule_row mcp_dualpipe_v_row(struct mcp_arena *arena, int pipeline_parallel,
                                           int num_microbatches, int rank)
{
    int p = pipeline_parallel, m = num_microbatches;
    assert(m >= mcp_dualpipe_v_least_microbatches(p));
    struct writer w = {.row = {0, MCP_ARRAY(arena, 6 * (size_t)m, struct mcp_action)},
                       .left = MCP_ARRAY(arena, 2 * (size_t)p, struct mcp_action)};
    warm_up(&w, p, rank);
    steady(&w, p, m, rank);
    cool_down(&w, p, rank);
    return w.row;
}
