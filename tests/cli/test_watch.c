/* tests/cli/test_watch.c: what a long search shows on a terminal, and what ctrl-C does. */
/* The library does not hold cli/, so its part is compiled in here. */
#include "cli/plan_watch.c"

#include "core/text.h"
#include "tests/cli/child.h"
#include "tests/cli/place.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

TestSuite(watch, .init = child_settle_environment);

/* A search that runs for minutes, left alone. */
#define LONG "plan", "--global-batch-size", "2048", "--method", "exhaustive", "--model"

/* The program with its stderr on a terminal of its own. */
struct session {
    struct mcp_arena *arena;
    int terminal; /* our end */
    pid_t pid;
    FILE *out;
    struct mcp_text seen; /* on the terminal */
    int status;           /* exit code, or 128 + signal */
};

static void start(struct session *s, char *const *argv)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    *s = (struct session){.arena = mcp_arena_new(), .out = tmpfile()};
    s->seen = mcp_text_new(s->arena);
    mcp_text_add(&s->seen, "%s", "");
    s->terminal = posix_openpt(O_RDWR | O_NOCTTY);
    cr_assert(s->out != NULL && s->terminal >= 0);
    cr_assert(grantpt(s->terminal) == 0 && unlockpt(s->terminal) == 0);
    int theirs = open(ptsname(s->terminal), O_RDWR | O_NOCTTY);
    cr_assert(ge(int, theirs, 0));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fileno(s->out), 1);
    posix_spawn_file_actions_adddup2(&actions, theirs, 2);
    posix_spawnattr_init(&attributes);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    cr_assert(eq(int, posix_spawn(&s->pid, argv[0], &actions, &attributes, argv, environ), 0),
              "cannot start %s", argv[0]);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(theirs);
}

/* Reads the terminal until it has shown `text`; NULL: until its other end is closed. */
static void read_until(struct session *s, const char *text)
{
    const int patience_ms = 60000; /* a program that hangs fails the test, not the suite */
    char block[512];
    ssize_t got;
    struct pollfd wanted = {.fd = s->terminal, .events = POLLIN};
    while (text == NULL || strstr(s->seen.data, text) == NULL) {
        if (poll(&wanted, 1, patience_ms) <= 0)
            kill(s->pid, SIGKILL);
        if ((got = read(s->terminal, block, sizeof block)) <= 0)
            break;
        mcp_text_append(&s->seen, block, (size_t)got);
    }
    cr_assert(text == NULL || strstr(s->seen.data, text) != NULL, "no \"%s\" in: %s", text,
              mcp_printable(s->arena, s->seen.data));
}

/* Its stdout. */
static const char *finish(struct session *s)
{
    struct mcp_text text = mcp_text_new(s->arena);
    char block[4096];
    int wait_status;
    size_t got;
    read_until(s, NULL);
    cr_assert(eq(int, waitpid(s->pid, &wait_status, 0), s->pid));
    s->status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    rewind(s->out);
    mcp_text_add(&text, "%s", "");
    while ((got = fread(block, 1, sizeof block, s->out)) > 0)
        mcp_text_append(&text, block, got);
    fclose(s->out);
    close(s->terminal);
    return text.data;
}

static char *program(void)
{
    static char by_default[] = "build/release/mcpplan";
    return getenv("MCPPLAN") ? getenv("MCPPLAN") : by_default;
}

Test(watch, ctrl_c_takes_the_best_so_far)
{
    struct session s;
    char *argv[] = {program(), LONG, "llama-3.1-8b", "--cluster", "dgx-h100:256", NULL};
    start(&s, argv);
    read_until(&s, " %: best so far ");
    read_until(&s, "s, ctrl-C takes it");
    kill(s.pid, SIGINT);
    const char *out = finish(&s);
    cr_expect(eq(int, s.status, 0));
    cr_expect(strstr(out, "interrupted, so not proven") != NULL, "%s", out);
    cr_expect(strstr(out, "an iteration") != NULL && strstr(out, "Layout") != NULL, "%s", out);
    cr_expect(strstr(s.seen.data, "stopping; ctrl-C again ends at once") != NULL);
    cr_expect(strstr(s.seen.data, "\r\033[Kmcpplan: note: interrupted: this is the best plan found "
                                  "so far, which is not proven") != NULL,
              "%s", mcp_printable(s.arena, s.seen.data));
    mcp_arena_free(s.arena);
}

