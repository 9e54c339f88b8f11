/* sim/engine.c: plays pipelines of ranks, entry by entry. */
#include "sim/failure.h"

#include "core/mesh.h"
#include "core/minmax.h"
#include "sim/steps.h"
#include "sim/unequal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct message {
    int64_t arrival_ns, delay_ns;
};

/* Messages from one neighbour, first in, first out. */
struct mail {
    struct message *items;
    int posted, read;
};

/* One stage of the pipeline being played. */
struct rank {
    int slot, step;
    int64_t now_ns;       /* compute stream */
    int64_t data_free_ns; /* data stream */
    int64_t *ready_ns;    /* [layer][copy] gathered weights */
    int64_t *alone_ns;    /* ... and what of that transfer stands alone, once */
    struct mail mail[MCP_SIM_MAILS];
    int64_t slot_start_ns;          /* of the slot at hand; -1: not begun */
    struct mcp_sim_stretch stretch; /* of the slot */
    double cost_s[MCP_NUM_COSTS], comm_s[MCP_NUM_COSTS], busy_s;
    struct mcp_sim_slot_time *times;
};

struct play {
    const struct mcp_sim_steps *steps;
    const struct mcp_program *program;
    struct mcp_sim_unequal unequal;
    int cell;           /* the pipeline at hand */
    struct rank *ranks; /* [classes] */
    int64_t worst_ns;
    const struct mcp_sim_failure *failure; /* of a rank of this stage; NULL: none */
    int dead_stage;
    struct mcp_sim_result *out;
};

struct mcp_sim_options mcp_sim_options_default(void)
{
    return (struct mcp_sim_options){.seed = 1, .slow_rank = -1, .slow_factor = 1, .slow_port = -1};
}

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

static int64_t stretched_ns(const struct mcp_sim_step *step, double stretch)
{
    return step->time_ns + llround((double)step->stretch_ns * (stretch - 1));
}

/* --- steps --- */

static void idle_for_data(struct rank *rank, int64_t until_ns)
{
    if (until_ns > rank->now_ns) {
        rank->cost_s[MCP_COST_DATA] += seconds(until_ns - rank->now_ns);
        rank->now_ns = until_ns;
    }
}

/* Block costs sum to its time; stretching multiplies those of compute. */
static void run_compute(const struct play *play, struct rank *rank, const struct mcp_sim_step *step)
{
    int64_t start = rank->now_ns;
    idle_for_data(rank, rank->ready_ns[step->cell]);
    if (rank->alone_ns[step->cell] > 0) {
        idle_for_data(rank, rank->now_ns + rank->alone_ns[step->cell]);
        rank->alone_ns[step->cell] = 0;
    }
    int64_t time_ns = stretched_ns(step, rank->stretch.largest);
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        rank->cost_s[i] += step->price->cost_s[i];
        rank->comm_s[i] += step->price->comm_s[i];
    }
    if (play->unequal.any) {
        double own = seconds(stretched_ns(step, rank->stretch.mean) - step->time_ns);
        double stretch_s = seconds(step->stretch_ns);
        for (int i = MCP_COST_MATMUL; stretch_s > 0 && i < MCP_COST_TENSOR; i++)
            rank->cost_s[i] += step->price->cost_s[i] * own / stretch_s;
        rank->cost_s[play->unequal.group_cost] += seconds(time_ns - step->time_ns) - own;
    }
    rank->now_ns += time_ns;
    rank->busy_s += seconds(rank->now_ns - start);
}

static void run_transfer(struct rank *rank, const struct mcp_sim_step *step)
{
    int64_t start = mcp_max_int64(rank->data_free_ns, rank->now_ns);
    rank->data_free_ns = start + step->data_ns;
    rank->comm_s[MCP_COST_DATA] += seconds(step->price->time_ns);
    if (step->kind == MCP_SIM_GATHER) {
        rank->ready_ns[step->cell] = rank->data_free_ns;
        rank->alone_ns[step->cell] = step->alone_ns;
    } else {
        rank->busy_s += seconds(step->alone_ns);
        idle_for_data(rank, rank->now_ns + step->alone_ns);
    }
}

static void run_send(struct play *play, int class, struct rank *rank,
                     const struct mcp_sim_step *step)
{
    int p = play->program->num_classes, to = (class + (step->side ? 1 : p - 1)) % p;
    struct mail *mail = &play->ranks[to].mail[step->mail];
    rank->now_ns += step->time_ns;
    rank->busy_s += seconds(step->time_ns);
    rank->cost_s[MCP_COST_PIPELINE] += seconds(step->time_ns);
    rank->comm_s[MCP_COST_PIPELINE] += seconds(step->time_ns + step->delay_ns);
    mail->items[mail->posted++] = (struct message){rank->now_ns + step->delay_ns, step->delay_ns};
}

