/* exec/run_data.c: a rank's share of the sequences of a file. */
#include "exec/run_data.h"

static int64_t vocabulary_of(const struct mcp_program *program)
{
    int64_t size = 0;
    for (int t = 0; t < program->num_types; t++)
        if (program->types[t].facts.vocab_size > size)
            size = program->types[t].facts.vocab_size;
    return size;
}

/* Sequences of a step's batch that the rank may read. */
static int64_t *own_sequences(struct mcp_arena *arena, const struct mcp_program *program, int rank,
                              int64_t *count)
{
    const int64_t each = mcp_microbatch_sequences(program);
    *count = program->num_microbatches * each;
    int64_t *indices = MCP_ARRAY(arena, *count, int64_t);
    for (int64_t i = 0; i < *count; i++)
        indices[i] = mcp_microbatch_sequence(program, rank, (int)(i / each), i % each);
    return indices;
}

struct mcp_data_options mcp_run_data_options(const struct mcp_program *program,
                                             const struct mcp_run_source *source)
{
    return (struct mcp_data_options){.sequence_length = mcp_sequence_tokens(program),
                                     .vocab_size = (int)vocabulary_of(program),
                                     .seed = source->seed,
                                     .in_order = source->in_order};
}

enum mcp_status mcp_run_feed_open(struct mcp_arena *arena, const struct mcp_run_setting *run,
                                  const struct mcp_run_source *source, struct mcp_feed **out,
                                  int64_t *sequences, struct mcp_error *err)
{
    const struct mcp_data_options options = mcp_run_data_options(run->program, source);
    const struct mcp_data *data = NULL;
    int64_t count = 0;
    MCP_TRY(mcp_data_open(arena, &source->path, 1, &options, &data, err));
    if (sequences != NULL)
        *sequences = mcp_data_sequences(data);
    const int64_t *indices = own_sequences(arena, run->program, run->rank, &count);
    const struct mcp_feed_options feed = {options.sequence_length,
                                          mcp_batch_sequences(run->program), indices, count};
    return mcp_feed_open(arena, data, &feed, out, err);
}
