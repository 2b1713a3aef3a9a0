/*
 * Stored rows that lie sixteen side by side, the _R16 formats (bindings.h, cuda_interleave_rows): of a block its
 * fields, cut into words, and of each field or word those of the sixteen rows. A part of such a row is the registers
 * that it is in the plain format, so that products have the same bits.
 */
#ifndef NN_KERNELS_QUANT_INTERLEAVED_CUH
#define NN_KERNELS_QUANT_INTERLEAVED_CUH

#include "kernels/quant_format.cuh"

/* Word `word` of row `row`, of the words that begin at `from`. */
template <class READ>
__device__ __forceinline__ uint32_t nn_interleaved_word(const uint8_t *from, int word, int row, READ &read) {
  uint32_t to[1];
  nn_read<4>(to, from + (word * NN_INTERLEAVED_ROWS + row) * 4, read);
  return to[0];
}

/* The f16 of row `row`, of sixteen. */
template <class READ> __device__ __forceinline__ float nn_interleaved_f16(const uint8_t *from, int row, READ &read) {
  uint32_t to[1];
  nn_read<2>(to, from + 2 * row, read);
  return nn_low_f16(to[0]);
}

/* Of rows in FORMAT. load: part j of row `row` of the sixteen blocks at `blocks`; place: which byte of a block, and of
 * which row, is byte `at` of the sixteen. */
template <int FORMAT> struct nn_interleaved;

struct nn_interleaved_place {
  int row, byte;
};

/* Of words of sixteen rows each, from byte `at` on; they begin at byte `first` of a block. */
__host__ __device__ constexpr nn_interleaved_place nn_interleaved_words(int at, int first) {
  return {at / 4 % NN_INTERLEAVED_ROWS, first + at / (4 * NN_INTERLEAVED_ROWS) * 4 + at % 4};
}

/* Of a format whose blocks lie as they do in plain rows: F16S numbers of 16 bits, or of SIZE bytes, then words. */
template <int F16S, int SIZE = 2> struct nn_interleaved_in_order {
  static constexpr int HALVES = SIZE * F16S * NN_INTERLEAVED_ROWS; /* bytes of those numbers */
  static __device__ __forceinline__ nn_interleaved_place place(int at) {
    return at < HALVES ? nn_interleaved_place{at / SIZE % NN_INTERLEAVED_ROWS,
                                              at / (SIZE * NN_INTERLEAVED_ROWS) * SIZE + at % SIZE}
                       : nn_interleaved_words(at - HALVES, SIZE * F16S);
  }
  /* Words `first` .. of row `row`. */
  template <int COUNT, class READ>
  static __device__ __forceinline__ void words(uint32_t (&to)[COUNT], const uint8_t *blocks, int first, int row,
                                               READ &read) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      to[i] = nn_interleaved_word(blocks + HALVES, first + i, row, read);
    }
  }
  /* The minimum as it is stored. */
  template <class READ> static __device__ __forceinline__ float minimum(const uint8_t *blocks, int row, READ &read) {
    static_assert(F16S == 2, "of a format that has minima");
    return nn_interleaved_f16(blocks + 2 * NN_INTERLEAVED_ROWS, row, read);
  }
};

template <> struct nn_interleaved<NNCUDA_FORMAT_Q4_0> : nn_interleaved_in_order<1> {
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int, READ &read) {
    uint32_t packed[4];
    words(packed, blocks, 0, row, read);
    nn_halves(to.quants, packed);
    to.scale = nn_interleaved_f16(blocks, row, read);
  }
};

template <> struct nn_interleaved<NNCUDA_FORMAT_Q4_1> : nn_interleaved_in_order<2> {
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int, READ &read) {
    uint32_t packed[4];
    words(packed, blocks, 0, row, read);
    nn_halves(to.quants, packed);
    to.scale = nn_interleaved_f16(blocks, row, read);
    to.minimum = minimum(blocks, row, read);
  }
};

template <> struct nn_interleaved<NNCUDA_FORMAT_Q5_0> : nn_interleaved_in_order<1> {
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int, READ &read) {
    uint32_t packed[5];
    words(packed, blocks, 0, row, read);
    nn_halves(to.quants, packed + 1);
    nn_fifths(to.quants, packed[0]);
    to.scale = nn_interleaved_f16(blocks, row, read);
  }
};

