/* exec/main_cuda.c: mcpplan-exec-cuda: the ranks of a training run on GPUs, one each.
 *
 * Started once per rank: by mcpplan train --backend cuda through mpirun, or by anybody's mpirun,
 * srun or torchrun. Who a rank is: exec/store.h.
 *     torchrun --nproc-per-node 8 --no-python mcpplan-exec-cuda --program step.json ...
 * With --rooflines first it measures instead: exec/main_rooflines.h. */
#include "core/mesh.h"
#include "core/rank_map.h"
#include "core/text.h"
#include "exec/cuda_backend.h"
#include "exec/cuda_runtime.h"
#include "exec/machine.h"
#include "exec/main_rooflines.h"
#include "exec/main_shared.h"
#include "exec/store.h"
#include "topologies/hwloc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char name[] = "mcpplan-exec-cuda";

struct rank {
    struct mcp_arena *arena;
    struct mcp_store *store;
    struct mcp_store_place place;
    struct mcp_teller teller;
    struct mcp_program program;
    struct mcp_run_setting setting;
    struct mcp_nccl_world *world;
    bool follows; /* another rank has failed */
};

/* --- ranks among each other --- */

/* Where one fails all do: it says so as it leaves. */
static enum mcp_status settle(struct rank *rank, enum mcp_status status, struct mcp_error *err)
{
    double nothing = 0;
    MCP_TRY(status);
    const enum mcp_status lost = mcp_store_agree(rank->store, &nothing, 1, '>', err);
    rank->follows = lost != MCP_OK;
    return lost;
}

static enum mcp_status look_at_others(void *store, struct mcp_error *err)
{
    return mcp_store_look(store, err);
}

static enum mcp_store_fault fault_of(const struct rank *rank)
{
    const enum mcp_nccl_fault fault =
        rank->world == NULL ? MCP_NCCL_OWN : mcp_nccl_fault_of(rank->world);
    if (rank->follows || fault == MCP_NCCL_TOLD)
        return MCP_STORE_TOLD;
    return fault == MCP_NCCL_OWN ? MCP_STORE_OWN : MCP_STORE_WAITED;
}

/* Of ranks that fail one says why. */
static void part(struct rank *rank, enum mcp_status status, const struct mcp_error *err)
{
    const struct mcp_store_end end = {status, fault_of(rank), err->text};
    struct mcp_error sentence = {""};
    if (rank->store == NULL && status != MCP_OK)
        fprintf(stderr, "%s: %s\n", name, err->text);
    if (rank->store != NULL && mcp_store_leave(rank->store, &end, &sentence))
        fprintf(stderr, "%s: %s\n", name, sentence.text);
}

/* --- the device --- */

/* Where a launcher shows each process its own device there is one, else as many as ranks. */
static enum mcp_status choose_device(struct rank *rank, int *device, struct mcp_error *err)
{
    int count;
    MCP_TRY(mcp_cuda_count(&count, err));
    int local = rank->place.local_rank >= 0 ? rank->place.local_rank : rank->place.rank % count;
    *device = count == 1 ? 0 : local;
    if (*device >= count)
        return mcp_fail(err, MCP_INVALID,
                        "rank %d is number %d of its machine, which has %d devices: start fewer "
                        "ranks on each",
                        rank->place.rank, local + 1, count);
    return mcp_cuda_choose(*device, err);
}

/* Launchers that bind ranks have their reasons, and not every machine has parts. */
static void bind_beside(struct rank *rank, const char *pci_address)
{
    struct mcp_error why;
    const struct mcp_run_observer *observer = &rank->setting.observer;
    char sentence[sizeof why.text + 32];
    if (mcp_host_bind_beside(rank->arena, pci_address, &why) == MCP_OK || rank->place.rank != 0)
        return;
    snprintf(sentence, sizeof sentence, "ranks are not bound to cores: %s", why.text);
    observer->note(observer->context, sentence);
}

static enum mcp_status take_device(struct rank *rank, struct mcp_machine *found,
                                   struct mcp_error *err)
{
    struct mcp_cuda_facts facts;
    int device;
    MCP_TRY(choose_device(rank, &device, err));
    MCP_TRY(mcp_cuda_facts_of(device, &facts, err));
    bind_beside(rank, facts.pci_address);
    *found = (struct mcp_machine){.memory_bytes = facts.memory_bytes,
                                  .ranks_beside = rank->place.local_size};
    snprintf(found->device, sizeof found->device, "%.127s", facts.name);
    snprintf(found->pci_address, sizeof found->pci_address, "%s", facts.pci_address);
    gethostname(found->host, sizeof found->host - 1);
    return MCP_OK;
}

/* Is this the cluster that was planned for? Rank 0 says what is not. */
static void note_differences(struct rank *rank, const struct mcp_machine *all)
{
    const struct mcp_run_options *options = rank->setting.options;
    const struct mcp_run_observer *observer = &rank->setting.observer;
    const struct mcp_machine_plan plan = {options->planned_gpu, options->planned_memory_bytes,
                                          options->planned_gpus_per_node};
    if (plan.gpu == NULL)
        return;
    const char *differences = mcp_machine_differences(rank->arena, &plan, all, rank->place.size);
    if (differences != NULL)
        observer->note(observer->context, differences);
}

/* The plan's ranks in their order, of those that a launcher has numbered. */
static struct mcp_machine *in_order(struct rank *rank, const struct mcp_machine *all)
{
    const struct mcp_rank_map *map = rank->program.plan.rank_map;
    struct mcp_machine *out = MCP_ARRAY(rank->arena, rank->place.size, struct mcp_machine);
    for (int i = 0; i < rank->place.size; i++)
        out[map != NULL ? map->rank_on_gpu[i] : i] = all[i];
    return out;
}

