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

/* An output before its call. One that the call does not read is filled with a NaN meanwhile: this
 * distinguishes what the call writes from what was there before, perhaps the same fault of an earlier run. Elements
 * that still have these bits afterwards were not written, and get their old values back. A call that only moves numbers
 * could write these very bits, and its result would then change under the trace; so they are a NaN that arithmetic does
 * not make (processors have payloads of all zeros or all ones) and that programs do not fill memory with. */
typedef struct output {
  unsigned char *before; /* a copy for the host, or null for no output to look at */
  unsigned char *after;  /* room for another, where the host cannot look at the memory itself */
  int32_t filled;
} output;

static const void *fill_of(int32_t dtype) {
  static const uint32_t f32 = 0x7fd5aa3bu;
  static const uint16_t f16 = 0x7f55u, bf16 = 0x7febu;
  return dtype == NNCUDA_F32 ? (const void *)&f32 : dtype == NNCUDA_F16 ? &f16 : &bf16;
}

/* ---- sets of addresses: what lies between the rows of a tensor is not the call's ---- */

static int32_t add_rows(nn_ranges *ranges, const nn_tensor *tensor) {
  int32_t added = 1;
  for (int64_t row = 0; row < tensor->rows; row++) {
    added &= nn_ranges_add(ranges, (const unsigned char *)tensor->data + row * tensor->stride, (size_t)tensor->width);
  }
  return added;
}

/* How many of the rows are in the set in part, or as a whole. */
static int64_t count_rows(const nn_ranges *ranges, const nn_tensor *tensor,
                          int32_t (*in)(const nn_ranges *, const void *, size_t)) {
  int64_t rows = 0;
  for (int64_t row = 0; row < tensor->rows; row++) {
    rows += in(ranges, (const unsigned char *)tensor->data + row * tensor->stride, (size_t)tensor->width);
  }
  return rows;
}

/* What a copy or a fill of bytes put there, or an allocation, nobody has looked at. */
static void search_forget(void *state, const void *data, size_t bytes) {
  search *s = state;
  s->lost |= !nn_ranges_remove(&s->written, data, bytes);
  nn_ranges_remove(&s->checked, data, bytes); /* without memory for it, more is looked at again */
}

/* ---- outputs ---- */

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

/* Host memory that others write meanwhile may lie between the rows; the memory of a device was read after all its work,
 * and nothing was started since. */
static int32_t put(nncuda_ctx *ctx, const nn_tensor *tensor, const unsigned char *content) {
  unsigned char *data = (unsigned char *)(uintptr_t)tensor->data;
  if (!nn_on_host(ctx)) {
    const nn_memcpy_args copy = {data, content, (int64_t)nn_tensor_span(tensor), NNCUDA_HOST_TO_DEVICE, 1};
    return ctx->kernel[NN_OP_memcpy](ctx, &copy) == NNCUDA_SUCCESS;
  }
  for (int64_t row = 0; row < tensor->rows; row++) {
    memcpy(data + row * tensor->stride, content + row * tensor->stride, (size_t)tensor->width);
  }
  return 1;
}

static void fill(const nn_tensor *tensor, unsigned char *content) {
  const size_t size = (size_t)nn_dtype_size(tensor->dtype);
  const void *value = fill_of(tensor->dtype);
  for (int64_t row = 0; row < tensor->rows; row++) {
    for (int64_t at = 0; at < tensor->width; at += (int64_t)size) {
      memcpy(content + row * tensor->stride + at, value, size);
    }
  }
}

/* Makes an output ready to be looked at after the call. Whether there was memory for that, and for the copy that comes
 * after the call: an output is not filled that could not be restored. */
static int32_t prepare(nncuda_ctx *ctx, const nn_record *record, const nn_tensor *tensor, output *o) {
  const size_t bytes = nn_tensor_span(tensor);
  unsigned char *content = (unsigned char *)(uintptr_t)tensor->data;
  if (!nn_on_host(ctx)) {
    content = o->after = malloc(bytes);
  }
  o->before = content == NULL ? NULL : nn_trace_copy(ctx, tensor->data, bytes);
  if (o->before == NULL || reads(record, tensor)) {
    return o->before != NULL;
  }
  if (o->after != NULL) {
    memcpy(content, o->before, bytes);
  }
  fill(tensor, content);
  o->filled = o->after == NULL || put(ctx, tensor, content);
  return o->filled;
}

