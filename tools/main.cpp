// SPDX-License-Identifier: Apache-2.0
// The `cleave` command. Exit codes: 0 done; 1 the input's fault; 2 ours; 130 interrupted.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "codegen/compile/host.h"
#include "planner/planner.h"
#include "planner/view/plan_text.h"
#include "runtime/base/errors.h"
#include "runtime/cards/drivers.h"
#include "tools/cli/arguments.h"
#include "tools/cli/bus_error.h"
#include "tools/cli/failure.h"
#include "tools/cli/help_text.h"
#include "tools/cli/hosts.h"
#include "tools/cli/options.h"
#include "tools/cli/planning.h"
#include "tools/cli/spelling.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"
#include "tools/commit.h"

namespace {

using namespace cleave;

const std::terminate_handler kUsualTerminate = std::get_terminate();

// Work that can stop between steps and clean up is asked to; a second Ctrl-C, or one elsewhere,
// ends the process.
void on_interrupt(int) {
    if (!tools::Interruptible::active() || tools::cancel_token().cancelled()) {
        constexpr std::string_view kSays = "\ncleave: interrupted\n";
        [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kSays.data(), kSays.size());
        ::_exit(130);
    }
    tools::cancel_token().cancel();
}

// Memory may fail in a function that may not throw, of CLI11 and of the JSON library among others:
// that is told like all else; the process ends there.
[[noreturn]] void on_terminate() {
    try {
        if (std::current_exception()) throw;
        kUsualTerminate();
    } catch (const std::bad_alloc&) {
        constexpr std::string_view kSays = "cleave: out of memory on this host\n";
        [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kSays.data(), kSays.size());
        ::_exit(1);
    } catch (...) {
        kUsualTerminate();
    }
    std::abort();
}

// Why this process fails, for the other ranks of its run.
std::string failure;

int fail(int code, const std::string& message) {
    std::fflush(stdout);
    failure = message;
    tools::say_failure(message);
    return code;
}

// Its own, those of what it was built with, and where it lies.
std::string version_text() {
    const codegen::HostCompilerInfo compiler = codegen::host_compiler_info();
    std::error_code error;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
    return fmt::format("cleave {}, commit {}\nLLVM {}, ONNX {}\n{}", CLEAVE_VERSION,
                       tools::commit(), compiler.available ? compiler.version : "absent",
                       CLEAVE_ONNX_VERSION, program.string());
}

bool wants_json(int argc, char** argv) {
    for (int i = 1; i < argc; ++i)
        if (std::string_view(argv[i]) == "--json") return true;
    return false;
}

int run(int argc, char** argv, runtime::Drivers& drivers) {
    CLI::App app{"Cleave plans, proves and runs one language model over several devices.",
                 "cleave"};
    tools::add_commands(app, drivers);
    app.set_version_flag("-v,--version", version_text);
    if (argc < 2) {
        tools::show_text(tools::overview(app));
        return 1;  // nothing was asked for, as of git
    }
    std::vector<std::string> words =
        tools::ready_arguments(app, std::vector<std::string>(argv + 1, argv + argc));
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    try {
        app.parse(std::move(words));
    } catch (const CLI::Success& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        std::string command = app.get_subcommands().empty()
                                  ? "cleave"
                                  : "cleave " + app.get_subcommands().front()->get_name();
        return fail(1, fmt::format("{} (see {} --help)", error.what(), command));
    } catch (const planner::DoesNotFit& error) {
        if (wants_json(argc, argv))
            tools::show_exactly(
                tools::spell_for_command_line(planner::does_not_fit_to_json(error)));
        return fail(1, error.what());
    }
    return 0;
}

int run_guarded(int argc, char** argv, runtime::Drivers& drivers) {
    try {
        const int code = run(argc, argv, drivers);
        tools::close_output();
        return code;
    } catch (const Cancelled&) {
        const std::string why = tools::why_interrupted();
        return why.empty() ? fail(130, "interrupted") : fail(1, why);
    } catch (const InternalError& error) {
        return fail(2, fmt::format("internal error: {}", error.what()));
    } catch (const Error& error) {
        return fail(1, error.what());
    } catch (const std::system_error& error) {
        return fail(1, error.what());
    } catch (const std::bad_alloc&) {
        return fail(1, "out of memory on this host");
    } catch (const std::exception& error) {
        return fail(2, fmt::format("internal error: {}", error.what()));
    }
}

// No file that is opened later takes the number of a standard stream that is closed. What is
// written to a closed standard output fails; what is written to standard error is not missed.
void open_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(stream, F_GETFD) < 0)
            ::open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_RDWR);
}

}  // namespace

int main(int argc, char** argv) {
    open_standard_streams();
    std::set_terminate(on_terminate);
    std::signal(SIGINT, on_interrupt);
    // A file beyond `ulimit -f` is an error of its write.
    std::signal(SIGXFSZ, SIG_IGN);
    tools::tell_bus_errors();
    runtime::Drivers drivers;
    const int code = run_guarded(argc, argv, drivers);
    tools::note_kernels_not_kept(true);
    // The drivers' last calls at a process's usual end would wait for a kernel that never ends.
    if (tools::leave_hosts(failure) || drivers.has_card_left_alone()) {
        std::fflush(nullptr);
        ::_exit(code);
    }
    return code;
}
