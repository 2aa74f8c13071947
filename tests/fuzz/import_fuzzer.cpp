// SPDX-License-Identifier: Apache-2.0
// libFuzzer target over the whole import: wire format, parser, functions, branches, tensors, probe,
// recovery, and the Graph as text. A UserError is a right answer; a crash, a hang, a leak, an
// InternalError or any other exception is a bug. Built by -DCLEAVE_FUZZ=ON with Clang (see
// README.md).
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <sys/time.h>
#include <unistd.h>

#include "importer/onnx/import.h"
#include "runtime/base/errors.h"
#include "tests/fuzz/mutate.h"

// Names of libFuzzer.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

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
    std::string write(const uint8_t* data, size_t size) const {
        std::string path = (path_ / "model.onnx").string();
        std::FILE* file = std::fopen(path.c_str(), "wb");
        if (!file || std::fwrite(data, 1, size, file) != size || std::fclose(file) != 0) fail(path);
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

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const Folder kFolder;
    const std::string path = kFolder.write(data, size);
    const CpuAlarm alarm;
    // Half of the corpus has its weights in a file that is absent.
    try {
        const cleave::importer::Graph graph =
            cleave::importer::import_onnx(path, {.weights_may_be_absent = true});
        if (cleave::importer::to_text(graph).empty()) std::abort();
    } catch (const cleave::UserError&) {  // NOLINT(bugprone-empty-catch)
    }
    return 0;
}

// Four of five changes are to the model, which stays one that Protobuf reads; the others are to its
// bytes.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
    if (seed % 5 == 0) return LLVMFuzzerMutate(data, size, max_size);
    onnx::ModelProto model;
    if (!model.ParseFromArray(data, static_cast<int>(size)))
        return LLVMFuzzerMutate(data, size, max_size);
    cleave::fuzz::mutate_model(model, seed);
    const size_t changed = model.ByteSizeLong();
    if (changed > max_size || !model.SerializeToArray(data, static_cast<int>(max_size)))
        return size;
    return changed;
}

// NOLINTEND(readability-identifier-naming)
