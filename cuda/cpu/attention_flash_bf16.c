/*
 * Attention in blocks (attention_flash.c) in bf16 by tile registers, on the forms of attention_bf16.h. Probabilities
 * are rounded to bf16 for the product with the values, as the tensor cores of a GPU take them; their sums, and so the
 * log-sum-exp, are those of the numbers before.
 *
 * What is computed at a time is a part: 16 queries, which are the lanes of a vector, against the keys of a step. Tile
 * registers multiply while vectors compute powers of two, if the instructions of both lie side by side. So each turn
 * computes the softmax of one part between the products of two others: the scores of the part after it, and what the
 * part before it adds to the output.
 */
#include "kernel.h"

#if defined(__AMX_BF16__)

#include "attention_bf16.h"

#include <float.h>

#include "abi/generated/attention.h"

/*
 * Keys of a step, and units of keys and values that are packed at a time: they stay in L2, and pass by line after line.
 *
 * Milliseconds of a core, the best of many on a busy machine, for a head of 1024 queries and as many keys, without the
 * causal mask, of 64 and of 128 columns:
 *   scores, softmax and output of a step after each other, 64 queries and 128 keys     0.63    0.98
 *   parts in turns, keys and values in whole rows                                      0.44    0.91
 *   tiles of them in the order in which they are multiplied                            0.41    0.72
 * The products alone would take 0.10 and 0.20 there, the softmax alone 0.15. Parts of 32 queries and 32 keys were
 * slower at 64 columns, and so were steps of 32 or 128 keys and blocks of 128 queries. With the causal mask maxima rise
 * more often.
 */
enum { STEP_KEYS = 64, STEP_UNITS = STEP_KEYS / BF16_PAIR, PACKED_UNITS = 1 << 18, PARTS = 4 };

typedef struct flash {
  const nn_flash_attention_args *a;
  unit *keys, *values;       /* of each (sequence, key head) in this round: tiles by key and, in each step, by column */
  char *workspace;           /* of each worker */
  int64_t round;             /* (sequence, key head) pairs that are packed at a time */
  int64_t first_pair, pairs; /* those in this round */
  int64_t query_blocks, steps, size, workspace_size;
} flash;

/* What a worker needs for a block of queries. */
typedef struct flash_block {
  unit *q;    /* lanes by query */
  float *out; /* [BF16_PANELS][whole(dim)][VF] */
  float factor;
  vf peak[BF16_PANELS], sum[BF16_PANELS];
} flash_block;

/* Queries panel * VF .. + VF-1 of the block against a step of keys. */
typedef struct flash_part {
  int64_t panel, key;        /* of the first query and key */
  const unit *keys, *values; /* of the step */
  float *scores;             /* [STEP_KEYS][VF]; from the front they become probabilities, units of lanes */
  int32_t first;             /* nothing was added to the output yet */
  int32_t grown;             /* the output is to be multiplied by `rescale` before */
  vf rescale;
} flash_part;

/* What vectors do beside the products of a turn: the largest scores of a part, and the softmax of the one before it. */
typedef struct beside {
  const float *looked, *looked_end; /* scores of a key; four keys are next */
  vf top[4];
  const float *scores, *scores_end; /* the keys j, j+1 are next */
  unit *p;
  vf scale, lowered, sums[BF16_PAIR];
} beside;

/*
 * Where row r of a left factor of `units` units a row has the 16 from u on. Tiles of 16 rows lie in the order in which
 * multiply_rows takes them, two of the same units after each other, so that they pass by line after line.
 */
NN_INLINE int64_t tile_row(int64_t r, int64_t u, int64_t units) { return r / 32 * 32 * units + u * 32 + r % 32 * 16; }

