/* cli/options.c: the option table, parsed by getopt_long. */
#include "cli/options.h"
#include "cli/commands.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { FIRST_LONG = 0x100 }; /* getopt values above every character */

const char *const mcp_off_on[2] = {"off", "on"};

/* One parse: the command's rows and, after them, those of every command. */
struct parser {
    struct mcp_context *ctx;
    const struct mcp_usage *usage;
    struct mcp_option *rows; /* [num_rows] without headings */
    size_t num_rows;
    bool help, version, no_color;
};

static void add_row(struct parser *parser, struct mcp_option row)
{
    if (row.type != MCP_OPT_HEADING)
        parser->rows[parser->num_rows++] = row;
}

static void collect_rows(struct parser *parser)
{
    const struct mcp_usage *usage = parser->usage;
    parser->rows =
        MCP_ARRAY(parser->ctx->arena, usage->num_options + MCP_NUM_COMMON, struct mcp_option);
    for (size_t i = 0; i < usage->num_options; i++)
        add_row(parser, usage->options[i]);
    /* In the order of mcp_common_options. */
    void *const values[MCP_NUM_COMMON] = {&parser->ctx->json, &parser->ctx->output_path,
                                          &parser->no_color, &parser->help, &parser->version};
    for (size_t i = 0; i < MCP_NUM_COMMON; i++) {
        struct mcp_option row = mcp_common_options[i];
        row.value = values[i];
        add_row(parser, row);
    }
}

static const struct option *long_options(const struct parser *parser)
{
    struct option *table = MCP_ARRAY(parser->ctx->arena, parser->num_rows + 1, struct option);
    for (size_t i = 0; i < parser->num_rows; i++) {
        bool flag = parser->rows[i].type == MCP_OPT_FLAG;
        table[i] = (struct option){parser->rows[i].name, flag ? no_argument : required_argument,
                                   NULL, FIRST_LONG + (int)i};
    }
    return table;
}

/* The row of a getopt value, NULL for an unknown character. */
static const struct mcp_option *row_of(const struct parser *parser, int value)
{
    if (value >= FIRST_LONG)
        return &parser->rows[value - FIRST_LONG];
    const char *name = value == 'h' ? "help" : value == 'o' ? "output" : "";
    for (size_t i = 0; i < parser->num_rows; i++) {
        if (mcp_same(parser->rows[i].name, name))
            return &parser->rows[i];
    }
    return NULL;
}

/* "option --top: 'x' SENTENCE" */
static enum mcp_status refuse(const struct parser *parser, const struct mcp_option *row,
                              const char *text, const char *sentence)
{
    return mcp_fail(&parser->ctx->err, MCP_USAGE, "option --%s: '%s' %s", row->name,
                    mcp_shown(parser->ctx->arena, text), sentence);
}

static enum mcp_status take_integer(const struct parser *parser, const struct mcp_option *row,
                                    const char *text)
{
    const bool wide = row->type == MCP_OPT_INT64 || row->type == MCP_OPT_COUNT64;
    int64_t least = row->type == MCP_OPT_INT || row->type == MCP_OPT_INT64 ? 0 : 1;
    int64_t most = wide ? INT64_MAX : INT_MAX;
    int64_t value;
    if (!mcp_parse_int64(text, &value) || value < least || value > most) {
        const char *legal = mcp_format(parser->ctx->arena, "is no whole number from %d to %lld",
                                       (int)least, (long long)most);
        return refuse(parser, row, text, legal);
    }
    if (wide)
        *(int64_t *)row->value = value;
    else
        *(int *)row->value = (int)value;
    return MCP_OK;
}

static enum mcp_status take_double(const struct parser *parser, const struct mcp_option *row,
                                   const char *text)
{
    bool is_frac = row->type == MCP_OPT_FRAC;
    double value;
    if (!mcp_parse_double(text, &value) || value < 0 || (is_frac && value > 1))
        return refuse(parser, row, text,
                      is_frac ? "is no number from 0 to 1" : "is no number of 0 or more");
    *(double *)row->value = value;
    return MCP_OK;
}

