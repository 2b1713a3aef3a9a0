#include "record.h"

#define NN_NAME(op) "cuda_" #op,
static const char *const op_names[NN_OP_ALL] = {
    NN_OPS(NN_NAME)[NN_OP_memset] = "nncuda_memset",
    [NN_OP_memcpy] = "nncuda_memcpy",
};

const char *nn_op_name(nn_op op) { return op_names[op]; }

int64_t nn_dtype_size(int32_t dtype) {
  switch (dtype) {
  case NNCUDA_F32:
  case NNCUDA_I32:
    return 4;
  case NNCUDA_F16:
  case NNCUDA_BF16:
    return 2;
  case NNCUDA_I8:
  case NN_U8:
    return 1;
  case NN_I64:
    return 8;
  default:
    return 0;
  }
}
