/*
 * The tiles of C that gemm.c sums, by what the processor has for them: gemm_tile_amx.h or gemm_tile_vector.h. Both
 * give the same functions:
 *
 *   tiles_open, tiles_close   around a task
 *   pack_across               rows of A that lie across k, as tiles read them
 *   tile_reads, tile_units    whether a panel of A is read as it lies; how many of its units
 *   tile_sum                  one tile into memory, for a later block of k or because that is C itself
 *   tile_finish               the last sums of a tile, and from there to C, at once or in the background
 *   background_next, background_end, background_store, background_touches
 *                             work between the instructions of the tiles: the next panel of A is fetched or packed,
 *                             finished tiles are stored, and lines of C are fetched
 */
#ifndef NN_CPU_GEMM_TILE_H
#define NN_CPU_GEMM_TILE_H

#include "gemm_job.h"

/* The next panel of A: `rows` rows of k elements, `step` bytes apart, packed to `units`; the tiles that are
 * summed before it; whether it is to be read in place. */
typedef struct gemm_next {
  const char *a;
  int64_t step, rows, k, bytes, units, tiles;
  int32_t in_place;
} gemm_next;

#if NN_GEMM_TILES
#include "gemm_tile_amx.h"
#else
#include "gemm_tile_vector.h"
#endif

#endif
