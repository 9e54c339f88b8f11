/* tests/cli/test_options.c: what the option table accepts, refuses and shows. */
/* The library does not hold cli/, so its parts are compiled in here. */
#include "cli/help.c"
#include "cli/options.c"
#include "cli/output.c"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

/* One option of each type. */
struct values {
    bool verify;
    int zero_stage, top;
    int64_t global_batch_size;
    double budget, memory_limit_frac;
    const char *model, *report;
    struct mcp_strings only;
    struct mcp_range tensor_parallel;
    struct mcp_choice method, precision;
};

static const char *const methods[] = {"search", "rule", "exhaustive"};
static const char *const precisions[] = {"bf16", "fp16", "fp32", "mxfp8", "nvfp4"};

enum { NUM_OPTIONS = 13 };
struct setup {
    struct values values;
    struct mcp_option options[NUM_OPTIONS];
    struct mcp_usage usage;
    struct mcp_context ctx;
};

static void set_up(struct setup *s)
{
    *s = (struct setup){.values = {.zero_stage = -1,
                                   .top = 5,
                                   .budget = (double)NAN,
                                   .memory_limit_frac = 0.94,
                                   .method = {0, methods, 3},
                                   .precision = {-1, precisions, 5}}};
    struct values *v = &s->values;
    const struct mcp_option options[NUM_OPTIONS] = {
        {"What to search", MCP_OPT_HEADING, NULL, NULL},
        {"verify", MCP_OPT_FLAG, &v->verify, "check the result"},
        {"zero-stage", MCP_OPT_INT, &v->zero_stage, "what data ranks share"},
        {"top", MCP_OPT_COUNT, &v->top, "plans to keep"},
        {"global-batch-size", MCP_OPT_COUNT64, &v->global_batch_size, "sequences per step"},
        {"budget", MCP_OPT_DOUBLE, &v->budget, "money"},
        {"memory-limit-frac", MCP_OPT_FRAC, &v->memory_limit_frac, "share of memory"},
        {"model", MCP_OPT_STRING, &v->model, "a preset or a file"},
        {"report", MCP_OPT_FILE, &v->report, "a page"},
        {"only", MCP_OPT_LIST, &v->only, "a row"},
        {"tensor-parallel", MCP_OPT_RANGE, &v->tensor_parallel, "pin or bound the degree"},
        {"method", MCP_OPT_CHOICE, &v->method, "how to search"},
        {"precision", MCP_OPT_CHOICE, &v->precision, "the recipe"},
    };
    memcpy(s->options, options, sizeof options);
    s->usage = (struct mcp_usage){.command = "plan",
                                  .summary = "find a plan",
                                  .synopsis = "--model M [FILE]",
                                  .description = "One.\n\n.Two - three.",
                                  .max_operands = 1,
                                  .options = s->options,
                                  .num_options = NUM_OPTIONS,
                                  .examples = "mcpplan plan --model tiny\n"};
    s->ctx = (struct mcp_context){.arena = mcp_arena_new(), .style = {true, true, 100}};
}

enum { MAX_WORDS = 8, WORD = 48 };

/* argv of a case: "plan" and its words up to the first "~". */
static int to_argv(char words[MAX_WORDS][WORD], char *argv[MAX_WORDS + 2])
{
    static char name[] = "plan";
    int argc = 0;
    argv[argc++] = name;
    for (int i = 0; i < MAX_WORDS && strcmp(words[i], "~") != 0; i++)
        argv[argc++] = words[i];
    argv[argc] = NULL;
    return argc;
}

/* Every value after parsing, as one line. */
static const char *show(const struct setup *s)
{
    const struct values *v = &s->values;
    struct mcp_text out = mcp_text_new(s->ctx.arena);
    mcp_text_add(&out, "%d %d %d %lld %g %g %s %s", v->verify, v->zero_stage, v->top,
                 (long long)v->global_batch_size, v->budget, v->memory_limit_frac,
                 v->model != NULL ? v->model : "-", v->report != NULL ? v->report : "-");
    for (int i = 0; i < v->only.count; i++)
        mcp_text_add(&out, " +%s", v->only.items[i]);
    mcp_text_add(&out, " %d..%d %d %d", v->tensor_parallel.low, v->tensor_parallel.high,
                 v->method.value, v->precision.value);
    for (int i = 0; i < s->ctx.num_operands; i++)
        mcp_text_add(&out, " [%s]", s->ctx.operands[i]);
    return out.data;
}