static enum mcp_status take_string(const struct parser *parser, const struct mcp_option *row,
                                   const char *text)
{
    if (*text == '\0')
        return refuse(parser, row, text, "is empty");
    *(const char **)row->value = text;
    return MCP_OK;
}

static enum mcp_status take_list_item(const struct parser *parser, const struct mcp_option *row,
                                      const char *text)
{
    struct mcp_strings *list = row->value;
    if (*text == '\0')
        return refuse(parser, row, text, "is empty");
    if ((list->count & (list->count - 1)) == 0) { /* full: its size doubles */
        const char **items = MCP_ARRAY(parser->ctx->arena, 2 * list->count + 1, const char *);
        for (int i = 0; i < list->count; i++)
            items[i] = list->items[i];
        list->items = items;
    }
    list->items[list->count++] = text;
    return MCP_OK;
}

static bool parse_count(const char *text, int *value)
{
    int64_t number;
    if (!mcp_parse_int64(text, &number) || number < 1 || number > INT_MAX)
        return false;
    *value = (int)number;
    return true;
}

static enum mcp_status take_range(const struct parser *parser, const struct mcp_option *row,
                                  const char *text)
{
    const char *dots = strstr(text, "..");
    const char *low = text, *high = text;
    if (dots != NULL) {
        low = mcp_strndup(parser->ctx->arena, text, (size_t)(dots - text));
        high = dots + 2;
    }
    struct mcp_range range;
    if (!parse_count(low, &range.low) || !parse_count(high, &range.high))
        return refuse(parser, row, text, "is neither a count such as 8 nor a range such as 1..8");
    if (range.low > range.high)
        return refuse(parser, row, text, "is an empty range: write the smaller number first");
    *(struct mcp_range *)row->value = range;
    return MCP_OK;
}

const char *mcp_choice_names(struct mcp_arena *arena, const struct mcp_choice *choice)
{
    struct mcp_text names = mcp_text_new(arena);
    for (int i = 0; i < choice->count; i++)
        mcp_text_add(&names, "%s%s",
                     i == 0                   ? ""
                     : i + 1 == choice->count ? " or "
                                              : ", ",
                     choice->names[i]);
    return names.data;
}

static enum mcp_status take_choice(const struct parser *parser, const struct mcp_option *row,
                                   const char *text)
{
    struct mcp_choice *choice = row->value;
    struct mcp_arena *arena = parser->ctx->arena;
    for (int i = 0; i < choice->count; i++) {
        if (mcp_same(choice->names[i], text)) {
            choice->value = i;
            return MCP_OK;
        }
    }
    const char *near = mcp_nearest(text, choice->names, (size_t)choice->count);
    const char *legal = mcp_format(arena, "is not %s", mcp_choice_names(arena, choice));
    if (near != NULL)
        legal = mcp_format(arena, "%s; did you mean %s?", legal, near);
    return refuse(parser, row, text, legal);
}

static enum mcp_status take(const struct parser *parser, const struct mcp_option *row,
                            const char *text)
{
    switch (row->type) {
    case MCP_OPT_HEADING:
        break;
    case MCP_OPT_FLAG:
        *(bool *)row->value = true;
        break;
    case MCP_OPT_INT:
    case MCP_OPT_COUNT:
    case MCP_OPT_INT64:
    case MCP_OPT_COUNT64:
        return take_integer(parser, row, text);
    case MCP_OPT_DOUBLE:
    case MCP_OPT_FRAC:
        return take_double(parser, row, text);
    case MCP_OPT_STRING:
    case MCP_OPT_FILE:
        return take_string(parser, row, text);
    case MCP_OPT_LIST:
        return take_list_item(parser, row, text);
    case MCP_OPT_RANGE:
        return take_range(parser, row, text);
    case MCP_OPT_CHOICE:
        return take_choice(parser, row, text);
    }
    return MCP_OK;
}

