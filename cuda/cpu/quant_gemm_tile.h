/*
 * Products with stored weights in the tile registers of AMX. The rows of a tile of weights are 16 rows of the matrix,
 * so that they need no transposition, and its columns, as those of the sums, 16 rows of the activations.
 *
 * Block formats: a block of 32 of 16 rows is one product of depth 32, whose integers go through memory to the one fused
 * multiply-add that each adds to its sum. 48 vector instructions on two ports, 24 cycles, are the floor of a tile of
 * 16 x 16 x 32, of which the multiplication itself takes 16 on the side. Weights are unpacked DEPTH elements at a time
 * for all rows of the panel. Where parts of 16 have factors, products of code and factor are multiplied. In q6_k
 * these have 14 bits: 64 * high + low, two multiplications. In q2_k and, the sign turned, q3_k they are bytes; the
 * second multiplication of q2_k is by what multiplies the minimum.
 */
#ifndef NN_CPU_QUANT_GEMM_TILE_H
#define NN_CPU_QUANT_GEMM_TILE_H

#include "amx.h"
#include "quant_gemm_codes_avx512.h"
#include "quant_gemm_rows.h"

enum {
  QUANT_TILE = QUANT_ROWS,
  QUANT_TILE_DEPTH = 512, /* elements of k unpacked at once: 32 KB for QUANT_TILE_GROUP tiles, which stay in L1 beside
                             the activations */
  QUANT_TILE_GROUP = QUANT_COLUMNS / QUANT_TILE,
  QUANT_TILE_BLOCKS = QUANT_TILE_DEPTH / QUANT_BLOCK,
  QUANT_TILE_SUMS = QUANT_TILE * QUANT_TILE
};

/* Scratch memory of a task. */
typedef struct tile_work {
  int8_t code[QUANT_TILE_GROUP][2][QUANT_TILE_BLOCKS / 2][QUANT_TILE]
             [64]; /* two blocks a line; the second for tile_has_second */
  float scale[QUANT_TILE_GROUP][QUANT_TILE_BLOCKS][QUANT_TILE],
      minimum[QUANT_TILE_GROUP][QUANT_TILE_BLOCKS][QUANT_TILE];
  int32_t integers[2][2][QUANT_TILE_SUMS];
  float sums[]; /* [tiles of the panel][QUANT_TILE_GROUP][QUANT_TILE of weights][QUANT_TILE] */
} tile_work;

NN_PLAIN NN_INLINE int64_t tile_work_bytes(void) {
  return (int64_t)sizeof(tile_work) +
         QUANT_PANEL / QUANT_TILE * QUANT_TILE_GROUP * QUANT_TILE_SUMS * (int64_t)sizeof(float);
}

/* Registers 0, 1, 6, 7: sums. 2, 4: 16 rows of a block of weights; 3, 5: of the activations. */
static void tile_blocks_open(void) {
  tile_configuration config = tile_registers_full();
  config.row_bytes[2] = config.row_bytes[4] = QUANT_BLOCK;
  config.rows[3] = config.rows[5] = QUANT_BLOCK / 4;
  tile_registers_configure(&config);
}

/* Whether codes are multiplied twice: with their second halves (q6_k), or with what multiplies minima (q2_k). */
NN_INLINE int tile_has_second(int32_t format) {
  return format == NNCUDA_FORMAT_Q6_K || nn_format_has_part_minima(format);
}

/* Four bytes, each sixteen times. */
NN_INLINE __m512i tile_sixteens(uint32_t four) {
  const __m512i order = _mm512_setr_epi64(0, 0, 0x0101010101010101, 0x0101010101010101, 0x0202020202020202,
                                          0x0202020202020202, 0x0303030303030303, 0x0303030303030303);
  return _mm512_shuffle_epi8(_mm512_set1_epi32((int32_t)four), order);
}

/* Products of 64 codes with the factors of their parts, in 16 bits. */
NN_INLINE void tile_part_products(__m512i codes, uint32_t factors, __m512i *first, __m512i *second) {
  const __m512i each = tile_sixteens(factors);
  *first = _mm512_mullo_epi16(_mm512_cvtepi8_epi16(_mm512_castsi512_si256(codes)),
                              _mm512_cvtepi8_epi16(_mm512_castsi512_si256(each)));
  *second = _mm512_mullo_epi16(_mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(codes, 1)),
                               _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(each, 1)));
}

