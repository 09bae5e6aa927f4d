// Work for several threads.
#pragma once

// Call `part(data, i)` for i from 0 to parts - 1, at the same time if possible, and wait for all.
//
// The threads are those of the OpenMP library that the process has loaded. Threads of our own would compete for the
// cores with OpenMP's, which spin for a while after each of PyTorch's operations. Without such a library the calling
// thread does it all.
void in_parallel(int parts, void (*part)(void* data, int index), void* data);
