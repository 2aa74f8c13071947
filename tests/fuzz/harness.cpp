// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/harness.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <sys/time.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;

// One folder for the process, in memory where the system has such: every input becomes a file.
class Folder {
public:
    Folder() {
        const fs::path base =
            fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
        std::string name = (base / "cleave-fuzz-XXXXXX").string();
        if (!::mkdtemp(name.data())) fail(name);
        path_ = name;
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    fs::path write(std::string_view bytes, const std::string& name) const {
        const std::string path = (path_ / name).string();
        std::FILE* file = std::fopen(path.c_str(), "wb");
        if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() ||
            std::fclose(file) != 0)
            fail(path);
        return path;
    }

private:
    [[noreturn]] static void fail(const std::string& path) {
        std::perror(path.c_str());
        std::abort();
    }

    fs::path path_;
};

// Ends the process when one input takes longer than this in CPU time. libFuzzer's own -timeout
// counts the clock on the wall, which says nothing on a machine that does other work. The
// evaluator's own limit on work, about a second, takes some ten here: two thirds of the time are
// the fuzzer's notes of comparisons.
constexpr int kMostCpuSeconds = 30;

class CpuAlarm {
public:
    CpuAlarm() {
        std::signal(SIGVTALRM, [](int) {
            constexpr char kMessage[] = "one input took more than 30 s of CPU time\n";
            if (::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1) < 0) ::_exit(1);
            std::abort();
        });
        set(kMostCpuSeconds);
    }
    ~CpuAlarm() { set(0); }

private:
    static void set(int seconds) {
        const itimerval value{{0, 0}, {seconds, 0}};
        ::setitimer(ITIMER_VIRTUAL, &value, nullptr);
    }
};

}  // namespace

fs::path cleave::fuzz::write_file(std::string_view bytes, const std::string& name) {
    static const Folder kFolder;
    return kFolder.write(bytes, name);
}

// A name of libFuzzer.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const CpuAlarm alarm;
    cleave::fuzz::try_to([&] { cleave::fuzz::run_input(bytes); });
    return 0;
}
