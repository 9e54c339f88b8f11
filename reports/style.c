/* reports/style.c: escapes, display width and word wrap. */
#include "reports/style.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

static const char *const escapes[MCP_NUM_COLORS] = {
    [MCP_PLAIN] = "",        [MCP_BOLD] = "\033[1m",     [MCP_DIM] = "\033[2m",
    [MCP_RED] = "\033[31m",  [MCP_GREEN] = "\033[32m",   [MCP_YELLOW] = "\033[33m",
    [MCP_BLUE] = "\033[34m", [MCP_MAGENTA] = "\033[35m", [MCP_CYAN] = "\033[36m",
};

const char *mcp_paint(struct mcp_arena *arena, const struct mcp_style *style, enum mcp_color color,
                      const char *text)
{
    if (!style->color || color == MCP_PLAIN || *text == '\0')
        return text;
    return mcp_format(arena, "%s%s\033[0m", escapes[color], text);
}

void mcp_heading(struct mcp_text *out, const struct mcp_style *style, const char *text)
{
    const char *gap = out->length > 0 ? "\n" : "";
    mcp_text_add(out, "%s%s\n", gap, mcp_paint(out->arena, style, MCP_BOLD, text));
}

/* Bytes that the first byte of a UTF-8 character announces; 0: it is none. */
static size_t announced_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xC2 || first > 0xF4)
        return 0;
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* Bytes of the character at `text`; *code is U+FFFD for a byte that is no UTF-8. */
static size_t decode(const char *text, uint32_t *code)
{
    const unsigned char *byte = (const unsigned char *)text;
    size_t length = announced_length(byte[0]);
    uint32_t value = length == 1 ? byte[0] : byte[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((byte[i] & 0xC0) != 0x80) {
            length = 0;
            break;
        }
        value = value << 6 | (byte[i] & 0x3Fu);
    }
    *code = length > 0 ? value : 0xFFFD;
    return length > 0 ? length : 1;
}

/* Bytes of the colour sequence at `text`, 0 when there is none. */
static size_t escape_length(const char *text)
{
    if (text[0] != '\033' || text[1] != '[')
        return 0;
    size_t length = 2 + strspn(text + 2, "0123456789;");
    return text[length] == 'm' ? length + 1 : 0;
}

struct code_range {
    uint32_t first, last;
};

static const struct code_range zero_width[] = {
    {0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x200B, 0x200F}, {0x20D0, 0x20FF},
    {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF},
};
static const struct code_range double_width[] = {
    {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
    {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD},
};

static bool contains(const struct code_range *ranges, size_t count, uint32_t code)
{
    for (size_t i = 0; i < count; i++) {
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    }
    return false;
}

static int code_width(uint32_t code)
{
    if (contains(zero_width, sizeof zero_width / sizeof *zero_width, code))
        return 0;
    return contains(double_width, sizeof double_width / sizeof *double_width, code) ? 2 : 1;
}

/* Columns of the first `length` bytes. */
static int width_of(const char *text, size_t length)
{
    int width = 0;
    for (size_t at = 0; at < length;) {
        size_t escape = escape_length(text + at);
        uint32_t code = 0;
        at += escape > 0 ? escape : decode(text + at, &code);
        width += escape > 0 ? 0 : code_width(code);
    }
    return width;
}

int mcp_display_width(const char *text)
{
    return width_of(text, strlen(text));
}

struct wrapper {
    struct mcp_text *out;
    int width; /* of a line */
    int used;  /* columns of the line so far */
};

static void break_line(struct wrapper *wrapper, int indent)
{
    mcp_text_add(wrapper->out, "\n%*s", indent, "");
    wrapper->used = 0;
}

static void put_word(struct wrapper *wrapper, const char *word, size_t length, int indent)
{
    int columns = width_of(word, length);
    if (wrapper->used > 0 && wrapper->used + 1 + columns > wrapper->width)
        break_line(wrapper, indent);
    if (wrapper->used > 0) {
        mcp_text_append(wrapper->out, " ", 1);
        wrapper->used++;
    }
    mcp_text_append(wrapper->out, word, length);
    wrapper->used += columns;
}

/* A number and the unit after it ("26.7 s", "3.5 %") stay on one line. */
static size_t word_with_unit(const char *text)
{
    size_t length = strcspn(text, " \n");
    while (length > 0 && text[length] == ' ' && text[length - 1] >= '0' &&
           text[length - 1] <= '9' &&
           (text[length + 1] == '%' || isalpha((unsigned char)text[length + 1])))
        length += 1 + strcspn(text + length + 1, " \n");
    return length;
}

void mcp_wrap(struct mcp_text *out, const char *text, int width, int indent)
{
    struct wrapper wrapper = {out, width, 0};
    while (*text != '\0') {
        size_t length = word_with_unit(text);
        if (length > 0)
            put_word(&wrapper, text, length, indent);
        text += length;
        if (*text == '\n')
            break_line(&wrapper, text[1] == '\n' ? 0 : indent);
        if (*text != '\0')
            text++;
    }
}
