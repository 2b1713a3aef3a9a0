/* Streams and events: the checks that both engines share. */
#include "call.h"
#include "context.h"
#include "memory.h"
#include "trace.h"

/* Checks a stream that may be null, and that no graph is being captured. */
static int32_t check_stream(nncuda_ctx *ctx, const nncuda_stream *stream) {
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  return stream == NULL ? NNCUDA_SUCCESS : nn_handle_check(ctx, stream, NN_HANDLE_STREAM, "stream");
}

/* Checks an event, and that no graph is being captured. */
static int32_t check_event(nncuda_ctx *ctx, const nncuda_event *event, const char *name) {
  return ctx->capture != NULL ? nn_fail_capturing(ctx) : nn_handle_check(ctx, event, NN_HANDLE_EVENT, name);
}

static int32_t check_both(nncuda_ctx *ctx, const nncuda_stream *stream, const nncuda_event *event) {
  const int32_t status = check_stream(ctx, stream);
  return status != NNCUDA_SUCCESS ? status : nn_handle_check(ctx, event, NN_HANDLE_EVENT, "event");
}

static int32_t stream_create(nncuda_ctx *ctx, nncuda_stream **stream) {
  if (stream == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "stream is null; it must say where to put the stream");
  }
  *stream = NULL;
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  nncuda_stream *made = NULL;
  int32_t status = ctx->engine->streams->stream_create(ctx, &made);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  status = nn_handle_add(ctx, made, NN_HANDLE_STREAM);
  if (status != NNCUDA_SUCCESS) {
    ctx->engine->streams->stream_destroy(ctx, made);
    return status;
  }
  *stream = made;
  return NNCUDA_SUCCESS;
}

static int32_t stream_destroy(nncuda_ctx *ctx, nncuda_stream *stream) {
  const int32_t status = check_stream(ctx, stream);
  if (status == NNCUDA_SUCCESS && stream != NULL) {
    nn_table_remove(&ctx->handles, stream);
    ctx->engine->streams->stream_destroy(ctx, stream);
  }
  return status;
}

static int32_t stream_synchronize(nncuda_ctx *ctx, nncuda_stream *stream) {
  const int32_t status = check_stream(ctx, stream);
  return status != NNCUDA_SUCCESS ? status : ctx->engine->streams->stream_synchronize(ctx, stream);
}

static int32_t stream_wait_event(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  const int32_t status = check_both(ctx, stream, event);
  return status != NNCUDA_SUCCESS ? status : ctx->engine->streams->stream_wait_event(ctx, stream, event);
}

static int32_t event_create(nncuda_ctx *ctx, nncuda_event **event) {
  if (event == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "event is null; it must say where to put the event");
  }
  *event = NULL;
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  nncuda_event *made = NULL;
  int32_t status = ctx->engine->streams->event_create(ctx, &made);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  status = nn_handle_add(ctx, made, NN_HANDLE_EVENT);
  if (status != NNCUDA_SUCCESS) {
    ctx->engine->streams->event_destroy(ctx, made);
    return status;
  }
  *event = made;
  return NNCUDA_SUCCESS;
}

static int32_t event_destroy(nncuda_ctx *ctx, nncuda_event *event) {
  const int32_t status = event == NULL ? NNCUDA_SUCCESS : check_event(ctx, event, "event");
  if (status == NNCUDA_SUCCESS && event != NULL) {
    nn_table_remove(&ctx->handles, event);
    ctx->engine->streams->event_destroy(ctx, event);
  }
  return status;
}

static int32_t event_record(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  const int32_t status = check_both(ctx, stream, event);
  return status != NNCUDA_SUCCESS ? status : ctx->engine->streams->event_record(ctx, stream, event);
}

static int32_t event_synchronize(nncuda_ctx *ctx, nncuda_event *event) {
  const int32_t status = check_event(ctx, event, "event");
  return status != NNCUDA_SUCCESS ? status : ctx->engine->streams->event_synchronize(ctx, event);
}

static int32_t event_query(nncuda_ctx *ctx, nncuda_event *event, int32_t *happened) {
  const int32_t status = check_event(ctx, event, "event");
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (happened == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "happened is null; it must say where to put the answer");
  }
  return ctx->engine->streams->event_query(ctx, event, happened);
}

static int32_t event_elapsed(nncuda_ctx *ctx, nncuda_event *start, nncuda_event *end, float *milliseconds) {
  int32_t status = check_event(ctx, start, "start");
  if (status == NNCUDA_SUCCESS) {
    status = check_event(ctx, end, "end");
  }
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (milliseconds == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "milliseconds is null; it must say where to put the time");
  }
  return ctx->engine->streams->event_elapsed(ctx, start, end, milliseconds);
}

int32_t nncuda_memcpy_async(nncuda_ctx *ctx, nncuda_stream *stream, void *destination, const void *source,
                            int64_t bytes, int32_t kind) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_memcpy);
  if (call.entered) {
    ctx->function = __func__;
  }
  nn_declare_copy(&call, destination, source, bytes, kind);
  if (stream == NULL) {
    return nn_call_launch(&call, &(nn_memcpy_args){destination, source, bytes, kind, 0}, sizeof(nn_memcpy_args));
  }
  const int32_t wanted = nn_call_check(&call);
  if (!call.entered) {
    return call.status;
  }
  if (call.status == NNCUDA_SUCCESS) {
    call.status = check_stream(ctx, stream);
  }
  if (call.status == NNCUDA_SUCCESS && wanted) {
    nn_trace_forget(ctx, destination, (size_t)bytes);
    call.status = ctx->engine->streams->stream_copy(ctx, stream, destination, source, (size_t)bytes, kind);
  }
  return nn_ctx_leave(ctx, call.status);
}

int32_t nncuda_stream_create(nncuda_ctx *ctx, nncuda_stream **stream) { NN_INSIDE(ctx, stream_create(ctx, stream)); }

int32_t nncuda_stream_destroy(nncuda_ctx *ctx, nncuda_stream *stream) { NN_INSIDE(ctx, stream_destroy(ctx, stream)); }

int32_t nncuda_stream_synchronize(nncuda_ctx *ctx, nncuda_stream *stream) {
  NN_INSIDE(ctx, stream_synchronize(ctx, stream));
}

int32_t nncuda_stream_wait_event(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  NN_INSIDE(ctx, stream_wait_event(ctx, stream, event));
}

int32_t nncuda_event_create(nncuda_ctx *ctx, nncuda_event **event) { NN_INSIDE(ctx, event_create(ctx, event)); }

int32_t nncuda_event_destroy(nncuda_ctx *ctx, nncuda_event *event) { NN_INSIDE(ctx, event_destroy(ctx, event)); }

int32_t nncuda_event_record(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  NN_INSIDE(ctx, event_record(ctx, stream, event));
}

int32_t nncuda_event_synchronize(nncuda_ctx *ctx, nncuda_event *event) {
  NN_INSIDE(ctx, event_synchronize(ctx, event));
}

int32_t nncuda_event_query(nncuda_ctx *ctx, nncuda_event *event, int32_t *happened) {
  NN_INSIDE(ctx, event_query(ctx, event, happened));
}

int32_t nncuda_event_elapsed(nncuda_ctx *ctx, nncuda_event *start, nncuda_event *end, float *milliseconds) {
  NN_INSIDE(ctx, event_elapsed(ctx, start, end, milliseconds));
}
