#include "record.h"

#define NN_NAME(op) "cuda_" #op,
static const char *const op_names[NN_OP_ALL] = {
    NN_OPS(NN_NAME)[NN_OP_memset] = "nncuda_memset",
    [NN_OP_memcpy] = "nncuda_memcpy",
    [NN_OP_comm_broadcast] = "nncuda_comm_broadcast",
    [NN_OP_comm_all_gather] = "nncuda_comm_all_gather",
    [NN_OP_comm_all_reduce] = "nncuda_comm_all_reduce",
    [NN_OP_comm_reduce_scatter] = "nncuda_comm_reduce_scatter",
    [NN_OP_comm_reduce_scatter_begin] = "nncuda_comm_reduce_scatter_begin",
    [NN_OP_comm_reduce_scatter_end] = "nncuda_comm_reduce_scatter_end",
    [NN_OP_comm_move] = "nncuda_comm_move",
    [NN_OP_comm_grad_norm] = "nncuda_comm_grad_norm",
    [NN_OP_comm_dispatch] = "nncuda_comm_dispatch",
    [NN_OP_comm_collect] = "nncuda_comm_collect",
    [NN_OP_comm_dispatch_begin] = "nncuda_comm_dispatch_begin",
    [NN_OP_comm_dispatch_end] = "nncuda_comm_dispatch_end",
    [NN_OP_comm_collect_begin] = "nncuda_comm_collect_begin",
    [NN_OP_comm_collect_end] = "nncuda_comm_collect_end",
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
