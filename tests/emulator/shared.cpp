/*
 * Shared memory. Before each block it holds 0xff bytes: NaN, or -1.
 *
 * Static __shared__ variables are static variables of functions that have a mark (language.h); the symbol table tells
 * them. Which of them a kernel uses is learnt from its first blocks, so that not all need be filled for every block.
 */
#include "machine.h"

#include <map>
#include <set>
#include <sys/mman.h>
#include <vector>

namespace {

constexpr size_t CAPACITY = 256 << 10, GUARD = 64 << 10;
constexpr int BLOCKS_LOOKED_AT = 4;

struct variable {
  unsigned char *address;
  size_t bytes;
};
struct usage {
  std::vector<variable> variables;
  size_t bytes = 0;
  int looks = 0;
};

std::vector<variable> variables; /* of all kernels */
std::map<const void *, usage> usages;
usage *current;
unsigned char *ends[NN_CLUSTER_MOST], *blocks[NN_CLUSTER_MOST], *dynamic; /* by block of the cluster; that of one */
unsigned cluster;
size_t dynamic_bytes, slack;

/* The part of a local variable's name that names its function. */
std::string function_of(const std::string &name, size_t place) {
  while (place > 0 && name[place - 1] >= '0' && name[place - 1] <= '9') {
    place--;
  }
  return name.substr(0, place);
}

void find_variables(const void *kernel) {
  const std::string mark = "nn_shared_mark_";
  std::set<std::string> functions;
  nn_each_symbol(kernel, [&](const nn_symbol_entry &symbol) {
    const std::string name = symbol.name;
    const size_t place = symbol.writable ? name.find(mark) : std::string::npos;
    if (place != std::string::npos) {
      functions.insert(function_of(name, place));
    }
  });
  nn_each_symbol(kernel, [&](const nn_symbol_entry &symbol) {
    const std::string name = symbol.name;
    if (!symbol.writable || name.compare(0, 3, "_ZZ") || name.find(mark) != std::string::npos) {
      return;
    }
    /* After the function's name comes the length of the variable's. */
    for (size_t place = 3; place < name.size(); place++) {
      if (name[place] >= '0' && name[place] <= '9' && functions.count(name.substr(0, place))) {
        variables.push_back({symbol.address, symbol.bytes});
        memset(symbol.address, 0xff, symbol.bytes);
        return;
      }
    }
  });
}

bool is_filled(const variable &v) {
  for (size_t i = 0; i < v.bytes; i++) {
    if (v.address[i] != 0xff) {
      return false;
    }
  }
  return true;
}

} // namespace

void nn_shared_begin(const nn_launch_record &launch) {
  static bool found = false;
  if (!found) {
    found = true;
    find_variables(launch.kernel);
    for (unsigned char *&end : ends) {
      void *p = mmap(nullptr, CAPACITY + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED || mprotect((unsigned char *)p + GUARD, CAPACITY, PROT_READ | PROT_WRITE)) {
        nn_die("no memory for a block's shared memory");
      }
      end = (unsigned char *)p + GUARD + CAPACITY;
    }
  }
  current = &usages[launch.kernel];
  /* What a kernel before this one left, whose first blocks had returned too early to show it. */
  for (size_t i = 0; current->looks < BLOCKS_LOOKED_AT && i < variables.size(); i++) {
    memset(variables[i].address, 0xff, variables[i].bytes);
  }
  dynamic_bytes = launch.shared;
  slack = (1024 - dynamic_bytes % 1024) % 1024;
  cluster = launch.cluster;
  for (unsigned block = 0; block < cluster; block++) {
    blocks[block] = ends[block] - dynamic_bytes - slack;
  }
  dynamic = blocks[0];
}

void nn_shared_select(unsigned block) { dynamic = blocks[block]; }

void nn_shared_begin_blocks() {
  for (unsigned block = 0; dynamic_bytes && block < cluster; block++) {
    memset(blocks[block], 0xff, dynamic_bytes);
    memset(blocks[block] + dynamic_bytes, 0xa5, slack);
  }
}

void nn_shared_end_blocks() {
  for (unsigned block = 0; dynamic_bytes && block < cluster; block++) {
    for (size_t i = 0; i < slack; i++) {
      if (blocks[block][dynamic_bytes + i] != 0xa5) {
        nn_emulated_fail("wrote %zu bytes behind its %zu bytes of dynamic shared memory", i + 1, dynamic_bytes);
      }
    }
  }
  for (const variable &v : current->variables) {
    memset(v.address, 0xff, v.bytes);
  }
  if (current->looks >= BLOCKS_LOOKED_AT) {
    return;
  }
  current->looks++;
  for (const variable &v : variables) {
    if (!is_filled(v)) {
      if (cluster > 1) { /* the blocks would share them */
        nn_emulated_fail("uses static shared memory, of which the emulator has none for the blocks of a cluster");
      }
      current->variables.push_back(v);
      current->bytes += v.bytes;
      memset(v.address, 0xff, v.bytes);
    }
  }
  if (current->bytes > NN_SHARED_DEFAULT) {
    nn_emulated_fail("uses %zu bytes of static shared memory, more than %zu", current->bytes, NN_SHARED_DEFAULT);
  }
}

size_t nn_shared_static(const void *kernel) { return usages[kernel].bytes; }

unsigned char *nn_emulated_shared() { return dynamic; }
unsigned char *nn_emulated_shared_of(unsigned rank) { return blocks[rank]; }
size_t nn_emulated_shared_size() { return dynamic_bytes; }
