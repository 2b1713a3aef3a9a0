#include "profile.h"

#include <stdlib.h>
#include <time.h>

int64_t nn_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Bytes that the call reads and writes by its declaration: what is read and overwritten, or added to, counts twice. */
static double bytes_of(const nn_record *record) {
  double bytes = record->bytes;
  for (int32_t i = 0; i < record->tensors; i++) {
    const nn_tensor *tensor = &record->tensor[i];
    if (tensor->data != NULL && !(tensor->role & NN_ROLE_PARTS)) {
      const int32_t moves = (tensor->role & NN_ROLE_INOUT) == NN_ROLE_INOUT ? 2 : 1;
      bytes += moves * (double)tensor->rows * (double)tensor->width;
    }
  }
  return bytes;
}

void nn_profile_add(nncuda_ctx *ctx, const nn_record *record, int64_t begin, int64_t end) {
  nn_profile *profile = &ctx->profile;
  if (profile->count == profile->capacity) {
    const size_t capacity = profile->capacity == 0 ? 1024 : 2 * profile->capacity;
    nn_measurement *calls = realloc(profile->calls, capacity * sizeof *calls);
    if (calls == NULL) {
      profile->lost++;
      ctx->engine->forget(ctx, begin);
      ctx->engine->forget(ctx, end);
      return;
    }
    profile->calls = calls;
    profile->capacity = capacity;
  }
  profile->calls[profile->count++] = (nn_measurement){
      .op = record->op, .begin = begin, .duration = end, .bytes = bytes_of(record), .flops = record->flops};
}

void nn_profile_release(nn_profile *profile) {
  free(profile->calls);
  *profile = (nn_profile){0};
}

typedef struct summary {
  nn_op op;
  int64_t calls, nanoseconds, shortest, longest;
  double bytes, flops;
} summary;

static int by_time(const void *a, const void *b) {
  const summary *x = a, *y = b;
  return x->nanoseconds != y->nanoseconds ? (x->nanoseconds < y->nanoseconds ? 1 : -1) : (int)x->op - (int)y->op;
}

/* One entry a kernel that was called, the longest in all first. Returns how many. */
static int32_t summarise(const nn_profile *profile, summary sums[NN_OP_ALL]) {
  for (int32_t op = 0; op < NN_OP_ALL; op++) {
    sums[op] = (summary){.op = (nn_op)op, .shortest = INT64_MAX};
  }
  for (size_t i = 0; i < profile->count; i++) {
    const nn_measurement *call = &profile->calls[i];
    summary *sum = &sums[call->op];
    sum->calls++;
    sum->nanoseconds += call->duration;
    sum->shortest = call->duration < sum->shortest ? call->duration : sum->shortest;
    sum->longest = call->duration > sum->longest ? call->duration : sum->longest;
    sum->bytes += call->bytes;
    sum->flops += call->flops;
  }
  int32_t used = 0;
  for (int32_t op = 0; op < NN_OP_ALL; op++) {
    if (sums[op].calls != 0) {
      sums[used++] = sums[op];
    }
  }
  qsort(sums, (size_t)used, sizeof *sums, by_time);
  return used;
}

/* Per nanosecond is giga per second. */
static double rate(double amount, int64_t nanoseconds) { return nanoseconds == 0 ? 0 : amount / (double)nanoseconds; }

static void write_table(const nn_profile *profile, nn_text *text) {
  summary sums[NN_OP_ALL];
  const int32_t used = summarise(profile, sums);
  int64_t calls = 0, total = 0;
  for (int32_t i = 0; i < used; i++) {
    calls += sums[i].calls;
    total += sums[i].nanoseconds;
  }
  nn_text_add(text, "%-32s %9s %11s %6s %11s %11s %9s %9s\n", "kernel", "calls", "total ms", "%", "mean us",
              "longest us", "GB/s", "GFLOP/s");
  for (int32_t i = 0; i < used; i++) {
    const summary *sum = &sums[i];
    nn_text_add(text, "%-32s %9lld %11.3f %6.1f %11.2f %11.2f %9.2f %9.2f\n", nn_op_name(sum->op),
                (long long)sum->calls, (double)sum->nanoseconds * 1e-6,
                100.0 * (double)sum->nanoseconds / (total == 0 ? 1.0 : (double)total),
                (double)sum->nanoseconds * 1e-3 / (double)sum->calls, (double)sum->longest * 1e-3,
                rate(sum->bytes, sum->nanoseconds), rate(sum->flops, sum->nanoseconds));
  }
  nn_text_add(text, "%-32s %9lld %11.3f of %.3f ms profiled\n", "all", (long long)calls, (double)total * 1e-6,
              (double)profile->length * 1e-6);
  if (profile->lost != 0) {
    nn_text_add(text, "%zu calls are missing: there was no memory to note them\n", profile->lost);
  }
}

