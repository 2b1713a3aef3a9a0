#include "trace.h"

#include "numbers/half.h"
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 64 };

const char *nn_dtype_name(int32_t dtype) {
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

double nn_value_at(const unsigned char *row, int64_t i, int32_t dtype) {
  switch (dtype) {
  case NNCUDA_F32:
    return (double)((const float *)(const void *)row)[i];
  case NNCUDA_F16:
    return (double)nn_f16_to_f32(((const uint16_t *)(const void *)row)[i]);
  case NNCUDA_BF16:
    return (double)nn_bf16_to_f32(((const uint16_t *)(const void *)row)[i]);
  case NNCUDA_I32:
    return (double)((const int32_t *)(const void *)row)[i];
  case NNCUDA_I8:
    return (double)((const int8_t *)row)[i];
  case NN_U8:
    return (double)row[i];
  default:
    return (double)((const int64_t *)(const void *)row)[i];
  }
}

unsigned char *nn_trace_copy(nncuda_ctx *ctx, const void *data, size_t bytes) {
  unsigned char *copy = malloc(bytes);
  if (copy == NULL) {
    return NULL;
  }
  if (nn_on_host(ctx)) {
    memcpy(copy, data, bytes);
  } else if (ctx->engine->read(ctx, copy, data, bytes) != NNCUDA_SUCCESS) {
    free(copy);
    return NULL;
  }
  return copy;
}

const unsigned char *nn_trace_look(nncuda_ctx *ctx, const void *data, size_t bytes, unsigned char **copy) {
  *copy = nn_on_host(ctx) ? NULL : nn_trace_copy(ctx, data, bytes);
  return nn_on_host(ctx) ? data : *copy;
}

/* ---- an element in a call ---- */

nn_spot nn_spot_at(const nncuda_ctx *ctx, const nn_record *record, const nn_tensor *tensor, int64_t element) {
  nn_spot spot = {.call = ctx->trace.calls, .op = record->op, .tensor = *tensor, .element = element};
  memcpy(spot.label, ctx->trace.label, sizeof spot.label);
  return spot;
}

void nn_spot_write(const nn_spot *spot, const char *more, nn_text *text) {
  const nn_tensor *tensor = &spot->tensor;
  nn_text_add(text, "\"call\": %lld, \"label\": ", (long long)spot->call);
  if (spot->label[0] == '\0') {
    nn_text_add(text, "null");
  } else {
    nn_text_quote(text, spot->label);
  }
  nn_text_add(text, ", \"kernel\": \"%s\", \"argument\": \"%s\", %s\"dtype\": \"%s\", \"shape\": [",
              nn_op_name(spot->op), tensor->name, more, nn_dtype_name(tensor->dtype));
  int64_t index[NN_MAX_DIMS], rest = spot->element;
  for (int32_t i = tensor->ndim; i-- > 0;) {
    index[i] = rest % tensor->dims[i];
    rest /= tensor->dims[i];
  }
  for (int32_t i = 0; i < tensor->ndim; i++) {
    nn_text_add(text, "%s%lld", i == 0 ? "" : ", ", (long long)tensor->dims[i]);
  }
  for (int32_t i = 0; i < tensor->ndim; i++) {
    nn_text_add(text, "%s%lld", i == 0 ? "], \"index\": [" : ", ", (long long)index[i]);
  }
  nn_text_add(text, "]");
}

/* ---- lines ---- */

typedef struct lines {
  int64_t values;
  nn_text text;
} lines;

static void add_shape(nn_text *text, const nn_tensor *tensor) {
  nn_text_add(text, "%s: %s", tensor->name, nn_dtype_name(tensor->dtype));
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
  const int64_t columns = nn_tensor_columns(tensor);
  double least = INFINITY, most = -INFINITY, sum = 0;
  int64_t printed = 0, nans = 0, numbers = 0;
  nn_text_add(text, " %s = {", tensor->name);
  for (int64_t row = 0; row < tensor->rows; row++) {
    const unsigned char *elements = (const unsigned char *)data + row * tensor->stride;
    for (int64_t i = 0; i < columns; i++) {
      const double value = nn_value_at(elements, i, tensor->dtype);
      if (printed < values) {
        nn_text_add(text, "%s", printed == 0 ? "" : ", ");
        nn_text_number(text, value);
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
    nn_text_add(text, " min %.9g max %.9g mean ", least, most);
    nn_text_number(text, sum / (double)numbers); /* of both infinities none */
  }
  if (nans > 0) {
    nn_text_add(text, " nan %lld", (long long)nans);
  }
}

static void add_output(nncuda_ctx *ctx, lines *trace, const nn_tensor *tensor) {
  unsigned char *copy;
  const unsigned char *data = nn_trace_look(ctx, tensor->data, nn_tensor_span(tensor), &copy);
  if (data != NULL) {
    add_values(&trace->text, tensor, data, trace->values);
  } else {
    nn_text_add(&trace->text, " %s = {not readable}", tensor->name);
  }
  free(copy);
}

static int32_t lines_run(nncuda_ctx *ctx, void *state, const nn_record *record) {
  lines *trace = state;
  nn_text *text = &trace->text;
  const int32_t status = nn_run(ctx, record);
  const int64_t values = ctx->engine->measures ? 0 : trace->values;
  nn_text_add(text, "%s%s%lld %s(", ctx->trace.label, ctx->trace.label[0] == '\0' ? "" : ": ",
              (long long)ctx->trace.calls, nn_op_name(record->op));
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
    if ((tensor->role & NN_ROLE_OUT) && !(tensor->role & NN_ROLE_PARTS) && nn_tensor_present(tensor)) {
      add_output(ctx, trace, tensor);
    }
  }
  nn_text_add(text, "\n");
  return status;
}

static void lines_write(const void *state, int64_t calls, nn_text *text) {
  const lines *trace = state;
  (void)calls;
  text->lost |= trace->text.lost;
  if (trace->text.length > 0) {
    nn_text_add(text, "%s", trace->text.data);
  }
}

static void lines_release(void *state) {
  nn_text_release(&((lines *)state)->text);
  free(state);
}

static const nn_tracer lines_tracer = {.run = lines_run, .write = lines_write, .release = lines_release};

static int32_t begin(nncuda_ctx *ctx, int64_t values) {
  if (values < 0 || values > MAX_VALUES) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "values is %lld; it must be 0 to %d", (long long)values,
                   MAX_VALUES);
  }
  lines *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a trace");
  }
  made->values = values;
  return nn_trace_start(ctx, &lines_tracer, made);
}

