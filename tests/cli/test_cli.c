/* tests/cli/test_cli.c: the program as its users meet it: words in; exit code and text out.
 *
 * MCPPLAN names the program, by default build/release/mcpplan. Run from the
 * repository's root. */
#include "core/arena.h"
#include "core/error.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_WORDS = 8, WORD = 56, MAX_FILE = 160 };

/* One run. stdin is empty; `stdout_path` NULL: stdout is kept. */
struct run {
    struct mcp_arena *arena;
    const char *stdout_path;
    int status; /* exit code, or 128 + signal */
    char *out, *err;
};

static char *slurp(struct mcp_arena *arena, FILE *file)
{
    struct mcp_text text = mcp_text_new(arena);
    char block[4096];
    size_t got;
    mcp_text_append(&text, "", 0);
    rewind(file);
    while ((got = fread(block, 1, sizeof block, file)) > 0)
        mcp_text_append(&text, block, got);
    fclose(file);
    return text.data;
}

static void spawn(struct run *run, char *const *argv)
{
    FILE *out = tmpfile(), *err = tmpfile();
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int wait_status;
    cr_assert(out != NULL && err != NULL);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fileno(out), 1);
    posix_spawn_file_actions_adddup2(&actions, fileno(err), 2);
    if (run->stdout_path != NULL && *run->stdout_path == '\0')
        posix_spawn_file_actions_addclose(&actions, 1);
    else if (run->stdout_path != NULL)
        posix_spawn_file_actions_addopen(&actions, 1, run->stdout_path, O_WRONLY, 0);
    cr_assert(eq(int, posix_spawn(&pid, argv[0], &actions, NULL, argv, environ), 0),
              "cannot start %s", argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    cr_assert(eq(int, waitpid(pid, &wait_status, 0), pid));
    run->status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    run->out = slurp(run->arena, out);
    run->err = slurp(run->arena, err);
}

/* Runs the words up to the first "~"; the word "@" is replaced by `file`. */
static void run_words(struct run *run, char words[][WORD], char *file)
{
    static char by_default[] = "build/release/mcpplan";
    char *argv[MAX_WORDS + 2] = {getenv("MCPPLAN")};
    if (argv[0] == NULL)
        argv[0] = by_default;
    for (int i = 0; i < MAX_WORDS && strcmp(words[i], "~") != 0; i++)
        argv[i + 1] = strcmp(words[i], "@") == 0 ? file : words[i];
    spawn(run, argv);
}

/* What a program may count on nowhere is set, so that results do not vary. */
static void settle_environment(void)
{
    unsetenv("HOME");
    unsetenv("LC_CTYPE");
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("COLUMNS", "100", 1);
    setenv("TZ", "Pacific/Chatham", 1);
}
TestSuite(cli, .init = settle_environment);

/* A failure is one line on stderr, after notes, and says who speaks. */
static void expect_sentence(const struct run *run, const char *name)
{
    const char *line = run->err;
    while (mcp_starts_with(line, "mcpplan: note: "))
        line = strchr(line, '\n') + 1;
    cr_expect(mcp_starts_with(line, "mcpplan: "), "%s: '%s'", name, run->err);
    const char *end = strchr(line, '\n');
    cr_expect(end != NULL && end[1] == '\0', "%s: '%s'", name, run->err);
}

struct cli_case {
    char name[56];
    char words[MAX_WORDS][WORD];
    enum mcp_status want;
    char out[72];  /* stdout holds it */
    char err[104]; /* stderr holds it */
};

static void check_case(struct cli_case *c, char *file)
{
    struct run run = {.arena = mcp_arena_new()};
    run_words(&run, c->words, file);
    cr_expect(eq(int, run.status, (int)c->want), "%s: %s", c->name, run.err);
    cr_expect(ne(ptr, strstr(run.out, c->out), NULL), "%s: '%s'", c->name, run.out);
    cr_expect(ne(ptr, strstr(run.err, c->err), NULL), "%s: '%s'", c->name, run.err);
    if (run.status != MCP_OK)
        expect_sentence(&run, c->name);
    if (run.status != MCP_OK && run.status != MCP_CHECK_FAILED && run.status != MCP_INFEASIBLE)
        cr_expect(eq(str, run.out, (char *)""), "%s: no partial output", c->name);
    mcp_arena_free(run.arena);
}