template <> struct nn_interleaved<NNCUDA_FORMAT_Q5_1> : nn_interleaved_in_order<2> {
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int, READ &read) {
    uint32_t packed[5];
    words(packed, blocks, 0, row, read);
    nn_halves(to.quants, packed + 1);
    nn_fifths(to.quants, packed[0]);
    to.scale = nn_interleaved_f16(blocks, row, read);
    to.minimum = minimum(blocks, row, read);
  }
};

template <> struct nn_interleaved<NNCUDA_FORMAT_Q8_0> : nn_interleaved_in_order<1> {
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int, READ &read) {
    words(to.quants, blocks, 0, row, read);
    to.scale = nn_interleaved_f16(blocks, row, read);
  }
};

/* Scale and minimum of part j, from the three words of factors that come first. */
template <class READ>
__device__ __forceinline__ void nn_interleaved_part_scales(nn_part &to, const uint8_t *blocks, int row, int j,
                                                           READ &read) {
  using order = nn_interleaved_in_order<2>;
  uint32_t factors[3];
  order::words(factors, blocks, 0, row, read);
  const float scale = nn_interleaved_f16(blocks, row, read), minimum = order::minimum(blocks, row, read);
  nn_part_scales(to, scale, minimum, factors, j);
}

template <> struct nn_interleaved<NNCUDA_FORMAT_Q4_K> : nn_interleaved_in_order<2> {
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int j, READ &read) {
    words(to.quants, blocks, 3 + NN_PART_WORDS * (j >> 1), row, read);
#pragma unroll
    for (int i = 0; i < NN_PART_WORDS; i++) {
      to.quants[i] = to.quants[i] >> (4 * (j & 1)) & 0x0f0f0f0fu;
    }
    nn_interleaved_part_scales(to, blocks, row, j, read);
  }
};

template <> struct nn_interleaved<NNCUDA_FORMAT_Q5_K> : nn_interleaved_in_order<2> {
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int j, READ &read) {
    uint32_t high[NN_PART_WORDS];
    words(high, blocks, 3, row, read);
    words(to.quants, blocks, 3 + NN_PART_WORDS * (1 + (j >> 1)), row, read);
#pragma unroll
    for (int i = 0; i < NN_PART_WORDS; i++) {
      to.quants[i] = (to.quants[i] >> (4 * (j & 1)) & 0x0f0f0f0fu) | (high[i] >> j & 0x01010101u) << 4;
    }
    nn_interleaved_part_scales(to, blocks, row, j, read);
  }
};

template <> struct nn_interleaved<NNCUDA_FORMAT_IQ4_NL> : nn_interleaved_in_order<1> {
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int, READ &read) {
    uint32_t packed[4];
    words(packed, blocks, 0, row, read);
    nn_looked_up_halves<NNCUDA_FORMAT_IQ4_NL>(to.quants, packed);
    to.scale = nn_interleaved_f16(blocks, row, read);
  }
};

template <> struct nn_interleaved<NNCUDA_FORMAT_MXFP4> : nn_interleaved_in_order<1, 1> {
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int, READ &read) {
    uint32_t packed[4], scale[1];
    words(packed, blocks, 0, row, read);
    nn_looked_up_halves<NNCUDA_FORMAT_MXFP4>(to.quants, packed);
    nn_read<1>(scale, blocks + row, read);
    to.scale = nn_e8m0_half((uint8_t)scale[0]);
  }
};

template <> struct nn_interleaved<NNCUDA_FORMAT_IQ4_XS> : nn_interleaved_in_order<0> {
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int j, READ &read) {
    uint32_t head[2], packed[4];
    words(head, blocks, 0, row, read);
    words(packed, blocks, 2 + 4 * j, row, read);
    nn_looked_up_halves<NNCUDA_FORMAT_IQ4_XS>(to.quants, packed);
    to.scale = nn_iq4_xs_scale(head[0], head[1], j);
  }
};

