/* tests/core/test_json.c: what is refused, where and in which words; what is written. */
#include "core/json.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- text that is not JSON, or more than we take --- */

struct case_parse {
    char name[40];
    char text[80];
    size_t length; /* 0: up to the NUL */
    enum mcp_status want;
    char says[80];
};
ParameterizedTestParameters(json, parse)
{
    static struct case_parse cases[] = {
        {"object", "{\"a\": 1}", 0, MCP_OK, ""},
        {"scalar", " 4 ", 0, MCP_OK, ""},
        {"BOM is skipped", "\xef\xbb\xbf{}", 0, MCP_OK, ""},
        {"minus zero is zero", "-0", 0, MCP_OK, ""},
        {"smallest double", "5e-324", 0, MCP_OK, ""},
        {"empty", "", 0, MCP_FORMAT, "f.json: empty"},
        {"BOM alone", "\xef\xbb\xbf", 0, MCP_FORMAT, "f.json: empty"},
        {"white space", " \r\n\t", 0, MCP_FORMAT, "f.json: empty"},
        {"second BOM", "\xef\xbb\xbf\xef\xbb\xbf{}", 0, MCP_FORMAT, "line 1, column 1:"},
        {"place of a syntax error", "{\n \"a\": tru}", 0, MCP_FORMAT,
         "f.json: line 2, column 9: invalid token near 'tru'"},
        {"trailing text", "{} {}", 0, MCP_FORMAT, "line 1, column 4: end of file expected"},
        {"trailing comma", "[1,]", 0, MCP_FORMAT, "line 1, column 4:"},
        {"comment", "[1] // one", 0, MCP_FORMAT, "line 1, column 5:"},
        {"duplicate key", "{\"num_layers\": 1, \"num_layers\": 2}", 0, MCP_FORMAT,
         "duplicate object key near '\"num_layers\"'"},
        {"NaN", "[NaN]", 0, MCP_FORMAT, "invalid token near 'NaN'"},
        {"Infinity", "[-Infinity]", 0, MCP_FORMAT, "invalid token"},
        {"beyond a double", "[1e999]", 0, MCP_FORMAT, "real number overflow near '1e999'"},
        {"20 digits", "[12345678901234567890]", 0, MCP_FORMAT, "too big integer"},
        {"leading zero", "[01]", 0, MCP_FORMAT, "invalid token near '0'"},
        {"hexadecimal", "[0x10]", 0, MCP_FORMAT, "near 'x'"},
        {"leading plus", "[+1]", 0, MCP_FORMAT, "invalid token near '+'"},
        {"invalid UTF-8", "[\"\xff\"]", 0, MCP_FORMAT, "unable to decode byte 0xff"},
        {"overlong UTF-8", "[\"\xc0\xaf\"]", 0, MCP_FORMAT, "unable to decode"},
        {"lone surrogate", "[\"\\ud800\"]", 0, MCP_FORMAT, "invalid Unicode"},
        {"escaped NUL", "[\"a\\u0000b\"]", 0, MCP_FORMAT, "\\u0000 is not allowed"},
        {"NUL byte", "[1]\n \0", 6, MCP_FORMAT, "f.json: line 2, column 2: NUL byte"},
        {"NUL byte in a string", "[\"a\0b\"]", 7, MCP_FORMAT, "line 1, column 4: NUL byte"},
        {"control character in a string", "[\"a\x1b[31m\"]", 0, MCP_FORMAT, "control character"},
    };
    return cr_make_param_array(struct case_parse, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_parse *c, json, parse)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_json *json;
    struct mcp_error err = {""};
    size_t length = c->length > 0 ? c->length : strlen(c->text);
    enum mcp_status got = mcp_json_parse(arena, "f.json", c->text, length, &json, &err);
    cr_expect(eq(int, (int)got, (int)c->want), "%s: %s", c->name, err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
    cr_expect(eq(ptr, strchr(err.text, '\x1b'), NULL), "%s: obeyed by a terminal", c->name);
    mcp_arena_free(arena);
}

static enum mcp_status parse(struct mcp_arena *arena, const char *text, struct mcp_json **json,
                             struct mcp_error *err)
{
    return mcp_json_parse(arena, "f.json", text, strlen(text), json, err);
}

Test(json, no_prefix_of_an_object_is_accepted)
{
    const char *text = "{\"a\": [1, -2.5e3, \"x\\u00e9\\\\\"], \"b\": {\"c\": null, \"d\": true}}";
    struct mcp_arena *arena = mcp_arena_new();
    for (size_t length = 0; length < strlen(text); length++) {
        struct mcp_error err = {""};
        struct mcp_json *json;
        cr_expect(
            eq(int, (int)mcp_json_parse(arena, "f.json", text, length, &json, &err), MCP_FORMAT),
            "%zu bytes", length);
        cr_expect(ne(ptr, strstr(err.text, length == 0 ? "empty" : "line 1, column "), NULL), "%s",
                  err.text);
    }
    mcp_arena_free(arena);
}

Test(json, nesting_ends_at_64_levels)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json;
    const size_t count = 100000;
    char *text = MCP_ARRAY(arena, 5 * count + 1, char);
    for (size_t i = 0; i < count; i++)
        memcpy(text + 5 * i, "{\"a\":", 5);
    cr_expect(eq(int, (int)parse(arena, text, &json, &err), MCP_FORMAT));
    cr_expect(
        eq(str, err.text, (char *)"f.json: line 1, column 321: nested deeper than 64 levels"));
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    cr_expect(eq(int, (int)mcp_json_parse(arena, "f", text, 128, &json, &err), MCP_OK));
    memset(text, '[', 65);
    cr_expect(eq(int, (int)mcp_json_parse(arena, "f", text, 129, &json, &err), MCP_FORMAT));
    cr_expect(eq(int,
                 (int)parse(arena,
                            "[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
                            "[[[[[[[[[[[[[[[[[[[\\\"[[[[[[[[\"]",
                            &json, &err),
                 MCP_OK),
              "brackets in a string are no levels");
    mcp_arena_free(arena);
}