static void flash_pack_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const flash *f = arg;
  const nn_flash_attention_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const int64_t local = i / f->steps, pair = f->first_pair + local, begin = i % f->steps * STEP_KEYS;
  const int64_t keys = nn_min(STEP_KEYS, s->kv_len - begin), dim = s->head_dim, columns = whole(dim);
  const int64_t at = local * f->size + begin * columns / BF16_PAIR;
  const int64_t from = (pair / s->kv_heads * s->kv_len + begin) * a->ld_kv + pair % s->kv_heads * dim;
  const uint16_t *k = (const uint16_t *)a->k + from, *v = (const uint16_t *)a->v + from;
  for (int64_t r = 0; r < STEP_KEYS; r++) {
    for (int64_t d = 0; d < columns; d += BF16_TILE) {
      store_units(f->keys + at + tile_row(r, d / BF16_PAIR, columns / BF16_PAIR),
                  r < keys ? row_units(k + r * a->ld_kv, d, dim) : vf_set1(0.0f));
    }
  }
  for (int64_t p = 0; p < STEP_UNITS; p += VF) {
    for (int64_t d = 0; d < columns; d += VF) {
      vf y[VF];
      NN_UNROLL for (int j = 0; j < VF; j++) { y[j] = column_units(v, a->ld_kv, p + j, keys, d, dim); }
      transpose(y);
      NN_UNROLL for (int j = 0; j < VF; j++) { store_units(f->values + at + tile_row(d + j, p, STEP_UNITS), y[j]); }
    }
  }
}

/*
 * 2^x for x < 128 within 2 ulp, exact for whole x, zero for -inf: vf_exp2 with a polynomial of one degree less, whose
 * error is 2^-23.3.
 */
NN_INLINE vf power(vf x) {
  const vf r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  vf p = vf_set1(0x1.e97516p-10f);
  p = vf_fma(p, r, vf_set1(0x1.27784ep-7f));
  p = vf_fma(p, r, vf_set1(0x1.c91ce8p-5f));
  p = vf_fma(p, r, vf_set1(0x1.ebdb56p-3f));
  p = vf_fma(p, r, vf_set1(0x1.62e4bap-1f));
  p = vf_fma(p, r, vf_set1(1.0f));
  return vf_ldexp(p, x);
}

/* Hides the keys of a step that a part's queries do not see. */
static void hide(float *scores, int64_t r, const sight *s) {
  const int64_t all = seen_by_all(s, r), some = nn_min(STEP_KEYS, before_any(s, r, VF));
  const vf lowest = vf_set1(-INFINITY);
  for (int64_t j = some > 0 ? 0 : all; j < STEP_KEYS; j = j + 1 == some ? nn_max(all, some) : j + 1) {
    vf_store(scores + j * VF, _mm512_mask_mov_ps(lowest, seeing(s, r, j), vf_load(scores + j * VF)));
  }
}

/* Nothing to look at is one key that is done already, and so is nothing to soften. */
NN_INLINE beside beside_begin(const flash_block *b, const flash_part *looked, const flash_part *softened) {
  const vf zero = vf_set1(0.0f);
  beside s = {.scale = vf_set1(b->factor), .lowered = zero, .sums = {zero, zero}};
  NN_UNROLL for (int i = 0; i < 4; i++) { s.top[i] = vf_set1(-INFINITY); }
  if (looked) {
    s.looked = looked->scores;
    s.looked_end = s.looked + STEP_KEYS * VF;
  }
  if (softened) {
    s.scores = softened->scores;
    s.scores_end = s.scores + STEP_KEYS * VF;
    s.p = (unit *)(void *)softened->scores;
    s.lowered = zero - b->peak[softened->panel];
  }
  return s;
}

/* At most `fours` times four keys more. */
NN_INLINE void look(beside *s, const int fours) {
  for (int n = 0; n < fours && s->looked < s->looked_end; n++) {
    NN_UNROLL for (int i = 0; i < 4; i++) { s->top[i] = vf_max(vf_load(s->looked + i * VF), s->top[i]); }
    s->looked += 4 * VF;
  }
}

/* Moves the maxima of a part's queries up, where they have to. Lanes that see no key get NaN, which store_lanes
 * replaces. */
NN_INLINE void raise_peaks(flash_block *b, flash_part *part, const beside *s) {
  const vf old = b->peak[part->panel];
  const vf highest = vf_max(vf_max(s->top[0], s->top[1]), vf_max(s->top[2], s->top[3])) * s->scale;
  const __mmask16 grown = _mm512_cmp_ps_mask(highest, old, _CMP_GT_OQ);
  part->grown = grown != 0;
  if (grown) {
    const vf peak = _mm512_mask_mov_ps(old, grown, highest);
    part->rescale = _mm512_mask_mov_ps(vf_set1(1.0f), grown, power(old - peak));
    b->peak[part->panel] = peak;
  }
}

