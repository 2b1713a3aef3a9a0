#include "context.h"
#include "dispatch.h"
#include "numbers/half.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_VALUES = 64 };

static const char *dtype_name(int32_t dtype) {
  switch (dtype) {
  case NNCUDA_F32:
    return "f32";
  case NNCUDA_F16:
    return "f16";
  case NNCUDA_BF16:
    return "bf16";
  case NNCUDA_I32:
    return "i32";
  case NNCUDA_I8:
    return "i8";
  case NN_U8:
    return "u8";
  default:
    return "i64";
  }
}

/* Element i of a run of elements. */
static double value_at(const unsigned char *run, int64_t i, int32_t dtype) {
  switch (dtype) {
  case NNCUDA_F32:
    return (double)((const float *)(const void *)run)[i];
  case NNCUDA_F16:
    return (double)nn_f16_to_f32(((const uint16_t *)(const void *)run)[i]);
  case NNCUDA_BF16:
    return (double)nn_bf16_to_f32(((const uint16_t *)(const void *)run)[i]);
  case NNCUDA_I32:
    return (double)((const int32_t *)(const void *)run)[i];
  case NNCUDA_I8:
    return (double)((const int8_t *)run)[i];
  case NN_U8:
    return (double)run[i];
  default:
    return (double)((const int64_t *)(const void *)run)[i];
  }
}

static void add_shape(nn_text *text, const nn_tensor *tensor) {
  nn_text_add(text, "%s: %s", tensor->name, dtype_name(tensor->dtype));
  if (tensor->data == NULL) {
    nn_text_add(text, " null");
    return;
  }
  for (int32_t i = 0; i < tensor->ndim; i++) {
    nn_text_add(text, "%s%lld", i == 0 ? " [" : ", ", (long long)tensor->dims[i]);
    if (i == 0 && tensor->ld != 0) {
      nn_text_add(text, ":%lld", (long long)tensor->ld);
    }
  }
  nn_text_add(text, "]");
}

static void add_values(nn_text *text, const nn_tensor *tensor, const void *data, int64_t values) {
  const int64_t columns = tensor->width / nn_dtype_size(tensor->dtype);
  double least = INFINITY, most = -INFINITY, sum = 0;
  int64_t printed = 0, nans = 0, numbers = 0;
  nn_text_add(text, " %s = {", tensor->name);
  for (int64_t row = 0; row < tensor->rows; row++) {
    const unsigned char *run = (const unsigned char *)data + row * tensor->stride;
    for (int64_t i = 0; i < columns; i++) {
      const double value = value_at(run, i, tensor->dtype);
      if (printed < values) {
        nn_text_add(text, "%s%.9g", printed == 0 ? "" : ", ", value);
        printed++;
      }
      if (isnan(value)) {
        nans++;
        continue;
      }
      numbers++;
      least = value < least ? value : least;
      most = value > most ? value : most;
      sum += value;
    }
  }
  nn_text_add(text, "%s}", printed < numbers + nans ? ", ..." : "");
  if (numbers > 0) {
    nn_text_add(text, " min %.9g max %.9g mean %.9g", least, most, sum / (double)numbers);
  }
  if (nans > 0) {
    nn_text_add(text, " nan %lld", (long long)nans);
  }
}

/* The values where they lie, or a copy of them that the host may look at. */
static void add_output(nncuda_ctx *ctx, const nn_tensor *tensor) {
  if (ctx->engine->read == NULL) {
    add_values(&ctx->trace.text, tensor, tensor->data, ctx->trace.values);
    return;
  }
  const size_t bytes = (size_t)((tensor->rows - 1) * tensor->stride + tensor->width);
  void *copy = malloc(bytes);
  if (copy != NULL && ctx->engine->read(ctx, copy, tensor->data, bytes) == NNCUDA_SUCCESS) {
    add_values(&ctx->trace.text, tensor, copy, ctx->trace.values);
  } else {
    nn_text_add(&ctx->trace.text, " %s = {not readable}", tensor->name);
  }
  free(copy);
}

void nn_trace_add(nncuda_ctx *ctx, const nn_record *record, int32_t status) {
  nn_trace *trace = &ctx->trace;
  nn_text *text = &trace->text;
  const int64_t values = ctx->engine->measures ? 0 : trace->values;
  nn_text_add(text, "%lld %s(", (long long)trace->calls++, nn_op_name(record->op));
  for (int32_t i = 0; i < record->tensors; i++) {
    nn_text_add(text, "%s", i == 0 ? "" : ", ");
    add_shape(text, &record->tensor[i]);
  }
  nn_text_add(text, ")");
  if (status != NNCUDA_SUCCESS) {
    nn_text_add(text, " %s: %s", nncuda_status_name(status), ctx->error);
  }
  for (int32_t i = 0; i < record->tensors && values > 0 && status == NNCUDA_SUCCESS; i++) {
    const nn_tensor *tensor = &record->tensor[i];
    if ((tensor->role & NN_ROLE_OUT) && tensor->data != NULL && tensor->rows > 0) {
      add_output(ctx, tensor);
    }
  }
  nn_text_add(text, "\n");
}

static int32_t begin(nncuda_ctx *ctx, int64_t values) {
  if (values < 0 || values > MAX_VALUES) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "values is %lld; it must be 0 to %d", (long long)values,
                   MAX_VALUES);
  }
  if (ctx->trace.running) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "the trace is running already; call nncuda_trace_end first");
  }
  nn_text_release(&ctx->trace.text);
  ctx->trace = (nn_trace){.running = 1, .values = values};
  return NNCUDA_SUCCESS;
}

static int32_t end(nncuda_ctx *ctx) {
  if (!ctx->trace.running) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "the trace is not running; call nncuda_trace_begin first");
  }
  ctx->trace.running = 0;
  return NNCUDA_SUCCESS;
}

static int32_t read(nncuda_ctx *ctx, char *text, int64_t capacity, int64_t *needed) {
  const int32_t status = nn_text_check(ctx, text, capacity, needed);
  return status != NNCUDA_SUCCESS ? status : nn_text_deliver(ctx, &ctx->trace.text, text, capacity, needed);
}

int32_t nncuda_trace_begin(nncuda_ctx *ctx, int64_t values) { NN_INSIDE(ctx, begin(ctx, values)); }

int32_t nncuda_trace_end(nncuda_ctx *ctx) { NN_INSIDE(ctx, end(ctx)); }

int32_t nncuda_trace_read(nncuda_ctx *ctx, char *text, int64_t capacity, int64_t *needed) {
  NN_INSIDE(ctx, read(ctx, text, capacity, needed));
}
