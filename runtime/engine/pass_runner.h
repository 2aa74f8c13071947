// SPDX-License-Identifier: Apache-2.0
// What an engine needs of that which computes its passes: a Session, or a model of a test.
#pragma once

#include <optional>
#include <vector>

#include "runtime/execute/pass.h"
#include "runtime/session/session.h"

namespace cleave::runtime {

// One thread calls submit and take. Errors are those of Session.
class PassRunner {
public:
    virtual ~PassRunner() = default;
    virtual Ticket submit(Batch batch, PassResults wanted) = 0;
    virtual PassResult take() = 0;
    // Of each device of the plan's machine, so far (Session::busy_seconds), by any thread; nothing
    // where it is not measured.
    virtual std::vector<std::optional<double>> busy_seconds() const { return {}; }
};

// The session must outlive it.
class SessionRunner : public PassRunner {
public:
    explicit SessionRunner(Session& session) : session_(session) {}
    Ticket submit(Batch batch, PassResults wanted) override {
        return session_.submit(std::move(batch), wanted);
    }
    PassResult take() override { return session_.take(); }
    std::vector<std::optional<double>> busy_seconds() const override {
        return session_.busy_seconds();
    }

private:
    Session& session_;
};

}  // namespace cleave::runtime
