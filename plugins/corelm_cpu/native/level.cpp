// The kernels of one level, compiled once for each with LEVEL, LEVEL_NAME and VECTORS defined (see compile.py).
//
// Everything here is in an anonymous namespace and nothing comes from the standard library's headers: a function that
// the linker may take from any of the objects could be one with instructions that this machine lacks.
#include "level.h"

#include VECTORS
#include "attention/attend.h"
#include "attention/join.h"
#include "attention/write_kv.h"
#include "linear/finish.h"
#include "linear/multiply.h"
#include "linear/quantise.h"
#include "linear/weights_of.h"
#include "model/bfloat16.h"
#include "model/norm.h"
#include "model/rotate.h"

extern const Kernels LEVEL;
const Kernels LEVEL = {
    LEVEL_NAME,
    {write_kv, attend, merge, finish},
    {choose_form, quantise, multiply, weights_of, finish_tile},
    {norm, rotate, narrow, widen},
};
