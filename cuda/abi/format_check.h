/* What entry points ask of a format and of the bytes of a row in it. */
#ifndef NN_ABI_FORMAT_CHECK_H
#define NN_ABI_FORMAT_CHECK_H

#include "abi/ternary.h"
#include "numbers/format.h"
#include "runtime/call.h"

/* Fails the call unless `format` is known, `elements` are whole blocks of it, and `row_bytes` is their size. The names
 * are those of the call. */
static inline void nn_check_row_bytes(nn_call *checked, const char *format_name, int32_t format,
                                      const char *elements_name, int64_t elements, const char *bytes_name,
                                      int64_t row_bytes) {
  const nn_format_block block = nn_format_block_of(format);
  nn_call_require(
      checked, block.elements != 0, NNCUDA_ERROR_INVALID_VALUE,
      "%s is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2) or a block format, "
      "NNCUDA_FORMAT_Q4_0 (10) to NNCUDA_FORMAT_MXFP4 (19) or NNCUDA_FORMAT_IQ4_XS (21) to NNCUDA_FORMAT_Q3_K (23), or "
      "in a product one of their _R16 forms, 20 more",
      format_name, format);
  nn_call_require(checked, format != NNCUDA_FORMAT_E4M3, NNCUDA_ERROR_INVALID_VALUE,
                  "%s is NNCUDA_FORMAT_E4M3 (%d), in which caches are stored, not weights", format_name, format);
  if (block.elements == 0) {
    return;
  }
  nn_call_require(checked, elements % block.elements == 0, NNCUDA_ERROR_INVALID_SIZE,
                  "%s is %lld; in this format it must be a multiple of %lld, the elements of a block", elements_name,
                  (long long)elements, (long long)block.elements);
  const int64_t expected = nn_mul(elements / block.elements, block.bytes);
  nn_call_require(checked, row_bytes == expected, NNCUDA_ERROR_INVALID_SIZE,
                  "%s is %lld; it must be %lld, the bytes of a row in this format with %s %lld", bytes_name,
                  (long long)row_bytes, (long long)expected, elements_name, (long long)elements);
}

/* Fails the call where numbers are to be stored in a format that is read alone. */
static inline void nn_check_is_stored(nn_call *checked, const char *format_name, int32_t format) {
  nn_call_require(checked, nn_format_is_stored(format), NNCUDA_ERROR_INVALID_VALUE,
                  "%s is %s (%d), which is read and not stored", format_name,
                  format == NNCUDA_FORMAT_IQ4_NL  ? "NNCUDA_FORMAT_IQ4_NL"
                  : format == NNCUDA_FORMAT_MXFP4 ? "NNCUDA_FORMAT_MXFP4"
                                                  : "NNCUDA_FORMAT_IQ4_XS",
                  format);
}

/* Fails the call where rows lie side by side, since it takes them one by one. */
static inline void nn_check_not_interleaved(nn_call *checked, const char *format_name, int32_t format) {
  nn_call_require(checked, nn_format_of_interleaved(format) < 0, NNCUDA_ERROR_INVALID_VALUE,
                  "%s is %d, sixteen rows side by side, which only products take; here it must be %d", format_name,
                  format, nn_format_of_interleaved(format));
}

/* Fails the call unless the rows of a matrix in an _R16 format are whole sixteens. */
static inline void nn_check_interleaved_rows(nn_call *checked, const char *format_name, int32_t format,
                                             const char *rows_name, int64_t rows) {
  nn_call_require(checked, nn_format_of_interleaved(format) < 0 || rows % NN_INTERLEAVED_ROWS == 0,
                  NNCUDA_ERROR_INVALID_SIZE, "%s is %lld; with %s %d it must be a multiple of 16", rows_name,
                  (long long)rows, format_name, format);
}

/* Fails the call unless `stored` and `row_bytes` are those of n rows of k packed weights. */
static inline void nn_check_packed(nn_call *call, int64_t n, int64_t k, int64_t stored, int64_t row_bytes) {
  const int64_t rows = n / NN_TERNARY_ROWS + (n % NN_TERNARY_ROWS != 0);
  const int64_t columns = k / NN_TERNARY_COLUMNS + (k % NN_TERNARY_COLUMNS != 0);
  nn_call_require(call, stored == nn_mul(rows, NN_TERNARY_ROWS), NNCUDA_ERROR_INVALID_SIZE,
                  "stored is %lld; it must be %lld, n rounded up to a multiple of 16", (long long)stored,
                  (long long)nn_mul(rows, NN_TERNARY_ROWS));
  nn_call_require(call, row_bytes == nn_mul(columns, 4), NNCUDA_ERROR_INVALID_SIZE,
                  "row_bytes is %lld; it must be %lld, four for every 16 of k %lld", (long long)row_bytes,
                  (long long)nn_mul(columns, 4), (long long)k);
}

/* Fails the call unless `format` is one of paged caches and `page_bytes` the size of a page in it. */
static inline void nn_check_page(nn_call *checked, int32_t format, int64_t kv_heads, int64_t head_dim,
                                 int64_t page_bytes) {
  nn_call_require(checked,
                  format == NNCUDA_FORMAT_F32 || format == NNCUDA_FORMAT_F16 || format == NNCUDA_FORMAT_BF16 ||
                      format == NNCUDA_FORMAT_Q8_0 || format == NNCUDA_FORMAT_E4M3,
                  NNCUDA_ERROR_INVALID_VALUE,
                  "format is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), "
                  "NNCUDA_FORMAT_Q8_0 (14) or NNCUDA_FORMAT_E4M3 (20)",
                  format);
  const nn_format_block block = nn_format_block_of(format);
  if (block.elements == 0) {
    return;
  }
  nn_call_require(checked, head_dim % block.elements == 0, NNCUDA_ERROR_INVALID_SIZE,
                  "head_dim is %lld; in this format it must be a multiple of %lld", (long long)head_dim,
                  (long long)block.elements);
  const int64_t expected = nn_mul(nn_mul(kv_heads, NN_PAGE_TOKENS), nn_mul(head_dim / block.elements, block.bytes));
  nn_call_require(checked, page_bytes == expected, NNCUDA_ERROR_INVALID_SIZE,
                  "page_bytes is %lld; it must be %lld, the bytes of a page in this format with kv_heads %lld and "
                  "head_dim %lld",
                  (long long)page_bytes, (long long)expected, (long long)kv_heads, (long long)head_dim);
}

#endif
