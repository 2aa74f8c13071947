// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/worker_pool.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/compile/worker/protocol.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/environment.h"
#include "runtime/base/errors.h"

extern char** environ;

namespace cleave::codegen {

namespace {

constexpr int kPollMilliseconds = 50;  // between two looks at the cancel token
constexpr off_t kLastWords = 2000;     // bytes of what a dead child printed
constexpr const char* kWorker = "cleave_compile_worker";

using Clock = std::chrono::steady_clock;

std::vector<std::string> worker_names() {
    if (std::string chosen = environment("CLEAVE_COMPILE_WORKER"); !chosen.empty()) return {chosen};
    std::vector<std::string> names = library_names(kWorker);
    names.pop_back();  // the bare name, which is the loader's to search
    return names;
}

std::string how_it_ended(int status) {
    if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        // So the system takes memory back; nothing here kills a worker that is waited for.
        const char* const hint = signal == SIGKILL ? ", often for lack of memory" : "";
        return fmt::format("ended by signal {} ({}){}", signal, ::strsignal(signal), hint);
    }
    return fmt::format("exited with status {}", WEXITSTATUS(status));
}

}  // namespace

// One child process. The connection is a socket pair, so that writing to a dead child is an error
// and no signal.
class CompileWorkers::Child {
public:
    Child(const std::string& program, const std::string& kind,
          const std::vector<std::string>& names) {
        int pair[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return;
        socket_ = Descriptor(pair[0]);
        const Descriptor childs_end(pair[1]);
        printed_ = Descriptor(::memfd_create("cleave-worker-output", MFD_CLOEXEC));
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, childs_end.get(), 0);
        ::posix_spawn_file_actions_adddup2(&actions, childs_end.get(), 1);
        if (printed_) ::posix_spawn_file_actions_adddup2(&actions, printed_.get(), 2);
        std::vector<std::string> texts{program, kind};
        texts.insert(texts.end(), names.begin(), names.end());
        std::vector<char*> arguments;
        for (std::string& text : texts) arguments.push_back(text.data());
        arguments.push_back(nullptr);
        // Its own group: Ctrl-C in a terminal is this process's to handle, which then ends the
        // child.
        posix_spawnattr_t attributes;
        ::posix_spawnattr_init(&attributes);
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
        if (::posix_spawn(&process_, program.c_str(), &actions, &attributes, arguments.data(),
                          environ) != 0)
            process_ = -1;
        ::posix_spawnattr_destroy(&attributes);
        ::posix_spawn_file_actions_destroy(&actions);
    }
    ~Child() {
        // An idle child ends by itself at the end of its input; one that compiles must be ended.
        if (process_ > 0) {
            ::kill(process_, SIGKILL);
            ::waitpid(process_, nullptr, 0);
        }
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    bool started() const { return process_ > 0; }

    bool send(const Message& message) const {
        const std::string text = encode(message);
        for (size_t at = 0; at < text.size();) {
            ssize_t n = ::send(socket_.get(), text.data() + at, text.size() - at, MSG_NOSIGNAL);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return false;
            at += static_cast<size_t>(n);
        }
        return true;
    }

    // The next message, or nothing with `why`: the child ended, or the time did. Throws Cancelled.
    std::optional<Message> receive(int timeout_seconds, const CancelToken* cancel,
                                   std::string& why) {
        const auto deadline = Clock::now() + std::chrono::seconds(timeout_seconds);
        bool broken = false;
        char bytes[65536];
        while (true) {
            if (std::optional<Message> message = take_message(buffer_, broken)) return message;
            if (cancel) cancel->throw_if_cancelled();
            if (Clock::now() > deadline) {
                why = fmt::format("it did not answer within {} s{}", timeout_seconds, last_words());
                return std::nullopt;
            }
            pollfd waiting{socket_.get(), POLLIN, 0};
            if (::poll(&waiting, 1, kPollMilliseconds) <= 0) continue;
            ssize_t n = ::read(socket_.get(), bytes, sizeof bytes);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0 || broken) {
                why = "its process " + end() + last_words();
                return std::nullopt;
            }
            buffer_.append(bytes, static_cast<size_t>(n));
        }
    }

private:
    std::string end() {
        int status = 0;
        // It closed its output, so it is ending; should it hang there, it has nothing more to say.
        for (int i = 0; i < 100; ++i) {
            pid_t ended = ::waitpid(process_, &status, WNOHANG);
            if (ended == process_) {
                process_ = -1;
                return how_it_ended(status);
            }
            ::poll(nullptr, 0, 10);
        }
        return "closed its output";
    }