Test(watch, progress_keeps_to_one_line)
{
    struct session s;
    char *argv[] = {program(), LONG, "llama-3.1-8b", "--cluster", "dgx-h100:256", "--json", NULL};
    start(&s, argv);
    read_until(&s, "takes it\r\033[K"); /* more than one state of it */
    cr_expect(strchr(s.seen.data, '\n') == NULL, "%s", mcp_printable(s.arena, s.seen.data));
    kill(s.pid, SIGINT);
    const char *out = finish(&s);
    cr_expect(eq(int, s.status, 0));
    cr_expect(strstr(out, "\"proven_optimal\": false") != NULL);
    cr_expect(strstr(out, "\"interrupted\": true") != NULL);
    cr_expect(strstr(out, "\"gap_frac\": 0.0\n") == NULL);
    mcp_arena_free(s.arena);
}

Test(watch, ctrl_c_before_anything_fits)
{
    struct session s;
    char *argv[] = {program(), LONG, "deepseek-v3", "--cluster", "dgx-h100:4", NULL};
    start(&s, argv);
    read_until(&s, " %: nothing that fits yet");
    kill(s.pid, SIGINT);
    const char *out = finish(&s);
    cr_expect(eq(int, s.status, MCP_RUN_FAILURE));
    cr_expect(eq(str, (char *)out, (char *)""));
    cr_expect(strstr(s.seen.data, "\r\033[Kmcpplan: interrupted before a plan was found that fits; "
                                  "whether one does is not known\r\n") != NULL,
              "%s", mcp_printable(s.arena, s.seen.data));
    mcp_arena_free(s.arena);
}

Test(watch, ctrl_c_shows_the_sizes_planned_so_far)
{
    struct session s;
    char *argv[] = {program(),
                    "capacity",
                    "--model",
                    "llama-3.1-70b",
                    "--cluster",
                    "dgx-h100",
                    "--gpus",
                    "512..16384",
                    "--global-batch-size",
                    "15360",
                    "--tokens",
                    "15T",
                    "--sequence-length",
                    "4096",
                    NULL};
    start(&s, argv);
    read_until(&s, "of dgx-h100, 2 planned, ctrl-C shows the sizes planned so far");
    kill(s.pid, SIGINT);
    const char *out = finish(&s);
    cr_expect(eq(int, s.status, 0));
    cr_expect(strstr(out, "interrupted: sizes are missing") != NULL, "%s", out);
    cr_expect(strstr(out, "512") != NULL, "%s", out);
    cr_expect(strstr(s.seen.data, "note: interrupted: only the sizes planned so far are shown") !=
                  NULL,
              "%s", mcp_printable(s.arena, s.seen.data));
    mcp_arena_free(s.arena);
}

/* Open MPI leaks. */
static void allow_leaks(void)
{
    const char *sanitizer = getenv("ASAN_OPTIONS");
    char options[256];
    snprintf(options, sizeof options, "%.200s:detect_leaks=0", sanitizer ? sanitizer : "");
    setenv("ASAN_OPTIONS", options, 1);
}

/* Steps take turns on one line, and what is said of the run's end has lines of its own. */
Test(watch, train_ends_with_whole_lines)
{
    struct session s;
    struct place at = place_new();
    place_must(&at, "plan --model @/model.json --cluster dgx-a100 --gpus 1 --global-batch-size 8 "
                    "--sequence-length 32 --precision fp32 --stack mcpplan-cpu --attention flash2 "
                    "-o @/one.json");
    char *argv[] = {program(),
                    "train",
                    mcp_strdup(at.arena, place_spelled(&at, "@/one.json")),
                    "--data",
                    mcp_strdup(at.arena, place_spelled(&at, "@/text.tokens")),
                    "--steps",
                    "1000000",
                    "--threads",
                    "1",
                    NULL};
    allow_leaks();
    start(&s, argv);
    read_until(&s, "\rstep 3/1000000  loss ");
    kill(s.pid, SIGTERM);
    finish(&s);
    const char *seen = s.seen.data, *end = strstr(seen, "mcpplan: note: ended as asked by ");
    cr_expect(eq(int, s.status, 0));
    cr_assert(end != NULL && end > seen && end[-1] == '\n', "%s", mcp_printable(s.arena, seen));
    end = strstr(end, "\nmcpplan: note: trained steps 1 to ");
    cr_assert(end != NULL, "%s", mcp_printable(s.arena, seen));
    cr_expect(mcp_same(strstr(end, " in all"), " in all\r\n"), "%s", end);
    mcp_arena_free(s.arena);
    place_leave(&at);
}

