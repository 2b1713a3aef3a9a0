/*
 * Attention over caches, in pages of many new tokens or of one a sequence (Dao et al. 2023, "Flash-Decoding"; Kwon et
 * al. 2023, "PagedAttention"), or each in one piece of one new token a sequence, which is cut into pages of which each
 * follows the one before it. attention_page.h has the mathematics.
 *
 * The rows of a task are (token, query head) pairs of one sequence that share a key head, so that a page is read, and
 * converted, once for all of them. A task computes all pages of its rows and merges them as it goes; where that would
 * leave workers idle, tasks compute a few pages each, and others merge them afterwards. The bits are the same.
 */
#include "attention_page.h"

#include "abi/generated/attention.h"

enum {
  TASK_ROWS = 96,
  TASKS_A_WORKER = 4,    /* fewer are cut into pages */
  PARTS_FLOATS = 1 << 22 /* but not if their parts took more memory than this */
};

/* Rows `first` .. first+rows-1 of the (token, head) pairs of a sequence, for each key head. */
typedef struct paged_block {
  int64_t sequence, first, rows;
  int64_t begin, end; /* the pages that they see any of, of their sequence's */
  int64_t before;     /* pages of all blocks before this one */
  int64_t tasks;      /* and tasks, where they are cut */
} paged_block;

typedef struct paged {
  const nn_attention_decode_paged_args *a;
  paged_sequences sequences;
  paged_block *blocks;
  int64_t count, group, pages; /* blocks; query heads a key head; pages of all blocks */
  int64_t window;              /* keys that a row sees at most */
  int64_t capacity;            /* rows of a sequence's cache that is one piece; 0 if caches are pages */
  int64_t step, of_head;       /* bytes from row to row, and from key head to key head */
  int64_t run, runs;           /* pages of a task; tasks of all blocks for each key head */
  float *workspace, *parts;    /* of each worker; [pages][kv_heads] */
  int64_t workspace_size, part_size;
} paged;

/* Counted from the sequence's last row: the last query sees all of them. */
static int64_t keys_of_row(const paged *f, const paged_block *b, int64_t row) {
  const int64_t length = f->sequences.lengths[b->sequence];
  return length == 0 ? 0 : length - paged_new_tokens(&f->sequences, b->sequence) + 1 + (b->first + row) / f->group;
}

/* What the rows of a block see of a page. */
static page_sight sight_of(const paged *f, const paged_block *b, int64_t page) {
  return (page_sight){.seen = keys_of_row(f, b, 0) - b->first / f->group - page * NN_PAGE_TOKENS,
                      .offset = b->first,
                      .group = f->group,
                      .window = f->window};
}

/* Where a page of a sequence begins in the caches. */
static int64_t page_at(const paged *f, const paged_block *b, int64_t page) {
  return f->capacity ? (b->sequence * f->capacity + page * NN_PAGE_TOKENS) * f->step
                     : f->a->page_table[b->sequence * f->a->max_pages + page] * f->a->page_bytes;
}

static page_rows rows_at(const paged *f, const paged_block *b, int64_t kv_head, int64_t page, int64_t begin,
                         int64_t end) {
  const nn_attention_decode_paged_args *a = f->a;
  const int64_t at = page_at(f, b, page) + kv_head * f->of_head;
  page_rows rows = {.k = (const char *)a->k_pages + at,
                    .v = (const char *)a->v_pages + at,
                    .row_bytes = f->capacity ? f->of_head : f->step,
                    .dim = a->head_dim,
                    .step = f->step,
                    .rows = f->capacity ? f->capacity - page * NN_PAGE_TOKENS : NN_PAGE_TOKENS,
                    .fetched = page > begin};
  if (page + 1 < end) {
    const int64_t next = page_at(f, b, page + 1) + kv_head * f->of_head;
    rows.next_k = (const char *)a->k_pages + next;
    rows.next_v = (const char *)a->v_pages + next;
  }
  return rows;
}

