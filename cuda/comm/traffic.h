/*
 * The ragged exchange of rows between ranks that have experts each. How many rows go where is data, so the host reads
 * it when the call runs: first ranks tell each other how many rows each expert gets, then exactly these travel, one
 * message from each rank to each other.
 */
#ifndef NN_COMM_TRAFFIC_H
#define NN_COMM_TRAFFIC_H

#include "comm.h"

typedef struct nn_experts_args {
  nncuda_comm *comm;
  void *x, *y;
  int32_t *offsets, *y_offsets; /* offsets: null for a rank without rows */
  int64_t rows, slot_rows, row_bytes, own;
  int64_t source; /* of a half that is about one rank */
  int32_t known;  /* of dispatch_begin: y_offsets are there */
} nn_experts_args;

/* What the host knows of a call, and its messages. */
typedef struct nn_traffic {
  int32_t *offsets; /* [ranks*own+1], of x */
  int32_t *sent;    /* [ranks, own+1], the same for each rank, from 0 on */
  int32_t *slots;   /* [ranks, own+1], of y */
  nn_message *messages;
  int64_t count;
} nn_traffic;

/* Room for what the host knows; to be closed in any case. */
int32_t nn_traffic_open(nncuda_ctx *ctx, const nn_experts_args *a, nn_traffic *t);
void nn_traffic_close(nn_traffic *t);

/* Learns and checks how many rows of x go to each expert. */
int32_t nn_traffic_read_offsets(nncuda_ctx *ctx, const nn_experts_args *a, nn_traffic *t);

/* And how many rows of the own experts come from each rank: from these, into y_offsets; or from y_offsets. */
int32_t nn_traffic_learn_slots(nncuda_ctx *ctx, const nn_experts_args *a, nn_traffic *t);
int32_t nn_traffic_read_slots(nncuda_ctx *ctx, const nn_experts_args *a, nn_traffic *t);

/* What this rank keeps is in y as often as in x, as what travels is: of that the transport says so. */
int32_t nn_traffic_check_kept(nncuda_ctx *ctx, const nn_experts_args *a, const nn_traffic *t);

/* Copies that, from x to y, or back. */
int32_t nn_traffic_copy_kept(nncuda_ctx *ctx, const nn_experts_args *a, const nn_traffic *t, int32_t back);

/* What travels in a step, of `ranks` - 1, to the messages: from x to the rank that many behind this one, and from that
 * many before it to y; back, from y to where rows came from. */
void nn_traffic_post_step(const nn_experts_args *a, nn_traffic *t, int64_t step, int32_t back);

/* Of a context that measures: every rank has as many rows, and all experts get equally many. */
int32_t nn_traffic_count(const nn_experts_args *a, int64_t entries);

#endif
