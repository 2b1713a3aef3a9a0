#define _GNU_SOURCE
#include "mpi_library.h"

#include "runtime/context.h"
#include "runtime/profile.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* MPI is begun and ended once in a process, so this is one of a process, too. */
static struct {
  pthread_mutex_t lock;
  nn_mpi mpi;
  void *library;
  char path[PATH_MAX];
  int32_t started;
  pid_t process; /* that began MPI here; its forked children must not end it */
  pthread_t keeper;
  sem_t end;                             /* of MPI, for the keeper */
  int error;                             /* of MPI_Init_thread */
  _Atomic int32_t begun;                 /* it has returned */
  _Atomic int32_t lost, abandoned, left; /* of this process: what `leave` asks */
} job = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- finding it ---- */

static const char *const names[] = {"libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so"};

/* One of the names in a folder, or, without one, wherever the loader looks. */
static void *open_in(const char *folder) {
  void *library = NULL;
  for (size_t i = 0; library == NULL && i < sizeof names / sizeof *names; i++) {
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s%s%s", folder, *folder == '\0' ? "" : "/", names[i]);
    library = length < (int)sizeof path ? dlopen(path, RTLD_NOW) : NULL;
  }
  return library;
}

/* ../lib beside the mpiexec that PATH finds first. */
static void *open_beside_launcher(void) {
  const char *folders = getenv("PATH");
  while (folders != NULL && *folders != '\0') {
    const int length = (int)strcspn(folders, ":");
    char path[PATH_MAX], real[PATH_MAX];
    if (length > 0 && snprintf(path, sizeof path, "%.*s/mpiexec", length, folders) < (int)sizeof path &&
        access(path, X_OK) == 0 && realpath(path, real) != NULL) {
      *strrchr(real, '/') = '\0';
      const int fits = snprintf(path, sizeof path, "%s/../lib", real) < (int)sizeof path;
      return fits ? open_in(path) : NULL;
    }
    folders += length + (folders[length] == ':');
  }
  return NULL;
}

/* lib/ of the Python environment whose lib/pythonX.Y/site-packages/nncuda holds this library. */
static void *open_in_environment(void) {
  Dl_info own;
  char path[PATH_MAX], folder[PATH_MAX];
  if (dladdr(&job, &own) == 0 || realpath(own.dli_fname, path) == NULL) {
    return NULL;
  }
  *strrchr(path, '/') = '\0';
  return snprintf(folder, sizeof folder, "%s/../../..", path) < (int)sizeof folder ? open_in(folder) : NULL;
}

static int32_t find(nncuda_ctx *ctx, void **found) {
  const char *chosen = getenv("NNCUDA_MPI");
  if (chosen != NULL && *chosen != '\0') {
    *found = dlopen(chosen, RTLD_NOW);
    return *found != NULL ? NNCUDA_SUCCESS
                          : nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "NNCUDA_MPI names no MPI library: %s", dlerror());
  }
  *found = open_in("");
  *found = *found != NULL ? *found : open_beside_launcher();
  *found = *found != NULL ? *found : open_in_environment();
  return *found != NULL
             ? NNCUDA_SUCCESS
             : nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED,
                       "there is no MPI library with the standard ABI: NNCUDA_MPI is not set, and %s is neither on the "
                       "loader's path, nor in ../lib beside the mpiexec of PATH, nor in this library's environment; "
                       "`pip install mpich` brings it",
                       names[0]);
}

static int32_t load(nncuda_ctx *ctx) {
  void *library;
  const int32_t status = find(ctx, &library);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  nn_mpi mpi;
  const char *missing = NULL;
#define NN_MPI_LOAD(name, arguments)                                                                                   \
  *(void **)&mpi.name = dlsym(library, "MPI_" #name);                                                                  \
  missing = mpi.name == NULL ? "MPI_" #name : missing;
  NN_MPI_FUNCTIONS(NN_MPI_LOAD)
#undef NN_MPI_LOAD
  Dl_info place = {.dli_fname = "the MPI library"};
  if (mpi.Get_library_version != NULL) {
    dladdr(*(void **)&mpi.Get_library_version, &place);
  }
  int major = 0, minor = 0;
  int32_t failed = NNCUDA_SUCCESS;
  if (missing != NULL) {
    failed = nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "%s lacks %s: it is no MPI library with the standard ABI",
                     place.dli_fname, missing);
  } else if (mpi.Abi_get_version(&major, &minor) != MPI_SUCCESS || major != 1) {
    failed = nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "%s has version %d of MPI's standard ABI; it must be 1",
                     place.dli_fname, major);
  }
  if (failed != NNCUDA_SUCCESS) {
    dlclose(library);
    return failed;
  }
  job.mpi = mpi;
  job.library = library;
  if (realpath(place.dli_fname, job.path) == NULL) {
    snprintf(job.path, sizeof job.path, "%s", place.dli_fname);
  }
  return NNCUDA_SUCCESS;
}

