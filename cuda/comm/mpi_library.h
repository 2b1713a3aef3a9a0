/*
 * The MPI library of this process: found, opened and started late. Its names and values are those of MPI's standard ABI
 * (MPI 5.0, the chapter "Application Binary Interface"), so that no MPI header is needed to build and any library with
 * that ABI serves.
 */
#ifndef NN_COMM_MPI_LIBRARY_H
#define NN_COMM_MPI_LIBRARY_H

#include "interface.h"

#include <stdint.h>

typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Group *MPI_Group;
typedef struct MPI_ABI_Request *MPI_Request;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef int64_t MPI_Count;

typedef struct MPI_Status {
  int MPI_SOURCE, MPI_TAG, MPI_ERROR;
  int MPI_internal[5];
} MPI_Status;

#define MPI_COMM_WORLD ((MPI_Comm)0x101)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x143)
#define MPI_REQUEST_NULL ((MPI_Request)0x180)
#define MPI_BYTE ((MPI_Datatype)0x247)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)

enum {
  MPI_SUCCESS = 0,
  MPI_ERR_TRUNCATE = 15,
  MPI_ERR_IN_STATUS = 19,
  MPI_ANY_SOURCE = -1,
  MPI_THREAD_MULTIPLE = 4096,
  MPI_MAX_ERROR_STRING = 512,
  MPI_MAX_LIBRARY_VERSION_STRING = 8192
};

#define NN_MPI_FUNCTIONS(X)                                                                                            \
  X(Abi_get_version, (int *major, int *minor))                                                                         \
  X(Cancel, (MPI_Request * request))                                                                                   \
  X(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made))                                      \
  X(Comm_free, (MPI_Comm * comm))                                                                                      \
  X(Comm_group, (MPI_Comm comm, MPI_Group * group))                                                                    \
  X(Comm_idup, (MPI_Comm comm, MPI_Comm * made, MPI_Request * request))                                                \
  X(Comm_rank, (MPI_Comm comm, int *rank))                                                                             \
  X(Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler))                                                      \
  X(Comm_size, (MPI_Comm comm, int *size))                                                                             \
  X(Error_class, (int error, int *class))                                                                              \
  X(Error_string, (int error, char *text, int *length))                                                                \
  X(Finalize, (void))                                                                                                  \
  X(Finalized, (int *flag))                                                                                            \
  X(Get_count_c, (const MPI_Status *status, MPI_Datatype type, MPI_Count *count))                                      \
  X(Get_library_version, (char *text, int *length))                                                                    \
  X(Group_free, (MPI_Group * group))                                                                                   \
  X(Group_incl, (MPI_Group group, int n, const int *ranks, MPI_Group *made))                                           \
  X(Init_thread, (int *argc, char ***argv, int required, int *provided))                                               \
  X(Initialized, (int *flag))                                                                                          \
  X(Iprobe, (int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status))                                       \
  X(Irecv_c, (void *data, MPI_Count n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request))     \
  X(Isend_c, (const void *data, MPI_Count n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)) \
  X(Query_thread, (int *provided))                                                                                     \
  X(Recv_c, (void *data, MPI_Count n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status))        \
  X(Testsome, (int n, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses))

#define NN_MPI_MEMBER(name, arguments) int(*name) arguments;
typedef struct nn_mpi {
  NN_MPI_FUNCTIONS(NN_MPI_MEMBER)
} nn_mpi;
#undef NN_MPI_MEMBER

/* The library, in a process that a launcher started, with MPI begun; of all threads, once. UNSUPPORTED says what is
 * missing and how to get it, STATE that no launcher is there, PEER that ranks are not, after timeout_ms (0: never). */
int32_t nn_mpi_start(nncuda_ctx *ctx, int64_t timeout_ms, const nn_mpi **mpi);

/* Whether a launcher of MPI started this process. */
int32_t nn_mpi_launched(void);

/* A rank that ended without success and waits for the others to do so (leave in the .c), or -1. */
int64_t nn_mpi_left(void);

/* A communicator has failed: MPI is not to be ended in order, since that would wait for ranks that are lost. */
void nn_mpi_lose(void);

/* Messages of a failed communicator are under way still, in memory that is not ours for long: MPI is not called again.
 */
void nn_mpi_abandon(void);

/* Gives up the processor, the longer the more time has passed since `since`, on nn_clock: neither does a wait eat what
 * others compute with, nor does it last much longer than it must. */
void nn_mpi_pause(int64_t since);

#endif
