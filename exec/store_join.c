/* exec/store_join.c: rank 0 lets ranks of its run in, and the others find it. */
#include "exec/store_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* What holds the port, or answers there, may be the end of a run before this one. */
static const double patience_s = 3;
/* What drops who comes, as firewalls do, is asked anew, of the next address too. */
static const double try_s = 3;

/* What a rank says first. */
struct hello {
    char name[8];
    char token[128];
    uint32_t rank, size; /* in the network's order */
};
static const char hello_name[8] = "mcpplan2";

static struct hello hello_of(const struct mcp_store_place *place)
{
    struct hello hello = {.rank = htonl((uint32_t)place->rank),
                          .size = htonl((uint32_t)place->size)};
    memcpy(hello.name, hello_name, sizeof hello.name);
    memcpy(hello.token, place->token, sizeof hello.token);
    return hello;
}

static void pause_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

static double sooner(double a, double b)
{
    return a < b ? a : b;
}

static enum mcp_status resolve(const struct mcp_store_place *place, struct addrinfo **out,
                               struct mcp_error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[16];
    snprintf(port, sizeof port, "%d", place->port);
    int code = getaddrinfo(place->address, port, &hints, out);
    if (code == 0)
        return MCP_OK;
    return mcp_fail(err, MCP_RUN_FAILURE, "rank 0's address %s: %s", place->address,
                    gai_strerror(code));
}

/* --- the others --- */

/* The system itself would wait for minutes. */
static bool has_connected(int peer, double until_s)
{
    int reason = 0;
    socklen_t length = sizeof reason;
    return mcp_wire_wait(peer, POLLOUT, until_s) &&
           getsockopt(peer, SOL_SOCKET, SO_ERROR, &reason, &length) == 0 && reason == 0;
}

static int connect_to(const struct addrinfo *address, double until_s)
{
    const int yes = 1;
    int peer = socket(address->ai_family, SOCK_STREAM, 0);
    if (peer < 0)
        return -1;
    const int flags = fcntl(peer, F_GETFL);
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(peer, F_SETFL, flags | O_NONBLOCK);
    if (connect(peer, address->ai_addr, address->ai_addrlen) == 0 ||
        (errno == EINPROGRESS && has_connected(peer, until_s))) {
        fcntl(peer, F_SETFL, flags);
        return peer;
    }
    close(peer);
    return -1;
}

/* Rank 0 may start last: others try again until it is there. */
static bool reach(struct mcp_peer *peer, const struct addrinfo *found, double until_s)
{
    while (peer->socket < 0 && mcp_wire_now_s() < until_s) {
        for (const struct addrinfo *a = found; a != NULL && peer->socket < 0; a = a->ai_next)
            peer->socket = connect_to(a, sooner(until_s, mcp_wire_now_s() + try_s));
        if (peer->socket < 0)
            pause_a_moment();
    }
    return peer->socket >= 0;
}

/* Says who this rank is; MCP_ENDED without an end: it was sent away. */
static enum mcp_moved knock(struct mcp_store *store, const struct mcp_store_place *place,
                            double until_s)
{
    const struct hello hello = hello_of(place);
    char nothing;
    store->peers[0].state = MCP_PEER_HERE;
    enum mcp_moved moved = mcp_wire_transmit(store->peers[0].socket, &hello, sizeof hello, until_s);
    return moved == MCP_MOVED ? mcp_store_receive(store, 0, &nothing, 0, until_s) : moved;
}

/* Who listens there may be rank 0 of the run before, and leave. */
static enum mcp_status meet(struct mcp_store *store, const struct mcp_store_place *place,
                            const struct addrinfo *found, double until_s, struct mcp_error *err)
{
    struct mcp_peer *peer = &store->peers[0];
    const double soon_s = sooner(until_s, mcp_wire_now_s() + patience_s);
    bool sent_away = false;
    while (reach(peer, found, sent_away ? soon_s : until_s)) {
        const enum mcp_moved moved = knock(store, place, until_s);
        if (moved != MCP_ENDED || peer->end != NULL)
            return mcp_store_blame(store, moved, 0, err);
        close(peer->socket);
        *peer = (struct mcp_peer){.socket = -1};
        sent_away = true;
        pause_a_moment();
    }
    if (sent_away)
        return mcp_fail(err, MCP_RUN_FAILURE,
                        "rank %d: at %s, port %d is rank 0 of another run (the token differs), or "
                        "something else",
                        place->rank, place->address, place->port);
    return mcp_fail(err, MCP_RUN_FAILURE, "rank %d cannot reach rank 0 at %s, port %d", place->rank,
                    place->address, place->port);
}

enum mcp_status mcp_store_find_rank_0(struct mcp_store *store, const struct mcp_store_place *place,
                                      double until_s, struct mcp_error *err)
{
    struct addrinfo *found;
    MCP_TRY(resolve(place, &found, err));
    const enum mcp_status status = meet(store, place, found, until_s, err);
    freeaddrinfo(found);
    return status;
}

/* --- rank 0 --- */

static int listen_on(const struct sockaddr *address, socklen_t length, int size)
{
    const int yes = 1;
    int listening = socket(address->sa_family, SOCK_STREAM, 0);
    if (listening < 0)
        return -1;
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listening, address, length) == 0 && listen(listening, size) == 0)
        return listening;
    int reason = errno;
    close(listening);
    errno = reason;
    return -1;
}

