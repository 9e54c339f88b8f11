/* tests/exec/ranks_edits.c: the program is what runs: change it, and see the change. */
#include "tests/exec/ranks_edits.h"

#include "step/schedule_csv.h"
#include "step/verify.h"

#include <math.h>
#include <string.h>

static const struct ranks_case two_stages = {
    RANKS_LLAMA,      1, 1,     2,         1, 1, false,
    MCP_CONTEXT_RING, 0, false, MCP_GPIPE, 1, 2, MCP_RECOMPUTE_NONE};
static const struct ranks_case two_tensor = {
    RANKS_LLAMA,      2, 1,     1,        1, 1, false,
    MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 2, MCP_RECOMPUTE_NONE};
static const struct ranks_case two_data = {
    RANKS_GPT2,       1, 1,     1,        2, 1, false,
    MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 2, MCP_RECOMPUTE_NONE};

static void tell(FILE *out, const char *name, double value)
{
    if (out != NULL)
        fprintf(out, "edit %s %g\n", name, value);
}

static void losses_of(const struct ranks_case *c, struct mcp_cpu_world *world,
                      bool (*change)(struct run *run), double delay_s, double losses[RANKS_STEPS])
{
    struct run run;
    struct mcp_error refused = {"a case of the edits is not legal, or cannot be changed"};
    if (!plan_case(&run, c))
        stop(&refused, "edits");
    build_program(&run);
    if (change != NULL && !change(&run))
        stop(&refused, "edits");
    begin(&run, world, false, delay_s);
    train_losses(&run, losses);
    end(&run);
}

/* The rows of a file in PyTorch's form in place of the plan's own. */
static bool take_rows(struct run *run, const char *text)
{
    struct mcp_schedule_file file;
    struct mcp_refusals refusals = {0};
    CHECK(mcp_schedule_csv_parse(run->arena, "rows.csv", text, strlen(text), &file, &err));
    run->plan.schedule = MCP_CUSTOM;
    run->plan.placement = file.placement;
    run->plan.rows = file.rows;
    return mcp_legal(run->arena, &run->question, &run->plan, &refusals) && build_program(run);
}

/* Microbatches in another interleaving than any of our own schedules, idle cells, messages. */
static bool take_csv(struct run *run)
{
    return take_rows(run, "0F0,0SEND_F0,0F1,,0F2,0B0,0RECV_B1,0B1,0F3,,0B2,0B3\r\n"
                          ",1RECV_F0,1F0,1F1,1B0,1B1,1SEND_B1,1F2,1F3,,1B2,1B3\r\n");
}

/* Some backwards whole, some in halves. */
static bool take_csv_halves(struct run *run)
{
    return take_rows(run, "0F0,0F1,0F2,0F3,,0I0,0B1,0W0,0I2,0I3,0W2,0W3\n"
                          ",1F0,1I0,1F1,1B1,1W0,1F2,1I2,1F3,1B3,1W2\n");
}

/* The global norm is summed shard by shard: only clipping may see that. */
static bool do_not_clip(struct run *run)
{
    run->clip_norm = 0;
    return true;
}

/* The forwards of the first two microbatches, on every stage. */
static bool swap_forwards(struct run *run)
{
    for (int c = 0; c < run->program.num_classes; c++) {
        struct mcp_slot *slots = run->program.classes[c].slots;
        struct mcp_slot first = slots[1];
        if (slots[1].pass != MCP_FORWARD || slots[2].pass != MCP_FORWARD)
            return false;
        slots[1] = slots[2];
        slots[2] = first;
    }
    CHECK(mcp_program_verify(run->arena, &run->program, &err));
    return true;
}

/* What adds an all-reduced branch to the residual stream does not wait for the sum. */
static bool drop_waits(struct run *run)
{
    bool dropped = false, refused;
    for (int t = 0; t < run->program.num_types; t++) {
        struct mcp_block *block = &run->program.types[t].blocks[MCP_FORWARD];
        for (int i = 0; i < block->num_ops; i++)
            if (block->ops[i].function == MCP_FN_RESIDUAL_FORWARD && block->ops[i].num_waits > 0) {
                block->ops[i].num_waits = 0;
                dropped = true;
            }
    }
    refused = mcp_program_verify(run->arena, &run->program, NULL) == MCP_INVALID;
    return dropped && refused;
}

