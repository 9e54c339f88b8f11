/* tests/core/test_unicode.c: UTF-8 and classes of characters. */
#include "core/unicode.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

Test(unicode, every_code_point_there_and_back)
{
    for (uint32_t code = 0; code < 0x110000; code++) {
        char bytes[4];
        uint32_t read;
        const size_t count = mcp_utf8_encode(code, bytes);
        const size_t want = code >= 0xd800 && code < 0xe000 ? 0 : count;
        if (mcp_utf8_decode(bytes, count, &read) != want || (want > 0 && read != code))
            cr_fail("U+%x", code);
        if (count > 1 && mcp_utf8_decode(bytes, count - 1, &read) != 0)
            cr_fail("U+%x cut short", code);
    }
}

Test(unicode, counts_of_classes)
{
    int letters = 0, numbers = 0, spaces = 0, both = 0;
    for (uint32_t code = 0; code < 0x110000; code++) {
        letters += mcp_is_letter(code);
        numbers += mcp_is_number(code);
        spaces += mcp_is_space(code);
        both += mcp_is_letter(code) + mcp_is_number(code) + mcp_is_space(code) > 1;
    }
    /* Unicode 16.0: DerivedGeneralCategory.txt's totals of L and N, PropList.txt's */
    cr_expect(eq(int, letters, 141028));
    cr_expect(eq(int, numbers, 1911));
    cr_expect(eq(int, spaces, 25));
    cr_expect(eq(int, both, 0));
}

struct case_utf8 {
    char text[8];
    unsigned length, want;
};
ParameterizedTestParameters(unicode, not_utf8)
{
    static struct case_utf8 cases[] = {
        {"", 0, 0},
        {"abc", 3, 3},
        {"a\xc3\xa9", 3, 3},
        {"a\xc3", 2, 1},
        {"\xc0\x80", 2, 0},
        {"\xe0\x80\x80", 3, 0},
        {"\xed\xa0\x80", 3, 0},
        {"\xf4\x90\x80\x80", 4, 0},
        {"\x80", 1, 0},
        {"\xff", 1, 0},
        {"\xe2\x82x", 3, 0},
        {"\xf0\x9f\x98\x80", 4, 4},
        {"ab\xf0\x9f\x98", 5, 2},
    };
    return cr_make_param_array(struct case_utf8, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_utf8 *c, unicode, not_utf8)
{
    cr_expect(eq(sz, mcp_utf8_check(c->text, c->length), (size_t)c->want), "%s", c->text);
}