/* The queries of a block times the scale, as row panels; and the bound of their scores. */
NN_INLINE void load_queries(const paged *f, const paged_block *b, int64_t kv_head, page_space *w, int32_t dtype) {
  const nn_attention_decode_paged_args *a = f->a;
  const int64_t dim = a->head_dim, token = paged_first_token(&f->sequences, b->sequence);
  w->cap = (float)((double)a->softcap * LOG2E);
  const split_factor factor = split_double(a->softcap == 0.0f ? a->scale * LOG2E : (double)a->scale / a->softcap);
  const vf high = vf_set1(factor.high), low = vf_set1(factor.low);
  for (int64_t r = 0; r < w->height; r++) {
    const int64_t row = b->first + r, head = kv_head * f->group + row % f->group;
    const int64_t at = (token + row / f->group) * a->ld_q + head * dim;
    for (int64_t d = 0; d < dim; d += VF) {
      vf x = vf_set1(0.0f);
      if (r < b->rows) {
        x = load_columns(a->q, at, d, dim, dtype);
      }
      vf_store(w->q + (d / ATTN_NR * w->height + r) * ATTN_NR + d % ATTN_NR, vf_fma(x, high, vf_mul(x, low)));
    }
  }
}

/* What a row's output is divided by, in each lane. Without keys the output is zero. */
NN_INLINE vf divisor_of(const paged *f, const paged_block *b, int64_t head, const page_space *w, int64_t row) {
  if (b->begin == b->end) {
    return vf_set1(1.0f);
  }
  const vf sum = vf_set1(w->sum[row]);
  if (f->a->sinks == NULL) {
    return sum;
  }
  const vf above = vf_set1((float)(f->a->sinks[head] * LOG2E - w->peak[row]));
  return vf_add(sum, vf_exp2(vf_min(vf_set1(127.0f), above)));
}

NN_INLINE void store_output(const paged *f, const paged_block *b, int64_t kv_head, const page_space *w, int32_t dtype) {
  const nn_attention_decode_paged_args *a = f->a;
  const int64_t dim = a->head_dim, token = paged_first_token(&f->sequences, b->sequence);
  for (int64_t r = 0; r < b->rows; r++) {
    const int64_t row = b->first + r, head = kv_head * f->group + row % f->group;
    const int64_t to = ((token + row / f->group) * a->heads + head) * dim;
    const vf sum = divisor_of(f, b, head, w, r);
    for (int64_t d = 0; d < dim; d += VF) {
      const vf x = vf_div(vf_load(w->out + (d / ATTN_NR * w->height + r) * ATTN_NR + d % ATTN_NR), sum);
      store_columns(a->out, to, d, dim, x, dtype);
    }
  }
}

/* All pages of a block and key head. */
static void block_task(void *arg, int64_t i, int32_t worker) {
  const paged *f = arg;
  const nn_attention_decode_paged_args *a = f->a;
  const paged_block *b = &f->blocks[i / a->kv_heads];
  const int64_t kv_head = i % a->kv_heads;
  page_space w = page_space_at(f->workspace + worker * f->workspace_size, b->rows, a->head_dim);
  NN_SWITCH_DTYPE(a->dtype, load_queries(f, b, kv_head, &w, DT));
  page_nothing(&w, a->head_dim);
  for (int64_t page = b->begin; page < b->end; page++) {
    const page_sight sight = sight_of(f, b, page);
    const page_rows rows = rows_at(f, b, kv_head, page, b->begin, b->end);
    page_part(&w, &rows, sight, a->format);
    page_merge(&w, sight, a->head_dim);
  }
  NN_SWITCH_DTYPE(a->dtype, store_output(f, b, kv_head, &w, DT));
}

static int64_t runs_of(const paged *f, const paged_block *b) { return nn_ceil_div(b->end - b->begin, f->run); }

static float *part_of(const paged *f, const paged_block *b, int64_t page, int64_t kv_head) {
  return f->parts + ((b->before + page - b->begin) * f->a->kv_heads + kv_head) * f->part_size;
}

