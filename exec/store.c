/* exec/store.c: a star of TCP connections around rank 0. */
#include "exec/store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct mcp_store {
    int rank, size;
    double timeout_s;
    int listening; /* of rank 0 while ranks come; -1: no more */
    int *peers;    /* [size] of rank 0, -1: none; else [0] is rank 0's */
};

/* --- who a rank is --- */

static const struct launcher {
    const char *rank, *size, *local_rank, *local_size, *run;
} launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_ID"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_JOB_ID"},
};

static enum mcp_status read_number(const char *name, int least, int most, int *out,
                                   struct mcp_error *err)
{
    const char *text = getenv(name);
    char *end = NULL;
    if (text == NULL)
        return mcp_fail(err, MCP_INVALID, "%s is not in the environment", name);
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < least || value > most)
        return mcp_fail(err, MCP_INVALID, "%s=%s in the environment is no number from %d to %d",
                        name, text, least, most);
    *out = (int)value;
    return MCP_OK;
}

static enum mcp_status read_optional(const char *name, int *out, struct mcp_error *err)
{
    return getenv(name) == NULL ? MCP_OK : read_number(name, 0, 1 << 20, out, err);
}

static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (getenv(launchers[i].rank) != NULL && getenv(launchers[i].size) != NULL)
            return &launchers[i];
    return NULL;
}

static void read_token(const struct launcher *launcher, struct mcp_store_place *out)
{
    const char *token = getenv("MCP_TOKEN");
    if (token == NULL)
        token = getenv(launcher->run);
    snprintf(out->token, sizeof out->token, "%s", token == NULL ? "" : token);
}

/* torchrun may hold MASTER_PORT for ranks of its own kind. */
static enum mcp_status read_port(struct mcp_store_place *out, struct mcp_error *err)
{
    const char *held = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (getenv("MCP_PORT") != NULL)
        return read_number("MCP_PORT", 1, 65535, &out->port, err);
    MCP_TRY(read_number("MASTER_PORT", 1, 65534, &out->port, err));
    out->port += held != NULL && strcmp(held, "True") == 0;
    return MCP_OK;
}

enum mcp_status mcp_store_place_read(struct mcp_store_place *out, struct mcp_error *err)
{
    const struct launcher *launcher = find_launcher();
    const char *address = getenv("MASTER_ADDR");
    *out = (struct mcp_store_place){.size = 1, .local_rank = -1};
    if (launcher == NULL)
        return MCP_OK;
    MCP_TRY(read_number(launcher->size, 1, 1 << 20, &out->size, err));
    MCP_TRY(read_number(launcher->rank, 0, out->size - 1, &out->rank, err));
    MCP_TRY(read_optional(launcher->local_rank, &out->local_rank, err));
    MCP_TRY(read_optional(launcher->local_size, &out->local_size, err));
    if (out->size == 1)
        return MCP_OK;
    if (address == NULL || strlen(address) >= sizeof out->address)
        return mcp_fail(err, MCP_INVALID,
                        "MASTER_ADDR is not in the environment: where ranks find rank 0 of %d",
                        out->size);
    snprintf(out->address, sizeof out->address, "%s", address);
    read_token(launcher, out);
    return read_port(out, err);
}

/* --- for who starts ranks --- */

enum mcp_status mcp_store_new_port(int *port, struct mcp_error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int handle = socket(AF_INET, SOCK_STREAM, 0);
    bool found = handle >= 0 &&
                 bind(handle, (const struct sockaddr *)&address, sizeof address) == 0 &&
                 getsockname(handle, (struct sockaddr *)&address, &length) == 0;
    *port = ntohs(address.sin_port);
    if (handle >= 0)
        close(handle);
    return found ? MCP_OK
                 : mcp_fail(err, MCP_IO, "no port is free on this machine: %s", strerror(errno));
}

enum mcp_status mcp_store_new_token(char token[33], struct mcp_error *err)
{
    unsigned char bytes[16];
    FILE *file = fopen("/dev/urandom", "rb");
    const bool drawn = file != NULL && fread(bytes, 1, sizeof bytes, file) == sizeof bytes;
    if (file != NULL)
        fclose(file);
    if (!drawn)
        return mcp_fail(err, MCP_IO, "/dev/urandom cannot be read");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return MCP_OK;
}

