#include "loader.h"

#include <dlfcn.h>
#include <stdio.h>

nn_functions nn_api;

static const char *const names[] = {
#define NN_NAME(name) #name,
    NN_FUNCTIONS(NN_NAME)
#undef NN_NAME
};

/* The pointers lie one behind the other, in the order of `names`: the struct has nothing else. */
static void **pointers(void) { return (void **)&nn_api; }

int nn_load(const char *path, int32_t *version, char *text, int64_t capacity) {
  _Static_assert(sizeof(nn_functions) == sizeof names / sizeof names[0] * sizeof(void *), "a pointer a function");
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char *why = dlerror();
    snprintf(text, (size_t)capacity, "%s", why != NULL ? why : "it cannot be opened");
    return NN_NOT_OPENED;
  }
  int32_t (*abi_version)(void) = NULL;
  *(void **)&abi_version = dlsym(library, "nncuda_abi_version");
  if (abi_version == NULL) {
    dlclose(library);
    return NN_NOT_NNCUDA;
  }
  *version = abi_version();
  if (*version / 1000 != NNCUDA_ABI_MAJOR || *version % 1000 < NNCUDA_ABI_MINOR) {
    dlclose(library);
    return NN_OTHER_VERSION;
  }
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    pointers()[i] = dlsym(library, names[i]);
    if (pointers()[i] == NULL) {
      snprintf(text, (size_t)capacity, "%s", names[i]);
      dlclose(library);
      return NN_INCOMPLETE;
    }
  }
  return NN_LOADED;
}