NN_INLINE void tile_store_bytes(__m512i first, __m512i second, int8_t *to) {
  _mm512_store_si512(
      to, _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(first)), _mm512_cvtepi16_epi8(second), 1));
}

/* The same in two parts: code * factor = 64 * high + low. */
NN_INLINE void tile_split_parts(__m512i codes, uint32_t factors, int8_t *high, int8_t *low) {
  __m512i first, second;
  tile_part_products(codes, factors, &first, &second);
  const __m512i half = _mm512_set1_epi16(32);
  const __m512i h0 = _mm512_srai_epi16(_mm512_add_epi16(first, half), 6);
  const __m512i h1 = _mm512_srai_epi16(_mm512_add_epi16(second, half), 6);
  const __m512i l0 = _mm512_sub_epi16(first, _mm512_slli_epi16(h0, 6));
  const __m512i l1 = _mm512_sub_epi16(second, _mm512_slli_epi16(h1, 6));
  tile_store_bytes(h0, h1, high);
  tile_store_bytes(l0, l1, low);
}

/* Blocks 2i and 2i+1 of a row of q2_k or q3_k, the products of the former beside what multiplies their minima, those of
 * the latter with their sign turned: code * factor is at most 128, and not below -124. */
NN_INLINE void tile_small_parts(const uint8_t *row, uint64_t i, __m512i codes, int8_t *products, int8_t *least,
                                const int32_t format) {
  __m512i first, second;
  if (format == NNCUDA_FORMAT_Q2_K) {
    const uint32_t both = quant_u32(row + i / 4 * 84 + i % 4 * 4);
    tile_part_products(codes, both & 0x0f0f0f0f, &first, &second);
    _mm512_store_si512(least, tile_sixteens(both >> 4 & 0x0f0f0f0f));
  } else {
    const uint8_t *scales = row + i / 4 * 110 + 96;
    const uint32_t low = quant_u32(scales + i % 2 * 4) >> (i % 4 / 2 * 4) & 0x0f0f0f0f;
    const uint32_t six = low | (quant_u32(scales + 8) >> (i % 4 * 2) & 0x03030303) << 4;
    const uint32_t factors = (six + 0x60606060) ^ 0x80808080; /* less 32, byte by byte */
    tile_part_products(_mm512_sub_epi8(_mm512_set1_epi8(4), codes), factors, &first, &second);
  }
  tile_store_bytes(first, second, products);
}

/* Blocks 2i and 2i+1 of 16 rows, as pair `to` of tile g. */
NN_INLINE void tile_unpack_pair(tile_work *work, int64_t g, quant_rows *w, uint64_t i, int64_t to, int32_t whole,
                                const int32_t format) {
  const int32_t offset = quant_offset(format);
#pragma GCC unroll 4
  for (int r = 0; r < QUANT_TILE; r++) {
    const __m512i codes = quant_codes(w->row[r], i, whole, format);
    int8_t *line = work->code[g][0][to][r];
    if (format == NNCUDA_FORMAT_Q2_K || format == NNCUDA_FORMAT_Q3_K) {
      tile_small_parts(w->row[r], i, codes, line, work->code[g][1][to][r], format);
    } else if (format == NNCUDA_FORMAT_Q6_K) {
      tile_split_parts(_mm512_sub_epi8(codes, _mm512_set1_epi8(32)),
                       quant_u32(w->row[r] + i / 4 * 210 + 192 + i % 4 * 4), line, work->code[g][1][to][r]);
    } else {
      _mm512_store_si512(line,
                         offset < 0 ? codes : _mm512_sub_epi8(codes, _mm512_set1_epi8((char)(1u << (offset & 7)))));
    }
  }
#pragma GCC unroll 2
  for (int h = 0; h < 2; h++) {
    if (h == 0 || whole) {
      vf scale, minimum;
      quant_factors(w, 2 * i + (uint64_t)h, &scale, &minimum, format);
      vf_store(work->scale[g][2 * to + h], scale);
      if (nn_format_has_minimum(format) || nn_format_has_part_minima(format)) {
        vf_store(work->minimum[g][2 * to + h], minimum);
      }
    }
  }
}

