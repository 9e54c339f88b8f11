/* tests/exec/guarded.h: a backend of one rank that shows whoever touches what lies outside the
 * operands of an op: each is moved, for as long as the op runs, to memory of its own that no other
 * follows. What reads or writes past its end gets SIGSEGV; what writes in the few bytes before a
 * page's end, or before its start, is found when it moves back. */
#ifndef TESTS_EXEC_GUARDED_H
#define TESTS_EXEC_GUARDED_H

#include "core/arena.h"
#include "exec/backend.h"

extern const struct mcp_backend_calls guarded_calls;

/* For blocks of so many bytes; larger ones are MCP_RUN_FAILURE. Until the arena is freed. NULL: the
 * machine has no room. */
struct mcp_backend *guarded_new(struct mcp_arena *arena, int64_t most_bytes);
/* For another program, whose block is the arena's. */
void guarded_begin(struct mcp_backend *backend, struct mcp_arena *arena);
/* Has an op written outside its operands? */
bool guarded_is_damaged(const struct mcp_backend *backend);

#endif
