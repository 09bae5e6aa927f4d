// What each instruction set supplies. The same sources are compiled once for every level (see level.cpp).
#pragma once
#include "attention/kernels.h"

struct Kernels {
    const char* name;
    AttentionKernels attention;
};
