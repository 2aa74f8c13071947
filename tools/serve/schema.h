// SPDX-License-Identifier: Apache-2.0
// JSON schemas that an answer can be held to, token by token. In: a client's schema (JSON Schema,
// draft 2020-12, https://json-schema.org/draft/2020-12). Out: one that the grammar library keeps
// to the letter, so that whatever it allows is valid for the client's schema; it may allow less:
// an object that names properties gets those alone, in their order.
// Invariants: a keyword that cannot be kept is an error with its path, never ignored. Pure.
#pragma once

#include <string>

#include "tools/serve/api_calls.h"

namespace cleave::serve {

// ApiError (400) with `param` and the path in it: "response_format.json_schema.schema" and then
// "/properties/size/not", as a JSON pointer (RFC 6901).
Json kept_schema(const Json& schema, const std::string& param);

}  // namespace cleave::serve
