/*
 * The shadow run: every call runs a second time on a reference context, and what both wrote is compared.
 *
 * The reference runs first, on the same inputs: host memory is read in place, all else is copied. Its outputs are
 * filled with bytes of 0xFF beforehand, a NaN, so that elements which it does not write are known; the call must not
 * write these either. An output that is also read begins with the call's values.
 *
 * The bound. An element of an output takes at most r operations: those of the call divided by its elements, and at
 * least LEAST_ROUNDINGS, since a function counts as few operations. Where data decides how operations are shared, r is
 * the most that one element may take: all rows may belong to one group, or be added to one row. Where elements share a
 * sum over a row, as in a norm, each of them needs all of that sum, so the longest row is added. Each operation rounds
 * once, by at most u = 2^-24 of its result, and the last conversion by the unit roundoff v of the output's dtype, or
 * half of its least subnormal. Two correct engines are therefore at most twice (r u + v) L apart, where L is the
 * largest magnitude of the output: this assumes that the terms of an element are no larger than the largest element.
 * Sums whose terms cancel everywhere can exceed the bound, and need a closer look by a person.
 */
#include "memory.h"
#include "numbers/format.h"
#include "run.h"
#include "trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ROUNDINGS = 16, MAX_ARGS = 512, WHY_CAPACITY = 256 };

/* ---- what is found ---- */

typedef struct difference {
  nn_spot spot;
  double value, reference, bound;
  double share; /* of the bound; infinite where no bound would do */
} difference;

typedef struct tally { /* of a kernel */
  int64_t calls, compared, over;
  char why[WHY_CAPACITY]; /* one was not compared */
  difference largest;
} tally;

typedef struct shadow {
  nncuda_ctx *reference;
  int64_t moves;
  int32_t first_found;
  difference first;
  tally kernel[NN_OP_COUNT];
} shadow;

/* ---- memory of a call on both sides ---- */

/* The tensors of a call at one address. */
typedef struct piece {
  const void *data;
  size_t bytes;
  int32_t read, written;
  unsigned char *before; /* a copy for the host of what was there, or null */
  void *place;           /* where the reference has it */
  nn_block *block;       /* of the reference's memory, or null when it reads where `data` is */
  int32_t passed;        /* the arguments point to it */
} piece;

typedef struct twin {
  nncuda_ctx *ctx, *reference;
  int32_t pieces;
  piece piece[NN_MAX_TENSORS];
  int32_t of_tensor[NN_MAX_TENSORS]; /* its piece, or -1 */
  _Alignas(16) unsigned char args[MAX_ARGS];
  const char *why; /* it cannot be compared, or null */
} twin;

static void find_pieces(twin *t, const nn_record *record) {
  for (int32_t i = 0; i < record->tensors; i++) {
    const nn_tensor *tensor = &record->tensor[i];
    t->of_tensor[i] = -1;
    if (!nn_tensor_present(tensor)) {
      continue;
    }
    int32_t at = 0;
    while (at < t->pieces && t->piece[at].data != tensor->data) {
      at++;
    }
    t->pieces += at == t->pieces;
    piece *p = &t->piece[at];
    const size_t bytes = nn_tensor_span(tensor);
    p->data = tensor->data;
    p->bytes = bytes > p->bytes ? bytes : p->bytes;
    p->read |= tensor->role & NN_ROLE_IN;
    p->written |= (tensor->role & NN_ROLE_OUT) != 0;
    t->of_tensor[i] = at;
  }
}

