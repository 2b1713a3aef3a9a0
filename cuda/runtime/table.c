#include "table.h"

#include <stdlib.h>

/* Linear probing; removal moves later entries back, so there are no tombstones. */
static size_t home(const nn_table *table, const void *key) {
  const uint64_t mixed = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u; /* Knuth's multiplicative hash */
  return (size_t)(mixed >> 20) & (table->capacity - 1);
}

static size_t find(const nn_table *table, const void *key) {
  size_t i = home(table, key);
  while (table->entries[i].key != NULL && table->entries[i].key != key) {
    i = (i + 1) & (table->capacity - 1);
  }
  return i;
}

int32_t nn_table_reserve(nn_table *table) {
  if (2 * (table->count + 1) <= table->capacity) {
    return 1;
  }
  nn_table larger = {.capacity = table->capacity == 0 ? 16 : 2 * table->capacity, .count = table->count};
  larger.entries = calloc(larger.capacity, sizeof *larger.entries);
  if (larger.entries == NULL) {
    return 0;
  }
  for (size_t i = 0; i < table->capacity; i++) {
    if (table->entries[i].key != NULL) {
      larger.entries[find(&larger, table->entries[i].key)] = table->entries[i];
    }
  }
  free(table->entries);
  *table = larger;
  return 1;
}

void nn_table_put(nn_table *table, const void *key, void *value) {
  table->entries[find(table, key)] = (nn_table_entry){key, value};
  table->count++;
}

void *nn_table_get(const nn_table *table, const void *key) {
  return table->capacity == 0 || key == NULL ? NULL : table->entries[find(table, key)].value;
}

void nn_table_remove(nn_table *table, const void *key) {
  const size_t mask = table->capacity - 1;
  size_t hole = find(table, key);
  for (size_t i = (hole + 1) & mask; table->entries[i].key != NULL; i = (i + 1) & mask) {
    /* The entry may fill the hole unless its home lies after the hole. */
    if (((i - home(table, table->entries[i].key)) & mask) >= ((i - hole) & mask)) {
      table->entries[hole] = table->entries[i];
      hole = i;
    }
  }
  table->entries[hole] = (nn_table_entry){NULL, NULL};
  table->count--;
}

void nn_table_release(nn_table *table) {
  free(table->entries);
  *table = (nn_table){NULL, 0, 0};
}
