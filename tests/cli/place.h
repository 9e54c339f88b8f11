/* tests/cli/place.h: a folder in which commands plan and train a tiny model.
 *
 * MCPPLAN names the program, by default build/release/mcpplan. Run from the repository's root. In
 * commands "@" stands for the folder. */
#ifndef MCP_TESTS_CLI_PLACE_H
#define MCP_TESTS_CLI_PLACE_H

#include "core/arena.h"

#include <sys/types.h>

struct place {
    struct mcp_arena *arena;
    const char *folder, *program;
};

/* Two ranks for the model; where they are and the file are still to be said. */
#define PLACE_PLAN                                                                                 \
    "plan --model @/model.json --cluster dgx-a100 --gpus 2 --global-batch-size 8 "                 \
    "--sequence-length 32 --precision fp32 --stack mcpplan-cpu --attention flash2 "                \
    "--microbatch-size 2 "

/* With @/model.json, of Llama's shape over bytes, and @/text.tokens. */
struct place place_new(void);
void place_leave(const struct place *at);

/* "mcpplan COMMAND", one thread a rank, what it says in @/out and @/said; its exit code. */
int place_run(const struct place *at, const char *command);
/* The same, which is to succeed. */
void place_must(const struct place *at, const char *command);
/* The same, begun: the program itself; and the exit code it ends with. */
pid_t place_begin(const struct place *at, const char *command);
int place_end_of(pid_t child);

/* Another program of the same build, such as "mcpplan-exec-cpu". */
const char *place_program(const struct place *at, const char *name);

/* With the folder for each "@". */
const char *place_spelled(const struct place *at, const char *text);
/* A shell's exit code. */
int place_shell(const struct place *at, const char *command);
/* What a file of the folder holds, such as "said"; "": there is none. */
const char *place_content(const struct place *at, const char *name);

#endif
