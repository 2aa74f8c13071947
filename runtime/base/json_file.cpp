// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <unordered_set>

#include "runtime/base/descriptor.h"
#include "runtime/base/errors.h"

namespace cleave {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::filesystem::path& path, int error) {
    throw UserError("{}: cannot be read: {}; check the path and its permissions", path.string(),
                    std::error_code(error, std::generic_category()).message());
}

// "line 3, column 5: no JSON: unexpected '}'; expected string literal" of the library's
// "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error while parsing
// object key - unexpected '}'; expected string literal".
std::string plain_words(std::string text) {
    const auto drop_before = [&](std::string_view mark) {
        const size_t at = text.find(mark);
        if (at != std::string::npos) text.erase(0, at + mark.size());
        return at != std::string::npos;
    };
    if (!drop_before("parse error at ")) {
        drop_before("] ");
        return "no JSON: " + text;
    }
    const size_t end = text.find(": ");
    const std::string where = text.substr(0, end);
    drop_before(" - ");
    if (const size_t last = text.find("; last read: "); last != std::string::npos) {
        // What was read may have quotes, too.
        const size_t behind = text.find("'; expected ", last + 14);
        const size_t close = behind != std::string::npos ? behind : text.rfind('\'');
        if (close > last) text.erase(last, close + 1 - last);
    }
    return where + ": no JSON: " + text;
}

// `most_names` of an object: ordered ones are searched from their beginning.
template <class AnyJson>
AnyJson parse(std::string_view text, const std::string& origin, std::string_view fix,
              size_t most_names) {
    std::unordered_set<std::string> names;
    std::array<size_t, kMostJsonDepth + 2> count{};  // of names in the object open at each depth
    const auto check = [&](int depth, typename AnyJson::parse_event_t event, const AnyJson& value) {
        if (depth > kMostJsonDepth)
            throw UserError("{}: values are more than {} levels inside each other", origin,
                            kMostJsonDepth);
        const auto level = static_cast<size_t>(depth);
        if (event == AnyJson::parse_event_t::object_start) count[level + 1] = 0;
        if (event == AnyJson::parse_event_t::key && ++count[level] > most_names)
            throw UserError("{}: an object of more than {} names", origin, most_names);
        if (event == AnyJson::parse_event_t::key && depth == 1 &&
            !names.insert(value.template get<std::string>()).second)
            throw UserError("{}: the name \"{}\" is there twice", origin,
                            value.template get<std::string>());
        return true;
    };
    try {
        return AnyJson::parse(text.begin(), text.end(), check);
    } catch (const typename AnyJson::exception& error) {
        throw UserError("{}: {}{}{}", origin, plain_words(error.what()), fix.empty() ? "" : "; ",
                        fix);
    }
}

}  // namespace

std::string read_regular_file(const std::filesystem::path& path, int64_t most_bytes) {
    // Not blocking: a pipe would wait for a writer.
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) refuse(path, errno);
    if (S_ISDIR(status.st_mode)) throw UserError("{}: is a folder, expected a file", path.string());
    if (!S_ISREG(status.st_mode))
        throw UserError("{}: is a pipe or a device, expected a regular file", path.string());
    if (status.st_size > most_bytes)
        throw UserError("{}: has {} bytes; such files have at most {}", path.string(),
                        status.st_size, most_bytes);
    // Fewer bytes where it became shorter.
    std::optional<std::string> text = read_bytes(file, static_cast<size_t>(status.st_size));
    if (!text) refuse(path, errno);
    return *std::move(text);
}

Json parse_json(std::string_view text, const std::string& origin, std::string_view fix) {
    return parse<Json>(text, origin, fix, std::numeric_limits<size_t>::max());
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& origin) {
    return parse<nlohmann::ordered_json>(text, origin, {}, kMostOrderedNames);
}

Json read_json(const std::filesystem::path& path) {
    return parse_json(read_regular_file(path), path.string());
}

}  // namespace cleave