/* The option that a value is the name, or the beginning of a name, of; NULL: of none. */
static const struct mcp_option *option_called(const struct parser *parser, const char *text)
{
    const size_t length = strcspn(text, "=");
    if (mcp_same(text, "-h") || mcp_same(text, "-o"))
        return row_of(parser, text[1]);
    for (size_t i = 0; i < parser->num_rows && mcp_starts_with(text, "--") && length > 2; i++)
        if (strncmp(parser->rows[i].name, text + 2, length - 2) == 0)
            return &parser->rows[i];
    return NULL;
}

/* getopt takes whatever follows an option for its value, the next option too. */
static enum mcp_status check_value(const struct parser *parser, const struct mcp_option *row,
                                   const char *text)
{
    const struct mcp_option *other = text != NULL ? option_called(parser, text) : NULL;
    const bool may_be_file =
        row->type == MCP_OPT_FILE || row->type == MCP_OPT_STRING || row->type == MCP_OPT_LIST;
    if (other == NULL)
        return MCP_OK;
    return refuse(parser, row, text,
                  mcp_format(parser->ctx->arena, "is option --%s and no value%s%s", other->name,
                             may_be_file ? "; a file of that name is ./" : "",
                             may_be_file ? mcp_shown(parser->ctx->arena, text) : ""));
}

/* The word getopt stumbled over: within a cluster such as -xy it has not moved on. */
static const char *offending_word(int argc, char **argv)
{
    if (optopt > 0 && optopt < FIRST_LONG && optind < argc && argv[optind][0] == '-' &&
        argv[optind][1] != '-' && strchr(argv[optind], optopt) != NULL)
        return argv[optind];
    return argv[optind - 1];
}

/* The names that begin with the `length` letters of `word`: "--a, --b", "" when
 * fewer than two do. */
static const char *ambiguous_names(const struct parser *parser, const char *word, size_t length)
{
    struct mcp_text names = mcp_text_new(parser->ctx->arena);
    int count = 0;
    for (size_t i = 0; i < parser->num_rows; i++) {
        if (strncmp(parser->rows[i].name, word, length) == 0)
            mcp_text_add(&names, "%s--%s", count++ == 0 ? "" : ", ", parser->rows[i].name);
    }
    return count > 1 ? names.data : "";
}

static const char *nearest_option(const struct parser *parser, const char *word)
{
    const char **names = MCP_ARRAY(parser->ctx->arena, parser->num_rows, const char *);
    for (size_t i = 0; i < parser->num_rows; i++)
        names[i] = parser->rows[i].name;
    return mcp_nearest(word, names, parser->num_rows);
}

static enum mcp_status fail_unknown(const struct parser *parser, const char *typed)
{
    struct mcp_error *err = &parser->ctx->err;
    struct mcp_arena *arena = parser->ctx->arena;
    const char *word = mcp_strndup(arena, typed, strcspn(typed, "="));
    const char *name = word + strspn(word, "-");
    const char *shown = mcp_shown(arena, word);
    const char *several = ambiguous_names(parser, name, strlen(name));
    if (mcp_starts_with(word, "--") && *several != '\0')
        return mcp_fail(err, MCP_USAGE, "option %s may mean %s", shown, several);
    const char *near = nearest_option(parser, name);
    if (near != NULL)
        return mcp_fail(err, MCP_USAGE, "%s has no option %s; did you mean --%s?",
                        parser->usage->command, shown, near);
    return mcp_fail(err, MCP_USAGE, "%s has no option %s; mcpplan %s --help lists them",
                    parser->usage->command, shown, parser->usage->command);
}

static enum mcp_status fail_option(const struct parser *parser, int found, int argc, char **argv)
{
    const struct mcp_option *row = row_of(parser, optopt);
    if (found == ':')
        return mcp_fail(&parser->ctx->err, MCP_USAGE, "option --%s needs a value: %s", row->name,
                        row->help);
    if (row != NULL && optopt >= FIRST_LONG)
        return mcp_fail(&parser->ctx->err, MCP_USAGE, "option --%s takes no value", row->name);
    return fail_unknown(parser, offending_word(argc, argv));
}

