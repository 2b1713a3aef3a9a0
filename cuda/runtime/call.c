#include "call.h"

#include "context.h"
#include "dispatch.h"

#include <stdio.h>
#include <string.h>

/* No address space holds more. It also leaves kernels room to add up offsets without overflow. */
#define MAX_BYTES ((int64_t)1 << 56)

static void call_fail(nn_call *call, int32_t status, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void call_fail(nn_call *call, int32_t status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  call->status = nn_fail_list(call->ctx, status, format, list);
  va_end(list);
}

void nn_call_begin(nn_call *call, nncuda_ctx *ctx, nn_op op) {
  call->ctx = ctx;
  call->op = op;
  call->empty = 0;
  call->tensors = 0;
  call->aliases = 0;
  call->flops = 0;
  call->bytes = 0;
  call->status = nn_ctx_enter(ctx, nn_op_name(op));
  call->entered = call->status == NNCUDA_SUCCESS;
}

void nn_call_size(nn_call *call, const char *name, int64_t value) {
  if (call->status != NNCUDA_SUCCESS) {
    return;
  }
  if (value < 0) {
    call_fail(call, NNCUDA_ERROR_INVALID_SIZE, "%s is %lld; it must be at least 0", name, (long long)value);
  }
  call->empty |= value == 0;
}

/* The words for a set of dtypes: "f32, f16 or bf16". */
static void dtype_words(uint32_t allowed, char *text, size_t capacity) {
  static const char *const names[] = {"f32", "f16", "bf16", "i32", "i8"};
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (allowed >> i & 1u) {
      const char *before = used == 0 ? "" : allowed >> (i + 1) ? ", " : " or ";
      used += (size_t)snprintf(text + used, capacity - used, "%s%s (%u)", before, names[i], i);
    }
  }
}

void nn_call_size_if(nn_call *call, const char *name, int64_t value, int32_t used) {
  const int32_t empty = call->empty;
  nn_call_size(call, name, value);
  call->empty = used ? call->empty : empty;
}

void nn_call_dtype(nn_call *call, const char *name, int32_t dtype, uint32_t allowed) {
  if (call->status != NNCUDA_SUCCESS || (dtype >= 0 && dtype < 32 && allowed >> dtype & 1u)) {
    return;
  }
  char words[96];
  dtype_words(allowed, words, sizeof words);
  call_fail(call, NNCUDA_ERROR_INVALID_DTYPE, "%s is %d; it must be %s", name, dtype, words);
}

void nn_call_flag(nn_call *call, const char *name, int32_t value) {
  if (call->status == NNCUDA_SUCCESS && value != 0 && value != 1) {
    call_fail(call, NNCUDA_ERROR_INVALID_VALUE, "%s is %d; it must be 0 or 1", name, value);
  }
}

void nn_call_require(nn_call *call, int32_t condition, int32_t status, const char *format, ...) {
  if (call->status != NNCUDA_SUCCESS || condition) {
    return;
  }
  if (call->empty && status == NNCUDA_ERROR_INVALID_SIZE) {
    return; /* a size of zero succeeds, whatever else does not fit it */
  }
  va_list list;
  va_start(list, format);
  call->status = nn_fail_list(call->ctx, status, format, list);
  va_end(list);
}

/* The words of a shape with its values: "[tokens, q_len*k] = [4, 6]". */
static void shape_words(const nn_tensor *tensor, const char *shape, char *text, size_t capacity) {
  size_t used = (size_t)snprintf(text, capacity, "%s = [", shape);
  for (int32_t i = 0; i < tensor->ndim && used < capacity; i++) {
    used += (size_t)snprintf(text + used, capacity - used, "%s%lld", i == 0 ? "" : ", ", (long long)tensor->dims[i]);
  }
  if (used < capacity) {
    snprintf(text + used, capacity - used, "]");
  }
}

