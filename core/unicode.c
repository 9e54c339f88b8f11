/* core/unicode.c: UTF-8, and classes of characters by binary search. */
#include "core/unicode.h"

static bool is_in(const struct mcp_unicode_range *ranges, int count, uint32_t code)
{
    int low = 0, high = count; /* the ranges before `low` end before `code` */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= code;
}

bool mcp_is_letter(uint32_t code)
{
    if (code < 0x80)
        return (code | 0x20) - 'a' < 26;
    return is_in(mcp_unicode_letters, mcp_num_unicode_letters, code);
}

bool mcp_is_number(uint32_t code)
{
    if (code < 0x80)
        return code - '0' < 10;
    return is_in(mcp_unicode_numbers, mcp_num_unicode_numbers, code);
}

bool mcp_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || code - '\t' < 5;
    return code == 0x85 || code == 0xa0 || code == 0x1680 || code - 0x2000 <= 10 ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

/* Bytes that a first byte announces, 0 for one that begins no character. */
static size_t announced(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

size_t mcp_utf8_decode(const char *text, size_t length, uint32_t *code)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    const size_t count = announced(bytes[0]);
    if (count <= 1 || count > length) {
        *code = bytes[0];
        return count == 1;
    }
    uint32_t value = bytes[0] & (0x7fu >> count);
    for (size_t i = 1; i < count; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (bytes[i] & 0x3f);
    }
    *code = value;
    return value < least[count] || value > 0x10ffff || value - 0xd800 < 0x800 ? 0 : count;
}

size_t mcp_utf8_encode(uint32_t code, char out[4])
{
    const size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (count == 1) {
        out[0] = (char)code;
        return 1;
    }
    for (size_t i = count - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(0xf00 >> count | code);
    return count;
}

size_t mcp_utf8_check(const char *text, size_t length)
{
    size_t at = 0, bytes;
    uint32_t code;
    while (at < length && (bytes = mcp_utf8_decode(text + at, length - at, &code)) > 0)
        at += bytes;
    return at;
}
