/* tests/fuzz/fuzz_smi_csv.c: any bytes as what nvidia-smi --query-gpu prints. */
#include "tests/fuzz/node.h"
#include "topologies/nvidia_smi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_text(data, size, mcp_nvidia_smi_csv);
    return 0;
}
