/*
 * A layer's attention in a decoding step, by the kernels that it is made of, with all indices checked before anything
 * is written. Queries and keys are rotated in the workspace.
 */
#include "paged_cache.h"

#include "abi/generated/attention.h"
#include "abi/generated/kvcache.h"
#include "abi/generated/rope.h"

/* The arguments of the parts. */
typedef struct step_parts {
  nn_rope_forward_args q, k;
  int32_t *offsets; /* [batch + 1]: each sequence has one new token */
  nn_kv_append_paged_args append;
  nn_flash_attention_paged_args attention;
} step_parts;

/* Of [batch:ld_x, heads, head_dim] into memory of its own, rows ld_y apart. */
NN_PLAIN static nn_rope_forward_args rotation(const nn_attention_step_paged_args *a, const void *x, int64_t heads,
                                              int64_t ld_x, int64_t ld_y, nn_workspace *w) {
  const int64_t elements = a->batch == 0 ? 0 : (a->batch - 1) * ld_y + heads * a->head_dim;
  return (nn_rope_forward_args){.x = x,
                                .cosine = a->cosine,
                                .sine = a->sine,
                                .positions = a->positions,
                                .y = nn_workspace_piece(w, (size_t)(elements * nn_dtype_bytes(a->dtype))),
                                .tokens = a->batch,
                                .heads = heads,
                                .head_dim = a->head_dim,
                                .max_position = a->max_position,
                                .ld_x = ld_x,
                                .ld_y = ld_y,
                                .layout = a->layout,
                                .dtype = a->dtype};
}

/* Rotated keys lie as far apart as the values do, since kv_append_paged knows one distance of both. */
NN_PLAIN static step_parts lay_out(const nn_attention_step_paged_args *a, nn_workspace *w) {
  const int64_t width = a->heads * a->head_dim;
  step_parts p;
  p.q = rotation(a, a->q, a->heads, a->ld_q, width, w);
  p.k = rotation(a, a->k, a->kv_heads, a->ld_kv, a->ld_kv, w);
  p.offsets = nn_workspace_piece(w, (size_t)(a->batch + 1) * sizeof(int32_t));
  p.append = (nn_kv_append_paged_args){.k = p.k.y,
                                       .v = a->v,
                                       .offsets = p.offsets,
                                       .lengths = a->lengths,
                                       .page_table = a->page_table,
                                       .k_pages = a->k_pages,
                                       .v_pages = a->v_pages,
                                       .tokens = a->batch,
                                       .batch = a->batch,
                                       .max_pages = a->max_pages,
                                       .pages = a->pages,
                                       .kv_heads = a->kv_heads,
                                       .head_dim = a->head_dim,
                                       .ld_kv = a->ld_kv,
                                       .page_bytes = a->page_bytes,
                                       .format = a->format,
                                       .dtype = a->dtype};
  p.attention = (nn_flash_attention_paged_args){.q = p.q.y,
                                                .k_pages = a->k_pages,
                                                .v_pages = a->v_pages,
                                                .lengths = a->lengths,
                                                .page_table = a->page_table,
                                                .sinks = a->sinks,
                                                .out = a->out,
                                                .tokens = a->batch,
                                                .batch = a->batch,
                                                .max_pages = a->max_pages,
                                                .pages = a->pages,
                                                .heads = a->heads,
                                                .kv_heads = a->kv_heads,
                                                .head_dim = a->head_dim,
                                                .ld_q = width,
                                                .page_bytes = a->page_bytes,
                                                .scale = a->scale,
                                                .window = a->window,
                                                .softcap = a->softcap,
                                                .format = a->format,
                                                .dtype = a->dtype};
  return p;
}

/* The parts take their own pieces behind these, in this order. */
NN_WORKSPACE(attention_step_paged) {
  const step_parts p = lay_out(args, w);
  nn_part_lay_out(NN_OP_kv_append_paged, &p.append, w);
  nn_part_lay_out(NN_OP_attention_decode_paged, &p.attention, w);
}

int32_t NN_KERNEL(attention_step_paged)(nncuda_ctx *ctx, const void *args) {
  const nn_attention_step_paged_args *a = args;
  const step_parts p = lay_out(a, nn_workspace_of(ctx));
  for (int64_t b = 0; b <= a->batch; b++) {
    p.offsets[b] = (int32_t)b;
  }
  const paged_sequences sequences = PAGED_SEQUENCES(&p.append);
  NN_TRY(check_sequences(ctx, &sequences, paged_window(a->window)));
  NN_TRY(nn_part_run(ctx, NN_OP_rope_forward, &p.q));
  NN_TRY(nn_part_run(ctx, NN_OP_rope_forward, &p.k));
  NN_TRY(nn_part_run(ctx, NN_OP_kv_append_paged, &p.append));
  return nn_part_run(ctx, NN_OP_attention_decode_paged, &p.attention);
}
