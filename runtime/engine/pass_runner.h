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

// The session must outlive it.
class SessionRunner : public PassRunner {
public:
    explicit SessionRunner(Session& session) : session_(session) {}
    Ticket submit(Batch batch, PassResults wanted) override {
        return session_.submit(std::move(batch), wanted);
    }
    PassResult take() override { return session_.take(); }

private:
    Session& session_;
};

}  // namespace cleave::runtime
