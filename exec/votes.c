/* exec/votes.c: all or none, and who is still at work. */
#include "exec/votes.h"

#define BEAT_S 1.0

/* Of which all ranks get the greatest. */
enum { BUSY, FAILED, DONE, NUM_VOTES };

static enum mcp_status vote(struct mcp_votes *votes, double values[NUM_VOTES],
                            struct mcp_error *err)
{
    const enum mcp_status status = votes->calls->agree(votes->backend, values, NUM_VOTES, '>', err);
    votes->voted_s = votes->calls->clock(votes->backend);
    return status;
}

enum mcp_status mcp_votes_busy(struct mcp_votes *votes, struct mcp_error *err)
{
    double values[NUM_VOTES] = {[BUSY] = 1};
    if (votes == NULL || votes->calls->clock(votes->backend) - votes->voted_s < BEAT_S)
        return MCP_OK;
    return vote(votes, values, err);
}

/* The status and sentence of rank `from`, as numbers: that is what ranks can agree on. */
static enum mcp_status share_reason(const struct mcp_votes *votes, int from, enum mcp_status mine,
                                    const char *doing, struct mcp_error *err)
{
    struct mcp_error reason = {""}, none;
    double letters[sizeof reason.text + 1] = {0};
    if (votes->rank == from) {
        letters[sizeof reason.text] = mine;
        for (size_t i = 0; i < sizeof reason.text && err->text[i] != '\0'; i++)
            letters[i] = (unsigned char)err->text[i];
    }
    if (votes->calls->agree(votes->backend, letters, sizeof reason.text + 1, '+', &none) != MCP_OK)
        return mine != MCP_OK ? mine
                              : mcp_fail(err, MCP_RUN_FAILURE, "rank %d cannot %s", from, doing);
    for (size_t i = 0; i + 1 < sizeof reason.text; i++)
        reason.text[i] = (char)(unsigned char)letters[i];
    return mcp_fail(err, (enum mcp_status)(int)letters[sizeof reason.text], "rank %d cannot %s: %s",
                    from, doing, reason.text);
}

enum mcp_status mcp_votes_all_or_none(struct mcp_votes *votes, enum mcp_status mine,
                                      const char *doing, struct mcp_error *err)
{
    double values[NUM_VOTES];
    if (votes == NULL)
        return mine;
    do {
        values[BUSY] = 0;
        values[FAILED] = mine == MCP_OK ? 0 : votes->world - votes->rank; /* the first: most */
        values[DONE] = mine == MCP_OK;
        const enum mcp_status status = vote(votes, values, mine == MCP_OK ? err : NULL);
        if (status != MCP_OK)
            return mine != MCP_OK ? mine : status;
    } while (values[BUSY] > 0);
    if (values[FAILED] > 0 && values[DONE] > 0)
        return share_reason(votes, votes->world - (int)values[FAILED], mine, doing, err);
    return mine;
}