    std::string last_words() const {
        if (!printed_) return "";
        off_t size = ::lseek(printed_.get(), 0, SEEK_END);
        if (size <= 0) return "";
        off_t from = std::max<off_t>(0, size - kLastWords);
        std::string text(static_cast<size_t>(size - from), '\0');
        ssize_t n = ::pread(printed_.get(), text.data(), text.size(), from);
        text.resize(n > 0 ? static_cast<size_t>(n) : 0);
        return "; its last words:\n" + text;
    }

    pid_t process_ = -1;
    Descriptor socket_, printed_;
    std::string buffer_;
};

CompileWorkers::CompileWorkers(std::string kind, std::vector<std::string> names,
                               int timeout_seconds, const CancelToken* cancel)
    : kind_(std::move(kind)),
      names_(std::move(names)),
      timeout_seconds_(timeout_seconds),
      cancel_(cancel) {
    std::unique_ptr<Child> child = start(reason_);
    if (!child) return;
    std::optional<Message> hello = child->receive(timeout_seconds_, cancel_, reason_);
    if (!hello) return;
    if (hello->size() >= 4 && hello->front() == "ready") {
        library_ = (*hello)[1];
        version_ = (*hello)[2];
        archs_ = (*hello)[3];
        if (hello->size() > 4) path_ = (*hello)[4];
        names_ = {library_};  // those that follow must be the same
        idle_.push_back(std::move(child));
    } else {
        reason_ = hello->size() == 2 ? hello->back() : "the compile worker is of another version";
    }
}

CompileWorkers::~CompileWorkers() = default;

std::unique_ptr<CompileWorkers::Child> CompileWorkers::start(std::string& why) const {
    const std::vector<std::string> programs = worker_names();
    for (const std::string& program : programs) {
        if (::access(program.c_str(), X_OK) != 0) continue;
        auto child = std::make_unique<Child>(program, kind_, names_);
        if (child->started()) return child;
    }
    why = fmt::format("the compile worker cannot be started: tried {}", programs.front());
    for (size_t i = 1; i < programs.size(); ++i) why += ", " + programs[i];
    return nullptr;
}

std::unique_ptr<CompileWorkers::Child> CompileWorkers::acquire(std::string& why) {
    {
        std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            std::unique_ptr<Child> child = std::move(idle_.back());
            idle_.pop_back();
            return child;
        }
    }
    std::unique_ptr<Child> child = start(why);
    if (!child) return nullptr;
    std::optional<Message> hello = child->receive(timeout_seconds_, cancel_, why);
    if (hello && hello->front() == "ready") return child;
    if (hello) why = hello->back();
    return nullptr;
}

WorkerResult CompileWorkers::compile(const std::string& file_name, const std::string& source,
                                     const std::vector<std::string>& options) {
    WorkerResult result;
    result.status = WorkerResult::Status::kDied;
    std::unique_ptr<Child> child = acquire(result.log);
    if (!child) return result;
    Message request{file_name, source};
    request.insert(request.end(), options.begin(), options.end());
    child->send(request);  // a failure shows when nothing can be received
    std::optional<Message> answer = child->receive(timeout_seconds_, cancel_, result.log);
    if (!answer || answer->size() != 4) return result;
    result.status =
        answer->front() == "ok" ? WorkerResult::Status::kOk : WorkerResult::Status::kFailed;
    result.log = std::move((*answer)[1]);
    result.object = std::move((*answer)[2]);
    result.ptx = std::move((*answer)[3]);
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(child));
    return result;
}

}  // namespace cleave::codegen
