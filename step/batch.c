/* step/batch.c: sequences of a batch by rank, microbatch and place in it. */
#include "step/batch.h"

#include "core/mesh.h"

int64_t mcp_batch_sequences(const struct mcp_program *program)
{
    const struct mcp_plan *plan = &program->plan;
    return (int64_t)program->num_microbatches * plan->microbatch_size * plan->data_parallel;
}

int64_t mcp_sequence_tokens(const struct mcp_program *program)
{
    int64_t tokens = 0;
    for (int t = 0; t < program->num_types; t++)
        if (program->types[t].facts.sequence_length > tokens)
            tokens = program->types[t].facts.sequence_length;
    return tokens;
}

int64_t mcp_microbatch_sequences(const struct mcp_program *program)
{
    return program->plan.microbatch_size;
}

int64_t mcp_microbatch_sequence(const struct mcp_program *program, int rank, int microbatch,
                                int64_t i)
{
    const struct mcp_plan *plan = &program->plan;
    const int own = mcp_mesh_coordinate(plan, rank).data;
    return ((int64_t)microbatch * plan->data_parallel + own) * plan->microbatch_size + i;
}

int mcp_loss_copies(const struct mcp_program *program)
{
    return program->plan.tensor_parallel;
}
