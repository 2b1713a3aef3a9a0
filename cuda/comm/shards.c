#include "shards.h"

#include "numbers/sizes.h"
#include "tree.h"

#include <stdlib.h>

void nn_shards_check(nn_call *call, int64_t n, int64_t ranks, const int64_t *shards, int64_t count) {
  nn_call_require(call, shards != NULL || count == 0, NNCUDA_ERROR_NULL_POINTER,
                  "shards is null; it must point to %lld shards", (long long)count);
  int64_t least = 0;
  for (int64_t i = 0; call->status == NNCUDA_SUCCESS && i < count; i++) {
    const int64_t *const s = shards + 3 * i;
    nn_call_require(call, s[0] >= least && s[1] > s[0] && s[1] <= n, NNCUDA_ERROR_INVALID_VALUE,
                    "shard %lld is of the elements %lld to %lld; it must be above the one before it and within %lld",
                    (long long)i, (long long)s[0], (long long)s[1], (long long)n);
    nn_call_require(call, s[2] >= 0 && s[2] < ranks, NNCUDA_ERROR_INVALID_VALUE,
                    "shard %lld is rank %lld's; of %lld ranks it must be 0 to %lld", (long long)i, (long long)s[2],
                    (long long)ranks, (long long)(ranks - 1));
    least = s[1];
  }
}

int32_t nn_shards_joined(const int64_t *shards, int64_t count) {
  int64_t i = 1;
  while (i < count && shards[3 * i] == shards[3 * i - 2]) {
    i++;
  }
  return i >= count;
}

static int in_order(const void *left, const void *right) {
  const nn_owned *a = left, *b = right;
  const int by_rank = (a->rank > b->rank) - (a->rank < b->rank);
  return by_rank != 0 ? by_rank : (a->begin > b->begin) - (a->begin < b->begin);
}

void nn_shards_by_rank(const int64_t *shards, int64_t count, nn_owned *owned) {
  for (int64_t i = 0; i < count; i++) {
    owned[i] = (nn_owned){shards[3 * i], shards[3 * i + 1], shards[3 * i + 2], 0};
  }
  qsort(owned, (size_t)count, sizeof *owned, in_order);
  for (int64_t i = 1; i < count; i++) {
    const nn_owned *const before = &owned[i - 1];
    owned[i].at = before->rank == owned[i].rank ? before->at + before->end - before->begin : 0;
  }
}

/* ---- who updates what ---- */

/* Of a piece that is cut among all ranks, for each of them: so none has much more than another. */
enum { LEAST_GRAINS = 16 };

/* Grains that are shared out together: class 0 among all ranks, class 1 + q among those with part q of the experts, in
 * ascending order. */
typedef struct class {
  int64_t ranks, first, step; /* rank i of them is rank first + i * step of the job */
  int64_t grains;
  int64_t dealt, owner; /* how many have an owner, and who is the next one's, counted within `ranks` */
} class;

typedef struct dealing {
  int64_t n, grain;
  class *classes;
  int32_t count_only; /* how many grains each class has */
  int64_t *shards;    /* null: they are counted */
  int64_t count;
  int64_t rank; /* of the last one */
} dealing;

static void put(dealing *d, int64_t begin, int64_t end, int64_t rank) {
  const int32_t longer = d->count > 0 && d->rank == rank;
  d->count += !longer;
  d->rank = rank;
  if (d->shards != NULL) {
    int64_t *const s = d->shards + 3 * (d->count - 1);
    s[0] = longer ? s[0] : begin;
    s[1] = end;
    s[2] = rank;
  }
}

/* The grains from `begin` to before `end`, all of one class. */
static void deal(dealing *d, class *c, int64_t begin, int64_t end) {
  if (d->count_only) {
    c->grains += end - begin;
    return;
  }
  while (begin < end) {
    int64_t last = nn_shard(c->grains, 1, c->ranks, c->owner).end;
    while (last <= c->dealt) {
      last = nn_shard(c->grains, 1, c->ranks, ++c->owner).end;
    }
    const int64_t count = last - c->dealt < end - begin ? last - c->dealt : end - begin;
    const int64_t stop = begin + count, all = nn_ceil_div(d->n, d->grain);
    put(d, begin * d->grain, stop == all ? d->n : stop * d->grain, c->first + c->owner * c->step);
    c->dealt += count;
    begin = stop;
  }
}

/* The grains from `begin` to before `end`, a piece to each rank. */
static void cut(dealing *d, const class *c, int64_t begin, int64_t end) {
  for (int64_t owner = 0; owner < c->ranks; owner++) {
    const nn_range part = nn_shard(end - begin, 1, c->ranks, owner);
    const int64_t first = (begin + part.begin) * d->grain, last = (begin + part.end) * d->grain;
    if (part.begin < part.end) {
      put(d, first, last < d->n ? last : d->n, c->first + owner * c->step);
    }
  }
}

