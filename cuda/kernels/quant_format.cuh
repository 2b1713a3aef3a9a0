/*
 * The block formats of GGUF files as registers see them (Gerganov et al., ggml-quants). What all of them have in common
 * is the part: 32 neighbouring elements of a row, 8 words of 4 unsigned quants, and what makes numbers of them,
 *
 *   number = scale * (quant - MIDDLE) + minimum
 *
 * with a factor more for each half of the part in q2_k, q3_k and q6_k, in q2_k another for the minimum.
 *
 * A block is bytes at any address, since rows lie as they do in a file. Memory is read in words of 4 bytes all the
 * same: those that a run of bytes touches, each of which has a byte of the run, shifted into place.
 */
#ifndef NN_KERNELS_QUANT_FORMAT_CUH
#define NN_KERNELS_QUANT_FORMAT_CUH

#include "numbers/code_table.h"
#include "numbers/format.h"

/* after the ABI's */
#include "kernels/number.cuh"
#include "kernels/reduce.cuh"

constexpr int NN_PART = 32, NN_PART_WORDS = NN_PART / 4;

/* The words of memory that BYTES bytes from any address touch: at most one more than they fill. */
template <int BYTES> constexpr int nn_words_touched = (BYTES + 3) / 4 + (BYTES > 1);

/* CONSTANT: nothing writes there while the kernel runs. */
template <int BYTES, bool CONSTANT = true>
__device__ __forceinline__ void nn_load_touched(uint32_t *all, const uint8_t *from) {
  constexpr int WORDS = nn_words_touched<BYTES>;
  const unsigned before = (unsigned)reinterpret_cast<uintptr_t>(from) & 3u;
  const uint32_t *words = reinterpret_cast<const uint32_t *>(from - before);
#pragma unroll
  for (int i = 0; i < WORDS; i++) {
    const bool touched = i < WORDS - 1 || BYTES == 1 || before + BYTES > 4 * (WORDS - 1);
    all[i] = !touched ? 0u : CONSTANT ? __ldg(words + i) : words[i];
  }
}

/* The bytes themselves; what the last word has beyond them is undefined. */
template <int BYTES>
__device__ __forceinline__ void nn_shift_touched(uint32_t (&to)[(BYTES + 3) / 4], const uint32_t *all,
                                                 const uint8_t *from) {
  const unsigned before = (unsigned)reinterpret_cast<uintptr_t>(from) & 3u;
#pragma unroll
  for (int i = 0; i < (BYTES + 3) / 4; i++) {
    to[i] = __funnelshift_r(all[i], BYTES > 1 ? all[i + 1] : 0u, 8 * before);
  }
}

template <int BYTES, bool CONSTANT = true>
__device__ __forceinline__ void nn_bytes_at(uint32_t (&to)[(BYTES + 3) / 4], const uint8_t *from) {
  uint32_t all[nn_words_touched<BYTES>];
  nn_load_touched<BYTES, CONSTANT>(all, from);
  nn_shift_touched<BYTES>(to, all, from);
}

/*
 * How what follows reads the bytes of a part: at once, or in two halves with other work between them. Of these the
 * first only starts the loads and makes nothing of the part, the second has their words.
 */
struct nn_read_now {
  template <int BYTES> __device__ __forceinline__ void bytes(uint32_t (&to)[(BYTES + 3) / 4], const uint8_t *from) {
    nn_bytes_at<BYTES>(to, from);
  }
};

/* Where bytes lie that this kernel itself brought. */
struct nn_read_brought {
  template <int BYTES> __device__ __forceinline__ void bytes(uint32_t (&to)[(BYTES + 3) / 4], const uint8_t *from) {
    nn_bytes_at<BYTES, false>(to, from);
  }
};

constexpr int NN_PART_TOUCHES = 42; /* words of a part at most: q5_k in rows side by side */

struct nn_read_begin {
  uint32_t (&words)[NN_PART_TOUCHES];
  int count;
  template <int BYTES> __device__ __forceinline__ void bytes(uint32_t (&to)[(BYTES + 3) / 4], const uint8_t *from) {
    nn_load_touched<BYTES>(words + count, from);
    count += nn_words_touched<BYTES>;
#pragma unroll
    for (uint32_t &word : to) {
      word = 0;
    }
  }
};

