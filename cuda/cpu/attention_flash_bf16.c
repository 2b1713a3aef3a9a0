/*
 * Attention in blocks (attention_flash.c) in bf16 by tile registers, on the forms of attention_bf16.h. Probabilities
 * are rounded to bf16 for the product with the values, as the tensor cores of a GPU take them; their sums, and so the
 * log-sum-exp, are those of the numbers before.
 */
#include "kernel.h"

#if defined(__AMX_BF16__)

#include "attention_bf16.h"

#include <float.h>

#include "abi/generated/attention.h"

/* Keys of a step, and units of keys and values that are packed at a time: they stay in L2. */
enum { STEP_KEYS = 128, STEP_UNITS = STEP_KEYS / BF16_PAIR, PACKED_UNITS = 1 << 18 };

typedef struct flash {
  const nn_flash_attention_args *a;
  unit *keys, *values; /* of each (sequence, key head) in this round: rows by key, and by column in each step of keys */
  char *workspace;     /* of each worker */
  int64_t round;       /* (sequence, key head) pairs that are packed at a time */
  int64_t first_pair, pairs; /* those in this round */
  int64_t query_blocks, steps, size, workspace_size;
} flash;

/* What a worker needs for a block of queries. */
typedef struct flash_block {
  unit *q, *p;         /* lanes by query */
  float *scores, *out; /* [STEP_KEYS][BF16_QUERIES], [whole(dim)][BF16_QUERIES] */
  vf peak[BF16_PANELS], sum[BF16_PANELS];
} flash_block;

static void flash_pack_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const flash *f = arg;
  const nn_flash_attention_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const int64_t local = i / f->steps, pair = f->first_pair + local, begin = i % f->steps * STEP_KEYS;
  const int64_t keys = nn_min(STEP_KEYS, s->kv_len - begin),
                at = local * f->size + begin * whole(s->head_dim) / BF16_PAIR;
  const int64_t from = (pair / s->kv_heads * s->kv_len + begin) * a->ld_kv + pair % s->kv_heads * s->head_dim;
  copy_rows(f->keys + at, (const uint16_t *)a->k + from, a->ld_kv, keys, whole(keys), s->head_dim);
  columns_to_rows(f->values + at, STEP_UNITS, (const uint16_t *)a->v + from, a->ld_kv, keys, whole(keys), s->head_dim);
}

/*
 * The softmax of a step's scores of lanes r .. r+15 against their running maxima, into p; what the output so far is to
 * be multiplied by. Lanes that see no key get NaN, which store_lanes replaces.
 */
NN_INLINE vf flash_soften(flash_block *b, int64_t v, int64_t keys, const sight *s, float factor) {
  const float *scores = b->scores + v * VF;
  const int64_t r = v * VF, all = nn_min(keys, seen_by_all(s, r)), any = nn_min(keys, seen_by_any(s, r));
  const int64_t none = before_all(s, r), some = before_any(s, r, VF);
  const vf scale = vf_set1(factor);
  vf top[2] = {b->peak[v], b->peak[v]};
  int64_t j = none;
  for (; j < nn_min(some, any); j++) {
    const vf x = vf_load(scores + j * BF16_QUERIES) * scale;
    top[0] = _mm512_mask_max_ps(top[0], seeing(s, r, j), x, top[0]);
  }
  for (; j + 2 <= all; j += 2) {
    top[0] = vf_max(vf_load(scores + j * BF16_QUERIES) * scale, top[0]);
    top[1] = vf_max(vf_load(scores + (j + 1) * BF16_QUERIES) * scale, top[1]);
  }
  for (; j < any; j++) {
    const vf x = vf_load(scores + j * BF16_QUERIES) * scale;
    top[0] = _mm512_mask_max_ps(top[0], seeing(s, r, j), x, top[0]);
  }
  const vf peak = vf_max(top[0], top[1]), zero = vf_set1(0.0f);
  const vf rescale = vf_exp2(b->peak[v] - peak), lowered = zero - peak;
  b->peak[v] = peak;
  vf sums[2] = {zero, zero};
  unit *p = b->p + v * STEP_UNITS * VF;
  const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32((int)0xffff0000);
  for (j = 0; j < none; j += BF16_PAIR) {
    store_units(p + j / BF16_PAIR * VF, zero);
  }
  for (; j < any; j += BF16_PAIR) {
    vf x[BF16_PAIR];
    NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) {
      x[i] = vf_exp2(vf_fma(vf_load(scores + (j + i) * BF16_QUERIES), scale, lowered));
      if (j + BF16_PAIR > all || j < some) {
        x[i] = _mm512_maskz_mov_ps(seeing(s, r, j + i), x[i]);
      }
      sums[i] = sums[i] + x[i];
    }
    /* Neither is negative nor above 1. */
    const __m512i first = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(x[0]), half), 16);
    const __m512i second = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x[1]), half), high);
    _mm512_storeu_si512(p + j / BF16_PAIR * VF, _mm512_or_si512(first, second));
  }
  for (; j < keys; j += BF16_PAIR) {
    store_units(p + j / BF16_PAIR * VF, zero);
  }
  b->sum[v] = vf_fma(b->sum[v], rescale, sums[0] + sums[1]);
  return rescale;
}

