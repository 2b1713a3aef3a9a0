/*
 * attention_decode in bf16 by the tile registers of AMX (Dao et al. 2023, "Flash-Decoding"): the keys are cut into
 * pieces of a fixed number, each leaves its maximum, sum and output in scratch, and a second pass combines them in
 * order. Keys are left factors as they lie in the cache, 16 of them by 32 elements, and the queries that share a key
 * head are the lanes: a key is read once for all of them, and not widened. Values are right factors, their rows in
 * pairs. The left ones are the queries' weights, each in two parts of bf16, whose sum is within 2^-17 of the weight:
 * little beside the output's own rounding of 2^-9.
 */
#include "kernel.h"

#if defined(__AMX_BF16__)

#include "attention_bf16.h"
#include "checks.h"

#include "abi/generated/attention.h"

#include <string.h>

/* ---- pieces ---- */

enum { PIECE_KEYS = 256 };

typedef struct decode {
  const nn_attention_decode_args *a;
  float *partial, *workspace; /* [batch][heads][pieces][partial_size]: output, maximum, sum; and of each worker */
  int64_t pieces, partial_size, workspace_size;
} decode;

/* The softmax of `keys` scores against their own maximum: scores become 2^(score - maximum). */
NN_INLINE void decode_soften(float *scores, int64_t keys, float *peak, float *sum) {
  vf top = vf_set1(-INFINITY);
  for (int64_t j = 0; j < keys; j += VF) {
    top = vf_max(vf_keep_part(vf_load(scores + j), nn_min(VF, keys - j), -INFINITY), top);
  }
  *peak = vf_maximum(top);
  vf total = vf_set1(0.0f);
  for (int64_t j = 0; j < keys; j += VF) {
    const vf p = vf_keep_part(vf_exp2(vf_sub(vf_load(scores + j), vf_set1(*peak))), nn_min(VF, keys - j), 0.0f);
    total = vf_add(total, p);
    vf_store(scores + j, p);
  }
  *sum = vf_sum(total);
}

/* A row of the output, of its pieces. */
NN_INLINE void decode_combine(const decode *f, int64_t row) {
  const nn_attention_decode_args *a = f->a;
  const int64_t dim = a->head_dim, end = nn_round_up(dim, VF),
                pieces = nn_ceil_div(a->lengths[row / a->heads], PIECE_KEYS);
  const float *partial = f->partial + row * f->pieces * f->partial_size;
  float peak = -INFINITY;
  for (int64_t p = 0; p < pieces; p++) {
    const float top = partial[p * f->partial_size + end];
    peak = top > peak ? top : peak;
  }
  vf sum = vf_set1(0.0f); /* in each lane */
  for (int64_t p = 0; p < pieces; p++) {
    const float *x = partial + p * f->partial_size + end;
    sum = vf_fma(vf_set1(x[1]), vf_exp2(vf_set1(x[0] - peak)), sum);
  }
  for (int64_t d = 0; d < dim; d += VF) {
    vf total = vf_set1(0.0f);
    for (int64_t p = 0; p < pieces; p++) {
      const float *x = partial + p * f->partial_size;
      total = vf_fma(vf_load(x + d), vf_exp2(vf_set1(x[end] - peak)), total);
    }
    if (pieces > 0) {
      total = vf_div(total, sum);
    }
    vf_store_part_as(a->out, row * dim + d, nn_min(VF, dim - d), total, NNCUDA_BF16);
  }
}

NN_TASK(decode_combine_task, decode, decode_combine(job, task))

/* ---- products ---- */

enum {
  LANES = 16,          /* columns of a tile */
  QUERIES = LANES / 2, /* of a block at most: both parts of their weights fill the rows of a tile */
  KEYS = 32,           /* of a step: two tiles of scores */
  VALUES = 64,         /* of a step: two pairs of tiles */
  TILE = 256           /* units of a tile */
};

/*
 * The queries of each key head are cut into blocks of at most QUERIES, all of as many lanes; the last one's may go
 * beyond its queries, and what such lanes hold nobody reads. What a worker keeps:
 */
