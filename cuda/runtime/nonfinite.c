/* The trace that looks for the first value that is not finite. */
#include "memory.h"
#include "ranges.h"
#include "run.h"
#include "trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
  int32_t found;
  int32_t lost; /* there was not enough memory to look at something */
  nn_spot spot;
  uintptr_t address;
  double value;
  int32_t written_to;         /* whether it is in an output */
  nn_ranges written, checked; /* by calls since the begin; inputs that were looked at */
} search;

/* An output before its call. One that the call does not read is filled with bytes of 0xFF for the call, a NaN that no
 * kernel makes: this distinguishes what the call writes from what was there before, perhaps the same fault of an
 * earlier run. Elements that still have these bytes afterwards were not written, and get their old values back. */
typedef struct output {
  unsigned char *before; /* a copy for the host, or null for no output to look at */
  int32_t filled;
} output;

static const unsigned char untouched[4] = {0xff, 0xff, 0xff, 0xff};

/* Whether the call reads a tensor that it writes. */
static int32_t reads(const nn_record *record, const nn_tensor *tensor) {
  for (int32_t i = 0; i < record->tensors; i++) {
    const int32_t role = record->tensor[i].role;
    if (record->tensor[i].data == tensor->data && (role & NN_ROLE_IN) && !(role & NN_ROLE_UNREAD)) {
      return 1;
    }
  }
  return 0;
}

static int32_t put(nncuda_ctx *ctx, const nn_tensor *tensor, const unsigned char *content) {
  const nn_memcpy_args copy = {(void *)(uintptr_t)tensor->data, content, (int64_t)nn_tensor_span(tensor),
                               NNCUDA_HOST_TO_DEVICE, 1};
  return ctx->kernel[NN_OP_memcpy](ctx, &copy) == NNCUDA_SUCCESS;
}

/* Prepares an output to be looked at after the call. Returns whether there was memory for that. */
static int32_t prepare(nncuda_ctx *ctx, const nn_record *record, const nn_tensor *tensor, output *o) {
  const size_t bytes = nn_tensor_span(tensor);
  o->before = nn_trace_copy(ctx, tensor->data, bytes);
  if (o->before == NULL || reads(record, tensor)) {
    return o->before != NULL;
  }
  unsigned char *filled = malloc(bytes);
  if (filled == NULL) {
    return 0;
  }
  memcpy(filled, o->before, bytes);
  for (int64_t row = 0; row < tensor->rows; row++) { /* what lies between the rows is not the call's */
    memset(filled + row * tensor->stride, 0xff, (size_t)tensor->width);
  }
  o->filled = put(ctx, tensor, filled);
  free(filled);
  return o->filled;
}

/* Restores the elements that a call did not write. */
static void restore(nncuda_ctx *ctx, const nn_tensor *tensor, const output *o, unsigned char *after) {
  const int64_t columns = nn_tensor_columns(tensor), size = nn_dtype_size(tensor->dtype);
  int32_t any = 0;
  for (int64_t row = 0; row < tensor->rows; row++) {
    for (int64_t i = 0; i < columns; i++) {
      const int64_t at = row * tensor->stride + i * size;
      if (memcmp(after + at, untouched, (size_t)size) == 0) {
        memcpy(after + at, o->before + at, (size_t)size);
        any = 1;
      }
    }
  }
  if (any && ctx->engine->read != NULL) {
    put(ctx, tensor, after);
  }
}

/* Index of the first element that is not finite, or -1; in an output, among those that the call wrote. */
static int64_t first_bad(const nn_tensor *tensor, const unsigned char *data, const output *o) {
  const int64_t columns = nn_tensor_columns(tensor), size = nn_dtype_size(tensor->dtype);
  for (int64_t row = 0; row < tensor->rows; row++) {
    for (int64_t i = 0; i < columns; i++) {
      const int64_t at = row * tensor->stride + i * size;
      const unsigned char *old = o == NULL ? NULL : o->filled ? untouched : o->before + at;
      if (!isfinite(nn_value_at(data + row * tensor->stride, i, tensor->dtype)) &&
          (old == NULL || memcmp(data + at, old, (size_t)size) != 0)) {
        return row * columns + i;
      }
    }
  }
  return -1;
}