/* A step of keys: its scores, their softmax, and what that adds to the output. */
static void flash_step(flash_block *b, const unit *keys, const unit *values, int64_t count, const sight *s,
                       float factor, int32_t first, int64_t dim) {
  const int64_t padded = whole(count), columns = whole(dim);
  multiply(&(bf16_product){.a = keys,
                           .b = b->q,
                           .c = b->scores,
                           .a_step = columns / BF16_PAIR,
                           .units = columns / BF16_PAIR,
                           .panel = columns / BF16_PAIR,
                           .ld = BF16_QUERIES,
                           .rows = padded,
                           .lanes = BF16_QUERIES});
  const vf one = vf_set1(1.0f);
  for (int64_t v = 0; v < BF16_PANELS; v++) {
    const vf rescale = flash_soften(b, v, padded, s, factor);
    if (!first && _mm512_cmp_ps_mask(rescale, one, _CMP_NEQ_UQ) != 0) {
      float *out = b->out + v * VF;
      for (int64_t d = 0; d < columns; d++, out += BF16_QUERIES) {
        vf_store(out, vf_load(out) * rescale);
      }
    }
  }
  multiply(&(bf16_product){.a = values,
                           .b = b->p,
                           .c = b->out,
                           .a_step = STEP_UNITS,
                           .units = padded / BF16_PAIR,
                           .panel = STEP_UNITS,
                           .ld = BF16_QUERIES,
                           .rows = columns,
                           .lanes = BF16_QUERIES,
                           .add = !first});
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
  flash_block b;
  b.q = (unit *)(void *)(f->workspace + worker * f->workspace_size);
  b.p = b.q + BF16_QUERIES * columns / BF16_PAIR;
  b.scores = (float *)(void *)(b.p + BF16_QUERIES * STEP_UNITS);
  b.out = b.scores + STEP_KEYS * BF16_QUERIES;
  for (int64_t v = 0; v < BF16_PANELS; v++) {
    b.peak[v] = vf_set1(a->starts ? -FLT_MAX : -INFINITY); /* finite where a row may see none of the first keys */
    b.sum[v] = vf_set1(0.0f);
  }
  tile_registers_open();
  rows_to_lanes(b.q, (const uint16_t *)a->q + (sequence * s->q_len + row) * a->ld_q + head * dim, a->ld_q, rows,
                BF16_QUERIES, dim);
  /* Query r of the block sees seen + r keys, of which there are kv_len. */
  const int64_t seen = row + s->kv_len - s->q_len + 1;
  const int64_t limit = a->causal ? nn_min(s->kv_len, seen + rows - 1) : s->kv_len;
  const float factor = (float)(a->scale * LOG2E);
  const int32_t *starts = a->starts ? a->starts + sequence * s->q_len + row : NULL;
  const int64_t begin = starts ? starts[0] / STEP_KEYS * STEP_KEYS : 0;
  for (int64_t key = begin; key < limit; key += STEP_KEYS) {
    const int64_t keys = nn_min(STEP_KEYS, limit - key), at = local * f->size + key * columns / BF16_PAIR;
    const sight sees = {
        .seen = seen - key, .keys = keys, .causal = a->causal, .starts = starts, .key = key, .rows = rows};
    flash_step(&b, f->keys + at, f->values + at, keys, &sees, factor, key == begin, dim);
  }
  tile_registers_close();
  const int64_t blind = a->causal ? nn_max(0, nn_min(rows, 1 - seen)) : 0; /* the first rows, without keys */
  vf inverse[BF16_PANELS];
  for (int64_t v = 0; v < BF16_PANELS; v++) {
    inverse[v] = vf_set1(1.0f) / b.sum[v];
    const int64_t count = nn_min(VF, rows - v * VF);
    if (a->lse && count > 0) {
      const split_factor ln2 = split_double(LN2);
      const vf low = vf_fma(b.peak[v], vf_set1(ln2.low), vf_log(b.sum[v]));
      vf lse = vf_fma(b.peak[v], vf_set1(ln2.high), low);
      if (v * VF < blind) {
        lse = _mm512_mask_mov_ps(lse, vf_mask(nn_min(VF, blind - v * VF)), vf_set1(-INFINITY));
      }
      vf_store_part(a->lse + (sequence * s->heads + head) * s->q_len + row + v * VF, count, lse);
    }
  }
  const int64_t out_ld = s->heads * dim;
  uint16_t *out = (uint16_t *)a->out + (sequence * s->q_len + row) * out_ld + head * dim;
  store_lanes(out, out_ld, b.out, inverse, blind, rows, dim);
}

NN_PLAIN static flash flash_attention_lay_out(const nn_flash_attention_args *a, nn_workspace *w) {
  const nn_attention_shape *s = &a->shape;
  const int64_t columns = whole(s->head_dim), pairs = s->batch * s->kv_heads;
  flash f = {.a = a, .query_blocks = nn_ceil_div(s->q_len, BF16_QUERIES), .steps = nn_ceil_div(s->kv_len, STEP_KEYS)};
  f.size = f.steps * STEP_KEYS * columns / BF16_PAIR;
  const int64_t units = BF16_QUERIES * (columns / BF16_PAIR + STEP_UNITS + STEP_KEYS + columns);
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
