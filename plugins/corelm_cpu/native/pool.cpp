#include "pool.h"

#include <chrono>

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto PATIENCE = std::chrono::microseconds(100);  // before a thread without work sleeps
constexpr int LOOKS = 64;                                   // between readings of the clock, or yields of the core

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

Pool::Pool(int count) {
    for (int i = 1; i < count; i++) workers_.emplace_back([this] { serve(); });
}

Pool::~Pool() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void Pool::run(int parts, void (*part)(void* data, int index), void* data) {
    if (parts <= 1 || workers_.empty()) {
        for (int i = 0; i < parts; i++) part(data, i);
        return;
    }
    part_ = part;
    data_ = data;
    done_.store(0, std::memory_order_relaxed);
    parts_.store(uint64_t(parts) << 32);
    if (sleeping_.load()) {
        const std::lock_guard<std::mutex> lock(mutex_);
        wake_.notify_all();
    }
    while (work()) {
    }
    for (int looks = 0; done_.load(std::memory_order_acquire) < parts; looks++) {
        relax();
        // The thread that is waited for may want this very core.
        if (looks % LOOKS == LOOKS - 1) std::this_thread::yield();
    }
}

bool Pool::has_work() const {
    const uint64_t parts = parts_.load();
    return uint32_t(parts) < parts >> 32;
}

// Do one part; false if none is left.
bool Pool::work() {
    if (!has_work()) return false;
    const uint64_t parts = parts_.fetch_add(1, std::memory_order_acquire);
    if (uint32_t(parts) >= parts >> 32) return false;
    part_(data_, int(uint32_t(parts)));
    done_.fetch_add(1, std::memory_order_release);
    return true;
}

void Pool::serve() {
    while (!stop_) {
        const auto until = Clock::now() + PATIENCE;
        for (int looks = 0; !has_work() && (looks % LOOKS || Clock::now() < until); looks++) relax();
        if (has_work()) {
            while (work()) {
            }
            continue;
        }
        std::unique_lock<std::mutex> lock(mutex_);
        sleeping_++;
        wake_.wait(lock, [this] { return stop_ || has_work(); });
        sleeping_--;
    }
}
