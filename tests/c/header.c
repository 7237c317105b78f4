// SPDX-License-Identifier: BSD-3-Clause
#include "tests/c/use_initialisers.h"