/* ---- beginning ---- */

static int32_t no_launcher(nncuda_ctx *ctx) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "", name[32] = "", number[32] = "";
  int length = 0;
  job.mpi.Get_library_version(version, &length); /* "MPICH Version:      5.0.2\n...", "Open MPI v6.0.0, ..." */
  if (sscanf(version, "%31s Version: %31s", name, number) < 2) {
    snprintf(name, sizeof name, "%.*s", (int)strcspn(version, "\n,"), version);
  }
  return nn_fail(ctx, NNCUDA_ERROR_STATE,
                 "no MPI launcher started this process, such as `mpiexec -n 4 COMMAND`: it has none of PMI_RANK, "
                 "PMIX_RANK and OMPI_COMM_WORLD_RANK in its environment; the library is %s, %s%s%s",
                 job.path, name, number[0] == '\0' ? "" : " ", number);
}

int32_t nn_mpi_launched(void) {
  return getenv("PMI_RANK") != NULL || getenv("PMIX_RANK") != NULL || getenv("OMPI_COMM_WORLD_RANK") != NULL;
}

/* A launcher and a library that do not know each other: every process is alone. */
static int32_t check_size(nncuda_ctx *ctx) {
  const char *const said = getenv("PMI_SIZE") != NULL ? getenv("PMI_SIZE") : getenv("OMPI_COMM_WORLD_SIZE");
  int size = 0;
  job.mpi.Comm_size(MPI_COMM_WORLD, &size);
  return said == NULL || atoi(said) == size
             ? NNCUDA_SUCCESS
             : nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED,
                       "the launcher started %s ranks, and %s knows %d: it belongs to another launcher", said, job.path,
                       size);
}

enum { TAG_GOODBYE = 29517, PATIENCE = 5 /* seconds */ };

/*
 * Says goodbye to all ranks and waits for them to do so, but not for long. A launcher kills the others when one leaves;
 * so each of them gets the time to say why it failed.
 */
static void say_goodbye(void) {
  const int64_t begin = nn_clock(), longest = PATIENCE * INT64_C(1000000000);
  const nn_mpi *mpi = &job.mpi;
  int rank = 0, size = 1;
  mpi->Comm_rank(MPI_COMM_WORLD, &rank);
  mpi->Comm_size(MPI_COMM_WORLD, &size);
  const size_t most = 2 * (size_t)size;
  MPI_Request *requests = malloc(most * sizeof(MPI_Request));
  int *indices = malloc(most * sizeof(int)), count = 0, done = 0;
  for (int peer = 0; requests != NULL && indices != NULL && peer < size; peer++) {
    if (peer != rank) {
      static char nothing;
      requests[count] = requests[count + 1] = MPI_REQUEST_NULL;
      mpi->Irecv_c(&nothing, 0, MPI_BYTE, peer, TAG_GOODBYE, MPI_COMM_WORLD, &requests[count]);
      mpi->Isend_c(&nothing, 0, MPI_BYTE, peer, TAG_GOODBYE, MPI_COMM_WORLD, &requests[count + 1]);
      count += 2;
    }
  }
  for (int left = count; left > 0 && nn_clock() - begin < longest; left -= done > 0 ? done : 0) {
    if (mpi->Testsome(count, requests, &done, indices, MPI_STATUSES_IGNORE) != MPI_SUCCESS || done < 0) {
      break;
    }
    nn_mpi_pause(begin);
  }
  free(requests); /* what is left in them ends with the process */
  free(indices);
}

int64_t nn_mpi_left(void) {
  MPI_Status from;
  int there = 0;
  const int error = job.mpi.Iprobe(MPI_ANY_SOURCE, TAG_GOODBYE, MPI_COMM_WORLD, &there, &from);
  return error == MPI_SUCCESS && there ? from.MPI_SOURCE : -1;
}