typedef struct blocks {
  int64_t lanes, of_head, count; /* lanes of a block, blocks of a key head and in all */
  int64_t columns;               /* of a row, filled up to whole tiles */
  unit *queries;                 /* [count][columns / 2][LANES] */
  float *raw;                    /* [count][PIECE_KEYS][LANES]: products of queries and keys */
  float *scores;                 /* [lanes][PIECE_KEYS] of a block, which become weights */
  unit *weights;  /* [count][PIECE_KEYS / 32] tiles: rows of what weights are in bf16, then of the rest */
  float *out;     /* [count][2 lanes][columns], in the order that order_columns undoes */
  unit *pairs;    /* two times two pairs of tiles of values */
  uint16_t *copy; /* [VALUES][columns]: rows that do not lie as they should */
  int64_t size;   /* units of all of these */
} blocks;

/* In `room`; without it only the size is asked for. */
NN_PLAIN static blocks lay_blocks_out(const nn_attention_decode_args *a, float *room) {
  const int64_t group = a->heads / a->kv_heads, columns = whole(a->head_dim);
  blocks b = {.lanes = nn_min(group, QUERIES), .of_head = nn_ceil_div(group, QUERIES), .columns = columns};
  b.count = a->kv_heads * b.of_head;
#define TAKE(member, type, units)                                                                                      \
  b.member = room ? (type *)(void *)(room + b.size) : NULL;                                                            \
  b.size += (units);
  TAKE(queries, unit, b.count * columns / BF16_PAIR * LANES)
  TAKE(raw, float, (b.count * PIECE_KEYS * LANES))
  TAKE(scores, float, (b.lanes * PIECE_KEYS))
  TAKE(weights, unit, b.count * PIECE_KEYS / 32 * TILE)
  TAKE(out, float, b.count * 2 * b.lanes * columns)
  TAKE(pairs, unit, 8 * TILE)
  TAKE(copy, uint16_t, (VALUES * columns / BF16_PAIR))
#undef TAKE
  return b;
}

/* The first query of a block, and how many it has. */
NN_INLINE int64_t first_of(const blocks *b, int64_t group, int64_t block) {
  return block / b->of_head * group + block % b->of_head * QUERIES;
}
NN_INLINE int64_t heads_of(const blocks *b, int64_t group, int64_t block) {
  return nn_min(b->lanes, group - block % b->of_head * QUERIES);
}

/* Registers 4 to 7 have to do with weights, two parts of as many lanes; the others are whole. */
static void open_tiles(int64_t lanes) {
  tile_configuration config = tile_registers_full();
  for (int i = 4; i < 8; i++) {
    config.rows[i] = (uint8_t)(2 * lanes);
  }
  tile_registers_configure(&config);
}

/*
 * The lines of a piece in the order in which they are read, keys and then values, and how many were asked for: some
 * before the first product, some beside each, and some beside the softmax of 16 keys, while nothing else is read.
 */
enum { AHEAD_LINES = 128, BETWEEN_LINES = 8 };

typedef struct ahead {
  const char *k, *v;
  int64_t of_each, asked;
} ahead;

NN_INLINE void ask(ahead *f, int64_t lines) {
  for (const int64_t end = nn_min(f->asked + lines, 2 * f->of_each); f->asked < end; f->asked++) {
    __builtin_prefetch(f->asked < f->of_each ? f->k + f->asked * 64 : f->v + (f->asked - f->of_each) * 64, 0, 2);
  }
}

/* The products of a block's queries with KEYS keys. */
NN_INLINE void multiply_keys(const blocks *b, int64_t block, float *raw, const uint16_t *k, int64_t ld) {
  const unit *q = b->queries + block * b->columns / BF16_PAIR * LANES;
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t d = 0; d < b->columns; d += BF16_VECTOR) {
    _tile_loadd(3, q + d / BF16_PAIR * LANES, 4 * LANES);
    _tile_loadd(2, k + d, ld * (int64_t)sizeof *k);
    _tile_dpbf16ps(0, 2, 3);
    _tile_loadd(2, k + 16 * ld + d, ld * (int64_t)sizeof *k);
    _tile_dpbf16ps(1, 2, 3);
  }
  _tile_stored(0, raw, 4 * LANES);
  _tile_stored(1, raw + TILE, 4 * LANES);
}