static enum mcp_status parse_options(const struct parser *parser, int argc, char **argv)
{
    const struct option *table = long_options(parser);
    int found;
    opterr = 0;
    optind = 0; /* also resets getopt's memory of an earlier command line */
    while ((found = getopt_long(argc, argv, ":ho:", table, NULL)) != -1) {
        if (found == '?' || found == ':')
            return fail_option(parser, found, argc, argv);
        const struct mcp_option *row = row_of(parser, found);
        MCP_TRY(check_value(parser, row, optarg));
        MCP_TRY(take(parser, row, optarg));
    }
    parser->ctx->num_operands = argc - optind;
    parser->ctx->operands = argv + optind;
    return MCP_OK;
}

static enum mcp_status check_operands(const struct parser *parser)
{
    const struct mcp_usage *usage = parser->usage;
    struct mcp_context *ctx = parser->ctx;
    if (ctx->num_operands < usage->min_operands)
        return mcp_fail(&ctx->err, MCP_USAGE, "%s needs an argument: mcpplan %s %s", usage->command,
                        usage->command, usage->synopsis);
    if (usage->max_operands >= 0 && ctx->num_operands > usage->max_operands)
        return mcp_fail(&ctx->err, MCP_USAGE, "unexpected argument '%s': mcpplan %s %s",
                        mcp_shown(ctx->arena, ctx->operands[usage->max_operands]), usage->command,
                        usage->synopsis);
    for (int i = 0; i < ctx->num_operands; i++)
        if (*ctx->operands[i] == '\0')
            return mcp_fail(&ctx->err, MCP_USAGE, "argument %d is empty: mcpplan %s %s", i + 1,
                            usage->command, usage->synopsis);
    return MCP_OK;
}

/* Whether two paths lead to one regular file that is there. */
static bool is_one_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* The path's folder, with its '/', and what follows. */
static const char *split_path(struct mcp_arena *arena, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash != NULL ? slash + 1 : path;
    return slash != NULL ? mcp_strndup(arena, path, (size_t)(slash + 1 - path)) : "./";
}

