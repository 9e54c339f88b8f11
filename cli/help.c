/* cli/help.c: option tables as --help and as a manual page. */
#include "cli/options.h"

#include <math.h>
#include <string.h>

enum { HELP_COLUMN = 32, LEAST_LINE = 56, LONGEST_LINE = 100, LONGEST_ALTERNATIVES = 24 };

const struct mcp_option mcp_common_options[MCP_NUM_COMMON] = {
    {"json", MCP_OPT_FLAG, NULL, "print the facts as JSON, for machines"},
    {"output", MCP_OPT_FILE, NULL, "write the JSON result to FILE as well; - is --json"},
    {"no-color", MCP_OPT_FLAG, NULL, "print without colours"},
    {"help", MCP_OPT_FLAG, NULL, "print this help"},
    {"version", MCP_OPT_FLAG, NULL, "print the version"},
};

struct exit_code {
    enum mcp_status status;
    const char *meaning;
};

static const struct exit_code exit_codes[] = {
    {MCP_OK, "success"},
    {MCP_CHECK_FAILED, "a check or threshold failed"},
    {MCP_USAGE, "the command line is wrong"},
    {MCP_IO, "a file cannot be read or written"},
    {MCP_FORMAT, "a file is not what it should be"},
    {MCP_INVALID, "the input contradicts itself"},
    {MCP_INFEASIBLE, "no plan exists; the binding rule is named"},
    {MCP_RUN_FAILURE, "a run failed or ran out of memory"},
};

/* The short form of a common option, or NUL. */
static char short_name(const char *name)
{
    if (mcp_same(name, "help"))
        return 'h';
    return mcp_same(name, "output") ? 'o' : '\0';
}

/* "a|b|c", or NULL when that is long. */
static const char *alternatives(struct mcp_arena *arena, const struct mcp_choice *choice)
{
    struct mcp_text names = mcp_text_new(arena);
    for (int i = 0; i < choice->count; i++)
        mcp_text_add(&names, "%s%s", i == 0 ? "" : "|", choice->names[i]);
    return names.length <= LONGEST_ALTERNATIVES ? names.data : NULL;
}

/* What stands for the value: "N", "FILE"; "" for a flag. */
static const char *value_name(struct mcp_arena *arena, const struct mcp_option *row)
{
    const char *names;
    switch (row->type) {
    case MCP_OPT_HEADING:
    case MCP_OPT_FLAG:
        return "";
    case MCP_OPT_INT:
    case MCP_OPT_COUNT:
    case MCP_OPT_INT64:
    case MCP_OPT_COUNT64:
        return "N";
    case MCP_OPT_DOUBLE:
        return "X";
    case MCP_OPT_FRAC:
        return "FRACTION";
    case MCP_OPT_STRING:
    case MCP_OPT_LIST:
        return "NAME";
    case MCP_OPT_FILE:
        return "FILE";
    case MCP_OPT_RANGE:
        return "N|A..B";
    case MCP_OPT_CHOICE:
        names = alternatives(arena, row->value);
        return names != NULL ? names : "NAME";
    }
    return "";
}

static const char *show_range(struct mcp_arena *arena, const struct mcp_range *range)
{
    if (range->low == 0)
        return "";
    return range->low == range->high ? mcp_format(arena, "%d", range->low)
                                     : mcp_format(arena, "%d..%d", range->low, range->high);
}

static const char *show_double(struct mcp_arena *arena, double value)
{
    return isnan(value) ? "" : mcp_format(arena, "%g", value);
}

static const char *show_int(struct mcp_arena *arena, int64_t value, int least)
{
    return value < least ? "" : mcp_format(arena, "%lld", (long long)value);
}

