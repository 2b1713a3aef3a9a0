/* Reports: the end of the process with a sentence, and what a crash was about. */
#include "machine.h"

#include <csignal>
#include <cstdio>
#include <ucontext.h>
#include <unistd.h>

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
