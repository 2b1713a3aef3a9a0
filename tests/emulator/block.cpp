/*
 * Runs a grid: its blocks one after another, the threads of a block as fibers that run until they wait for others. The
 * blocks of a cluster run together: their threads are numbered on from block to block, and take turns as those of one.
 *
 * A thread that never waits needs no stack of its own: a stack runs one thread after the other, and only when one waits
 * are the threads that have not begun run on another stack.
 */
#include "block.h"

#include <cfenv>
#include <cstdarg>
#include <cstdio>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

enum : unsigned { MAX_THREADS = 1024, MAX_WARPS = 32, MAX_BARRIERS = 16 };
/* Rounds in which threads only polled, after which they are reported as waiting forever. */
enum : uint64_t { MAX_IDLE_ROUNDS = 200000 };
/* Rounds for which a block of a cluster may be favoured. */
enum : unsigned { MOST_FAVOURED = 64 };

/* A *_sync instruction that some lanes have come to. */
struct exchange {
  unsigned mask, missing;
  size_t bytes;
  const char *what;
  nn_buffer *values;
};

struct barrier {
  unsigned arrived, threads;
  nn_site site;
  unsigned waiting[MAX_WARPS], came[MAX_WARPS]; /* lanes; who came by bar.arrive does not wait */
};

struct warp {
  unsigned live, ready, polling; /* lanes */
  unsigned open;                 /* exchanges */
  exchange exchanges[32];
};

struct fiber {
  void *context; /* null: not begun */
  nn_stack *stack;
  nn_buffer *held; /* values of the last exchange */
  uint3 index;
  unsigned thread; /* in the cluster */
  unsigned block;  /* in the cluster */
  enum { EXCHANGES, WAITS, POLLS } state;
  unsigned mask_or_barrier;
  const nn_site *site; /* lies in the frame of the function that waits */
};

/* A block of the cluster that runs. */
struct member {
  uint3 index;
  unsigned live_threads, begun_barriers;
  barrier barriers[MAX_BARRIERS];
};

fiber fibers[MAX_THREADS];
warp warps[MAX_WARPS];
member members[NN_CLUSTER_MOST];
barrier cluster_barrier;
fiber *current;
void *host_context;
const nn_launch_record *launch;
unsigned cluster_blocks, cluster_threads, cluster_warps, block_threads; /* of a cluster, of a block */
unsigned live_threads, ready_warps;                                     /* in the cluster */
unsigned favoured, rounds_left; /* the block that is ahead of the cluster's others, and for how long */
uint64_t cluster_serial, idle_rounds;
uint64_t clusters, cluster_number;
nn_order order;
uint64_t waits_for_kernels; /* calls of it in a grid */

const char *name_of(const nn_site &site) { return site.what ? site.what : "an exchange"; }

void make_ready(unsigned warp_number, unsigned lanes) {
  warps[warp_number].ready |= lanes;
  ready_warps |= 1u << warp_number;
}

bool lives(unsigned thread) { return warps[thread / 32].live >> thread % 32 & 1; }

bool wait_alike(const fiber &f, const fiber &g) {
  return f.state == g.state && f.mask_or_barrier == g.mask_or_barrier && f.site->line == g.site->line &&
         !strcmp(f.site->file, g.site->file);
}

