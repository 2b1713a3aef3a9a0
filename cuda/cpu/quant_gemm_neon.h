/* The instructions of NEON (quant_gemm_isa.h). */
#ifndef NN_CPU_QUANT_GEMM_NEON_H
#define NN_CPU_QUANT_GEMM_NEON_H

#include "dot_neon.h"
#include "quant_gemm_block.h"
#include "quant_gemm_round_block.h"

enum { QUANT_ROWS_AT_ONCE = 4, QUANT_SIGNED_OFFSET = -1 };

/* 32 codes of a row of weights or of activations: the first 16 and the others. */
typedef struct quant_pair {
  uint8x16_t low, high;
} quant_pair;

typedef vw si;
NN_INLINE si si_load(const uint8_t *p) { return vw_load(p); }
NN_INLINE si si_all(int32_t x) { return vw_set1((uint32_t)x); }
NN_INLINE si si_and(si a, int32_t byte) { return vw_and(a, vw_set1((uint32_t)byte * 0x01010101u)); }
/* a with the bits of b that are in `mask`. */
NN_INLINE si si_with(si a, si b, int32_t mask) { return vw_or(a, si_and(b, mask)); }
NN_INLINE si si_right(si a, int n) {
  return (si){(uint32x4_t)((uint8x16_t)a.low >> n), (uint32x4_t)((uint8x16_t)a.high >> n)};
}
NN_INLINE si si_left(si a, int n) {
  return (si){(uint32x4_t)((uint8x16_t)a.low << n), (uint32x4_t)((uint8x16_t)a.high << n)};
}
NN_INLINE si si_scales(const uint8_t *p) {
  const int16x8_t wide = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
  return (si){vreinterpretq_u32_s32(vmovl_s16(vget_low_s16(wide))), vreinterpretq_u32_s32(vmovl_high_s16(wide))};
}
NN_INLINE vf si_float(si a) { return vw_converted(a); }
NN_INLINE si si_times(si a, si b) { return vw_mul(a, b); }
NN_INLINE si si_add(si a, si b) { return vw_add(a, b); }
NN_INLINE si si_sub(si a, si b) { return vw_sub(a, b); }
/* Pairs of 16 bits in each lane: of `low`, and of `high`, without their lowest n bits; differences of such pairs; and
 * the sums of products of both. */
NN_INLINE si si_pairs(si low, si high, int n) {
  return vw_or(vw_and(vw_right(low, n), vw_set1(0xffff)), vw_left(high, 16 - n));
}
NN_INLINE si si_sub_pairs(si a, si b) {
  return (si){(uint32x4_t)vsubq_u16((uint16x8_t)a.low, (uint16x8_t)b.low),
              (uint32x4_t)vsubq_u16((uint16x8_t)a.high, (uint16x8_t)b.high)};
}
NN_INLINE uint32x4_t si_dot_pairs_half(uint32x4_t a, uint32x4_t b) {
  const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
  return (uint32x4_t)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}
NN_INLINE si si_dot_pairs(si a, si b) {
  return (si){si_dot_pairs_half(a.low, b.low), si_dot_pairs_half(a.high, b.high)};
}

NN_INLINE si quant_signed(si w) { return w; }

/* Bytes of weights have a sign or at most 6 bits: all are signed ones. */
NN_INLINE si quant_dot(si sum, si w, si x, int32_t format) {
  (void)format;
  return dot_words(sum, w, x);
}

NN_INLINE si quant_upper(si w) { return si_right(w, 4); }
NN_INLINE si quant_upper_sums(si sums) { return sums; }

NN_INLINE si quant_table(const int8_t *table) {
  const uint32x4_t bytes = (uint32x4_t)vld1q_s8(table);
  return (si){bytes, bytes};
}
NN_INLINE si quant_looked_up(si table, si codes) {
  return (si){(uint32x4_t)vqtbl1q_u8((uint8x16_t)table.low, (uint8x16_t)codes.low),
              (uint32x4_t)vqtbl1q_u8((uint8x16_t)table.high, (uint8x16_t)codes.high)};
}

/* Words g of codes, whose fifth bits are bits 4g .. 4g+3 of `high`, with these. */
NN_INLINE uint32x4_t quant_fifths_half(uint32x4_t low, uint32x4_t high, int g) {
  static const uint32_t lanes[4] = {0x00000000, 0x04040404, 0x08080808, 0x0c0c0c0c};
  const uint32x4_t byte = vaddq_u32(vld1q_u32(lanes), vdupq_n_u32((uint32_t)(g / 2) * 0x01010101u));
  const uint8x16_t bits = (uint8x16_t)vdupq_n_u32(g % 2 ? 0x80402010u : 0x08040201u);
  const uint8x16_t set = vtstq_u8(vqtbl1q_u8((uint8x16_t)high, (uint8x16_t)byte), bits);
  return vorrq_u32(low, (uint32x4_t)vandq_u8(set, vdupq_n_u8(16)));
}

NN_INLINE si quant_fifths(si low, si high, int g) {
  return (si){quant_fifths_half(low.low, high.low, g), quant_fifths_half(low.high, high.high, g)};
}

NN_INLINE vi quant_gather(vi at, const uint8_t *from) {
  uint32_t offset[VF], word[VF];
  vw_store(offset, at);
  for (int i = 0; i < VF; i++) {
    word[i] = quant_u32(from + offset[i]);
  }
  return vw_load(word);
}

/* The f16 in the lower, or upper, half of each lane. */
NN_INLINE vf quant_low_f16(vi x) {
  return (vf){vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(x.low))),
              vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(x.high)))};
}
NN_INLINE vf quant_high_f16(vi x) {
  return (vf){vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(x.low, 16))),
              vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(x.high, 16)))};
}

#endif