/* False while its message has not been sent. */
static bool run_receive(struct rank *rank, const struct mcp_sim_step *step)
{
    struct mail *mail = &rank->mail[step->mail];
    if (mail->read == mail->posted)
        return false;
    const struct message *message = &mail->items[mail->read++];
    rank->now_ns += step->time_ns;
    rank->busy_s += seconds(step->time_ns);
    rank->cost_s[MCP_COST_PIPELINE] += seconds(step->time_ns);
    int64_t idle = mcp_max_int64(0, message->arrival_ns - rank->now_ns);
    int64_t exposed = idle < message->delay_ns ? idle : message->delay_ns;
    rank->cost_s[MCP_COST_PIPELINE] += seconds(exposed);
    rank->cost_s[MCP_COST_BUBBLE] += seconds(idle - exposed);
    if (rank->step == 0)
        rank->slot_start_ns += idle; /* it began when its message had come */
    rank->now_ns += idle;
    return true;
}

static bool run_step(struct play *play, int class, struct rank *rank,
                     const struct mcp_sim_step *step)
{
    switch (step->kind) {
    case MCP_SIM_COMPUTE:
        run_compute(play, rank, step);
        return true;
    case MCP_SIM_GATHER:
    case MCP_SIM_REDUCE:
        run_transfer(rank, step);
        return true;
    case MCP_SIM_SEND:
        run_send(play, class, rank, step);
        return true;
    case MCP_SIM_RECEIVE:
        return run_receive(rank, step);
    }
    return true;
}

/* Is the step beyond what its rank lives to end? What a compute step awaits besides delays its end
 * further: the next step sees that. */
static bool dies_before(const struct play *play, int class, const struct mcp_sim_step *step)
{
    return play->failure != NULL && class == play->dead_stage &&
           play->ranks[class].now_ns + step->time_ns + step->alone_ns > play->failure->at_ns;
}

/* As far as the rank comes with the messages it has; true when it moved. */
static bool run_rank(struct play *play, int class)
{
    const struct mcp_program_class *of = &play->program->classes[class];
    struct rank *rank = &play->ranks[class];
    bool moved = false;
    for (; rank->slot < of->num_slots; rank->slot++) {
        int list = of->slots[rank->slot].list;
        if (rank->step == 0 && rank->slot_start_ns < 0) {
            rank->slot_start_ns = rank->now_ns;
            rank->stretch = mcp_sim_stretch_of(&play->unequal, play->cell, class, rank->slot);
        }
        for (; rank->step < play->steps->lists[list].num_steps; rank->step++) {
            const struct mcp_sim_step *step =
                mcp_sim_step_at(&play->unequal, play->cell, class, list, rank->step);
            if (dies_before(play, class, step) || !run_step(play, class, rank, step))
                return moved;
            moved = true;
            play->out->events++;
        }
        rank->times[rank->slot] = (struct mcp_sim_slot_time){rank->slot_start_ns, rank->now_ns};
        rank->slot_start_ns = -1;
        rank->step = 0;
    }
    return moved;
}

/* --- one pipeline --- */

static void reset_rank(const struct play *play, int class)
{
    struct rank *rank = &play->ranks[class];
    size_t cells = ((size_t)play->program->num_layers + 1) * (size_t)play->steps->num_copies;
    int64_t head_ns = mcp_sim_edges_of(&play->unequal, class)->head_ns;
    rank->slot = rank->step = 0;
    rank->slot_start_ns = -1;
    rank->now_ns = rank->data_free_ns = head_ns;
    rank->busy_s = 0;
    memset(rank->ready_ns, 0, cells * sizeof *rank->ready_ns);
    memset(rank->alone_ns, 0, cells * sizeof *rank->alone_ns);
    memset(rank->cost_s, 0, sizeof rank->cost_s);
    memset(rank->comm_s, 0, sizeof rank->comm_s);
    rank->cost_s[MCP_COST_DATA] = seconds(head_ns);
    rank->comm_s[MCP_COST_DATA] = seconds(head_ns);
    for (int i = 0; i < MCP_SIM_MAILS; i++)
        rank->mail[i].posted = rank->mail[i].read = 0;
}

/* After its slots: reductions still on their way, then those that nothing hides. */
static int64_t end_rank(const struct play *play, int class)
{
    struct rank *rank = &play->ranks[class];
    int64_t tail_ns = mcp_sim_edges_of(&play->unequal, class)->tail_ns, end_ns = rank->now_ns;
    idle_for_data(rank, rank->data_free_ns);
    idle_for_data(rank, rank->now_ns + tail_ns);
    rank->comm_s[MCP_COST_DATA] += seconds(tail_ns);
    struct mcp_sim_stage *stage = &play->out->stages[class];
    stage->earliest_end_ns = end_ns < stage->earliest_end_ns ? end_ns : stage->earliest_end_ns;
    stage->latest_end_ns = mcp_max_int64(stage->latest_end_ns, end_ns);
    return rank->now_ns;
}