/* Words i and 8 + i of a half's low bits and word i of its high ones are neighbours, for i = 0 .. 7. */
template <> struct nn_interleaved<NNCUDA_FORMAT_Q6_K> {
  static constexpr int SCALES = 2 * NN_INTERLEAVED_ROWS, FACTORS = 16 * NN_INTERLEAVED_ROWS;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int j, READ &read) {
    const int half = j >> 2, in_half = j & 3;
    const uint8_t *const words = blocks + SCALES + FACTORS;
#pragma unroll
    for (int i = 0; i < NN_PART_WORDS; i++) {
      const int first = (half * NN_PART_WORDS + i) * 3;
      const uint32_t low = nn_interleaved_word(words, first + (in_half & 1), row, read),
                     high = nn_interleaved_word(words, first + 2, row, read);
      to.quants[i] = (low >> (4 * (in_half >> 1)) & 0x0f0f0f0fu) | (high >> (2 * in_half) & 0x03030303u) << 4;
    }
    const uint8_t *const factors = blocks + SCALES + 2 * j * NN_INTERLEAVED_ROWS + row;
    uint32_t factor[2][1];
    nn_read<1>(factor[0], factors, read);
    nn_read<1>(factor[1], factors + NN_INTERLEAVED_ROWS, read);
    to.factor[0] = (int8_t)factor[0][0];
    to.factor[1] = (int8_t)factor[1][0];
    to.scale = nn_interleaved_f16(blocks, row, read);
  }
  static __device__ __forceinline__ nn_interleaved_place place(int at) {
    if (at < SCALES) {
      return {at / 2, 208 + at % 2};
    }
    if (at < SCALES + FACTORS) {
      return {(at - SCALES) % NN_INTERLEAVED_ROWS, 192 + (at - SCALES) / NN_INTERLEAVED_ROWS};
    }
    const nn_interleaved_place words = nn_interleaved_words(at - SCALES - FACTORS, 0);
    const int word = words.byte / 4, half = word / 24, i = word % 24 / 3, kind = word % 3;
    const int byte = kind == 2 ? 128 + half * 32 + i * 4 : half * 64 + kind * 32 + i * 4;
    return {words.row, byte + words.byte % 4};
  }
};

/* Scale and minimum, the words of factors, those of quants. */
template <> struct nn_interleaved<NNCUDA_FORMAT_Q2_K> {
  using order = nn_interleaved_in_order<2>;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int j, READ &read) {
    uint32_t factors[1];
    order::words(to.quants, blocks, 4 + NN_PART_WORDS * (j >> 2), row, read);
    order::words(factors, blocks, j >> 1, row, read);
    nn_twos(to.quants, j);
    nn_two_factors(to, factors[0], 16 * (j & 1));
    to.scale = nn_interleaved_f16(blocks, row, read);
    to.minimum = -order::minimum(blocks, row, read);
  }
  static __device__ __forceinline__ nn_interleaved_place place(int at) {
    const nn_interleaved_place in_order = order::place(at); /* 4 bytes late: the f16 numbers are last in a block */
    return {in_order.row, in_order.byte < 4 ? 80 + in_order.byte : in_order.byte - 4};
  }
};

/* The scale, the words of factors, those of third bits, those of the others. */
template <> struct nn_interleaved<NNCUDA_FORMAT_Q3_K> {
  using order = nn_interleaved_in_order<1>;
  template <class READ>
  static __device__ __forceinline__ void load(nn_part &to, const uint8_t *blocks, int row, int j, READ &read) {
    uint32_t high[NN_PART_WORDS], low_factors[1], high_factors[1];
    order::words(high, blocks, 3, row, read);
    order::words(to.quants, blocks, 3 + NN_PART_WORDS * (1 + (j >> 2)), row, read);
    order::words(low_factors, blocks, j >> 1 & 1, row, read);
    order::words(high_factors, blocks, 2, row, read);
    nn_twos(to.quants, j);
    nn_thirds(to.quants, high, j);
    nn_three_factors(to, low_factors[0], high_factors[0], j);
    to.scale = nn_interleaved_f16(blocks, row, read);
  }
  static __device__ __forceinline__ nn_interleaved_place place(int at) {
    const nn_interleaved_place in_order = order::place(at);
    const int byte = in_order.byte;
    return {in_order.row, byte < 2 ? 108 + byte : byte < 14 ? 96 + byte - 2 : byte - 14};
  }
};

/* Part `part` of row `row` of the sixteen rows at `rows`. */
template <int FORMAT, class READ = nn_read_now>
__device__ __forceinline__ void nn_load_interleaved_part(nn_part &to, const uint8_t *rows, int row, int64_t part,
                                                         READ read = {}) {
  using S = nn_stored<FORMAT>;
  constexpr int PARTS = S::BLOCK / NN_PART;
  nn_interleaved<FORMAT>::load(to, rows + part / PARTS * (S::BYTES * NN_INTERLEAVED_ROWS), row, (int)(part % PARTS),
                               read);
}

#endif
