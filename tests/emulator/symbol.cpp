/* This library's own symbol table: the dynamic linker knows exported names only, and ours are hidden. */
#include "machine.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void nn_each_symbol(const void *in_library, const std::function<void(const nn_symbol_entry &)> &visit) {
  Dl_info info;
  if (!dladdr(in_library, &info) || !info.dli_fname) {
    return;
  }
  const int file = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (file < 0 || fstat(file, &status)) {
    return;
  }
  const size_t size = (size_t)status.st_size;
  const unsigned char *image = (const unsigned char *)mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (image == MAP_FAILED) {
    return;
  }
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + header->e_shoff);
  /* A program that is not position-independent has addresses in its table, all others offsets. */
  const uintptr_t base = header->e_type == ET_EXEC ? 0 : (uintptr_t)info.dli_fbase;
  for (unsigned i = 0; header->e_shoff && i < header->e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB) {
      continue;
    }
    const Elf64_Sym *symbols = (const Elf64_Sym *)(image + sections[i].sh_offset);
    const char *names = (const char *)(image + sections[sections[i].sh_link].sh_offset);
    for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++) {
      const unsigned type = ELF64_ST_TYPE(symbols[s].st_info), section = symbols[s].st_shndx;
      if ((type == STT_FUNC || type == STT_OBJECT) && section < header->e_shnum && symbols[s].st_size) {
        visit({names + symbols[s].st_name, (unsigned char *)(base + symbols[s].st_value), symbols[s].st_size,
               type == STT_OBJECT && (sections[section].sh_flags & SHF_WRITE)});
      }
    }
  }
  munmap((void *)image, size);
}

std::string nn_symbol(const void *address) {
  std::string name = "?";
  nn_each_symbol(address, [&](const nn_symbol_entry &symbol) {
    if ((const unsigned char *)address >= symbol.address &&
        (const unsigned char *)address < symbol.address + symbol.bytes) {
      int failed;
      char *plain = abi::__cxa_demangle(symbol.name, nullptr, nullptr, &failed);
      name = plain ? plain : symbol.name;
      free(plain);
    }
  });
  return name;
}
