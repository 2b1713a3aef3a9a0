/*
 * Choosing tokens: the most likely ones, by blocks that share a row, and, a block a row, draws from rows that are
 * short, or as many as fill the device by themselves. decode_parts.cu draws where they are not.
 */
#include "kernels/decode_sample.cuh"

constexpr int THREADS = 1024;

/* ---- the most likely token ---- */

static_assert(NN_SAMPLE_ROWS == NN_ARRIVALS, "a counter a row");

/* A block has a part of a row; the one of a row that ends last compares what the others found. */
// sass: argmax_kernel<nn_bf16, 8> on sm_90: at least 2 LDG.128 under way, at most 64 registers
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    argmax_kernel(nn_argmax_args a, nn_row_parts cut, uint64_t *firsts, unsigned *arrivals) {
  __shared__ uint64_t shared[NN_WARP];
  __shared__ int last;
  nn_let_next_start();
  nn_wait_for_kernels();
  for (int64_t number = blockIdx.y; number < a.rows; number += gridDim.y) {
    uint64_t first = first_token(row_part<T, N, THREADS>(a.logits, a.vocab, cut, number, blockIdx.x), shared);
    if (cut.parts > 1) {
      uint64_t *const of_row = firsts + number * cut.parts;
      if (threadIdx.x == 0) {
        of_row[blockIdx.x] = first;
      }
      if (!nn_is_last_block(arrivals + number, (unsigned)cut.parts, &last)) {
        continue;
      }
      first = first_of_parts(of_row, cut.parts);
    }
    if (threadIdx.x == 0) {
      a.ids[number] = key_of_token(first) == 0 ? 0 : index_of_token(first);
    }
  }
}

template <class T> static int32_t argmax_launch(nncuda_ctx *ctx, const nn_argmax_args *a) {
  const bool wide = wide_rows(a->logits, a->vocab, a->dtype);
  nn_workspace *const w = nn_workspace_of(ctx);
  const nn_row_parts cut = nn_row_parts_of(a->rows, a->vocab, w);
  return nn_launch_ahead(ctx, wide ? argmax_kernel<T, nn_per_16<T>> : argmax_kernel<T, 1>,
                         dim3((unsigned)cut.parts, row_blocks(a->rows)), dim3(THREADS), 0, *a, cut,
                         nn_argmax_lay_out(a, w), nn_gpu_arrivals(ctx));
}

NN_KERNEL(argmax) { NN_SWITCH_FLOATS(a->dtype, return argmax_launch<T>(ctx, a)); }

/* ---- draws ---- */

// sass: sample_kernel<nn_bf16, 8> on sm_90: at least 2 LDG.128 under way, at most 64 registers
template <class T, int N>
static __global__ void __launch_bounds__(THREADS) sample_kernel(nn_sample_args a, option_rules rules) {
  __shared__ shared_row s;
  for (int64_t number = blockIdx.x; number < a.rows; number += gridDim.x) {
    if (threadIdx.x == 0) {
      s.found = rules.hold(a, number);
    }
    __syncthreads();
    const bool holds = s.found != 0;
    __syncthreads();
    int32_t id = 0;
    if (holds) {
      const row<T, N, THREADS> r = {static_cast<const T *>(a.logits) + number * a.vocab, 0, (int32_t)a.vocab};
      uint32_t of_thread;
      const choice c(a, number, first_token(r, s.warps, &of_thread));
      id = c.draws ? sample_row(a, number, r, c, tokens_there(r, c, of_thread, s.warps), &s) : c.id;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      a.ids[number] = id;
    }
  }
}

template <class T> static int32_t sample_launch(nncuda_ctx *ctx, const nn_sample_args *a, const option_rules &rules) {
  const bool wide = wide_rows(a->logits, a->vocab, a->dtype);
  return nn_launch(ctx, wide ? sample_kernel<T, nn_per_16<T>> : sample_kernel<T, 1>, dim3(row_blocks(a->rows)),
                   dim3(THREADS), 0, *a, rules);
}

static int32_t sample(nncuda_ctx *ctx, const nn_sample_args *a) {
  const option_rules rules = {nn_rule_of(ctx, "temperature", "finite and at least 0"),
                              nn_rule_of(ctx, "top_k", "at least 1"), nn_rule_of(ctx, "top_p", "above 0 and at most 1"),
                              nn_rule_of(ctx, "min_p", "0 to 1"), nn_rule_of(ctx, "steps", "at least 0")};
  const nn_sample_space space = nn_sample_lay_out(a, nn_workspace_of(ctx));
  if (space.cut.parts > 1) {
    return nn_sample_parts(ctx, a, rules, space);
  }
  NN_SWITCH_FLOATS(a->dtype, return sample_launch<T>(ctx, a, rules));
}

NN_KERNEL_OF(sample, nn_sample_args) { return sample(ctx, a); }
NN_KERNEL_OF(topk_sample, nn_sample_args) { return sample(ctx, a); }
NN_KERNEL_OF(topp_sample, nn_sample_args) { return sample(ctx, a); }
NN_KERNEL_OF(minp_sample, nn_sample_args) { return sample(ctx, a); }
