/* cli/capacity_jobs_text.c: the answer of mcpplan capacity --jobs in words, tables and JSON. */
#include "cli/capacity_jobs.h"
#include "core/units.h"

#include <math.h>

/* Figures */

double mcp_jobs_start_s(const struct mcp_jobs_view *j, int job)
{
    return j->answer.start[job] * j->problem.horizon_s / j->problem.slots;
}

double mcp_jobs_due_s(const struct mcp_jobs_view *j, int job)
{
    double due_s = j->job_facts[job].deadline_s;
    return isnan(due_s) ? j->problem.horizon_s : due_s;
}

double mcp_jobs_pool_price(const struct mcp_jobs_view *j, int pool)
{
    return j->answer.nodes[pool] * j->pool_facts[pool].price_per_node_hour * j->problem.horizon_s /
           3600;
}

double mcp_jobs_pool_busy_frac(const struct mcp_jobs_view *j, int pool)
{
    double node_s = 0;
    for (int i = 0; i < j->problem.num_jobs; i++) {
        int option = j->answer.option[i];
        if (option >= 0 && j->options[option].pool == pool)
            node_s += j->options[option].nodes * j->options[option].time_s;
    }
    return j->answer.nodes[pool] > 0 ? node_s / (j->answer.nodes[pool] * j->problem.horizon_s) : 0;
}

/* Words */

static const char *days(struct mcp_arena *arena, double s)
{
    return mcp_capacity_days(arena, s);
}

const char *mcp_jobs_cost_text(struct mcp_arena *arena, const struct mcp_jobs_view *j)
{
    double nodes = 0;
    if (!j->answer.priced)
        return "of all that is reserved; a price is unknown";
    if (!(j->problem.energy_price_per_kwh > 0))
        return "of all nodes that are reserved";
    for (int i = 0; i < j->problem.num_pools; i++)
        nodes += j->answer.nodes[i] > 0 ? mcp_jobs_pool_price(j, i) : 0;
    return mcp_format(arena, "nodes %s, energy %s", mcp_capacity_money(arena, nodes),
                      mcp_capacity_money(arena, j->answer.cost - nodes));
}

const char *mcp_jobs_summary(struct mcp_arena *arena, const struct mcp_jobs_view *j)
{
    const struct mcp_jobs_answer *answer = &j->answer;
    const char *cost =
        answer->priced
            ? mcp_format(arena, "a price of %s (%s)", mcp_show_count(arena, answer->cost),
                         mcp_jobs_cost_text(arena, j))
            : mcp_format(arena, "%s GPU-hours reserved, as a price is unknown",
                         mcp_show_count(arena, answer->cost));
    const char *proof = answer->proven
                            ? "nothing is better"
                            : mcp_format(arena, "at most %.1f %% from the best", 100 * answer->gap);
    return mcp_format(arena, "%d of %d jobs within %s days for %s; %s of %d options in %d slot%s",
                      j->problem.num_jobs - answer->num_left_out, j->problem.num_jobs,
                      days(arena, j->problem.horizon_s), cost, proof, j->problem.num_options,
                      j->problem.slots, j->problem.slots == 1 ? "" : "s");
}

static void put_job(struct mcp_table *table, struct mcp_arena *arena, const struct mcp_jobs_view *j,
                    int job)
{
    const struct mcp_jobs_option *option = &j->options[j->answer.option[job]];
    const struct mcp_capacity_row *row = &j->rows[j->answer.option[job]];
    mcp_table_cell(table, "%s", mcp_printable(arena, j->pool_facts[option->pool].name));
    mcp_table_cell(table, "%s", mcp_show_integer(arena, row->gpus));
    mcp_table_cell(table, "%s", mcp_show_integer(arena, row->nodes));
    mcp_table_cell(table, "%s", mcp_show_integer(arena, row->spares));
    mcp_table_cell(table, "%s", mcp_capacity_plan_text(arena, row));
    mcp_table_cell(table, "%s", days(arena, mcp_jobs_start_s(j, job)));
    mcp_table_cell(table, "%s", days(arena, row->time_s));
    mcp_table_cell(table, "%s to %s", days(arena, row->low_s), days(arena, row->high_s));
    mcp_table_cell(table, "%s", days(arena, mcp_jobs_due_s(j, job)));
    mcp_table_cell(table, "%.3f", row->model_flops_utilization);
    mcp_table_cell(table, "%.3f", row->ettr);
}

