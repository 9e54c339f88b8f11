/* tests/step/edit.h: a small good program, and tools to break it with. */
#ifndef TESTS_STEP_EDIT_H
#define TESTS_STEP_EDIT_H

#include "core/arena.h"
#include "step/program.h"

/* The tiny model, two pipeline stages of two tensor ranks, two replicas, four
 * microbatches. Layers: 0 embedding, 1, 2 | 3, 4, 5 head. */
struct variant {
    int zero_stage;
    enum mcp_recompute recompute;
    enum mcp_schedule schedule;
};

struct bench {
    struct mcp_arena *arena;
    struct mcp_program program;
};

void edit_build(struct bench *bench, const struct variant *variant);

/* What is looked for must be there. Microbatch -1: none. */
struct mcp_slot *slot_of(struct bench *bench, int class, int pass, int microbatch);
/* The slot's entries, as a list of its own with room for more. */
struct mcp_entry_list *list_of(struct bench *bench, int class, int pass, int microbatch);
int entry_of(const struct mcp_entry_list *list, int role, int layer);
struct mcp_entry take_entry(struct mcp_entry_list *list, int role, int layer);
void put_entry(struct mcp_entry_list *list, int at, struct mcp_entry entry);
/* A copy of an entry of the class's first slot of that pass. */
struct mcp_entry entry_at(struct bench *bench, int class, int pass, int role, int layer);
struct mcp_block *block_of(struct bench *bench, int layer, int role);
struct mcp_op *op_of(struct bench *bench, int layer, int role, int function);

#endif