/* Scores of 16 keys, as powers of two: a row a query. */
NN_INLINE void turn_scores(float *scores, const float *raw, int64_t lanes, split_factor factor) {
  vf x[VF];
  NN_UNROLL for (int i = 0; i < VF; i++) { x[i] = vf_load(raw + i * LANES); }
  transpose(x);
  NN_UNROLL for (int h = 0; h < QUERIES; h++) {
    if (h < lanes) {
      vf_store(scores + h * PIECE_KEYS, vf_fma(x[h], vf_set1(factor.high), vf_mul(x[h], vf_set1(factor.low))));
    }
  }
}

/* Two rows of a left factor, of 32 keys: a weight's nearest bf16 and, `lanes` rows on, that of what is left. */
NN_INLINE void split_weights(unit *to, const float *p, int64_t lanes) {
  vf x[BF16_PAIR] = {vf_load(p), vf_load(p + VF)};
  const vf nearest = units_of_row(x);
  const __m512i bits = _mm512_castps_si512(nearest);
  const __m256i half[BF16_PAIR] = {_mm512_castsi512_si256(bits), _mm512_extracti64x4_epi64(bits, 1)};
  NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) {
    x[i] = x[i] - _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half[i]), 16));
  }
  store_units(to, nearest);
  store_units(to + lanes * VF, units_of_row(x));
}

/* 32 columns of VALUES values. Rows 2p and 2p+1 become row p % 16 of tiles 2 (p / 16) and 2 (p / 16) + 1: of each eight
 * columns the first has four, the second four. */
NN_INLINE void pair_values(unit *to, const uint16_t *v, int64_t ld) {
  for (int64_t half = 0; half < 2; half++, to += 2 * TILE, v += VALUES / 2 * ld) {
    NN_UNROLL for (int64_t p = 0; p < VF; p++) {
      const __m512i even = _mm512_loadu_si512(v + 2 * p * ld), odd = _mm512_loadu_si512(v + (2 * p + 1) * ld);
      _mm512_storeu_si512(to + p * VF, _mm512_unpacklo_epi16(even, odd));
      _mm512_storeu_si512(to + TILE + p * VF, _mm512_unpackhi_epi16(even, odd));
    }
  }
}

/* Adds what two tiles of weights and these values give to 32 columns of the output. */
NN_INLINE void add_values(const blocks *b, float *out, const unit *weights, const unit *pairs) {
  const int64_t step = b->columns * (int64_t)sizeof *out;
  _tile_loadd(4, out, step);
  _tile_loadd(5, out + VF, step);
  _tile_loadd(6, weights, 4 * VF);
  _tile_loadd(0, pairs, 4 * VF);
  _tile_dpbf16ps(4, 6, 0);
  _tile_loadd(1, pairs + TILE, 4 * VF);
  _tile_dpbf16ps(5, 6, 1);
  _tile_loadd(7, weights + TILE, 4 * VF);
  _tile_loadd(2, pairs + 2 * TILE, 4 * VF);
  _tile_dpbf16ps(4, 7, 2);
  _tile_loadd(3, pairs + 3 * TILE, 4 * VF);
  _tile_dpbf16ps(5, 7, 3);
  _tile_stored(4, out, step);
  _tile_stored(5, out + VF, step);
}

/* A row of the output, its two parts added up and in order; `to` has room for whole vectors. */
NN_INLINE void order_columns(float *to, const float *from, const float *rest, int64_t dim) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  for (int64_t d = 0; d < dim; d += BF16_VECTOR) {
    const vf x = vf_load(from + d) + vf_load(rest + d), y = vf_load(from + d + VF) + vf_load(rest + d + VF);
    vf_store(to + d, _mm512_permutex2var_ps(x, first, y));
    if (d + VF < dim) {
      vf_store(to + d + VF, _mm512_permutex2var_ps(x, second, y));
    }
  }
}

