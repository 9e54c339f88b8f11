/* exec/transfer.h: a transfer's launch as any backend sees it: where its elements lie, its
 * shards, and the rows of experts. What transfers mean: exec/backend.h. */
#ifndef MCP_EXEC_TRANSFER_H
#define MCP_EXEC_TRANSFER_H

#include "exec/backend.h"

#include <stdbool.h>

/* Which functions and dtypes transfers have, on any backend. */
bool mcp_transfer_supports(enum mcp_function function, enum mcp_dtype dtype);

struct mcp_transfer {
    unsigned char function, dtype;
    signed char delta;
    bool accumulate;           /* reduce_scatter adds to what is there and clears what it read */
    int64_t elements, columns; /* columns: of a row of all_to_all_v */
    char *from, *to;           /* the first element; NULL: there is none */
    int64_t to_bytes;          /* of the buffer behind `to` */
};
void mcp_transfer_read(const struct mcp_launch *launch, struct mcp_transfer *out);
int64_t mcp_transfer_size(const struct mcp_transfer *transfer); /* bytes of an element */

/* Member `member` of `members` ranks has elements [first, first + count) of n. */
struct mcp_shard {
    int64_t first, count;
};
struct mcp_shard mcp_shard_of(int64_t elements, int members, int member);
/* Who is `delta` further on in a ring. */
int mcp_neighbour(int members, int member, int delta);

/* Rows by expert: sorted as this rank has them, or grouped as its experts get them. */
struct mcp_rows {
    int experts, local, members; /* of all, of this rank */
    int64_t row_bytes;
    const int32_t *has;  /* [experts] */
    const int32_t *gets; /* [members][local] */
};
struct mcp_rows mcp_rows_of(const struct mcp_transfer *transfer, const int32_t *sizes, int experts,
                            int members);
/* Bytes before the rows of local expert `expert` that come from `member`. */
int64_t mcp_rows_before(const struct mcp_rows *rows, int member, int expert);
/* Is there room for all rows that come? The sentence says what to choose smaller. */
enum mcp_status mcp_rows_check(const struct mcp_transfer *transfer, const struct mcp_rows *rows,
                               struct mcp_error *err);

#endif
