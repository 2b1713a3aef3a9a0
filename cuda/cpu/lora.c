/*
 * Gradients through stored weights: sequences of other kernels, each in the form of the context's instruction set. A
 * panel of columns of W becomes numbers, and is multiplied, while it lies in a cache.
 *
 * An element of dx is a sum over all rows of W, in the order of one product of that depth: it hangs neither on the
 * columns of a panel, nor on how many rows dy has (`alike`), nor on threads.
 */
#include "abi/lora.h"
#include "abi/ternary.h"

#include "kernel.h"

/* Of numbers in a panel, which a last cache holds. Narrower panels read dy more often: on a Xeon with AMX, 512 rows of
 * bf16 and W [5632, 2048] in q8_0, 32 MiB take 34 ms, 8 MiB 38 to 46, 2 MiB 41, the product of numbers alone 29. */
enum { PANEL_BYTES = 32 << 20 };

static nn_op product_op(const nn_lora_product *p) { return p->offsets == NULL ? NN_OP_gemm_beta : NN_OP_grouped_gemm; }

static void *lay_out_panel(const nn_lora_product *p, nn_workspace *w) {
  return nn_workspace_piece(w, nn_lora_panel_bytes(p));
}

/* The panel, and behind it the workspaces of the products with a whole panel and with the last one: a product finds
 * room for whichever of the two it is. */
static void lay_out(const nn_lora_product *p, nn_workspace *w) {
  void *const panel = lay_out_panel(p, w);
  const nn_gemm_args whole = nn_lora_part(p, panel, 0, p->columns), last = nn_lora_part(p, panel, 0, nn_lora_rest(p));
  nn_part_lay_out(product_op(p), &whole, w);
  nn_part_lay_out(product_op(p), &last, w);
}

/* Multiplies panel after panel, each made by `make`. */
static int32_t multiply(nncuda_ctx *ctx, const nn_lora_product *p,
                        int32_t (*make)(nncuda_ctx *ctx, const void *args, void *panel, int64_t first, int64_t columns),
                        const void *args) {
  nn_workspace *const w = nn_workspace_of(ctx);
  void *const panel = lay_out_panel(p, w);
  const nn_workspace free_behind = *w;
  for (int64_t first = 0; first < p->k; first += p->columns) {
    const int64_t columns = nn_min(p->columns, p->k - first);
    const nn_gemm_args part = nn_lora_part(p, panel, first, columns);
    *w = free_behind;
    NN_TRY(make(ctx, args, panel, first, columns));
    NN_TRY(nn_part_run(ctx, product_op(p), &part));
  }
  return NNCUDA_SUCCESS;
}

/* ---- gemm_quant_backward ---- */

static int32_t make_numbers(nncuda_ctx *ctx, const void *args, void *panel, int64_t first, int64_t columns) {
  const nn_dequantize_args numbers = nn_lora_numbers(args, panel, first, columns);
  return nn_part_run(ctx, NN_OP_dequantize, &numbers);
}

NN_WORKSPACE(gemm_quant_backward) {
  const nn_lora_product p = nn_lora_stored(args, PANEL_BYTES);
  lay_out(&p, w);
}

int32_t NN_KERNEL(gemm_quant_backward)(nncuda_ctx *ctx, const void *args) {
  const nn_lora_product p = nn_lora_stored(args, PANEL_BYTES);
  return multiply(ctx, &p, make_numbers, args);
}

/* ---- bitlinear_backward ---- */

enum { ROWS = NN_TERNARY_ROWS, COLUMNS = NN_TERNARY_COLUMNS, CODES = 4 };

typedef struct ternary_job {
  const nn_bitlinear_backward_args *a;
  char *panel;
  int64_t first, columns;
} ternary_job;

/* Columns of a row as numbers of `bytes` each, from the four that its codes stand for. */
NN_INLINE void put_row(char *to, const char *number, const uint8_t *w, int64_t columns, const size_t bytes) {
  for (int64_t c = 0; c < columns; c += COLUMNS, w += ROWS * 4) {
    char some[COLUMNS * sizeof(float)];
    for (int i = 0; i < COLUMNS; i++) {
      memcpy(some + (size_t)i * bytes, number + (size_t)(w[i % 4] >> i / 4 * 2 & 3) * bytes, bytes);
    }
    memcpy(to + (size_t)c * bytes, some, (size_t)nn_min(columns - c, COLUMNS) * bytes);
  }
}

/* Sixteen rows. */
NN_TASK_OF(ternary_task, ternary_job, job, task) {
  const nn_bitlinear_backward_args *a = job->a;
  const size_t bytes = a->dtype == NNCUDA_F32 ? sizeof(float) : sizeof(uint16_t);
  for (int64_t row = task * ROWS; row < nn_min((task + 1) * ROWS, a->n); row++) {
    float number[CODES]; /* or as many of 16 bits */
    for (int code = 0; code < CODES; code++) {
      nn_store_as(number, code, (float)(code - 1) * a->w_scale[row], a->dtype);
    }
    const uint8_t *w =
        (const uint8_t *)a->w + task * ROWS * a->row_bytes + job->first / COLUMNS * (ROWS * 4) + row % ROWS * 4;
    char *to = job->panel + (size_t)(row * job->columns) * bytes;
    if (bytes == sizeof(float)) {
      put_row(to, (const char *)number, w, job->columns, sizeof(float));
    } else {
      put_row(to, (const char *)number, w, job->columns, sizeof(uint16_t));
    }
  }
}

static int32_t make_ternary_numbers(nncuda_ctx *ctx, const void *args, void *panel, int64_t first, int64_t columns) {
  ternary_job job = {.a = args, .panel = panel, .first = first, .columns = columns};
  nn_parallel(ctx, nn_ceil_div(job.a->n, ROWS), ternary_task, &job);
  return NNCUDA_SUCCESS;
}

NN_WORKSPACE(bitlinear_backward) {
  const nn_lora_product p = nn_lora_ternary(args, PANEL_BYTES);
  lay_out(&p, w);
}

int32_t NN_KERNEL(bitlinear_backward)(nncuda_ctx *ctx, const void *args) {
  const nn_lora_product p = nn_lora_ternary(args, PANEL_BYTES);
  return multiply(ctx, &p, make_ternary_numbers, args);
}
