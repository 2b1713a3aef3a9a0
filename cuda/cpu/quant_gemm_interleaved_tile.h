/*
 * Products of many rows with the _R16 formats in the tile registers of AMX: words of sixteen interleaved rows are what
 * a tile's second factor is to be, and the activations' rows are the first. So weights need no reordering, sums lie as
 * the result does, and a tile of fewer than sixteen rows costs as much less.
 */
#ifndef NN_CPU_QUANT_GEMM_INTERLEAVED_TILE_H
#define NN_CPU_QUANT_GEMM_INTERLEAVED_TILE_H

#include "quant_gemm_interleaved.h"
#include "quant_gemm_tile.h"

enum {
  INTERLEAVED_WORDS = QUANT_BLOCK / 4,
  INTERLEAVED_BLOCK = INTERLEAVED_WORDS * 64 /* bytes of a block of 16 rows, unpacked */
};

/* The codes of a group's block b in the scratch memory; low ones are those of the second multiplication. */
NN_INLINE int8_t *interleaved_codes(tile_work *work, int64_t g, int low, int64_t b) {
  return &work->code[g][low][0][0][0] + b * INTERLEAVED_BLOCK;
}

/* Registers 0, 1, 6, 7: sums of `rows` rows. 2: as many rows of the activations; 3, 5: weights. */
static void interleaved_tiles_open(int64_t rows) {
  tile_configuration config = tile_registers_full();
  config.rows[0] = config.rows[1] = config.rows[6] = config.rows[7] = config.rows[2] = (uint8_t)rows;
  config.row_bytes[2] = QUANT_BLOCK;
  config.rows[3] = config.rows[5] = INTERLEAVED_WORDS;
  tile_registers_configure(&config);
}

/* Words of codes times their rows' scales: 64 * high + low. */
NN_INLINE void interleaved_split(si codes, si scales, int8_t *high, int8_t *low) {
  const __m512i byte = _mm512_set1_epi16(255), half = _mm512_set1_epi16(32);
  const __m512i even = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_and_si512(codes, byte), half), scales);
  const __m512i odd = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_srli_epi16(codes, 8), half), scales);
  const __m512i he = _mm512_srai_epi16(_mm512_add_epi16(even, half), 6);
  const __m512i ho = _mm512_srai_epi16(_mm512_add_epi16(odd, half), 6);
  const __m512i le = _mm512_sub_epi16(even, _mm512_slli_epi16(he, 6));
  const __m512i lo = _mm512_sub_epi16(odd, _mm512_slli_epi16(ho, 6));
  _mm512_store_si512(high, _mm512_or_si512(_mm512_and_si512(he, byte), _mm512_slli_epi16(ho, 8)));
  _mm512_store_si512(low, _mm512_or_si512(_mm512_and_si512(le, byte), _mm512_slli_epi16(lo, 8)));
}

/* Words of bytes times their rows' factors, in 16 bits twice, where the products fit bytes. */
NN_INLINE void interleaved_products(si bytes, si factors, int8_t *to) {
  const __m512i byte = _mm512_set1_epi16(255);
  const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8), odd = _mm512_srai_epi16(bytes, 8);
  _mm512_store_si512(to, _mm512_or_si512(_mm512_and_si512(_mm512_mullo_epi16(even, factors), byte),
                                         _mm512_slli_epi16(_mm512_mullo_epi16(odd, factors), 8)));
}

/* Half `half` of a block of 256 whose parts have factors, of 16 rows, as blocks b .. b+3. */
NN_INLINE void interleaved_unpack_half(tile_work *work, int64_t g, int64_t b, const uint8_t *w, int half,
                                       const int32_t format) {
  si factors[4][2], least[4][2];
#pragma GCC unroll 4
  for (int run = 0; run < 4; run++) {
    vw factor[2];
    interleaved_part_factors(w, 0, half, run, factor, format);
    for (int p = 0; p < 2; p++) {
      factors[run][p] = _mm512_mask_mov_epi16(_mm512_slli_epi32((si)factor[p], 16), 0x55555555, (si)factor[p]);
    }
    if (nn_format_has_part_minima(format)) {
      vf minima[2];
      interleaved_part_minima(w, 0, half, run, minima);
      for (int p = 0; p < 2; p++) {
        least[run][p] = _mm512_mullo_epi32(_mm512_cvtps_epi32(minima[p]), _mm512_set1_epi32(0x01010101));
      }
      vf_store(work->minimum[g][b + run], interleaved_minimum(w, 0));
    }
    vf_store(work->scale[g][b + run], interleaved_scale(w, 0));
  }
#pragma GCC unroll 2
  for (int p = 0; p < 2; p++) {
    for (int i = 4 * p; i < 4 * p + 4; i++) {
      si code[4];
      interleaved_four(w, 0, half, i, code, format);
#pragma GCC unroll 4
      for (int run = 0; run < 4; run++) {
        int8_t *first = interleaved_codes(work, g, 0, b + run) + i * 64;
        int8_t *second = interleaved_codes(work, g, 1, b + run) + i * 64;
        if (format == NNCUDA_FORMAT_Q6_K) {
          interleaved_split(code[run], factors[run][p], first, second);
        } else if (format == NNCUDA_FORMAT_Q3_K) { /* as tile_small_parts has them */
          interleaved_products(_mm512_sub_epi8(_mm512_set1_epi8(4), code[run]), factors[run][p], first);
        } else {
          interleaved_products(code[run], factors[run][p], first);
          _mm512_store_si512(second, least[run][p]);
        }
      }
    }
  }
}