/* Gives the reference a piece as it was before the call. */
static const char *make_place(twin *t, piece *p) {
  const int32_t shared = nn_on_host(t->ctx) && nn_on_host(t->reference) && !p->written;
  if (shared) {
    p->place = (void *)(uintptr_t)p->data;
    return NULL;
  }
  if (p->written || !nn_on_host(t->ctx)) {
    p->before = nn_trace_copy(t->ctx, p->data, p->bytes);
    if (p->before == NULL) {
      return "there is no memory for a copy of its arguments";
    }
  }
  p->place = nn_pool_take(&t->reference->pool, p->bytes);
  p->block = p->place == NULL ? NULL : nn_pool_find(&t->reference->pool, p->place);
  if (p->block == NULL) {
    return "the reference has no memory for its arguments";
  }
  const int64_t bytes = (int64_t)p->bytes;
  const nn_memcpy_args copy = {p->place, p->before == NULL ? p->data : p->before, bytes, NNCUDA_HOST_TO_DEVICE, 1};
  const nn_memset_args fill = {p->place, bytes, 0xff};
  const int32_t status = p->read ? t->reference->kernel[NN_OP_memcpy](t->reference, &copy)
                                 : t->reference->kernel[NN_OP_memset](t->reference, &fill);
  return status == NNCUDA_SUCCESS ? NULL : "its arguments could not be copied";
}

/* The arguments with the reference's addresses. Pointers are in the declared order, each in a word of its own. */
static const char *redirect(twin *t, const nn_record *record) {
  if (record->args_bytes > MAX_ARGS) {
    return "its arguments are too large to copy";
  }
  memcpy(t->args, record->args, record->args_bytes);
  for (size_t at = 0; at + sizeof(void *) <= record->args_bytes; at += sizeof(void *)) {
    void *word;
    memcpy(&word, t->args + at, sizeof word);
    for (int32_t i = 0; i < t->pieces; i++) {
      if (word == t->piece[i].data) {
        memcpy(t->args + at, &t->piece[i].place, sizeof word);
        t->piece[i].passed = 1;
        break;
      }
    }
  }
  for (int32_t i = 0; i < t->pieces; i++) {
    if (!t->piece[i].passed) {
      return "one of its tensors is not among its arguments";
    }
  }
  return NULL;
}

/* Runs the call on the reference, which is entered; `why` gives the reason if that fails. */
static const char *run_reference(twin *t, const nn_record *record, char *why) {
  find_pieces(t, record);
  const char *failed = NULL;
  for (int32_t i = 0; i < t->pieces && failed == NULL; i++) {
    failed = make_place(t, &t->piece[i]);
  }
  failed = failed != NULL ? failed : redirect(t, record);
  if (failed != NULL) {
    return failed;
  }
  nn_record again = *record;
  again.args = t->args;
  if (t->reference->kernel[record->op] == NULL) {
    return "the reference's engine does not have the kernel";
  }
  int32_t status = nn_run_kernel(t->reference, &again);
  status = status != NNCUDA_SUCCESS ? status : t->reference->engine->synchronize(t->reference);
  nn_ctx_update_peak(t->reference);
  if (status != NNCUDA_SUCCESS) {
    snprintf(why, WHY_CAPACITY, "%s: %.180s", nncuda_status_name(status), t->reference->error);
    return why;
  }
  return NULL;
}

static void release(twin *t) {
  for (int32_t i = 0; i < t->pieces; i++) {
    free(t->piece[i].before);
    if (t->piece[i].block != NULL) {
      nn_pool_give(&t->reference->pool, t->piece[i].block);
    }
  }
}

/* ---- comparing ---- */

/* Kernels that count no operations and round nevertheless. */
static int32_t is_exact(const nn_record *record) {
  switch (record->op) {
  case NN_OP_normal:
  case NN_OP_uniform:
  case NN_OP_lr_schedule:
  case NN_OP_rope_freqs:
  case NN_OP_rope_freqs_scaled:
  case NN_OP_dequantize:
  case NN_OP_embedding_quant:
    return 0;
  default:
    return record->flops == 0;
  }
}

