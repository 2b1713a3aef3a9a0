/* Reports: names of functions out of this library's own symbol table, and what a crash was about. */
#include "machine.h"

#include <csignal>
#include <cstdio>
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

/* The dynamic linker knows exported names only, and ours are hidden: they stand in the file's symbol table. */
std::string nn_symbol(const void *address) {
  Dl_info info;
  if (!dladdr(address, &info) || !info.dli_fname) {
    return "?";
  }
  char unknown[32];
  const uintptr_t offset = (uintptr_t)address - (uintptr_t)info.dli_fbase;
  snprintf(unknown, sizeof unknown, "at offset 0x%zx", (size_t)offset);
  std::string name = unknown;
  const int file = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (file < 0 || fstat(file, &status)) {
    return name;
  }
  const size_t size = (size_t)status.st_size;
  const unsigned char *image = (const unsigned char *)mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (image == MAP_FAILED) {
    return name;
  }
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + header->e_shoff);
  /* A program that is not position-independent has addresses in its table, all others offsets. */
  const uintptr_t wanted = header->e_type == ET_EXEC ? (uintptr_t)address : offset;
  for (unsigned i = 0; header->e_shoff && i < header->e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB) {
      continue;
    }
    const Elf64_Sym *symbols = (const Elf64_Sym *)(image + sections[i].sh_offset);
    const char *names = (const char *)(image + sections[sections[i].sh_link].sh_offset);
    for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++) {
      if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC && wanted >= symbols[s].st_value &&
          wanted < symbols[s].st_value + symbols[s].st_size) {
        int status_of_name;
        char *plain = abi::__cxa_demangle(names + symbols[s].st_name, nullptr, nullptr, &status_of_name);
        name = plain ? plain : names + symbols[s].st_name;
        free(plain);
      }
    }
  }
  munmap((void *)image, size);
  return name;
}

static void say(const std::string &text) {
  const std::string line = "nncuda emulator: " + text + "\n";
  fflush(stdout);
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (written <= 0) {
      return;
    }
    done += (size_t)written;
  }
}

void nn_die(const std::string &text) {
  const std::string where = nn_running_where();
  say((where.empty() ? "" : where + ": ") + text);
  abort();
}

static struct sigaction previous_segv, previous_ill, previous_bus;

/* Says what the crash was about, then lets it happen as if nobody had listened. Not a place for careful signal safety:
 * the process ends, and a report that fails leaves it as dead as none. */
static void report_fault(int signal, siginfo_t *info, void *context) {
  const struct sigaction *previous = signal == SIGSEGV  ? &previous_segv
                                     : signal == SIGILL ? &previous_ill
                                                        : &previous_bus;
  static volatile sig_atomic_t entered = 0;
  const void *code = nullptr;
#if defined(__x86_64__)
  code = (const void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
  (void)context;
#endif
  if (!entered++) {
    const std::string where = nn_running_where();
    const std::string in = code ? " in " + nn_symbol(code) : "";
    const bool device = signal != SIGILL && nn_memory_device(info->si_addr) >= 0;
    if (device) {
      say((where.empty() ? "host code touches device memory" : where + ": touches what it must not") + in + ": " +
          nn_memory_describe(info->si_addr));
    } else if (signal != SIGILL && nn_stack_overflowed(info->si_addr)) {
      say(where + ": a thread's stack is full" + in);
    } else if (!where.empty()) {
      char address[64];
      snprintf(address, sizeof address, "touches address %p", info->si_addr);
      say(where + ": " +
          (signal == SIGILL ? "a misaligned access, an index out of bounds or other undefined behaviour" : address) +
          in);
    }
  }
  sigaction(signal, previous, nullptr);
}

void nn_watch_faults() {
  /* A stack of its own in every thread that launches: that of a fiber may be what is full. */
  static thread_local bool has_stack = false;
  if (!has_stack) {
    has_stack = true;
    stack_t stack = {};
    stack.ss_size = 256 << 10;
    stack.ss_sp = malloc(stack.ss_size);
    sigaltstack(&stack, nullptr);
  }
  static bool watching = false;
  if (watching) {
    return;
  }
  watching = true;
  struct sigaction action = {};
  action.sa_sigaction = report_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGILL, &action, &previous_ill);
  sigaction(SIGBUS, &action, &previous_bus);
}
