/* step/attention.c: which attention kernel a job runs. */
#include "step/attention.h"

#include "core/stack.h"
#include "core/text.h"

const struct mcp_attention_kernel *mcp_fused_attention_kernel(const struct mcp_question *question)
{
    const char *asked = question->job->attention;
    const struct mcp_gpu *gpu = &question->cluster->gpu;
    if (asked == NULL || asked[0] == '\0')
        asked = question->stack->attention;
    if (mcp_same(asked, "unfused") || gpu->num_attention_kernels == 0)
        return NULL;
    for (int i = 0; i < gpu->num_attention_kernels; i++)
        if (mcp_same(gpu->attention_kernels[i].name, asked))
            return &gpu->attention_kernels[i];
    return &gpu->attention_kernels[0];
}

bool mcp_attention_is_fused(const struct mcp_question *question, const struct mcp_layer_kind *kind)
{
    if (kind->attention_sinks && !question->stack->fused_attention_sinks)
        return false;
    return mcp_fused_attention_kernel(question) != NULL;
}