/* Such a block, as blocks b .. b+7. */
NN_INLINE void interleaved_unpack_large(tile_work *work, int64_t g, int64_t b, const uint8_t *w, const int32_t format) {
  interleaved_unpack_half(work, g, b, w, 0, format);
  interleaved_unpack_half(work, g, b + 4, w, 1, format);
}

/* A block of 16 rows, as block b and, of a format of 256 elements, the next seven. Not of formats with factors. */
NN_INLINE void interleaved_unpack(tile_work *work, int64_t g, int64_t b, const uint8_t *w, const int32_t format) {
  const int large = interleaved_is_large(format);
  const si above = _mm512_set1_epi8((char)interleaved_offset(format));
#pragma GCC unroll 8
  for (int run = 0; run < interleaved_runs(format); run++) {
#pragma GCC unroll 8
    for (int i = 0; i < interleaved_words(format); i++) {
      if (format == NNCUDA_FORMAT_Q8_0) {
        _mm512_store_si512(interleaved_codes(work, g, 0, b) + i * 64,
                           interleaved_word(w, interleaved_codes_at(format) + i * 4, 0));
        continue;
      }
      si c[2];
      interleaved_halves(w, 0, run, i, c, 0, format);
      const int64_t to = b + interleaved_run_at(run, format);
      int8_t *low = interleaved_codes(work, g, 0, to) + i * 64;
      int8_t *high = large ? interleaved_codes(work, g, 0, to + 1) + i * 64 : low + 4 * 64;
      _mm512_store_si512(low, _mm512_sub_epi8(c[0], above));
      _mm512_store_si512(high, _mm512_sub_epi8(c[1], above));
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < interleaved_each(format); i++) {
    vf scale, minimum;
    interleaved_factors(w, 0, i, &scale, &minimum, format);
    vf_store(work->scale[g][b + i], scale);
    if (nn_format_has_minimum(format)) {
      vf_store(work->minimum[g][b + i], minimum);
    }
  }
}

/* The integers of one block into the sums of `rows` rows of the activations. */
NN_INLINE void interleaved_add(vf *sum, int32_t (*integers)[QUANT_TILE_SUMS], const float *x_scale,
                               const float *x_total, const float *w_scale, const float *w_minimum, const int rows,
                               const int32_t format) {
  const vf scale = vf_load(w_scale), minimum = vf_load(w_minimum);
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
    __m512i v = _mm512_load_si512(integers[0] + r * QUANT_TILE);
    v = tile_whole(v, integers[1] + r * QUANT_TILE, format);
    sum[r] = vf_fma(vf_set1(x_scale[r]) * scale, _mm512_cvtepi32_ps(v), sum[r]);
    if (nn_format_has_part_minima(format)) {
      const vf least = _mm512_cvtepi32_ps(_mm512_load_si512(integers[1] + r * QUANT_TILE));
      sum[r] = vf_fma(vf_set1(x_scale[r]) * minimum, least, sum[r]);
    }
    if (nn_format_has_minimum(format)) {
      sum[r] = vf_fma(vf_set1(x_total[r]), minimum, sum[r]);
    }
  }
}

/* `count` blocks of group g into the sums of `rows` rows, which lie `ld` apart. x points to the first of the blocks. */
NN_INLINE void interleaved_blocks(tile_work *work, int64_t g, const int8_t *x, const float *x_scale,
                                  const float *x_total, int64_t count, float *sums, int64_t ld, int32_t fresh,
                                  const int rows, const int32_t format) {
  vf sum[QUANT_TILE];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
    sum[r] = fresh ? vf_set1(0.0f) : vf_load(sums + r * ld);
  }
#define MULTIPLY(b, total_register, low_register)                                                                      \
  {                                                                                                                    \
    const int64_t b_ = (b);                                                                                            \
    _tile_zero(total_register);                                                                                        \
    _tile_loadd(2, x + b_ / 2 * (QUANT_TILE * 64) + b_ % 2 * QUANT_BLOCK, 64);                                         \
    _tile_loadd(3, interleaved_codes(work, g, 0, b_), 64);                                                             \
    _tile_dpbssd(total_register, 2, 3);                                                                                \
    if (tile_has_second(format)) {                                                                                     \
      _tile_zero(low_register);                                                                                        \
      _tile_loadd(5, interleaved_codes(work, g, 1, b_), 64);                                                           \
      _tile_dpbssd(low_register, 2, 5);                                                                                \
    }                                                                                                                  \
  }
