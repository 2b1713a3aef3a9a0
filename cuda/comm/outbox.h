/* What collectives are made of. */
#ifndef NN_COMM_OUTBOX_H
#define NN_COMM_OUTBOX_H

#include "comm.h"
#include "runtime/call.h"

#include <stdint.h>

/* A growing list of messages, on the host. */
typedef struct nn_outbox {
  nn_message *messages;
  int64_t count;
} nn_outbox;

/* Room for `most` messages, which the caller frees whatever comes of it. */
int32_t nn_outbox_open(nncuda_ctx *ctx, nn_outbox *box, int64_t most);
/* Adds a message, unless it is empty. */
void nn_outbox_post(nn_outbox *box, int64_t peer, const void *data, int64_t bytes, int32_t send);

/* Within device memory. */
int32_t nn_comm_copy(nncuda_ctx *ctx, void *to, const void *from, int64_t bytes);

/* y = a + b, of n elements: computed in f32, then rounded to dtype. */
int32_t nn_comm_add(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, int32_t dtype);

/* Begins a call, and checks the communicator. */
nn_call nn_comm_enter(nncuda_ctx *ctx, nn_op op, nncuda_comm *comm);

#endif
