/*
 * How ranks that no launcher of a transport's own connects find each other: over TCP. Rank 0 listens until all others
 * have come, gives each the transport's id, and stays connected to it, so that whoever cannot go on, or is gone, is
 * known to all.
 */
#ifndef NN_COMM_RENDEZVOUS_H
#define NN_COMM_RENDEZVOUS_H

#include "comm.h"

enum { NN_RENDEZVOUS_ID_BYTES = 128 };

/* Connections of a job: rank 0's to all others, the others' to rank 0. Of a communicator and those split from it. */
typedef struct nn_links nn_links;

/* Sets rank and ranks from the variables RANK and WORLD_SIZE where they are -1. */
int32_t nn_rendezvous_ranks(nncuda_ctx *ctx, nncuda_comm *comm);

/* `address` is HOST:PORT of rank 0, or empty: MASTER_ADDR and MASTER_PORT. `id` is given by rank 0 and received by the
 * others. Returns on rank 0 when all have come, on the others when rank 0 has taken them. */
int32_t nn_rendezvous(nncuda_ctx *ctx, nncuda_comm *comm, const char *address, void *id, nn_links **links);

/* Looks, without waiting, whether a rank said that it cannot go on or ended: why, naming it; or null. */
const char *nn_links_look(nn_links *links);

/* Says so of this rank, unless the others know of one. */
void nn_links_tell(nn_links *links, const char *reason);

/* One more communicator uses them; one less, and with the last one this rank leaves in order. */
nn_links *nn_links_share(nn_links *links);
void nn_links_close(nn_links *links);

/* Milliseconds of a clock that only goes forward. */
int64_t nn_milliseconds(void);

#endif