struct nn_read_end {
  const uint32_t (&words)[NN_PART_TOUCHES];
  int count;
  template <int BYTES> __device__ __forceinline__ void bytes(uint32_t (&to)[(BYTES + 3) / 4], const uint8_t *from) {
    nn_shift_touched<BYTES>(to, words + count, from);
    count += nn_words_touched<BYTES>;
  }
};

template <int BYTES, class READ>
__device__ __forceinline__ void nn_read(uint32_t (&to)[(BYTES + 3) / 4], const uint8_t *from, READ &read) {
  read.template bytes<BYTES>(to, from);
}

/* Elements of a format without blocks, and other numbers of 16 bits, at any address. */
template <class F, bool CONSTANT = true> __device__ __forceinline__ float nn_number_at(const uint8_t *from) {
  uint32_t bits[1];
  nn_bytes_at<(int)sizeof(F), CONSTANT>(bits, from);
  if constexpr (sizeof(F) == 4) {
    return __uint_as_float(bits[0]);
  } else {
    return nn_to_float(F{(decltype(F::bits))bits[0]});
  }
}

__device__ __forceinline__ void nn_put_u16(uint8_t *to, uint16_t x) {
  if ((reinterpret_cast<uintptr_t>(to) & 1) == 0) {
    *reinterpret_cast<uint16_t *>(to) = x;
  } else {
    to[0] = (uint8_t)x;
    to[1] = (uint8_t)(x >> 8);
  }
}

__device__ __forceinline__ void nn_put_f16(uint8_t *to, float x) { nn_put_u16(to, nn_f32_to_f16(x)); }

template <class F> __device__ __forceinline__ void nn_put_number(uint8_t *to, float x) {
  if constexpr (sizeof(F) == 1) {
    *to = nn_from_float<F>(x).bits;
  } else if constexpr (sizeof(F) == 2) {
    nn_put_u16(to, nn_from_float<F>(x).bits);
  } else if ((reinterpret_cast<uintptr_t>(to) & 3) == 0) {
    *reinterpret_cast<float *>(to) = x;
  } else {
    nn_put_u16(to, (uint16_t)__float_as_uint(x));
    nn_put_u16(to + 2, (uint16_t)(__float_as_uint(x) >> 16));
  }
}

/* Where elements are few beside other work, their type is asked for at each of them, which spares a kernel a type. */
__device__ __forceinline__ float nn_element_of(const void *x, int64_t i, int32_t dtype) {
  return dtype == NNCUDA_F32   ? static_cast<const float *>(x)[i]
         : dtype == NNCUDA_F16 ? nn_to_float(static_cast<const nn_f16 *>(x)[i])
                               : nn_to_float(static_cast<const nn_bf16 *>(x)[i]);
}

__device__ __forceinline__ void nn_put_element(void *y, int64_t i, float x, int32_t dtype) {
  if (dtype == NNCUDA_F32) {
    static_cast<float *>(y)[i] = x;
  } else if (dtype == NNCUDA_F16) {
    static_cast<nn_f16 *>(y)[i] = nn_from_float<nn_f16>(x);
  } else {
    static_cast<nn_bf16 *>(y)[i] = nn_from_float<nn_bf16>(x);
  }
}

__device__ __forceinline__ float nn_low_f16(uint32_t x) { return nn_f16_to_f32((uint16_t)x); }
__device__ __forceinline__ float nn_high_f16(uint32_t x) { return nn_f16_to_f32((uint16_t)(x >> 16)); }

struct nn_part {
  uint32_t quants[NN_PART_WORDS]; /* element 4i + j is byte j of word i */
  float scale, minimum;
  int32_t factor[2]; /* HAS_FACTORS: of the halves */
  int32_t least[2];  /* nn_has_part_minima: the same of the minimum */
};