/* --- bytes, in time --- */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Until the socket can be read or written, or the time has come. */
static bool wait_for(int socket, short what, double until_s)
{
    struct pollfd poll_of = {.fd = socket, .events = what};
    double left_s = until_s - now_s();
    int milliseconds = left_s <= 0 ? 0 : left_s > 1e6 ? 1000000000 : (int)(left_s * 1e3) + 1;
    int ready;
    do
        ready = poll(&poll_of, 1, milliseconds);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

enum moved { MOVED, LATE, ENDED };

static enum moved receive(int socket, void *data, size_t bytes, double until_s)
{
    char *at = data;
    while (bytes > 0) {
        if (!wait_for(socket, POLLIN, until_s))
            return LATE;
        ssize_t some = recv(socket, at, bytes, 0);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return ENDED;
        at += some;
        bytes -= (size_t)some;
    }
    return MOVED;
}

static enum moved transmit(int socket, const void *data, size_t bytes, double until_s)
{
    const char *at = data;
    while (bytes > 0) {
        if (!wait_for(socket, POLLOUT, until_s))
            return LATE;
        ssize_t some = send(socket, at, bytes, MSG_NOSIGNAL);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return ENDED;
        at += some;
        bytes -= (size_t)some;
    }
    return MOVED;
}

static enum mcp_status blame(const struct mcp_store *store, enum moved moved, int peer,
                             struct mcp_error *err)
{
    if (moved == MOVED)
        return MCP_OK;
    if (moved == ENDED)
        return mcp_fail(err, MCP_RUN_FAILURE, "rank %d has ended", peer);
    return mcp_fail(err, MCP_RUN_FAILURE, "rank %d has waited for rank %d for %.0f s", store->rank,
                    peer, store->timeout_s);
}

/* --- joining --- */

/* What a rank says first. */
struct hello {
    char name[8];
    char token[128];
    uint32_t rank, size; /* in the network's order */
};
static const char hello_name[8] = "mcpplan1";

static struct hello hello_of(const struct mcp_store_place *place)
{
    struct hello hello = {.rank = htonl((uint32_t)place->rank),
                          .size = htonl((uint32_t)place->size)};
    memcpy(hello.name, hello_name, sizeof hello.name);
    memcpy(hello.token, place->token, sizeof hello.token);
    return hello;
}

static void close_store(void *handle)
{
    struct mcp_store *store = handle;
    if (store->listening >= 0)
        close(store->listening);
    for (int i = 0; i < store->size; i++)
        if (store->peers[i] >= 0)
            close(store->peers[i]);
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
 * all. */
static enum mcp_status start_listening(struct mcp_store *store, const struct mcp_store_place *place,
                                       struct mcp_error *err)
{
    struct addrinfo *found;
    const struct sockaddr_in any = {.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)place->port)};
    int reason = 0;
    MCP_TRY(resolve(place, &found, err));
    for (const struct addrinfo *a = found; a != NULL && store->listening < 0; a = a->ai_next) {
        store->listening = listen_on(a->ai_addr, a->ai_addrlen, store->size);
        reason = errno;
    }
    freeaddrinfo(found); /* which may change errno */
    if (store->listening < 0 && reason == EADDRNOTAVAIL) {
        store->listening = listen_on((const struct sockaddr *)&any, sizeof any, store->size);
        reason = errno;
    }
    if (store->listening < 0)
        return mcp_fail(err, MCP_RUN_FAILURE, "rank 0 cannot listen on port %d of %s: %s",
                        place->port, place->address, strerror(reason));
    return MCP_OK;
}

static int connect_to(const struct addrinfo *address)
{
    const int yes = 1;
    int peer = socket(address->ai_family, SOCK_STREAM, 0);
    if (peer < 0)
        return -1;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(peer, address->ai_addr, address->ai_addrlen) == 0)
        return peer;
    close(peer);
    return -1;
}

