/* Stacks and the switch between them. */
#include "machine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <vector>

namespace {

enum : size_t { STACK_BYTES = 256 << 10, STACKS_AT_ONCE = 64 };

std::vector<std::pair<unsigned char *, size_t>> slabs; /* what was mapped, for nn_stack_overflowed */
nn_stack *unused_stacks;

size_t page() {
  static const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
  return bytes;
}

void map_stacks() {
  const size_t each = STACK_BYTES + page();
  void *slab =
      mmap(nullptr, each * STACKS_AT_ONCE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (slab == MAP_FAILED) {
    nn_die("no memory for the stacks of a block's threads");
  }
  slabs.emplace_back((unsigned char *)slab, each * STACKS_AT_ONCE);
  nn_stack *stacks = new nn_stack[STACKS_AT_ONCE];
  for (size_t i = 0; i < STACKS_AT_ONCE; i++) {
    unsigned char *low = (unsigned char *)slab + i * each;
    mprotect(low, page(), PROT_NONE);
    /* The tops are moved apart: at equal distances all stacks would compete for the same lines of the cache. */
    stacks[i] = {low + page(), low + each - (slabs.size() * STACKS_AT_ONCE + i) % 61 * 64, unused_stacks};
    unused_stacks = &stacks[i];
  }
}

} // namespace

nn_stack *nn_stack_take() {
  if (!unused_stacks) {
    map_stacks();
  }
  nn_stack *stack = unused_stacks;
  unused_stacks = stack->next;
  return stack;
}

void nn_stack_give(nn_stack *stack) {
  stack->next = unused_stacks;
  unused_stacks = stack;
}

bool nn_stack_overflowed(const void *address) {
  for (const auto &slab : slabs) {
    const size_t offset = (size_t)((const unsigned char *)address - slab.first);
    if ((const unsigned char *)address >= slab.first && offset < slab.second) {
      return offset % (STACK_BYTES + page()) < page();
    }
  }
  return false;
}

#if defined(__x86_64__)

/* The registers that a called function must keep. The floating-point modes need no keeping: they are the same in all
 * fibers, set by nn_run_grid. */
__asm__(".text\n"
        ".p2align 4\n"
        ".globl nn_context_jump\n"
        ".hidden nn_context_jump\n"
        ".type nn_context_jump, @function\n"
        "nn_context_jump:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  retq\n"
        ".size nn_context_jump, . - nn_context_jump\n");
extern "C" void nn_context_jump(void **from, void *to);

void nn_context_switch(void **from, void *to) { nn_context_jump(from, to); }

void *nn_context_new(nn_stack *stack, void (*entry)()) {
  void **top = (void **)((uintptr_t)stack->top & ~(uintptr_t)63);
  *--top = nullptr; /* where `entry` would return to; also makes its frame aligned as after a call */
  *--top = (void *)entry;
  for (int i = 0; i < 6; i++) {
    *--top = nullptr;
  }
  return top;
}

#else

#include <ucontext.h>

/* The context itself lies at the end of its stack, so that both forms are a pointer. */
void nn_context_switch(void **from, void *to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, (ucontext_t *)to);
}

void *nn_context_new(nn_stack *stack, void (*entry)()) {
  ucontext_t *context = (ucontext_t *)(((uintptr_t)stack->top - sizeof(ucontext_t)) & ~(uintptr_t)63);
  getcontext(context);
  context->uc_stack.ss_sp = stack->low;
  context->uc_stack.ss_size = (size_t)((unsigned char *)context - stack->low);
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}

#endif
