/* exec/votes.h: what ranks decide together: whether all could do their part, and that who
 * works alone for long has not been lost.
 *
 * All ranks call mcp_votes_all_or_none() in one order. Before it each does its part, and calls
 * mcp_votes_busy() between pieces of it: so those that are done first wait for as long as it
 * takes, and no longer than the backend's limit for a rank that does nothing any more. */
#ifndef MCP_EXEC_VOTES_H
#define MCP_EXEC_VOTES_H

#include "exec/backend.h"

struct mcp_votes {
    const struct mcp_backend_calls *calls;
    struct mcp_backend *backend;
    int rank, world;
    double voted_s; /* when this rank last did, by the backend's clock */
};

/* "I am at work": to the others, once a second at most. NULL: there are no others. Fails when
 * another rank was waited for longer than the backend's limit. */
enum mcp_status mcp_votes_busy(struct mcp_votes *votes, struct mcp_error *err);

/* When `mine` is how this rank fared with `doing`: every rank fails where one does, with the
 * status and the reason of the first one that did, "rank 1 cannot open data: ..."; where all
 * fail each with its own. NULL: there are no others. */
enum mcp_status mcp_votes_all_or_none(struct mcp_votes *votes, enum mcp_status mine,
                                      const char *doing, struct mcp_error *err);

#endif