struct mcp_table *mcp_jobs_table(struct mcp_arena *arena, const struct mcp_jobs_view *j)
{
    static const struct mcp_column columns[] = {
        {"job", "", MCP_LEFT},       {"pool", "", MCP_LEFT},      {"GPUs", "", MCP_RIGHT},
        {"nodes", "", MCP_RIGHT},    {"spare", "", MCP_RIGHT},    {"t x c x p x d", "", MCP_LEFT},
        {"start", "day", MCP_RIGHT}, {"time", "days", MCP_RIGHT}, {"from, to", "days", MCP_RIGHT},
        {"due", "day", MCP_RIGHT},   {"MFU", "", MCP_RIGHT},      {"ETTR", "", MCP_RIGHT},
    };
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < j->problem.num_jobs; i++) {
        mcp_table_cell(table, "%s", mcp_printable(arena, j->job_facts[i].name));
        if (j->answer.option[i] >= 0) {
            put_job(table, arena, j, i);
            continue;
        }
        mcp_table_cell(table, "%s", "left out");
        mcp_table_end_row(table);
    }
    return table;
}

struct mcp_table *mcp_jobs_pools_table(struct mcp_arena *arena, const struct mcp_jobs_view *j)
{
    static const struct mcp_column columns[] = {
        {"pool", "", MCP_LEFT},  {"reserved", "nodes", MCP_RIGHT}, {"of", "nodes", MCP_RIGHT},
        {"busy", "", MCP_RIGHT}, {"power", "", MCP_RIGHT},         {"price", "", MCP_RIGHT},
    };
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < j->problem.num_pools; i++) {
        const struct mcp_jobs_pool *pool = &j->pool_facts[i];
        double watts = j->answer.nodes[i] * pool->watts_per_node;
        mcp_table_cell(table, "%s", mcp_printable(arena, pool->name));
        mcp_table_cell(table, "%s", mcp_show_integer(arena, j->answer.nodes[i]));
        mcp_table_cell(table, "%s", mcp_show_integer(arena, pool->most_nodes));
        mcp_table_cell(table, "%.0f %%", 100 * mcp_jobs_pool_busy_frac(j, i));
        mcp_table_cell(table, "%s", isnan(watts) ? "?" : mcp_show(arena, watts, MCP_WATTS));
        double price = mcp_jobs_pool_price(j, i);
        mcp_table_cell(table, "%s", isnan(price) ? "?" : mcp_capacity_money(arena, price));
    }
    return table;
}

struct mcp_capacity_lines mcp_jobs_assumptions(struct mcp_arena *arena,
                                               const struct mcp_jobs_view *j)
{
    struct mcp_capacity_lines lines = {.arena = arena};
    mcp_capacity_line(&lines,
                      mcp_format(arena,
                                 "a pool's reserved nodes are paid for the whole %s days; a job "
                                 "holds its nodes for whole slots of %s days",
                                 days(arena, j->problem.horizon_s),
                                 days(arena, j->problem.horizon_s / j->problem.slots)));
    if (!isnan(j->problem.power_watts))
        mcp_capacity_line(&lines, mcp_format(arena, "the reserved nodes draw at most %s in all",
                                             mcp_show(arena, j->problem.power_watts, MCP_WATTS)));
    if (j->problem.energy_price_per_kwh > 0)
        mcp_capacity_line(&lines, mcp_format(arena, "energy costs %g a kWh, beside the nodes",
                                             j->problem.energy_price_per_kwh));
    mcp_capacity_line(&lines, mcp_format(arena, "power: %g watts of the site per watt of devices",
                                         j->ask.site_power_factor));
    mcp_capacity_line(&lines, mcp_format(arena, "a failure takes %s until work goes on",
                                         mcp_show(arena, j->ask.recovery_s, MCP_SECONDS)));
    mcp_capacity_run_assumptions(&lines, &j->ask);
    return lines;
}

void mcp_jobs_text(struct mcp_text *out, const struct mcp_style *style,
                   const struct mcp_jobs_view *j)
{
    const struct mcp_capacity_lines assumed = mcp_jobs_assumptions(out->arena, j);
    mcp_wrap(out, mcp_jobs_summary(out->arena, j), style->width, 2);
    mcp_text_add(out, "\n\n");
    mcp_table_write(mcp_jobs_table(out->arena, j), MCP_SKIN_TERMINAL, style, out);
    mcp_heading(out, style, "Pools");
    mcp_table_write(mcp_jobs_pools_table(out->arena, j), MCP_SKIN_TERMINAL, style, out);
    mcp_heading(out, style, "Assumed");
    for (size_t i = 0; i < assumed.count; i++) {
        mcp_text_add(out, "  ");
        mcp_wrap(out, assumed.items[i], style->width, 2);
        mcp_text_add(out, "\n");
    }
}

