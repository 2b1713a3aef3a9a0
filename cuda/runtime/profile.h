/* Time, bytes and operations of each call while the profiler runs (nn_profile, context.h). */
#ifndef NN_RUNTIME_PROFILE_H
#define NN_RUNTIME_PROFILE_H

#include "context.h"
#include "record.h"

int64_t nn_clock(void); /* nanoseconds */
void nn_profile_add(nncuda_ctx *ctx, const nn_record *record, int64_t begin, int64_t end);
int32_t nn_profile_stop(nncuda_ctx *ctx);     /* the stamps of the calls become times */
void nn_profile_release(nn_profile *profile); /* not while it runs */

#endif
