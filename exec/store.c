/* exec/store.c: a star of TCP connections around rank 0, and what goes over it. */
#include "exec/store_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* --- bytes, in time --- */

double mcp_wire_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool mcp_wire_wait(int socket, short what, double until_s)
{
    struct pollfd poll_of = {.fd = socket, .events = what};
    double left_s = until_s - mcp_wire_now_s();
    int milliseconds = left_s <= 0 ? 0 : left_s > 1e6 ? 1000000000 : (int)(left_s * 1e3) + 1;
    int ready;
    do
        ready = poll(&poll_of, 1, milliseconds);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

enum mcp_moved mcp_wire_receive(int socket, void *data, size_t bytes, double until_s)
{
    char *at = data;
    while (bytes > 0) {
        if (!mcp_wire_wait(socket, POLLIN, until_s))
            return MCP_LATE;
        ssize_t some = recv(socket, at, bytes, 0);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return MCP_ENDED;
        at += some;
        bytes -= (size_t)some;
    }
    return MCP_MOVED;
}

/* A peer that reads nothing must not stop this rank. */
enum mcp_moved mcp_wire_transmit(int socket, const void *data, size_t bytes, double until_s)
{
    const char *at = data;
    while (bytes > 0) {
        if (!mcp_wire_wait(socket, POLLOUT, until_s))
            return MCP_LATE;
        ssize_t some = send(socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (some < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (some <= 0)
            return MCP_ENDED;
        at += some;
        bytes -= (size_t)some;
    }
    return MCP_MOVED;
}

/* --- messages --- */

/* What stands before each. */
struct head {
    uint32_t message, bytes; /* in the network's order */
};

struct mcp_farewell mcp_farewell_of(enum mcp_status status, enum mcp_store_fault fault,
                                    const char *reason)
{
    struct mcp_farewell out = {.status = htonl((uint32_t)status), .fault = htonl((uint32_t)fault)};
    const size_t length = reason == NULL ? 0 : strlen(reason);
    memcpy(out.reason, reason == NULL ? "" : reason,
           length < sizeof out.reason ? length : sizeof out.reason - 1);
    return out;
}

enum mcp_moved mcp_wire_send(int socket, enum mcp_message message, const void *data, size_t bytes,
                             double until_s)
{
    const struct head head = {htonl((uint32_t)message), htonl((uint32_t)bytes)};
    const enum mcp_moved moved = mcp_wire_transmit(socket, &head, sizeof head, until_s);
    return moved == MCP_MOVED ? mcp_wire_transmit(socket, data, bytes, until_s) : moved;
}

static enum mcp_moved lose(struct mcp_peer *peer)
{
    peer->state = MCP_PEER_LOST;
    return MCP_ENDED;
}

static enum mcp_moved skip(int socket, uint32_t bytes, double until_s)
{
    char some[256];
    enum mcp_moved moved = MCP_MOVED;
    for (uint32_t left = bytes; moved == MCP_MOVED && left > 0;) {
        const size_t next = left < sizeof some ? left : sizeof some;
        moved = mcp_wire_receive(socket, some, next, until_s);
        left -= (uint32_t)next;
    }
    return moved;
}

/* What its peer says last. */
static enum mcp_moved take_end(struct mcp_store *store, struct mcp_peer *peer, double until_s)
{
    struct mcp_farewell *end = MCP_NEW(store->arena, struct mcp_farewell);
    if (mcp_wire_receive(peer->socket, end, sizeof *end, until_s) != MCP_MOVED)
        return lose(peer);
    end->reason[sizeof end->reason - 1] = '\0';
    peer->end = end;
    peer->state = end->status == htonl(MCP_OK) ? MCP_PEER_DONE : MCP_PEER_FAILS;
    return MCP_ENDED;
}

enum mcp_moved mcp_store_receive(struct mcp_store *store, int rank, void *data, size_t bytes,
                                 double until_s)
{
    struct mcp_peer *peer = &store->peers[rank];
    struct head head;
    if (peer->state > MCP_PEER_HERE)
        return MCP_ENDED;
    enum mcp_moved moved = mcp_wire_receive(peer->socket, &head, sizeof head, until_s);
    const uint32_t message = ntohl(head.message), length = ntohl(head.bytes);
    if (moved == MCP_MOVED && message != MCP_MESSAGE_DATA) {
        store->refused = message == MCP_MESSAGE_REFUSED;
        return length == sizeof *peer->end ? take_end(store, peer, until_s) : lose(peer);
    }
    if (moved == MCP_MOVED && data == NULL)
        moved = skip(peer->socket, length, until_s);
    else if (moved == MCP_MOVED)
        moved = length == bytes ? mcp_wire_receive(peer->socket, data, bytes, until_s) : MCP_ENDED;
    return moved == MCP_ENDED ? lose(peer) : moved;
}

int mcp_store_name(const struct mcp_store *store, int rank)
{
    return store->names != NULL ? store->names[rank] : rank;
}

static enum mcp_status status_of(const struct mcp_farewell *end)
{
    const uint32_t status = ntohl(end->status);
    return status > MCP_OK && status < MCP_RUN_FAILURE ? (enum mcp_status)status : MCP_RUN_FAILURE;
}

enum mcp_status mcp_store_blame(struct mcp_store *store, enum mcp_moved moved, int peer,
                                struct mcp_error *err)
{
    const struct mcp_peer *other = &store->peers[peer];
    const int name = mcp_store_name(store, peer);
    if (moved == MCP_MOVED)
        return MCP_OK;
    if (moved == MCP_LATE)
        return mcp_fail(err, MCP_RUN_FAILURE, "rank %d has waited %g s for rank %d",
                        mcp_store_name(store, store->rank), store->timeout_s, name);
    if (other->state == MCP_PEER_FAILS)
        return mcp_fail(err, status_of(other->end), "%s", other->end->reason);
    return mcp_fail(err, MCP_RUN_FAILURE, "rank %d has ended", name);
}

/* --- opening --- */

static void close_store(void *handle)
{
    struct mcp_store *store = handle;
    if (store->listening >= 0)
        close(store->listening);
    for (int i = 0; i < store->size; i++)
        if (store->peers[i].socket >= 0)
            close(store->peers[i].socket);
}

/* A connection is an open file. */
static void allow_files(int count)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)count)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

enum mcp_status mcp_store_open(struct mcp_arena *arena, const struct mcp_store_place *place,
                               double timeout_s, struct mcp_store **out, struct mcp_error *err)
{
    struct mcp_store *store = MCP_NEW(arena, struct mcp_store);
    const double limit_s = timeout_s > 0 ? timeout_s : 1e9;
    *store = (struct mcp_store){.arena = arena,
                                .rank = place->rank,
                                .size = place->size,
                                .timeout_s = limit_s,
                                .listening = -1,
                                .peers = MCP_ARRAY(arena, place->size, struct mcp_peer)};
    for (int i = 0; i < place->size; i++)
        store->peers[i] = (struct mcp_peer){.socket = -1};
    mcp_defer(arena, close_store, store);
    *out = store;
    if (place->size == 1)
        return MCP_OK;
    if (place->rank > 0)
        return mcp_store_find_rank_0(store, place, mcp_wire_now_s() + limit_s, err);
    allow_files(place->size + 64);
    return mcp_store_gather_ranks(store, place, mcp_wire_now_s() + limit_s, err);
}

int mcp_store_rank(const struct mcp_store *store)
{
    return store->rank;
}

int mcp_store_size(const struct mcp_store *store)
{
    return store->size;
}

void mcp_store_name_ranks(struct mcp_store *store, const int *names)
{
    store->names = names;
}

/* --- afterwards --- */

static enum mcp_status give(struct mcp_store *store, int peer, const void *data, int64_t bytes,
                            double until_s, struct mcp_error *err)
{
    enum mcp_moved moved = MCP_ENDED;
    if (store->peers[peer].state == MCP_PEER_HERE)
        moved = mcp_wire_send(store->peers[peer].socket, MCP_MESSAGE_DATA, data, (size_t)bytes,
                              until_s);
    return mcp_store_blame(store, moved, peer, err);
}

static enum mcp_status get(struct mcp_store *store, int peer, void *data, int64_t bytes,
                           double until_s, struct mcp_error *err)
{
    return mcp_store_blame(store, mcp_store_receive(store, peer, data, (size_t)bytes, until_s),
                           peer, err);
}

enum mcp_status mcp_store_share(struct mcp_store *store, void *data, int64_t bytes,
                                struct mcp_error *err)
{
    const double until_s = mcp_wire_now_s() + store->timeout_s;
    if (store->rank > 0)
        return get(store, 0, data, bytes, until_s, err);
    for (int i = 1; i < store->size; i++)
        MCP_TRY(give(store, i, data, bytes, until_s, err));
    return MCP_OK;
}

enum mcp_status mcp_store_gather(struct mcp_store *store, const void *own, int64_t bytes, void *all,
                                 struct mcp_error *err)
{
    const double until_s = mcp_wire_now_s() + store->timeout_s;
    if (store->rank > 0)
        return give(store, 0, own, bytes, until_s, err);
    memcpy(all, own, (size_t)bytes);
    for (int i = 1; i < store->size; i++)
        MCP_TRY(get(store, i, (char *)all + i * bytes, bytes, until_s, err));
    return MCP_OK;
}

static void combine(double *values, const double *more, int count, char operation)
{
    for (int i = 0; i < count; i++) {
        if (operation == '+')
            values[i] += more[i];
        else if (operation == '>' ? more[i] > values[i] : more[i] < values[i])
            values[i] = more[i];
    }
}

enum { AT_ONCE = 64 };

static enum mcp_status agree_on_some(struct mcp_store *store, double *values, int count,
                                     char operation, struct mcp_error *err)
{
    const double until_s = mcp_wire_now_s() + store->timeout_s;
    const int64_t bytes = count * (int64_t)sizeof *values;
    double more[AT_ONCE] = {0};
    if (store->rank > 0)
        MCP_TRY(give(store, 0, values, bytes, until_s, err));
    for (int i = 1; store->rank == 0 && i < store->size; i++) {
        MCP_TRY(get(store, i, more, bytes, until_s, err));
        combine(values, more, count, operation);
    }
    return mcp_store_share(store, values, bytes, err);
}

enum mcp_status mcp_store_agree(struct mcp_store *store, double *values, int count, char operation,
                                struct mcp_error *err)
{
    for (int first = 0; first < count; first += AT_ONCE)
        MCP_TRY(agree_on_some(store, values + first,
                              count - first < AT_ONCE ? count - first : AT_ONCE, operation, err));
    return MCP_OK;
}
