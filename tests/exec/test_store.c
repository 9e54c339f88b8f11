/* tests/exec/test_store.c: ranks find each other by what launchers say, and only their own. */
#include "core/arena.h"
#include "exec/store.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* --- the environment --- */

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

struct case_place {
    char name[40];
    char environment[400]; /* NAME=value, separated by blanks */
    enum mcp_status status;
    char says[80];
    int rank, size, local_rank, port;
    char token[32];
};
ParameterizedTestParameters(store, place)
{
    static struct case_place cases[] = {
        {"nothing: one rank", "", MCP_OK, "", 0, 1, -1, 0, ""},
        {"torchrun",
         "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29500 "
         "TORCHELASTIC_RUN_ID=run7",
         MCP_OK, "", 5, 8, 1, 29500, "run7"},
        {"torchrun that holds the port",
         "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True",
         MCP_OK, "", 1, 2, -1, 29501, ""},
        {"Open MPI",
         "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=3 "
         "MASTER_ADDR=a MASTER_PORT=1 MCP_PORT=77 MCP_TOKEN=secret PMIX_NAMESPACE=other",
         MCP_OK, "", 3, 4, 3, 77, "secret"},
        {"MPICH", "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MASTER_ADDR=a MASTER_PORT=9", MCP_OK, "",
         1, 2, 1, 9, ""},
        {"Slurm",
         "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0 SLURM_JOB_ID=99 MASTER_ADDR=a "
         "MASTER_PORT=9",
         MCP_OK, "", 2, 3, 0, 9, "99"},
        {"a batch script of Slurm", "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0", MCP_OK, "", 0,
         1, -1, 0, ""},
        {"begun again",
         "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=9 MCP_TOKEN=secret MCP_RESTART=2 "
         "TORCHELASTIC_RESTART_COUNT=0",
         MCP_OK, "", 0, 2, -1, 9, "secret/2"},
        {"no rank of it", "RANK=8 WORLD_SIZE=8", MCP_INVALID, "RANK=8 in the environment", 0, 0, 0,
         0, ""},
        {"no number", "RANK=1 WORLD_SIZE=2x", MCP_INVALID, "WORLD_SIZE=2x", 0, 0, 0, 0, ""},
        {"no address", "RANK=1 WORLD_SIZE=2", MCP_INVALID, "MASTER_ADDR is not", 0, 0, 0, 0, ""},
        {"an empty address", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=", MCP_INVALID, "MASTER_ADDR is not",
         0, 0, 0, 0, ""},
        {"an address too long", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=" A64 A64 A64 A64, MCP_INVALID,
         "MASTER_ADDR in the environment has 256 letters, and may have 255", 0, 0, 0, 0, ""},
        {"a token too long",
         "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=9 MCP_RESTART=10 TORCHELASTIC_RUN_ID=" A64
             A64,
         MCP_INVALID, "TORCHELASTIC_RUN_ID in the environment, with how often", 0, 0, 0, 0, ""},
        {"a token too long by its restart",
         "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=9 MCP_RESTART=" A64 " MCP_TOKEN=" A64,
         MCP_INVALID, "is a token of 129 letters, and may have 127", 0, 0, 0, 0, ""},
        {"a rank without a size", "RANK=1", MCP_INVALID,
         "RANK=1 is in the environment, and WORLD_SIZE is not", 0, 0, 0, 0, ""},
        {"a number of no rank of the machine",
         "RANK=0 WORLD_SIZE=1 LOCAL_RANK=7 LOCAL_WORLD_SIZE=3", MCP_INVALID,
         "LOCAL_RANK=7 in the environment is not below LOCAL_WORLD_SIZE=3", 0, 0, 0, 0, ""},
        {"no port", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a", MCP_INVALID, "MASTER_PORT is not", 0, 0, 0,
         0, ""},
        {"a port too high", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65535", MCP_INVALID,
         "from 1 to 65534", 0, 0, 0, 0, ""},
    };
    return cr_make_param_array(struct case_place, cases, sizeof cases / sizeof *cases);
}

static void set_environment(char *pairs)
{
    char *rest = pairs;
    for (char *pair; (pair = strtok_r(rest, " ", &rest)) != NULL;) {
        char *value = strchr(pair, '=');
        *value = '\0';
        setenv(pair, value + 1, 1);
    }
}