/* The value before parsing, "" when it means not given. */
static const char *default_text(struct mcp_arena *arena, const struct mcp_option *row)
{
    const void *value = row->value;
    switch (row->type) {
    case MCP_OPT_INT:
        return show_int(arena, *(const int *)value, 0);
    case MCP_OPT_COUNT:
        return show_int(arena, *(const int *)value, 1);
    case MCP_OPT_INT64:
        return show_int(arena, *(const int64_t *)value, 0);
    case MCP_OPT_COUNT64:
        return show_int(arena, *(const int64_t *)value, 1);
    case MCP_OPT_DOUBLE:
    case MCP_OPT_FRAC:
        return show_double(arena, *(const double *)value);
    case MCP_OPT_STRING:
    case MCP_OPT_FILE:
        return *(const char *const *)value == NULL ? "" : *(const char *const *)value;
    case MCP_OPT_RANGE:
        return show_range(arena, value);
    case MCP_OPT_CHOICE: {
        const struct mcp_choice *choice = value;
        return choice->value < 0 ? "" : choice->names[choice->value];
    }
    case MCP_OPT_HEADING:
    case MCP_OPT_FLAG:
    case MCP_OPT_LIST:
        break;
    }
    return "";
}

/* The row's phrase with what the table adds: choices, repetition, default. */
static const char *full_help(struct mcp_arena *arena, const struct mcp_option *row)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "%s", row->help);
    if (row->type == MCP_OPT_CHOICE && alternatives(arena, row->value) == NULL)
        mcp_text_add(&text, ": %s", mcp_choice_names(arena, row->value));
    if (row->type == MCP_OPT_LIST)
        mcp_text_add(&text, "; may be repeated");
    const char *value = row->value != NULL ? default_text(arena, row) : "";
    if (*value != '\0')
        mcp_text_add(&text, " (default %s)", value);
    return text.data;
}

/* Lines of prose are read best when they are not too long. */
static int line_width(const struct mcp_style *style)
{
    if (style->width < LEAST_LINE)
        return LEAST_LINE;
    return style->width > LONGEST_LINE ? LONGEST_LINE : style->width;
}

static void put_option(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_option *row)
{
    char letter = short_name(row->name);
    const char *value = value_name(out->arena, row);
    const char *left =
        mcp_format(out->arena, "%s--%s",
                   letter != '\0' ? mcp_format(out->arena, "-%c, ", letter) : "", row->name);
    int width = 2 + mcp_display_width(left) + (*value != '\0') + mcp_display_width(value);
    mcp_text_add(out, "  %s%s%s", mcp_paint(out->arena, style, MCP_CYAN, left),
                 *value != '\0' ? " " : "", value);
    if (width + 2 > HELP_COLUMN)
        mcp_text_add(out, "\n%*s", HELP_COLUMN, "");
    else
        mcp_text_add(out, "%*s", HELP_COLUMN - width, "");
    mcp_wrap(out, full_help(out->arena, row), line_width(style) - HELP_COLUMN, HELP_COLUMN);
    mcp_text_add(out, "\n");
}

static void put_options(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_usage *usage)
{
    if (usage->num_options > 0 && usage->options[0].type != MCP_OPT_HEADING)
        mcp_heading(out, style, "Options");
    for (size_t i = 0; i < usage->num_options; i++) {
        if (usage->options[i].type == MCP_OPT_HEADING)
            mcp_heading(out, style, usage->options[i].name);
        else
            put_option(out, style, &usage->options[i]);
    }
    mcp_heading(out, style, "Of every command");
    for (size_t i = 0; i < MCP_NUM_COMMON; i++)
        put_option(out, style, &mcp_common_options[i]);
}

/* Each line of `lines` after two spaces. */
static void put_indented(struct mcp_text *out, const char *lines)
{
    while (*lines != '\0') {
        size_t length = strcspn(lines, "\n");
        mcp_text_add(out, "  ");
        mcp_text_append(out, lines, length);
        mcp_text_add(out, "\n");
        lines += length + (lines[length] == '\n');
    }
}

void mcp_exit_codes_help(struct mcp_text *out, const struct mcp_style *style)
{
    mcp_heading(out, style, "Exit codes");
    for (size_t i = 0; i < MCP_COUNT_OF(exit_codes); i++)
        mcp_text_add(out, "  %d  %s\n", (int)exit_codes[i].status, exit_codes[i].meaning);
}