/* Fills rows, width and stride; 0 when they do not fit. The dimensions are not negative. */
static int32_t measure(nn_tensor *tensor, int64_t element) {
  int64_t width = element;
  for (int32_t i = 1; i < tensor->ndim; i++) {
    width = nn_mul(width, tensor->dims[i]);
  }
  int32_t zero = 0;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    zero |= tensor->dims[i] == 0;
  }
  const int64_t rows = tensor->dims[0];
  if (zero) { /* whatever the other dimensions are: there is nothing to touch */
    tensor->rows = tensor->width = tensor->stride = 0;
    return 1;
  }
  if (tensor->ld != 0 && nn_mul(rows, nn_mul(tensor->ld, element)) > MAX_BYTES) {
    return 0;
  }
  if (tensor->ld == 0 || rows == 1 || width == tensor->ld * element) {
    tensor->rows = 1;
    tensor->width = tensor->stride = nn_mul(rows, width);
    return tensor->width <= MAX_BYTES;
  }
  tensor->rows = rows;
  tensor->width = width;
  tensor->stride = tensor->ld * element;
  return 1;
}

void nn_call_tensor(nn_call *call, int32_t role, const char *name, const void *data, int32_t dtype, const char *ld_name,
                    int64_t ld, const char *shape, const int64_t *dims, int32_t ndim) {
  if (call->status != NNCUDA_SUCCESS) {
    return;
  }
  if (call->tensors == NN_MAX_TENSORS || ndim > NN_MAX_DIMS || nn_dtype_size(dtype) == 0) {
    call_fail(call, NNCUDA_ERROR_INTERNAL, "%s is declared wrongly; please report this", name);
    return;
  }
  nn_tensor *tensor = &call->tensor[call->tensors++];
  tensor->name = name;
  tensor->data = data;
  tensor->dtype = dtype;
  tensor->role = role;
  tensor->ndim = ndim;
  int64_t width = 1;
  for (int32_t i = 0; i < ndim; i++) {
    tensor->dims[i] = dims[i];
    if (dims[i] < 0) {
      call_fail(call, NNCUDA_ERROR_INVALID_SIZE, "dimension %d of %s is %lld; it must be at least 0", i, name,
                (long long)dims[i]);
      return;
    }
    width = i == 0 ? 1 : nn_mul(width, dims[i]);
  }
  tensor->ld = ld;
  if (ld_name != NULL && ld < width) {
    char words[256];
    shape_words(tensor, shape, words, sizeof words);
    call_fail(call, NNCUDA_ERROR_INVALID_SIZE, "%s is %lld; it must be at least %lld, the elements in a row of %s %s",
              ld_name, (long long)ld, (long long)width, name, words);
    return;
  }
  if (!measure(tensor, nn_dtype_size(dtype))) {
    char words[256];
    shape_words(tensor, shape, words, sizeof words);
    if (ld_name != NULL) {
      call_fail(call, NNCUDA_ERROR_INVALID_SIZE, "%s %s with %s = %lld is larger than any memory", name, words, ld_name,
                (long long)ld);
    } else {
      call_fail(call, NNCUDA_ERROR_INVALID_SIZE, "%s %s is larger than any memory", name, words);
    }
  }
}

void nn_call_unread(nn_call *call, const char *name) {
  for (int32_t i = 0; i < call->tensors; i++) {
    if (strcmp(call->tensor[i].name, name) == 0) {
      call->tensor[i].role |= NN_ROLE_UNREAD;
    }
  }
}

void nn_call_alias(nn_call *call, const char *output, const char *input) {
  if (call->status != NNCUDA_SUCCESS) {
    return;
  }
  if (call->aliases == NN_MAX_ALIASES) {
    call_fail(call, NNCUDA_ERROR_INTERNAL, "too many aliases; please report this");
    return;
  }
  call->alias[call->aliases].output = output;
  call->alias[call->aliases].input = input;
  call->aliases++;
}

