/* tests/core/test_error.c: which sentences name a rank already. */
#include "core/error.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

struct case_named {
    char sentence[64];
    bool want;
};
ParameterizedTestParameters(error, ranks)
{
    static struct case_named cases[] = {
        {"rank 3 has ended", true},
        {"rank 12: NCCL says: internal error", true},
        {"rank 0's address nowhere: unknown", true},
        {"rank 1, layer 2 forward, adam: no memory", true},
        {"rank 7", true},
        {"", false},
        {"rank ", false},
        {"rank of a matrix is 3", false},
        {"rank 3rd of all", false},
        {"ranks 0 to 3 have ended", false},
        {"a rank 3 has ended", false},
    };
    return cr_make_param_array(struct case_named, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_named *c, error, ranks)
{
    cr_expect(eq(int, mcp_error_names_rank(c->sentence), c->want), "%s", c->sentence);
}