/* On the address alone that others are told; where that is a name for another interface, on
 * all. 0, or why not. */
static int try_to_listen(struct mcp_store *store, const struct mcp_store_place *place,
                         const struct addrinfo *found)
{
    const struct sockaddr_in any = {.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)place->port)};
    int reason = 0;
    for (const struct addrinfo *a = found; a != NULL && store->listening < 0; a = a->ai_next) {
        store->listening = listen_on(a->ai_addr, a->ai_addrlen, store->size);
        reason = errno;
    }
    if (store->listening < 0 && reason == EADDRNOTAVAIL) {
        store->listening = listen_on((const struct sockaddr *)&any, sizeof any, store->size);
        reason = errno;
    }
    return store->listening >= 0 ? 0 : reason;
}

static enum mcp_status start_listening(struct mcp_store *store, const struct mcp_store_place *place,
                                       double until_s, struct mcp_error *err)
{
    const double soon_s = sooner(until_s, mcp_wire_now_s() + patience_s);
    struct addrinfo *found;
    int reason;
    MCP_TRY(resolve(place, &found, err));
    while ((reason = try_to_listen(store, place, found)) == EADDRINUSE && mcp_wire_now_s() < soon_s)
        pause_a_moment();
    freeaddrinfo(found);
    return reason == 0 ? MCP_OK
                       : mcp_fail(err, MCP_RUN_FAILURE, "rank 0 cannot listen on port %d of %s: %s",
                                  place->port, place->address, strerror(reason));
}

static bool knows_token(const struct mcp_store_place *place, const struct hello *hello)
{
    unsigned different = 0;
    for (size_t i = 0; i < sizeof hello->token; i++)
        different |= (unsigned)(hello->token[i] ^ place->token[i]);
    return different == 0 && memcmp(hello->name, hello_name, sizeof hello_name) == 0;
}

/* Who has the token is told why it is not let in: it alone (MCP_MESSAGE_REFUSED), or as all are
 * (MCP_MESSAGE_END), since rank 0 ends too. */
static void refuse(int socket, enum mcp_message message, const char *reason)
{
    const struct mcp_farewell end = mcp_farewell_of(MCP_INVALID, MCP_STORE_OWN, reason);
    mcp_wire_send(socket, message, &end, sizeof end, mcp_wire_now_s() + 1);
    close(socket);
}

/* A rank of this run takes its place. */
static enum mcp_status seat(struct mcp_store *store, int socket, const struct hello *hello,
                            int *come, struct mcp_error *err)
{
    const uint32_t rank = ntohl(hello->rank), size = ntohl(hello->size);
    struct mcp_error why;
    if (size != (uint32_t)store->size) {
        refuse(socket, MCP_MESSAGE_END, "sizes differ");
        return mcp_fail(err, MCP_INVALID,
                        "rank %u has been told of %u ranks, and rank 0 of %d: all must be told "
                        "the same",
                        rank, size, store->size);
    }
    if (rank == 0 || rank >= size || store->peers[rank].socket >= 0) {
        mcp_fail(&why, MCP_INVALID, "rank %u is there already: two processes say that they are it",
                 rank);
        refuse(socket, MCP_MESSAGE_REFUSED, why.text);
        return MCP_OK;
    }
    store->peers[rank].socket = socket;
    store->peers[rank].state = MCP_PEER_HERE;
    ++*come;
    return MCP_OK;
}

/* Strangers are given a second to say who they are, and told nothing. */
static enum mcp_status let_in(struct mcp_store *store, const struct mcp_store_place *place,
                              int *come, struct mcp_error *err)
{
    const int yes = 1;
    struct hello hello;
    int peer = accept(store->listening, NULL, NULL);
    if (peer < 0)
        return MCP_OK;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (mcp_wire_receive(peer, &hello, sizeof hello, mcp_wire_now_s() + 1) == MCP_MOVED &&
        knows_token(place, &hello))
        return seat(store, peer, &hello, come, err);
    store->strangers = true;
    close(peer);
    return MCP_OK;
}

static enum mcp_status name_missing(struct mcp_store *store, int missing, struct mcp_error *err)
{
    int first = 1;
    while (first < store->size && store->peers[first].socket >= 0)
        first++;
    return mcp_fail(err, MCP_RUN_FAILURE,
                    "%d of %d ranks have not come within %g s, the first of them rank %d%s",
                    missing, store->size, store->timeout_s, first,
                    store->strangers ? "; who came without this run's token was sent away" : "");
}

enum mcp_status mcp_store_gather_ranks(struct mcp_store *store, const struct mcp_store_place *place,
                                       double until_s, struct mcp_error *err)
{
    int come = 0;
    MCP_TRY(start_listening(store, place, until_s, err));
    while (come < store->size - 1) { /* strangers are no reason to wait any longer */
        if (mcp_wire_now_s() > until_s || !mcp_wire_wait(store->listening, POLLIN, until_s))
            return name_missing(store, store->size - 1 - come, err);
        MCP_TRY(let_in(store, place, &come, err));
    }
    close(store->listening);
    store->listening = -1;
    for (int i = 1; i < store->size; i++) {
        const enum mcp_moved moved =
            mcp_wire_send(store->peers[i].socket, MCP_MESSAGE_DATA, NULL, 0, until_s);
        MCP_TRY(mcp_store_blame(store, moved, i, err));
    }
    return MCP_OK;
}
