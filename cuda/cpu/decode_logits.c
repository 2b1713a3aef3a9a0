/*
 * What changes logits before a token is drawn: penalties, biases, masks, and the lists of tokens that penalties read.
 * All but the masks touch a few logits of a row only.
 */
#include "abi/decode.h"

#include "checks.h"

#include <string.h>

/* ---- lists of tokens ---- */

/* Where the token is in a list, or where it must come in. */
static int64_t place_of(const int32_t *list, int64_t length, int32_t id) {
  int64_t low = 0, high = length;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (list[middle] < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static int32_t check_lengths(nncuda_ctx *ctx, const int32_t *lengths, int64_t rows, int64_t capacity) {
  return nn_check_range(ctx, "seen_lengths", lengths, rows, -1, capacity, ", the capacity");
}

/* Element `at` of `name` must be above the one before it, if that is of the same list, and below vocab. */
static int32_t check_ascending(nncuda_ctx *ctx, const char *name, const int32_t *ids, int64_t first, int64_t at,
                               int64_t vocab) {
  const int64_t low = at == first ? 0 : (int64_t)ids[at - 1] + 1;
  if (ids[at] >= low && ids[at] < vocab) {
    return NNCUDA_SUCCESS;
  }
  return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "%s[%lld] is %d; it must be %lld to %lld, ascending in its row", name,
                 (long long)at, ids[at], (long long)low, (long long)vocab - 1);
}

int32_t NN_KERNEL(count_tokens)(nncuda_ctx *ctx, const void *args) {
  const nn_count_tokens_args *a = args;
  NN_TRY(nn_check_range(ctx, "ids", a->ids, a->rows, 0, a->vocab - 1, ""));
  NN_TRY(check_lengths(ctx, a->seen_lengths, a->rows, a->capacity));
  for (int64_t r = 0; r < a->rows; r++) {
    const int32_t *list = a->seen_ids + r * a->capacity;
    const int64_t length = a->seen_lengths[r];
    if (length == a->capacity) {
      const int64_t at = place_of(list, length, a->ids[r]);
      if (at == length || list[at] != a->ids[r]) {
        return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE,
                       "seen_lengths[%lld] is %lld; it must be below the capacity where a token is new", (long long)r,
                       (long long)length);
      }
    }
  }
  for (int64_t r = 0; r < a->rows; r++) {
    int32_t *list = a->seen_ids + r * a->capacity, *counts = a->seen_counts + r * a->capacity;
    const int64_t length = a->seen_lengths[r];
    if (length < 0) {
      continue;
    }
    const int64_t at = place_of(list, length, a->ids[r]);
    if (at < length && list[at] == a->ids[r]) {
      counts[at] += counts[at] < INT32_MAX;
      continue;
    }
    memmove(list + at + 1, list + at, (size_t)(length - at) * sizeof *list);
    memmove(counts + at + 1, counts + at, (size_t)(length - at) * sizeof *counts);
    list[at] = a->ids[r];
    counts[at] = 1;
    a->seen_lengths[r] = (int32_t)length + 1;
  }
  return NNCUDA_SUCCESS;
}

/* ---- penalties ---- */

static int32_t check_penalties(nncuda_ctx *ctx, const nn_penalize_logits_args *a) {
  NN_TRY(check_lengths(ctx, a->seen_lengths, a->rows, a->capacity));
  for (int64_t r = 0; r < a->rows; r++) {
    const struct {
      const char *name;
      float value;
      int32_t positive;
    } options[] = {
        {"presence", a->presence[r], 0}, {"frequency", a->frequency[r], 0}, {"repetition", a->repetition[r], 1}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
      const float value = options[i].value;
      if (!(fabsf(value) < INFINITY) || (options[i].positive && value <= 0.0f)) {
        return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "%s[%lld] is %g; it must be finite%s", options[i].name,
                       (long long)r, (double)value, options[i].positive ? " and above 0" : "");
      }
    }
    const int64_t first = r * a->capacity;
    for (int64_t i = first; i < first + a->seen_lengths[r]; i++) {
      NN_TRY(check_ascending(ctx, "seen_ids", a->seen_ids, first, i, a->vocab));
      if (a->seen_counts[i] < 0) {
        return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "seen_counts[%lld] is %d; it must be at least 0", (long long)i,
                       a->seen_counts[i]);
      }
    }
  }
  return NNCUDA_SUCCESS;
}