/* Before the first step. */
static enum mcp_status compare_machines(struct rank *rank, const struct mcp_machine *found,
                                        struct mcp_error *err)
{
    const bool first = rank->place.rank == 0;
    struct mcp_machine *all =
        first ? MCP_ARRAY(rank->arena, rank->place.size, struct mcp_machine) : NULL;
    MCP_TRY(mcp_store_gather(rank->store, found, sizeof *found, all, err));
    if (!first)
        return MCP_OK;
    all = in_order(rank, all);
    MCP_TRY(mcp_machine_check_devices(all, rank->place.size, err));
    note_differences(rank, all);
    return MCP_OK;
}

/* --- the run --- */

/* Launchers number ranks machine by machine: the rank of the plan that lies on this GPU. */
static int planned_rank(struct rank *rank)
{
    const struct mcp_rank_map *map = rank->program.plan.rank_map;
    if (map == NULL)
        return rank->place.rank;
    mcp_store_name_ranks(rank->store, map->rank_on_gpu);
    return map->rank_on_gpu[rank->place.rank];
}

static enum mcp_status join(struct rank *rank, struct mcp_error *err)
{
    struct mcp_nccl_place place = {.rank = rank->setting.rank,
                                   .size = rank->place.size,
                                   .timeout_s = rank->setting.options->timeout_s,
                                   .look = look_at_others,
                                   .context = rank->store};
    if (rank->place.size > 1) {
        enum mcp_status made = rank->place.rank == 0 ? mcp_nccl_make_id(&place.id, err) : MCP_OK;
        MCP_TRY(settle(rank, made, err));
        MCP_TRY(mcp_store_share(rank->store, &place.id, sizeof place.id, err));
    }
    return mcp_nccl_world_open(rank->arena, &place, &rank->world, err);
}

/* Ops of compute that the host queues before the device has come to them: a few milliseconds of a
 * GPU, and with their waits and events still less than the driver takes. */
enum { AHEAD = 128 };

static enum mcp_status open_run(struct rank *rank, struct mcp_run **run, struct mcp_error *err)
{
    struct mcp_run_setting *setting = &rank->setting;
    const struct mcp_cuda_options options = {
        .timed = true, .ahead = AHEAD, .others = {setting->frozen, setting->evaluation}};
    setting->calls = &mcp_cuda_backend;
    MCP_TRY(mcp_cuda_backend_open(rank->arena, rank->world, setting->program, &options,
                                  &setting->backend, err));
    return mcp_run_open(rank->arena, setting, run, err);
}

static enum mcp_status train(struct rank *rank, struct mcp_error *err)
{
    struct mcp_machine found;
    struct mcp_run *run = NULL;
    struct mcp_run_setting *setting = &rank->setting;
    MCP_TRY(settle(
        rank, mcp_load_programs(rank->arena, rank->place.size, setting, &rank->program, err), err));
    setting->program = &rank->program;
    setting->rank = rank->teller.rank = planned_rank(rank);
    MCP_TRY(settle(rank, take_device(rank, &found, err), err));
    MCP_TRY(settle(rank, compare_machines(rank, &found, err), err));
    MCP_TRY(settle(rank, join(rank, err), err));
    MCP_TRY(settle(rank, open_run(rank, &run, err), err));
    return mcp_run_steps(run, err);
}

static enum mcp_status run_rank(struct rank *rank, int argc, char **argv,
                                struct mcp_run_options *options, struct mcp_error *err)
{
    MCP_TRY(mcp_run_options_parse(argc, argv, options, err));
    MCP_TRY(mcp_store_place_read(&rank->place, err));
    rank->teller = mcp_teller_of(name, rank->place.rank, rank->place.size, options);
    rank->setting = (struct mcp_run_setting){.options = options,
                                             .observer = mcp_teller_observer(&rank->teller)};
    MCP_TRY(mcp_store_open(rank->arena, &rank->place, options->timeout_s, &rank->store, err));
    return train(rank, err);
}

/* What has failed may not end by itself: a device, or NCCL. */
static void end_at_once(int number)
{
    (void)number;
    _exit(MCP_RUN_FAILURE);
}

static void give_up(struct rank *rank)
{
    signal(SIGALRM, end_at_once);
    alarm(5);
    if (rank->world != NULL)
        mcp_nccl_abort(rank->world);
}

/* Before the first call of CUDA; what the user has set stays. Ranks wait for each other on their
 * devices, so nothing may wait that need not. */
static void set_environment(void)
{
    /* NCCL connects all ranks at once: later a host would wait for its peers' hosts */
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    /* a queue of the device for each stream: two in one wait for each other's waits */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    /* kernels are loaded before they are wanted: that can wait for all that runs */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

int main(int argc, char **argv)
{
    int code;
    if (mcp_tell_about(name, "\n--rooflines first measures ops instead: --rooflines --help\n", argc,
                       argv, &code))
        return code;
    set_environment();
    if (argc > 1 && mcp_same(argv[1], "--rooflines"))
        return mcp_main_rooflines(argc, argv);
    struct rank rank = {.arena = mcp_arena_new()};
    struct mcp_run_options options = mcp_run_options_default();
    struct mcp_error err = {""};
    mcp_block_requests();
    const enum mcp_status status = run_rank(&rank, argc, argv, &options, &err);
    part(&rank, status, &err);
    if (status != MCP_OK)
        give_up(&rank);
    mcp_arena_free(rank.arena);
    return (int)status;
}
