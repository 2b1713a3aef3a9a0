/*
 * Kernels that are sequences of others. A GPU gains from one launch in place of several; here they are these others,
 * one after the other, each in the form of the context's instruction set.
 */
#include "abi/gemm_gate.h"
#include "abi/gemm_swiglu.h"
#include "abi/generated/elementwise.h"
#include "abi/generated/loss.h"
#include "abi/generated/moe.h"
#include "abi/generated/rmsnorm.h"
#include "abi/generated/softmax.h"
#include "abi/generated/ternary.h"
#include "abi/quant_experts.h"

#include "checks.h"
#include "kernel.h"

/* ---- moe_route ---- */

typedef struct route_parts {
  nn_softmax_topk_args choice;
  nn_moe_plan_args plan;
  nn_aux_loss_forward_args loss;
  nn_moe_gather_args gather;
} route_parts;

static route_parts route_parts_of(const nn_moe_route_args *a) {
  return (route_parts){
      .choice = {.x = a->logits,
                 .weights = a->weights,
                 .indices = a->indices,
                 .probs = a->probs,
                 .rows = a->tokens,
                 .cols = a->experts,
                 .k = a->k,
                 .norm = a->norm,
                 .dtype = a->dtype_logits},
      .plan = {.indices = a->indices,
               .counts = a->counts,
               .offsets = a->offsets,
               .slot_row = a->slot_row,
               .row_slot = a->row_slot,
               .tokens = a->tokens,
               .k = a->k,
               .experts = a->experts,
               .capacity = a->capacity},
      .loss = {.probs = a->probs,
               .counts = a->counts,
               .loss = a->loss,
               .tokens = a->tokens,
               .experts = a->experts,
               .alpha = a->alpha},
      .gather = {.x = a->x,
                 .row_slot = a->row_slot,
                 .y = a->y,
                 .tokens = a->tokens,
                 .k = a->k,
                 .dim = a->dim,
                 .dtype = a->dtype},
  };
}

NN_WORKSPACE(moe_route) {
  const nn_moe_route_args *a = args;
  const route_parts parts = route_parts_of(a);
  nn_part_lay_out(NN_OP_softmax_topk, &parts.choice, w);
  nn_part_lay_out(NN_OP_moe_plan, &parts.plan, w);
  if (a->loss != NULL) {
    nn_part_lay_out(NN_OP_aux_loss_forward, &parts.loss, w);
  }
  if (a->y != NULL) {
    nn_part_lay_out(NN_OP_moe_gather, &parts.gather, w);
  }
}

int32_t NN_KERNEL(moe_route)(nncuda_ctx *ctx, const void *args) {
  const nn_moe_route_args *a = args;
  const route_parts parts = route_parts_of(a);
  NN_TRY(nn_part_run(ctx, NN_OP_softmax_topk, &parts.choice));
  NN_TRY(nn_part_run(ctx, NN_OP_moe_plan, &parts.plan));
  if (a->loss != NULL) {
    NN_TRY(nn_part_run(ctx, NN_OP_aux_loss_forward, &parts.loss));
  }
  return a->y == NULL ? NNCUDA_SUCCESS : nn_part_run(ctx, NN_OP_moe_gather, &parts.gather);
}

/* ---- moe_route_backward ---- */

typedef struct route_backward_parts {
  nn_aux_loss_backward_args loss;
  nn_softmax_topk_backward_args choice;
} route_backward_parts;

static route_backward_parts route_backward_parts_of(const nn_moe_route_backward_args *a, nn_workspace *w) {
  float *dprobs = nn_workspace_piece(w, (size_t)(a->tokens * a->experts) * sizeof(float));
  return (route_backward_parts){
      .loss = {.counts = a->counts,
               .grad_scale = a->grad_scale,
               .dprobs = dprobs,
               .tokens = a->tokens,
               .experts = a->experts,
               .alpha = a->alpha},
      .choice = {.dweights = a->dweights,
                 .weights = a->weights,
                 .indices = a->indices,
                 .probs = a->probs,
                 .dprobs = dprobs,
                 .dx = a->dlogits,
                 .rows = a->tokens,
                 .cols = a->experts,
                 .k = a->k,
                 .norm = a->norm,
                 .dtype = a->dtype},
  };
}

