/* core/error.h: how every function that can fail says so.
 *
 * A failing function returns a status and fills `err` with one sentence, without
 * capital or full stop, that names the file, the place, the value and the
 * nearest legal choice. On success `err` is untouched. The status is the
 * program's exit code. */
#ifndef MCP_CORE_ERROR_H
#define MCP_CORE_ERROR_H

#include <stdbool.h>

enum mcp_status {
    MCP_OK = 0,
    MCP_CHECK_FAILED = 1, /* a threshold or a comparison did not hold */
    MCP_USAGE = 2,        /* the command line is wrong */
    MCP_IO = 3,           /* a file cannot be read or written */
    MCP_FORMAT = 4,       /* a file is not what it should be */
    MCP_INVALID = 5,      /* well-formed input that contradicts itself */
    MCP_INFEASIBLE = 6,   /* an answer: no plan exists, and why */
    MCP_RUN_FAILURE = 7   /* a run died or ran out of memory */
};

struct mcp_error {
    char text[1024];
};

/* Writes the sentence into `err` (which may be NULL) and returns `status`. */
enum mcp_status mcp_fail(struct mcp_error *err, enum mcp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the sentence already in `err`. */
void mcp_error_prefix(struct mcp_error *err, const char *prefix);

/* Whether a sentence begins by naming a rank, "rank 3": all that are about one rank of a run
 * do, wherever they come from, so that it is put there once. */
bool mcp_error_names_rank(const char *sentence);

/* Returns the status to the caller unless it is MCP_OK. Safe because the arena
 * owns everything: there is no clean-up code to skip. */
#define MCP_TRY(call)                                                                              \
    do {                                                                                           \
        enum mcp_status mcp_try_status_ = (call);                                                  \
        if (mcp_try_status_ != MCP_OK)                                                             \
            return mcp_try_status_;                                                                \
    } while (0)

#endif
