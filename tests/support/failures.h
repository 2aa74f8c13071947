// SPDX-License-Identifier: Apache-2.0
// What code under test throws, as text.
#pragma once

#include <string>

#include "runtime/base/errors.h"

namespace cleave::test {

// The message of the Failure that `act` throws; empty where it ends well.
template <class Failure = Error, class Act>
std::string failure_of(Act&& act) {
    try {
        act();
    } catch (const Failure& error) {
        return error.what();
    }
    return "";
}

}  // namespace cleave::test
