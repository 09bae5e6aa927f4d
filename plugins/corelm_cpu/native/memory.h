// Large memory for what every step reads from end to end.
#pragma once
#include <stddef.h>
#include <stdint.h>

// `bytes` of zeros, which begin at a huge page and come in such where the system has them; null if there is no memory.
// What is never touched takes none.
uint8_t* new_memory(size_t bytes);

void delete_memory(uint8_t* memory, size_t bytes);
