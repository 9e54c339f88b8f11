/* sim/end.c: ops after the last slot, one after the other. */
#include "sim/end.h"

struct end {
    const struct mcp_sim_steps *steps;
    struct mcp_sim_blocks *blocks;
    const struct mcp_sim_ops_options *options;
    const struct mcp_sim_result *result;
    int class;
};

/* Entries that are in no played list: once a step, by layer or for the whole step. */
static bool is_of_the_end(const struct mcp_entry *entry)
{
    return entry->role == MCP_PROLOGUE || entry->role == MCP_EPILOGUE ||
           entry->role == MCP_OPTIMIZER;
}

static bool is_of_the_step(const struct end *end, const struct mcp_entry *entry)
{
    return entry->layer == end->steps->program->num_layers;
}

/* One op after the other from `start_ns`, `stretch` times as long as alone. Returns the end. */
static int64_t lay_entry(const struct end *end, int slot, int index, int64_t start_ns,
                         double stretch)
{
    const struct mcp_program *program = end->steps->program;
    const struct mcp_slot *of = &program->classes[end->class].slots[slot];
    const struct mcp_sim_block *block =
        mcp_sim_block_of(end->blocks, end->class, &program->lists[of->list].entries[index]);
    int64_t before_ns = 0;
    for (int i = 0; i < block->num_ops; i++) {
        struct mcp_sim_span span = {
            end->class, slot, index, i, (enum mcp_stream)block->ops[i].stream, 0, 0};
        span.start_ns = start_ns + (int64_t)(stretch * (double)before_ns);
        before_ns += block->ops[i].time_ns;
        span.end_ns = start_ns + (int64_t)(stretch * (double)before_ns);
        if (span.end_ns > span.start_ns)
            end->options->span(end->options->context, &span);
    }
    return start_ns + (int64_t)(stretch * (double)before_ns);
}

/* What entries of the step, or those of layers, take alone. */
static int64_t alone_ns(const struct end *end, bool of_the_step)
{
    const struct mcp_program *program = end->steps->program;
    const struct mcp_program_class *class = &program->classes[end->class];
    int64_t sum = 0;
    for (int s = 0; s < class->num_slots; s++) {
        const struct mcp_entry_list *list = &program->lists[class->slots[s].list];
        for (int e = 0; e < list->num_entries; e++) {
            const struct mcp_entry *entry = &list->entries[e];
            if (!is_of_the_end(entry) || is_of_the_step(end, entry) != of_the_step)
                continue;
            const struct mcp_sim_block *block = mcp_sim_block_of(end->blocks, end->class, entry);
            for (int i = 0; i < block->num_ops; i++)
                sum += block->ops[i].time_ns;
        }
    }
    return sum;
}

/* Those entries within [start_ns, start_ns + time_ns]. */
static void lay(const struct end *end, bool of_the_step, int64_t start_ns, int64_t time_ns)
{
    const struct mcp_program *program = end->steps->program;
    const struct mcp_program_class *class = &program->classes[end->class];
    int64_t alone = alone_ns(end, of_the_step);
    double stretch = alone > time_ns ? (double)time_ns / (double)alone : 1;
    for (int s = 0; s < class->num_slots; s++) {
        const struct mcp_entry_list *list = &program->lists[class->slots[s].list];
        for (int e = 0; e < list->num_entries; e++) {
            const struct mcp_entry *entry = &list->entries[e];
            if (is_of_the_end(entry) && is_of_the_step(end, entry) == of_the_step)
                start_ns = lay_entry(end, s, e, start_ns, stretch);
        }
    }
}

void mcp_sim_end_spans(const struct mcp_sim_steps *steps, struct mcp_sim_blocks *blocks,
                       const struct mcp_sim_ops_options *options,
                       const struct mcp_sim_result *result)
{
    struct end end = {steps, blocks, options, result, 0};
    int64_t agreed_ns = result->end_ns + result->agreement_ns;
    if (options->span == NULL)
        return;
    for (; end.class < steps->program->num_classes; end.class ++) {
        lay(&end, true, result->end_ns, result->agreement_ns);
        lay(&end, false, agreed_ns, steps->classes[end.class].update_ns);
    }
}
