// SPDX-License-Identifier: Apache-2.0
// A file that appears whole or not at all: it is written without a name (under a random one where
// the file system has no such files), gets a random one in the same folder at the end, and is
// renamed into place by `commit`. A process that is killed before leaves nothing. Readers never
// see half of one, processes that write the same file do not mix, and what was there stays if
// anything fails. A link to a file is replaced, not what it leads to. A character device or a pipe
// (/dev/null, /dev/stdout) is written in place, as it comes: there is nothing to keep. Block
// devices and sockets are refused. Errors are returned, not thrown: each user says what its file is
// for. One thread at a time.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <system_error>

#include "runtime/base/descriptor.h"

namespace cleave {

class AtomicFile {
public:
    // Creates the file, empty, with the permissions of `mode` that the umask leaves. A
    // relative path starts at the opened folder, which is not owned; AT_FDCWD: the current one.
    explicit AtomicFile(const std::filesystem::path& path, mode_t mode = 0666,
                        int folder = AT_FDCWD);
    // Removes it again unless it was committed.
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    // Why there is nothing to write to; no error otherwise.
    std::error_code error() const { return error_; }
    std::ostream& stream() { return *stream_; }

    // Writes what is left. The first error so far, or none.
    [[nodiscard]] std::error_code finish();
    // Finishes the file and gives it its name. The first error since the beginning, or none.
    [[nodiscard]] std::error_code commit();

    // Of several files that appear together (FileSet). The first finishes a file and closes it,
    // under a temporary name. The second gives it its own, which is undone unless `keep` follows:
    // what was there comes back, where the file system can exchange two names. Errors as above.
    [[nodiscard]] std::error_code close();
    [[nodiscard]] std::error_code place();
    void keep();

private:
    class Buffer;
    enum class Placed { kNot, kNew, kInstead, kForGood };

    Descriptor open_nameless(mode_t mode);
    Descriptor open_temporary(mode_t mode);
    template <class Make>
    void name_temporary(Make&& made);

    bool nameless_ = false;
    Placed placed_ = Placed::kNot;
    int folder_;
    std::string path_, temporary_;
    std::unique_ptr<Buffer> buffer_;
    std::unique_ptr<std::ostream> stream_;
    std::error_code error_;
};

}  // namespace cleave