/* At most `pairs` pairs more. */
NN_INLINE void soften(beside *s, const int pairs) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  for (int n = 0; n < pairs && s->scores < s->scores_end; n++) {
    __m512i x[BF16_PAIR];
    NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) {
      const vf p = power(vf_fma(vf_load(s->scores + i * VF), s->scale, s->lowered));
      s->sums[i] = s->sums[i] + p;
      x[i] = _mm512_add_epi32(_mm512_castps_si512(p), half); /* neither negative nor above 1 */
    }
    _mm512_storeu_si512(s->p, _mm512_mask_blend_epi16(0x55555555u, x[1], _mm512_srli_epi32(x[0], 16)));
    s->scores += BF16_PAIR * VF;
    s->p += VF;
  }
}

/* 32 rows of a product with 16 lanes, to which is added what `c` has, or nothing. Beside each tile `fours` times four
 * keys are looked at and `pairs` pairs of them softened. */
NN_INLINE void multiply_rows(float *c, const int32_t add, const unit *a, const unit *b, int64_t units, beside *s,
                             const int fours, const int pairs) {
  if (add) {
    _tile_loadd(0, c, 64);
    _tile_loadd(1, c + 16 * VF, 64);
  } else {
    _tile_zero(0);
    _tile_zero(1);
  }
  for (int64_t u = 0; u < units; u += 16) {
    _tile_loadd(4, b + u * VF, 64);
    _tile_stream_loadd(5, a + u * 32, 64);
    _tile_dpbf16ps(0, 5, 4);
    look(s, fours);
    soften(s, pairs);
    _tile_stream_loadd(6, a + u * 32 + 256, 64);
    _tile_dpbf16ps(1, 6, 4);
    look(s, fours);
    soften(s, pairs);
  }
  _tile_stored(0, c, 64);
  _tile_stored(1, c + 16 * VF, 64);
}

/* The scores of a part, the largest of those of the part before it, the softmax of the next one before, and what the
 * one before that adds to the output; any of them may be null. `pairs` of the softmax go with each tile. */
NN_INLINE void turn(flash_block *b, int64_t columns, flash_part *const parts[PARTS], const int pairs) {
  const flash_part *scored = parts[0], *softened = parts[2], *added = parts[3];
  flash_part *looked = parts[1];
  const int64_t depth = columns / BF16_PAIR;
  if (added && added->grown && !added->first) {
    float *out = b->out + added->panel * columns * VF;
    for (int64_t d = 0; d < columns; d++, out += VF) {
      vf_store(out, vf_load(out) * added->rescale);
    }
  }
  beside s = beside_begin(b, looked, softened);
  /* The compiler does not know that tile loads and stores touch memory. */
  __asm__ volatile("" ::: "memory");
  for (int64_t j = 0; scored && j < STEP_KEYS; j += 32) {
    multiply_rows(scored->scores + j * VF, 0, scored->keys + j * depth, b->q + scored->panel * VF * depth, depth, &s,
                  pairs, pairs);
  }
  if (looked) {
    look(&s, STEP_KEYS);
    raise_peaks(b, looked, &s);
  }
  for (int64_t d = 0; added && d < columns; d += 32) {
    multiply_rows(b->out + (added->panel * columns + d) * VF, !added->first, added->values + d * STEP_UNITS,
                  (const unit *)(const void *)added->scores, STEP_UNITS, &s, 0, pairs);
  }
  if (softened) {
    soften(&s, STEP_UNITS);
    vf sum = b->sum[softened->panel];
    if (softened->grown) {
      sum = sum * softened->rescale;
    }
    b->sum[softened->panel] = sum + (s.sums[0] + s.sums[1]);
  }
  __asm__ volatile("" ::: "memory");
}

#define FLASH_TURN(pairs)                                                                                              \
  static __attribute__((noinline)) void turn_by_##pairs(flash_block *b, int64_t columns,                               \
                                                        flash_part *const parts[PARTS]) {                              \
    turn(b, columns, parts, pairs);                                                                                    \
  }
