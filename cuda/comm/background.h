/*
 * Exchanges beside what the context does meanwhile. A transport whose exchange waits for the peers has them done by a
 * thread of the communicator; one that queues on a stream of the device has functions of its own (nn_transport.begin).
 */
#ifndef NN_COMM_BACKGROUND_H
#define NN_COMM_BACKGROUND_H

#include "comm.h"

/* Begins an exchange. The memory belongs to it until its end; exchanges end in the order in which they began. */
int32_t nn_comm_exchange_begin(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count);

/* Waits for the exchange that began first: in stream order, as nn_comm_exchange does. */
int32_t nn_comm_exchange_end(nncuda_ctx *ctx, nncuda_comm *comm);

/* Ends the thread. Who leaves before an exchange has ended gives up, and says so. */
void nn_background_close(nncuda_comm *comm);

#endif