/* Halves of bytes: elements 0 to 15 are the low ones, 16 to 31 the high ones. */
__device__ __forceinline__ void nn_halves(uint32_t (&quants)[NN_PART_WORDS], const uint32_t *packed) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    quants[i] = packed[i] & 0x0f0f0f0fu;
    quants[i + 4] = packed[i] >> 4 & 0x0f0f0f0fu;
  }
}

/* Bit i of `high` is the fifth bit of element i. */
__device__ __forceinline__ void nn_fifths(uint32_t (&quants)[NN_PART_WORDS], uint32_t high) {
#pragma unroll
  for (int i = 0; i < NN_PART_WORDS; i++) {
    /* Bits 0 to 3 go to the lowest bits of the four bytes: the copies of the product do not meet. */
    quants[i] |= ((high >> (4 * i) & 15u) * 0x00204081u & 0x01010101u) << 4;
  }
}

/* Scale and minimum, 6 bits each, of part j of a block of q4_k or q5_k, whose own are given: those of parts 0 to 3 are
 * the first and the second four bytes of `factors`; of the others the last four bytes have the low four bits, and the
 * high two are the top bits of the bytes before. */
__device__ __forceinline__ void nn_part_scales(nn_part &to, float block_scale, float block_minimum,
                                               const uint32_t *factors, int j) {
  const int shift = 8 * (j & 3);
  const uint32_t a = factors[0] >> shift, b = factors[1] >> shift, c = factors[2] >> shift;
  const uint32_t scale = j < 4 ? a & 63u : (c & 15u) | (a >> 2 & 48u);
  const uint32_t minimum = j < 4 ? b & 63u : (c >> 4 & 15u) | (b >> 2 & 48u);
  to.scale = block_scale * (float)scale;
  to.minimum = -(block_minimum * (float)minimum);
}

/* Sixteen signed bytes, in words. */
struct nn_code_table {
  uint32_t word[4];
};

constexpr uint32_t nn_four_bytes(int a, int b, int c, int d) {
  return (uint32_t)(uint8_t)a | (uint32_t)(uint8_t)b << 8 | (uint32_t)(uint8_t)c << 16 | (uint32_t)(uint8_t)d << 24;
}

constexpr nn_code_table nn_code_table_of(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k,
                                         int l, int m, int n, int o, int p) {
  return {{nn_four_bytes(a, b, c, d), nn_four_bytes(e, f, g, h), nn_four_bytes(i, j, k, l), nn_four_bytes(m, n, o, p)}};
}

template <int FORMAT>
constexpr nn_code_table nn_codes_of =
    FORMAT == NNCUDA_FORMAT_MXFP4 ? nn_code_table_of(NN_CODE_TABLE_E2M1) : nn_code_table_of(NN_CODE_TABLE_IQ4);

/* What four bytes of 0 .. 15 number in a table. A byte permutation looks up three bits in eight bytes; the fourth bit
 * chooses between two of them. */
template <int FORMAT> __device__ __forceinline__ uint32_t nn_looked_up(uint32_t codes) {
  constexpr nn_code_table TABLE = nn_codes_of<FORMAT>;
  constexpr uint32_t WORD[4] = {TABLE.word[0], TABLE.word[1], TABLE.word[2], TABLE.word[3]};
  const uint32_t three = codes & 0x07070707u, pairs = (three | three >> 4) & 0x00ff00ffu;
  const uint32_t which = (pairs | pairs >> 8) & 0xffffu, upper = (codes >> 3 & 0x01010101u) * 255u;
  const uint32_t low = __byte_perm(WORD[0], WORD[1], which), high = __byte_perm(WORD[2], WORD[3], which);
  return (low & ~upper) | (high & upper);
}

/* nn_halves of codes that number the values of a table. */
template <int FORMAT>
__device__ __forceinline__ void nn_looked_up_halves(uint32_t (&quants)[NN_PART_WORDS], const uint32_t *packed) {
  nn_halves(quants, packed);
#pragma unroll
  for (uint32_t &word : quants) {
    word = nn_looked_up<FORMAT>(word);
  }
}

/* Scale of part j of a block of iq4_xs, of which these are the first two words: the block's own f16 times what two bits
 * behind it and four of the other word make. */
