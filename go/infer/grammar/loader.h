/*
 * The functions of llguidance's C interface that this package calls, found in libllguidance when the program runs: it is not
 * linked to the library, and works where there is none.
 */
#ifndef NNCUDA_GO_GRAMMAR_LOADER_H
#define NNCUDA_GO_GRAMMAR_LOADER_H

#include <stddef.h>
#include <stdint.h>

/* How nn_llg_load ended. */
enum { NN_LLG_LOADED, NN_LLG_NOT_OPENED, NN_LLG_INCOMPLETE, NN_LLG_OTHER_VERSION };

/*
 * Opens the library at `path` (a bare name is the system loader's to find). `text` gets its version, or what was wrong:
 * the system's words, the name of the missing function, or the other version. `versions` is what a version begins with.
 */
int nn_llg_load(const char *path, const char *versions, char *text, size_t capacity);

/*
 * A vocabulary of `size` tokens, whose bytes lie one after the other, and some of which end a text. NULL when llguidance
 * refuses it, and `text` says why.
 */
void *nn_llg_vocabulary(uint32_t size, const uint32_t *lengths, const uint8_t *bytes, const uint32_t *ends, uint32_t count,
                        char *text, size_t capacity);
void nn_llg_free_vocabulary(void *vocabulary);

/* A matcher of a grammar in llguidance's own words; nn_llg_error tells whether it is one. */
void *nn_llg_matcher(void *vocabulary, const char *grammar);
void *nn_llg_copy(const void *matcher);
void nn_llg_free_matcher(void *matcher);

/* What ended a matcher, or NULL. It is the matcher's, until that is freed. */
const char *nn_llg_error(void *matcher);
/* Whether the grammar allows no more text. */
int nn_llg_is_stopped(const void *matcher);
/* Bytes of a mask. */
size_t nn_llg_mask_bytes(const void *matcher);
/* Both are 0 unless nn_llg_error says what is wrong. */
int nn_llg_mask(void *matcher, uint32_t *words, size_t bytes);
int nn_llg_accept(void *matcher, uint32_t token);

#endif