/* Threads that wait in the same place are named together, as ranges. */
[[noreturn]] void report_stuck(const char *why) {
  std::string text = why;
  std::vector<bool> named(cluster_threads);
  unsigned ended = 0;
  for (unsigned i = 0; i < cluster_threads; i++) {
    ended += !lives(i);
    if (!lives(i) || named[i]) {
      continue;
    }
    const fiber &f = fibers[i];
    const unsigned first = f.block * block_threads, end = first + block_threads;
    text += "\n  ";
    text += cluster_blocks > 1 ? "block " + std::to_string(f.block) + " of the cluster, " : "";
    for (unsigned j = i, ranges = 0; j < end; j++) {
      const unsigned from = j;
      while (j < end && lives(j) && wait_alike(f, fibers[j])) {
        named[j++] = true;
      }
      if (j > from && ranges++ < 8) {
        text += (ranges == 1 ? "threads " : ", ") + std::to_string(from - first);
        text += j - from > 1 ? " to " + std::to_string(j - 1 - first) : "";
      }
    }
    char what[32] = "";
    if (f.state == fiber::EXCHANGES) {
      snprintf(what, sizeof what, " with mask 0x%08x", f.mask_or_barrier);
    } else if (f.state == fiber::WAITS && f.mask_or_barrier) {
      snprintf(what, sizeof what, " at barrier %u", f.mask_or_barrier);
    }
    text += std::string(": ") + name_of(*f.site) + what + ", " + f.site->file + ":" + std::to_string(f.site->line);
  }
  nn_die(text + "\n  ended: " + std::to_string(ended) + " of " + std::to_string(cluster_threads));
}

/* Clusters are rows of blocks along x, and grid.x a multiple of their size. */
void set_cluster(uint64_t number) {
  const uint64_t place = order.place(number);
  for (unsigned i = 0; i < cluster_blocks; i++) {
    const uint64_t block = place * cluster_blocks + i;
    members[i].index = {(unsigned)(block % gridDim.x), (unsigned)(block / gridDim.x % gridDim.y),
                        (unsigned)(block / gridDim.x / gridDim.y)};
    members[i].live_threads = block_threads;
  }
  cluster_serial++;
  live_threads = cluster_threads;
  ready_warps = cluster_warps == 32 ? ~0u : (1u << cluster_warps) - 1;
  for (unsigned w = 0; w < cluster_warps; w++) {
    const unsigned lanes = cluster_threads - 32 * w;
    warps[w].live = warps[w].ready = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    warps[w].polling = warps[w].open = 0;
  }
  nn_shared_begin_blocks();
}

/* Makes the threads that poll ready, of the warps first .. end - 1; whether there are any. */
bool wake_pollers(unsigned first, unsigned end) {
  bool polled = false;
  for (unsigned w = first; w < end; w++) {
    if (warps[w].polling) {
      make_ready(w, warps[w].polling);
      warps[w].polling = 0;
      polled = true;
    }
  }
  return polled;
}

/* The same for a round in which nothing else was ready. Of a cluster, but in the order FORWARD, one block after the
 * other is favoured for some rounds, and gets as far ahead as barriers let it. */
bool next_round() {
  if (cluster_blocks > 1 && order.kind != nn_settings::FORWARD) {
    if (rounds_left == 0) {
      favoured = (favoured + 1) % cluster_blocks;
      rounds_left = order.kind == nn_settings::SHUFFLE ? 1 + order.random_bits() % MOST_FAVOURED : MOST_FAVOURED;
    }
    rounds_left--;
    const unsigned each = cluster_warps / cluster_blocks;
    if (wake_pollers(favoured * each, (favoured + 1) * each)) {
      return true;
    }
  }
  return wake_pollers(0, cluster_warps);
}

/* The thread to continue with; null when all have ended. */
inline fiber *next_fiber() {
  for (;;) {
    if (__builtin_expect(ready_warps != 0, 1)) {
      const unsigned w = order.pick(ready_warps), lane = order.pick(warps[w].ready);
      warps[w].ready &= ~(1u << lane);
      if (!warps[w].ready) {
        ready_warps &= ~(1u << w);
      }
      return &fibers[32 * w + lane];
    }
    if (!next_round()) {
      return nullptr;
    }
    if (++idle_rounds > MAX_IDLE_ROUNDS) {
      report_stuck("is stuck: threads poll for what never comes");
    }
  }
}

void fiber_main();

void go_on_as(fiber *f) {
  current = f;
  threadIdx = f->index;
  blockIdx = members[f->block].index;
  nn_emulated_thread_number = f->thread;
  nn_shared_select(f->block);
}

void *begun(fiber *f) {
  if (!f->context) {
    f->stack = nn_stack_take();
    f->context = nn_context_new(f->stack, fiber_main);
  }
  return f->context;
}

