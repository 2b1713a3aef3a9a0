/* A set of addresses, each with a value: how a context knows its buffers and handles without touching foreign memory.
 */
#ifndef NN_RUNTIME_TABLE_H
#define NN_RUNTIME_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct nn_table_entry {
  const void *key; /* null: free place */
  void *value;
} nn_table_entry;

typedef struct nn_table {
  nn_table_entry *entries;
  size_t capacity; /* a power of two, or 0 */
  size_t count;
} nn_table;

/* Makes room for one more entry, so that the next put cannot fail. False when there is no memory. */
int32_t nn_table_reserve(nn_table *table);
void nn_table_put(nn_table *table, const void *key, void *value);
/* Null when there is no such key. */
void *nn_table_get(const nn_table *table, const void *key);
void nn_table_remove(nn_table *table, const void *key);
void nn_table_release(nn_table *table);

#endif
