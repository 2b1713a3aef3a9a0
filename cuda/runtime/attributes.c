#include "context.h"

static int32_t synchronize(nncuda_ctx *ctx) {
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  return ctx->engine->synchronize(ctx);
}

int32_t nncuda_ctx_synchronize(nncuda_ctx *ctx) { NN_INSIDE(ctx, synchronize(ctx)); }

static int32_t known(int32_t attribute) { return attribute >= 0 && attribute <= NNCUDA_CTX_NODES; }

static int32_t fail_attribute(nncuda_ctx *ctx, int32_t attribute) {
  return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "attribute is %d; it must be one of NNCUDA_CTX_*, 0 to %d", attribute,
                 NNCUDA_CTX_NODES);
}

static int32_t get_attribute(nncuda_ctx *ctx, int32_t attribute, int64_t *value) {
  if (value == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "value is null; it must say where to put the attribute");
  }
  if (!known(attribute)) {
    return fail_attribute(ctx, attribute);
  }
  const int64_t values[] = {
      [NNCUDA_CTX_THREADS] = ctx->machine.threads,
      [NNCUDA_CTX_ISA] = ctx->machine.isa,
      [NNCUDA_CTX_DEVICE] = ctx->engine->device,
      [NNCUDA_CTX_DEVICE_INDEX] = ctx->index,
      [NNCUDA_CTX_BYTES_USED] = (int64_t)ctx->pool.used,
      [NNCUDA_CTX_BYTES_PEAK] = ctx->peak,
      [NNCUDA_CTX_BYTES_HELD] = ctx->held,
      [NNCUDA_CTX_BYTES_POOLED] = (int64_t)(ctx->pool.pooled + ctx->host_pool.pooled),
      [NNCUDA_CTX_BYTES_ARENA] = (int64_t)(ctx->arena.capacity + ctx->graph_bytes),
      [NNCUDA_CTX_TF32] = ctx->machine.tf32,
      [NNCUDA_CTX_MEASURING] = ctx->engine->measures,
      [NNCUDA_CTX_MULTIPROCESSORS] = ctx->machine.sms,
      [NNCUDA_CTX_TWO_PARTS] = ctx->machine.two_parts,
      [NNCUDA_CTX_NODES] = ctx->nodes,
  };
  *value = values[attribute];
  return NNCUDA_SUCCESS;
}

int32_t nncuda_ctx_get(nncuda_ctx *ctx, int32_t attribute, int64_t *value) {
  NN_INSIDE(ctx, get_attribute(ctx, attribute, value));
}

static int32_t set_flag(nncuda_ctx *ctx, const char *name, int32_t *flag, int64_t value) {
  if (value != 0 && value != 1) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "value is %lld; %s must be 0 or 1", (long long)value, name);
  }
  *flag = (int32_t)value;
  return NNCUDA_SUCCESS;
}

static int32_t set_threads(nncuda_ctx *ctx, int64_t value) {
  if (ctx->engine->threads == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                   "attribute is NNCUDA_CTX_THREADS (0), which only the CPU engine has");
  }
  if (value < 1 || value > NN_MAX_THREADS) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "value is %lld; NNCUDA_CTX_THREADS must be 1 to %d",
                   (long long)value, NN_MAX_THREADS);
  }
  if (value != ctx->machine.threads) {
    ctx->engine->end_threads(ctx);
    ctx->machine.threads = (int32_t)value;
  }
  return NNCUDA_SUCCESS;
}

static int32_t set_nodes(nncuda_ctx *ctx, int64_t value) {
  if (ctx->engine->threads == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                   "attribute is NNCUDA_CTX_NODES (13), which only the CPU engine has");
  }
  const int32_t most = nn_nodes_count();
  if (value < 1 || value > most) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                   "value is %lld; NNCUDA_CTX_NODES must be 1 to %d, the memory nodes of which this process may use a "
                   "processor",
                   (long long)value, most);
  }
  if (value != ctx->nodes) {
    ctx->engine->end_threads(ctx);
    ctx->nodes = (int32_t)value;
  }
  return NNCUDA_SUCCESS;
}

static int32_t set_isa(nncuda_ctx *ctx, int64_t value) {
  if (ctx->engine->threads == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "attribute is NNCUDA_CTX_ISA (1), which is read-only on a GPU");
  }
  const int32_t widest = ctx->engine->widest_isa(ctx->index);
  if (!nn_isa_within(value, widest)) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "value is %lld; NNCUDA_CTX_ISA must be 0%s%d on this processor",
                   (long long)value, NN_ISA_FIRST > 1 ? ", or 5 to " : " to ", widest);
  }
  ctx->machine.isa = (int32_t)value;
  ctx->engine->fill(ctx->machine.isa, ctx->kernel, ctx->layout);
  return NNCUDA_SUCCESS;
}

static int32_t set_attribute(nncuda_ctx *ctx, int32_t attribute, int64_t value) {
  switch (attribute) {
  case NNCUDA_CTX_THREADS:
    return set_threads(ctx, value);
  case NNCUDA_CTX_NODES:
    return set_nodes(ctx, value);
  case NNCUDA_CTX_ISA:
    return set_isa(ctx, value);
  case NNCUDA_CTX_BYTES_PEAK:
  case NNCUDA_CTX_BYTES_POOLED:
    if (value != 0) {
      return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "value is %lld; attribute %d may only be set to 0",
                     (long long)value, attribute);
    }
    if (attribute == NNCUDA_CTX_BYTES_POOLED) {
      nn_pool_trim(&ctx->pool, 0);
      nn_pool_trim(&ctx->host_pool, 0);
    } else {
      ctx->peak = ctx->held = 0;
      nn_ctx_update_peak(ctx);
    }
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_TF32:
    return set_flag(ctx, "NNCUDA_CTX_TF32", &ctx->machine.tf32, value);
  case NNCUDA_CTX_TWO_PARTS:
    return set_flag(ctx, "NNCUDA_CTX_TWO_PARTS", &ctx->machine.two_parts, value);
  default:
    return known(attribute) ? nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "attribute is %d, which is read-only", attribute)
                            : fail_attribute(ctx, attribute);
  }
}

int32_t nncuda_ctx_set(nncuda_ctx *ctx, int32_t attribute, int64_t value) {
  NN_INSIDE(ctx, set_attribute(ctx, attribute, value));
}
