/* The trace that looks for the first value that is not finite. */
#include "context.h"
#include "dispatch.h"
#include "ranges.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
  int32_t found;
  int32_t lost; /* there was no memory to look at something */
  nn_spot spot;
  uintptr_t address;
  double value;
  int32_t written_to;         /* whether it is in an output */
  nn_ranges written, checked; /* by calls since the begin; inputs that were looked at */
} search;

/* Number of the first element that is not finite, or -1. Those with the bytes that `before` has do not count. */
static int64_t first_bad(const nn_tensor *tensor, const unsigned char *data, const unsigned char *before) {
  const int64_t columns = nn_tensor_columns(tensor), size = nn_dtype_size(tensor->dtype);
  for (int64_t row = 0; row < tensor->rows; row++) {
    const unsigned char *elements = data + row * tensor->stride;
    const unsigned char *old = before == NULL ? NULL : before + row * tensor->stride;
    for (int64_t i = 0; i < columns; i++) {
      if (!isfinite(nn_value_at(elements, i, tensor->dtype)) &&
          (old == NULL || memcmp(elements + i * size, old + i * size, (size_t)size) != 0)) {
        return row * columns + i;
      }
    }
  }
  return -1;
}

/* Looks at a tensor as it is now; `before` is what it was before the call that wrote it, or null for an input. */
static void look(nncuda_ctx *ctx, search *s, const nn_record *record, const nn_tensor *tensor,
                 const unsigned char *before) {
  unsigned char *copy = NULL;
  const unsigned char *data = tensor->data;
  if (ctx->engine->read != NULL) {
    data = copy = nn_trace_copy(ctx, tensor->data, nn_tensor_span(tensor));
  }
  const int64_t element = data == NULL ? -1 : first_bad(tensor, data, before);
  s->lost |= data == NULL;
  if (element >= 0) {
    const int64_t columns = nn_tensor_columns(tensor), row = element / columns, i = element % columns;
    s->found = 1;
    s->spot = nn_spot_at(ctx, record, tensor, element);
    s->address = (uintptr_t)tensor->data + (uintptr_t)(row * tensor->stride + i * nn_dtype_size(tensor->dtype));
    s->value = nn_value_at(data + row * tensor->stride, i, tensor->dtype);
    s->written_to = before != NULL;
  }
  free(copy);
}

static void look_at_inputs(nncuda_ctx *ctx, search *s, const nn_record *record) {
  for (int32_t i = 0; i < record->tensors && !s->found; i++) {
    const nn_tensor *tensor = &record->tensor[i];
    if ((tensor->role & NN_ROLE_OUT) || !nn_tensor_present(tensor) || !nn_dtype_is_float(tensor->dtype)) {
      continue;
    }
    const size_t bytes = nn_tensor_span(tensor);
    /* One that a call wrote in part was looked at then; what it left alone may be anything. */
    if (!nn_ranges_meet(&s->written, tensor->data, bytes) && !nn_ranges_cover(&s->checked, tensor->data, bytes)) {
      look(ctx, s, record, tensor, NULL);
      nn_ranges_add(&s->checked, tensor->data, bytes); /* without memory for it, it is looked at again */
    }
  }
}

static int32_t search_run(nncuda_ctx *ctx, void *state, const nn_record *record) {
  search *s = state;
  unsigned char *before[NN_MAX_TENSORS] = {NULL};
  if (s->found || record->op >= NN_OP_COUNT) { /* bytes that are copied or filled have no dtype */
    return nn_run(ctx, record);
  }
  look_at_inputs(ctx, s, record);
  for (int32_t i = 0; i < record->tensors && !s->found; i++) {
    const nn_tensor *tensor = &record->tensor[i];
    if ((tensor->role & NN_ROLE_OUT) && nn_tensor_present(tensor) && nn_dtype_is_float(tensor->dtype)) {
      before[i] = nn_trace_copy(ctx, tensor->data, nn_tensor_span(tensor));
      s->lost |= before[i] == NULL;
    }
  }
  const int32_t status = nn_run(ctx, record);
  for (int32_t i = 0; i < record->tensors; i++) {
    if (before[i] != NULL && status == NNCUDA_SUCCESS && !s->found) {
      look(ctx, s, record, &record->tensor[i], before[i]);
      s->lost |= !nn_ranges_add(&s->written, record->tensor[i].data, nn_tensor_span(&record->tensor[i]));
    }
    free(before[i]);
  }
  return status;
}

static void search_write(const void *state, int64_t calls, nn_text *text) {
  const search *s = state;
  nn_text_add(text, "{\"calls\": %lld, \"found\": ", (long long)calls);
  if (s->found) {
    char more[64];
    snprintf(more, sizeof more, "\"use\": \"%s\", \"address\": %llu, ", s->written_to ? "out" : "in",
             (unsigned long long)s->address);
    nn_text_add(text, "{");
    nn_spot_write(&s->spot, more, text);
    /* No sign of a NaN: which it has says nothing, and depends on the machine. */
    nn_text_add(text, ", \"value\": \"%s\"}", isnan(s->value) ? "nan" : s->value < 0 ? "-inf" : "inf");
  } else {
    nn_text_add(text, "null");
  }
  nn_text_add(text, "}");
  text->lost |= s->lost && !s->found; /* it may have been where there was no memory to look */
}

static void search_release(void *state) {
  search *s = state;
  nn_ranges_release(&s->written);
  nn_ranges_release(&s->checked);
  free(s);
}

static const nn_tracer search_tracer = {.run = search_run, .write = search_write, .release = search_release};

static int32_t begin(nncuda_ctx *ctx) {
  const int32_t status = nn_trace_check(ctx, ctx, "this");
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  search *made = calloc(1, sizeof *made);
  return made == NULL ? nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a trace")
                      : nn_trace_start(ctx, &search_tracer, made);
}

int32_t nncuda_trace_begin_nonfinite(nncuda_ctx *ctx) { NN_INSIDE(ctx, begin(ctx)); }
