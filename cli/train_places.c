/* cli/train_places.c: ranks and cores, or devices, as a table and as JSON. */
#include "cli/train_places.h"

#include "core/mesh.h"
#include "core/rank_map.h"
#include "reports/table.h"
#include "topologies/binding.h"

struct places {
    struct mcp_context *ctx;
    const struct mcp_plan *plan;
    const struct mcp_cluster *cluster; /* NULL: on CPUs */
    struct mcp_host_cores cores;
    int world, threads;
};

static int place_of(const struct places *at, int rank)
{
    const struct mcp_rank_map *map = at->plan->rank_map;
    return map != NULL ? map->gpu_of_rank[rank] : rank;
}

/* --- a rank --- */

static void add_cores(const struct places *at, int rank, struct mcp_table *table,
                      struct mcp_json *row)
{
    const struct mcp_binding own =
        mcp_binding_of(at->cores.count, at->world, at->threads, place_of(at, rank));
    const char *cores = own.count == 0 || at->world == 1
                            ? NULL
                            : mcp_host_cores_text(at->ctx->arena, &at->cores, own.first, own.count);
    mcp_json_set_string(row, "cores", cores);
    mcp_table_cell(table, "%s", cores != NULL ? cores : "any");
}

/* Launchers number ranks machine by machine, pool after pool. */
static void add_device(const struct places *at, int rank, struct mcp_table *table,
                       struct mcp_json *row)
{
    const struct mcp_cluster *pool = at->cluster;
    int gpu = place_of(at, rank), node = 0;
    mcp_json_set_int(row, "launched_as", gpu);
    mcp_table_cell(table, "%d", gpu);
    for (; pool->next != NULL && gpu >= mcp_pool_gpus(pool); pool = pool->next) {
        gpu -= mcp_pool_gpus(pool);
        node += pool->num_nodes;
    }
    const int where[] = {node + gpu / pool->gpus_per_node, gpu % pool->gpus_per_node};
    mcp_json_set_int(row, "node", where[0]);
    mcp_json_set_int(row, "device", where[1]);
    mcp_table_cell(table, "%d", where[0]);
    mcp_table_cell(table, "%d", where[1]);
}

static void add_rank(const struct places *at, int rank, struct mcp_table *table,
                     struct mcp_json *list)
{
    const struct mcp_coordinate c = mcp_mesh_coordinate(at->plan, rank);
    struct mcp_json *row = mcp_json_add_object(list);
    mcp_json_set_int(row, "rank", rank);
    mcp_json_set_int(row, "tensor", c.tensor);
    mcp_json_set_int(row, "context", c.context);
    mcp_json_set_int(row, "data", c.data);
    mcp_json_set_int(row, "pipeline", c.pipeline);
    const int numbers[] = {rank, c.tensor, c.context, c.data, c.pipeline};
    for (size_t i = 0; i < MCP_COUNT_OF(numbers); i++)
        mcp_table_cell(table, "%d", numbers[i]);
    (at->cluster != NULL ? add_device : add_cores)(at, rank, table, row);
}

/* --- all of them --- */

static const struct mcp_column core_columns[] = {
    {"rank", "", MCP_RIGHT}, {"tensor", "", MCP_RIGHT},   {"context", "", MCP_RIGHT},
    {"data", "", MCP_RIGHT}, {"pipeline", "", MCP_RIGHT}, {"cores", "", MCP_LEFT}};
static const struct mcp_column device_columns[] = {
    {"rank", "", MCP_RIGHT}, {"tensor", "", MCP_RIGHT},   {"context", "", MCP_RIGHT},
    {"data", "", MCP_RIGHT}, {"pipeline", "", MCP_RIGHT}, {"launched as", "", MCP_RIGHT},
    {"node", "", MCP_RIGHT}, {"device", "", MCP_RIGHT}};

static enum mcp_status answer(const struct places *at, struct mcp_text *text,
                              struct mcp_json *object)
{
    struct mcp_context *ctx = at->ctx;
    const bool devices = at->cluster != NULL;
    struct mcp_table *table =
        mcp_table_new(ctx->arena, devices ? device_columns : core_columns,
                      (int)(devices ? MCP_COUNT_OF(device_columns) : MCP_COUNT_OF(core_columns)));
    struct mcp_json *list = mcp_json_set_array(object, "ranks");
    for (int rank = 0; rank < at->world; rank++)
        add_rank(at, rank, table, list);
    mcp_table_write(table, MCP_SKIN_TERMINAL, &ctx->style, text);
    return mcp_output_result(ctx, text, object);
}

enum mcp_status mcp_train_places(struct mcp_context *ctx, const struct mcp_plan *plan, int threads)
{
    struct places at = {.ctx = ctx, .plan = plan, .world = mcp_plan_world(plan)};
    struct mcp_text text = mcp_text_new(ctx->arena);
    struct mcp_json *object = mcp_json_new_object(ctx->arena);
    MCP_TRY(mcp_host_cores(ctx->arena, &at.cores, &ctx->err));
    at.threads = threads > 0 ? threads : mcp_binding_threads(at.cores.count, at.world);
    const char *lack = mcp_binding_lack(ctx->arena, &at.cores, at.world, at.threads);
    mcp_json_set_string(object, "schema", "mcpplan.places/1");
    mcp_json_set_int(object, "threads", at.threads);
    mcp_json_set_string(object, "not_bound_because", lack);
    mcp_text_add(&text, "%d rank%s of %d thread%s; this process may use core%s %s\n\n", at.world,
                 at.world == 1 ? "" : "s", at.threads, at.threads == 1 ? "" : "s",
                 at.cores.count == 1 ? "" : "s",
                 mcp_host_cores_text(ctx->arena, &at.cores, 0, at.cores.count));
    if (lack != NULL)
        mcp_note("%s", lack);
    return answer(&at, &text, object);
}

enum mcp_status mcp_train_devices(struct mcp_context *ctx, const struct mcp_plan *plan,
                                  const struct mcp_cluster *cluster)
{
    const struct places at = {
        .ctx = ctx, .plan = plan, .cluster = cluster, .world = mcp_plan_world(plan)};
    struct mcp_text text = mcp_text_new(ctx->arena);
    struct mcp_json *object = mcp_json_new_object(ctx->arena);
    mcp_json_set_string(object, "schema", "mcpplan.places/1");
    mcp_json_set_string(object, "gpu", cluster->gpu.name);
    mcp_text_add(&text, "%d %s on a %s and the cores beside it\n\n", at.world,
                 at.world == 1 ? "rank" : "ranks, each", cluster->gpu.name);
    return answer(&at, &text, object);
}