/* Restores the elements that a call did not write. */
static void restore(nncuda_ctx *ctx, const nn_tensor *tensor, const output *o, unsigned char *after) {
  const int64_t columns = nn_tensor_columns(tensor), size = nn_dtype_size(tensor->dtype);
  const void *untouched = fill_of(tensor->dtype);
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
  if (any && o->after != NULL) {
    put(ctx, tensor, after);
  }
}

/* Index of the first element that is not finite, or -1; in an output, among those that the call wrote. */
static int64_t first_bad(const nn_tensor *tensor, const unsigned char *data, const output *o) {
  const int64_t columns = nn_tensor_columns(tensor), size = nn_dtype_size(tensor->dtype);
  for (int64_t row = 0; row < tensor->rows; row++) {
    for (int64_t i = 0; i < columns; i++) {
      const int64_t at = row * tensor->stride + i * size;
      const void *old = o == NULL ? NULL : o->filled ? fill_of(tensor->dtype) : o->before + at;
      if (!isfinite(nn_value_at(data + row * tensor->stride, i, tensor->dtype)) &&
          (old == NULL || memcmp(data + at, old, (size_t)size) != 0)) {
        return row * columns + i;
      }
    }
  }
  return -1;
}

/* Looks at a tensor: an output `o`, or an input. `data` are its bytes for the host; null when there are none. */
static void look(nncuda_ctx *ctx, search *s, const nn_record *record, const nn_tensor *tensor,
                 const unsigned char *data, const output *o) {
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
}

static void look_at_inputs(nncuda_ctx *ctx, search *s, const nn_record *record) {
  for (int32_t i = 0; i < record->tensors && !s->found; i++) {
    const nn_tensor *tensor = &record->tensor[i];
    if ((tensor->role & NN_ROLE_OUT) || !nn_tensor_present(tensor) || !nn_dtype_is_float(tensor->dtype)) {
      continue;
    }
    /* One that a call wrote in part was looked at then; what it left alone may be anything. */
    if (count_rows(&s->written, tensor, nn_ranges_meet) == 0 &&
        count_rows(&s->checked, tensor, nn_ranges_cover) < tensor->rows) {
      unsigned char *copy;
      look(ctx, s, record, tensor, nn_trace_look(ctx, tensor->data, nn_tensor_span(tensor), &copy), NULL);
      free(copy);
      add_rows(&s->checked, tensor); /* without memory for it, it is looked at again */
    }
  }
}

/* Looks at an output of a call that succeeded, and restores what it left alone. */
static void look_at_output(nncuda_ctx *ctx, search *s, const nn_record *record, const nn_tensor *tensor,
                           const output *o) {
  unsigned char *data = (unsigned char *)(uintptr_t)tensor->data;
  if (o->after != NULL) {
    const int32_t status = ctx->engine->read(ctx, o->after, tensor->data, nn_tensor_span(tensor));
    data = status == NNCUDA_SUCCESS ? o->after : NULL;
  }
  look(ctx, s, record, tensor, data, o);
  if (data != NULL && o->filled) {
    restore(ctx, tensor, o, data);
  }
  s->lost |= !add_rows(&s->written, tensor);
}

static int32_t run_move(nncuda_ctx *ctx, search *s, const nn_record *record) {
  const int32_t status = nn_run(ctx, record);
  for (int32_t i = 0; i < record->tensors; i++) {
    if (record->tensor[i].role & NN_ROLE_OUT) {
      search_forget(s, record->tensor[i].data, nn_tensor_span(&record->tensor[i]));
    }
  }
  return status;
}

static int32_t search_run(nncuda_ctx *ctx, void *state, const nn_record *record) {
  search *s = state;
  output outputs[NN_MAX_TENSORS] = {{NULL, NULL, 0}};
  if (record->op >= NN_OP_COUNT) { /* bytes that are copied or filled have no dtype */
    return run_move(ctx, s, record);
  }
  if (s->found) {
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
  for (int32_t i = 0; i < record->tensors && status == NNCUDA_SUCCESS; i++) {
    if (outputs[i].before != NULL) {
      look_at_output(ctx, s, record, &record->tensor[i], &outputs[i]);
    }
  }
  for (int32_t i = record->tensors; i-- > 0;) {
    /* A call that fails writes nothing. Backwards: what lay between the rows of one may be another's, filled before. */
    if (outputs[i].filled && status != NNCUDA_SUCCESS) {
      put(ctx, &record->tensor[i], outputs[i].before);
    }
    free(outputs[i].before);
    free(outputs[i].after);
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
    nn_text_add(text, ", \"value\": \"");
    nn_text_number(text, s->value);
    nn_text_add(text, "\"}");
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
    .run = search_run, .forget = search_forget, .write = search_write, .release = search_release, .clears = 1};

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