/* Leaves the running thread waiting, lets others run, and comes back when it is ready again. */
__attribute__((always_inline)) inline void wait(fiber *self) {
  fiber *next = next_fiber();
  if (!next) {
    report_stuck("is stuck: every thread waits");
  }
  if (next != self) {
    go_on_as(next);
    nn_context_switch(&self->context, begun(next));
  }
}

void wait_at(barrier &b, fiber *self, unsigned number, const nn_site &site) {
  b.waiting[self->thread / 32] |= 1u << self->thread % 32;
  self->state = fiber::WAITS;
  self->mask_or_barrier = number;
  self->site = &site;
  wait(self);
}

/* Where lanes of this mask meet: usually at the number of its lowest lane, but lanes that wait with another mask may
 * have that place. Every open exchange has a lane that waits, so the calling one always finds a place. */
unsigned slot_of(const warp &w, unsigned mask) {
  const unsigned usual = (unsigned)__builtin_ctz(mask);
  if (w.open == 0 || ((w.open >> usual & 1) && w.exchanges[usual].mask == mask)) {
    return usual;
  }
  for (unsigned rest = w.open; rest; rest &= rest - 1) {
    if (w.exchanges[__builtin_ctz(rest)].mask == mask) {
      return (unsigned)__builtin_ctz(rest);
    }
  }
  return (unsigned)__builtin_ctz(~w.open);
}

void finish_exchange(unsigned warp_number, unsigned slot, unsigned but_lane) {
  warp &w = warps[warp_number];
  w.open &= ~(1u << slot);
  idle_rounds = 0;
  const unsigned others = w.exchanges[slot].mask & w.live & ~but_lane;
  if (others) {
    make_ready(warp_number, others);
  }
}

void finish_barrier(barrier &b) {
  for (unsigned w = 0; w < cluster_warps; w++) {
    if (b.waiting[w]) {
      make_ready(w, b.waiting[w]);
      b.waiting[w] = 0;
    }
    b.came[w] = 0;
  }
  b.arrived = 0;
  idle_rounds = 0;
}

/* A thread has ended: no thread waits for it any more. */
void end_thread(fiber *self) {
  const unsigned w = self->thread / 32, bit = 1u << self->thread % 32;
  nn_release_buffer(self->held);
  self->held = nullptr;
  self->context = nullptr;
  warps[w].live &= ~bit;
  member &m = members[self->block];
  m.live_threads--;
  live_threads--;
  idle_rounds = 0;
  for (unsigned rest = warps[w].open; rest; rest &= rest - 1) {
    const unsigned slot = (unsigned)__builtin_ctz(rest);
    exchange &x = warps[w].exchanges[slot];
    if (x.missing & bit) {
      x.missing &= ~bit;
      if (x.values) {
        memset(x.values->data + self->thread % 32 * x.bytes, 0xff, x.bytes);
        nn_release_buffer(x.values);
      }
      if (!x.missing) {
        finish_exchange(w, slot, 0);
      }
    }
  }
  for (barrier &b : m.barriers) {
    if (!m.begun_barriers) {
      break;
    }
    if (b.arrived && b.threads == 0 && b.arrived == m.live_threads) {
      finish_barrier(b);
      m.begun_barriers--;
    }
  }
  if (cluster_barrier.arrived && cluster_barrier.arrived == live_threads) {
    finish_barrier(cluster_barrier);
  }
}

/* All threads have ended: a barrier that some came to without waiting was to have been waited for. */
void end_barriers() {
  for (unsigned block = 0; block < cluster_blocks; block++) {
    const member &m = members[block];
    for (unsigned i = 0; m.begun_barriers && i < MAX_BARRIERS; i++) {
      const barrier &b = m.barriers[i];
      if (b.arrived) {
        nn_emulated_fail("the block ends with barrier %u incomplete: %u of %u threads came, %s:%d", i, b.arrived,
                         b.threads, b.site.file, b.site.line);
      }
    }
  }
}

