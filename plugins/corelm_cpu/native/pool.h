// Threads of an engine's own.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "threads.h"

// The caller works too. Parts are handed out one by one, so that a thread whose core is busy with something else holds
// up no more than the part that it is at. Between jobs the threads look out for the next one for a moment, then sleep.
class Pool : public Threads {
   public:
    explicit Pool(int count);
    ~Pool() override;
    int count() const override { return int(workers_.size()) + 1; }
    void run(int parts, void (*part)(void* data, int index), void* data) override;

   private:
    void serve();
    bool work();
    bool has_work() const;

    // The number of parts in the upper half, the next one in the lower: taking one is a single addition, and a thread
    // that comes late sees by the same read that nothing is left.
    std::atomic<uint64_t> parts_{0};
    std::atomic<int> done_{0}, sleeping_{0};
    std::atomic<bool> stop_{false};
    void (*part_)(void*, int) = nullptr;
    void* data_ = nullptr;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> workers_;
};