/* `blocks` blocks from block `first` on. */
NN_INLINE void tile_unpack(tile_work *work, int64_t g, quant_rows *w, int64_t first, int64_t blocks, uintptr_t next,
                           int64_t lines, const int32_t format) {
  const int32_t large = nn_format_block_of(format).elements > QUANT_BLOCK;
  uint64_t i = (uint64_t)first / 2;
  for (int64_t to = 0; to < blocks / 2;) {
    for (int64_t l = 0; l < lines * (large ? 4 : 1); l++, next += 64) {
      __builtin_prefetch((const void *)next, 0, 2);
    }
    if (large) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        tile_unpack_pair(work, g, w, i / 4 * 4 + (uint64_t)j, to + j, 1, format);
      }
      i += 4, to += 4;
    } else {
      tile_unpack_pair(work, g, w, i, to, 1, format);
      i++, to++;
    }
  }
  if (blocks % 2 != 0 && !large) {
    tile_unpack_pair(work, g, w, i, blocks / 2, 0, format);
  }
}

/* The integers of a block from those of its first multiplication, and of its second. */
NN_INLINE __m512i tile_whole(__m512i first, const int32_t *second, const int32_t format) {
  if (format == NNCUDA_FORMAT_Q6_K) {
    return _mm512_add_epi32(_mm512_slli_epi32(first, 6), _mm512_load_si512(second));
  }
  return format == NNCUDA_FORMAT_Q3_K ? _mm512_sub_epi32(_mm512_setzero_si512(), first) : first;
}

/* The integers of one block into the sums of 16 rows of weights. */
NN_INLINE void tile_add(vf *sum, int32_t (*integers)[QUANT_TILE_SUMS], const float *x_scale, const float *x_total,
                        const float *w_scale, const float *w_minimum, const int32_t format) {
  const vf scale = vf_load(x_scale), total = vf_load(x_total);
#pragma GCC unroll 16
  for (int r = 0; r < QUANT_TILE; r++) {
    __m512i v = _mm512_load_si512(integers[0] + r * QUANT_TILE);
    v = tile_whole(v, integers[1] + r * QUANT_TILE, format);
    sum[r] = vf_fma(scale * vf_set1(w_scale[r]), _mm512_cvtepi32_ps(v), sum[r]);
    if (nn_format_has_part_minima(format)) {
      const vf least = _mm512_cvtepi32_ps(_mm512_load_si512(integers[1] + r * QUANT_TILE));
      sum[r] = vf_fma(scale * vf_set1(w_minimum[r]), least, sum[r]);
    }
    if (nn_format_has_minimum(format)) {
      sum[r] = vf_fma(total, vf_set1(w_minimum[r]), sum[r]);
    }
  }
}

/* The integers of block b, in either half of `integers` by turns. */
#define QUANT_TILE_STORE(b, total_register, low_register)                                                              \
  {                                                                                                                    \
    _tile_stored(total_register, work->integers[(b) % 2][0], 64);                                                      \
    if (tile_has_second(format)) {                                                                                     \
      _tile_stored(low_register, work->integers[(b) % 2][1], 64);                                                      \
    }                                                                                                                  \
  }

/* All blocks of a tile, by the caller's MULTIPLY(block, register, register of low parts) and ADD(block): each block's
 * multiplication runs beside the additions of the one before. */
#define QUANT_TILE_RUN(count)                                                                                          \
  MULTIPLY(0, 0, 6)                                                                                                    \
  QUANT_TILE_STORE(0, 0, 6)                                                                                            \
  int64_t b = 1;                                                                                                       \
  for (; b + 1 < (count); b += 2) {                                                                                    \
    MULTIPLY(b, 1, 7)                                                                                                  \
    ADD(b - 1);                                                                                                        \
    QUANT_TILE_STORE(1, 1, 7)                                                                                          \
    MULTIPLY(b + 1, 0, 6)                                                                                              \
    ADD(b);                                                                                                            \
    QUANT_TILE_STORE(0, 0, 6)                                                                                          \
  }                                                                                                                    \
  if (b < (count)) {                                                                                                   \
    MULTIPLY(b, 1, 7)                                                                                                  \
    ADD(b - 1);                                                                                                        \
    QUANT_TILE_STORE(1, 1, 7)                                                                                          \
    b++;                                                                                                               \
  }                                                                                                                    \
  ADD(b - 1);