/* Runs on a stack of its own: one thread after the other, block after block. */
void fiber_main() {
  void *nowhere;
  for (;;) {
    fiber *self = current;
    /* The stack belongs to whichever thread runs on it. */
    nn_stack *stack = self->stack;
    launch->body();
    end_thread(self);
    fiber *next = next_fiber();
    if (!next && live_threads) {
      report_stuck("is stuck: every thread waits");
    }
    if (!next) {
      end_barriers();
      nn_shared_end_blocks();
      if (++cluster_number == clusters) {
        nn_stack_give(stack);
        nn_context_switch(&nowhere, host_context);
      }
      set_cluster(cluster_number);
      next = next_fiber();
    }
    go_on_as(next);
    if (next->context) {
      nn_stack_give(stack);
      nn_context_switch(&nowhere, next->context);
    }
    next->stack = stack;
  }
}

} // namespace

unsigned nn_emulated_thread_number;
uint64_t nn_emulated_cluster_serial() { return cluster_serial; }
unsigned nn_emulated_cluster_rank() { return current->block; }
unsigned nn_emulated_cluster_size() { return cluster_blocks; }
bool nn_emulated_block_lives(unsigned rank) { return members[rank].live_threads != 0; }

const void *nn_emulated_exchange(unsigned mask, const void *value, size_t bytes, const nn_site &site) {
  fiber *self = current;
  const unsigned number = self->thread / 32, lane = self->thread % 32, bit = 1u << lane;
  warp &w = warps[number];
  if (!(mask & bit)) {
    nn_emulated_fail("%s with mask 0x%08x, which leaves out the calling lane %u, %s:%d", name_of(site), mask, lane,
                     site.file, site.line);
  }
  nn_release_buffer(self->held);
  const unsigned slot = slot_of(w, mask);
  exchange &x = w.exchanges[slot];
  if (!(w.open >> slot & 1)) {
    w.open |= 1u << slot;
    x.mask = mask;
    x.missing = mask & w.live;
    x.bytes = bytes;
    x.what = site.what;
    x.values = bytes ? nn_take_buffer(32 * bytes, (unsigned)__builtin_popcount(x.missing)) : nullptr;
    for (unsigned ended = bytes ? mask & ~w.live : 0; ended; ended &= ended - 1) {
      memset(x.values->data + (unsigned)__builtin_ctz(ended) * bytes, 0xff, bytes);
    }
  } else if (x.bytes != bytes || (x.what != site.what && (!x.what || !site.what || strcmp(x.what, site.what)))) {
    nn_emulated_fail("%s of %zu bytes, while other lanes of the mask 0x%08x wait in %s of %zu bytes, %s:%d",
                     name_of(site), bytes, mask, x.what ? x.what : "an exchange", x.bytes, site.file, site.line);
  }
  self->held = x.values;
  if (bytes == 4) {
    memcpy(x.values->data + lane * 4, value, 4);
  } else if (bytes) {
    memcpy(x.values->data + lane * bytes, value, bytes);
  }
  x.missing &= ~bit;
  if (!x.missing) {
    finish_exchange(number, slot, bit);
  } else {
    self->state = fiber::EXCHANGES;
    self->mask_or_barrier = mask;
    self->site = &site;
    wait(self);
  }
  return self->held ? self->held->data : nullptr;
}