void mcp_options_help(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_usage *usage)
{
    const char *name = mcp_format(out->arena, "mcpplan %s", usage->command);
    mcp_text_add(out, "%s: %s\n\n", mcp_paint(out->arena, style, MCP_BOLD, name), usage->summary);
    mcp_text_add(out, "  %s %s\n", name, usage->synopsis);
    if (usage->description != NULL) {
        mcp_text_add(out, "\n");
        mcp_wrap(out, usage->description, line_width(style), 0);
        mcp_text_add(out, "\n");
    }
    put_options(out, style, usage);
    if (usage->examples != NULL) {
        mcp_heading(out, style, "Examples");
        put_indented(out, usage->examples);
    }
    mcp_exit_codes_help(out, style);
}

/* What one character is in man macros; `before` is the one it follows. */
static void put_man_char(struct mcp_text *out, char before, char letter)
{
    if (before == '\n' && (letter == '.' || letter == '\''))
        mcp_text_add(out, "\\&");
    if (before == '\n' && letter == '\n')
        mcp_text_add(out, ".PP\n");
    else if (letter == '-')
        mcp_text_add(out, "\\-");
    else if (letter == '\\')
        mcp_text_add(out, "\\e");
    else
        mcp_text_append(out, &letter, 1);
}

static void put_man_text(struct mcp_text *out, const char *text)
{
    char before = '\n';
    for (; *text != '\0'; text++) {
        put_man_char(out, before, *text);
        before = *text;
    }
    mcp_text_add(out, "\n");
}

static void put_man_option(struct mcp_text *out, const struct mcp_option *row)
{
    char letter = short_name(row->name);
    struct mcp_text name = mcp_text_new(out->arena);
    if (letter != '\0')
        mcp_text_add(&name, "-%c, ", letter);
    mcp_text_add(&name, "--%s %s", row->name, value_name(out->arena, row));
    mcp_text_add(out, ".TP\n.B ");
    put_man_text(out, name.data);
    put_man_text(out, full_help(out->arena, row));
}

static void put_man_examples(struct mcp_text *out, const char *examples)
{
    mcp_text_add(out, ".PP\n.B Examples\n.PP\n.nf\n.RS\n");
    put_man_text(out, mcp_strndup(out->arena, examples, strlen(examples) - 1));
    mcp_text_add(out, ".RE\n.fi\n");
}

void mcp_options_man(struct mcp_text *out, const struct mcp_usage *usage)
{
    mcp_text_add(out, ".SS ");
    put_man_text(out, mcp_format(out->arena, "mcpplan %s %s", usage->command, usage->synopsis));
    put_man_text(out, mcp_format(out->arena, "%s.", usage->summary));
    if (usage->description != NULL) {
        mcp_text_add(out, ".PP\n");
        put_man_text(out, usage->description);
    }
    for (size_t i = 0; i < usage->num_options; i++) {
        if (usage->options[i].type != MCP_OPT_HEADING)
            put_man_option(out, &usage->options[i]);
    }
    if (usage->examples != NULL)
        put_man_examples(out, usage->examples);
}

void mcp_man_end(struct mcp_text *out)
{
    mcp_text_add(out, ".SH OPTIONS OF EVERY COMMAND\n");
    for (size_t i = 0; i < MCP_NUM_COMMON; i++)
        put_man_option(out, &mcp_common_options[i]);
    mcp_text_add(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < MCP_COUNT_OF(exit_codes); i++) {
        mcp_text_add(out, ".TP\n.B %d\n", (int)exit_codes[i].status);
        put_man_text(out, exit_codes[i].meaning);
    }
    mcp_text_add(out, ".SH ENVIRONMENT\n");
    put_man_text(out, "NO_COLOR (when not empty) and TERM=dumb turn colours off. COLUMNS sets the "
                      "width of tables. LC_ALL, LC_CTYPE or LANG with UTF-8 in it allows block "
                      "characters; numbers are written the same way in every locale.");
}
