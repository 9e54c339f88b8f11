/* tests/cli/test_cli.c: the program as its users meet it: words in; exit code and text out. */
#include "tests/cli/child.h"

#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(cli, .init = child_settle_environment);

ParameterizedTestParameters(cli, words)
{
    static struct child_case cases[] = {
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
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct child_case *c, cli, words, .init = child_settle_environment)
{
    child_check(c, NULL);
}

struct file_case {
    char text[160];
    struct child_case cli;
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
        {"{\"hidden_size\": NaN}", {"NaN", {"model", "@", "~"}, MCP_FORMAT, "", "a config.json?"}},
        {"{\"model_type\": \"quux\"}",
         {"an unknown family", {"model", "@", "~"}, MCP_FORMAT, "", "quux"}},
        {"{\"schema\": \"mcpplan.cluster/1\"}",
         {"a cluster as model", {"model", "@", "~"}, MCP_FORMAT, "", "schema"}},
        {"{\"schema\": \"mcpplan.model/1\"}",
         {"a model as cluster",
          {"plan", "--model", "tiny", "--cluster", "@", "--global-batch-size=8", "~"},
          MCP_FORMAT,
          "",
          "schema"}},
        {"{\"schema\": \"mcpplan.cluster/1\", \"name\": \"x\"}",
         {"half a cluster",
          {"plan", "--model", "tiny", "--cluster", "@", "--global-batch-size=8", "~"},
          MCP_FORMAT,
          "",
          "missing"}},
        {"a,b\n1\n", {"a ragged table", {"validate", "@", "~"}, MCP_FORMAT, "", "line 2"}},
        {"a,b\n1,2\n",
         {"a table of other things", {"validate", "@", "~"}, MCP_FORMAT, "", "column"}},
        {"\xFF\xFE{}", {"UTF-16", {"model", "@", "~"}, MCP_FORMAT, "", "0xff"}},
    };
    return cr_make_param_array(struct file_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct file_case *c, cli, files, .init = child_settle_environment)
{
    char path[TEMPORARY_PATH];
    child_write_file(path, c->text, strlen(c->text));
    child_check(&c->cli, path);
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
        {"a full disk takes no machine", "/dev/full", {"topo", "~"}},
        {"a closed stdout takes no text", "", {"model", "tiny", "~"}},
        {"a closed stdout takes no JSON", "", {"model", "--json", "~"}},
    };
    return cr_make_param_array(struct sink_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct sink_case *c, cli, sinks, .init = child_settle_environment)
{
    struct child run = {.arena = mcp_arena_new(), .stdout_path = c->stdout_path};
    child_run(&run, c->words, NULL);
    cr_expect(eq(int, run.status, (int)MCP_IO), "%s", c->name);
    cr_expect(ne(ptr, strstr(run.err, "mcpplan: cannot write to standard output: "), NULL),
              "%s: %s", c->name, run.err);
    mcp_arena_free(run.arena);
}

/* With stdout closed, a file that is written must not become stdout. */
Test(cli, a_closed_stdout_spoils_no_file)
{
    struct mcp_arena *arena = mcp_arena_new();
    char path[TEMPORARY_PATH], words[][WORD] = {"model", "tiny", "-o", "@", "~"};
    child_write_file(path, "old", 3);
    struct child closed = {.arena = arena, .stdout_path = ""}, open = {.arena = arena};
    struct mcp_text first = mcp_text_new(arena), second = mcp_text_new(arena);
    child_run(&closed, words, path);
    cr_assert(eq(int, (int)mcp_file_read(arena, path, 1 << 20, &first, NULL), (int)MCP_OK));
    child_run(&open, words, path);
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
    char path[TEMPORARY_PATH], to_file[][WORD] = {"model", "tiny", "-o", "@", "~"};
    char to_stdout[][WORD] = {"model", "tiny", "--json", "~"};
    struct child with_file = {.arena = arena}, with_json = {.arena = arena};
    struct mcp_text text = mcp_text_new(arena);
    child_write_file(path, "old", 3);
    child_run(&with_file, to_file, path);
    child_run(&with_json, to_stdout, NULL);
    cr_assert(eq(int, (int)mcp_file_read(arena, path, 1 << 20, &text, NULL), (int)MCP_OK));
    cr_expect(eq(str, text.data, with_json.out));
    cr_expect(ne(str, with_file.out, (char *)""), "the text is printed all the same");
    cr_expect(ne(ptr, strstr(with_file.err, "mcpplan: note: wrote /tmp/mcpplan-test-"), NULL));
    cr_expect(eq(str, with_json.err, (char *)""));
    unlink(path);
    mcp_arena_free(arena);
}

/* The cluster file that topo makes of a dump is one that plan reads. */
Test(cli, topo_writes_what_plan_reads)
{
    static const char matrix[] = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
                                 "GPU0\t X \tNV4\t0-7\t0\n"
                                 "GPU1\tNV4\t X \t0-7\t0\n";
    struct mcp_arena *arena = mcp_arena_new();
    char dump[TEMPORARY_PATH], cluster[TEMPORARY_PATH];
    child_write_file(dump, matrix, sizeof matrix - 1);
    child_write_file(cluster, "old", 3);
    char topo[][WORD] = {
        "topo", "@", "--gpu=h100-sxm-80gb", "--nodes=2", "--network=400Gbit/s", "-o", "", "~"};
    char plan[][WORD] = {"plan", "--model", "tiny", "--cluster", "@", "--global-batch-size=8", "~"};
    snprintf(topo[6], WORD, "%s", cluster);
    struct child made = {.arena = arena}, used = {.arena = arena};
    child_run(&made, topo, dump);
    child_run(&used, plan, cluster);
    cr_expect(eq(int, made.status, (int)MCP_OK), "%s", made.err);
    cr_expect(eq(int, used.status, (int)MCP_OK), "%s", used.err);
    cr_expect(ne(ptr, strstr(used.out, "4 x h100-sxm-80gb, 2 nodes of 2"), NULL), "%s", used.out);
    unlink(dump);
    unlink(cluster);
    mcp_arena_free(arena);
}

/* A dump that does not tell the GPU makes no cluster, and says what would. */
Test(cli, topo_says_why_there_is_no_cluster)
{
    static const char matrix[] = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
                                 "GPU0\t X \tNV4\t0-7\t0\n"
                                 "GPU1\tNV4\t X \t0-7\t0\n";
    struct mcp_arena *arena = mcp_arena_new();
    char dump[TEMPORARY_PATH];
    child_write_file(dump, matrix, sizeof matrix - 1);
    char unknown[][WORD] = {"topo", "@", "~"},
         known[][WORD] = {"topo", "@", "--gpu=h100-sxm-80gb", "~"};
    struct child without = {.arena = arena}, with = {.arena = arena};
    child_run(&without, unknown, dump);
    child_run(&with, known, dump);
    cr_expect(eq(int, without.status, (int)MCP_OK), "%s", without.err);
    cr_expect(strstr(without.err, "no cluster: it is unknown which GPU this is") != NULL, "%s",
              without.err);
    cr_expect(strstr(without.out, "As a cluster") == NULL);
    cr_expect(strstr(with.err, "no cluster") == NULL, "%s", with.err);
    cr_expect(strstr(with.out, "As a cluster") != NULL, "%s", with.out);
    unlink(dump);
    mcp_arena_free(arena);
}

/* A locale of decimal commas, another width, another zone: the same facts. */
Test(cli, json_does_not_depend_on_the_environment)
{
    struct mcp_arena *arena = mcp_arena_new();
    char words[][WORD] = {
        "plan", "--model=llama-3.1-8b", "--cluster=dgx-h100:2", "--global-batch-size=32", "--json",
        "~"};
    struct child here = {.arena = arena}, there = {.arena = arena};
    child_run(&here, words, NULL);
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    setenv("LANG", "de_DE.UTF-8", 1);
    setenv("TERM", "dumb", 1);
    setenv("COLUMNS", "41", 1);
    setenv("TZ", "UTC", 1);
    child_run(&there, words, NULL);
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
    struct child run = {.arena = arena};
    setenv("LC_ALL", "C", 1);
    child_run(&run, words, NULL);
    cr_expect(eq(int, run.status, (int)MCP_OK));
    for (const char *at = run.out; *at != '\0'; at++)
        cr_assert(is_ascii_text(*at), "byte %d", *at);
    mcp_arena_free(arena);
}

/* The rest of the line of the manual at `line`, without the backslashes. */
static char *manual_words(struct mcp_arena *arena, const char *line)
{
    struct mcp_text words = mcp_text_new(arena);
    for (; *line != '\n' && *line != '\0'; line++) {
        if (*line != '\\')
            mcp_text_append(&words, line, 1);
    }
    return words.data;
}

static char *help_of(struct mcp_arena *arena, const char *command)
{
    struct child run = {.arena = arena};
    char words[][WORD] = {"", "--help", "~"};
    snprintf(words[0], WORD, "%.*s", (int)strcspn(command, " "), command);
    child_run(&run, words, NULL);
    cr_expect(eq(int, run.status, (int)MCP_OK), "%s", command);
    return run.out;
}

/* Command by command, each option of the manual stands in --help. */
Test(cli, help_names_every_option)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct child man = {.arena = arena};
    char words[][WORD] = {"--man", "~"};
    int num_commands = 0, num_options = 0;
    const char *help = "";
    child_run(&man, words, NULL);
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
    struct child man = {.arena = arena};
    char words[][WORD] = {"--man", "~"};
    struct mcp_text file = mcp_text_new(arena);
    child_run(&man, words, NULL);
    cr_assert(eq(int, (int)mcp_file_read(arena, "docs/man/mcpplan.1", 1 << 20, &file, NULL),
                 (int)MCP_OK));
    cr_expect(eq(str, man.out, file.data), "stale: mcpplan --man > docs/man/mcpplan.1");
    mcp_arena_free(arena);
}