/* Recompute of one layer alone: more ops, less memory, the same losses to the bit. */
static void compare_recompute(struct mcp_cpu_world *world, FILE *out)
{
    struct run plain, again;
    double losses[2][RANKS_STEPS];
    double ops[2];
    int64_t bytes[2];
    struct run *runs[2] = {&plain, &again};
    for (int i = 0; i < 2; i++) {
        struct mcp_recompute_run *parts = NULL;
        plan_case(runs[i], &two_data);
        parts = MCP_ARRAY(runs[i]->arena, 2, struct mcp_recompute_run);
        parts[0] = (struct mcp_recompute_run){i == 1 ? MCP_RECOMPUTE_FULL : MCP_RECOMPUTE_NONE, 1};
        parts[1] =
            (struct mcp_recompute_run){MCP_RECOMPUTE_NONE, runs[i]->plan.chunks[0].num_layers - 1};
        runs[i]->plan.chunks[0].runs = parts;
        runs[i]->plan.chunks[0].num_runs = 2;
        build_program(runs[i]);
        begin(runs[i], world, false, 0);
        train_losses(runs[i], losses[i]);
        ops[i] = (double)runs[i]->num_launched;
        bytes[i] = mcp_interpreter_peak_bytes(mcp_trainer_interpreter(runs[i]->trainer));
        end(runs[i]);
    }
    tell(out, "recompute_differs", memcmp(losses[0], losses[1], sizeof losses[0]) != 0);
    tell(out, "recompute_ops", ops[1] - ops[0]);
    tell(out, "recompute_bytes", (double)bytes[1] - (double)bytes[0]);
}

/* What is done in another order or place but not with other numbers: the same bits. Of one
 * microbatch: ZeRO-2 and 3 reduce each one's gradients before they add them up. */
static void compare_bits(struct mcp_cpu_world *world, FILE *out)
{
    double whole[RANKS_STEPS], sharded[RANKS_STEPS];
    struct ranks_case c = two_data;
    double differs = 0;
    c.microbatch_size = BATCH / c.data;
    losses_of(&c, world, do_not_clip, 0, whole);
    for (c.zero_stage = 1; c.zero_stage <= 3; c.zero_stage++) {
        c.reshard = c.zero_stage == 3;
        losses_of(&c, world, do_not_clip, 0, sharded);
        differs += memcmp(whole, sharded, sizeof whole) != 0;
    }
    tell(out, "zero_differs", differs);
    losses_of(&two_stages, world, do_not_clip, 0, whole);
    c = two_stages;
    c.schedule = MCP_INTERLEAVED;
    c.virtual_stages = 2;
    losses_of(&c, world, do_not_clip, 0, sharded);
    tell(out, "schedule_differs", memcmp(whole, sharded, sizeof whole) != 0);
}

/* A schedule that somebody else wrote down trains as 1F1B does; a weight gradient that waits is
 * added up by itself first. */
static void compare_rows(struct mcp_cpu_world *world, FILE *out)
{
    double ours[RANKS_STEPS], theirs[RANKS_STEPS];
    struct ranks_case c = two_stages;
    c.schedule = MCP_1F1B;
    losses_of(&c, world, NULL, 0, ours);
    losses_of(&c, world, take_csv, 0, theirs);
    tell(out, "csv_differs", memcmp(ours, theirs, sizeof ours) != 0);
    losses_of(&c, world, take_csv_halves, 0, theirs);
    tell(out, "csv_halves_apart", worst_of(theirs, ours));
}

/* Of several microbatches: ZeRO-0 and 1 add up in one order, 2 and 3 in another. */
static void compare_zero(struct mcp_cpu_world *world, FILE *out)
{
    double losses[4][RANKS_STEPS];
    struct ranks_case c = two_data;
    for (c.zero_stage = 0; c.zero_stage <= 3; c.zero_stage++) {
        c.reshard = c.zero_stage == 3;
        losses_of(&c, world, do_not_clip, 0, losses[c.zero_stage]);
    }
    tell(out, "zero_1_differs", memcmp(losses[0], losses[1], sizeof losses[0]) != 0);
    tell(out, "zero_3_differs", memcmp(losses[2], losses[3], sizeof losses[0]) != 0);
    tell(out, "zero_2_apart", worst_of(losses[2], losses[0]));
}

void run_edits(struct mcp_cpu_world *world, FILE *out)
{
    double as_it_was[RANKS_STEPS], changed[RANKS_STEPS];
    if (mcp_cpu_world_size(world) != 2)
        return;
    losses_of(&two_stages, world, NULL, 0, as_it_was);
    losses_of(&two_stages, world, swap_forwards, 0, changed);
    tell(out, "swapped", worst_of(changed, as_it_was));
    losses_of(&two_tensor, world, NULL, 0.001, as_it_was);
    losses_of(&two_tensor, world, drop_waits, 0.001, changed);
    tell(out, "dropped", worst_of(changed, as_it_was));
    compare_recompute(world, out);
    compare_bits(world, out);
    compare_zero(world, out);
    compare_rows(world, out);
}