Test(json, size_ends_at_64_mib)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json;
    size_t length = ((size_t)64 << 20) + 1;
    char *text = MCP_ARRAY(arena, length, char);
    cr_expect(eq(int, (int)mcp_json_parse(arena, "f.json", text, length, &json, &err), MCP_FORMAT));
    cr_expect(eq(str, err.text, (char *)"f.json: larger than 64 MiB"));
    mcp_arena_free(arena);
}

/* --- values of the wrong type or range --- */

enum getter { GET_INT, GET_INT64, GET_DOUBLE, GET_BOOL, GET_STRING, GET_BYTES, GET_CHOICE };

static enum mcp_status get(enum getter getter, struct mcp_json *json, struct mcp_error *err)
{
    static const char *const names[] = {"none", "selective", "full"};
    const char *text;
    int64_t whole;
    double number;
    int small;
    bool flag;
    switch (getter) {
    case GET_INT:
        return mcp_json_int(json, "hidden_size", &small, err);
    case GET_INT64:
        return mcp_json_int64(json, "hidden_size", &whole, err);
    case GET_DOUBLE:
        return mcp_json_double(json, "hidden_size", &number, err);
    case GET_BOOL:
        return mcp_json_bool(json, "hidden_size", &flag, err);
    case GET_STRING:
        return mcp_json_string(json, "hidden_size", &text, err);
    case GET_BYTES:
        return mcp_json_quantity(json, "hidden_size", MCP_BYTES, &number, err);
    case GET_CHOICE:
        break;
    }
    return mcp_json_choice(json, "hidden_size", names, 3, &small, err);
}

