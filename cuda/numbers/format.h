/* The formats of stored weights and caches: elements and bytes of their blocks. */
#ifndef NN_NUMBERS_FORMAT_H
#define NN_NUMBERS_FORMAT_H

#include "interface.h"

#include <stdint.h>

/* Tokens in a page of a paged cache. */
enum { NN_PAGE_TOKENS = 128 };

/* What is known of a format is a constant where the format is one, as in the functions of products, of which there is
 * one for each: so that no compiler finds it too much. */
#define NN_OF_FORMAT static inline __attribute__((always_inline, unused))

/* Elements and bytes of a block; an element where a format has no blocks. Both 0 for an unknown format. */
typedef struct nn_format_block {
  int64_t elements, bytes;
} nn_format_block;

NN_OF_FORMAT nn_format_block nn_format_block_of(int32_t format) {
  switch (format) {
  case NNCUDA_FORMAT_F32:
    return (nn_format_block){1, 4};
  case NNCUDA_FORMAT_F16:
  case NNCUDA_FORMAT_BF16:
    return (nn_format_block){1, 2};
  case NNCUDA_FORMAT_E4M3:
    return (nn_format_block){1, 1};
  case NNCUDA_FORMAT_Q4_0:
  case NNCUDA_FORMAT_Q4_0_R16:
    return (nn_format_block){32, 18};
  case NNCUDA_FORMAT_IQ4_NL:
  case NNCUDA_FORMAT_IQ4_NL_R16:
    return (nn_format_block){32, 18};
  case NNCUDA_FORMAT_MXFP4:
  case NNCUDA_FORMAT_MXFP4_R16:
    return (nn_format_block){32, 17};
  case NNCUDA_FORMAT_Q4_1:
  case NNCUDA_FORMAT_Q4_1_R16:
    return (nn_format_block){32, 20};
  case NNCUDA_FORMAT_Q5_0:
  case NNCUDA_FORMAT_Q5_0_R16:
    return (nn_format_block){32, 22};
  case NNCUDA_FORMAT_Q5_1:
  case NNCUDA_FORMAT_Q5_1_R16:
    return (nn_format_block){32, 24};
  case NNCUDA_FORMAT_Q8_0:
  case NNCUDA_FORMAT_Q8_0_R16:
    return (nn_format_block){32, 34};
  case NNCUDA_FORMAT_Q4_K:
  case NNCUDA_FORMAT_Q4_K_R16:
    return (nn_format_block){256, 144};
  case NNCUDA_FORMAT_Q5_K:
  case NNCUDA_FORMAT_Q5_K_R16:
    return (nn_format_block){256, 176};
  case NNCUDA_FORMAT_Q6_K:
  case NNCUDA_FORMAT_Q6_K_R16:
    return (nn_format_block){256, 210};
  case NNCUDA_FORMAT_Q2_K:
  case NNCUDA_FORMAT_Q2_K_R16:
    return (nn_format_block){256, 84};
  case NNCUDA_FORMAT_Q3_K:
  case NNCUDA_FORMAT_Q3_K_R16:
    return (nn_format_block){256, 110};
  case NNCUDA_FORMAT_IQ4_XS:
  case NNCUDA_FORMAT_IQ4_XS_R16:
    return (nn_format_block){256, 136};
  default:
    return (nn_format_block){0, 0};
  }
}

/* Rows that are interleaved in the _R16 formats. */
enum { NN_INTERLEAVED_ROWS = 16 };

/* The format of an interleaved form; -1 where it is none. */
static inline int32_t nn_format_of_interleaved(int32_t format) {
  const int32_t plain = format - (NNCUDA_FORMAT_Q4_0_R16 - NNCUDA_FORMAT_Q4_0);
  return plain >= NNCUDA_FORMAT_Q4_0 && plain < NNCUDA_FORMAT_Q4_0_R16 && nn_format_block_of(plain).elements > 1 ? plain
                                                                                                                 : -1;
}

/* Whether the codes of a format, four bits each, number the values of a table (numbers/code_table.h). */
NN_OF_FORMAT int32_t nn_format_has_table(int32_t format) {
  return format == NNCUDA_FORMAT_IQ4_NL || format == NNCUDA_FORMAT_IQ4_XS || format == NNCUDA_FORMAT_MXFP4;
}

/* Whether products see codes as signed bytes of any size: what is stored in q8_0, or comes from a table. Of the other
 * formats they are unsigned, of six bits at most. */
NN_OF_FORMAT int32_t nn_format_is_signed(int32_t format) {
  return format == NNCUDA_FORMAT_Q8_0 || nn_format_has_table(format);
}

/* Whether numbers can be stored in a block format; the others are read. */
NN_OF_FORMAT int32_t nn_format_is_stored(int32_t format) { return !nn_format_has_table(format); }

/* Whether products apply whole factors to the integers of 16 elements each: a block of 256 has sixteen such parts. */
NN_OF_FORMAT int32_t nn_format_has_factors(int32_t format) {
  return format == NNCUDA_FORMAT_Q2_K || format == NNCUDA_FORMAT_Q3_K || format == NNCUDA_FORMAT_Q6_K;
}

/* Whether those parts have minima, too, whole multiples of the block's. */
NN_OF_FORMAT int32_t nn_format_has_part_minima(int32_t format) { return format == NNCUDA_FORMAT_Q2_K; }

/* Whether 32 elements of a format share a minimum beside their scale. */
NN_OF_FORMAT int32_t nn_format_has_minimum(int32_t format) {
  return format == NNCUDA_FORMAT_Q4_1 || format == NNCUDA_FORMAT_Q5_1 || format == NNCUDA_FORMAT_Q4_K ||
         format == NNCUDA_FORMAT_Q5_K;
}

/* Bytes of a row; -1 when the format is unknown, the row does not end with a whole block, or the bytes do not fit. */
NN_OF_FORMAT int64_t nn_format_row_bytes(int32_t format, int64_t elements) {
  const nn_format_block block = nn_format_block_of(format);
  int64_t bytes;
  if (block.elements == 0 || elements < 0 || elements % block.elements != 0 ||
      __builtin_mul_overflow(elements / block.elements, block.bytes, &bytes)) {
    return -1;
  }
  return bytes;
}

#endif
