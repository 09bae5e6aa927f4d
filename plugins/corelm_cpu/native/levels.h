// Which kernels this machine can run.
#pragma once
#include "level.h"

// The best kernels for this machine, or those of a name; null if there are none or the machine cannot run them.
const Kernels* find_kernels(const char* name);
