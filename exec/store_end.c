/* exec/store_end.c: how ranks end: each says why to rank 0, who says it once for all. */
#include "exec/store_wire.h"

#include "core/text.h"

#include <arpa/inet.h>
#include <poll.h>

/* Rank 0 waits so long for reasons; others for rank 0, and then until it has spoken. */
static const double collect_s = 2, answer_s = 4, look_every_s = 0.1;

/* --- listening --- */

/* What has come from peers that are here; false: nothing within the time. */
static bool hear(struct mcp_store *store, struct pollfd *polls, double until_s)
{
    const double left_s = until_s - mcp_wire_now_s();
    for (int i = 0; i < store->size; i++) {
        const struct mcp_peer *peer = &store->peers[i];
        polls[i] = (struct pollfd){.fd = peer->state == MCP_PEER_HERE ? peer->socket : -1,
                                   .events = POLLIN};
    }
    if (poll(polls, (nfds_t)store->size, left_s <= 0 ? 0 : (int)(left_s * 1e3) + 1) <= 0)
        return false;
    for (int i = 0; i < store->size; i++)
        if (polls[i].revents != 0)
            mcp_store_receive(store, i, NULL, 0, mcp_wire_now_s() + 1);
    return true;
}

/* The rank in a state whose name is the least; -1: none. How many there are. */
static int first_in(const struct mcp_store *store, enum mcp_peer_state state, int *count)
{
    int first = -1;
    *count = 0;
    for (int i = 0; i < store->size; i++)
        if (store->peers[i].state == state) {
            ++*count;
            if (first < 0 || mcp_store_name(store, i) < mcp_store_name(store, first))
                first = i;
        }
    return first;
}

static struct pollfd *new_polls(struct mcp_arena *arena, const struct mcp_store *store)
{
    return MCP_ARRAY(arena, store->size, struct pollfd);
}

enum mcp_status mcp_store_look(struct mcp_store *store, struct mcp_error *err)
{
    const double now_s = mcp_wire_now_s();
    int count;
    if (now_s < store->next_look_s)
        return MCP_OK;
    struct mcp_arena *scratch = mcp_arena_new();
    store->next_look_s = now_s + look_every_s;
    hear(store, new_polls(scratch, store), 0);
    mcp_arena_free(scratch);
    int found = first_in(store, MCP_PEER_FAILS, &count);
    if (found < 0)
        found = first_in(store, MCP_PEER_LOST, &count);
    return found < 0 ? MCP_OK : mcp_store_blame(store, MCP_ENDED, found, err);
}

/* --- one sentence --- */

/* What rank 0 knows of why ranks fail, its own reason among it. */
struct verdict {
    int rank; /* with a reason that is to be told; -1: none */
    const char *reason;
    int alike; /* ranks with that reason */
};

/* Of ranks that fail by that fault the first. */
static struct verdict find_reason(const struct mcp_store *store, enum mcp_store_fault fault)
{
    struct verdict out = {-1, NULL, 0};
    for (int i = 0; i < store->size; i++) {
        const struct mcp_farewell *end = store->peers[i].end;
        if (store->peers[i].state != MCP_PEER_FAILS || end->fault != htonl((uint32_t)fault))
            continue;
        if (out.rank < 0 || mcp_store_name(store, i) < mcp_store_name(store, out.rank))
            out = (struct verdict){i, end->reason, 0};
    }
    for (int i = 0; out.rank >= 0 && i < store->size; i++)
        out.alike += store->peers[i].state == MCP_PEER_FAILS &&
                     mcp_same(store->peers[i].end->reason, out.reason);
    return out;
}

/* Sentences about a rank say its name, but for those that all say. */
static void tell_reason(const struct mcp_store *store, const struct verdict *own,
                        struct mcp_error *err)
{
    if (own->alike > 1 || store->size == 1 || mcp_error_names_rank(own->reason))
        mcp_fail(err, MCP_RUN_FAILURE, "%s", own->reason);
    else
        mcp_fail(err, MCP_RUN_FAILURE, "rank %d: %s", mcp_store_name(store, own->rank),
                 own->reason);
}

static bool is_end_of(const struct mcp_store *store, int lost, const char *sentence)
{
    return lost >= 0 && mcp_same(sentence, mcp_format(store->arena, "rank %d has ended",
                                                      mcp_store_name(store, lost)));
}