/* A run of pages of a block and key head. */
static void run_task(void *arg, int64_t i, int32_t worker) {
  const paged *f = arg;
  const nn_attention_decode_paged_args *a = f->a;
  const int64_t kv_head = i / f->runs, task = i % f->runs;
  const paged_block *b = f->blocks;
  while (b->tasks + runs_of(f, b) <= task) {
    b++;
  }
  const int64_t begin = b->begin + (task - b->tasks) * f->run, end = nn_min(begin + f->run, b->end);
  page_space w = page_space_at(f->workspace + worker * f->workspace_size, b->rows, a->head_dim);
  NN_SWITCH_DTYPE(a->dtype, load_queries(f, b, kv_head, &w, DT));
  for (int64_t page = begin; page < end; page++) {
    page_part_at(&w, part_of(f, b, page, kv_head), a->head_dim);
    const page_rows rows = rows_at(f, b, kv_head, page, begin, end);
    page_part(&w, &rows, sight_of(f, b, page), a->format);
  }
}

static void merge_task(void *arg, int64_t i, int32_t worker) {
  const paged *f = arg;
  const nn_attention_decode_paged_args *a = f->a;
  const paged_block *b = &f->blocks[i / a->kv_heads];
  const int64_t kv_head = i % a->kv_heads;
  page_space w = page_space_at(f->workspace + worker * f->workspace_size, b->rows, a->head_dim);
  page_nothing(&w, a->head_dim);
  for (int64_t page = b->begin; page < b->end; page++) {
    page_part_at(&w, part_of(f, b, page, kv_head), a->head_dim);
    page_merge(&w, sight_of(f, b, page), a->head_dim);
  }
  NN_SWITCH_DTYPE(a->dtype, store_output(f, b, kv_head, &w, DT));
}

/* Rows of a sequence for each key head. */
static int64_t rows_of(const paged *f, int64_t sequence) {
  return paged_new_tokens(&f->sequences, sequence) * f->group;
}

/* Cuts the rows of each sequence into blocks, those that see the most keys first. Returns the rows of the largest
 * block. */
static int64_t cut(paged *f) {
  int64_t largest = 0;
  f->count = f->pages = 0;
  for (int64_t sequence = 0; sequence < f->sequences.batch; sequence++) {
    const int64_t rows = rows_of(f, sequence);
    for (int64_t first = (rows - 1) / TASK_ROWS * TASK_ROWS; rows > 0 && first >= 0; first -= TASK_ROWS) {
      paged_block *b = &f->blocks[f->count++];
      *b = (paged_block){
          .sequence = sequence, .first = first, .rows = nn_min(TASK_ROWS, rows - first), .before = f->pages};
      b->begin = nn_max(0, keys_of_row(f, b, 0) - f->window) / NN_PAGE_TOKENS;
      b->end = nn_ceil_div(keys_of_row(f, b, b->rows - 1), NN_PAGE_TOKENS);
      f->pages += b->end - b->begin;
      largest = nn_max(largest, b->rows);
    }
  }
  return largest;
}

/* Cuts the pages of blocks into runs, several for each worker, if whole blocks would leave workers idle and if there is
 * room for what they leave. */
static int32_t by_pages(paged *f, int64_t threads) {
  const int64_t parts = f->pages * f->a->kv_heads;
  if (threads == 1 || f->count * f->a->kv_heads >= TASKS_A_WORKER * threads || f->pages == f->count ||
      parts > PARTS_FLOATS / f->part_size) {
    return 0;
  }
  f->run = nn_max(1, parts / (TASKS_A_WORKER * threads));
  f->runs = 0;
  for (int64_t i = 0; i < f->count; i++) {
    f->blocks[i].tasks = f->runs;
    f->runs += runs_of(f, &f->blocks[i]);
  }
  return 1;
}

/* The sequences decide how many blocks there are, of how many rows and pages: for the most of each. `capacity` as in
 * `paged`. */
