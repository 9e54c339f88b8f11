/* cli/train_ranks.c: mpirun as a child, and what it says. */
#include "cli/train_ranks.h"

#include "cli/child.h"
#include "core/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY ", which is how memory that runs out ends a process"
#define UNLOADED "error while loading shared libraries: "

/* What a child ends with that could not be started; and one that the system's loader could not
 * load, which then says UNLOADED and what is missing. */
enum { NOT_STARTED = 126, NOT_LOADED = 127 };

/* What was said of why the run ends. */
struct last_words {
    const struct mcp_rank_map *map;
    struct mcp_error rank, signal;
    bool in_banner;       /* between mpirun's lines of dashes */
    bool lacked_memory;   /* a rank that could say no more than that */
    unsigned long first;  /* rank that ended, mpirun says */
    char of_mpirun[4096]; /* told if nobody says anything better */
};

/* As the plan has it. */
static unsigned long name_of(const struct last_words *words, unsigned long rank)
{
    const struct mcp_rank_map *map = words->map;
    return map != NULL && rank < (unsigned long)map->world ? (unsigned long)map->rank_on_gpu[rank]
                                                           : rank;
}

/* "... process rank 1 with PID 71 on node a exited on signal 9 (Killed)." */
static bool find_signal(const char *line, struct last_words *words)
{
    const char *at = strstr(line, "process rank ");
    unsigned long rank;
    int number;
    if (at == NULL || sscanf(at, "process rank %lu", &rank) != 1)
        return false;
    at = strstr(at, "exited on signal ");
    if (at == NULL || sscanf(at, "exited on signal %d", &number) != 1)
        return false;
    mcp_fail(&words->signal, MCP_RUN_FAILURE, "rank %lu was ended by signal %d (%s)%s",
             name_of(words, rank), number, strsignal(number), number == SIGKILL ? MEMORY : "");
    return true;
}

/* A rank without memory knows no longer which one it is; "Process name: [[71,1],RANK]" does. */
static bool find_shortage(const char *line, struct last_words *words)
{
    sscanf(line, " Process name: [[%*u,%*u],%lu]", &words->first);
    const bool is_shortage = mcp_same(line, "mcpplan: out of memory\n");
    words->lacked_memory = words->lacked_memory || is_shortage;
    return is_shortage;
}

/* What a rank says in a line; NULL: it is none's. */
static const char *find_speech(const char *line)
{
    static const char *const speakers[] = {"mcpplan-exec-cpu: ", "mcpplan-exec-cuda: "};
    for (size_t i = 0; i < MCP_COUNT_OF(speakers); i++)
        if (mcp_starts_with(line, speakers[i]))
            return line + strlen(speakers[i]);
    return NULL;
}

static void take_reason(struct last_words *words, const char *reason)
{
    if (words->rank.text[0] == '\0')
        mcp_fail(&words->rank, MCP_RUN_FAILURE, "%.*s", (int)strcspn(reason, "\n"), reason);
}

static void keep(struct last_words *words, const char *line)
{
    const size_t length = strlen(words->of_mpirun);
    snprintf(words->of_mpirun + length, sizeof words->of_mpirun - length, "%s", line);
}

/* mpirun's banners, and lines that begin with [host:process], tell of its own ways; but one
 * may say why nothing could start. */
static void take_line(struct last_words *words, const char *line)
{
    const bool dashes = mcp_starts_with(line, "----------");
    const char *speech = find_speech(line);
    if (dashes) {
        words->in_banner = !words->in_banner;
        return;
    }
    if (find_signal(line, words) || find_shortage(line, words))
        return;
    if (speech != NULL && !mcp_starts_with(speech, "note: "))
        take_reason(words, speech);
    else if (strstr(line, ": " UNLOADED) != NULL)
        take_reason(words, line);
    else if (words->in_banner || line[0] == '[')
        keep(words, line);
    else if (!mcp_starts_with(line, "mpirun: Forwarding"))
        fputs(line, stderr);
}