/* ---- every kind ---- */

int32_t nn_trace_run(nncuda_ctx *ctx, const nn_record *record) {
  nn_trace *trace = &ctx->trace;
  const int32_t status = trace->tracer->run(ctx, trace->state, record);
  trace->calls++;
  return status;
}

void nn_trace_forget(nncuda_ctx *ctx, const void *data, size_t bytes) {
  const nn_trace *trace = &ctx->trace;
  if (trace->running && trace->tracer->forget != NULL) {
    trace->tracer->forget(trace->state, data, bytes);
  }
}

static void stop(nn_trace *trace) {
  if (trace->running && trace->tracer->end != NULL) {
    trace->tracer->end(trace->state);
  }
  trace->running = 0;
}

void nn_trace_release(nncuda_ctx *ctx) {
  nn_trace *trace = &ctx->trace;
  stop(trace);
  if (trace->tracer != NULL) {
    trace->tracer->release(trace->state);
  }
  nn_text_release(&trace->text);
  *trace = (nn_trace){.tracer = NULL};
}

int32_t nn_trace_start(nncuda_ctx *ctx, const nn_tracer *tracer, void *state) {
  if (ctx->trace.running) {
    if (tracer->end != NULL) {
      tracer->end(state);
    }
    tracer->release(state);
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "the trace is running already; call nncuda_trace_end first");
  }
  nn_trace_release(ctx);
  ctx->trace = (nn_trace){.running = 1, .tracer = tracer, .state = state};
  return NNCUDA_SUCCESS;
}

int32_t nn_trace_check(nncuda_ctx *ctx, const nncuda_ctx *looked_at, const char *name) {
  return looked_at->engine->measures
             ? nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "%s is a context that measures, which has no values", name)
             : NNCUDA_SUCCESS;
}

static int32_t label(nncuda_ctx *ctx, const char *words, int64_t length) {
  if (length < 0) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_SIZE, "length is %lld; it must be at least 0", (long long)length);
  }
  if (!ctx->trace.running) {
    return NNCUDA_SUCCESS;
  }
  size_t kept = words == NULL ? 0 : (size_t)length;
  if (kept >= NN_LABEL_CAPACITY) {
    kept = NN_LABEL_CAPACITY - 1;
    while (kept > 0 && ((unsigned char)words[kept] & 0xc0u) == 0x80u) { /* no half of a letter */
      kept--;
    }
  }
  memset(ctx->trace.label, 0, sizeof ctx->trace.label);
  if (kept > 0) {
    memcpy(ctx->trace.label, words, kept);
  }
  return NNCUDA_SUCCESS;
}

static int32_t end(nncuda_ctx *ctx) {
  if (!ctx->trace.running) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "the trace is not running; call nncuda_trace_begin first");
  }
  stop(&ctx->trace);
  return NNCUDA_SUCCESS;
}

static int32_t read(nncuda_ctx *ctx, char *text, int64_t capacity, int64_t *needed) {
  const int32_t status = nn_text_check(ctx, text, capacity, needed);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  nn_trace *trace = &ctx->trace;
  nn_text_release(&trace->text);
  if (trace->tracer != NULL) {
    trace->tracer->write(trace->state, trace->calls, &trace->text);
  }
  return nn_text_deliver(ctx, &trace->text, text, capacity, needed);
}

int32_t nncuda_trace_begin(nncuda_ctx *ctx, int64_t values) { NN_INSIDE(ctx, begin(ctx, values)); }

int32_t nncuda_trace_label(nncuda_ctx *ctx, const char *words, int64_t length) {
  NN_INSIDE(ctx, label(ctx, words, length));
}

int32_t nncuda_trace_end(nncuda_ctx *ctx) { NN_INSIDE(ctx, end(ctx)); }

int32_t nncuda_trace_read(nncuda_ctx *ctx, char *text, int64_t capacity, int64_t *needed) {
  NN_INSIDE(ctx, read(ctx, text, capacity, needed));
}