/* Bubbles at the end are added when the end is known. */
static void add_rank(struct play *play, int class)
{
    const struct rank *rank = &play->ranks[class];
    struct mcp_sim_stage *stage = &play->out->stages[class];
    double share = mcp_sim_cell_share(&play->unequal, play->cell);
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        stage->cost_s[i] += rank->cost_s[i] * share;
        play->out->comm_s[i] += rank->comm_s[i] * share / play->program->num_classes;
    }
    stage->cost_s[MCP_COST_BUBBLE] -= seconds(rank->now_ns) * share;
    stage->busy_s += rank->busy_s * share;
}

static void keep_times(struct play *play, int64_t end_ns)
{
    if (end_ns <= play->worst_ns)
        return;
    play->worst_ns = end_ns;
    for (int c = 0; c < play->program->num_classes; c++) {
        struct mcp_sim_stage *stage = &play->out->stages[c];
        memcpy(stage->times, play->ranks[c].times, (size_t)stage->num_slots * sizeof *stage->times);
    }
}

/* Until none can go on. */
static void run_ranks(struct play *play)
{
    int p = play->program->num_classes;
    for (int c = 0; c < p; c++)
        reset_rank(play, c);
    for (bool moved = true; moved;) {
        moved = false;
        for (int c = 0; c < p; c++)
            moved |= run_rank(play, c);
    }
}

static void play_pipeline(struct play *play)
{
    int p = play->program->num_classes;
    int64_t end_ns = 0;
    run_ranks(play);
    for (int c = 0; c < p; c++) {
        assert(play->ranks[c].slot == play->program->classes[c].num_slots);
        end_ns = mcp_max_int64(end_ns, end_rank(play, c));
        add_rank(play, c);
    }
    keep_times(play, end_ns);
    play->out->end_ns = mcp_max_int64(play->out->end_ns, end_ns);
}

/* --- all of them --- */

static void make_room(struct mcp_arena *arena, struct play *play)
{
    const struct mcp_program *program = play->program;
    size_t cells = ((size_t)program->num_layers + 1) * (size_t)play->steps->num_copies;
    play->ranks = MCP_ARRAY(arena, program->num_classes, struct rank);
    mcp_sim_result_new(arena, program, play->out);
    for (int c = 0; c < program->num_classes; c++) {
        struct rank *rank = &play->ranks[c];
        int num_slots = program->classes[c].num_slots;
        play->out->stages[c].earliest_end_ns = INT64_MAX;
        rank->times = MCP_ARRAY(arena, num_slots, struct mcp_sim_slot_time);
        rank->ready_ns = MCP_ARRAY(arena, cells, int64_t);
        rank->alone_ns = MCP_ARRAY(arena, cells, int64_t);
        for (int i = 0; i < MCP_SIM_MAILS; i++)
            rank->mail[i].items = MCP_ARRAY(arena, num_slots, struct message);
    }
}

void mcp_sim_play_steps(struct mcp_arena *arena, const struct mcp_sim_steps *steps,
                        const struct mcp_sim_options *options, struct mcp_sim_result *out)
{
    const struct mcp_program *program = steps->program;
    struct play play = {.steps = steps, .program = program, .out = out};
    make_room(arena, &play);
    mcp_sim_unequal_of(arena, steps, options, &play.unequal);
    out->num_cells = play.unequal.cells.num_cells;
    for (; play.cell < out->num_cells; play.cell++)
        play_pipeline(&play);
    mcp_sim_finish(steps, out);
}

void mcp_sim_play(struct mcp_arena *arena, const struct mcp_question *question,
                  const struct mcp_program *program, const struct mcp_sim_options *options,
                  struct mcp_sim_result *out)
{
    struct mcp_sim_steps *steps = mcp_sim_steps_new(arena, question, program);
    if (options->slow_port >= 0)
        steps->slow = mcp_sim_steps_new(arena, options->slow_links, program);
    mcp_sim_play_steps(arena, steps, options, out);
}

int mcp_sim_play_failure(struct mcp_arena *arena, const struct mcp_question *question,
                         const struct mcp_program *program, const struct mcp_sim_failure *failure,
                         struct mcp_sim_stop *stops)
{
    const struct mcp_sim_options options = mcp_sim_options_default();
    struct mcp_sim_steps *steps = mcp_sim_steps_new(arena, question, program);
    struct mcp_sim_result result;
    struct play play = {.steps = steps, .program = program, .failure = failure, .out = &result};
    play.dead_stage = mcp_mesh_coordinate(&program->plan, failure->rank).pipeline;
    make_room(arena, &play);
    mcp_sim_unequal_of(arena, steps, &options, &play.unequal);
    run_ranks(&play);
    for (int c = 0; c < program->num_classes; c++)
        stops[c] =
            (struct mcp_sim_stop){c == play.dead_stage ? failure->at_ns : play.ranks[c].now_ns,
                                  play.ranks[c].slot, program->classes[c].num_slots};
    return play.dead_stage;
}