void nn_emulated_barrier(unsigned number, unsigned threads, const nn_site &site, bool waits) {
  if (number >= MAX_BARRIERS || threads % 32) {
    nn_emulated_fail("%s: barrier %u of %u threads; there are barriers 0 to 15, of whole warps", site.what, number,
                     threads);
  }
  fiber *self = current;
  member &m = members[self->block];
  barrier &b = m.barriers[number];
  if (!b.arrived) {
    b.threads = threads;
    b.site = site;
    m.begun_barriers++;
  } else if (b.threads != threads) {
    nn_emulated_fail("barrier %u is of %u threads at %s:%d and of %u at %s:%d", number, b.threads, b.site.file,
                     b.site.line, threads, site.file, site.line);
  } else if (!threads && (b.site.line != site.line || strcmp(b.site.file, site.file))) {
    nn_emulated_fail("threads of one block wait at different barriers: %s at %s:%d and %s at %s:%d", b.site.what,
                     b.site.file, b.site.line, site.what, site.file, site.line);
  }
  const unsigned w = self->thread / 32, bit = 1u << self->thread % 32;
  if (b.came[w] & bit) {
    nn_emulated_fail("a thread comes to barrier %u a second time before it is complete: %u of %u threads came, %s:%d",
                     number, b.arrived, threads, site.file, site.line);
  }
  b.came[w] |= bit;
  if (++b.arrived == (threads ? threads : m.live_threads)) {
    finish_barrier(b);
    m.begun_barriers--;
  } else if (waits) {
    wait_at(b, self, number, site);
  }
}

void nn_emulated_cluster_barrier(const nn_site &site) {
  if (++cluster_barrier.arrived == live_threads) {
    finish_barrier(cluster_barrier);
    return;
  }
  wait_at(cluster_barrier, current, 0, site);
}

void nn_emulated_yield(const nn_site &site) {
  fiber *self = current;
  warps[self->thread / 32].polling |= 1u << self->thread % 32;
  self->state = fiber::POLLS;
  self->mask_or_barrier = 0;
  self->site = &site;
  wait(self);
}

const nn_launch_record *nn_running() { return launch; }

void nn_emulated_waits_for_kernels() { waits_for_kernels++; }

std::string nn_running_where() {
  if (!launch) {
    return "";
  }
  char place[160];
  snprintf(place, sizeof place, ", block (%u, %u, %u) of (%u, %u, %u), thread (%u, %u, %u) of (%u, %u, %u)", blockIdx.x,
           blockIdx.y, blockIdx.z, gridDim.x, gridDim.y, gridDim.z, threadIdx.x, threadIdx.y, threadIdx.z, blockDim.x,
           blockDim.y, blockDim.z);
  return "kernel " + nn_symbol(launch->kernel) + place;
}

void nn_emulated_fail(const char *format, ...) {
  char text[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  nn_die(text);
}

void nn_run_grid(const nn_launch_record &record) {
  launch = &record;
  gridDim = record.grid;
  const dim3 b = record.block;
  if (block_threads != b.x * b.y * b.z || blockDim.x != b.x || blockDim.y != b.y || cluster_blocks != record.cluster) {
    block_threads = b.x * b.y * b.z;
    cluster_blocks = record.cluster;
    cluster_threads = cluster_blocks * block_threads;
    cluster_warps = (cluster_threads + 31) / 32;
    for (unsigned i = 0; i < cluster_threads; i++) {
      const unsigned thread = i % block_threads;
      fibers[i].thread = i;
      fibers[i].block = i / block_threads;
      fibers[i].index = {thread % b.x, thread / b.x % b.y, thread / b.x / b.y};
    }
  }
  blockDim = b;
  const uint64_t blocks = (uint64_t)record.grid.x * record.grid.y * record.grid.z;
  clusters = blocks / cluster_blocks;
  cluster_number = 0;
  waits_for_kernels = 0;
  order.begin(clusters);
  nn_shared_begin(record);
  idle_rounds = 0;
  /* A kernel computes in the default modes, whatever its caller has set. */
  fenv_t modes;
  fegetenv(&modes);
  fesetenv(FE_DFL_ENV);
  set_cluster(0);
  fiber *first = next_fiber();
  go_on_as(first);
  nn_context_switch(&host_context, begun(first));
  fesetenv(&modes);
  launch = nullptr;
  if (record.ahead && waits_for_kernels < blocks * block_threads) {
    nn_die("kernel " + nn_symbol(record.kernel) + " was started ahead, and " +
           std::to_string(blocks * block_threads - waits_for_kernels) +
           " of its threads end without waiting for the kernels before it");
  }
}
