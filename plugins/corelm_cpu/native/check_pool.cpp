// Runs a pool hard, for the thread sanitizer (see sanitize.py): every part is done once and seen by the caller.
#include <stdio.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "pool.h"

namespace {

// Jobs of changing size, which read what those before wrote; now and then all threads fall asleep. Returns the number
// of wrong results.
int check(int threads, int jobs) {
    Pool pool(threads);
    std::vector<int> counts(64, 0);
    int failures = pool.count() != threads;
    for (int job = 0; job < jobs; job++) {
        const int parts = job % 5 == 4 ? 64 : job % 7;
        pool.each(parts, [&](int part) { counts[part]++; });
        if (job % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::vector<int> expected(64, 0);
    for (int job = 0; job < jobs; job++)
        for (int part = 0; part < (job % 5 == 4 ? 64 : job % 7); part++) expected[part]++;
    for (int part = 0; part < 64; part++) failures += counts[part] != expected[part];
    return failures;
}

}  // namespace

int main() {
    int failures = 0;
    for (const int threads : {1, 2, 3, 7}) failures += check(threads, 20000);
    for (int i = 0; i < 200; i++) failures += check(3, i % 3);  // ended while its threads are at whatever they are
    printf("pool: %d failures\n", failures);
    return failures != 0;
}
