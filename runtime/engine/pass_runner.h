// SPDX-License-Identifier: Apache-2.0
// What an engine needs of that which computes its passes: a Session, or a model of a test.
#pragma once

#include "runtime/execute/pass.h"
#include "runtime/session/session.h"

namespace cleave::runtime {

// One thread calls it. Errors are those of Session.
class PassRunner {
public:
    virtual ~PassRunner() = default;
    virtual Ticket submit(Batch batch, PassResults wanted) = 0;
    virtual PassResult take() = 0;
};

// The session must outlive it. `one_at_a_time`: each pass is taken before the next is submitted, as
// an engine of one group does.
class SessionRunner : public PassRunner {
public:
    explicit SessionRunner(Session& session, bool one_at_a_time = false)
        : session_(session), one_at_a_time_(one_at_a_time) {}
    Ticket submit(Batch batch, PassResults wanted) override {
        return session_.submit(std::move(batch), wanted, one_at_a_time_);
    }
    PassResult take() override { return session_.take(); }

private:
    Session& session_;
    bool one_at_a_time_;
};

}  // namespace cleave::runtime