/* A piece of the keys of one sequence, for all heads. */
typedef struct piece {
  const uint16_t *k, *v; /* of its first key */
  int64_t keys, ld, dim;
} piece;

/* `rows` rows of a piece from row r on, of a block's key head: as they lie, or a copy that is filled up with zeros. */
NN_INLINE const uint16_t *rows_of(const blocks *b, const piece *p, const uint16_t *x, int64_t r, int64_t rows,
                                  int64_t block, int64_t *ld) {
  const uint16_t *from = x + r * p->ld + block / b->of_head * p->dim;
  *ld = p->ld;
  if (r + rows <= p->keys && p->dim == b->columns) {
    return from;
  }
  memset(b->copy, 0, (size_t)(rows * b->columns) * sizeof *from);
  for (int64_t i = 0; i < nn_min(rows, p->keys - r); i++) {
    memcpy(b->copy + i * b->columns, from + i * p->ld, (size_t)p->dim * sizeof *from);
  }
  *ld = b->columns;
  return b->copy;
}

/* Products of all keys; these are read in the order of memory. */
static void piece_keys(const blocks *b, const piece *p, ahead *next, int64_t lines) {
  for (int64_t r = 0; r < p->keys; r += KEYS) {
    for (int64_t block = 0; block < b->count; block++) {
      int64_t ld;
      const uint16_t *k = rows_of(b, p, p->k, r, KEYS, block, &ld);
      ask(next, lines);
      __asm__ volatile("" ::: "memory"); /* the compiler does not know that tile loads and stores touch memory */
      multiply_keys(b, block, b->raw + (block * PIECE_KEYS + r) * LANES, k, ld);
      __asm__ volatile("" ::: "memory");
    }
  }
}

/* The sum of all values; they are paired one turn before they are multiplied, so that tiles are not loaded from what
 * was just stored. */
static void piece_values(const blocks *b, const piece *p, ahead *next, int64_t lines) {
  const int64_t tiles = b->columns / BF16_VECTOR, turns = nn_ceil_div(p->keys, VALUES) * b->count * tiles;
  const unit *weights = NULL;
  float *out = NULL;
  for (int64_t n = 0; n <= turns; n++) {
    const unit *last_weights = weights;
    float *last_out = out;
    if (n < turns) {
      const int64_t r = n / tiles / b->count * VALUES, block = n / tiles % b->count, d = n % tiles * BF16_VECTOR;
      int64_t ld;
      const uint16_t *v = rows_of(b, p, p->v, r, VALUES, block, &ld);
      pair_values(b->pairs + n % 2 * 4 * TILE, v + d, ld);
      weights = b->weights + (block * PIECE_KEYS + r) / 32 * TILE;
      out = b->out + block * 2 * b->lanes * b->columns + d;
    }
    ask(next, lines);
    __asm__ volatile("" ::: "memory");
    if (n > 0) {
      add_values(b, last_out, last_weights, b->pairs + (n - 1) % 2 * 4 * TILE);
    }
    __asm__ volatile("" ::: "memory");
  }
}