FLASH_TURN(4)
FLASH_TURN(2)
FLASH_TURN(1)
#undef FLASH_TURN

/* A softmax of 32 pairs goes with columns / 4 tiles. */
static void flash_turn(flash_block *b, int64_t columns, flash_part *const parts[PARTS]) {
  if (columns >= 128) {
    turn_by_1(b, columns, parts);
  } else if (columns >= 64) {
    turn_by_2(b, columns, parts);
  } else {
    turn_by_4(b, columns, parts);
  }
}

/* Scores are compared before they are multiplied: a negative factor's sign goes to the queries, which are zeros where
 * the factor is. */
static void make_factor_positive(flash_block *b, int64_t columns) {
  if (b->factor < 0.0f) {
    for (int64_t i = 0; i < BF16_QUERIES * columns / BF16_PAIR; i++) {
      b->q[i] ^= 0x80008000u;
    }
    b->factor = -b->factor;
  } else if (b->factor == 0.0f) {
    b->factor = 1.0f;
  }
}

/* The keys from `begin` on that a block of queries sees, part by part. `scores` has room for PARTS of them; `sees`
 * counts keys from the sequence's first on. */
static void flash_keys(flash_block *b, const unit *keys, const unit *values, float *scores, int64_t begin,
                       const sight *sees, int64_t columns) {
  const int64_t panels = nn_ceil_div(sees->rows, VF);
  const int64_t count = nn_max(0, nn_ceil_div(sees->keys - begin, STEP_KEYS)) * panels;
  flash_part parts[PARTS];
  for (int64_t t = 0; t < count + PARTS - 1; t++) {
    flash_part *now[PARTS];
    for (int64_t ago = 0; ago < PARTS; ago++) {
      now[ago] = t - ago >= 0 && t - ago < count ? &parts[(t - ago) % PARTS] : NULL;
    }
    if (now[0]) {
      const int64_t key = begin + t / panels * STEP_KEYS;
      *now[0] = (flash_part){.panel = t % panels,
                             .key = key,
                             .keys = keys + key * columns / BF16_PAIR,
                             .values = values + key * columns / BF16_PAIR,
                             .scores = scores + t % PARTS * STEP_KEYS * VF,
                             .first = t < panels};
    }
    if (now[1]) {
      sight of_step = *sees;
      of_step.key = now[1]->key;
      of_step.seen -= of_step.key;
      of_step.keys = nn_min(STEP_KEYS, sees->keys - of_step.key);
      hide(now[1]->scores, now[1]->panel * VF, &of_step);
    }
    flash_turn(b, columns, now);
  }
}

