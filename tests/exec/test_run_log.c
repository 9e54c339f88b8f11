/* tests/exec/test_run_log.c: run.jsonl: its lines, and going on with it. */
#include "core/json.h"
#include "exec/run_log.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct mcp_arena *arena;
static char path[64];

static void set_up(void)
{
    arena = mcp_arena_new();
    snprintf(path, sizeof path, "/tmp/mcp-test-run-XXXXXX");
    close(mkstemp(path));
}

static void tear_down(void)
{
    unlink(path);
    mcp_arena_free(arena);
}

static struct mcp_step_metrics step_of(int64_t step)
{
    struct mcp_step_metrics metrics = mcp_step_metrics_unknown(step);
    metrics.loss = 2.5;
    metrics.grad_norm = 1;
    metrics.tokens = 256;
    metrics.step_s = 0.5;
    metrics.data_wait_s = 0;
    metrics.peak_memory_bytes = 4096;
    metrics.parameters = 500000;
    return metrics;
}

Test(run_log, line, .init = set_up, .fini = tear_down)
{
    static const char want[] =
        "{\"step\":7,\"loss\":2.5,\"grad_norm\":1,\"learning_rate\":5e-05,\"tokens\":256,"
        "\"step_s\":0.5,\"tokens_per_s\":512,\"peak_memory_bytes\":4096,\"data_wait_s\":0,"
        "\"loss_scale\":null,\"model_flops_utilization\":null,\"bubble_frac\":null,"
        "\"exposed_comm_frac\":null,\"grad_norm_per_million\":2,\"skipped\":true,"
        "\"groups\":[{\"name\":\"a\\\"b\",\"grad_norm\":3,\"update_ratio\":0.5}],"
        "\"activations\":[{\"layer\":2,\"mean\":0,\"variance\":null}],"
        "\"alarms\":[{\"kind\":\"loss_spike\",\"text\":\"up\\u000adown\"}]}\n";
    const struct mcp_group_metrics group = {"a\"b", 3, 2, 1};
    const struct mcp_activation_metrics activation = {2, 0, (double)INFINITY};
    const struct mcp_alarm alarm = {MCP_ALARM_LOSS_SPIKE, "up\ndown"};
    struct mcp_step_metrics metrics = step_of(7);
    struct mcp_text text = mcp_text_new(arena);
    struct mcp_json *json;
    struct mcp_error err = {0};
    metrics.learning_rate = 5e-5;
    metrics.skipped = true;
    metrics.groups = &group;
    metrics.activations = &activation;
    metrics.num_groups = metrics.num_activations = 1;
    mcp_run_line(&text, &metrics, &alarm, 1);
    cr_expect(mcp_same(text.data, want), "%s", text.data);
    cr_expect(eq(int, mcp_json_parse(arena, "line", text.data, text.length, &json, &err), MCP_OK),
              "%s", err.text);
}

static void log_steps(int64_t first, int64_t end)
{
    struct mcp_arena *own = mcp_arena_new();
    struct mcp_run_log *log;
    struct mcp_error err = {0};
    cr_assert(eq(int, mcp_run_log_open(own, path, first, &log, &err), MCP_OK), "%s", err.text);
    for (int64_t step = first; step < end; step++) {
        const struct mcp_step_metrics metrics = step_of(step);
        cr_assert(eq(int, mcp_run_log_step(log, &metrics, NULL, 0, &err), MCP_OK));
    }
    mcp_arena_free(own);
}

static void expect_steps(int64_t end)
{
    struct mcp_text text;
    struct mcp_error err = {0};
    int64_t step = 0;
    cr_assert(eq(int, mcp_file_read(arena, path, 1 << 20, &text, &err), MCP_OK));
    for (const char *line = text.data; *line != '\0'; line = strchr(line, '\n') + 1, step++)
        cr_assert(mcp_starts_with(line, mcp_format(arena, "{\"step\":%d,", (int)step)), "%s", line);
    cr_expect(eq(i64, step, end));
}

Test(run_log, goes_on, .init = set_up, .fini = tear_down)
{
    log_steps(0, 10);
    expect_steps(10);
    log_steps(6, 12); /* from a checkpoint of step 6 */
    expect_steps(12);
    log_steps(12, 14);
    expect_steps(14);
}

