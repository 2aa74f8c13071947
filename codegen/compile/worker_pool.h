// SPDX-License-Identifier: Apache-2.0
// Compilations in child processes (cleave_compile_worker, beside the executable or in ../lib): a
// vendor's library that crashes, aborts or never returns becomes an error with the library's last
// words. In: which kind of library, the names to try, source and options; out: log, object and PTX.
// Thread-safe: as many children as threads ask at once; idle ones are used again. Children end when
// the pool goes.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/cancel.h"

namespace cleave::codegen {

struct WorkerResult {
    enum class Status { kOk, kFailed, kDied };
    Status status = Status::kFailed;
    std::string log;  // the compiler's; of a child that died: how, and what it printed last
    std::string object;
    std::string ptx;
};

class CompileWorkers {
public:
    // Starts the first child, which opens the library. `kind` is "nvrtc" or "hiprtc"; `cancel` may
    // be null. `reason()` is empty when it is there, and else lists every name tried.
    CompileWorkers(std::string kind, std::vector<std::string> names, int timeout_seconds,
                   const CancelToken* cancel);
    ~CompileWorkers();
    CompileWorkers(const CompileWorkers&) = delete;
    CompileWorkers& operator=(const CompileWorkers&) = delete;

    const std::string& reason() const { return reason_; }
    const std::string& library() const { return library_; }
    const std::string& version() const { return version_; }
    const std::string& archs() const { return archs_; }
    const std::string& path() const { return path_; }  // of the library's file, where known

    // Cancelled when the token is set meanwhile; the child is ended.
    WorkerResult compile(const std::string& file_name, const std::string& source,
                         const std::vector<std::string>& options);

private:
    class Child;
    std::unique_ptr<Child> start(std::string& why) const;
    std::unique_ptr<Child> acquire(std::string& why);

    std::string kind_;
    std::vector<std::string> names_;
    int timeout_seconds_;
    const CancelToken* cancel_;
    std::string reason_, library_, version_, archs_, path_;
    std::mutex mutex_;  // of `idle_`
    std::vector<std::unique_ptr<Child>> idle_;
};

}  // namespace cleave::codegen