NN_WORKSPACE(moe_route_backward) {
  const route_backward_parts parts = route_backward_parts_of(args, w);
  nn_part_lay_out(NN_OP_aux_loss_backward, &parts.loss, w);
  nn_part_lay_out(NN_OP_softmax_topk_backward, &parts.choice, w);
}

int32_t NN_KERNEL(moe_route_backward)(nncuda_ctx *ctx, const void *args) {
  const route_backward_parts parts = route_backward_parts_of(args, nn_workspace_of(ctx));
  NN_TRY(nn_part_run(ctx, NN_OP_aux_loss_backward, &parts.loss));
  return nn_part_run(ctx, NN_OP_softmax_topk_backward, &parts.choice);
}

/* ---- moe_output_backward ---- */

typedef struct output_backward_parts {
  nn_moe_combine_backward_args combine;
  nn_moe_route_backward_args route;
} output_backward_parts;

static output_backward_parts output_backward_parts_of(const nn_moe_output_backward_args *a) {
  return (output_backward_parts){
      .combine = {.dout = a->dout,
                  .y = a->y,
                  .weights = a->weights,
                  .slot_row = a->slot_row,
                  .row_slot = a->row_slot,
                  .dy = a->dy,
                  .dweights = a->dweights,
                  .tokens = a->tokens,
                  .k = a->k,
                  .dim = a->dim,
                  .dtype = a->dtype},
      .route = {.dweights = a->dweights,
                .weights = a->weights,
                .indices = a->indices,
                .probs = a->probs,
                .counts = a->counts,
                .grad_scale = a->grad_scale,
                .dlogits = a->dlogits,
                .tokens = a->tokens,
                .experts = a->experts,
                .k = a->k,
                .norm = a->norm,
                .alpha = a->alpha,
                .dtype = a->dtype},
  };
}

NN_WORKSPACE(moe_output_backward) {
  const output_backward_parts parts = output_backward_parts_of(args);
  nn_part_lay_out(NN_OP_moe_route_backward, &parts.route, w);
}

int32_t NN_KERNEL(moe_output_backward)(nncuda_ctx *ctx, const void *args) {
  const nn_moe_output_backward_args *a = args;
  const output_backward_parts parts = output_backward_parts_of(a);
  NN_TRY(nn_check_indices(ctx, a->indices, a->tokens, a->k, a->experts)); /* before anything is written */
  NN_TRY(nn_part_run(ctx, NN_OP_moe_combine_backward, &parts.combine));
  return nn_part_run(ctx, NN_OP_moe_route_backward, &parts.route);
}

/* ---- moe_input_backward ---- */

typedef struct input_backward_parts {
  nn_moe_gather_backward_args gather;
  nn_gemm_args of_gate, of_tokens;
} input_backward_parts;

static input_backward_parts input_backward_parts_of(const nn_moe_input_backward_args *a) {
  return (input_backward_parts){
      .gather = {.dy = a->drows,
                 .slot_row = a->slot_row,
                 .dx = a->dx,
                 .tokens = a->tokens,
                 .k = a->k,
                 .dim = a->dim,
                 .dtype = a->dtype},
      .of_gate = nn_gate_gradient(a),
      .of_tokens = nn_gate_input_gradient(a),
  };
}

NN_WORKSPACE(moe_input_backward) {
  const input_backward_parts parts = input_backward_parts_of(args);
  nn_part_lay_out(NN_OP_gemm_beta, &parts.of_gate, w);
  nn_part_lay_out(NN_OP_gemm_beta, &parts.of_tokens, w);
}

int32_t NN_KERNEL(moe_input_backward)(nncuda_ctx *ctx, const void *args) {
  const input_backward_parts parts = input_backward_parts_of(args);
  NN_TRY(nn_part_run(ctx, NN_OP_moe_gather_backward, &parts.gather));
  NN_TRY(nn_part_run(ctx, NN_OP_gemm_beta, &parts.of_gate));
  return nn_part_run(ctx, NN_OP_gemm_beta, &parts.of_tokens);
}

/* ---- grouped_gemm_swiglu ---- */

NN_WORKSPACE(grouped_gemm_swiglu) {
  const nn_gemm_args products = nn_swiglu_products(args);
  nn_part_lay_out(NN_OP_grouped_gemm, &products, w);
}