/* The last line may lack its end. */
static void listen_to(int pipe_end, struct last_words *words)
{
    char line[4096];
    FILE *file = fdopen(pipe_end, "r");
    while (file != NULL) {
        errno = 0;
        if (fgets(line, sizeof line, file) != NULL)
            take_line(words, line);
        else if (errno == EINTR)
            clearerr(file);
        else
            break;
    }
    if (file != NULL)
        fclose(file);
}

static void become(const char *const *argv, const int *ends)
{
    if (ends != NULL) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
    }
    execvp(argv[0], (char *const *)(const void *)argv);
    _exit(NOT_STARTED);
}

/* `words` is NULL of a rank that has spoken for itself. */
static enum mcp_status how_it_ended(const char *program, int status, const struct last_words *words,
                                    struct mcp_error *err)
{
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : MCP_RUN_FAILURE;
    const bool ours = code > MCP_CHECK_FAILED && code <= MCP_RUN_FAILURE; /* 1 is mpirun's */
    const enum mcp_status why = ours ? (enum mcp_status)code : MCP_RUN_FAILURE;
    const int asked = mcp_child_asked();
    if (WIFEXITED(status) && code == 0)
        return MCP_OK;
    if (asked != 0 && (WIFSIGNALED(status) || words == NULL || words->rank.text[0] == '\0'))
        return mcp_fail(err, MCP_RUN_FAILURE, "the run was ended by signal %d (%s), as asked",
                        asked, strsignal(asked));
    if (WIFSIGNALED(status))
        return mcp_fail(err, MCP_RUN_FAILURE, "%s was ended by signal %d (%s)%s", program,
                        WTERMSIG(status), strsignal(WTERMSIG(status)),
                        WTERMSIG(status) == SIGKILL ? MEMORY : "");
    if (code == NOT_STARTED)
        return mcp_fail(err, MCP_RUN_FAILURE, "cannot start %s: is it installed (make deps, make)?",
                        program);
    if (words == NULL && !ours && code != NOT_LOADED)
        return mcp_fail(err, why, "%s has failed; what it said is above", program);
    if (words == NULL) {
        err->text[0] = '\0';
        return why;
    }
    if (words->rank.text[0] != '\0' && why != MCP_RUN_FAILURE)
        return mcp_fail(err, why, "%s", words->rank.text);
    if (words->lacked_memory)
        return mcp_fail(err, MCP_RUN_FAILURE, "rank %lu ran out of memory",
                        name_of(words, words->first));
    if (words->signal.text[0] != '\0')
        return mcp_fail(err, MCP_RUN_FAILURE, "%s", words->signal.text);
    if (words->rank.text[0] != '\0')
        return mcp_fail(err, why, "%s", words->rank.text);
    fputs(words->of_mpirun, stderr);
    return mcp_fail(err, why, "the run has failed; what its ranks said is above");
}

enum mcp_status mcp_train_ranks(const char *const *argv, bool is_mpirun,
                                const struct mcp_rank_map *map, struct mcp_error *err)
{
    struct last_words words = {.map = map};
    int ends[2] = {-1, -1};
    if (is_mpirun && pipe(ends) != 0)
        return mcp_fail(err, MCP_RUN_FAILURE, "cannot make a pipe: %s", strerror(errno));
    /* mpirun passes this signal on, and lets ranks end by themselves */
    pid_t child = mcp_child_fork(SIGUSR1);
    if (child == 0)
        become(argv, is_mpirun ? ends : NULL);
    if (is_mpirun)
        close(ends[1]);
    if (child < 0) {
        const int reason = errno;
        if (is_mpirun)
            close(ends[0]);
        return mcp_fail(err, MCP_RUN_FAILURE, "cannot start %s: %s", argv[0], strerror(reason));
    }
    if (is_mpirun)
        listen_to(ends[0], &words);
    return how_it_ended(argv[0], mcp_child_end(), is_mpirun ? &words : NULL, err);
}
