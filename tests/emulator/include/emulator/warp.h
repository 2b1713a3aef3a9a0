/*
 * What the threads of an emulated warp and block exchange. Shuffles, ballots, tensor-core instructions and barriers
 * are all written on these few functions.
 *
 * Every CUDA thread is a fiber. It runs alone until it calls one of the functions below, ends, or waits in one of them.
 */
#ifndef NN_EMULATOR_WARP_H
#define NN_EMULATOR_WARP_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

/* Where in a kernel's source a thread waits, for reports. A default argument: filled in at the outermost call. */
struct nn_site {
  const char *file;
  int line;
  const char *what;
  static constexpr nn_site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line, nullptr};
  }
  constexpr nn_site in(const char *instruction) const { return {file, line, what ? what : instruction}; }
};

/* Of the calling thread: its place in the block (x fastest; in a cluster the threads of the blocks before it count),
 * in its warp, and its warp in the block. */
extern unsigned nn_emulated_thread_number;
inline unsigned nn_emulated_thread() { return nn_emulated_thread_number; }
inline unsigned nn_emulated_lane() { return nn_emulated_thread() % 32; }
inline unsigned nn_emulated_warp() { return nn_emulated_thread() / 32; }

/* Differs from cluster to cluster (of one block, where a kernel has none) and from launch to launch, so that the state
 * of one is distinguished from another's. */
uint64_t nn_emulated_cluster_serial();
/* The calling thread's block in its cluster, and how many there are. */
unsigned nn_emulated_cluster_rank();
unsigned nn_emulated_cluster_size();
/* Whether a thread of that block has not ended. */
bool nn_emulated_block_lives(unsigned rank);

/* The dynamic shared memory of the block, 1024-byte aligned, and its size. Static __shared__ variables lie elsewhere.
 */
unsigned char *nn_emulated_shared();
size_t nn_emulated_shared_size();
/* That of another block of the cluster. */
unsigned char *nn_emulated_shared_of(unsigned rank);

/* The untyped gather; `bytes` may be 0 (then it is __syncwarp).  The array has `bytes` bytes a lane. */
const void *nn_emulated_exchange(unsigned mask, const void *value, size_t bytes, const nn_site &site);

/* Waits for all threads of `mask` that have not ended (as every *_sync instruction does), and gives each the values of
 * all. The caller must be in the mask, and all must call with the same mask, type and instruction, or the process ends
 * with a report. The array of 32 stays valid until the caller's next exchange; entries of lanes outside the mask are
 * undefined, those of ended threads are 0xff bytes. */
template <class T> const T *nn_emulated_gather(unsigned mask, const T &value, nn_site site = nn_site::here()) {
  static_assert(std::is_trivially_copyable<T>::value, "values are copied between threads as bytes");
  static_assert(alignof(T) <= 64, "the array is 64-byte aligned");
  return static_cast<const T *>(nn_emulated_exchange(mask, &value, sizeof(T), site));
}

/* A barrier of the block (0 to 15): waits until `threads` threads (0: all that have not ended) have come to it, or, not
 * `waits`, only comes. __syncthreads is barrier 0. */
void nn_emulated_barrier(unsigned barrier, unsigned threads, const nn_site &site = nn_site::here(), bool waits = true);
/* Waits until all threads of the cluster that have not ended have come to it. */
void nn_emulated_cluster_barrier(const nn_site &site = nn_site::here());

/* Lets the other threads of the block run before this one continues; for instructions that poll (mbarrier.try_wait).
 * When nothing but such polling has happened for long, the block is reported as stuck. */
void nn_emulated_yield(const nn_site &site = nn_site::here());

/* Ends the process, saying in which kernel, block and thread, for what cannot be carried out (printf's format). */
[[noreturn]] void nn_emulated_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What cudaGetDriverEntryPoint finds: a name and the function's address. Registered at start-up:
 *   static const nn_emulated_entry_point encode("cuTensorMapEncodeTiled", (void *)tensor_map_encode_tiled);  */
struct nn_emulated_entry_point {
  const char *name;
  void *function;
  const nn_emulated_entry_point *next;
  static const nn_emulated_entry_point *first;
  nn_emulated_entry_point(const char *its_name, void *address) : name(its_name), function(address), next(first) {
    first = this;
  }
};

#endif