/* A block of queries of one head; tasks count down from the last block, which sees the most keys. */
static void flash_task(void *arg, int64_t i, int32_t worker) {
  const flash *f = arg;
  const nn_flash_attention_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const int64_t group = s->heads / s->kv_heads, dim = s->head_dim, columns = whole(dim);
  const int64_t q_block = f->query_blocks - 1 - i % f->query_blocks, local = i / f->query_blocks / group;
  const int64_t pair = f->first_pair + local, sequence = pair / s->kv_heads;
  const int64_t head = pair % s->kv_heads * group + i / f->query_blocks % group;
  const int64_t row = q_block * BF16_QUERIES, rows = nn_min(BF16_QUERIES, s->q_len - row);
  flash_block b = {.factor = (float)(a->scale * LOG2E)};
  b.q = (unit *)(void *)(f->workspace + worker * f->workspace_size);
  b.out = (float *)(void *)(b.q + BF16_QUERIES * columns / BF16_PAIR);
  float *scores = b.out + BF16_QUERIES * columns;
  for (int64_t v = 0; v < BF16_PANELS; v++) {
    b.peak[v] = vf_set1(a->starts ? -FLT_MAX : -INFINITY); /* finite where a row may see none of the first keys */
    b.sum[v] = vf_set1(0.0f);
  }
  rows_to_lanes(b.q, (const uint16_t *)a->q + (sequence * s->q_len + row) * a->ld_q + head * dim, a->ld_q,
                b.factor == 0.0f ? 0 : rows, BF16_QUERIES, dim);
  make_factor_positive(&b, columns);
  /* Query r of the block sees seen + r keys, of which there are kv_len. */
  const int64_t seen = row + s->kv_len - s->q_len + 1;
  const int64_t limit = a->causal ? nn_min(s->kv_len, seen + rows - 1) : s->kv_len;
  const int32_t *starts = a->starts ? a->starts + sequence * s->q_len + row : NULL;
  const int64_t begin = starts ? starts[0] / STEP_KEYS * STEP_KEYS : 0;
  const sight sees = {.seen = seen, .keys = limit, .causal = a->causal, .starts = starts, .rows = rows};
  tile_registers_open();
  flash_keys(&b, f->keys + local * f->size, f->values + local * f->size, scores, begin, &sees, columns);
  tile_registers_close();
  const int64_t blind = a->causal ? nn_max(0, nn_min(rows, 1 - seen)) : 0; /* the first rows, without keys */
  vf inverse[BF16_PANELS];
  for (int64_t v = 0; v < BF16_PANELS; v++) {
    inverse[v] = vf_set1(1.0f) / b.sum[v];
    const int64_t left = nn_min(VF, rows - v * VF);
    if (a->lse && left > 0) {
      const split_factor ln2 = split_double(LN2);
      const vf low = vf_fma(b.peak[v], vf_set1(ln2.low), vf_log(b.sum[v]));
      vf lse = vf_fma(b.peak[v], vf_set1(ln2.high), low);
      if (v * VF < blind) {
        lse = _mm512_mask_mov_ps(lse, vf_mask(nn_min(VF, blind - v * VF)), vf_set1(-INFINITY));
      }
      vf_store_part(a->lse + (sequence * s->heads + head) * s->q_len + row + v * VF, left, lse);
    }
  }
  const int64_t out_ld = s->heads * dim;
  uint16_t *out = (uint16_t *)a->out + (sequence * s->q_len + row) * out_ld + head * dim;
  store_lanes(out, out_ld, b.out, VF, columns * VF, inverse, blind, rows, dim);
}

NN_PLAIN static flash flash_attention_lay_out(const nn_flash_attention_args *a, nn_workspace *w) {
  const nn_attention_shape *s = &a->shape;
  const int64_t columns = whole(s->head_dim), pairs = s->batch * s->kv_heads;
  flash f = {.a = a, .query_blocks = nn_ceil_div(s->q_len, BF16_QUERIES), .steps = nn_ceil_div(s->kv_len, STEP_KEYS)};
  f.size = f.steps * STEP_KEYS * columns / BF16_PAIR;
  const int64_t units = BF16_QUERIES * (columns / BF16_PAIR + columns) + PARTS * STEP_KEYS * VF;
  f.workspace_size = nn_round_up(units * (int64_t)sizeof(unit), 64);
  f.round = nn_max(1, nn_min(pairs, PACKED_UNITS / (2 * f.size)));
  f.workspace = nn_workspace_piece(w, (size_t)(f.workspace_size * w->machine->threads));
  f.keys = nn_workspace_piece(w, (size_t)(f.round * f.size) * sizeof(unit));
  f.values = nn_workspace_piece(w, (size_t)(f.round * f.size) * sizeof(unit));
  return f;
}

static int32_t flash_attention(nncuda_ctx *ctx, const nn_flash_attention_args *a) {
  const nn_attention_shape *s = &a->shape;
  const int64_t pairs = s->batch * s->kv_heads;
  NN_TRY(check_starts(ctx, a->starts, s->batch, s->q_len));
  flash f = flash_attention_lay_out(a, nn_workspace_of(ctx));
  for (f.first_pair = 0; f.first_pair < pairs; f.first_pair += f.pairs) {
    f.pairs = nn_min(f.round, pairs - f.first_pair);
    nn_parallel(ctx, f.pairs * f.steps, flash_pack_task, &f);
    nn_parallel(ctx, f.pairs * (s->heads / s->kv_heads) * f.query_blocks, flash_task, &f);
  }
  return NNCUDA_SUCCESS;
}

NN_BF16_KERNEL_BY(flash_attention, nn_flash_attention_args, flash_attention, flash_attention_lay_out)

#endif