/* JSON */

static void set_jobs(struct mcp_json *json, const struct mcp_jobs_view *j)
{
    struct mcp_json *list = mcp_json_set_array(json, "jobs");
    for (int i = 0; i < j->problem.num_jobs; i++) {
        struct mcp_json *object = mcp_json_add_object(list);
        int option = j->answer.option[i];
        mcp_json_set_string(object, "name", j->job_facts[i].name);
        mcp_json_set_bool(object, "left_out", option < 0);
        mcp_json_set_int(object, "tokens", j->jobs[i].tokens);
        mcp_json_set_double(object, "due_s", mcp_jobs_due_s(j, i));
        mcp_json_set_double(object, "weight", j->job_facts[i].weight);
        if (option < 0)
            continue;
        const struct mcp_capacity_row *row = &j->rows[option];
        const struct mcp_question *question = j->questions[option];
        mcp_json_set_string(object, "model", question->model->name);
        mcp_job_to_json(question->job, mcp_json_set_object(object, "job"));
        mcp_json_set_string(object, "stack", question->stack->name);
        mcp_json_set_string(object, "pool", j->pool_facts[j->options[option].pool].name);
        mcp_json_set_int(object, "gpus", row->gpus);
        mcp_json_set_int(object, "nodes", row->nodes);
        mcp_capacity_row_json(object, row);
        mcp_json_set_double(object, "start_s", mcp_jobs_start_s(j, i));
        mcp_json_set_double(object, "time_s", row->time_s);
        mcp_json_set_double(object, "time_low_s", row->low_s);
        mcp_json_set_double(object, "time_high_s", row->high_s);
        mcp_json_set_double(object, "energy_joules", row->energy_joules);
    }
}

static void set_pools(struct mcp_json *json, const struct mcp_jobs_view *j)
{
    struct mcp_json *list = mcp_json_set_array(json, "pools");
    for (int i = 0; i < j->problem.num_pools; i++) {
        struct mcp_json *object = mcp_json_add_object(list);
        const struct mcp_cluster *machines = &j->pools[i].machines;
        mcp_json_set_string(object, "name", j->pool_facts[i].name);
        mcp_json_set_string(object, "cluster", machines->name);
        mcp_json_set_int(object, "reserved_nodes", j->answer.nodes[i]);
        mcp_json_set_int(object, "num_nodes", j->pool_facts[i].most_nodes);
        mcp_json_set_double(object, "busy_frac", mcp_jobs_pool_busy_frac(j, i));
        mcp_json_set_double(object, "watts", j->answer.nodes[i] * j->pool_facts[i].watts_per_node);
        mcp_json_set_double(object, "price_per_gpu_hour", machines->gpu.price_per_gpu_hour);
        mcp_json_set_double(object, "price", mcp_jobs_pool_price(j, i));
    }
}

struct mcp_json *mcp_jobs_json(struct mcp_arena *arena, const struct mcp_jobs_view *j)
{
    const struct mcp_jobs_answer *answer = &j->answer;
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_json_set_string(json, "schema", "mcpplan.capacity_jobs/1");
    mcp_json_set_double(json, "horizon_s", j->problem.horizon_s);
    mcp_json_set_int(json, "slots", j->problem.slots);
    struct mcp_json *asked = mcp_json_set_object(json, "asked");
    mcp_json_set_double(asked, "power_watts", j->problem.power_watts);
    mcp_json_set_double(asked, "energy_price_per_kwh", j->problem.energy_price_per_kwh);
    mcp_capacity_run_json(asked, &j->ask);
    mcp_json_set_int(json, "options", j->problem.num_options);
    mcp_json_set_double(json, answer->priced ? "price" : "gpu_hours", answer->cost);
    mcp_json_set_bool(json, "proven_optimal", answer->proven);
    mcp_json_set_double(json, "gap_frac", answer->gap);
    mcp_json_set_bool(json, "interrupted", j->interrupted);
    set_jobs(json, j);
    set_pools(json, j);
    return json;
}
