/* core/shell_words.h: the words of a shell script or of a YAML of flags.
 *
 * Words part at blanks; quotes join, # begins a comment, a backslash takes the next
 * character (a line's end: nothing). $NAME, ${NAME} and ${NAME:-default} stand for
 * what NAME=value said before; what nothing says stays and is named, as far as the
 * first 4,096 names go. */
#ifndef MCP_CORE_SHELL_WORDS_H
#define MCP_CORE_SHELL_WORDS_H

#include "core/arena.h"

#include <stddef.h>

enum { MCP_MAX_WORDS = 1 << 20 };
struct mcp_words {
    size_t count; /* MCP_MAX_WORDS: there may be more */
    const char **items;
    const char *open; /* names that nothing sets, sorted, "A B C"; "" when none */
};
struct mcp_words mcp_shell_words(struct mcp_arena *arena, const char *text);

#endif
