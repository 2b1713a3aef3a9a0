/* A rank that meets the others and no more, so that sanitizers see what strangers do to it: `rendezvous ADDRESS
 * TIMEOUT_MS stay|tell|die`. Prints what it learns. */
#include "comm/rendezvous.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int32_t nn_fail(nncuda_ctx *ctx, int32_t status, const char *format, ...) {
  (void)ctx;
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  return status;
}

int32_t nn_comm_fail(nncuda_ctx *ctx, nncuda_comm *comm, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(comm->reason, sizeof comm->reason, format, list);
  va_end(list);
  comm->failed = 1;
  return nn_fail(ctx, NNCUDA_ERROR_PEER, "%s", comm->reason);
}

int main(int count, char **words) {
  nncuda_comm comm = {.rank = -1, .ranks = -1, .timeout_ms = count == 4 ? atoi(words[2]) : 0};
  char id[NN_RENDEZVOUS_ID_BYTES], wanted[sizeof id];
  nn_links *links = NULL;
  memset(wanted, 'i', sizeof wanted);
  if (count != 4 || nn_rendezvous_ranks(NULL, &comm) != NNCUDA_SUCCESS) {
    return 2;
  }
  memset(id, comm.rank == 0 ? 'i' : 0, sizeof id);
  if (nn_rendezvous(NULL, &comm, words[1], id, &links) != NNCUDA_SUCCESS) {
    return 3;
  }
  if (memcmp(id, wanted, sizeof id) != 0) {
    return 4;
  }
  const char *heard = NULL;
  if (strcmp(words[3], "die") == 0) {
    _exit(0);
  } else if (strcmp(words[3], "tell") == 0) {
    nn_links_tell(links, "the disk is full");
  }
  for (int i = 0; heard == NULL && i < 100; i++) {
    heard = nn_links_look(links);
    usleep(20000);
  }
  printf("%s", heard == NULL ? "all is well" : heard);
  nn_links_close(links);
  return 0;
}