__device__ __forceinline__ float nn_iq4_xs_scale(uint32_t first, uint32_t second, int j) {
  const uint32_t scale = (second >> (4 * j) & 15u) | (first >> (16 + 2 * j) & 3u) << 4;
  return nn_low_f16(first) * (float)((int)scale - 32);
}

/* BLOCK: elements of a block, BYTES of them; load: part j of the block at `block`. */
template <int FORMAT> struct nn_stored;

template <> struct nn_stored<NNCUDA_FORMAT_Q4_0> {
  static constexpr int BLOCK = 32, BYTES = 18, MIDDLE = 8;
  static constexpr bool HAS_MINIMUM = false, HAS_FACTORS = false;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int, READ &read) {
    uint32_t w[5], packed[4];
    nn_read<BYTES>(w, block, read);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      packed[i] = __funnelshift_r(w[i], w[i + 1], 16);
    }
    nn_halves(to.quants, packed);
    to.scale = nn_low_f16(w[0]);
  }
};

template <> struct nn_stored<NNCUDA_FORMAT_Q4_1> {
  static constexpr int BLOCK = 32, BYTES = 20, MIDDLE = 0;
  static constexpr bool HAS_MINIMUM = true, HAS_FACTORS = false;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int, READ &read) {
    uint32_t w[5];
    nn_read<BYTES>(w, block, read);
    nn_halves(to.quants, w + 1);
    to.scale = nn_low_f16(w[0]);
    to.minimum = nn_high_f16(w[0]);
  }
};

template <> struct nn_stored<NNCUDA_FORMAT_Q5_0> {
  static constexpr int BLOCK = 32, BYTES = 22, MIDDLE = 16;
  static constexpr bool HAS_MINIMUM = false, HAS_FACTORS = false;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int, READ &read) {
    uint32_t w[6], packed[5];
    nn_read<BYTES>(w, block, read);
#pragma unroll
    for (int i = 0; i < 5; i++) {
      packed[i] = __funnelshift_r(w[i], w[i + 1], 16);
    }
    nn_halves(to.quants, packed + 1);
    nn_fifths(to.quants, packed[0]);
    to.scale = nn_low_f16(w[0]);
  }
};

template <> struct nn_stored<NNCUDA_FORMAT_Q5_1> {
  static constexpr int BLOCK = 32, BYTES = 24, MIDDLE = 0;
  static constexpr bool HAS_MINIMUM = true, HAS_FACTORS = false;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int, READ &read) {
    uint32_t w[6];
    nn_read<BYTES>(w, block, read);
    nn_halves(to.quants, w + 2);
    nn_fifths(to.quants, w[1]);
    to.scale = nn_low_f16(w[0]);
    to.minimum = nn_high_f16(w[0]);
  }
};

/* Its quants are signed already. */
template <> struct nn_stored<NNCUDA_FORMAT_Q8_0> {
  static constexpr int BLOCK = 32, BYTES = 34, MIDDLE = 0;
  static constexpr bool HAS_MINIMUM = false, HAS_FACTORS = false;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int, READ &read) {
    uint32_t w[9];
    nn_read<BYTES>(w, block, read);
#pragma unroll
    for (int i = 0; i < NN_PART_WORDS; i++) {
      to.quants[i] = __funnelshift_r(w[i], w[i + 1], 16);
    }
    to.scale = nn_low_f16(w[0]);
  }
};

/* Parts 2i and 2i + 1 share 32 bytes, the low and the high halves. */
template <> struct nn_stored<NNCUDA_FORMAT_Q4_K> {
  static constexpr int BLOCK = 256, BYTES = 144, MIDDLE = 0;
  static constexpr bool HAS_MINIMUM = true, HAS_FACTORS = false;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int j, READ &read) {
    uint32_t head[4];
    nn_read<16>(head, block, read);
    nn_read<32>(to.quants, block + 16 + 32 * (j >> 1), read);
#pragma unroll
    for (int i = 0; i < NN_PART_WORDS; i++) {
      to.quants[i] = to.quants[i] >> (4 * (j & 1)) & 0x0f0f0f0fu;
    }
    nn_part_scales(to, nn_low_f16(head[0]), nn_high_f16(head[0]), head + 1, j);
  }
};