/* Whether two paths will be one file once they are written. */
static bool will_be_one_file(struct mcp_arena *arena, const char *a, const char *b)
{
    const char *name_a, *name_b;
    struct stat x, y;
    const char *folder_a = split_path(arena, a, &name_a), *folder_b = split_path(arena, b, &name_b);
    if (stat(a, &x) == 0 || stat(b, &y) == 0)
        return is_one_file(a, b);
    return mcp_same(name_a, name_b) && stat(folder_a, &x) == 0 && stat(folder_b, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static const char *text_of(const struct mcp_option *row)
{
    bool is_text = row->type == MCP_OPT_STRING || row->type == MCP_OPT_FILE;
    return is_text ? *(const char *const *)row->value : NULL;
}

/* Whether the file `path` of one row is that of another. Text without a dot is a preset or a
 * word, though a file may be called so. */
static bool is_file_of(struct mcp_arena *arena, const struct mcp_option *row, const char *path)
{
    const char *other = text_of(row);
    if (other == NULL)
        return false;
    if (row->type == MCP_OPT_FILE)
        return will_be_one_file(arena, path, other);
    return strchr(other, '.') != NULL && is_one_file(path, other);
}

/* No file is written over one that is read, or over another that is written. */
static enum mcp_status check_file(const struct parser *parser, const struct mcp_option *row)
{
    struct mcp_context *ctx = parser->ctx;
    const char *path = text_of(row);
    for (const struct mcp_option *other = parser->rows; other < row; other++) {
        if (is_file_of(ctx->arena, other, path))
            return refuse(
                parser, row, path,
                mcp_format(ctx->arena, "is also the file of --%s; name another", other->name));
    }
    for (int i = 0; i < ctx->num_operands; i++) {
        if (is_one_file(path, ctx->operands[i]))
            return refuse(parser, row, path,
                          mcp_format(ctx->arena, "is a file that %s reads; name another",
                                     parser->usage->command));
    }
    return MCP_OK;
}

static enum mcp_status check_files(const struct parser *parser)
{
    for (size_t i = 0; i < parser->num_rows; i++) {
        if (parser->rows[i].type == MCP_OPT_FILE && text_of(&parser->rows[i]) != NULL)
            MCP_TRY(check_file(parser, &parser->rows[i]));
    }
    return MCP_OK;
}

static enum mcp_status print_help(const struct parser *parser)
{
    struct mcp_text text = mcp_text_new(parser->ctx->arena);
    mcp_options_help(&text, &parser->ctx->style, parser->usage);
    return mcp_output_text(&text, &parser->ctx->err);
}

enum mcp_status mcp_print_version(struct mcp_context *ctx)
{
    struct mcp_text text = mcp_text_new(ctx->arena);
    mcp_text_add(&text, "mcpplan %s\n", MCP_VERSION);
    return mcp_output_text(&text, &ctx->err);
}

/* -o - is --json: one document on stdout. */
static void settle_output(const struct parser *parser)
{
    struct mcp_context *ctx = parser->ctx;
    if (parser->no_color)
        ctx->style.color = false;
    if (mcp_same(ctx->output_path, "-")) {
        ctx->output_path = NULL;
        ctx->json = true;
    }
}

bool mcp_options_parse(struct mcp_context *ctx, const struct mcp_usage *usage, int argc,
                       char **argv)
{
    struct parser parser = {.ctx = ctx, .usage = usage};
    if (ctx->describe != NULL) {
        ctx->describe(ctx->description, usage);
        return false;
    }
    collect_rows(&parser);
    ctx->status = parse_options(&parser, argc, argv);
    if (ctx->status != MCP_OK)
        return false;
    settle_output(&parser);
    if (parser.help || parser.version) {
        ctx->status = parser.help ? print_help(&parser) : mcp_print_version(ctx);
        return false;
    }
    ctx->status = check_operands(&parser);
    if (ctx->status == MCP_OK)
        ctx->status = check_files(&parser);
    return ctx->status == MCP_OK;
}

static bool is_given(const struct mcp_option *row)
{
    switch (row->type) {
    case MCP_OPT_HEADING:
        return false;
    case MCP_OPT_FLAG:
        return *(const bool *)row->value;
    case MCP_OPT_INT:
        return *(const int *)row->value >= 0;
    case MCP_OPT_COUNT:
        return *(const int *)row->value > 0;
    case MCP_OPT_INT64:
        return *(const int64_t *)row->value >= 0;
    case MCP_OPT_COUNT64:
        return *(const int64_t *)row->value > 0;
    case MCP_OPT_DOUBLE:
    case MCP_OPT_FRAC:
        return !isnan(*(const double *)row->value);
    case MCP_OPT_STRING:
    case MCP_OPT_FILE:
        return *(const char *const *)row->value != NULL;
    case MCP_OPT_LIST:
        return ((const struct mcp_strings *)row->value)->count > 0;
    case MCP_OPT_RANGE:
        return ((const struct mcp_range *)row->value)->low > 0;
    case MCP_OPT_CHOICE:
        return ((const struct mcp_choice *)row->value)->value >= 0;
    }
    return false;
}

enum mcp_status mcp_options_need(const struct mcp_usage *usage, const char *name,
                                 struct mcp_error *err)
{
    for (size_t i = 0; i < usage->num_options; i++) {
        const struct mcp_option *row = &usage->options[i];
        if (mcp_same(row->name, name) && !is_given(row))
            return mcp_fail(err, MCP_USAGE, "%s needs --%s: %s", usage->command, name, row->help);
    }
    return MCP_OK;
}

enum mcp_status mcp_options_refuse(const struct mcp_usage *usage, const char *name, const char *why,
                                   struct mcp_error *err)
{
    for (size_t i = 0; i < usage->num_options; i++)
        if (mcp_same(usage->options[i].name, name) && is_given(&usage->options[i]))
            return mcp_fail(err, MCP_USAGE, "%s; leave out --%s", why, name);
    return MCP_OK;
}
