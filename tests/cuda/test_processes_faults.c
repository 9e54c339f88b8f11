/* tests/cuda/test_processes_faults.c: ranks on fake GPUs that are killed, stopped, told
 * nonsense, or whose device fails: all end in time, and one sentence says which rank and why. */
#include "core/text.h"
#include "tests/cuda/processes.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RUN "--program @/plan.program --data @/text.tokens --warmup-steps 0 --metrics @/run.jsonl "

static struct place new_place(const char *options)
{
    struct place at = place_new();
    place_must(&at, mcp_format(at.arena,
                               "plan --model @/model.json --cluster dgx-a100 --gpus 2 "
                               "--global-batch-size 4 --sequence-length 16 --precision fp32 "
                               "--stack mcpplan-cpu --attention flash2 --microbatch-size 1 %s "
                               "-o @/plan.json --dump-program @/plan.program",
                               options));
    return at;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* One line, and it holds both. */
static void expect_sentence(const struct processes *p, const char *first, const char *second)
{
    const char *said = processes_sentences(p), *end = strchr(said, '\n');
    cr_expect(end != NULL && end[1] == '\0', "no one sentence: %s", said);
    cr_expect(mcp_starts_with(said, "mcpplan-exec-cuda: "), "%s", said);
    cr_expect(strstr(said, first) != NULL && strstr(said, second) != NULL, "\"%s\", \"%s\": %s",
              first, second, said);
}

/* Waits until so many steps are done. */
static void await_steps(const struct processes *p, int steps)
{
    const char *mark = mcp_format(p->at->arena, "\"step\":%d,", steps - 1);
    for (int i = 0; strstr(place_content(p->at, "run.jsonl"), mark) == NULL; i++) {
        cr_assert(i < 4000, "step %d does not come: %s", steps, processes_sentences(p));
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* --- ranks that are lost --- */

/* The others need not wait for the limit: they are told. */
Test(gpu_faults, a_killed_rank)
{
    static const struct {
        int killed;
        const char *ended, *waited;
    } cases[] = {
        {1, "cuda: rank 1 has ended; ", "rank 0 was waiting for "},
        {0, "cuda: rank 0 has ended; ", "rank 1 was waiting for "},
    };
    struct place at = new_place("--data-parallel 2");
    for (size_t i = 0; i < MCP_COUNT_OF(cases); i++) {
        struct processes p = processes_new(&at, 2);
        unlink(mcp_format(at.arena, "%s/run.jsonl", at.folder));
        processes_begin(&p, RUN "--steps 100000 --timeout-s 50");
        await_steps(&p, 2);
        cr_assert(kill(p.children[cases[i].killed], SIGKILL) == 0);
        const double since_s = seconds();
        cr_expect(eq(int, processes_end(&p, 1 - cases[i].killed), MCP_RUN_FAILURE));
        cr_expect(seconds() - since_s < 30, "told, it has waited for %g s", seconds() - since_s);
        cr_expect(eq(int, processes_end(&p, cases[i].killed), 128 + SIGKILL));
        expect_sentence(&p, cases[i].ended, cases[i].waited);
    }
    place_leave(&at);
}

Test(gpu_faults, a_stopped_rank)
{
    struct place at = new_place("--pipeline-parallel 2");
    struct processes p = processes_new(&at, 2);
    processes_begin(&p, RUN "--steps 100000 --timeout-s 4");
    await_steps(&p, 2);
    cr_assert(kill(p.children[1], SIGSTOP) == 0);
    cr_expect(eq(int, processes_end(&p, 0), MCP_RUN_FAILURE));
    kill(p.children[1], SIGKILL);
    kill(p.children[1], SIGCONT);
    processes_end(&p, 1);
    expect_sentence(&p, "rank 1 does not answer: it has stopped, or is at work; ",
                    "rank 0 has waited 4 s for ");
    place_leave(&at);
}

/* --- devices and libraries that fail --- */

Test(gpu_faults, one_rank_fails)
{
    static const struct {
        const char *name, *value, *for_all, *first, *second;
    } cases[] = {
        {"FAKE_FAIL_COLLECTIVE", "40", "0", "rank 1: ", "NCCL says: unhandled system error"},
        {"FAKE_FAIL_COLLECTIVE", "40", "1", "rank 1: ", "NCCL says: unhandled system error"},
        {"FAKE_FAIL_KERNEL", "900", "0", "rank 1", "an illegal memory access was encountered ("},
        {"FAKE_DEVICE_BYTES", "33000000", "0", "rank 1", "out of device memory: "},
    };
    struct place at = new_place("--data-parallel 2");
    for (size_t i = 0; i < MCP_COUNT_OF(cases); i++) {
        struct processes p = processes_new(&at, 2);
        processes_set(&p, 1, cases[i].name, cases[i].value);
        processes_set(&p, -1, "FAKE_NOTICES", cases[i].for_all);
        processes_begin(&p, RUN "--steps 100 --timeout-s 50");
        for (int r = 0; r < 2; r++)
            cr_expect(eq(int, processes_end(&p, r), MCP_RUN_FAILURE), "%s", cases[i].name);
        expect_sentence(&p, cases[i].first, cases[i].second);
    }
    place_leave(&at);
}

Test(gpu_faults, numbers_that_are_none)
{
    struct place at = new_place("--data-parallel 2");
    struct processes p = processes_new(&at, 2);
    processes_begin(&p, RUN "--steps 100 --learning-rate 1e30 --timeout-s 50");
    for (int r = 0; r < 2; r++)
        cr_expect(eq(int, processes_end(&p, r), MCP_RUN_FAILURE));
    expect_sentence(&p, "not finite in 10 steps in a row", "mcpplan-exec-cuda: the loss");
    place_leave(&at);
}

/* --- ranks that do not meet --- */

struct meeting {
    const char *title;
    int started;              /* ranks */
    const char *name, *value; /* of rank 1's environment */
    int timeout_s;            /* of rank 0; rank 1's is twice that */
    int codes[2];             /* of ranks 0 and 1 */
    const char *sentences[2]; /* of all ranks; NULL: none */
};

static void expect_lines(const struct processes *p, const struct meeting *m)
{
    const char *said = processes_sentences(p);
    int lines = 0, wanted = 0;
    for (const char *c = said; *c != '\0'; c++)
        lines += *c == '\n';
    for (int i = 0; i < 2 && m->sentences[i] != NULL; i++, wanted++)
        cr_expect(strstr(said, m->sentences[i]) != NULL, "%s: %s", m->title, said);
    cr_expect(eq(int, lines, wanted), "%s: %s", m->title, said);
}

/* Who holds the port answers nobody. */
static int hold_port(int port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int handle = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(bind(handle, (const struct sockaddr *)&address, sizeof address) == 0);
    cr_assert(listen(handle, 8) == 0);
    return handle;
}

Test(gpu_faults, ranks_that_do_not_meet)
{
    static const struct meeting cases[] = {
        {"a rank that never comes",
         1,
         NULL,
         NULL,
         1,
         {MCP_RUN_FAILURE, -1},
         {"1 of 2 ranks have not come within 1 s, the first of them rank 1", NULL}},
        {"another token",
         2,
         "MCP_TOKEN",
         "another",
         1,
         {MCP_RUN_FAILURE, MCP_RUN_FAILURE},
         {"1 of 2 ranks have not come", "rank 0 of another run (the token differs)"}},
        {"a rank of a run before",
         2,
         "MCP_RESTART",
         "1",
         1,
         {MCP_RUN_FAILURE, MCP_RUN_FAILURE},
         {"1 of 2 ranks have not come", "rank 0 of another run (the token differs)"}},
        {"another size",
         2,
         "WORLD_SIZE",
         "4",
         20,
         {MCP_INVALID, MCP_INVALID},
         {"rank 1 has been told of 4 ranks, and rank 0 of 2: all must be told the same", NULL}},
        {"one device for both",
         2,
         "LOCAL_RANK",
         "0",
         20,
         {MCP_INVALID, MCP_INVALID},
         {"ranks 0 and 1 both have the device at 0000:10:00.0 of ", NULL}},
        {"more ranks than devices",
         2,
         "LOCAL_RANK",
         "2",
         20,
         {MCP_INVALID, MCP_INVALID},
         {"rank 1 is number 3 of its machine, which has 2 devices", NULL}},
        {"a port in use",
         2,
         NULL,
         "port",
         1,
         {MCP_RUN_FAILURE, MCP_RUN_FAILURE},
         {"rank 0 cannot listen on port", "rank 1 has waited 2 s for rank 0"}},
    };
    struct place at = new_place("--data-parallel 2");
    for (size_t i = 0; i < MCP_COUNT_OF(cases); i++) {
        const struct meeting *m = &cases[i];
        struct processes p = processes_new(&at, 2);
        const int held = m->name == NULL && m->value != NULL ? hold_port(p.port) : -1;
        place_shell(&at, "rm -f @/said?");
        if (m->name != NULL)
            processes_set(&p, 1, m->name, m->value);
        if (m->name != NULL && mcp_same(m->name, "LOCAL_RANK"))
            processes_set(&p, 1, "LOCAL_WORLD_SIZE", "4"); /* room for more than there are */
        for (int r = m->started - 1; r >= 0; r--)          /* rank 0 comes last, and leaves first */
            processes_begin_rank(
                &p, r,
                mcp_format(at.arena, RUN "--steps 1 --timeout-s %d", m->timeout_s * (r + 1)));
        for (int r = 0; r < m->started; r++)
            cr_expect(eq(int, processes_end(&p, r), m->codes[r]), "%s: rank %d", m->title, r);
        expect_lines(&p, m);
        if (held >= 0)
            close(held);
    }
    place_leave(&at);
}
