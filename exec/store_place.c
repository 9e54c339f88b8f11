/* exec/store_place.c: what launchers say of a rank, and what a launcher says of its ranks. */
#include "exec/store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- who a rank is --- */

static const struct launcher {
    const char *rank, *size, *local_rank, *local_size, *run;
} launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_ID"},
    /* of the step: a batch script has the job's tasks beside it, and is not one of them */
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_JOB_ID"},
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

/* A rank without a size may be one of many. A shell in a job of Slurm is none. */
static enum mcp_status find_halves(struct mcp_error *err)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *rank = getenv(launchers[i].rank);
        if (rank != NULL && strcmp(launchers[i].rank, "SLURM_PROCID") != 0)
            return mcp_fail(err, MCP_INVALID, "%s=%s is in the environment, and %s is not",
                            launchers[i].rank, rank, launchers[i].size);
    }
    return MCP_OK;
}

/* Of a run that begins again, how often: its late ranks must not meet those of the next. */
static enum mcp_status read_token(const struct launcher *launcher, struct mcp_store_place *out,
                                  struct mcp_error *err)
{
    static const char *const restarts[] = {"MCP_RESTART", "TORCHELASTIC_RESTART_COUNT",
                                           "SLURM_RESTART_COUNT"};
    const char *token = getenv("MCP_TOKEN");
    const char *name = token != NULL ? "MCP_TOKEN" : launcher->run;
    if (token == NULL)
        token = getenv(launcher->run);
    size_t length =
        (size_t)snprintf(out->token, sizeof out->token, "%s", token == NULL ? "" : token);
    for (size_t i = 0; i < sizeof restarts / sizeof *restarts; i++) {
        const char *count = getenv(restarts[i]);
        if (count != NULL && strcmp(count, "0") != 0 && length < sizeof out->token)
            length +=
                (size_t)snprintf(out->token + length, sizeof out->token - length, "/%s", count);
    }
    if (length < sizeof out->token)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "%s in the environment, with how often the run has begun again, is a token of "
                    "%zu letters, and may have %zu",
                    name, length, sizeof out->token - 1);
}

static enum mcp_status read_address(struct mcp_store_place *out, struct mcp_error *err)
{
    const char *address = getenv("MASTER_ADDR");
    if (address == NULL || address[0] == '\0')
        return mcp_fail(err, MCP_INVALID,
                        "MASTER_ADDR is not in the environment: where ranks find rank 0 of %d",
                        out->size);
    const size_t length = (size_t)snprintf(out->address, sizeof out->address, "%s", address);
    if (length < sizeof out->address)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "MASTER_ADDR in the environment has %zu letters, and may have %zu", length,
                    sizeof out->address - 1);
}

static enum mcp_status read_local(const struct launcher *launcher, struct mcp_store_place *out,
                                  struct mcp_error *err)
{
    MCP_TRY(read_optional(launcher->local_rank, &out->local_rank, err));
    MCP_TRY(read_optional(launcher->local_size, &out->local_size, err));
    if (out->local_size == 0 || out->local_rank < out->local_size)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID, "%s=%d in the environment is not below %s=%d",
                    launcher->local_rank, out->local_rank, launcher->local_size, out->local_size);
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
    *out = (struct mcp_store_place){.size = 1, .local_rank = -1};
    if (launcher == NULL)
        return find_halves(err);
    MCP_TRY(read_number(launcher->size, 1, 1 << 20, &out->size, err));
    MCP_TRY(read_number(launcher->rank, 0, out->size - 1, &out->rank, err));
    MCP_TRY(read_local(launcher, out, err));
    if (out->size == 1)
        return MCP_OK;
    MCP_TRY(read_address(out, err));
    MCP_TRY(read_token(launcher, out, err));
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
