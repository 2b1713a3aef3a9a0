#include "text.h"

#include "engine.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t grow(nn_text *text, size_t more) {
  if (text->length + more < text->capacity) {
    return 1;
  }
  size_t capacity = text->capacity == 0 ? 4096 : text->capacity;
  while (capacity <= text->length + more) {
    capacity *= 2;
  }
  char *data = realloc(text->data, capacity);
  if (data == NULL) {
    return 0;
  }
  text->data = data;
  text->capacity = capacity;
  return 1;
}

void nn_text_add(nn_text *text, const char *format, ...) {
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  const size_t room = text->capacity - text->length;
  int length = vsnprintf(room == 0 ? NULL : text->data + text->length, room, format, list);
  if (length >= 0 && (size_t)length >= room) {
    length = grow(text, (size_t)length)
                 ? vsnprintf(text->data + text->length, text->capacity - text->length, format, again)
                 : -1;
  }
  if (length < 0) {
    text->lost = 1;
    if (text->length < text->capacity) {
      text->data[text->length] = '\0';
    }
  } else {
    text->length += (size_t)length;
  }
  va_end(again);
  va_end(list);
}

void nn_text_number(nn_text *text, double value) {
  if (isnan(value)) {
    nn_text_add(text, "nan");
  } else {
    nn_text_add(text, "%.9g", value);
  }
}

void nn_text_quote(nn_text *text, const char *words) {
  nn_text_add(text, "\"");
  for (; *words != '\0'; words++) {
    const unsigned char letter = (unsigned char)*words;
    nn_text_add(text, letter < 0x20 ? "\\u%04x" : letter == '"' || letter == '\\' ? "\\%c" : "%c", letter);
  }
  nn_text_add(text, "\"");
}

void nn_text_release(nn_text *text) {
  free(text->data);
  *text = (nn_text){NULL, 0, 0, 0};
}

int32_t nn_text_check(nncuda_ctx *ctx, const char *text, int64_t capacity, const int64_t *needed) {
  if (capacity < 0) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_SIZE, "capacity is %lld; it must be at least 0", (long long)capacity);
  }
  if (text == NULL && capacity > 0) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "text is null; it may be only when capacity is 0");
  }
  if (needed == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "needed is null; it must say where to put the size");
  }
  return NNCUDA_SUCCESS;
}

int32_t nn_text_deliver(nncuda_ctx *ctx, const nn_text *source, char *text, int64_t capacity, int64_t *needed) {
  if (source->lost) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for the whole text");
  }
  *needed = (int64_t)source->length + 1;
  if (capacity > 0) {
    const size_t length = source->length < (size_t)capacity ? source->length : (size_t)capacity - 1;
    if (length > 0) {
      memcpy(text, source->data, length);
    }
    text[length] = '\0';
  }
  return NNCUDA_SUCCESS;
}
