// The kernels of one level, compiled once for each with LEVEL, LEVEL_NAME and VECTOR defined (see compile.py).
//
// Everything here is in an anonymous namespace and nothing comes from the standard library's headers: a function that
// the linker may take from any of the objects could be one with instructions that this machine lacks.
#include "kernels.h"

#include VECTOR
#include "attend.h"
#include "write_kv.h"

extern const Kernels LEVEL;
const Kernels LEVEL = {LEVEL_NAME, write_kv, attend, merge, finish};