NN_INLINE void penalize_row(const nn_penalize_logits_args *a, int64_t r, int32_t dtype) {
  const float presence = a->presence[r], frequency = a->frequency[r], repetition = a->repetition[r];
  const int64_t first = r * a->capacity;
  for (int64_t i = first; i < first + a->seen_lengths[r]; i++) {
    const int64_t at = r * a->vocab + a->seen_ids[i];
    const int32_t count = a->seen_counts[i];
    float x = nn_load_as(a->logits, at, dtype);
    x = x > 0.0f ? x / repetition : x * repetition;
    if (count > 0) {
      x -= frequency * (float)count + presence;
    }
    nn_store_as(a->logits, at, x, dtype);
  }
}

NN_TASK(penalize_task, nn_penalize_logits_args, NN_SWITCH_DTYPE(job->dtype, penalize_row(job, task, DT)))

int32_t NN_KERNEL(penalize_logits)(nncuda_ctx *ctx, const void *args) {
  const nn_penalize_logits_args *a = args;
  NN_TRY(check_penalties(ctx, a));
  nn_penalize_logits_args job = *a;
  nn_parallel(ctx, a->rows, penalize_task, &job);
  return NNCUDA_SUCCESS;
}

/* ---- biases ---- */

NN_INLINE void bias_row(const nn_bias_logits_args *a, int64_t r, int32_t dtype) {
  for (int64_t i = a->offsets[r]; i < a->offsets[r + 1]; i++) {
    const int64_t at = r * a->vocab + a->ids[i];
    nn_store_as(a->logits, at, nn_load_as(a->logits, at, dtype) + a->bias[i], dtype);
  }
}

NN_TASK(bias_task, nn_bias_logits_args, NN_SWITCH_DTYPE(job->dtype, bias_row(job, task, DT)))

int32_t NN_KERNEL(bias_logits)(nncuda_ctx *ctx, const void *args) {
  const nn_bias_logits_args *a = args;
  NN_TRY(nn_check_offsets(ctx, a->offsets, a->rows, a->biases, "biases"));
  for (int64_t r = 0; r < a->rows; r++) {
    for (int64_t i = a->offsets[r]; i < a->offsets[r + 1]; i++) {
      NN_TRY(check_ascending(ctx, "ids", a->ids, a->offsets[r], i, a->vocab));
      if (!(fabsf(a->bias[i]) < INFINITY)) {
        return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "bias[%lld] is %g; it must be finite", (long long)i,
                       (double)a->bias[i]);
      }
    }
  }
  nn_bias_logits_args job = *a;
  nn_parallel(ctx, a->rows, bias_task, &job);
  return NNCUDA_SUCCESS;
}

/* ---- masks ---- */

NN_INLINE void mask_row(const nn_mask_logits_args *a, int64_t r, int32_t dtype) {
  if (a->mask_of[r] < 0) {
    return;
  }
  const int32_t *mask = a->masks + a->mask_of[r] * a->words;
  static const uint32_t bits[] = {1u << 0, 1u << 1, 1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
                                  1u << 8, 1u << 9, 1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15};
  const vw lane = vw_load(bits), nothing = vf_words(vf_set1(-INFINITY));
  for (int64_t begin = 0; begin < a->vocab; begin += 32) {
    const uint32_t word = begin / 32 < a->words ? (uint32_t)mask[begin / 32] : 0;
    const int64_t end = nn_min(begin + 32, a->vocab);
    if (word == UINT32_MAX) {
      continue;
    }
    int64_t t = begin;
    for (; t + VF <= end; t += VF) {
      const int64_t at = r * a->vocab + t;
      const vw allowed = vw_equal(vw_and(vw_set1(word >> (t - begin)), lane), lane);
      const vw x = vw_select(allowed, vf_words(vf_load_as(a->logits, at, dtype)), nothing);
      vf_store_as(a->logits, at, vw_floats(x), dtype);
    }
    for (; t < end; t++) {
      if (!(word >> (t - begin) & 1u)) {
        nn_store_as(a->logits, r * a->vocab + t, -INFINITY, dtype);
      }
    }
  }
}

NN_TASK(mask_task, nn_mask_logits_args, NN_SWITCH_DTYPE(job->dtype, mask_row(job, task, DT)))

int32_t NN_KERNEL(mask_logits)(nncuda_ctx *ctx, const void *args) {
  const nn_mask_logits_args *a = args;
  NN_TRY(nn_check_range(ctx, "mask_of", a->mask_of, a->rows, -1, a->n - 1, ""));
  nn_mask_logits_args job = *a;
  nn_parallel(ctx, a->rows, mask_task, &job);
  return NNCUDA_SUCCESS;
}
