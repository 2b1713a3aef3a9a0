/*
 * Writes a GGUF file in ik_llama.cpp's own format for ternary weights, of two bits each, with embeddings in q6_k:
 *
 *     ik_llama_cpp_quantize i2_s.gguf iq2_bn.gguf
 *
 * That program reads no tq2_0, in which this library and llama.cpp keep them; it reads i2_s.
 */
#include "llama.h"

#include <cstdio>

int main(int argc, char **argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FROM.gguf TO.gguf\n", argv[0]);
    return 2;
  }
  llama_backend_init();
  llama_model_quantize_params options = llama_model_quantize_default_params();
  options.ftype = LLAMA_FTYPE_MOSTLY_IQ2_BN;
  options.allow_requantize = true;
  options.output_tensor_type = GGML_TYPE_Q6_K;
  options.token_embedding_type = GGML_TYPE_Q6_K;
  return llama_model_quantize(argv[1], argv[2], &options) == 0 ? 0 : 1;
}
