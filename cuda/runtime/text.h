/* Text that grows: reports of the profiler, lines of the trace. */
#ifndef NN_RUNTIME_TEXT_H
#define NN_RUNTIME_TEXT_H

#include "interface.h"

#include <stddef.h>
#include <stdint.h>

typedef struct nn_text {
  char *data; /* zero-terminated once anything was added */
  size_t length, capacity;
  int32_t lost; /* something could not be added for lack of memory */
} nn_text;

void nn_text_add(nn_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Nine digits, and no sign of a NaN: which it has says nothing, and depends on the machine. */
void nn_text_number(nn_text *text, double value);
/* A string of JSON. What is not UTF-8 stays as it is. */
void nn_text_quote(nn_text *text, const char *words);
void nn_text_release(nn_text *text);

/* What the report functions share: checks their arguments, copies as much as fits, says how much there was. */
int32_t nn_text_check(nncuda_ctx *ctx, const char *text, int64_t capacity, const int64_t *needed);
int32_t nn_text_deliver(nncuda_ctx *ctx, const nn_text *source, char *text, int64_t capacity, int64_t *needed);

#endif
