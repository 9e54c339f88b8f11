/* sim/ops_end.c: ops that are played as sums, one after the other. */
#include "sim/ops_parts.h"

struct end {
    const struct mcp_sim_ops_play *play;
    int cell, class;
};

/* Entries that are laid together. */
enum part { OF_THE_STEP, OF_LAYERS, GATHERS, REDUCTIONS, NO_PART };

static enum part part_of(const struct end *end, const struct mcp_entry *entry)
{
    switch (entry->role) {
    case MCP_PROLOGUE:
    case MCP_EPILOGUE:
    case MCP_OPTIMIZER:
        return entry->layer == end->play->program->num_layers ? OF_THE_STEP : OF_LAYERS;
    case MCP_GATHER:
        return GATHERS;
    case MCP_REDUCE:
        return REDUCTIONS;
    default:
        return NO_PART;
    }
}

static const struct mcp_sim_block *block_of(const struct end *end, const struct mcp_entry *entry)
{
    bool slow = end->class == end->play->unequal.slow_stage &&
                (entry->role == MCP_GATHER || entry->role == MCP_REDUCE);
    return mcp_sim_block_of(slow ? end->play->slow_blocks : end->play->blocks, end->class, entry);
}

/* One op after the other from `start_ns`, `stretch` times as long as alone. Returns the end. */
static int64_t lay_entry(const struct end *end, int slot, int index, int64_t start_ns,
                         double stretch)
{
    const struct mcp_program *program = end->play->program;
    const struct mcp_slot *of = &program->classes[end->class].slots[slot];
    const struct mcp_sim_block *block = block_of(end, &program->lists[of->list].entries[index]);
    int64_t before_ns = 0;
    for (int i = 0; i < block->num_ops; i++) {
        struct mcp_sim_span span = {
            end->cell, end->class, slot, index, i, (enum mcp_stream)block->ops[i].stream, 0, 0};
        span.start_ns = start_ns + (int64_t)(stretch * (double)before_ns);
        before_ns += block->ops[i].time_ns;
        span.end_ns = start_ns + (int64_t)(stretch * (double)before_ns);
        if (span.end_ns > span.start_ns)
            end->play->options->span(end->play->options->context, &span);
    }
    return start_ns + (int64_t)(stretch * (double)before_ns);
}

/* What its entries take alone. */
static int64_t alone_ns(const struct end *end, enum part part)
{
    const struct mcp_program *program = end->play->program;
    const struct mcp_program_class *class = &program->classes[end->class];
    int64_t sum = 0;
    for (int s = 0; s < class->num_slots; s++) {
        const struct mcp_entry_list *list = &program->lists[class->slots[s].list];
        for (int e = 0; e < list->num_entries; e++) {
            if (part_of(end, &list->entries[e]) != part)
                continue;
            const struct mcp_sim_block *block = block_of(end, &list->entries[e]);
            for (int i = 0; i < block->num_ops; i++)
                sum += block->ops[i].time_ns;
        }
    }
    return sum;
}

/* All of the part within [start_ns, start_ns + time_ns]. */
static void lay(const struct end *end, enum part part, int64_t start_ns, int64_t time_ns)
{
    const struct mcp_program *program = end->play->program;
    const struct mcp_program_class *class = &program->classes[end->class];
    int64_t alone = alone_ns(end, part);
    double stretch = alone > time_ns ? (double)time_ns / (double)alone : 1;
    for (int s = 0; s < class->num_slots; s++) {
        const struct mcp_entry_list *list = &program->lists[class->slots[s].list];
        for (int e = 0; e < list->num_entries; e++)
            if (part_of(end, &list->entries[e]) == part)
                start_ns = lay_entry(end, s, e, start_ns, stretch);
    }
}

/* Is any of such transfers played beside compute? Then they have spans already. */
static bool is_played(const struct end *end, enum mcp_sim_kind kind)
{
    const struct mcp_program_class *class = &end->play->program->classes[end->class];
    for (int s = 0; s < class->num_slots; s++) {
        const struct mcp_sim_list *list = &end->play->steps->lists[class->slots[s].list];
        for (int i = 0; i < list->num_steps; i++)
            if (list->steps[i].kind == kind && list->steps[i].data_ns > 0)
                return true;
    }
    return false;
}

static void lay_head(const struct end *end)
{
    struct mcp_sim_stage *stage = &end->play->out->stages[end->class];
    stage->head_laid = stage->head_ns > 0 && !is_played(end, MCP_SIM_GATHER);
    if (stage->head_laid)
        lay(end, GATHERS, 0, stage->head_ns);
}

static void lay_tail(const struct end *end)
{
    struct mcp_sim_stage *stage = &end->play->out->stages[end->class];
    stage->tail_laid = stage->tail_ns > 0 && !is_played(end, MCP_SIM_REDUCE);
    if (stage->tail_laid)
        lay(end, REDUCTIONS,
            end->play->ends_ns[end->cell * end->play->program->num_classes + end->class],
            stage->tail_ns);
}

/* Before all else, so that the spans of a stream come in order. */
void mcp_sim_ops_head_spans(const struct mcp_sim_ops_play *play)
{
    if (play->options->span == NULL)
        return;
    for (struct end end = {play, 0, 0}; end.cell < play->out->num_cells; end.cell++)
        for (end.class = 0; end.class < play->program->num_classes; end.class ++)
            lay_head(&end);
}

void mcp_sim_ops_end_spans(const struct mcp_sim_ops_play *play)
{
    const struct mcp_sim_result *result = play->out;
    int64_t agreed_ns = result->end_ns + result->agreement_ns;
    if (play->options->span == NULL)
        return;
    for (struct end end = {play, 0, 0}; end.cell < result->num_cells; end.cell++)
        for (end.class = 0; end.class < play->program->num_classes; end.class ++) {
            lay_tail(&end);
            lay(&end, OF_THE_STEP, result->end_ns, result->agreement_ns);
            lay(&end, OF_LAYERS, agreed_ns, play->steps->classes[end.class].update_ns);
        }
}