static void decode_task(void *arg, int64_t task, int32_t worker) {
  const decode *f = arg;
  const nn_attention_decode_args *a = f->a;
  const int64_t sequence = task / f->pieces, first_key = task % f->pieces * PIECE_KEYS;
  piece p = {.keys = nn_min(PIECE_KEYS, a->lengths[sequence] - first_key), .dim = a->head_dim};
  if (p.keys <= 0) {
    return;
  }
  const blocks b = lay_blocks_out(a, f->workspace + worker * f->workspace_size);
  const int64_t group = a->heads / a->kv_heads, end = nn_round_up(p.keys, VALUES);
  p.ld = a->kv_heads * p.dim;
  p.k = (const uint16_t *)a->k_cache + (sequence * a->capacity + first_key) * p.ld;
  p.v = (const uint16_t *)a->v_cache + (sequence * a->capacity + first_key) * p.ld;
  const uint16_t *q = (const uint16_t *)a->q + sequence * a->ld_q;
  const split_factor factor = split_double(a->scale * LOG2E);
  float *partial = f->partial + (sequence * a->heads * f->pieces + task % f->pieces) * f->partial_size;
  const int64_t partial_ld = f->pieces * f->partial_size; /* from head to head */
  for (int64_t block = 0; block < b.count; block++) {
    rows_to_lanes(b.queries + block * b.columns / BF16_PAIR * LANES, q + first_of(&b, group, block) * p.dim, p.dim,
                  heads_of(&b, group, block), LANES, p.dim);
  }
  ahead next = {(const char *)p.k, (const char *)p.v, nn_ceil_div(p.keys * p.ld, 32), 0};
  ask(&next, AHEAD_LINES);
  open_tiles(b.lanes);
  piece_keys(&b, &p, &next, nn_ceil_div(KEYS * p.ld / 32, b.count));
  for (int64_t block = 0; block < b.count; block++) {
    for (int64_t r = 0; r < p.keys; r += VF) {
      turn_scores(b.scores + r, b.raw + (block * PIECE_KEYS + r) * LANES, b.lanes, factor);
      ask(&next, BETWEEN_LINES);
    }
    for (int64_t h = 0; h < heads_of(&b, group, block); h++) {
      float *scores = b.scores + h * PIECE_KEYS;
      float *result = partial + (first_of(&b, group, block) + h) * partial_ld + nn_round_up(p.dim, VF);
      decode_soften(scores, p.keys, result, result + 1);
      for (int64_t r = nn_round_up(p.keys, VF); r < end; r += VF) {
        vf_store(scores + r, vf_set1(0.0f));
      }
      for (int64_t r = 0; r < end; r += 32) {
        split_weights(b.weights + (block * PIECE_KEYS + r) / 32 * TILE + h * VF, scores + r, b.lanes);
      }
    }
  }
  memset(b.out, 0, (size_t)(b.count * 2 * b.lanes * b.columns) * sizeof *b.out);
  piece_values(&b, &p, &next, nn_ceil_div(VALUES * p.ld / 32, b.count * (b.columns / BF16_VECTOR)));
  tile_registers_close();
  for (int64_t block = 0; block < b.count; block++) {
    for (int64_t h = 0; h < heads_of(&b, group, block); h++) {
      const float *out = b.out + (block * 2 * b.lanes + h) * b.columns;
      order_columns(partial + (first_of(&b, group, block) + h) * partial_ld, out, out + b.lanes * b.columns, p.dim);
    }
  }
}

/* Partial results for as many pieces as the longest sequence can have. */
NN_PLAIN static decode lay_out(const nn_attention_decode_args *a, nn_workspace *w) {
  decode f = {.a = a,
              .partial_size = nn_round_up(a->head_dim, VF) + 2,
              .workspace_size = nn_round_up(lay_blocks_out(a, NULL).size, VF)};
  const int64_t most = nn_max(1, nn_ceil_div(a->capacity, PIECE_KEYS));
  f.workspace = nn_workspace_piece(w, (size_t)(f.workspace_size * w->machine->threads) * sizeof(float));
  f.partial = nn_workspace_piece(w, (size_t)(a->batch * a->heads * most * f.partial_size) * sizeof(float));
  return f;
}

static int32_t run(nncuda_ctx *ctx, const nn_attention_decode_args *a) {
  decode f = lay_out(a, nn_workspace_of(ctx));
  NN_TRY(nn_check_range(ctx, "lengths", a->lengths, a->batch, 0, a->capacity, ", the capacity"));
  int64_t longest = 0;
  for (int64_t b = 0; b < a->batch; b++) {
    longest = nn_max(longest, a->lengths[b]);
  }
  f.pieces = nn_max(1, nn_ceil_div(longest, PIECE_KEYS));
  nn_parallel(ctx, a->batch * f.pieces, decode_task, &f);
  nn_parallel(ctx, a->batch * a->heads, decode_combine_task, &f);
  return NNCUDA_SUCCESS;
}

NN_BF16_KERNEL_BY(attention_decode, nn_attention_decode_args, run, lay_out)

#endif
