/*
 * A stand-in for libnccl.so.2, for ranks that are processes with an emulated GPU each: NNCUDA_NCCL names the emulated
 * library itself. It has the functions that cuda/comm/nccl.c calls. A message is a file in a folder that the id names:
 * who sends writes it, who receives asks for it until it is there. As NCCL does, it starts and ends in the background,
 * queues what it is given on the stream, and notices no peer that is gone.
 */
#include "machine.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

enum result { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };

struct unique_id {
  char internal[128];
};

} // namespace

struct ncclComm {
  std::string folder;
  int rank, ranks;
  bool begun, finalized, aborted;         /* all ranks were there; no more comes; operations end */
  std::map<int, uint64_t> sent, received; /* messages, by peer */
};

namespace {

struct message {
  const void *from; /* of a send, else null */
  void *to;
  size_t bytes;
  int peer;
};

/* What a thread gave between ncclGroupStart and ncclGroupEnd, all of one communicator. */
struct group {
  int depth;
  std::shared_ptr<ncclComm> comm;
  cudaStream_t stream;
  std::vector<message> messages;
};
thread_local group open_group;
thread_local std::string last_error;

std::map<ncclComm *, std::shared_ptr<ncclComm>> comms; /* work may outlive their handles */

result fail(result what, const std::string &text) {
  last_error = text;
  return what;
}

std::string name_of(const ncclComm &comm, int from, int to, uint64_t number) {
  return comm.folder + "/" + std::to_string(from) + "-" + std::to_string(to) + "-" + std::to_string(number);
}

bool write_file(const std::string &name, const void *data, size_t bytes) {
  const std::string draft = name + ".part";
  FILE *file = fopen(draft.c_str(), "wb");
  const bool written = file && fwrite(data, 1, bytes, file) == bytes;
  return file && fclose(file) == 0 && written && rename(draft.c_str(), name.c_str()) == 0;
}

void transmit(ncclComm &comm, const message &m) {
  const nn_memory_open opened(-1);
  if (!write_file(name_of(comm, comm.rank, m.peer, comm.sent[m.peer]++), m.from, m.bytes) && !comm.aborted) {
    nn_die("the stand-in for NCCL cannot write to " + comm.folder);
  }
}

/* Whether it was there. */
bool take(ncclComm &comm, const message &m) {
  const std::string name = name_of(comm, m.peer, comm.rank, comm.received[m.peer]);
  struct stat found;
  if (stat(name.c_str(), &found) != 0) {
    return false;
  }
  const nn_memory_open opened(-1);
  FILE *file = fopen(name.c_str(), "rb");
  if (!file || (size_t)found.st_size != m.bytes || fread(m.to, 1, m.bytes, file) != m.bytes) {
    nn_die("rank " + std::to_string(m.peer) + " sends " + std::to_string(found.st_size) + " bytes where " +
           std::to_string(m.bytes) + " are received: with NCCL that has no defined result");
  }
  fclose(file);
  unlink(name.c_str());
  comm.received[m.peer]++;
  return true;
}

/* The messages of a group, on a stream; again and again where it is part of a graph. */
struct exchange {
  std::shared_ptr<ncclComm> comm;
  std::vector<message> messages;
  std::vector<bool> done;

  bool operator()() {
    const bool begins = done.empty();
    std::set<int> late; /* peers whose next message is not there yet */
    done.resize(messages.size());
    for (size_t i = 0; i < messages.size() && !comm->aborted; i++) {
      const message &m = messages[i];
      if (m.from && begins) {
        transmit(*comm, m);
        done[i] = true;
      } else if (!done[i] && !late.count(m.peer)) {
        done[i] = take(*comm, m);
      }
      if (!done[i]) {
        late.insert(m.peer);
      }
    }
    if (late.empty()) {
      done.clear();
    }
    return late.empty();
  }
};

result add(const message &m, int dtype, ncclComm *comm, cudaStream_t stream) {
  NN_LOCKED;
  if (!comms.count(comm) || dtype != 0 || m.peer < 0 || m.peer >= comm->ranks || m.peer == comm->rank) {
    return fail(INVALID_ARGUMENT, "a message of no communicator, to no peer, or not of bytes");
  }
  group &g = open_group;
  if (g.depth == 0 || (g.comm && (g.comm.get() != comm || g.stream != stream))) {
    return fail(INVALID_USAGE, "the stand-in takes messages of one communicator and stream, in a group");
  }
  const void *device = m.from ? m.from : m.to;
  if (!nn_memory_valid(device, m.bytes)) {
    return fail(INVALID_ARGUMENT, "a message is not in device memory");
  }
  g.comm = comms[comm];
  g.stream = stream;
  g.messages.push_back(m);
  return SUCCESS;
}

std::string joined(const ncclComm &comm, int rank) { return comm.folder + "/joined-" + std::to_string(rank); }

/* By work of a stream, or by a graph: as long as that is so, NCCL destroys no communicator (from 2.26 on). */
bool in_use(ncclComm *comm) {
  nn_carry_on(); /* which no GPU has to be asked for */
  return comms[comm].use_count() > 1;
}

void forget(ncclComm *comm) {
  unlink(joined(*comm, comm->rank).c_str());
  rmdir(comm->folder.c_str()); /* fails but for the last rank */
  comms.erase(comm);
}

} // namespace

