#include "openmp.h"

#include <dlfcn.h>

namespace {

// The entry point that GCC compiles parallel regions to; LLVM's library has it too.
using Region = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
using Number = int (*)();

struct OpenMP {
    Region parallel;
    Number thread, threads;

    OpenMP() {
        const char* names[] = {"libgomp.so.1", "libomp.so", "libomp.so.5", "libiomp5.so", "libomp.dylib"};
        for (const char* name : names)
            if (void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD); library && find(library)) return;
        if (!find(RTLD_DEFAULT)) parallel = nullptr;
    }

    bool find(void* library) {
        parallel = Region(dlsym(library, "GOMP_parallel"));
        thread = Number(dlsym(library, "omp_get_thread_num"));
        threads = Number(dlsym(library, "omp_get_num_threads"));
        return parallel && thread && threads;
    }
};

const OpenMP& openmp() {
    static const OpenMP library;
    return library;
}

struct Job {
    int parts;
    void (*part)(void*, int);
    void* data;
};

// There may be fewer threads than parts.
void work(void* data) {
    const Job& job = *static_cast<Job*>(data);
    for (int i = openmp().thread(); i < job.parts; i += openmp().threads()) job.part(job.data, i);
}

}  // namespace

void OpenMPThreads::run(int parts, void (*part)(void* data, int index), void* data) {
    Job job{parts, part, data};
    if (parts > 1 && openmp().parallel) {
        openmp().parallel(work, &job, unsigned(parts), 0);
    } else {
        for (int i = 0; i < parts; i++) part(data, i);
    }
}
