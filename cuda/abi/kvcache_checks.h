#include "abi/checks.h"
#include "abi/format_check.h"
#include "abi/generated/kvcache.h"

NN_FLOPS(kv_append, 0)
NN_FLOPS(kv_trim, 0)

NN_CHECK(kv_append_paged) { nn_check_page(call, a->format, a->kv_heads, a->head_dim, a->page_bytes); }
