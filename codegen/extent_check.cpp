// SPDX-License-Identifier: Apache-2.0
#include "codegen/compiler.h"
#include "codegen/program.h"