#define NN_EXPORT extern "C" __attribute__((visibility("default")))

NN_EXPORT int ncclGetVersion(int *version) {
  *version = 23000;
  return SUCCESS;
}

NN_EXPORT const char *ncclGetErrorString(int what) {
  return what == SUCCESS            ? "no error"
         : what == SYSTEM_ERROR     ? "unhandled system error"
         : what == INVALID_ARGUMENT ? "invalid argument"
         : what == INVALID_USAGE    ? "invalid usage"
                                    : "operation in progress";
}

NN_EXPORT const char *ncclGetLastError(ncclComm *) { return last_error.c_str(); }

NN_EXPORT int ncclGetUniqueId(unique_id *id) {
  const char *base = getenv("TMPDIR");
  std::string folder = std::string(base && *base ? base : "/tmp") + "/nccl-XXXXXX";
  if (folder.size() >= sizeof id->internal || !mkdtemp(&folder[0])) {
    return fail(SYSTEM_ERROR, "no folder " + folder);
  }
  memset(id, 0, sizeof *id);
  memcpy(id->internal, folder.c_str(), folder.size());
  return SUCCESS;
}

struct configuration {
  size_t size;
  unsigned magic, version;
  int blocking;
};

NN_EXPORT int ncclCommInitRankConfig(ncclComm **comm, int ranks, unique_id id, int rank, const configuration *config) {
  NN_LOCKED;
  if (config->magic != 0xcafebeef || config->blocking != 0 || rank < 0 || rank >= ranks) {
    return fail(INVALID_ARGUMENT, "not a configuration, or no such rank");
  }
  const auto made = std::make_shared<ncclComm>(ncclComm{id.internal, rank, ranks, false, false, false, {}, {}});
  if (!write_file(joined(*made, rank), "", 0)) {
    return fail(SYSTEM_ERROR, "no folder " + made->folder);
  }
  comms[made.get()] = made;
  *comm = made.get();
  return IN_PROGRESS;
}

NN_EXPORT int ncclCommGetAsyncError(ncclComm *comm, int *state) {
  NN_LOCKED;
  if (!comms.count(comm)) {
    return fail(INVALID_ARGUMENT, "no communicator");
  }
  bool all = true;
  for (int rank = 0; rank < comm->ranks && !comm->begun; rank++) {
    all &= access(joined(*comm, rank).c_str(), F_OK) == 0;
  }
  comm->begun |= all;
  *state = !comm->begun || (comm->finalized && in_use(comm)) ? IN_PROGRESS : SUCCESS;
  return SUCCESS;
}

NN_EXPORT int ncclCommFinalize(ncclComm *comm) {
  NN_LOCKED;
  comm->finalized = true;
  return IN_PROGRESS;
}

NN_EXPORT int ncclCommDestroy(ncclComm *comm) {
  NN_LOCKED;
  forget(comm);
  return SUCCESS;
}

NN_EXPORT int ncclCommAbort(ncclComm *comm) {
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    NN_LOCKED;
    comm->aborted = true;
    if (!in_use(comm)) {
      forget(comm);
      return SUCCESS;
    }
  }
}

NN_EXPORT int ncclGroupStart() {
  open_group.depth++;
  return SUCCESS;
}

NN_EXPORT int ncclGroupEnd() {
  NN_LOCKED;
  group &g = open_group;
  if (--g.depth > 0 || g.messages.empty()) {
    return SUCCESS;
  }
  const cudaError_t error = nn_submit_patient(g.stream, exchange{g.comm, g.messages, {}});
  g = {};
  return error == cudaSuccess ? SUCCESS : fail(INVALID_USAGE, cudaGetErrorString(error));
}

NN_EXPORT int ncclSend(const void *data, size_t count, int dtype, int peer, ncclComm *comm, cudaStream_t stream) {
  return add({data, nullptr, count, peer}, dtype, comm, stream);
}

NN_EXPORT int ncclRecv(void *data, size_t count, int dtype, int peer, ncclComm *comm, cudaStream_t stream) {
  return add({nullptr, data, count, peer}, dtype, comm, stream);
}