/* When the process exits. MPI ends in order only where that waits for nobody who is lost. */
static void leave(int status, void *nothing) {
  (void)nothing;
  int ended = 0;
  if (getpid() != job.process || job.left) {
    return;
  }
  job.left = 1;
  if (job.abandoned) {
    sleep(PATIENCE);
    return;
  }
  if (job.mpi.Finalized(&ended) != MPI_SUCCESS || ended) {
    return;
  }
  if (status == 0 && !job.lost) {
    sem_post(&job.end);
    pthread_join(job.keeper, NULL);
  } else {
    say_goodbye();
  }
}

/* This library stays in the process to its end, whoever closes it, since `leave` is called then. */
static void stay(void) {
  Dl_info own;
  if (dladdr(&job, &own) != 0) {
    dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

/* The thread that begins MPI and, as MPI wants it, ends it. To begin is to wait for all ranks, without an end if one of
 * them never comes; so nobody else is to do it. */
static void *host_mpi(void *nothing) {
  int threads;
  job.error = job.mpi.Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &threads);
  if (job.error == MPI_SUCCESS) {
    on_exit(leave, NULL); /* so it runs before what MPI itself has registered */
  }
  job.begun = 1;
  while (sem_wait(&job.end) != 0 && errno == EINTR) {
  }
  job.mpi.Finalize();
  return nothing;
}

static int32_t start_keeper(nncuda_ctx *ctx) {
  sigset_t all, old; /* signals are the program's around us */
  sem_init(&job.end, 0, 0);
  stay();
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const int error = pthread_create(&job.keeper, NULL, host_mpi, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (error != 0) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no thread for MPI: %s", strerror(error));
  }
  job.process = getpid();
  return NNCUDA_SUCCESS;
}

static int32_t begin_here(nncuda_ctx *ctx, int64_t timeout_ms) {
  const int64_t since = nn_clock();
  const int32_t status = job.process == 0 ? start_keeper(ctx) : NNCUDA_SUCCESS;
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  while (!job.begun) {
    if (timeout_ms > 0 && (nn_clock() - since) / 1000000 >= timeout_ms) {
      job.abandoned = 1;
      on_exit(leave, NULL); /* the others began a little later, and want to say this, too */
      return nn_fail(ctx, NNCUDA_ERROR_PEER, "not all ranks joined within %g s", (double)timeout_ms / 1000);
    }
    nn_mpi_pause(since);
  }
  job.abandoned = 0;
  if (job.error != MPI_SUCCESS) {
    return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "MPI_Init_thread of %s failed with error %d", job.path, job.error);
  }
  job.mpi.Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return NNCUDA_SUCCESS;
}

static int32_t begin(nncuda_ctx *ctx, int64_t timeout_ms) {
  int begun = 0, ended = 0, threads = 0;
  job.mpi.Finalized(&ended);
  if (ended) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "MPI has ended in this process");
  }
  job.mpi.Initialized(&begun);
  if (job.process != 0 || !begun) { /* else by the program around us, which ends it, too */
    const int32_t status = nn_mpi_launched() ? begin_here(ctx, timeout_ms) : no_launcher(ctx);
    if (status != NNCUDA_SUCCESS) {
      return status;
    }
  }
  job.mpi.Query_thread(&threads);
  if (threads < MPI_THREAD_MULTIPLE) {
    return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED,
                   "%s lets no more than one thread call it at a time; MPI_THREAD_MULTIPLE is needed", job.path);
  }
  return check_size(ctx);
}

int32_t nn_mpi_start(nncuda_ctx *ctx, int64_t timeout_ms, const nn_mpi **mpi) {
  pthread_mutex_lock(&job.lock);
  int32_t status = job.library != NULL ? NNCUDA_SUCCESS : load(ctx);
  if (status == NNCUDA_SUCCESS && !job.started) {
    status = begin(ctx, timeout_ms);
    job.started = status == NNCUDA_SUCCESS;
  }
  pthread_mutex_unlock(&job.lock);
  *mpi = &job.mpi;
  return status;
}

void nn_mpi_lose(void) { job.lost = 1; }

void nn_mpi_abandon(void) { job.abandoned = 1; }

void nn_mpi_pause(int64_t since) {
  enum { SHORT = 200 * 1000, LONGEST = 1000 * 1000 }; /* nanoseconds */
  const int64_t waited = nn_clock() - since;
  if (waited < SHORT) {
    sched_yield();
    return;
  }
  const int64_t sleep = waited / 16 < LONGEST ? waited / 16 : LONGEST;
  nanosleep(&(struct timespec){.tv_nsec = sleep}, NULL);
}
