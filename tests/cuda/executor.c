/* tests/cuda/executor.c: mcpplan-exec-cuda on a fake GPU, for one rank: what it is linked with
 * begins here, before its main(). */
#include "tests/cuda/fake/engine.h"

__attribute__((constructor)) static void begin(void)
{
    fake_begin(1, (size_t)1 << 30);
}
