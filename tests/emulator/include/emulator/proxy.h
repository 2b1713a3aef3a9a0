/*
 * What the copy engine and wgmma read of shared memory must be made known to them after it was written by other
 * instructions: by fence.proxy.async of the thread that wrote (PTX 9.7.13.4). Writes by cp.async and stmatrix are
 * remembered, 16 bytes at a time; ordinary stores cannot be seen.
 */
#ifndef NN_EMULATOR_PROXY_H
#define NN_EMULATOR_PROXY_H

#include "emulator/warp.h"
#include <map>
#include <stdint.h>
#include <vector>

struct nn_emulated_writes {
  /* Who wrote 16 bytes last, how many fences it had carried out by then, and by what; null: nobody who has to fence. */
  struct write {
    const char *by;
    unsigned thread;
    uint32_t fences;
  };
  std::vector<write> writes;  /* empty: none in this block */
  uint32_t fences[1024] = {}; /* of the cluster's threads */

  void note(uint32_t address, uint32_t bytes, const char *by) {
    if (writes.empty() && by) {
      writes.resize(nn_emulated_shared_size() / 16 + 1);
    }
    for (uint32_t i = address / 16; i < (address + bytes + 15) / 16 && i < writes.size(); i++) {
      writes[i] = {by, nn_emulated_thread(), fences[nn_emulated_thread()]};
    }
  }
  void read(uint32_t address, uint32_t bytes, const char *by) const {
    for (uint32_t i = address / 16; i < (address + bytes + 15) / 16 && i < writes.size(); i++) {
      const write &w = writes[i];
      if (w.by && fences[w.thread] == w.fences) {
        nn_emulated_fail("%s reads %#x, which thread %u wrote by %s without fence.proxy.async after it", by, 16 * i,
                         w.thread, w.by);
      }
    }
  }
};

/* To the shared memory of the running block, or of another one of its cluster. */
inline nn_emulated_writes &nn_emulated_writes_of_block(unsigned rank = nn_emulated_cluster_rank()) {
  static uint64_t cluster = ~(uint64_t)0;
  static std::map<unsigned, nn_emulated_writes> blocks;
  if (cluster != nn_emulated_cluster_serial()) {
    for (auto &block : blocks) {
      block.second.writes.clear();
    }
    cluster = nn_emulated_cluster_serial();
  }
  return blocks[rank];
}

#endif