/* The grains from `begin` to before `end`, among all ranks: of what lies between two parts of experts each has its
 * share. Those that get one more grain take turns. */
static void spread(dealing *d, class *all, int64_t begin, int64_t end) {
  if (d->count_only) {
    return;
  }
  const int64_t each = (end - begin) / all->ranks, more = (end - begin) % all->ranks;
  for (int64_t i = 0, next; i < all->ranks && begin < end; i++, begin = next) {
    next = begin + each + (i < more);
    put(d, begin * d->grain, next * d->grain < d->n ? next * d->grain : d->n, (all->owner + i) % all->ranks);
  }
  all->owner = (all->owner + more) % all->ranks;
}

/* Where each rank has all experts: all grains, cut where stacks begin and end. */
static void cut_all(dealing *d, const int64_t *experts, int64_t matrices) {
  const class *const all = &d->classes[0];
  int64_t next = 0;
  for (int64_t i = 0; i < 2 * matrices; i++) {
    const int64_t edge = experts[i] / d->grain;
    if (experts[i] < d->n && edge - next >= LEAST_GRAINS * all->ranks) {
      cut(d, all, next, edge);
      next = edge;
    }
  }
  cut(d, all, next, nn_ceil_div(d->n, d->grain));
}

/* All grains of the arena, in ascending order. */
static void deal_all(dealing *d, int64_t group, const int64_t *experts, int64_t matrices) {
  if (group == 1) {
    if (!d->count_only) {
      cut_all(d, experts, matrices);
    }
    return;
  }
  int64_t next = 0;
  for (int64_t i = 0; i < matrices; i++) {
    const int64_t part = (experts[2 * i + 1] - experts[2 * i]) / group;
    for (int64_t q = 0; q < group; q++) {
      const int64_t begin = experts[2 * i] + q * part, end = begin + part;
      const int64_t first = nn_ceil_div(begin, d->grain);
      const int64_t last = end == d->n ? nn_ceil_div(end, d->grain) : end / d->grain;
      if (first < last) {
        spread(d, &d->classes[0], next, first);
        deal(d, &d->classes[1 + q], first, last);
        next = last;
      }
    }
  }
  spread(d, &d->classes[0], next, nn_ceil_div(d->n, d->grain));
}

static int32_t check_experts(int64_t n, int64_t group, const int64_t *experts, int64_t matrices) {
  for (int64_t i = 0, least = 0; i < matrices; i++) {
    const int64_t begin = experts[2 * i], end = experts[2 * i + 1];
    if (begin < least || end < begin || end > n || (end - begin) % group != 0) {
      return NNCUDA_ERROR_INVALID_VALUE;
    }
    least = end;
  }
  return NNCUDA_SUCCESS;
}

static int32_t check(int64_t n, int64_t grain, int64_t ranks, int64_t group, const int64_t *experts, int64_t matrices,
                     int64_t capacity, const int64_t *count) {
  if (count == NULL || (experts == NULL && matrices > 0)) {
    return NNCUDA_ERROR_NULL_POINTER;
  }
  if (matrices < 0 || capacity < 0) {
    return NNCUDA_ERROR_INVALID_SIZE;
  }
  if (n < 1 || grain < 1 || ranks < 1 || ranks > INT32_MAX || group < 1 || ranks % group != 0) {
    return NNCUDA_ERROR_INVALID_VALUE;
  }
  return check_experts(n, group, experts, matrices);
}

int32_t nncuda_expert_shards(int64_t n, int64_t grain, int64_t ranks, int64_t group, const int64_t *experts,
                             int64_t matrices, int64_t *shards, int64_t capacity, int64_t *count) {
  const int32_t status = check(n, grain, ranks, group, experts, matrices, capacity, count);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  dealing d = {.n = n, .grain = grain, .count_only = 1};
  d.classes = calloc((size_t)group + 1, sizeof *d.classes);
  if (d.classes == NULL) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  d.classes[0] = (class){.ranks = ranks, .step = 1};
  for (int64_t q = 0; q < group; q++) {
    d.classes[1 + q] = (class){.ranks = ranks / group, .first = q, .step = group};
  }
  deal_all(&d, group, experts, matrices);
  d.count_only = 0;
  deal_all(&d, group, experts, matrices); /* without memory: their number */
  *count = d.count;
  if (shards != NULL && d.count <= capacity) {
    for (int64_t c = 0; c <= group; c++) {
      d.classes[c].dealt = d.classes[c].owner = 0;
    }
    d.count = 0;
    d.shards = shards;
    deal_all(&d, group, experts, matrices);
  }
  free(d.classes);
  return NNCUDA_SUCCESS;
}