static void write_json(const nn_profile *profile, nn_text *text) {
  summary sums[NN_OP_ALL];
  const int32_t used = summarise(profile, sums);
  nn_text_add(text, "{\"profiled_ns\": %lld, \"lost_calls\": %zu, \"kernels\": [", (long long)profile->length,
              profile->lost);
  for (int32_t i = 0; i < used; i++) {
    const summary *sum = &sums[i];
    nn_text_add(text,
                "%s\n  {\"kernel\": \"%s\", \"calls\": %lld, \"total_ns\": %lld, \"shortest_ns\": %lld, "
                "\"longest_ns\": %lld, \"bytes\": %.17g, \"flops\": %.17g}",
                i == 0 ? "" : ",", nn_op_name(sum->op), (long long)sum->calls, (long long)sum->nanoseconds,
                (long long)sum->shortest, (long long)sum->longest, sum->bytes, sum->flops);
  }
  nn_text_add(text, "%s]}\n", used == 0 ? "" : "\n");
}

/* The Trace Event Format: "X" is a complete event, times in microseconds. */
static void write_chrome_trace(const nn_profile *profile, nn_text *text) {
  nn_text_add(text, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
  for (size_t i = 0; i < profile->count; i++) {
    const nn_measurement *call = &profile->calls[i];
    nn_text_add(text,
                "%s\n  {\"name\": \"%s\", \"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": %.3f, \"dur\": %.3f, "
                "\"args\": {\"bytes\": %.17g, \"flops\": %.17g}}",
                i == 0 ? "" : ",", nn_op_name(call->op), (double)call->begin * 1e-3, (double)call->duration * 1e-3,
                call->bytes, call->flops);
  }
  nn_text_add(text, "%s]}\n", profile->count == 0 ? "" : "\n");
}

static int32_t begin(nncuda_ctx *ctx) {
  if (ctx->profile.running) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "the profiler is running already; call nncuda_profile_end first");
  }
  nn_profile_release(&ctx->profile);
  ctx->profile.running = 1;
  ctx->profile.begin = ctx->engine->stamp(ctx);
  return NNCUDA_SUCCESS;
}

int32_t nn_profile_stop(nncuda_ctx *ctx) {
  nn_profile *profile = &ctx->profile;
  const nn_engine *engine = ctx->engine;
  profile->running = 0;
  const int64_t last = engine->stamp(ctx);
  const int32_t status = engine->synchronize(ctx);
  profile->length = engine->elapsed(ctx, profile->begin, last);
  for (size_t i = 0; i < profile->count; i++) {
    nn_measurement *call = &profile->calls[i];
    const int64_t from = call->begin, to = call->duration;
    call->begin = engine->elapsed(ctx, profile->begin, from);
    call->duration = engine->elapsed(ctx, from, to);
    engine->forget(ctx, from);
    engine->forget(ctx, to);
  }
  engine->forget(ctx, profile->begin);
  engine->forget(ctx, last);
  return status;
}

static int32_t end(nncuda_ctx *ctx) {
  if (!ctx->profile.running) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "the profiler is not running; call nncuda_profile_begin first");
  }
  return nn_profile_stop(ctx);
}

static int32_t report(nncuda_ctx *ctx, int32_t form, char *text, int64_t capacity, int64_t *needed) {
  if (form < NNCUDA_REPORT_TABLE || form > NNCUDA_REPORT_CHROME_TRACE) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "form is %d; it must be one of NNCUDA_REPORT_*, 0 to 2", form);
  }
  int32_t status = nn_text_check(ctx, text, capacity, needed);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (ctx->profile.running) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "the profiler is running; call nncuda_profile_end first");
  }
  nn_text whole = {0};
  if (form == NNCUDA_REPORT_TABLE) {
    write_table(&ctx->profile, &whole);
  } else if (form == NNCUDA_REPORT_JSON) {
    write_json(&ctx->profile, &whole);
  } else {
    write_chrome_trace(&ctx->profile, &whole);
  }
  status = nn_text_deliver(ctx, &whole, text, capacity, needed);
  nn_text_release(&whole);
  return status;
}

int32_t nncuda_profile_begin(nncuda_ctx *ctx) { NN_INSIDE(ctx, begin(ctx)); }

int32_t nncuda_profile_end(nncuda_ctx *ctx) { NN_INSIDE(ctx, end(ctx)); }

int32_t nncuda_profile_report(nncuda_ctx *ctx, int32_t form, char *text, int64_t capacity, int64_t *needed) {
  NN_INSIDE(ctx, report(ctx, form, text, capacity, needed));
}
