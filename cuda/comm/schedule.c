/*
 * The order in which a rank with experts adds their gradients, which all ranks of its group compute: an update, played
 * through round by round. bindings.h, section comm, has the definition.
 */
#include "interface.h"
#include "tree.h"

#include <stdlib.h>
#include <string.h>

/* Complete, and waiting for its sibling in the tree. */
typedef struct sum {
  nn_range node;
  int64_t slot;
} sum;

/* Where a rank of the group is: its next micro-batch, the replica of that, and the slot of the replica's sum. */
typedef struct source {
  int64_t micro_batch, replica, end, slot;
} source;

typedef struct schedule {
  int64_t replicas, group, micro_batches;
  int64_t *events; /* null: they are counted */
  int64_t count, slots, round;
  unsigned char *taken; /* whether a slot is */
  source *sources;
  sum *sums; /* in the order of replicas */
  int64_t waiting;
} schedule;

static void emit(schedule *s, int64_t kind, int64_t a, int64_t b, int64_t c, int64_t accumulate) {
  if (s->events != NULL) {
    memcpy(s->events + 6 * s->count, (const int64_t[]){s->round, kind, a, b, c, accumulate}, 6 * sizeof(int64_t));
  }
  s->count++;
}

static int64_t take_slot(schedule *s) {
  int64_t slot = 0;
  while (s->taken[slot]) {
    slot++;
  }
  s->taken[slot] = 1;
  s->slots = slot < s->slots ? s->slots : slot + 1;
  return slot;
}

static int32_t siblings(const schedule *s, nn_range parent, int64_t left) {
  return left >= 0 && left + 1 < s->waiting && s->sums[left].node.begin == parent.begin &&
         s->sums[left].node.end == s->sums[left + 1].node.begin && s->sums[left + 1].node.end == parent.end;
}

/* Where a sum is to be rounded: one that is complete, and not that over all replicas. */
static void emit_round(schedule *s, const sum *done) {
  if (done->node.end - done->node.begin < s->replicas) {
    emit(s, NNCUDA_EXPERTS_ROUND, done->slot, 0, 0, 0);
  }
}

/* Joins a sum, which is complete, with its sibling, that with its own, and so on. */
static void complete(schedule *s, sum done) {
  int64_t at = s->waiting++;
  for (; at > 0 && s->sums[at - 1].node.begin > done.node.begin; at--) {
    s->sums[at] = s->sums[at - 1];
  }
  s->sums[at] = done;
  emit_round(s, &done);
  for (;;) {
    const nn_range parent = nn_replica_parent(s->replicas, s->sums[at].node);
    at = siblings(s, parent, at - 1) ? at - 1 : at;
    if (!siblings(s, parent, at)) {
      return;
    }
    const int64_t freed = s->sums[at + 1].slot;
    emit(s, NNCUDA_EXPERTS_ADD, s->sums[at].slot, freed, 0, 0);
    s->taken[freed] = 0;
    s->sums[at].node = parent;
    emit_round(s, &s->sums[at]);
    s->waiting--;
    memmove(&s->sums[at + 1], &s->sums[at + 2], (size_t)(s->waiting - at - 1) * sizeof *s->sums);
  }
}

/* The next micro-batch of a rank that has one. */
static void run(schedule *s, int64_t rank) {
  source *const at = &s->sources[rank];
  const int32_t begins = at->micro_batch == at->replica;
  at->slot = begins ? take_slot(s) : at->slot;
  emit(s, NNCUDA_EXPERTS_RUN, rank, at->micro_batch, at->slot, !begins);
  if (s->micro_batches - at->micro_batch > s->replicas) {
    at->micro_batch += s->replicas;
    return;
  }
  complete(s, (sum){{at->replica, at->replica + 1}, at->slot});
  at->micro_batch = ++at->replica;
}

static void run_rounds(schedule *s) {
  for (int32_t ran = 1; ran; s->round += ran) {
    ran = 0;
    for (int64_t rank = 0; rank < s->group; rank++) {
      if (s->sources[rank].replica < s->sources[rank].end) {
        run(s, rank);
        ran = 1;
      }
    }
  }
}

static void move(schedule *s, sum *moved, int64_t slot) {
  emit(s, NNCUDA_EXPERTS_COPY, moved->slot, slot, 0, 0);
  s->taken[moved->slot] = 0;
  s->taken[slot] = 1;
  moved->slot = slot;
}

/* Brings the sums that are left to slots 0, 1, ... Where each has another's place, one steps aside. */
static void line_up(schedule *s) {
  for (;;) {
    int64_t astray = -1, free = -1;
    for (int64_t k = 0; k < s->waiting && free < 0; k++) {
      if (s->sums[k].slot != k) {
        astray = k;
        free = s->taken[k] ? -1 : k;
      }
    }
    if (astray < 0) {
      return;
    }
    move(s, &s->sums[astray], free >= 0 ? free : take_slot(s));
  }
}