/* Rank 0 may start last: others try again until it is there. */
static enum mcp_status find_rank_0(struct mcp_store *store, const struct mcp_store_place *place,
                                   double until_s, struct mcp_error *err)
{
    const struct hello hello = hello_of(place);
    struct addrinfo *found;
    char welcome = 0;
    MCP_TRY(resolve(place, &found, err));
    while (store->peers[0] < 0 && now_s() < until_s) {
        for (const struct addrinfo *a = found; a != NULL && store->peers[0] < 0; a = a->ai_next)
            store->peers[0] = connect_to(a);
        if (store->peers[0] < 0)
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    freeaddrinfo(found);
    if (store->peers[0] < 0)
        return mcp_fail(err, MCP_RUN_FAILURE, "rank %d cannot reach rank 0 at %s, port %d",
                        place->rank, place->address, place->port);
    enum moved moved = transmit(store->peers[0], &hello, sizeof hello, until_s);
    if (moved == MOVED)
        moved = receive(store->peers[0], &welcome, 1, until_s);
    if (moved == ENDED)
        return mcp_fail(err, MCP_RUN_FAILURE,
                        "rank 0 at %s, port %d is of another run, or has ended", place->address,
                        place->port);
    return blame(store, moved, 0, err);
}

/* Who says the token and a rank of this run that is not there yet; -1: nobody to let in. */
static int rank_of(const struct mcp_store *store, const struct mcp_store_place *place,
                   const struct hello *hello)
{
    uint32_t rank = ntohl(hello->rank), size = ntohl(hello->size);
    unsigned different = 0;
    for (size_t i = 0; i < sizeof hello->token; i++)
        different |= (unsigned)(hello->token[i] ^ place->token[i]);
    if (different != 0 || memcmp(hello->name, hello_name, sizeof hello_name) != 0)
        return -1;
    if (size != (uint32_t)store->size || rank == 0 || rank >= size || store->peers[rank] >= 0)
        return -1;
    return (int)rank;
}

/* Strangers are given a second to say who they are. */
static bool let_in(struct mcp_store *store, const struct mcp_store_place *place)
{
    const int yes = 1;
    struct hello hello;
    int peer = accept(store->listening, NULL, NULL);
    if (peer < 0)
        return false;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    int rank = receive(peer, &hello, sizeof hello, now_s() + 1) == MOVED
                   ? rank_of(store, place, &hello)
                   : -1;
    if (rank < 0)
        close(peer);
    else
        store->peers[rank] = peer;
    return rank > 0;
}

static enum mcp_status name_missing(const struct mcp_store *store, int missing,
                                    struct mcp_error *err)
{
    int first = 1;
    while (first < store->size && store->peers[first] >= 0)
        first++;
    return mcp_fail(err, MCP_RUN_FAILURE,
                    "%d of %d ranks have not come within %.0f s, the first of them rank %d",
                    missing, store->size, store->timeout_s, first);
}

static enum mcp_status gather_all(struct mcp_store *store, const struct mcp_store_place *place,
                                  double until_s, struct mcp_error *err)
{
    const char welcome = 1;
    int missing = store->size - 1;
    MCP_TRY(start_listening(store, place, err));
    while (missing > 0) { /* strangers that come one after the other are no reason to go on */
        if (now_s() > until_s || !wait_for(store->listening, POLLIN, until_s))
            return name_missing(store, missing, err);
        missing -= let_in(store, place);
    }
    close(store->listening);
    store->listening = -1;
    for (int i = 1; i < store->size; i++)
        MCP_TRY(blame(store, transmit(store->peers[i], &welcome, 1, until_s), i, err));
    return MCP_OK;
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
    *store = (struct mcp_store){.rank = place->rank,
                                .size = place->size,
                                .timeout_s = limit_s,
                                .listening = -1,
                                .peers = MCP_ARRAY(arena, place->size, int)};
    for (int i = 0; i < place->size; i++)
        store->peers[i] = -1;
    mcp_defer(arena, close_store, store);
    *out = store;
    if (place->size == 1)
        return MCP_OK;
    if (place->rank > 0)
        return find_rank_0(store, place, now_s() + limit_s, err);
    allow_files(place->size + 64);
    return gather_all(store, place, now_s() + limit_s, err);
}

int mcp_store_rank(const struct mcp_store *store)
{
    return store->rank;
}

int mcp_store_size(const struct mcp_store *store)
{
    return store->size;
}

/* --- afterwards --- */

enum mcp_status mcp_store_share(struct mcp_store *store, void *data, int64_t bytes,
                                struct mcp_error *err)
{
    const double until_s = now_s() + store->timeout_s;
    if (store->rank > 0)
        return blame(store, receive(store->peers[0], data, (size_t)bytes, until_s), 0, err);
    for (int i = 1; i < store->size; i++)
        MCP_TRY(blame(store, transmit(store->peers[i], data, (size_t)bytes, until_s), i, err));
    return MCP_OK;
}

enum mcp_status mcp_store_gather(struct mcp_store *store, const void *own, int64_t bytes, void *all,
                                 struct mcp_error *err)
{
    const double until_s = now_s() + store->timeout_s;
    if (store->rank > 0)
        return blame(store, transmit(store->peers[0], own, (size_t)bytes, until_s), 0, err);
    memcpy(all, own, (size_t)bytes);
    for (int i = 1; i < store->size; i++) {
        char *to = (char *)all + i * bytes;
        MCP_TRY(blame(store, receive(store->peers[i], to, (size_t)bytes, until_s), i, err));
    }
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
    const double until_s = now_s() + store->timeout_s;
    const size_t bytes = (size_t)count * sizeof *values;
    double more[AT_ONCE] = {0};
    if (store->rank > 0)
        MCP_TRY(blame(store, transmit(store->peers[0], values, bytes, until_s), 0, err));
    for (int i = 1; store->rank == 0 && i < store->size; i++) {
        MCP_TRY(blame(store, receive(store->peers[i], more, bytes, until_s), i, err));
        combine(values, more, count, operation);
    }
    return mcp_store_share(store, values, (int64_t)bytes, err);
}

enum mcp_status mcp_store_agree(struct mcp_store *store, double *values, int count, char operation,
                                struct mcp_error *err)
{
    for (int first = 0; first < count; first += AT_ONCE)
        MCP_TRY(agree_on_some(store, values + first,
                              count - first < AT_ONCE ? count - first : AT_ONCE, operation, err));
    return MCP_OK;
}
