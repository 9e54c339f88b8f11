/* tests/cuda/executor.c: mcpplan-exec-cuda on fake GPUs, one process a rank: what it is linked
 * with begins here, before its main(), as the environment says:
 *     FAKE_DEVICES=2           of the machine; 1 where nothing is said
 *     FAKE_DEVICE_BYTES=...    of each; 1 GiB
 *     FAKE_CAPABILITY=80       compute capability 8.0 of each; 9.0
 *     FAKE_FOLDER=F            where ranks exchange what transfers carry: for several processes
 *     FAKE_NOTICES=1           NCCL notices that peers have died or failed; else it waits
 *     FAKE_FAIL_COLLECTIVE=9   this rank's share of its 9th collective fails, from 0
 *     FAKE_FAIL_KERNEL=9       its 9th kernel touches what is not there
 * A run that begins again fails no more. */
#include "tests/cuda/fake/engine.h"

#include <stdlib.h>

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtol(text, NULL, 10);
}

__attribute__((constructor)) static void begin(void)
{
    const char *folder = getenv("FAKE_FOLDER");
    const int capability = (int)number("FAKE_CAPABILITY", 90);
    fake_begin((int)number("FAKE_DEVICES", 1), (size_t)number("FAKE_DEVICE_BYTES", 1L << 30));
    fake_set_capability(capability / 10, capability % 10);
    if (folder != NULL)
        fake_keep_apart(folder);
    fake_set_notices(number("FAKE_NOTICES", 0) != 0);
    if (getenv("MCP_RESTART") != NULL)
        return;
    if (getenv("FAKE_FAIL_KERNEL") != NULL)
        fake_fail_kernel((int)number("FAKE_FAIL_KERNEL", 0));
    if (getenv("FAKE_FAIL_COLLECTIVE") != NULL) /* whatever device the rank will choose */
        fake_fail_collective(-1, (int)number("FAKE_FAIL_COLLECTIVE", 0));
}