struct good_case {
    char name[48];
    char words[MAX_WORDS][WORD];
    char want[96];
};
ParameterizedTestParameters(options, accepts)
{
    static struct good_case cases[] = {
        {"nothing: defaults", {"~"}, "0 -1 5 0 nan 0.94 - - 0..0 0 -1"},
        {"integers",
         {"--verify", "--zero-stage", "0", "--top=3", "--global-batch-size", "4294967296", "~"},
         "1 0 3 4294967296 nan 0.94 - - 0..0 0 -1"},
        {"reals",
         {"--budget", "1e3", "--memory-limit-frac", "1", "~"},
         "0 -1 5 0 1000 1 - - 0..0 0 -1"},
        {"texts", {"--model", "tiny", "--report=-x", "~"}, "0 -1 5 0 nan 0.94 tiny -x 0..0 0 -1"},
        {"a list grows",
         {"--only", "a", "--only=b", "--only=c", "--only=d", "--only=e", "~"},
         "0 -1 5 0 nan 0.94 - - +a +b +c +d +e 0..0 0 -1"},
        {"a pinned degree", {"--tensor-parallel", "8", "~"}, "0 -1 5 0 nan 0.94 - - 8..8 0 -1"},
        {"a bounded degree", {"--tensor-parallel", "1..8", "~"}, "0 -1 5 0 nan 0.94 - - 1..8 0 -1"},
        {"choices",
         {"--method", "rule", "--precision=nvfp4", "~"},
         "0 -1 5 0 nan 0.94 - - 0..0 1 4"},
        {"the last of two wins",
         {"--top", "3", "--top", "4", "~"},
         "0 -1 4 0 nan 0.94 - - 0..0 0 -1"},
        {"a beginning will do", {"--verif", "~"}, "1 -1 5 0 nan 0.94 - - 0..0 0 -1"},
        {"operands mix with options",
         {"a", "--top", "3", "~"},
         "0 -1 3 0 nan 0.94 - - 0..0 0 -1 [a]"},
        {"-- ends options", {"--", "--top", "~"}, "0 -1 5 0 nan 0.94 - - 0..0 0 -1 [--top]"},
        {"a preset whose name is a file's",
         {"--model", "LICENSE", "--report", "LICENSE", "~"},
         "0 -1 5 0 nan 0.94 LICENSE LICENSE 0..0 0 -1"},
        {"a device takes any number",
         {"--report", "/dev/null", "-o/dev/null", "~"},
         "0 -1 5 0 nan 0.94 - /dev/null 0..0 0 -1"},
        {"dashes that are no option",
         {"--model", "--", "--report", "./--top", "~"},
         "0 -1 5 0 nan 0.94 -- ./--top 0..0 0 -1"},
        {"a dash is an operand", {"-", "~"}, "0 -1 5 0 nan 0.94 - - 0..0 0 -1 [-]"},
    };
    return cr_make_param_array(struct good_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct good_case *c, options, accepts)
{
    struct setup s;
    char *argv[MAX_WORDS + 2];
    set_up(&s);
    int argc = to_argv(c->words, argv);
    cr_expect(mcp_options_parse(&s.ctx, &s.usage, argc, argv), "%s: %s", c->name, s.ctx.err.text);
    cr_expect(eq(str, (char *)show(&s), c->want), "%s", c->name);
    mcp_arena_free(s.ctx.arena);
}

struct bad_case {
    char name[48];
    char words[4][WORD];
    char says[96];
};
ParameterizedTestParameters(options, refuses)
{
    static struct bad_case cases[] = {
        {"a misspelt option",
         {"--modle", "x", "~"},
         "plan has no option --modle; did you mean --model?"},
        {"a key instead of an option",
         {"--tensor_parallel=8", "~"},
         "did you mean --tensor-parallel?"},
        {"one dash", {"-model", "~"}, "plan has no option -model; did you mean --model?"},
        {"an unknown letter", {"-x", "~"}, "plan has no option -x; mcpplan plan --help"},
        {"an unknown letter in a bundle", {"-xy", "~"}, "plan has no option -xy"},
        {"far from every option",
         {"--qqqqqqq", "~"},
         "plan has no option --qqqqqqq; mcpplan plan --help"},
        {"the beginning of three",
         {"--m", "~"},
         "--m may mean --memory-limit-frac, --model, --method"},
        {"a value that is missing", {"--top", "~"}, "option --top needs a value: plans to keep"},
        {"-o without a file", {"-o", "~"}, "option --output needs a value"},
        {"an option for a value",
         {"--model", "--verify", "~"},
         "--model: '--verify' is option --verify and no value; a file of that name is ./--verify"},
        {"an option with its value for one",
         {"--report", "--top=3", "~"},
         "--report: '--top=3' is option --top and no value; a file of that name is ./--top=3"},
        {"the beginning of an option for a value", {"-o", "--glob", "~"}, "is option --global-"},
        {"a short option for a value", {"--only", "-o", "~"}, "'-o' is option --output and no"},
        {"an option for a number", {"--top", "--verify", "~"}, "'--verify' is option --verify"},
        {"an option for a choice", {"--method", "--json", "~"}, "'--json' is option --json"},
        {"a flag with a value", {"--verify=1", "~"}, "option --verify takes no value"},
        {"text for a number",
         {"--top", "x", "~"},
         "--top: 'x' is no whole number from 1 to 2147483647"},
        {"text after a number", {"--top", "3x", "~"}, "'3x' is no whole number"},
        {"an empty number", {"--top", "", "~"}, "'' is no whole number"},
        {"a count of zero", {"--top", "0", "~"}, "'0' is no whole number"},
        {"a negative number", {"--zero-stage", "-1", "~"}, "'-1' is no whole number from 0"},
        {"a number beyond int", {"--top", "2147483648", "~"}, "no whole number"},
        {"a number beyond int64",
         {"--global-batch-size", "9223372036854775808", "~"},
         "no whole number"},
        {"a fraction as a count", {"--top", "1.5", "~"}, "no whole number"},
        {"a negative amount", {"--budget", "-0.5", "~"}, "'-0.5' is no number of 0 or more"},
        {"not a number", {"--budget", "nan", "~"}, "'nan' is no number"},
        {"infinity", {"--budget", "inf", "~"}, "'inf' is no number"},
        {"a decimal comma", {"--budget", "1,5", "~"}, "'1,5' is no number"},
        {"a fraction above 1", {"--memory-limit-frac", "94", "~"}, "'94' is no number from 0 to 1"},
        {"an empty name", {"--model", "", "~"}, "--model: '' is empty"},
        {"an empty list item", {"--only=", "~"}, "--only: '' is empty"},
        {"a range upside down", {"--tensor-parallel", "8..1", "~"}, "'8..1' is an empty range"},
        {"a range from zero",
         {"--tensor-parallel", "0..8", "~"},
         "neither a count such as 8 nor a range"},
        {"a range without end", {"--tensor-parallel", "1..", "~"}, "neither a count"},
        {"a range of three", {"--tensor-parallel", "1..2..3", "~"}, "neither a count"},
        {"a misspelt choice",
         {"--method", "serach", "~"},
         "'serach' is not search, rule or exhaustive; did you mean search?"},
        {"a choice too many", {"--method", "", "~"}, "'' is not search, rule or exhaustive"},
        {"an empty argument", {"", "~"}, "argument 1 is empty: mcpplan plan --model M [FILE]"},
        {"an empty file", {"--report", "", "~"}, "--report: '' is empty"},
        {"an argument too many", {"a", "b", "~"}, "unexpected argument 'b'"},
        {"two files of one name",
         {"--report=x", "-o", "./x", "~"},
         "--output: './x' is also the file of --report"},
        {"a file over what is read",
         {"-o", "Makefile", "./Makefile", "~"},
         "--output: 'Makefile' is a file that plan reads"},
        {"a file over an option's",
         {"--model", "README.md", "-oREADME.md", "~"},
         "--output: 'README.md' is also the file of --model; name another"},
        {"bytes a terminal obeys", {"--top", "\033[31m", "~"}, "'?[31m' is no whole number"},
    };
    return cr_make_param_array(struct bad_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct bad_case *c, options, refuses)
{
    struct setup s;
    char words[MAX_WORDS][WORD];
    char *argv[MAX_WORDS + 2];
    set_up(&s);
    memcpy(words, c->words, sizeof c->words);
    int argc = to_argv(words, argv);
    cr_expect(not(mcp_options_parse(&s.ctx, &s.usage, argc, argv)), "%s", c->name);
    cr_expect(eq(int, (int)s.ctx.status, (int)MCP_USAGE), "%s", c->name);
    cr_expect(ne(ptr, strstr(s.ctx.err.text, c->says), NULL), "%s: %s", c->name, s.ctx.err.text);
    mcp_arena_free(s.ctx.arena);
}

Test(options, settle_the_context)
{
    struct setup s;
    char words[MAX_WORDS][WORD] = {"--json", "--no-color", "-oplan.json", "~"};
    char *argv[MAX_WORDS + 2];
    set_up(&s);
    int argc = to_argv(words, argv);
    cr_assert(mcp_options_parse(&s.ctx, &s.usage, argc, argv));
    cr_expect(s.ctx.json);
    cr_expect(not(s.ctx.style.color));
    cr_expect(eq(str, (char *)s.ctx.output_path, (char *)"plan.json"));
    mcp_arena_free(s.ctx.arena);
}

Test(options, take_a_dash_for_json_on_stdout)
{
    struct setup s;
    char words[MAX_WORDS][WORD] = {"--output", "-", "~"};
    char *argv[MAX_WORDS + 2];
    set_up(&s);
    int argc = to_argv(words, argv);
    cr_assert(mcp_options_parse(&s.ctx, &s.usage, argc, argv));
    cr_expect(s.ctx.json);
    cr_expect(eq(ptr, (void *)s.ctx.output_path, NULL));
    mcp_arena_free(s.ctx.arena);
}

Test(options, say_which_of_them_is_needed)
{
    struct setup s;
    set_up(&s);
    cr_expect(eq(int, (int)mcp_options_need(&s.usage, "top", &s.ctx.err), (int)MCP_OK));
    cr_expect(eq(int, (int)mcp_options_need(&s.usage, "model", &s.ctx.err), (int)MCP_USAGE));
    cr_expect(eq(str, s.ctx.err.text, (char *)"plan needs --model: a preset or a file"));
    mcp_arena_free(s.ctx.arena);
}

Test(options, are_all_in_the_help_and_the_manual)
{
    struct setup s;
    set_up(&s);
    struct mcp_text help = mcp_text_new(s.ctx.arena), man = mcp_text_new(s.ctx.arena);
    s.ctx.style.color = false;
    mcp_options_help(&help, &s.ctx.style, &s.usage);
    mcp_options_man(&man, &s.usage);
    for (int i = 1; i < NUM_OPTIONS; i++) {
        struct mcp_text roff = mcp_text_new(s.ctx.arena);
        put_man_text(&roff, mcp_format(s.ctx.arena, "--%s", s.options[i].name));
        const char *line = mcp_format(s.ctx.arena, "\n  --%s", s.options[i].name);
        cr_expect(ne(ptr, strstr(help.data, line), NULL), "%s", line);
        cr_expect(ne(ptr, strstr(help.data, s.options[i].help), NULL), "%s", s.options[i].help);
        roff.data[roff.length - 1] = '\0';
        cr_expect(ne(ptr, strstr(man.data, roff.data), NULL), "%s", roff.data);
    }
    mcp_arena_free(s.ctx.arena);
}

struct shown_case {
    char name[48];
    char text[96];
};
ParameterizedTestParameters(options, help_shows)
{
    static struct shown_case cases[] = {
        {"a group's name", "\nWhat to search\n"},
        {"a default", "  --top N                       plans to keep (default 5)\n"},
        {"no default for what is not given",
         "  --zero-stage N                what data ranks share\n"},
        {"a range's form", "  --tensor-parallel N|A..B      pin or bound the degree\n"},
        {"alternatives", "  --method search|rule|exhaustive\n"},
        {"alternatives too long for the left", "the recipe: bf16, fp16, fp32, mxfp8 or nvfp4\n"},
        {"repetition", "a row; may be repeated\n"},
        {"common options", "  -o, --output FILE"},
        {"short help", "  -h, --help"},
        {"exit codes", "  6  no plan exists"},
        {"examples", "\n  mcpplan plan --model tiny\n"},
        {"the description's paragraphs", "\nOne.\n\n.Two - three.\n"},
    };
    return cr_make_param_array(struct shown_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct shown_case *c, options, help_shows)
{
    struct setup s;
    set_up(&s);
    s.ctx.style.color = false;
    struct mcp_text help = mcp_text_new(s.ctx.arena);
    mcp_options_help(&help, &s.ctx.style, &s.usage);
    cr_expect(ne(ptr, strstr(help.data, c->text), NULL), "%s:\n%s", c->name, help.data);
    mcp_arena_free(s.ctx.arena);
}

Test(options, manual_text_is_no_request)
{
    struct setup s;
    set_up(&s);
    struct mcp_text man = mcp_text_new(s.ctx.arena);
    mcp_options_man(&man, &s.usage);
    cr_expect(ne(ptr, strstr(man.data, "\nOne.\n.PP\n\\&.Two \\- three.\n"), NULL), "%s", man.data);
    mcp_arena_free(s.ctx.arena);
}

Test(options, long_words_are_cut_between_characters)
{
    struct mcp_arena *arena = mcp_arena_new();
    char word[] = "0123456789012345678901234567890123456789012345678901234567890123";
    char cut[] = "012345678901234567890123456789012345678901234567890123456789012\xC3\xA9z";
    char want[] = "012345678901234567890123456789012345678901234567890123456789012...";
    cr_expect(eq(str, (char *)mcp_shown(arena, word), word));
    cr_expect(eq(str, (char *)mcp_shown(arena, cut), want));
    mcp_arena_free(arena);
}

struct style_case {
    char name[48];
    char variable[16], value[16];
    bool unicode;
    int width;
};
ParameterizedTestParameters(options, style)
{
    static struct style_case cases[] = {
        {"no locale", "LANG", "", false, 100},
        {"a UTF-8 locale", "LANG", "de_DE.UTF-8", true, 100},
        {"utf8 as some write it", "LC_CTYPE", "C.utf8", true, 100},
        {"LC_ALL wins", "LC_ALL", "C", false, 100},
        {"a width", "COLUMNS", "72", false, 72},
        {"too narrow", "COLUMNS", "3", false, 40},
        {"too wide", "COLUMNS", "9999", false, 160},
        {"no width", "COLUMNS", "7x", false, 100},
    };
    return cr_make_param_array(struct style_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct style_case *c, options, style)
{
    unsetenv("LC_ALL");
    unsetenv("LC_CTYPE");
    unsetenv("COLUMNS");
    setenv("LANG", strcmp(c->variable, "LC_ALL") == 0 ? "C.UTF-8" : "C", 1);
    setenv(c->variable, c->value, 1);
    int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO); /* no terminal, whoever runs the test */
    struct mcp_style style = mcp_style_of_stdout();
    cr_expect(eq(int, style.unicode, c->unicode), "%s", c->name);
    cr_expect(eq(int, style.width, c->width), "%s", c->name);
    cr_expect(not(style.color), "%s", c->name);
    close(null);
}

struct terminal_case {
    char name[40];
    char variable[16], value[16];
    bool color;
    int width;
};
ParameterizedTestParameters(options, terminal)
{
    static struct terminal_case cases[] = {
        {"a terminal has colours and a width", "TERM", "xterm", true, 77},
        {"NO_COLOR", "NO_COLOR", "1", false, 77},
        {"an empty NO_COLOR", "NO_COLOR", "", true, 77},
        {"a dumb terminal", "TERM", "dumb", false, 77},
        {"COLUMNS before the terminal's width", "COLUMNS", "88", true, 88},
    };
    return cr_make_param_array(struct terminal_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct terminal_case *c, options, terminal)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    cr_assert(ge(int, master, 0));
    cr_assert(eq(int, grantpt(master) | unlockpt(master), 0));
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    const struct winsize size = {.ws_row = 24, .ws_col = 77};
    cr_assert(eq(int, ioctl(slave, TIOCSWINSZ, &size), 0));
    cr_assert(eq(int, dup2(slave, STDOUT_FILENO), STDOUT_FILENO));
    unsetenv("NO_COLOR");
    unsetenv("COLUMNS");
    setenv("TERM", "xterm", 1);
    setenv(c->variable, c->value, 1);
    struct mcp_style style = mcp_style_of_stdout();
    cr_expect(eq(int, style.color, c->color), "%s", c->name);
    cr_expect(eq(int, style.width, c->width), "%s", c->name);
    close(slave);
    close(master);
}