ParameterizedTest(struct case_place *c, store, place)
{
    struct mcp_store_place place;
    struct mcp_error err = {""};
    set_environment(c->environment);
    enum mcp_status status = mcp_store_place_read(&place, &err);
    cr_assert(eq(int, (int)status, (int)c->status), "%s: %s", c->name, err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
    if (c->status != MCP_OK)
        return;
    cr_expect(eq(int, place.rank, c->rank), "%s", c->name);
    cr_expect(eq(int, place.size, c->size), "%s", c->name);
    cr_expect(eq(int, place.local_rank, c->local_rank), "%s", c->name);
    cr_expect(eq(int, place.port, c->port), "%s", c->name);
    cr_expect(eq(str, place.token, c->token), "%s", c->name);
}

/* --- ranks as threads --- */

enum { MAX_RANKS = 5, NUMBERS = 70 };

struct rank {
    struct mcp_store_place place;
    double timeout_s;
    bool leaves; /* once all are there */
    const struct mcp_store_end *end;
    bool speaks;
    struct mcp_error sentence;
    enum mcp_status status;
    struct mcp_error err;
    int64_t shared, gathered[MAX_RANKS];
    double sums[NUMBERS], largest, smallest;
};

static void talk(struct rank *rank, struct mcp_store *store)
{
    for (int i = 0; i < NUMBERS; i++)
        rank->sums[i] = (i + 1) * (mcp_store_rank(store) + 1);
    rank->largest = rank->smallest = mcp_store_rank(store);
    rank->shared = 1000 + mcp_store_rank(store);
    rank->status = mcp_store_share(store, &rank->shared, sizeof rank->shared, &rank->err);
    const int64_t own = 7 * mcp_store_rank(store);
    if (rank->status == MCP_OK)
        rank->status =
            mcp_store_gather(store, &own, sizeof own,
                             mcp_store_rank(store) == 0 ? rank->gathered : NULL, &rank->err);
    if (rank->status == MCP_OK)
        rank->status = mcp_store_agree(store, rank->sums, NUMBERS, '+', &rank->err);
    if (rank->status == MCP_OK)
        rank->status = mcp_store_agree(store, &rank->largest, 1, '>', &rank->err);
    if (rank->status == MCP_OK)
        rank->status = mcp_store_agree(store, &rank->smallest, 1, '<', &rank->err);
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_store *store;
    rank->status = mcp_store_open(arena, &rank->place, rank->timeout_s, &store, &rank->err);
    if (rank->status == MCP_OK && !rank->leaves && rank->end == NULL)
        talk(rank, store);
    if (rank->end != NULL)
        rank->speaks = mcp_store_leave(store, rank->end, &rank->sentence);
    mcp_arena_free(arena);
    return NULL;
}

static int free_port(void)
{
    int port;
    cr_assert(eq(int, (int)mcp_store_new_port(&port, NULL), MCP_OK));
    return port;
}

static void run_all(struct rank *ranks, int started, int size, double timeout_s)
{
    pthread_t threads[MAX_RANKS];
    int port = free_port();
    for (int i = 0; i < started; i++) {
        struct mcp_store_place *place = &ranks[i].place;
        place->rank = i;
        place->size = size;
        place->port = port;
        snprintf(place->address, sizeof place->address, "127.0.0.1");
        ranks[i].timeout_s = timeout_s;
        pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

Test(store, all_ranks_agree)
{
    static const int sizes[] = {1, 2, MAX_RANKS};
    for (int s = 0; s < 3; s++) {
        static struct rank ranks[MAX_RANKS];
        memset(ranks, 0, sizeof ranks);
        run_all(ranks, sizes[s], sizes[s], 20);
        for (int i = 0; i < sizes[s]; i++) {
            cr_expect(eq(int, (int)ranks[i].status, MCP_OK), "%s", ranks[i].err.text);
            cr_expect(eq(i64, ranks[i].shared, 1000));
            cr_expect(eq(i64, ranks[0].gathered[i], 7 * i));
            for (int n = 0; n < NUMBERS; n++)
                cr_expect(eq(dbl, ranks[i].sums[n], (n + 1) * sizes[s] * (sizes[s] + 1) / 2.0));
            cr_expect(eq(dbl, ranks[i].largest, sizes[s] - 1));
            cr_expect(eq(dbl, ranks[i].smallest, 0));
        }
    }
}

Test(store, who_is_missing_is_named)
{
    static struct rank ranks[MAX_RANKS];
    run_all(ranks, 2, 4, 0.2);
    cr_expect(eq(int, (int)ranks[0].status, MCP_RUN_FAILURE));
    cr_expect(ne(ptr, strstr(ranks[0].err.text, "2 of 4 ranks"), NULL), "%s", ranks[0].err.text);
    cr_expect(ne(ptr, strstr(ranks[0].err.text, "rank 2"), NULL), "%s", ranks[0].err.text);
}

struct stranger {
    int port;
    atomic_bool over;
};

/* Knocks, says nothing, and knocks again as soon as it is sent away. */
static void *knock(void *argument)
{
    struct stranger *stranger = argument;
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)stranger->port),
                                        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    while (!atomic_load(&stranger->over)) {
        int handle = socket(AF_INET, SOCK_STREAM, 0);
        char nothing;
        if (connect(handle, (const struct sockaddr *)&address, sizeof address) != 0 ||
            read(handle, &nothing, 1) != 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        close(handle);
    }
    return NULL;
}

/* Rank 0 waits as long as it was told, whoever else comes. */
Test(store, strangers_keep_nobody_waiting, .timeout = 20)
{
    static struct rank rank;
    struct stranger stranger = {.port = free_port()};
    pthread_t threads[4];
    rank.place = (struct mcp_store_place){.size = 2, .port = stranger.port, .address = "127.0.0.1"};
    rank.timeout_s = 0.3;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, knock, &stranger);
    run_rank(&rank);
    atomic_store(&stranger.over, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_expect(ne(ptr, strstr(rank.err.text, "1 of 2 ranks"), NULL), "%s", rank.err.text);
}

Test(store, ranks_of_another_run_are_not_let_in)
{
    static struct rank ranks[MAX_RANKS];
    ranks[1].place.token[0] = 'x';
    run_all(ranks, 2, 2, 0.3);
    cr_expect(ne(ptr, strstr(ranks[0].err.text, "the first of them rank 1"), NULL), "%s",
              ranks[0].err.text);
    cr_expect(ne(ptr, strstr(ranks[1].err.text, "of another run"), NULL), "%s", ranks[1].err.text);
}

Test(store, who_has_ended_is_named)
{
    static struct rank ranks[MAX_RANKS];
    ranks[2].leaves = true;
    run_all(ranks, 3, 3, 20);
    cr_expect(eq(int, (int)ranks[0].status, MCP_RUN_FAILURE));
    cr_expect(ne(ptr, strstr(ranks[0].err.text, "rank 2 has ended"), NULL), "%s",
              ranks[0].err.text);
    cr_expect(ne(ptr, strstr(ranks[1].err.text, "rank 0 has ended"), NULL), "%s",
              ranks[1].err.text);
}

/* --- ends --- */

struct case_end {
    char name[48];
    int ranks;
    int status[MAX_RANKS]; /* -1: ends without a word */
    int faults[MAX_RANKS];
    char reasons[MAX_RANKS][24];
    int speaks; /* -1: nobody */
    char says[64];
};
ParameterizedTestParameters(store, end)
{
    static struct case_end cases[] = {
        {"all is well", 3, {0}, {0}, {""}, -1, ""},
        {"one rank fails",
         3,
         {MCP_RUN_FAILURE, MCP_RUN_FAILURE, MCP_IO},
         {MCP_STORE_WAITED, MCP_STORE_TOLD, 0},
         {"rank 0 waited", "rank 1 waited", "no data"},
         0,
         "rank 2: no data"},
        {"two do, and name themselves",
         3,
         {MCP_RUN_FAILURE, MCP_IO, MCP_IO},
         {MCP_STORE_WAITED, 0, 0},
         {"rank 0 waited", "rank 1: no data", "rank 2: no data"},
         0,
         "rank 1: no data"},
        {"all fail alike", 2, {MCP_IO, MCP_IO}, {0}, {"no data", "no data"}, 0, "no data"},
        {"one is lost",
         3,
         {MCP_RUN_FAILURE, MCP_RUN_FAILURE, -1},
         {MCP_STORE_WAITED, MCP_STORE_TOLD, 0},
         {"rank 0 waited", "rank 1 waited", ""},
         0,
         "rank 2 has ended; rank 0 waited"},
        {"all wait, and none is lost",
         2,
         {MCP_RUN_FAILURE, MCP_RUN_FAILURE},
         {MCP_STORE_TOLD, MCP_STORE_WAITED},
         {"rank 0 was told", "rank 1 waited"},
         0,
         "rank 1 waited"},
        {"that one is lost is not said twice",
         3,
         {MCP_RUN_FAILURE, MCP_RUN_FAILURE, -1},
         {MCP_STORE_TOLD, MCP_STORE_TOLD, 0},
         {"rank 2 has ended", "rank 2 has ended", ""},
         0,
         "rank 2 has ended"},
        {"rank 0 is lost",
         2,
         {-1, MCP_RUN_FAILURE},
         {0, MCP_STORE_TOLD},
         {"", "rank 1 waited"},
         1,
         "rank 0 has ended; rank 1 waited"},
        {"one rank", 1, {MCP_IO}, {0}, {"no data"}, 0, "no data"},
    };
    return cr_make_param_array(struct case_end, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_end *c, store, end)
{
    static struct rank ranks[MAX_RANKS];
    struct mcp_store_end ends[MAX_RANKS];
    for (int i = 0; i < c->ranks; i++) {
        ends[i] = (struct mcp_store_end){(enum mcp_status)c->status[i],
                                         (enum mcp_store_fault)c->faults[i], c->reasons[i]};
        ranks[i].leaves = c->status[i] < 0;
        ranks[i].end = ranks[i].leaves ? NULL : &ends[i];
    }
    run_all(ranks, c->ranks, c->ranks, 20);
    for (int i = 0; i < c->ranks; i++)
        cr_expect(eq(int, ranks[i].speaks, i == c->speaks), "%s: rank %d: %s", c->name, i,
                  ranks[i].sentence.text);
    if (c->speaks >= 0)
        cr_expect(eq(str, ranks[c->speaks].sentence.text, c->says), "%s", c->name);
}

Test(store, nobody_at_the_address)
{
    static struct rank ranks[MAX_RANKS];
    ranks[1].place =
        (struct mcp_store_place){.rank = 1, .size = 2, .port = free_port(), .address = "127.0.0.1"};
    ranks[1].timeout_s = 0.2;
    run_rank(&ranks[1]);
    cr_expect(ne(ptr, strstr(ranks[1].err.text, "cannot reach rank 0 at 127.0.0.1"), NULL), "%s",
              ranks[1].err.text);
}

/* What drops who comes, as firewalls do, holds nobody past the limit. */
Test(store, nothing_answers_at_the_address, .timeout = 60)
{
    static struct rank rank;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int port = free_port(), listening = socket(AF_INET, SOCK_STREAM, 0);
    int waiting[4]; /* more than are let wait: who comes after them is dropped */
    address.sin_port = htons((uint16_t)port);
    cr_assert(bind(listening, (const struct sockaddr *)&address, sizeof address) == 0);
    cr_assert(listen(listening, 0) == 0);
    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM, 0);
        cr_assert(fcntl(waiting[i], F_SETFL, O_NONBLOCK) == 0);
        connect(waiting[i], (const struct sockaddr *)&address, sizeof address);
    }
    rank.place =
        (struct mcp_store_place){.rank = 1, .size = 2, .port = port, .address = "127.0.0.1"};
    rank.timeout_s = 0.3;
    run_rank(&rank);
    cr_expect(ne(ptr, strstr(rank.err.text, "cannot reach rank 0 at 127.0.0.1"), NULL), "%s",
              rank.err.text);
    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++)
        close(waiting[i]);
    close(listening);
}

Test(store, tokens_are_never_the_same)
{
    char first[33], second[33];
    cr_assert(eq(int, (int)mcp_store_new_token(first, NULL), MCP_OK));
    cr_assert(eq(int, (int)mcp_store_new_token(second, NULL), MCP_OK));
    cr_expect(eq(sz, strlen(first), 32));
    cr_expect(ne(str, first, second));
}