/* Looks at a tensor as it is now: an output `o`, or an input. */
static void look(nncuda_ctx *ctx, search *s, const nn_record *record, const nn_tensor *tensor, const output *o) {
  unsigned char *copy = NULL, *data = (unsigned char *)(uintptr_t)tensor->data;
  if (ctx->engine->read != NULL) {
    data = copy = nn_trace_copy(ctx, tensor->data, nn_tensor_span(tensor));
  }
  const int64_t element = data == NULL || s->found ? -1 : first_bad(tensor, data, o);
  s->lost |= data == NULL;
  if (element >= 0) {
    const int64_t columns = nn_tensor_columns(tensor), row = element / columns, i = element % columns;
    s->found = 1;
    s->spot = nn_spot_at(ctx, record, tensor, element);
    s->address = (uintptr_t)tensor->data + (uintptr_t)(row * tensor->stride + i * nn_dtype_size(tensor->dtype));
    s->value = nn_value_at(data + row * tensor->stride, i, tensor->dtype);
    s->written_to = o != NULL;
  }
  if (data != NULL && o != NULL && o->filled) {
    restore(ctx, tensor, o, data);
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
    /* If a call wrote part of it, that part was checked then; the rest may hold anything. */
    if (!nn_ranges_meet(&s->written, tensor->data, bytes) && !nn_ranges_cover(&s->checked, tensor->data, bytes)) {
      look(ctx, s, record, tensor, NULL);
      nn_ranges_add(&s->checked, tensor->data, bytes); /* without memory to note it, it is checked again */
    }
  }
}

static int32_t search_run(nncuda_ctx *ctx, void *state, const nn_record *record) {
  search *s = state;
  output outputs[NN_MAX_TENSORS] = {{NULL, 0}};
  if (s->found || record->op >= NN_OP_COUNT) { /* bytes that are copied or filled have no dtype */
    return nn_run(ctx, record);
  }
  look_at_inputs(ctx, s, record);
  for (int32_t i = 0; i < record->tensors && !s->found; i++) {
    const nn_tensor *tensor = &record->tensor[i];
    if ((tensor->role & NN_ROLE_OUT) && nn_tensor_present(tensor) && nn_dtype_is_float(tensor->dtype)) {
      s->lost |= !prepare(ctx, record, tensor, &outputs[i]);
    }
  }
  const int32_t status = nn_run(ctx, record);
  for (int32_t i = 0; i < record->tensors; i++) {
    const nn_tensor *tensor = &record->tensor[i];
    if (outputs[i].before != NULL && status == NNCUDA_SUCCESS) {
      look(ctx, s, record, tensor, &outputs[i]);
      s->lost |= !nn_ranges_add(&s->written, tensor->data, nn_tensor_span(tensor));
    } else if (outputs[i].filled) { /* a call that fails writes nothing */
      put(ctx, tensor, outputs[i].before);
    }
    free(outputs[i].before);
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
    /* The sign of a NaN is left out: it means nothing, and depends on the machine. */
    nn_text_add(text, ", \"value\": \"%s\"}", isnan(s->value) ? "nan" : s->value < 0 ? "-inf" : "inf");
  } else {
    nn_text_add(text, "null");
  }
  nn_text_add(text, "}");
  text->lost |= s->lost && !s->found; /* it may have been where memory was lacking to look */
}

static void search_release(void *state) {
  search *s = state;
  nn_ranges_release(&s->written);
  nn_ranges_release(&s->checked);
  free(s);
}

static const nn_tracer search_tracer = {
    .run = search_run, .write = search_write, .release = search_release, .clears = 1};

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
