/* tests/cli/child.h: the program run as a child, and what every run of it owes its user.
 *
 * MCPPLAN names the program, by default build/release/mcpplan. Run from the
 * repository's root. */
#ifndef MCP_TESTS_CLI_CHILD_H
#define MCP_TESTS_CLI_CHILD_H

#include "core/arena.h"
#include "core/error.h"

#include <stddef.h>

enum { MAX_WORDS = 10, WORD = 56, TEMPORARY_PATH = 32 };

/* One run. stdin is empty. */
struct child {
    struct mcp_arena *arena;
    const char *stdout_path; /* NULL: kept in `out`; "": closed */
    int status;              /* exit code, or 128 + signal */
    char *out, *err;
};

/* What a program may count on nowhere is unset, so that results do not vary. */
void child_settle_environment(void);

/* Runs the words up to the first "~"; the word "@" is replaced by `file`. */
void child_run(struct child *child, char words[][WORD], char *file);

struct child_case {
    char name[56];
    char words[MAX_WORDS][WORD];
    enum mcp_status want;
    char out[72];  /* stdout holds it */
    char err[104]; /* stderr holds it */
};

/* Exit code and texts are those wanted; a failure is one sentence on stderr, unless
 * stdout has it as the answer, and only an answer puts anything on stdout. */
void child_check(struct child_case *c, char *file);

/* What a command that succeeds says on its standard output, in a new file. */
void child_keep_output(char path[TEMPORARY_PATH], char words[][WORD], char *file);
/* A plan of a tiny model on eight GPUs and two stages, as plan writes it, in a new file. */
void child_write_plan(char path[TEMPORARY_PATH]);
/* A new file; the caller removes it. */
void child_write_file(char path[TEMPORARY_PATH], const char *text, size_t length);

#endif
