/* tests/cuda/processes.c: fork, environment, exec. */
#include "tests/cuda/processes.h"

#include "core/text.h"
#include "exec/store.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORDS = 64, LIMIT_S = 60 };

struct processes processes_new(const struct place *at, int ranks)
{
    struct processes p = {.at = at, .ranks = ranks};
    cr_assert(mcp_store_new_port(&p.port, NULL) == MCP_OK);
    return p;
}

void processes_set(struct processes *p, int rank, const char *name, const char *value)
{
    for (int r = 0; r < p->ranks; r++) {
        int free = 0;
        if (rank >= 0 && r != rank)
            continue;
        while (free < 4 && p->names[r][free] != NULL)
            free++;
        cr_assert(free < 4);
        p->names[r][free] = name;
        p->values[r][free] = value;
    }
}

/* --- a rank --- */

static void set_number(const struct place *at, const char *name, int value)
{
    setenv(name, mcp_format(at->arena, "%d", value), 1);
}

static void set_environment(const struct processes *p, int rank)
{
    const char *asan = getenv("ASAN_OPTIONS");
    set_number(p->at, "RANK", rank);
    set_number(p->at, "WORLD_SIZE", p->ranks);
    set_number(p->at, "LOCAL_RANK", rank);
    set_number(p->at, "LOCAL_WORLD_SIZE", p->ranks);
    set_number(p->at, "FAKE_DEVICES", p->ranks);
    set_number(p->at, "MASTER_PORT", p->port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("FAKE_FOLDER", p->at->folder, 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("ASAN_OPTIONS", mcp_format(p->at->arena, "%s:detect_leaks=0", asan ? asan : ""), 1);
    for (int i = 0; i < 4 && p->names[rank][i] != NULL; i++)
        setenv(p->names[rank][i], p->values[rank][i], 1);
}

static void redirect(const struct processes *p, const char *name, int rank, int to)
{
    const char *path = mcp_format(p->at->arena, "%s/%s%d", p->at->folder, name, rank);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, to);
    close(file);
}

void processes_begin_rank(struct processes *p, int rank, const char *options)
{
    char *words[MAX_WORDS] = {NULL},
         *rest = mcp_strdup(p->at->arena, place_spelled(p->at, options));
    const char *program =
        p->program != NULL ? p->program : place_program(p->at, "tests/cuda/executor");
    int count = 0;
    words[count++] = mcp_strdup(p->at->arena, program);
    for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL && count < MAX_WORDS - 1;)
        words[count++] = word;
    p->children[rank] = fork();
    if (p->children[rank] != 0)
        return;
    set_environment(p, rank);
    redirect(p, "out", rank, STDOUT_FILENO);
    redirect(p, "said", rank, STDERR_FILENO);
    execv(program, words);
    _exit(127);
}

void processes_begin(struct processes *p, const char *options)
{
    for (int r = 0; r < p->ranks; r++)
        processes_begin_rank(p, r, options);
}

/* --- and its end --- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static const char *said(const struct processes *p, int rank)
{
    return place_content(p->at, mcp_format(p->at->arena, "said%d", rank));
}

int processes_end(struct processes *p, int rank)
{
    const double until_s = seconds() + LIMIT_S;
    int status = 0;
    while (waitpid(p->children[rank], &status, WNOHANG) == 0) {
        if (seconds() > until_s)
            for (int r = 0; r < p->ranks; r++)
                kill(p->children[r], SIGKILL);
        cr_assert(seconds() < until_s, "rank %d does not end: %s", rank, said(p, rank));
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool processes_succeed(struct processes *p)
{
    bool well = true;
    for (int r = 0; r < p->ranks; r++)
        well = (processes_end(p, r) == 0) && well;
    return well;
}

static bool is_sentence(const char *line)
{
    static const char note[] = "mcpplan-exec-cuda: note: ";
    return !mcp_starts_with(line, "step ") && !mcp_starts_with(line, note);
}

const char *processes_sentences(const struct processes *p)
{
    struct mcp_text out = mcp_text_new(p->at->arena);
    for (int r = 0; r < p->ranks; r++)
        for (const char *line = said(p, r), *end; *line != '\0'; line = end) {
            end = line + strcspn(line, "\n");
            end += *end == '\n';
            if (is_sentence(line))
                mcp_text_append(&out, line, (size_t)(end - line));
        }
    return out.data;
}
