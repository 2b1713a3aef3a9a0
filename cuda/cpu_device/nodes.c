#define _GNU_SOURCE
#include "nodes.h"

#include "runtime/device.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { MOST_NODES = 256 };

static struct {
  int32_t count;
  cpu_set_t processors[MOST_NODES];
  uint8_t node_of[CPU_SETSIZE]; /* of a processor */
} nodes;

/* The next numbers, `first` to `last`, of a list such as 0-3,8; 0 at its end. */
static int next_range(FILE *list, int *first, int *last) {
  if (fscanf(list, "%d", first) != 1) {
    return 0;
  }
  *last = *first;
  int next = fgetc(list);
  if (next == '-' && fscanf(list, "%d", last) == 1) {
    next = fgetc(list);
  }
  return *first >= 0 && (next == ',' || next == '\n' || next == EOF);
}

/* Takes a node in, if the process may use any of its processors. */
static void add_node(int number, const cpu_set_t *ours) {
  char path[64];
  snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", number);
  FILE *const list = fopen(path, "re");
  if (list == NULL) {
    return;
  }
  cpu_set_t *const processors = &nodes.processors[nodes.count];
  CPU_ZERO(processors);
  for (int first, last; next_range(list, &first, &last);) {
    for (int i = first; i <= last && i < CPU_SETSIZE; i++) {
      if (CPU_ISSET(i, ours)) {
        CPU_SET(i, processors);
        nodes.node_of[i] = (uint8_t)nodes.count;
      }
    }
  }
  fclose(list);
  nodes.count += CPU_COUNT(processors) != 0;
}

static void find_nodes(void) {
  cpu_set_t ours;
  FILE *const list = fopen("/sys/devices/system/node/online", "re");
  if (list != NULL && sched_getaffinity(0, sizeof ours, &ours) == 0) {
    for (int first, last; next_range(list, &first, &last);) {
      for (int i = first; i <= last; i++) {
        if (nodes.count < MOST_NODES) {
          add_node(i, &ours);
        }
      }
    }
  }
  if (list != NULL) {
    fclose(list);
  }
}

static void find_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_nodes);
}

int32_t nn_nodes_count(void) {
  find_once();
  return nodes.count < 1 ? 1 : nodes.count;
}

int32_t nn_nodes_here(void) {
  find_once();
  const int processor = sched_getcpu();
  return processor < 0 || processor >= CPU_SETSIZE ? 0 : nodes.node_of[processor];
}

void nn_nodes_bind(int32_t node) {
  find_once();
  if (node < nodes.count) { /* should it fail, the thread runs elsewhere and is only slower */
    pthread_setaffinity_np(pthread_self(), sizeof nodes.processors[node], &nodes.processors[node]);
  }
}
