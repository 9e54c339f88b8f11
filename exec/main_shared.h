/* exec/main_shared.h: what the executors of all backends do alike: they tell of steps, ask for
 * the end, and load programs. */
#ifndef MCP_EXEC_MAIN_SHARED_H
#define MCP_EXEC_MAIN_SHARED_H

#include "exec/run.h"

struct mcp_teller {
    const char *program; /* that speaks: "mcpplan-exec-cpu" */
    int rank, world;
    bool terminal;
    const struct mcp_run_options *options;
    bool open_line; /* the cursor stands behind a step */
};
struct mcp_teller mcp_teller_of(const char *program, int rank, int world,
                                const struct mcp_run_options *options);
/* Rank 0 tells of steps; notes are told by who has them. */
struct mcp_run_observer mcp_teller_observer(struct mcp_teller *teller);

/* Where the first word is --help or --version, answers on standard output; true: that is all
 * there was to do, with exit status *code. `more` is what the program can do beside training,
 * lines of its own; or "". */
bool mcp_tell_about(const char *program, const char *more, int argc, char **argv, int *code);
/* Text on standard output. MCP_IO where it cannot be written. */
enum mcp_status mcp_tell(const char *text, struct mcp_error *err);

/* Before any thread: SIGTERM and SIGUSR1 wait until they are asked for, between steps; a file
 * that may not grow is an error like a full disk. */
void mcp_block_requests(void);

/* Loads setting->options' programs into *program and the setting, for as many ranks as there
 * are. Of each rank alone. */
enum mcp_status mcp_load_programs(struct mcp_arena *arena, int world,
                                  struct mcp_run_setting *setting, struct mcp_program *program,
                                  struct mcp_error *err);

#endif