/* One tile of sums over `blocks` blocks: x points to the first of them. */
NN_INLINE void tile_blocks(tile_work *work, int64_t g, const int8_t *x, const float *x_scale, const float *x_total,
                           int64_t blocks, float *sums, int32_t fresh, const int32_t format) {
  vf sum[QUANT_TILE];
#pragma GCC unroll 16
  for (int r = 0; r < QUANT_TILE; r++) {
    sum[r] = fresh ? vf_set1(0.0f) : vf_load(sums + r * QUANT_TILE);
  }
#define MULTIPLY(b, total_register, low_register)                                                                      \
  {                                                                                                                    \
    const int64_t b_ = (b);                                                                                            \
    _tile_zero(total_register);                                                                                        \
    _tile_loadd(2, &work->code[g][0][b_ / 2][0][b_ % 2 * QUANT_BLOCK], 64);                                            \
    _tile_loadd(3, x + b_ * (QUANT_TILE * QUANT_BLOCK), 64);                                                           \
    _tile_dpbssd(total_register, 2, 3);                                                                                \
    if (tile_has_second(format)) {                                                                                     \
      _tile_zero(low_register);                                                                                        \
      _tile_loadd(4, &work->code[g][1][b_ / 2][0][b_ % 2 * QUANT_BLOCK], 64);                                          \
      _tile_dpbssd(low_register, 4, 3);                                                                                \
    }                                                                                                                  \
  }
#define ADD(b)                                                                                                         \
  tile_add(sum, work->integers[(b) % 2], x_scale + (b) * QUANT_TILE, x_total + (b) * QUANT_TILE, work->scale[g][b],    \
           work->minimum[g][b], format)
  QUANT_TILE_RUN(blocks)
#undef MULTIPLY
#undef ADD
#pragma GCC unroll 16
  for (int r = 0; r < QUANT_TILE; r++) {
    vf_store(sums + r * QUANT_TILE, sum[r]);
  }
}

/* Tiles of sums [QUANT_TILE of weights][QUANT_TILE], `step` apart, into the sums of the piece: columns c .. c+15. */
static void tile_turn(const quant_piece *t, int64_t c, const float *from, int64_t step) {
  for (int64_t r0 = 0; r0 < t->panel->rows; r0 += QUANT_TILE, from += step) {
    const int64_t rows = nn_min(QUANT_TILE, t->panel->rows - r0);
    const __m512i lanes = _mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 4);
    for (int64_t r = 0; r < rows; r++) {
      vf_store(t->sums + (r0 + r) * t->ld + c, _mm512_i32gather_ps(lanes, from + r, 4));
    }
  }
}

NN_INLINE void quant_tiles(const quant_piece *t, const int32_t format) {
  const quant_activations *acts = &t->job->activations[QUANT_FORM_BLOCKS];
  tile_work *work = (tile_work *)(void *)t->work;
  const int64_t tiles = nn_ceil_div(t->panel->rows, QUANT_TILE), blocks = t->k / QUANT_BLOCK;
  const int64_t group =
      tiles > 1 ? QUANT_TILE_GROUP : 1; /* a single tile of rows: weights pass by once, in their order */
  const int64_t lines = nn_ceil_div(QUANT_TILE * t->row_bytes, nn_ceil_div(blocks, 2) * 64);
  tile_blocks_open();
  for (int64_t c = 0; c < t->columns; c += group * QUANT_TILE) {
    const int64_t here = nn_min(group, nn_ceil_div(t->columns - c, QUANT_TILE));
    quant_rows w[QUANT_TILE_GROUP];
    for (int64_t g = 0; g < here; g++) {
      quant_rows_at(&w[g], t, c + g * QUANT_TILE);
    }
    for (int64_t b0 = 0; b0 < blocks; b0 += QUANT_TILE_BLOCKS) {
      const int64_t count = nn_min(QUANT_TILE_BLOCKS, blocks - b0);
      for (int64_t g = 0; g < here; g++) {
        const uintptr_t next = quant_next(t, c + g * QUANT_TILE, group * QUANT_TILE) + (uintptr_t)(b0 / 2 * lines * 64);
        tile_unpack(work, g, &w[g], b0, count, next, lines, format);
      }
      for (int64_t i = 0; i < tiles; i++) {
        const int64_t at = (t->panel->tile + i) * blocks + b0;
        for (int64_t g = 0; g < here; g++) {
          tile_blocks(work, g, acts->codes + at * (QUANT_TILE * QUANT_BLOCK), acts->scale + at * QUANT_TILE,
                      acts->total + at * QUANT_TILE, count, work->sums + (i * QUANT_TILE_GROUP + g) * QUANT_TILE_SUMS,
                      b0 == 0, format);
        }
      }
    }
    for (int64_t g = 0; g < here; g++) {
      tile_turn(t, c + g * QUANT_TILE, work->sums + g * QUANT_TILE_SUMS, QUANT_TILE_GROUP * QUANT_TILE_SUMS);
    }
  }
  tile_registers_close();
}

#endif
