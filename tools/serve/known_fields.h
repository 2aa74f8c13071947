// SPDX-License-Identifier: Apache-2.0
// The names of a call's fields. In: a client's body. Out: an ApiError (400) for one that would
// change the answer and is not done, and for one that is a known name mistyped. Others are ignored:
// clients send fields of many servers. Pure.
#pragma once

#include "tools/serve/api_calls.h"

namespace cleave::serve {

void check_fields(const Json& body);

}  // namespace cleave::serve
