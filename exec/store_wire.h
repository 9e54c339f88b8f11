/* exec/store_wire.h: bytes between two processes, in time, and messages made of them. Private to
 * exec/store.c, store_join.c and store_end.c. */
#ifndef MCP_EXEC_STORE_WIRE_H
#define MCP_EXEC_STORE_WIRE_H

#include "exec/store.h"

enum mcp_moved { MCP_MOVED, MCP_LATE, MCP_ENDED };

/* Seconds of a steady clock. */
double mcp_wire_now_s(void);
/* Until the socket can be read (POLLIN) or written (POLLOUT); false: the time has come. */
bool mcp_wire_wait(int socket, short what, double until_s);
enum mcp_moved mcp_wire_receive(int socket, void *data, size_t bytes, double until_s);
enum mcp_moved mcp_wire_transmit(int socket, const void *data, size_t bytes, double until_s);

/* What a message is. */
enum mcp_message {
    MCP_MESSAGE_DATA = 1,
    MCP_MESSAGE_END = 2,    /* struct mcp_farewell: how its sender ends */
    MCP_MESSAGE_REFUSED = 3 /* struct mcp_farewell: why who came is not let in */
};
struct mcp_farewell {
    uint32_t status, fault; /* in the network's order */
    char reason[sizeof((struct mcp_error *)0)->text];
};

enum mcp_peer_state {
    MCP_PEER_ABSENT, /* has not come yet, or is not connected with this rank */
    MCP_PEER_HERE,
    MCP_PEER_DONE,  /* has said that it ends well */
    MCP_PEER_FAILS, /* has said why it fails */
    MCP_PEER_LOST   /* has ended without a word */
};
struct mcp_peer {
    int socket; /* -1: none */
    enum mcp_peer_state state;
    struct mcp_farewell *end; /* of one that fails */
};

struct mcp_store {
    struct mcp_arena *arena;
    int rank, size;
    const int *names;
    double timeout_s, next_look_s;
    int listening;          /* of rank 0 while ranks come; -1: no more */
    bool refused;           /* this rank alone is not let in */
    bool strangers;         /* have come, and were sent away */
    struct mcp_peer *peers; /* [size]: of rank 0 all others; else [0] alone */
};

int mcp_store_name(const struct mcp_store *store, int rank);
/* One message; of data whose length is known to the receiver, who throws away what comes where
 * `data` is NULL. An end that comes instead is kept, and is MCP_ENDED. */
enum mcp_moved mcp_wire_send(int socket, enum mcp_message message, const void *data, size_t bytes,
                             double until_s);
enum mcp_moved mcp_store_receive(struct mcp_store *store, int peer, void *data, size_t bytes,
                                 double until_s);
/* MCP_OK of what has moved; else why not: the peer is late, has said why it ends, or has not. */
enum mcp_status mcp_store_blame(struct mcp_store *store, enum mcp_moved moved, int peer,
                                struct mcp_error *err);
struct mcp_farewell mcp_farewell_of(enum mcp_status status, enum mcp_store_fault fault,
                                    const char *reason);

/* store_join.c: the two sides of a meeting. */
enum mcp_status mcp_store_find_rank_0(struct mcp_store *store, const struct mcp_store_place *place,
                                      double until_s, struct mcp_error *err);
enum mcp_status mcp_store_gather_ranks(struct mcp_store *store, const struct mcp_store_place *place,
                                       double until_s, struct mcp_error *err);

#endif