/* What a rank waited for, or was told, where that is more than that a rank is gone; or "". */
static const char *find_witness(const struct mcp_store *store, int lost)
{
    struct verdict witness = find_reason(store, MCP_STORE_WAITED);
    if (witness.rank < 0)
        witness = find_reason(store, MCP_STORE_TOLD);
    return witness.rank < 0 || is_end_of(store, lost, witness.reason) ? "" : witness.reason;
}

/* Whoever has a reason of its own; else who is gone, or does not answer, and who waited. */
static void judge(const struct mcp_store *store, struct mcp_error *err)
{
    const struct verdict own = find_reason(store, MCP_STORE_OWN);
    int gone, silent;
    const int lost = first_in(store, MCP_PEER_LOST, &gone);
    const int mute = first_in(store, MCP_PEER_HERE, &silent);
    const char *saw = find_witness(store, lost), *link = saw[0] != '\0' ? "; " : "";
    if (own.rank >= 0)
        tell_reason(store, &own, err);
    else if (lost >= 0 && gone > 1)
        mcp_fail(err, MCP_RUN_FAILURE, "%d ranks have ended, the first of them rank %d%s%s", gone,
                 mcp_store_name(store, lost), link, saw);
    else if (lost >= 0)
        mcp_fail(err, MCP_RUN_FAILURE, "rank %d has ended%s%s", mcp_store_name(store, lost), link,
                 saw);
    else if (mute >= 0)
        mcp_fail(err, MCP_RUN_FAILURE,
                 "%srank %d does not answer: it has stopped, or is at work%s%s",
                 silent > 1 ? mcp_format(store->arena, "%d ranks, the first of them ", silent) : "",
                 mcp_store_name(store, mute), link, saw);
    else
        mcp_fail(err, MCP_RUN_FAILURE, "%s", saw);
}

/* --- leaving --- */

/* As if it were a peer's, in this rank's own place, which is free. */
static void keep_own(struct mcp_store *store, const struct mcp_farewell *end)
{
    struct mcp_peer *self = &store->peers[store->rank];
    self->end = MCP_NEW(store->arena, struct mcp_farewell);
    *self->end = *end;
    self->state = MCP_PEER_FAILS;
}

static void say_end(struct mcp_store *store, int peer, const struct mcp_farewell *end)
{
    const struct mcp_peer *to = &store->peers[peer];
    if (to->socket >= 0 && to->state != MCP_PEER_LOST)
        mcp_wire_send(to->socket, MCP_MESSAGE_END, end, sizeof *end, mcp_wire_now_s() + 1);
}

/* Rank 0 has all that are still there say how they fare, and waits for it. */
static void collect(struct mcp_store *store)
{
    const double until_s = mcp_wire_now_s() + collect_s;
    struct pollfd *polls = new_polls(store->arena, store);
    int left;
    while (first_in(store, MCP_PEER_HERE, &left) >= 0 && hear(store, polls, until_s))
        continue;
}

/* Another rank waits for rank 0 to take over, and then until it has spoken: who ends sooner may
 * have its launcher end rank 0. True: it takes over. */
static bool is_spoken_for(struct mcp_store *store)
{
    const double until_s = mcp_wire_now_s() + answer_s;
    struct pollfd *polls = new_polls(store->arena, store);
    struct mcp_peer *first = &store->peers[0];
    char nothing;
    while (first->state == MCP_PEER_HERE && hear(store, polls, until_s))
        continue;
    if (first->state != MCP_PEER_FAILS)
        return false;
    mcp_wire_receive(first->socket, &nothing, 1, until_s);
    return true;
}

bool mcp_store_leave(struct mcp_store *store, const struct mcp_store_end *end,
                     struct mcp_error *err)
{
    const struct mcp_farewell own = mcp_farewell_of(end->status, end->fault, end->reason);
    const bool fails = end->status != MCP_OK;
    for (int i = 0; i < store->size; i++)
        if (i != store->rank && (store->rank == 0 || i == 0))
            say_end(store, i, &own);
    if (!fails)
        return false;
    if (store->rank == 0)
        collect(store);
    else if (!store->refused && is_spoken_for(store))
        return false;
    keep_own(store, &own);
    judge(store, err);
    return true;
}
