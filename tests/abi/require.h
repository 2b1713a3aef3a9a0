/*
 * What the test programs of this folder hold to be so: the first that is not ends the program.
 */
#ifndef NN_TESTS_ABI_REQUIRE_H
#define NN_TESTS_ABI_REQUIRE_H

#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(condition)                                                                                             \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition);                                            \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

#endif
