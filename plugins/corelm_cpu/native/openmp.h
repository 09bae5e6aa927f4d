// The threads of the OpenMP library that the process has loaded.
#pragma once
#include "threads.h"

// For work between operations of PyTorch: its OpenMP threads spin for a while after each, and threads of our own would
// compete with them for the cores. Without such a library the calling thread does it all.
class OpenMPThreads : public Threads {
   public:
    explicit OpenMPThreads(int count) : count_(count) {}
    int count() const override { return count_; }
    void run(int parts, void (*part)(void* data, int index), void* data) override;

   private:
    const int count_;
};