/* The longest row among a call's tensors if its elements share sums over rows, else 0. */
static double shared_sum(const nn_record *record) {
  switch (record->op) {
  case NN_OP_softmax:
  case NN_OP_softmax_backward:
  case NN_OP_softmax_topk:
  case NN_OP_softmax_topk_backward:
  case NN_OP_rmsnorm:
  case NN_OP_rmsnorm_residual:
  case NN_OP_rmsnorm_backward:
  case NN_OP_rmsnorm_quant_i8:
  case NN_OP_flash_attention:
  case NN_OP_flash_attention_backward:
  case NN_OP_attention_decode:
  case NN_OP_flash_attention_paged:
  case NN_OP_attention_decode_paged:
  case NN_OP_attention_step_paged:
  case NN_OP_cross_entropy_forward:
  case NN_OP_cross_entropy_backward:
    break;
  default:
    return 0;
  }
  double longest = 0;
  for (int32_t i = 0; i < record->tensors; i++) {
    const nn_tensor *tensor = &record->tensor[i];
    if (tensor->ndim > 1 && nn_dtype_is_float(tensor->dtype)) {
      longest = fmax(longest, (double)tensor->dims[tensor->ndim - 1]);
    }
  }
  return longest;
}

/* The most operations that one element of an output may have, from the sizes of the call. */
static double most_operations(const nn_record *record, const nn_tensor *tensor) {
  const double elements = (double)tensor->rows * (double)nn_tensor_columns(tensor);
  const double even = record->flops / elements + shared_sum(record);
  switch (record->op) {
  case NN_OP_scatter_add:        /* into one row of the table */
  case NN_OP_grouped_gemm_wgrad: /* all rows of one group */
    return even * (double)tensor->dims[0];
  case NN_OP_flash_attention_paged: /* counts the new tokens alone, but they see all that is in the pages */
    for (int32_t i = 0; i < record->tensors; i++) {
      if (strcmp(record->tensor[i].name, "page_table") == 0) {
        return even + 4.0 * (double)record->tensor[i].dims[1] * NN_PAGE_TOKENS;
      }
    }
    return even;
  default:
    return even;
  }
}

static double bound_of(const nn_record *record, const nn_tensor *tensor, double largest) {
  if (is_exact(record) || !nn_dtype_is_float(tensor->dtype)) {
    return 0;
  }
  const double roundings = fmax(LEAST_ROUNDINGS, most_operations(record, tensor));
  const int32_t dtype = tensor->dtype;
  const double unit = dtype == NNCUDA_F32 ? 0x1p-24 : dtype == NNCUDA_F16 ? 0x1p-11 : 0x1p-8;
  const double least = dtype == NNCUDA_F32 ? 0x1p-149 : dtype == NNCUDA_F16 ? 0x1p-24 : 0x1p-133;
  return 2 * (roundings * 0x1p-24 + unit) * largest + least / 2;
}

/* Three versions of an output: before the call, after it, and the reference's. */
typedef struct pictures {
  const nn_tensor *tensor;
  const unsigned char *before, *after, *reference;
  int32_t filled; /* the reference's began as bytes of 0xFF */
} pictures;