struct case_type {
    char value[32];
    enum getter getter;
    enum mcp_status want;
    char says[96];
};
ParameterizedTestParameters(json, types)
{
    static struct case_type cases[] = {
        {"4096", GET_INT, MCP_OK, ""},
        {"0", GET_INT, MCP_OK, ""},
        {"2147483647", GET_INT, MCP_OK, ""},
        {"2147483648", GET_INT, MCP_FORMAT, "got 2147483648, expected an integer from 0 to"},
        {"-4096", GET_INT, MCP_FORMAT, "f.json: hidden_size: got -4096, expected an integer"},
        {"4096.5", GET_INT, MCP_FORMAT, "got 4096.5, expected an integer"},
        {"4096.0", GET_INT, MCP_FORMAT, "got 4096, expected an integer"},
        {"\"4096\"", GET_INT, MCP_FORMAT, "got \"4096\", expected an integer"},
        {"true", GET_INT, MCP_FORMAT, "got true, expected an integer"},
        {"null", GET_INT, MCP_FORMAT, "got null, expected an integer"},
        {"[1]", GET_INT, MCP_FORMAT, "got an array, expected an integer"},
        {"{}", GET_INT, MCP_FORMAT, "got an object, expected an integer"},
        {"9007199254740992", GET_INT64, MCP_OK, ""},
        {"9007199254740993", GET_INT64, MCP_FORMAT,
         "got 9007199254740993, expected an integer from 0 to 9007199254740992"},
        {"4096", GET_DOUBLE, MCP_OK, ""},
        {"-1.5e-3", GET_DOUBLE, MCP_OK, ""},
        {"\"1.5\"", GET_DOUBLE, MCP_FORMAT, "got \"1.5\", expected a number"},
        {"1", GET_BOOL, MCP_FORMAT, "got 1, expected true or false"},
        {"1", GET_STRING, MCP_FORMAT, "got 1, expected a string"},
        {"\"80GiB\"", GET_BYTES, MCP_OK, ""},
        {"80", GET_BYTES, MCP_FORMAT, "got 80, expected a string with a number and its unit"},
        {"\"80\"", GET_BYTES, MCP_FORMAT, "hidden_size: '80' has no unit, expected a size"},
        {"\"full\"", GET_CHOICE, MCP_OK, ""},
        {"\"selectve\"", GET_CHOICE, MCP_FORMAT,
         "expected \"none\", \"selective\" or \"full\" (did you mean \"selective\"?)"},
    };
    return cr_make_param_array(struct case_type, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_type *c, json, types)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_json *json;
    struct mcp_error err = {""};
    const char *text = mcp_format(arena, "{\"hidden_size\": %s}", c->value);
    cr_assert(eq(int, (int)parse(arena, text, &json, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, (int)get(c->getter, json, &err), (int)c->want), "%s", c->value);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->value, err.text);
    mcp_arena_free(arena);
}

Test(json, a_missing_key_is_named_with_its_path)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json, *stages;
    int value = 7;
    parse(arena, "{\"stages\": [{}, {\"layers\": null}, 3]}", &json, &err);
    cr_assert(eq(int, (int)mcp_json_array(json, "stages", &stages, &err), MCP_OK));
    cr_expect(
        eq(int, (int)mcp_json_int(mcp_json_at(stages, 0), "layers", &value, &err), MCP_FORMAT));
    cr_expect(eq(str, err.text,
                 (char *)"f.json: stages[0].layers: missing, expected an integer from "
                         "0 to 2147483647"));
    cr_expect(
        eq(int, (int)mcp_json_maybe_int(mcp_json_at(stages, 1), "layers", &value, &err), MCP_OK));
    cr_expect(eq(int, value, 7), "null keeps what there was");
    cr_expect(
        eq(int, (int)mcp_json_int(mcp_json_at(stages, 2), "layers", &value, &err), MCP_FORMAT));
    cr_expect(eq(str, err.text,
                 (char *)"f.json: stages[2]: got 3, expected an object with the key 'layers'"));
    mcp_arena_free(arena);
}

/* --- keys that nobody read --- */

Test(json, an_unknown_key_meets_the_closest_known_one)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json, *parallel;
    int value = 1;
    parse(arena, "{\"parallel\": {\"tensor_paralel\": 8}}", &json, &err);
    cr_assert(eq(int, (int)mcp_json_object(json, "parallel", &parallel, &err), MCP_OK));
    cr_expect(eq(int, (int)mcp_json_maybe_int(parallel, "tensor_parallel", &value, &err), MCP_OK));
    cr_expect(eq(int, (int)mcp_json_done(json, &err), MCP_FORMAT));
    cr_expect(eq(str, err.text,
                 (char *)"f.json: parallel: unknown key 'tensor_paralel' (did you mean "
                         "'tensor_parallel'?)"));
    mcp_arena_free(arena);
}

