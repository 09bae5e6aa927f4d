// What each instruction set supplies. The same sources are compiled once for every level (see level.cpp).
#pragma once
#include "attention/kernels.h"
#include "linear/kernels.h"
#include "model/kernels.h"

struct Kernels {
    const char* name;
    AttentionKernels attention;
    LinearKernels linear;
    ModelKernels model;
};