static int32_t may_alias(const nn_call *call, const nn_tensor *output, const nn_tensor *input) {
  if (output->data != input->data || output->rows != input->rows || output->width != input->width ||
      output->stride != input->stride || output->dtype != input->dtype) {
    return 0;
  }
  for (int32_t i = 0; i < call->aliases; i++) {
    if (strcmp(call->alias[i].output, output->name) == 0 && strcmp(call->alias[i].input, input->name) == 0) {
      return 1;
    }
  }
  return 0;
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Whether any byte of `a` is also one of `b`. Exact, so that the interleaved columns of one buffer do not count. */
static int32_t overlap(const nn_tensor *a, const nn_tensor *b) {
  const uintptr_t a0 = (uintptr_t)a->data, b0 = (uintptr_t)b->data;
  const uintptr_t a1 = a0 + (uintptr_t)((a->rows - 1) * a->stride + a->width);
  const uintptr_t b1 = b0 + (uintptr_t)((b->rows - 1) * b->stride + b->width);
  if (a1 <= b0 || b1 <= a0) {
    return 0;
  }
  if (a->rows > b->rows) {
    return overlap(b, a);
  }
  /* Run i of `a` is [from, from + width) as seen from b's first byte. It meets run j of `b`, which is [j*stride,
   * j*stride + width_b), when j*stride < from + width and from < j*stride + width_b. With equal strides every run of
   * `a` sees the same picture moved by one, so that the first and the last, where the ends of `b` matter, decide. */
  const int64_t step = a->stride == b->stride && a->rows > 2 ? a->rows - 1 : 1;
  for (int64_t i = 0; i < a->rows; i += step) {
    const int64_t from = (int64_t)(a0 - b0) + i * a->stride;
    int64_t low = floor_div(from - b->width, b->stride) + 1;
    int64_t high = floor_div(from + a->width - 1, b->stride);
    low = low < 0 ? 0 : low;
    high = high > b->rows - 1 ? b->rows - 1 : high;
    if (low <= high) {
      return 1;
    }
  }
  return 0;
}

static int32_t present(const nn_tensor *tensor) { return tensor->data != NULL && tensor->rows != 0; }

/* A pointer of the host, or of another device, must not reach a kernel. What a copy moves may lie on the host. */
static int32_t check_device(nn_call *call) {
  for (int32_t i = 0; i < call->tensors; i++) {
    const nn_tensor *tensor = &call->tensor[i];
    if (present(tensor) && call->op != NN_OP_memcpy && !call->ctx->engine->reaches(call->ctx, tensor->data)) {
      call_fail(
          call, NNCUDA_ERROR_WRONG_DEVICE,
          "%s is %p, which is not memory of GPU %d; it must come from nncuda_malloc of this context or lie on the "
          "same GPU",
          tensor->name, tensor->data, call->ctx->index);
      return 0;
    }
  }
  return 1;
}

/* The conditions on the pointers of a call that is not empty. */
static void check_pointers(nn_call *call) {
  for (int32_t i = 0; i < call->tensors; i++) {
    const nn_tensor *tensor = &call->tensor[i];
    const int64_t element = nn_dtype_size(tensor->dtype);
    if (tensor->data == NULL && !(tensor->role & NN_ROLE_OPTIONAL) && tensor->rows != 0) {
      call_fail(call, NNCUDA_ERROR_NULL_POINTER, "%s is null; it must point to %lld bytes", tensor->name,
                (long long)((tensor->rows - 1) * tensor->stride + tensor->width));
      return;
    }
    if ((uintptr_t)tensor->data % (uintptr_t)element != 0) {
      call_fail(call, NNCUDA_ERROR_MISALIGNED, "%s is %p; it must be a multiple of %lld bytes", tensor->name,
                tensor->data, (long long)element);
      return;
    }
  }
  if (call->ctx->engine->reaches != NULL && !check_device(call)) {
    return;
  }
  for (int32_t i = 0; i < call->tensors; i++) {
    const nn_tensor *output = &call->tensor[i];
    if (!(output->role & (NN_ROLE_OUT)) || !present(output)) {
      continue;
    }
    for (int32_t j = 0; j < call->tensors; j++) {
      const nn_tensor *other = &call->tensor[j];
      if (i == j || !present(other) || !overlap(output, other) || may_alias(call, output, other) ||
          may_alias(call, other, output)) {
        continue;
      }
      call_fail(call, NNCUDA_ERROR_ALIASED, "%s overlaps %s; it must have memory of its own", output->name,
                other->name);
      return;
    }
  }
}

int32_t nn_call_check(nn_call *call) {
  if (call->status != NNCUDA_SUCCESS || call->empty) {
    return 0;
  }
  check_pointers(call);
  return call->status == NNCUDA_SUCCESS;
}

int32_t nn_call_launch(nn_call *call, const void *args, size_t args_bytes) {
  if (!call->entered) {
    return call->status;
  }
  if (nn_call_check(call)) {
    call->status = nn_dispatch(call->ctx, &(nn_record){.op = call->op,
                                                       .tensors = call->tensors,
                                                       .tensor = call->tensor,
                                                       .flops = call->flops,
                                                       .bytes = call->bytes,
                                                       .args = args,
                                                       .args_bytes = args_bytes});
  }
  return nn_ctx_leave(call->ctx, call->status);
}