/* What is measured is told before, and how far it is while it goes on. */
Test(watch, calibrate_says_what_is_left)
{
    struct session s;
    char *argv[] = {program(),           "calibrate",
                    "--model=tiny",      "--ranks=1",
                    "--steps=1",         "--global-batch-size=4",
                    "--sequence-length", "8",
                    "--repeats=1",       NULL};
    allow_leaks();
    start(&s, argv);
    const char *out = finish(&s);
    const char *seen = s.seen.data;
    cr_expect(mcp_starts_with(seen, "mcpplan: note: 3 runs of 1 step: 3 layouts of 4 layers of "
                                    "tiny on 1 rank, batch 4 x 8 tokens, 1 run of each\r\n"
                                    "\r\033[K  run 1 of 3: data 1, microbatch 4"),
              "%s", mcp_printable(s.arena, seen));
    if (strstr(seen, "cannot start mcpplan-exec-cpu") == NULL) { /* where it is not built */
        cr_expect(strstr(seen, "\r\033[K  run 3 of 3: data 1, microbatch 1; about ") != NULL, "%s",
                  mcp_printable(s.arena, seen));
        cr_expect(strstr(seen, " left\r\033[K") != NULL, "%s", mcp_printable(s.arena, seen));
        cr_expect(eq(int, s.status, 0));
        cr_expect(strstr(out, "runs 3, ") != NULL, "%s", out);
    }
    mcp_arena_free(s.arena);
}

/* Everything else that is run in a child, as signals may end it. */
static int in_a_child(void (*run)(void))
{
    int wait_status;
    pid_t pid = fork();
    cr_assert(ge(int, pid, 0));
    if (pid == 0) {
        run();
        _exit(0);
    }
    cr_assert(eq(int, waitpid(pid, &wait_status, 0), pid));
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

static void interrupt_once(void)
{
    struct mcp_plan_watch watch;
    struct mcp_search_options options = {0};
    signal(SIGINT, SIG_DFL);
    mcp_plan_watch_begin(&watch, &options);
    bool before = mcp_plan_watch_stopped();
    raise(SIGINT);
    bool after = mcp_plan_watch_stopped() && *options.stop != 0;
    mcp_plan_watch_end(&watch);
    _exit(!before && after ? 3 : 4);
}

static void interrupt_twice(void)
{
    struct mcp_plan_watch watch;
    struct mcp_search_options options = {0};
    signal(SIGINT, SIG_DFL);
    mcp_plan_watch_begin(&watch, &options);
    raise(SIGINT);
    raise(SIGINT);
}

static void interrupt_after_the_end(void)
{
    struct mcp_plan_watch watch;
    struct mcp_search_options options = {0};
    signal(SIGINT, SIG_DFL);
    mcp_plan_watch_begin(&watch, &options);
    mcp_plan_watch_end(&watch);
    raise(SIGINT);
}

static void interrupt_in_the_background(void)
{
    struct mcp_plan_watch watch;
    struct mcp_search_options options = {0};
    signal(SIGINT, SIG_IGN);
    mcp_plan_watch_begin(&watch, &options);
    raise(SIGINT);
    bool stopped = mcp_plan_watch_stopped();
    mcp_plan_watch_end(&watch);
    raise(SIGINT);
    _exit(stopped ? 4 : 3);
}

Test(watch, signals)
{
    cr_expect(eq(int, in_a_child(interrupt_once), 3));
    cr_expect(eq(int, in_a_child(interrupt_twice), 128 + SIGINT));
    cr_expect(eq(int, in_a_child(interrupt_after_the_end), 128 + SIGINT));
    cr_expect(eq(int, in_a_child(interrupt_in_the_background), 3));
}

/* A file or a pipe gets notes and errors alone. */
Test(watch, only_a_terminal_shows_progress)
{
    struct mcp_plan_watch watch;
    struct mcp_search_options options = {0};
    FILE *file = tmpfile();
    int saved = dup(2);
    cr_assert(file != NULL && saved >= 0);
    dup2(fileno(file), 2);
    mcp_plan_watch_begin(&watch, &options);
    bool silent = options.progress == NULL && options.stop != NULL;
    mcp_plan_watch_end(&watch);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    cr_expect(silent);
    cr_expect(eq(long, (long)lseek(fileno(file), 0, SEEK_END), 0L));
    fclose(file);
}
