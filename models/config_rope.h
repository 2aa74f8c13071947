// SPDX-License-Identifier: Apache-2.0
// The rotary embedding that a config.json describes: "rope_theta" with "rope_scaling", or
// "rope_parameters", as transformers 5 writes them. Formulas are those of its modeling_rope_utils.
#pragma once

#include "models/config_fields.h"
#include "models/shapes.h"

namespace cleave::models {

// Fills rope, rope_theta, the fields of llama3 scaling, and max_positions where the context ends
// sooner. The other fields of `shape` are known. UserError names a type or field that is not
// supported.
void read_rope(const Fields& fields, Shape& shape);

// Gemma 3: the first of Shape::rope for layers of the whole context, the second for windows.
void read_two_ropes(const Fields& fields, Shape& shape);

}  // namespace cleave::models