/* Bit j of byte i of bytes 16 to 47 is the fifth bit of element i of part j. */
template <> struct nn_stored<NNCUDA_FORMAT_Q5_K> {
  static constexpr int BLOCK = 256, BYTES = 176, MIDDLE = 0;
  static constexpr bool HAS_MINIMUM = true, HAS_FACTORS = false;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int j, READ &read) {
    uint32_t head[4], high[NN_PART_WORDS];
    nn_read<16>(head, block, read);
    nn_read<32>(high, block + 16, read);
    nn_read<32>(to.quants, block + 48 + 32 * (j >> 1), read);
#pragma unroll
    for (int i = 0; i < NN_PART_WORDS; i++) {
      to.quants[i] = (to.quants[i] >> (4 * (j & 1)) & 0x0f0f0f0fu) | (high[i] >> j & 0x01010101u) << 4;
    }
    nn_part_scales(to, nn_low_f16(head[0]), nn_high_f16(head[0]), head + 1, j);
  }
};

/* Of each half of a block, 64 bytes have the low four bits, 32 the high two: parts 0 and 1 of the half are the low
 * halves of the 64, 2 and 3 the high ones. Then 16 signed factors, and the scale. */
template <> struct nn_stored<NNCUDA_FORMAT_Q6_K> {
  static constexpr int BLOCK = 256, BYTES = 210, MIDDLE = 32;
  static constexpr bool HAS_MINIMUM = false, HAS_FACTORS = true;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int j, READ &read) {
    const int half = j >> 2, in_half = j & 3;
    uint32_t high[NN_PART_WORDS], factors[1], scale[1];
    nn_read<32>(to.quants, block + 64 * half + 32 * (in_half & 1), read);
    nn_read<32>(high, block + 128 + 32 * half, read);
    nn_read<2>(factors, block + 192 + 2 * j, read);
    nn_read<2>(scale, block + 208, read);
#pragma unroll
    for (int i = 0; i < NN_PART_WORDS; i++) {
      to.quants[i] = (to.quants[i] >> (4 * (in_half >> 1)) & 0x0f0f0f0fu) | (high[i] >> (2 * in_half) & 0x03030303u)
                                                                                << 4;
    }
    to.factor[0] = (int8_t)factors[0];
    to.factor[1] = (int8_t)(factors[0] >> 8);
    to.scale = nn_low_f16(scale[0]);
  }
};

/* Codes of a table behind a scale. */
template <int FORMAT, int SCALE_BYTES> struct nn_stored_codes {
  static constexpr int BLOCK = 32, BYTES = SCALE_BYTES + BLOCK / 2, MIDDLE = 0;
  static constexpr bool HAS_MINIMUM = false, HAS_FACTORS = false;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int, READ &read) {
    uint32_t w[5], packed[4];
    nn_read<BYTES>(w, block, read);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      packed[i] = __funnelshift_r(w[i], w[i + 1], 8 * SCALE_BYTES);
    }
    nn_looked_up_halves<FORMAT>(to.quants, packed);
    to.scale = SCALE_BYTES == 1 ? nn_e8m0_half((uint8_t)w[0]) : nn_low_f16(w[0]);
  }
};

template <> struct nn_stored<NNCUDA_FORMAT_IQ4_NL> : nn_stored_codes<NNCUDA_FORMAT_IQ4_NL, 2> {};
template <> struct nn_stored<NNCUDA_FORMAT_MXFP4> : nn_stored_codes<NNCUDA_FORMAT_MXFP4, 1> {};

template <> struct nn_stored<NNCUDA_FORMAT_IQ4_XS> {
  static constexpr int BLOCK = 256, BYTES = 136, MIDDLE = 0;
  static constexpr bool HAS_MINIMUM = false, HAS_FACTORS = false;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int j, READ &read) {
    uint32_t head[2], packed[4];
    nn_read<8>(head, block, read);
    nn_read<16>(packed, block + 8 + 16 * j, read);
    nn_looked_up_halves<NNCUDA_FORMAT_IQ4_XS>(to.quants, packed);
    to.scale = nn_iq4_xs_scale(head[0], head[1], j);
  }
};