static const unsigned char none[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

/* Whether both wrote the same bytes, or neither wrote. */
static int32_t same(const pictures *p, int64_t at, size_t size) {
  const unsigned char *after = p->after + at, *reference = p->reference + at;
  return memcmp(after, reference, size) == 0 ||
         (p->filled && memcmp(reference, none, size) == 0 && memcmp(after, p->before + at, size) == 0);
}

static double share_of(double value, double reference, double bound) {
  if (value == reference || (isnan(value) && isnan(reference))) {
    return 0;
  }
  const double distance = fabs(value - reference);
  return isfinite(distance) && bound > 0 ? distance / bound : INFINITY;
}

/* Stores the largest difference of an output in `worst`, if it is larger than the one there. */
static void compare(nncuda_ctx *ctx, const nn_record *record, const pictures *p, difference *worst) {
  const nn_tensor *tensor = p->tensor;
  const int64_t columns = nn_tensor_columns(tensor), size = nn_dtype_size(tensor->dtype);
  int32_t any = 0;
  double largest = 0;
  for (int64_t row = 0; row < tensor->rows; row++) {
    any |= memcmp(p->after + row * tensor->stride, p->reference + row * tensor->stride, (size_t)tensor->width) != 0;
    for (int64_t i = 0; i < columns; i++) {
      const double magnitude = fabs(nn_value_at(p->reference + row * tensor->stride, i, tensor->dtype));
      largest = isfinite(magnitude) && magnitude > largest ? magnitude : largest;
    }
  }
  const double bound = any ? bound_of(record, tensor, largest) : 0;
  for (int64_t row = 0; row < tensor->rows && any; row++) {
    for (int64_t i = 0; i < columns; i++) {
      const int64_t at = row * tensor->stride;
      if (same(p, at + i * size, (size_t)size)) {
        continue;
      }
      const double value = nn_value_at(p->after + at, i, tensor->dtype);
      const double reference = nn_value_at(p->reference + at, i, tensor->dtype);
      const double share = share_of(value, reference, bound);
      if (share > worst->share) {
        *worst = (difference){nn_spot_at(ctx, record, tensor, row * columns + i), value, reference, bound, share};
      }
    }
  }
}

static const char *compare_outputs(twin *t, const nn_record *record, difference *worst) {
  const char *why = NULL;
  for (int32_t i = 0; i < record->tensors && why == NULL; i++) {
    const nn_tensor *tensor = &record->tensor[i];
    if (t->of_tensor[i] < 0 || !(tensor->role & NN_ROLE_OUT)) {
      continue;
    }
    const piece *p = &t->piece[t->of_tensor[i]];
    unsigned char *after, *reference;
    const pictures made = {.tensor = tensor,
                           .before = p->before,
                           .after = nn_trace_look(t->ctx, p->data, p->bytes, &after),
                           .reference = nn_trace_look(t->reference, p->place, p->bytes, &reference),
                           .filled = !p->read};
    if (made.after == NULL || made.reference == NULL) {
      why = "there is no memory for a copy of its outputs";
    } else {
      compare(t->ctx, record, &made, worst);
    }
    free(after);
    free(reference);
  }
  return why;
}

/* ---- the trace ---- */

static void note(shadow *s, nn_op op, const difference *worst) {
  tally *kernel = &s->kernel[op];
  kernel->compared++;
  if (worst->share > kernel->largest.share) {
    kernel->largest = *worst;
  }
  if (worst->share > 1) {
    kernel->over++;
    s->first = s->first_found ? s->first : *worst;
    s->first_found = 1;
  }
}

static int32_t shadow_run(nncuda_ctx *ctx, void *state, const nn_record *record) {
  shadow *s = state;
  if (record->op >= NN_OP_COUNT) {
    s->moves++;
    return nn_run(ctx, record);
  }
  tally *kernel = &s->kernel[record->op];
  kernel->calls++;
  char words[WHY_CAPACITY];
  twin t = {.ctx = ctx, .reference = s->reference};
  const char *why = "another thread is inside the reference";
  const int32_t entered = nn_ctx_enter(s->reference, nn_op_name(record->op)) == NNCUDA_SUCCESS;
  if (entered) {
    why = run_reference(&t, record, words);
    nn_ctx_suspend(s->reference);
  }
  const int32_t status = nn_run(ctx, record);
  if (entered) {
    nn_ctx_resume(s->reference); /* what follows reads its memory, and frees it */
    difference worst = {.share = 0};
    if (why == NULL && status != NNCUDA_SUCCESS) {
      why = "it failed, but not on the reference";
    }
    why = why != NULL ? why : compare_outputs(&t, record, &worst);
    if (why == NULL) {
      note(s, record->op, &worst);
    }
    release(&t);
    nn_ctx_leave(s->reference, NNCUDA_SUCCESS);
  }
  if (why != NULL && kernel->why[0] == '\0') {
    snprintf(kernel->why, sizeof kernel->why, "%s", why);
  }
  return status;
}

static void write_difference(const difference *found, nn_text *text) {
  if (found->share == 0) {
    nn_text_add(text, "null");
    return;
  }
  nn_text_add(text, "{");
  nn_spot_write(&found->spot, "", text);
  nn_text_add(text, ", \"value\": \"");
  nn_text_number(text, found->value);
  nn_text_add(text, "\", \"reference\": \"");
  nn_text_number(text, found->reference);
  nn_text_add(text, "\", \"bound\": %.9g, \"share\": ", found->bound);
  if (isfinite(found->share)) {
    nn_text_add(text, "%.9g}", found->share);
  } else {
    nn_text_add(text, "null}");
  }
}

static void shadow_write(const void *state, int64_t calls, nn_text *text) {
  const shadow *s = state;
  int64_t compared = 0, over = 0;
  const difference *largest = &s->first;
  for (int32_t op = 0; op < NN_OP_COUNT; op++) {
    compared += s->kernel[op].compared;
    over += s->kernel[op].over;
    largest = s->kernel[op].largest.share > largest->share ? &s->kernel[op].largest : largest;
  }
  nn_text_add(text,
              "{\"calls\": %lld, \"compared\": %lld, \"moves\": %lld, \"over\": %lld, \"first\": ", (long long)calls,
              (long long)compared, (long long)s->moves, (long long)over);
  write_difference(&s->first, text);
  nn_text_add(text, ", \"largest\": ");
  write_difference(largest, text);
  nn_text_add(text, ", \"kernels\": [");
  const char *comma = "";
  for (int32_t op = 0; op < NN_OP_COUNT; op++) {
    const tally *kernel = &s->kernel[op];
    if (kernel->calls == 0) {
      continue;
    }
    nn_text_add(text, "%s{\"kernel\": \"%s\", \"calls\": %lld, \"compared\": %lld, \"over\": %lld, \"why\": ", comma,
                nn_op_name((nn_op)op), (long long)kernel->calls, (long long)kernel->compared, (long long)kernel->over);
    comma = ", ";
    if (kernel->why[0] == '\0') {
      nn_text_add(text, "null");
    } else {
      nn_text_quote(text, kernel->why);
    }
    nn_text_add(text, ", \"largest\": ");
    write_difference(&kernel->largest, text);
    nn_text_add(text, "}");
  }
  nn_text_add(text, "]}");
}

static void shadow_end(void *state) {
  __atomic_sub_fetch(&((shadow *)state)->reference->shadowed, 1, __ATOMIC_RELEASE);
}

static const nn_tracer shadow_tracer = {
    .run = shadow_run, .write = shadow_write, .end = shadow_end, .release = free, .clears = 1};

static int32_t begin(nncuda_ctx *ctx, nncuda_ctx *reference) {
  if (reference == ctx) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "reference is the context itself; it must be another one");
  }
  shadow *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a trace");
  }
  int32_t status = nn_ctx_enter(reference, "nncuda_trace_begin_shadow");
  if (status != NNCUDA_SUCCESS) {
    free(made);
    return nn_fail(ctx, status, "reference is %p: %s", (void *)reference, nncuda_status_string(status));
  }
  status = nn_trace_check(ctx, ctx, "this");
  status = status != NNCUDA_SUCCESS ? status : nn_trace_check(ctx, reference, "reference");
  if (status == NNCUDA_SUCCESS) {
    __atomic_add_fetch(&reference->shadowed, 1, __ATOMIC_ACQUIRE);
    made->reference = reference;
    status = nn_trace_start(ctx, &shadow_tracer, made);
  } else {
    free(made);
  }
  nn_ctx_leave(reference, NNCUDA_SUCCESS);
  return status;
}

int32_t nncuda_trace_begin_shadow(nncuda_ctx *ctx, nncuda_ctx *reference) { NN_INSIDE(ctx, begin(ctx, reference)); }
