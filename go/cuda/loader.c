#include "loader.h"

#include <dlfcn.h>
#include <stdio.h>

nn_functions nn_api;

static const char *const names[] = {
#define NN_NAME(name) #name,
    NN_FUNCTIONS(NN_NAME)
#undef NN_NAME
};

_Static_assert(sizeof(nn_functions) == sizeof names / sizeof names[0] * sizeof(void *), "a pointer a function");

int nn_load(const char *path, int32_t major, int32_t minor, int32_t *version, char *text, int64_t capacity) {
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
  if (*version / 1000 != major || *version % 1000 < minor) {
    dlclose(library);
    return NN_OTHER_VERSION;
  }
  void *found[sizeof names / sizeof names[0]];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    found[i] = dlsym(library, names[i]);
    if (found[i] == NULL) {
      snprintf(text, (size_t)capacity, "%s", names[i]);
      dlclose(library);
      return NN_INCOMPLETE;
    }
  }
  /* The pointers lie one behind the other, in the order of `names`: the struct has nothing else. */
  memcpy(&nn_api, found, sizeof nn_api);
  return NN_LOADED;
}