/* Two bits of each quant of part j of a block of q2_k or q3_k from the 32 bytes of its half. */
__device__ __forceinline__ void nn_twos(uint32_t (&quants)[NN_PART_WORDS], int j) {
#pragma unroll
  for (uint32_t &word : quants) {
    word = word >> (2 * (j & 3)) & 0x03030303u;
  }
}

/* The bit that part j of q3_k has in each of 32 bytes, as third bits of its quants. */
__device__ __forceinline__ void nn_thirds(uint32_t (&quants)[NN_PART_WORDS], const uint32_t (&high)[NN_PART_WORDS],
                                          int j) {
#pragma unroll
  for (int i = 0; i < NN_PART_WORDS; i++) {
    quants[i] |= (high[i] >> j & 0x01010101u) << 2;
  }
}

/* What the two bytes of part j of q2_k from bit `shift` of a word on have: factors, and what multiplies the minimum. */
__device__ __forceinline__ void nn_two_factors(nn_part &to, uint32_t word, int shift) {
  const uint32_t both = word >> shift;
  to.factor[0] = (int32_t)(both & 15u);
  to.factor[1] = (int32_t)(both >> 8 & 15u);
  to.least[0] = (int32_t)(both >> 4 & 15u);
  to.least[1] = (int32_t)(both >> 12 & 15u);
}

/* Factors 2j and 2j + 1 of q3_k: of the three words of its scales, number j / 2 % 2 has their low four bits, number 2
 * their high two. 32 too much. */
__device__ __forceinline__ void nn_three_factors(nn_part &to, uint32_t low, uint32_t high, int j) {
  const uint32_t lows = low >> (16 * (j & 1) + 4 * (j >> 2)), highs = high >> (16 * (j & 1) + 2 * (j >> 1));
  to.factor[0] = (int32_t)((lows & 15u) | (highs & 3u) << 4) - 32;
  to.factor[1] = (int32_t)((lows >> 8 & 15u) | (highs >> 8 & 3u) << 4) - 32;
}

/* Of each half of a block 32 bytes have two bits of its four parts each. */
template <> struct nn_stored<NNCUDA_FORMAT_Q2_K> {
  static constexpr int BLOCK = 256, BYTES = 84, MIDDLE = 0;
  static constexpr bool HAS_MINIMUM = false, HAS_FACTORS = true;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int j, READ &read) {
    uint32_t factors[1], steps[1];
    nn_read<2>(factors, block + 2 * j, read);
    nn_read<32>(to.quants, block + 16 + 32 * (j >> 2), read);
    nn_read<4>(steps, block + 80, read);
    nn_twos(to.quants, j);
    nn_two_factors(to, factors[0], 0);
    to.scale = nn_low_f16(steps[0]);
    to.minimum = -nn_high_f16(steps[0]);
  }
};

/* The third bits come first: bit j of byte i is that of element i of part j. */
template <> struct nn_stored<NNCUDA_FORMAT_Q3_K> {
  static constexpr int BLOCK = 256, BYTES = 110, MIDDLE = 4;
  static constexpr bool HAS_MINIMUM = false, HAS_FACTORS = true;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *block, int j, READ &read) {
    uint32_t high[NN_PART_WORDS], low_factors[1], high_factors[1], scale[1];
    nn_read<32>(high, block, read);
    nn_read<32>(to.quants, block + 32 + 32 * (j >> 2), read);
    nn_read<4>(low_factors, block + 96 + 4 * (j >> 1 & 1), read);
    nn_read<4>(high_factors, block + 104, read);
    nn_read<2>(scale, block + 108, read);
    nn_twos(to.quants, j);
    nn_thirds(to.quants, high, j);
    nn_three_factors(to, low_factors[0], high_factors[0], j);
    to.scale = nn_low_f16(scale[0]);
  }
};

/* Whether halves of parts have minima, whole multiples of one. */
template <int FORMAT> constexpr bool nn_has_part_minima = FORMAT == NNCUDA_FORMAT_Q2_K;