Test(run_log, a_cut_line_goes, .init = set_up, .fini = tear_down)
{
    struct mcp_text text;
    struct mcp_error err = {0};
    log_steps(0, 3);
    cr_assert(eq(int, mcp_file_read(arena, path, 1 << 20, &text, &err), MCP_OK));
    cr_assert(eq(int, truncate(path, (off_t)text.length - 20), 0));
    log_steps(2, 4);
    expect_steps(4);
}

/* Somebody's file under that name stays as it is; a device is written to. */
Test(run_log, files_of_others, .init = set_up, .fini = tear_down)
{
    static const char *const texts[] = {"notes to keep\n", "{\"loss\":1}\n", "\n"};
    struct mcp_run_log *log;
    struct mcp_text text;
    struct mcp_error err = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cr_assert(eq(int, mcp_file_replace(path, texts[i], strlen(texts[i]), &err), MCP_OK));
        cr_expect(eq(int, mcp_run_log_open(arena, path, 0, &log, &err), MCP_INVALID));
        cr_expect(ne(ptr, strstr(err.text, "is not the metrics of a run"), NULL), "%s", err.text);
        cr_assert(eq(int, mcp_file_read(arena, path, 1 << 20, &text, &err), MCP_OK));
        cr_expect(eq(str, text.data, (char *)(void *)(uintptr_t)texts[i]));
    }
    cr_expect(eq(int, mcp_run_log_open(arena, "/dev/null", 0, &log, &err), MCP_OK));
    cr_assert(eq(int, mcp_run_log_open(arena, "/dev/full", 0, &log, &err), MCP_OK));
    const struct mcp_step_metrics metrics = step_of(0);
    cr_expect(eq(int, mcp_run_log_step(log, &metrics, NULL, 0, &err), MCP_IO));
    cr_expect(eq(str, err.text, "/dev/full: No space left on device"));
}

/* More than fits what is read whole elsewhere: holes in place of lines. */
Test(run_log, a_long_log, .init = set_up, .fini = tear_down)
{
    struct mcp_run_log *log;
    struct mcp_error err = {0};
    log_steps(0, 1);
    cr_assert(eq(int, truncate(path, (off_t)MCP_MAX_FILE_BYTES + 100), 0));
    FILE *file = fopen(path, "a");
    cr_assert(ne(ptr, file, NULL));
    fputs("\n{\"step\":5}\n{\"step\":6}\n{\"step\":7}\n{\"st", file);
    fclose(file);
    cr_assert(eq(int, mcp_run_log_open(arena, path, 7, &log, &err), MCP_OK), "%s", err.text);
    struct stat info;
    cr_assert(eq(int, stat(path, &info), 0));
    cr_expect(eq(i64, (int64_t)info.st_size, (int64_t)MCP_MAX_FILE_BYTES + 100 + 1 + 11 + 11));
}

Test(run_log, nowhere_to_write)
{
    struct mcp_arena *own = mcp_arena_new();
    struct mcp_run_log *log;
    struct mcp_error err = {0};
    cr_expect(eq(int, mcp_run_log_open(own, "/proc/no/such", 0, &log, &err), MCP_IO));
    cr_expect(ne(ptr, strstr(err.text, "/proc/no/such"), NULL), "%s", err.text);
    mcp_arena_free(own);
}

static bool holds(const struct mcp_text *text, const char *part)
{
    for (size_t i = 0; i + strlen(part) <= text->length; i++)
        if (memcmp(text->data + i, part, strlen(part)) == 0)
            return true;
    return false;
}

Test(run_log, scalars, .init = set_up, .fini = tear_down)
{
    char folder[] = "/tmp/mcp-test-scalars-XXXXXX";
    struct mcp_events *events;
    struct mcp_text text;
    struct mcp_error err = {0};
    const struct mcp_step_metrics metrics = step_of(3);
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
    cr_assert(eq(int, mcp_events_open(arena, folder, 5, &events, &err), MCP_OK));
    mcp_run_scalars(events, &metrics);
    cr_assert(eq(int, mcp_events_flush(events, 6, 3, &err), MCP_OK));
    const char *name = mcp_format(arena, "%s/events.out.tfevents.0000000005.mcpplan", folder);
    cr_assert(eq(int, mcp_file_read(arena, name, 1 << 20, &text, &err), MCP_OK));
    cr_expect(holds(&text, "tokens_per_s"));
    cr_expect(holds(&text, "loss_scale") == false); /* unknown */
    unlink(name);
    rmdir(folder);
}