#define ADD(b)                                                                                                         \
  interleaved_add(sum, work->integers[(b) % 2], x_scale + (b) * QUANT_TILE, x_total + (b) * QUANT_TILE,                \
                  work->scale[g][b], work->minimum[g][b], rows, format)
  QUANT_TILE_RUN(count)
#undef MULTIPLY
#undef ADD
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
    vf_store(sums + r * ld, sum[r]);
  }
}

/* The last tile of a panel, of fewer rows: in steps, as the number is to be known when compiling. */
NN_INLINE void interleaved_rest(tile_work *work, int64_t g, const int8_t *x, const float *x_scale, const float *x_total,
                                int64_t count, float *sums, int64_t ld, int32_t fresh, int64_t rows,
                                const int32_t format) {
  if (rows <= 4) {
    interleaved_blocks(work, g, x, x_scale, x_total, count, sums, ld, fresh, 4, format);
  } else if (rows <= 8) {
    interleaved_blocks(work, g, x, x_scale, x_total, count, sums, ld, fresh, 8, format);
  } else {
    interleaved_blocks(work, g, x, x_scale, x_total, count, sums, ld, fresh, QUANT_TILE, format);
  }
}

NN_INLINE void interleaved_tiles(const quant_piece *t, const int32_t format) {
  const quant_activations *acts = &t->job->activations[QUANT_FORM_INTERLEAVED];
  tile_work *work = (tile_work *)(void *)t->work;
  const nn_format_block block = nn_format_block_of(format);
  const int64_t each = block.elements / QUANT_BLOCK, step = QUANT_ROWS * block.bytes;
  const int64_t tiles = nn_ceil_div(t->panel->rows, QUANT_TILE), blocks = t->k / QUANT_BLOCK;
  const int64_t rest = t->panel->rows % QUANT_TILE, group = tiles > 1 ? QUANT_TILE_GROUP : 1;
  const int64_t rounded = rest == 0 ? QUANT_TILE : rest <= 4 ? 4 : rest <= 8 ? 8 : QUANT_TILE;
  const int64_t row_codes = quant_row_codes(QUANT_FORM_INTERLEAVED, t->k);
  interleaved_tiles_open(tiles > 1 ? QUANT_TILE : rounded);
  for (int64_t c = 0; c < t->columns; c += group * QUANT_TILE) {
    const int64_t here = nn_min(group, (t->columns - c) / QUANT_TILE);
    for (int64_t b0 = 0; b0 < blocks; b0 += QUANT_TILE_BLOCKS) {
      const int64_t count = nn_min(QUANT_TILE_BLOCKS, blocks - b0);
      for (int64_t g = 0; g < here; g++) {
        const uint8_t *w = t->w + (c + g * QUANT_TILE) * t->row_bytes + b0 / each * step;
        uintptr_t next = quant_next(t, c + g * QUANT_TILE, group * QUANT_TILE) + (uintptr_t)(b0 / each * step);
        for (int64_t b = 0; b < count; b += each, w += step) {
          quant_fetch(&next, step);
          if (nn_format_has_factors(format)) {
            interleaved_unpack_large(work, g, b, w, format);
          } else {
            interleaved_unpack(work, g, b, w, format);
          }
        }
      }
      for (int64_t i = 0; i < tiles; i++) {
        const int64_t tile = t->panel->tile + i;
        const int8_t *x = acts->codes + tile * QUANT_TILE * row_codes + b0 * (QUANT_TILE * QUANT_BLOCK);
        const float *x_scale = acts->scale + (tile * blocks + b0) * QUANT_TILE;
        const float *x_total = acts->total + (tile * blocks + b0) * QUANT_TILE;
        const int32_t last = rest != 0 && i == tiles - 1;
        if (last && tiles > 1) {
          interleaved_tiles_open(rounded);
        }
        for (int64_t g = 0; g < here; g++) {
          float *sums = t->sums + i * QUANT_TILE * t->ld + c + g * QUANT_TILE;
          if (last) {
            interleaved_rest(work, g, x, x_scale, x_total, count, sums, t->ld, b0 == 0, rest, format);
          } else {
            interleaved_blocks(work, g, x, x_scale, x_total, count, sums, t->ld, b0 == 0, QUANT_TILE, format);
          }
        }
        if (last && tiles > 1) {
          interleaved_tiles_open(QUANT_TILE);
        }
      }
    }
  }
  tile_registers_close();
}

#endif