NN_PLAIN static paged lay_out_rows(const nn_attention_decode_paged_args *a, int64_t capacity, nn_workspace *w) {
  const int64_t threads = w->machine->threads, group = a->heads / a->kv_heads;
  const int64_t blocks = a->tokens * group / TASK_ROWS + nn_min(a->batch, a->tokens);
  const int64_t largest = nn_min(TASK_ROWS, a->tokens * group);
  const int64_t few = nn_min(blocks, nn_ceil_div(TASKS_A_WORKER * threads, a->kv_heads));
  const int64_t pages = nn_min(a->max_pages, INT32_MAX / NN_PAGE_TOKENS + 1); /* more no length can count */
  const int64_t part_size = nn_round_up(page_part_size(largest, a->head_dim), 16);
  paged f = {
      .a = a, .sequences = PAGED_SEQUENCES(a), .group = group, .window = paged_window(a->window), .capacity = capacity};
  f.of_head = capacity ? a->head_dim * nn_dtype_bytes(a->dtype) : a->page_bytes / a->kv_heads;
  f.step = capacity ? a->kv_heads * f.of_head : f.of_head / NN_PAGE_TOKENS;
  f.workspace_size = nn_round_up(page_space_size(largest, a->head_dim), 16);
  f.blocks = nn_workspace_piece(w, (size_t)blocks * sizeof *f.blocks);
  f.workspace = nn_workspace_piece(w, (size_t)(f.workspace_size * threads) * sizeof(float));
  if (threads > 1) {
    f.parts =
        nn_workspace_piece(w, (size_t)nn_min(few * pages * a->kv_heads * part_size, PARTS_FLOATS) * sizeof(float));
  }
  return f;
}

/* Of sequences that have been checked. */
static int32_t attend(nncuda_ctx *ctx, paged *f) {
  const nn_attention_decode_paged_args *a = f->a;
  const int64_t largest = cut(f);
  if (f->count == 0) {
    return NNCUDA_SUCCESS;
  }
  f->workspace_size = nn_round_up(page_space_size(largest, a->head_dim), 16);
  f->part_size = nn_round_up(page_part_size(largest, a->head_dim), 16);
  if (by_pages(f, nn_workspace_of(ctx)->machine->threads)) {
    nn_parallel(ctx, f->runs * a->kv_heads, run_task, f);
    nn_parallel(ctx, f->count * a->kv_heads, merge_task, f);
  } else {
    nn_parallel(ctx, f->count * a->kv_heads, block_task, f);
  }
  return NNCUDA_SUCCESS;
}

NN_PLAIN static paged lay_out(const nn_attention_decode_paged_args *a, nn_workspace *w) {
  return lay_out_rows(a, 0, w);
}

static int32_t paged_attention(nncuda_ctx *ctx, const nn_attention_decode_paged_args *a) {
  paged f = lay_out(a, nn_workspace_of(ctx));
  NN_TRY(check_sequences(ctx, &f.sequences, f.window));
  return attend(ctx, &f);
}

NN_KERNEL_BY(flash_attention_paged, paged_attention, lay_out)
NN_KERNEL_BY(attention_decode_paged, paged_attention, lay_out)

/* ---- caches of one piece ---- */

NN_PLAIN static nn_attention_decode_paged_args in_pages(const nn_attention_decode_args *a) {
  return (nn_attention_decode_paged_args){.q = a->q,
                                          .k_pages = a->k_cache,
                                          .v_pages = a->v_cache,
                                          .lengths = a->lengths,
                                          .out = a->out,
                                          .tokens = a->batch,
                                          .batch = a->batch,
                                          .max_pages = nn_ceil_div(a->capacity, NN_PAGE_TOKENS),
                                          .heads = a->heads,
                                          .kv_heads = a->kv_heads,
                                          .head_dim = a->head_dim,
                                          .ld_q = a->ld_q,
                                          .scale = a->scale,
                                          .format = a->dtype,
                                          .dtype = a->dtype};
}

NN_WORKSPACE(attention_decode) {
  const nn_attention_decode_paged_args a = in_pages(args);
  lay_out_rows(&a, ((const nn_attention_decode_args *)args)->capacity, w);
}

int32_t NN_KERNEL(attention_decode)(nncuda_ctx *ctx, const void *args) {
  const nn_attention_decode_args *of = args;
  const nn_attention_decode_paged_args a = in_pages(of);
  NN_TRY(nn_check_range(ctx, "lengths", of->lengths, of->batch, 0, of->capacity, ", the capacity"));
  paged f = lay_out_rows(&a, of->capacity, nn_workspace_of(ctx));
  return attend(ctx, &f);
}