/* Whether quants are signed bytes already. */
template <int FORMAT>
constexpr bool nn_quants_are_signed = FORMAT == NNCUDA_FORMAT_Q8_0 || FORMAT == NNCUDA_FORMAT_IQ4_NL ||
                                      FORMAT == NNCUDA_FORMAT_MXFP4 || FORMAT == NNCUDA_FORMAT_IQ4_XS;

/* Part `part` of a row. */
template <int FORMAT, class READ = nn_read_now>
__device__ __forceinline__ void nn_load_part(nn_part &to, const uint8_t *row, int64_t part, READ read = {}) {
  constexpr int PARTS = nn_stored<FORMAT>::BLOCK / NN_PART;
  nn_stored<FORMAT>::load(to, row + part / PARTS * nn_stored<FORMAT>::BYTES, (int)(part % PARTS), read);
}

/* Element e of a part in f32; only a minimum needs rounding, since the product of a scale and a quant is exact. */
template <int FORMAT> __device__ __forceinline__ float nn_part_number(const nn_part &part, int e) {
  const uint32_t byte = part.quants[e / 4] >> (8 * (e % 4));
  const int quant = nn_quants_are_signed<FORMAT> ? (int)(int8_t)byte : (int)(byte & 255u) - nn_stored<FORMAT>::MIDDLE;
  if constexpr (nn_has_part_minima<FORMAT>) {
    return __fadd_rn(__fmul_rn(part.scale * (float)part.factor[e / 16], (float)quant),
                     part.minimum * (float)part.least[e / 16]);
  } else if constexpr (nn_stored<FORMAT>::HAS_FACTORS) {
    return part.scale * (float)part.factor[e / 16] * (float)quant;
  } else if constexpr (nn_stored<FORMAT>::HAS_MINIMUM) {
    return __fadd_rn(__fmul_rn(part.scale, (float)quant), part.minimum);
  } else {
    return part.scale * (float)quant;
  }
}

/* Runs `statement` with FORMAT the block format. */
#define NN_BLOCK_CASE(name, ...) NN_CASE(case name, constexpr int FORMAT = name, __VA_ARGS__)
#define NN_SWITCH_BLOCKS(format, ...)                                                                                  \
  switch (format) {                                                                                                    \
    NN_BLOCK_CASE(NNCUDA_FORMAT_Q4_0, __VA_ARGS__)                                                                     \
    NN_BLOCK_CASE(NNCUDA_FORMAT_Q4_1, __VA_ARGS__)                                                                     \
    NN_BLOCK_CASE(NNCUDA_FORMAT_Q5_0, __VA_ARGS__)                                                                     \
    NN_BLOCK_CASE(NNCUDA_FORMAT_Q5_1, __VA_ARGS__)                                                                     \
    NN_BLOCK_CASE(NNCUDA_FORMAT_Q8_0, __VA_ARGS__)                                                                     \
    NN_BLOCK_CASE(NNCUDA_FORMAT_Q4_K, __VA_ARGS__)                                                                     \
    NN_BLOCK_CASE(NNCUDA_FORMAT_Q5_K, __VA_ARGS__)                                                                     \
    NN_BLOCK_CASE(NNCUDA_FORMAT_Q6_K, __VA_ARGS__)                                                                     \
    NN_BLOCK_CASE(NNCUDA_FORMAT_IQ4_NL, __VA_ARGS__)                                                                   \
    NN_BLOCK_CASE(NNCUDA_FORMAT_MXFP4, __VA_ARGS__)                                                                    \
    NN_BLOCK_CASE(NNCUDA_FORMAT_IQ4_XS, __VA_ARGS__)                                                                   \
    NN_BLOCK_CASE(NNCUDA_FORMAT_Q2_K, __VA_ARGS__)                                                                     \
    NN_BLOCK_CASE(NNCUDA_FORMAT_Q3_K, __VA_ARGS__)                                                                     \
  default:                                                                                                             \
    break;                                                                                                             \
  }

/* Whether a format is a dtype, under the same number. */
__host__ __device__ constexpr bool nn_is_dtype(int32_t format) { return format < NNCUDA_FORMAT_Q4_0; }

#endif
