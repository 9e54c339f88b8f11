/* tests/topologies/corpus.h: other people's files in MCP_SHARED/corpus. */
#ifndef MCP_TESTS_TOPOLOGIES_CORPUS_H
#define MCP_TESTS_TOPOLOGIES_CORPUS_H

#include "core/csv.h"
#include "topologies/dump.h"

struct corpus {
    struct mcp_arena *arena;
    const char *folder;
    struct mcp_csv index;
};

/* False, saying so, when the folder is not there. */
bool corpus_open(struct mcp_arena *arena, const char *name, struct corpus *out);
const char *corpus_cell(const struct corpus *corpus, size_t row, const char *column);
/* A count in the index; -1: none. */
int corpus_int(const struct corpus *corpus, size_t row, const char *column);
struct mcp_text corpus_text(const struct corpus *corpus, size_t row);
/* Reads the file of the row as topo FILE would. */
enum mcp_status corpus_read(const struct corpus *corpus, size_t row, struct mcp_dump *out,
                            struct mcp_error *err);

#endif
