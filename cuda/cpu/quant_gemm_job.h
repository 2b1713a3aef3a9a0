/*
 * A product with stored weights being computed, as its files share it.
 *
 * The scheme: the activations are rounded once a call (quant_gemm_round.h); a task owns some columns of the result,
 * that is rows of one matrix, and a panel of its rows; it leaves their sums in scratch memory, and finishes them there:
 * bias, activation, residual, or the gate. Weights are read as they lie in the file.
 *
 * An element of the result is summed by one task in an order that depends on k and the format alone, so its bits depend
 * neither on the threads nor on the rows beside it. Products with block formats even have the same bits on each
 * instruction set: sums within a block are of integers, hence exact in any order, and a block adds to its element by
 * one sum = fma(d_x * d_w, (float)integers, sum) and, where the format has minima, after it sum = fma(d_x *
 * (float)codes_x, minimum_w, sum) with each product rounded once. d_w is exact: scales of K-formats are a product of 11
 * and 6 bits, and in q2_k, q3_k and q6_k, with a scale for 16 elements, the two scales of a block are applied to the
 * integers, which stay below 2^24. The minima of q2_k are such integers, too: of either half's codes_x times its
 * minimum, with sum = fma(d_x * minimum_w, (float)integers, sum).
 */
#ifndef NN_CPU_QUANT_GEMM_JOB_H
#define NN_CPU_QUANT_GEMM_JOB_H

#include "kernel.h"

#include "abi/quant.h"
#include "numbers/format.h"

/* Magnitudes below this count as zero: 127 / a stays finite. */
#define QUANT_LEAST 0x1p-100f

/* Elements that share a scale of the activations. */
enum { QUANT_BLOCK = 32 };

/* Forms that the activations are rounded to; one for each kind of format that a call has. */
enum { QUANT_FORM_BLOCKS, QUANT_FORM_INTERLEAVED, QUANT_FORM_F32, QUANT_FORM_F16, QUANT_FORM_BF16, QUANT_FORMS };

enum {
  QUANT_ROWS = 16,            /* rows of the activations in a tile */
  QUANT_FOUR = 4,             /* that vectors take together, at most; three are taken as so many */
  QUANT_PANEL = 512,          /* most rows in a task */
  QUANT_COLUMNS = 64,         /* columns of a task when the panel has many rows */
  QUANT_COLUMNS_MOST = 512,   /* when it has few */
  QUANT_TASK_BYTES = 96 << 10 /* of weights in such a task */
};

/*
 * The activations, rounded. Tiles of QUANT_ROWS rows; a panel begins with a tile. The backend says in which order a
 * panel of so many rows has its codes and scales (quant_order, quant_gemm_backend.h):
 *
 *   QUANT_BY_ROW   row by row
 *   QUANT_BY_RUN   in runs of QUANT_RUN blocks, each with all rows of the panel, row by row: what is multiplied with
 *                  the same weights is one run of memory
 *   QUANT_BY_TILE  a tile's scales as [k / 32][QUANT_ROWS], its codes as [k / 32][8][QUANT_ROWS][4] for weights row by
 *                  row, and as [k / 64][QUANT_ROWS][64] for interleaved ones: the factor whose rows stay as they are is
 *                  the other one
 */
enum { QUANT_BY_ROW, QUANT_BY_RUN, QUANT_BY_TILE };
enum { QUANT_RUN = 8 };

typedef struct quant_activations {
  int8_t *codes; /* [tiles * QUANT_ROWS, k, interleaved rounded up to 64]; of f32, f16 and bf16 unused */
  float *scale;  /* [tiles * QUANT_ROWS, k / 32] d */
  float *total;  /* as scale: d * (float)(sum of codes) */
  int32_t *sums; /* not by tile: [tiles * QUANT_ROWS, k / 16] sums of 16 codes */
  float *values; /* [tiles * QUANT_ROWS, k] */
} quant_activations;

/* Rows of the activations that meet one matrix. */
typedef struct quant_panel {
  int64_t row, rows, group;
  int64_t tile; /* the first of its tiles */
} quant_panel;

typedef struct quant_job {
  const nn_gemm_quant_args *args;
  quant_panel *panel;
  int64_t panels;
  int64_t parts; /* of QUANT_ROWS rows, that the longest panel has */
  quant_activations activations[QUANT_FORMS];
  int64_t columns;                      /* of a task */
  int64_t chunks;                       /* tasks a panel */
  int64_t chunk[NN_QUANT_MATRICES + 1]; /* first of each matrix */
  char *scratch;
  int64_t scratch_step; /* bytes a worker */
  int64_t ld;           /* of sums */
  int64_t threads;      /* that take tasks in turn; decides what is fetched ahead, and nothing else */
} quant_job;

/* A task's part of the product with one matrix: sums[r * ld + c] = row r of the panel times row c of `w`. */
typedef struct quant_piece {
  const quant_job *job;
  const quant_panel *panel;
  const uint8_t *w;
  const uint8_t *next; /* weights that the same worker will probably read then: to be fetched after the last ones */
  int64_t row_bytes, columns, k;
  int32_t format;
  float *sums;
  int64_t ld;
  char *work; /* quant_work_bytes */
} quant_piece;

/* Where the weights after columns c .. c+count-1 of a piece begin. */
NN_INLINE uintptr_t quant_next(const quant_piece *t, int64_t c, int64_t count) {
  return (uintptr_t)(c + count < t->columns ? t->w + (c + count) * t->row_bytes : t->next);
}

/* Fetches the lines of so many bytes from *next on, and leaves it at the line after them. */
NN_INLINE void quant_fetch(uintptr_t *next, int64_t bytes) {
  for (const uintptr_t end = *next + (uintptr_t)bytes; *next < end; *next += 64) {
    __builtin_prefetch((const void *)*next, 0, 2);
  }
}

/* Codes of a row of the activations. */
NN_PLAIN NN_INLINE int64_t quant_row_codes(int32_t form, int64_t k) {
  return form == QUANT_FORM_INTERLEAVED ? nn_round_up(k, 2 * QUANT_BLOCK) : k;
}

NN_PLAIN NN_INLINE int32_t quant_form_of(int32_t format) {
  switch (format) {
  case NNCUDA_FORMAT_F32:
    return QUANT_FORM_F32;
  case NNCUDA_FORMAT_F16:
    return QUANT_FORM_F16;
  case NNCUDA_FORMAT_BF16:
    return QUANT_FORM_BF16;
  default:
    return nn_format_of_interleaved(format) < 0 ? QUANT_FORM_BLOCKS : QUANT_FORM_INTERLEAVED;
  }
}

/* a * b + c rounded once, on every instruction set. */
NN_INLINE float quant_fma(float a, float b, float c) { return fmaf(a, b, c); }

#endif