int32_t NN_KERNEL(grouped_gemm_swiglu)(nncuda_ctx *ctx, const void *args) {
  const nn_grouped_gemm_swiglu_args *a = args;
  const nn_gemm_args products = nn_swiglu_products(a);
  const char *gate = a->gate_up;
  const nn_swiglu_args swiglu = {.gate = gate,
                                 .up = gate + a->n * nn_dtype_bytes(a->dtype),
                                 .used = a->offsets + a->groups,
                                 .y = a->y,
                                 .rows = a->rows,
                                 .dim = a->n,
                                 .ld = 2 * a->n,
                                 .dtype = a->dtype};
  NN_TRY(nn_part_run(ctx, NN_OP_grouped_gemm, &products));
  return nn_part_run(ctx, NN_OP_swiglu, &swiglu);
}

/* ---- grouped_gemm_swiglu_backward ---- */

static void *dy_lay_out(const nn_grouped_gemm_swiglu_backward_args *a, nn_workspace *w) {
  return nn_workspace_piece(w, (size_t)(a->rows * a->n * nn_dtype_bytes(a->dtype)));
}

NN_WORKSPACE(grouped_gemm_swiglu_backward) {
  const nn_gemm_args slopes = nn_swiglu_slopes(args, dy_lay_out(args, w));
  nn_part_lay_out(NN_OP_grouped_gemm, &slopes, w);
}

int32_t NN_KERNEL(grouped_gemm_swiglu_backward)(nncuda_ctx *ctx, const void *args) {
  const nn_grouped_gemm_swiglu_backward_args *a = args;
  void *const dy = dy_lay_out(a, nn_workspace_of(ctx));
  const nn_gemm_args slopes = nn_swiglu_slopes(a, dy);
  char *const gate = a->gate_up, *const up = gate + a->n * nn_dtype_bytes(a->dtype);
  const nn_swiglu_backward_args swiglu = {.dy = dy,
                                          .gate = gate,
                                          .up = up,
                                          .used = a->offsets + a->groups,
                                          .dgate = gate,
                                          .dup = up,
                                          .rows = a->rows,
                                          .dim = a->n,
                                          .ld = 2 * a->n,
                                          .dtype = a->dtype};
  NN_TRY(nn_part_run(ctx, NN_OP_grouped_gemm, &slopes));
  return nn_part_run(ctx, NN_OP_swiglu_backward, &swiglu);
}

/* ---- bitlinear_norm ---- */

typedef struct norm_parts {
  nn_act_quant_i8_args rounded; /* without gains */
  nn_rmsnorm_quant_i8_args normed;
  nn_bitlinear_args product;
} norm_parts;

NN_PLAIN static norm_parts norm_parts_of(const nn_bitlinear_norm_args *a, nn_workspace *w) {
  int8_t *const codes = nn_workspace_piece(w, (size_t)(a->m * a->k));
  float *const scale = nn_workspace_piece(w, (size_t)a->m * sizeof(float));
  return (norm_parts){
      .rounded = {.x = a->x, .codes = codes, .scale = scale, .rows = a->m, .cols = a->k, .dtype = a->dtype},
      .normed = {.x = a->x,
                 .weight = a->norm,
                 .codes = codes,
                 .scale = scale,
                 .rows = a->m,
                 .cols = a->k,
                 .eps = a->eps,
                 .dtype = a->dtype},
      .product = {.codes = codes,
                  .scale = scale,
                  .w = a->w,
                  .w_scale = a->w_scale,
                  .residual = a->residual,
                  .y = a->y,
                  .m = a->m,
                  .n = a->n,
                  .k = a->k,
                  .stored = a->stored,
                  .row_bytes = a->row_bytes,
                  .dtype = a->dtype},
  };
}

NN_WORKSPACE(bitlinear_norm) {
  const nn_bitlinear_norm_args *a = args;
  const norm_parts parts = norm_parts_of(a, w);
  if (a->norm == NULL) {
    nn_part_lay_out(NN_OP_act_quant_i8, &parts.rounded, w);
  } else {
    nn_part_lay_out(NN_OP_rmsnorm_quant_i8, &parts.normed, w);
  }
  nn_part_lay_out(NN_OP_bitlinear, &parts.product, w);
}