Test(json, unread_keys_are_listed_with_their_paths)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json, *layers;
    const char *key;
    parse(arena, "{\"auto_map\": {\"x\": 1}, \"layers\": [{\"kind\": 1, \"bias\": 2}], \"v\": 1}",
          &json, &err);
    cr_assert(eq(int, (int)mcp_json_array(json, "layers", &layers, &err), MCP_OK));
    mcp_json_member(mcp_json_at(layers, 0), 0, &key);
    cr_expect(
        eq(str, (char *)mcp_json_ignored(arena, json), (char *)"auto_map, layers[0].bias, v"));
    cr_expect(eq(str, (char *)key, (char *)"kind"));
    mcp_json_has(json, "auto_map");
    mcp_json_has(json, "v");
    mcp_json_member(mcp_json_at(layers, 0), 1, &key);
    cr_expect(eq(str, (char *)mcp_json_ignored(arena, json), (char *)""));
    cr_expect(eq(int, (int)mcp_json_done(json, &err), MCP_OK));
    mcp_arena_free(arena);
}

/* --- writing --- */

Test(json, written_text_keeps_order_and_reads_back)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *object = mcp_json_new_object(arena), *list, *again;
    mcp_json_set_string(object, "z", "caf\xc3\xa9 \"x\"\n\xff");
    mcp_json_set_double(object, "unknown", (double)NAN);
    list = mcp_json_set_array(object, "layers");
    mcp_json_add_int(list, 0);
    mcp_json_add_string(list, "full");
    mcp_json_set_object(object, "empty");
    list = mcp_json_set_array(object, "stages");
    mcp_json_set_bool(mcp_json_add_object(list), "last", false);
    const char *text = mcp_json_text(arena, object);
    cr_expect(eq(str, (char *)text,
                 (char *)"{\n"
                         "  \"z\": \"caf\xc3\xa9 \\\"x\\\"??\",\n"
                         "  \"unknown\": null,\n"
                         "  \"layers\": [0, \"full\"],\n"
                         "  \"empty\": {},\n"
                         "  \"stages\": [\n"
                         "    {\n"
                         "      \"last\": false\n"
                         "    }\n"
                         "  ]\n"
                         "}\n"));
    cr_expect(eq(int, (int)parse(arena, text, &again, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(str, (char *)mcp_json_text(arena, again), (char *)text));
    mcp_arena_free(arena);
}

struct case_number {
    double value;
    char want[32];
};
ParameterizedTestParameters(json, numbers)
{
    static struct case_number cases[] = {
        {0, "0"},
        {0.1, "0.1"},
        {-0.0, "0"},
        {1.0 / 3, "0.3333333333333333"},
        {0.1 + 0.2, "0.30000000000000004"},
        {989.4e12, "989400000000000"},
        {1e22, "1e+22"},
        {-2e-6, "-2e-06"},
        {5e-324, "4.94065645841247e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
    };
    return cr_make_param_array(struct case_number, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_number *c, json, numbers)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *object = mcp_json_new_object(arena), *again;
    double back = -1;
    mcp_json_set_double(object, "x", c->value);
    const char *text = mcp_json_text(arena, object);
    cr_expect(eq(str, (char *)text, mcp_format(arena, "{\n  \"x\": %s\n}\n", c->want)));
    cr_assert(eq(int, (int)parse(arena, text, &again, &err), MCP_OK), "%s", err.text);
    cr_assert(eq(int, (int)mcp_json_double(again, "x", &back, &err), MCP_OK));
    cr_expect(eq(dbl, back, c->value));
    mcp_arena_free(arena);
}

Test(json, a_comma_locale_changes_nothing)
{
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL) {
        cr_log_info("no locale de_DE.UTF-8 here: comma decimals are not checked");
        return;
    }
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json;
    double number = 0;
    cr_assert(eq(int, (int)parse(arena, "[1.5, 2.25e3]", &json, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(str, (char *)mcp_json_text(arena, json), (char *)"[1.5, 2250]\n"));
    cr_expect(mcp_parse_double("2.5", &number) && !mcp_parse_double("2,5", &number));
    cr_expect(eq(dbl, number, 2.5));
    mcp_arena_free(arena);
}
