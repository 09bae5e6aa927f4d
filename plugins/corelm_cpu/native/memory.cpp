#include "memory.h"

#include <sys/mman.h>

namespace {

constexpr size_t HUGE_PAGE = 2 << 20;

size_t whole_pages(size_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

}  // namespace

uint8_t* new_memory(size_t bytes) {
    const size_t wanted = whole_pages(bytes), mapped = wanted + HUGE_PAGE;
    void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    uint8_t* const start = static_cast<uint8_t*>(mapping);
    uint8_t* const aligned = reinterpret_cast<uint8_t*>(whole_pages(reinterpret_cast<uintptr_t>(start)));
    const size_t before = size_t(aligned - start), after = mapped - before - wanted;
    if (before) munmap(start, before);
    if (after) munmap(aligned + wanted, after);
#ifdef MADV_HUGEPAGE
    madvise(aligned, wanted, MADV_HUGEPAGE);
#endif
    return aligned;
}

void delete_memory(uint8_t* memory, size_t bytes) { munmap(memory, whole_pages(bytes)); }