ParameterizedTestParameters(cli, words)
{
    static struct cli_case cases[] = {
        {"no words: the overview", {"~"}, MCP_OK, "\nCommands\n", ""},
        {"--help", {"--help", "~"}, MCP_OK, "  6  no plan exists", ""},
        {"-h", {"-h", "~"}, MCP_OK, "\nCommands\n", ""},
        {"help", {"help", "~"}, MCP_OK, "\nCommands\n", ""},
        {"help of a command", {"help", "model", "~"}, MCP_OK, "mcpplan model: ", ""},
        {"help of no command",
         {"help", "modle", "~"},
         MCP_USAGE,
         "",
         "'modle'; did you mean model?"},
        {"--version", {"--version", "~"}, MCP_OK, "mcpplan 0.", ""},
        {"--version of a command", {"model", "--version", "~"}, MCP_OK, "mcpplan 0.", ""},
        {"--man", {"--man", "~"}, MCP_OK, ".TH MCPPLAN 1", ""},
        {"a misspelt command",
         {"modle", "~"},
         MCP_USAGE,
         "",
         "no command 'modle'; did you mean model?"},
        {"no command at all", {"xyzzy", "~"}, MCP_USAGE, "", "no command 'xyzzy'; mcpplan --help"},
        {"an empty command", {"", "~"}, MCP_USAGE, "", "no command ''"},
        {"an option for a command", {"--json", "~"}, MCP_USAGE, "", "no option '--json'"},
        {"a command that a terminal obeys", {"\033[2J", "~"}, MCP_USAGE, "", "no command '?[2J'"},
        {"a misspelt option",
         {"model", "--sequence-lenght", "8", "~"},
         MCP_USAGE,
         "",
         "model has no option --sequence-lenght; did you mean --sequence-length?"},
        {"a key as an option",
         {"model", "--sequence_length=8", "~"},
         MCP_USAGE,
         "",
         "did you mean --sequence-length?"},
        {"an option without its value",
         {"model", "--sequence-length", "~"},
         MCP_USAGE,
         "",
         "--sequence-length needs a value"},
        {"a value with a tail",
         {"model", "tiny", "--sequence-length", "8k", "~"},
         MCP_USAGE,
         "",
         "'8k'"},
        {"a value of zero", {"model", "tiny", "--sequence-length", "0", "~"}, MCP_USAGE, "", "'0'"},
        {"one argument too many", {"model", "tiny", "gpt2", "~"}, MCP_USAGE, "", "'gpt2'"},
        {"options after an argument",
         {"model", "tiny", "--json", "~"},
         MCP_OK,
         "\"mcpplan.model/1\"",
         ""},
        {"-o - is --json", {"model", "tiny", "-o", "-", "~"}, MCP_OK, "\"mcpplan.model/1\"", ""},
        {"-o into a folder that is not there",
         {"model", "tiny", "-o", "/no/such/folder/x", "~"},
         MCP_IO,
         "",
         "/no/such/folder/x"},
        {"-o onto a folder", {"model", "tiny", "-o", "/", "~"}, MCP_IO, "", "/"},
        {"a model that is no file", {"model", "llama-3.1-8", "~"}, MCP_IO, "", "llama-3.1-8b"},
        {"a model that is a folder", {"model", "/", "~"}, MCP_IO, "", "directory"},
        {"a model without end", {"model", "/dev/zero", "~"}, MCP_IO, "", "/dev/zero"},
        {"a model from empty stdin", {"model", "-", "~"}, MCP_FORMAT, "", "empty"},
        {"sequences beyond the positions",
         {"model", "gpt2", "--sequence-length", "4096", "~"},
         MCP_INVALID,
         "",
         "1024"},
    };
    return cr_make_param_array(struct cli_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct cli_case *c, cli, words, .init = settle_environment)
{
    check_case(c, NULL);
}

/* A file that a test wrote; the caller removes it. */
static void write_file(char path[32], const char *text, size_t length)
{
    snprintf(path, 32, "/tmp/mcpplan-test-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(ge(int, fd, 0));
    cr_assert(eq(sz, (size_t)write(fd, text, length), length));
    close(fd);
}

struct file_case {
    char text[MAX_FILE];
    struct cli_case cli;
};
ParameterizedTestParameters(cli, files)
{
    static struct file_case cases[] = {
        {"", {"an empty model", {"model", "@", "~"}, MCP_FORMAT, "", "empty"}},
        {" \n\t", {"a blank model", {"model", "@", "~"}, MCP_FORMAT, "", "mcpplan-test"}},
        {"{\"model_type\": \"llama\"",
         {"a cut model", {"model", "@", "~"}, MCP_FORMAT, "", "line 1, column 22"}},
        {"[1, 2]", {"an array as model", {"model", "@", "~"}, MCP_FORMAT, "", "object"}},
        {"{\"model_type\": \"llama\", \"hidden_size\": -4096}",
         {"a negative size", {"model", "@", "~"}, MCP_FORMAT, "", "hidden_size"}},
        {"{\"model_type\": \"llama\", \"hidden_size\": 4096.5}",
         {"a broken size", {"model", "@", "~"}, MCP_FORMAT, "", "hidden_size"}},
        {"{\"model_type\": \"llama\", \"hidden_size\": \"4096\"}",
         {"a size as text", {"model", "@", "~"}, MCP_FORMAT, "", "hidden_size"}},
        {"{\"hidden_size\": 1, \"hidden_size\": 2}",
         {"a key twice", {"model", "@", "~"}, MCP_FORMAT, "", "hidden_size"}},
        {"{\"hidden_size\": NaN}", {"NaN", {"model", "@", "~"}, MCP_FORMAT, "", "'NaN'"}},
        {"{\"model_type\": \"quux\"}",
         {"an unknown family", {"model", "@", "~"}, MCP_FORMAT, "", "quux"}},
        {"{\"schema\": \"mcpplan.cluster/1\"}",
         {"a cluster as model", {"model", "@", "~"}, MCP_FORMAT, "", "schema"}},
        {"\xFF\xFE{}", {"UTF-16", {"model", "@", "~"}, MCP_FORMAT, "", "0xff"}},
    };
    return cr_make_param_array(struct file_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct file_case *c, cli, files, .init = settle_environment)
{
    char path[32];
    write_file(path, c->text, strlen(c->text));
    check_case(&c->cli, path);
    unlink(path);
}

/* Results that reach nobody are failures. */
struct sink_case {
    char name[40];
    char stdout_path[16];
    char words[4][WORD];
};
ParameterizedTestParameters(cli, sinks)
{
    static struct sink_case cases[] = {
        {"a full disk takes no text", "/dev/full", {"model", "tiny", "~"}},
        {"a full disk takes no JSON", "/dev/full", {"model", "tiny", "--json", "~"}},
        {"a full disk takes no help", "/dev/full", {"model", "--help", "~"}},
        {"a full disk takes no overview", "/dev/full", {"--help", "~"}},
        {"a full disk takes no version", "/dev/full", {"--version", "~"}},
        {"a full disk takes no manual", "/dev/full", {"--man", "~"}},
        {"a closed stdout takes no text", "", {"model", "tiny", "~"}},
        {"a closed stdout takes no JSON", "", {"model", "--json", "~"}},
    };
    return cr_make_param_array(struct sink_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct sink_case *c, cli, sinks, .init = settle_environment)
{
    struct run run = {.arena = mcp_arena_new(), .stdout_path = c->stdout_path};
    run_words(&run, c->words, NULL);
    cr_expect(eq(int, run.status, (int)MCP_IO), "%s", c->name);
    cr_expect(ne(ptr, strstr(run.err, "mcpplan: cannot write to standard output: "), NULL),
              "%s: %s", c->name, run.err);
    mcp_arena_free(run.arena);
}

/* With stdout closed, a file that is written must not become stdout. */
Test(cli, a_closed_stdout_spoils_no_file)
{
    struct mcp_arena *arena = mcp_arena_new();
    char path[32], words[][WORD] = {"model", "tiny", "-o", "@", "~"};
    write_file(path, "old", 3);
    struct run closed = {.arena = arena, .stdout_path = ""}, open = {.arena = arena};
    struct mcp_text first = mcp_text_new(arena), second = mcp_text_new(arena);
    run_words(&closed, words, path);
    cr_assert(eq(int, (int)mcp_file_read(arena, path, 1 << 20, &first, NULL), (int)MCP_OK));
    run_words(&open, words, path);
    cr_assert(eq(int, (int)mcp_file_read(arena, path, 1 << 20, &second, NULL), (int)MCP_OK));
    cr_expect(eq(int, closed.status, (int)MCP_IO));
    cr_expect(eq(int, open.status, (int)MCP_OK));
    cr_expect(eq(str, first.data, second.data));
    unlink(path);
    mcp_arena_free(arena);
}

Test(cli, output_option_writes_the_bytes_of_json)
{
    struct mcp_arena *arena = mcp_arena_new();
    char path[32], to_file[][WORD] = {"model", "tiny", "-o", "@", "~"};
    char to_stdout[][WORD] = {"model", "tiny", "--json", "~"};
    struct run with_file = {.arena = arena}, with_json = {.arena = arena};
    struct mcp_text text = mcp_text_new(arena);
    write_file(path, "old", 3);
    run_words(&with_file, to_file, path);
    run_words(&with_json, to_stdout, NULL);
    cr_assert(eq(int, (int)mcp_file_read(arena, path, 1 << 20, &text, NULL), (int)MCP_OK));
    cr_expect(eq(str, text.data, with_json.out));
    cr_expect(ne(str, with_file.out, (char *)""), "the text is printed all the same");
    cr_expect(ne(ptr, strstr(with_file.err, "mcpplan: note: wrote /tmp/mcpplan-test-"), NULL));
    cr_expect(eq(str, with_json.err, (char *)""));
    unlink(path);
    mcp_arena_free(arena);
}

/* A locale of decimal commas, colours forced or not, another zone: the same facts. */
Test(cli, json_does_not_depend_on_the_environment)
{
    struct mcp_arena *arena = mcp_arena_new();
    char words[][WORD] = {"model", "llama-3.1-8b", "--json", "~"};
    struct run here = {.arena = arena}, there = {.arena = arena};
    run_words(&here, words, NULL);
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    setenv("LANG", "de_DE.UTF-8", 1);
    setenv("TERM", "dumb", 1);
    setenv("COLUMNS", "41", 1);
    setenv("TZ", "UTC", 1);
    run_words(&there, words, NULL);
    cr_expect(eq(int, here.status, (int)MCP_OK));
    cr_expect(eq(str, here.out, there.out));
    mcp_arena_free(arena);
}

static bool is_ascii_text(char byte)
{
    return byte == '\n' || (byte >= ' ' && byte <= '~');
}

Test(cli, output_to_a_file_has_no_escapes_and_ascii_where_asked)
{
    struct mcp_arena *arena = mcp_arena_new();
    char words[][WORD] = {"model", "tiny", "~"};
    struct run run = {.arena = arena};
    setenv("LC_ALL", "C", 1);
    run_words(&run, words, NULL);
    cr_expect(eq(int, run.status, (int)MCP_OK));
    for (const char *at = run.out; *at != '\0'; at++)
        cr_assert(is_ascii_text(*at), "byte %d", *at);
    mcp_arena_free(arena);
}

/* The rest of the line of the manual at `line`, without the backslashes. */
static char *manual_words(struct mcp_arena *arena, const char *line)
{
    struct mcp_text words = mcp_text_new(arena);
    mcp_text_append(&words, "", 0);
    for (; *line != '\n' && *line != '\0'; line++) {
        if (*line != '\\')
            mcp_text_append(&words, line, 1);
    }
    return words.data;
}

static char *help_of(struct mcp_arena *arena, const char *command)
{
    struct run run = {.arena = arena};
    char words[][WORD] = {"", "--help", "~"};
    snprintf(words[0], WORD, "%.*s", (int)strcspn(command, " "), command);
    run_words(&run, words, NULL);
    cr_expect(eq(int, run.status, (int)MCP_OK), "%s", command);
    return run.out;
}

/* Command by command, each option of the manual stands in --help. */
Test(cli, help_names_every_option)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct run man = {.arena = arena};
    char words[][WORD] = {"--man", "~"};
    int num_commands = 0, num_options = 0;
    const char *help = "";
    run_words(&man, words, NULL);
    for (const char *line = man.out; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (mcp_starts_with(line, ".SS mcpplan ")) {
            help = help_of(arena, manual_words(arena, line + 12));
            num_commands++;
        } else if (mcp_starts_with(line, ".B \\-\\-")) {
            char *option = manual_words(arena, line + 3);
            cr_expect(ne(ptr, strstr(help, option), NULL), "%s", option);
            num_options++;
        }
    }
    cr_expect(gt(int, num_commands, 0));
    cr_expect(gt(int, num_options, num_commands));
    mcp_arena_free(arena);
}

Test(cli, the_manual_in_docs_is_that_of_the_program)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct run man = {.arena = arena};
    char words[][WORD] = {"--man", "~"};
    struct mcp_text file = mcp_text_new(arena);
    run_words(&man, words, NULL);
    cr_assert(eq(int, (int)mcp_file_read(arena, "docs/man/mcpplan.1", 1 << 20, &file, NULL),
                 (int)MCP_OK));
    cr_expect(eq(str, man.out, file.data), "stale: mcpplan --man > docs/man/mcpplan.1");
    mcp_arena_free(arena);
}
