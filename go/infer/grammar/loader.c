#include "loader.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The layouts are those of llguidance.h. */

typedef struct {
  size_t struct_size;
  uint32_t vocab_size;
  uint32_t tok_eos;
  const uint32_t *token_lens;
  const uint8_t *token_bytes;
  const char *tokenizer_json;
  bool tokenize_assumes_string;
  size_t (*tokenize_fn)(const void *, const uint8_t *, size_t, uint32_t *, size_t);
  bool use_approximate_greedy_tokenize_fn;
  const void *tokenize_user_data;
  const char *const *slices;
  const uint32_t *tok_eos_extra;
  uint32_t tok_eos_extra_count;
} vocabulary_init;

/* The beginning of LlgConstraintInit; the limits of a parser come after it, as the library sets them. */
typedef struct {
  const void *tokenizer;
  uint32_t log_buffer_level;
  uint32_t log_stderr_level;
  uint64_t rest[62];
} matcher_init;

static struct {
  const char *(*llg_get_version)(void);
  void *(*llg_new_tokenizer_v2)(const vocabulary_init *, char *, size_t);
  void (*llg_free_tokenizer)(void *);
  void (*llg_constraint_init_set_defaults)(matcher_init *, const void *);
  void *(*llg_new_matcher)(const matcher_init *, const char *, const char *);
  void *(*llg_clone_matcher)(const void *);
  void (*llg_free_matcher)(void *);
  const char *(*llg_matcher_get_error)(void *);
  bool (*llg_matcher_is_error)(const void *);
  bool (*llg_matcher_is_stopped)(const void *);
  size_t (*llg_matcher_get_mask_byte_size)(const void *);
  int32_t (*llg_matcher_compute_mask_into)(void *, uint32_t *, size_t);
  int32_t (*llg_matcher_consume_token)(void *, uint32_t);
} llg;

/* In the order of the pointers. */
static const char *const names[] = {
    "llg_get_version",
    "llg_new_tokenizer_v2",
    "llg_free_tokenizer",
    "llg_constraint_init_set_defaults",
    "llg_new_matcher",
    "llg_clone_matcher",
    "llg_free_matcher",
    "llg_matcher_get_error",
    "llg_matcher_is_error",
    "llg_matcher_is_stopped",
    "llg_matcher_get_mask_byte_size",
    "llg_matcher_compute_mask_into",
    "llg_matcher_consume_token",
};

_Static_assert(sizeof llg == sizeof names / sizeof names[0] * sizeof(void *), "a pointer a function");

int nn_llg_load(const char *path, const char *versions, char *text, size_t capacity) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char *why = dlerror();
    snprintf(text, capacity, "%s", why != NULL ? why : "it cannot be opened");
    return NN_LLG_NOT_OPENED;
  }
  void *found[sizeof names / sizeof names[0]];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    found[i] = dlsym(library, names[i]);
    if (found[i] == NULL) {
      snprintf(text, capacity, "%s", names[i]);
      dlclose(library);
      return NN_LLG_INCOMPLETE;
    }
  }
  memcpy(&llg, found, sizeof llg);
  snprintf(text, capacity, "%s", llg.llg_get_version());
  /* It stays open: code of Rust does not like to be unloaded. */
  return strncmp(text, versions, strlen(versions)) == 0 ? NN_LLG_LOADED : NN_LLG_OTHER_VERSION;
}

void *nn_llg_vocabulary(uint32_t size, const uint32_t *lengths, const uint8_t *bytes, const uint32_t *ends, uint32_t count,
                        char *text, size_t capacity) {
  const vocabulary_init init = {
      .struct_size = sizeof init,
      .vocab_size = size,
      .tok_eos = ends[0],
      .token_lens = lengths,
      .token_bytes = bytes,
      .use_approximate_greedy_tokenize_fn = true, /* of pieces of a text; none is cut */
      .tok_eos_extra = ends + 1,
      .tok_eos_extra_count = count - 1,
  };
  return llg.llg_new_tokenizer_v2(&init, text, capacity);
}

void nn_llg_free_vocabulary(void *vocabulary) { llg.llg_free_tokenizer(vocabulary); }

void *nn_llg_matcher(void *vocabulary, const char *grammar) {
  matcher_init init = {0};
  llg.llg_constraint_init_set_defaults(&init, vocabulary);
  init.log_stderr_level = 0;
  return llg.llg_new_matcher(&init, "llguidance", grammar);
}

void *nn_llg_copy(const void *matcher) { return llg.llg_clone_matcher(matcher); }

void nn_llg_free_matcher(void *matcher) { llg.llg_free_matcher(matcher); }

const char *nn_llg_error(void *matcher) {
  return llg.llg_matcher_is_error(matcher) ? llg.llg_matcher_get_error(matcher) : NULL;
}

int nn_llg_is_stopped(const void *matcher) { return llg.llg_matcher_is_stopped(matcher); }

size_t nn_llg_mask_bytes(const void *matcher) { return llg.llg_matcher_get_mask_byte_size(matcher); }

int nn_llg_mask(void *matcher, uint32_t *words, size_t bytes) {
  return llg.llg_matcher_compute_mask_into(matcher, words, bytes);
}

int nn_llg_accept(void *matcher, uint32_t token) { return llg.llg_matcher_consume_token(matcher, token); }
