// SPDX-License-Identifier: Apache-2.0
// The "quantization_config" of a config.json: compressed-tensors (integers of 4 or 8 bits in
// groups, float8), GPTQ, AWQ, and transformers' fp8. Everything else is a UserError that names the
// field.
#pragma once

#include "models/config_fields.h"
#include "models/shapes.h"

namespace cleave::models {

PackedWeights read_quantization(const Fields& fields);

}  // namespace cleave::models