int32_t NN_KERNEL(bitlinear_norm)(nncuda_ctx *ctx, const void *args) {
  const nn_bitlinear_norm_args *a = args;
  const norm_parts parts = norm_parts_of(a, nn_workspace_of(ctx));
  NN_TRY(a->norm == NULL ? nn_part_run(ctx, NN_OP_act_quant_i8, &parts.rounded)
                         : nn_part_run(ctx, NN_OP_rmsnorm_quant_i8, &parts.normed));
  return nn_part_run(ctx, NN_OP_bitlinear, &parts.product);
}

/* ---- gemm_quant_route ---- */

typedef struct quant_route_parts {
  nn_rmsnorm_args norm;
  nn_gemm_quant_args product;
  nn_moe_route_args route; /* without rows, which gemm_quant_experts gathers */
} quant_route_parts;

static quant_route_parts quant_route_parts_of(const nn_gemm_quant_route_args *a) {
  return (quant_route_parts){
      .norm = {.x = a->x, .weight = a->gains, .y = a->y, .rows = a->tokens, .cols = a->dim, .eps = a->eps},
      .product = nn_route_product(a),
      .route = nn_quant_route_rest(a),
  };
}

NN_WORKSPACE(gemm_quant_route) {
  const quant_route_parts parts = quant_route_parts_of(args);
  nn_part_lay_out(NN_OP_rmsnorm, &parts.norm, w);
  nn_part_lay_out(NN_OP_gemm_quant, &parts.product, w);
  nn_part_lay_out(NN_OP_moe_route, &parts.route, w);
}

int32_t NN_KERNEL(gemm_quant_route)(nncuda_ctx *ctx, const void *args) {
  const quant_route_parts parts = quant_route_parts_of(args);
  NN_TRY(nn_part_run(ctx, NN_OP_rmsnorm, &parts.norm));
  NN_TRY(nn_part_run(ctx, NN_OP_gemm_quant, &parts.product));
  return nn_part_run(ctx, NN_OP_moe_route, &parts.route);
}

/* ---- gemm_quant_experts ---- */

typedef struct quant_experts_parts {
  nn_moe_gather_args gather;
  nn_gemm_quant_args inner, outer;
  nn_moe_combine_args combine;
} quant_experts_parts;

static quant_experts_parts quant_experts_parts_of(const nn_gemm_quant_experts_args *a, nn_workspace *w) {
  const size_t slots = (size_t)(a->tokens * a->k);
  float *const rows = nn_workspace_piece(w, slots * (size_t)a->dim * sizeof(float));
  float *const inner = nn_workspace_piece(w, slots * (size_t)a->n * sizeof(float));
  return (quant_experts_parts){
      .gather = {.x = a->x, .row_slot = a->row_slot, .y = rows, .tokens = a->tokens, .k = a->k, .dim = a->dim},
      .inner = nn_experts_inner(a, rows, inner),
      .outer = nn_experts_outer(a, inner, rows), /* in place of the rows, which are spent */
      .combine = {.y = rows,
                  .weights = a->weights,
                  .slot_row = a->slot_row,
                  .residual = a->residual,
                  .out = a->y,
                  .tokens = a->tokens,
                  .k = a->k,
                  .dim = a->dim},
  };
}

NN_WORKSPACE(gemm_quant_experts) {
  const quant_experts_parts parts = quant_experts_parts_of(args, w);
  nn_part_lay_out(NN_OP_moe_gather, &parts.gather, w);
  nn_part_lay_out(NN_OP_gemm_quant_swiglu, &parts.inner, w);
  nn_part_lay_out(NN_OP_gemm_quant, &parts.outer, w);
  nn_part_lay_out(NN_OP_moe_combine, &parts.combine, w);
}

int32_t NN_KERNEL(gemm_quant_experts)(nncuda_ctx *ctx, const void *args) {
  const quant_experts_parts parts = quant_experts_parts_of(args, nn_workspace_of(ctx));
  NN_TRY(nn_part_run(ctx, NN_OP_moe_gather, &parts.gather));
  NN_TRY(nn_part_run(ctx, NN_OP_gemm_quant_swiglu, &parts.inner));
  NN_TRY(nn_part_run(ctx, NN_OP_gemm_quant, &parts.outer));
  return nn_part_run(ctx, NN_OP_moe_combine, &parts.combine);
}
