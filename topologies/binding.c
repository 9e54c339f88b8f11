/* topologies/binding.c: cores shared out among ranks. */
#include "topologies/binding.h"

#include "core/text.h"

int mcp_binding_threads(int num_cores, int num_ranks)
{
    return num_cores > num_ranks ? num_cores / num_ranks : 1;
}

struct mcp_binding mcp_binding_of(int num_cores, int num_ranks, int threads, int index)
{
    const int share = num_cores / num_ranks;
    if (threads > share)
        return (struct mcp_binding){0, 0};
    return (struct mcp_binding){index * share, threads};
}

const char *mcp_binding_lack(struct mcp_arena *arena, const struct mcp_host_cores *cores,
                             int num_ranks, int threads)
{
    if (threads <= cores->count / num_ranks)
        return NULL;
    return mcp_format(arena,
                      "%d rank%s of %d thread%s share core%s %s, all that this process may use: "
                      "none is bound, and they take turns",
                      num_ranks, num_ranks == 1 ? "" : "s", threads, threads == 1 ? "" : "s",
                      cores->count == 1 ? "" : "s",
                      mcp_host_cores_text(arena, cores, 0, cores->count));
}