/* Plays an update through; the events are written where there is room for them. */
static void play(schedule *s, int64_t ranks, int64_t first, int64_t *events) {
  s->events = events;
  s->count = s->slots = s->round = s->waiting = 0;
  for (int64_t i = 0; i < s->group; i++) {
    const nn_range own = nn_shard(s->replicas, 1, ranks, first + i);
    s->sources[i] = (source){own.begin, own.begin, own.end, 0};
  }
  run_rounds(s);
  line_up(s);
  memset(s->taken, 0, (size_t)s->slots);
}

/* ---- the same events in the order in which rows come to a rank ---- */

static int32_t touches(const int64_t *event, int64_t slot) {
  return event[1] == NNCUDA_EXPERTS_RUN ? event[4] == slot
                                        : event[2] == slot || (event[1] == NNCUDA_EXPERTS_ADD && event[3] == slot);
}

/* Whether one of two events may need what the other does. */
static int32_t ordered(const int64_t *a, const int64_t *b) {
  return touches(b, a[1] == NNCUDA_EXPERTS_RUN ? a[4] : a[2]) || (a[1] == NNCUDA_EXPERTS_ADD && touches(b, a[3]));
}

/* Sums first, since slots are free then; of micro-batches, those of the ranks before this one as their rows come; its
 * own last, while results travel back. */
static int64_t turn_of(const int64_t *event, int64_t group, int64_t position) {
  const int64_t step = (position - event[2] + group) % group;
  return event[1] != NNCUDA_EXPERTS_RUN ? 0 : step == 0 ? group : step;
}

/* The next of `count` events: of those that need no event before them the one whose turn is first. */
static int64_t next_event(const int64_t *events, int64_t count, int64_t group, int64_t position) {
  int64_t next = 0;
  for (int64_t i = 1; i < count; i++) {
    int32_t free = turn_of(events + 6 * i, group, position) < turn_of(events + 6 * next, group, position);
    for (int64_t before = 0; free && before < i; before++) {
      free = !ordered(events + 6 * before, events + 6 * i);
    }
    next = free ? i : next;
  }
  return next;
}

/* Of each round by itself. Two events that touch one slot keep their order, so no sum changes. */
static void put_in_order(int64_t *events, int64_t count, int64_t group, int64_t position) {
  for (int64_t begin = 0, end; begin < count; begin = end) {
    end = begin + 1;
    while (end < count && events[6 * end] == events[6 * begin]) {
      end++;
    }
    for (int64_t at = begin; at < end && events[6 * at + 1] != NNCUDA_EXPERTS_COPY; at++) {
      const int64_t next = at + next_event(events + 6 * at, end - at, group, position);
      int64_t moved[6];
      memcpy(moved, events + 6 * next, sizeof moved);
      memmove(events + 6 * (at + 1), events + 6 * at, (size_t)(next - at) * sizeof moved);
      memcpy(events + 6 * at, moved, sizeof moved);
    }
  }
}

int32_t nncuda_expert_schedule(int64_t replicas, int64_t ranks, int64_t first, int64_t group, int64_t micro_batches,
                               int64_t position, int64_t *events, int64_t capacity, int64_t *count, int64_t *slots) {
  if (count == NULL || slots == NULL) {
    return NNCUDA_ERROR_NULL_POINTER;
  }
  if (capacity < 0) {
    return NNCUDA_ERROR_INVALID_SIZE;
  }
  if (replicas < 1 || ranks < 1 || ranks > replicas || group < 1 || ranks % group != 0 || first < 0 || first >= ranks ||
      first % group != 0 || micro_batches < replicas || micro_batches > INT32_MAX || position < -1 ||
      position >= group) {
    return NNCUDA_ERROR_INVALID_VALUE;
  }
  const int64_t most =
      nn_shard(replicas, 1, ranks, first + group - 1).end - nn_shard(replicas, 1, ranks, first).begin + 1;
  schedule s = {.replicas = replicas, .group = group, .micro_batches = micro_batches};
  s.taken = calloc((size_t)most, sizeof *s.taken);
  s.sources = calloc((size_t)group, sizeof *s.sources);
  s.sums = calloc((size_t)most, sizeof *s.sums);
  const int32_t ready = s.taken != NULL && s.sources != NULL && s.sums != NULL;
  if (ready) {
    play(&s, ranks, first, NULL);
    *count = s.count;
    *slots = s.slots;
  }
  if (ready && events != NULL && s.count <= capacity) {
    play(&s, ranks, first, events);
    if (position >= 0) {
      put_in_order(events, s.count, group, position);
    }
  }
  free(s.taken);
  free(s.sources);
  free(s.sums);
  return ready ? NNCUDA_SUCCESS : NNCUDA_ERROR_OUT_OF_MEMORY;
}
