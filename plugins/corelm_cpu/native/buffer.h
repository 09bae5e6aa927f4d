// Arrays that begin with a cache line, so that no vector in them lies across two.
#pragma once
#include <stddef.h>

#include <new>
#include <vector>

template <class T>
struct CacheLines {
    using value_type = T;
    CacheLines() = default;
    template <class U>
    CacheLines(const CacheLines<U>&) {}
    T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(64))); }
    void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
    template <class U>
    bool operator==(const CacheLines<U>&) const {
        return true;
    }
    template <class U>
    bool operator!=(const CacheLines<U>&) const {
        return false;
    }
};

template <class T>
using Buffer = std::vector<T, CacheLines<T>>;
