// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <limits>
#include <system_error>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/descriptor.h"
#include "runtime/base/errors.h"
#include "runtime/base/inputs.h"

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

// A text's characters; `read` is how far they have been taken.
struct Characters {
    // Names of std::iterator_traits.
    // NOLINTBEGIN(readability-identifier-naming)
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;
    // NOLINTEND(readability-identifier-naming)

    const char* at;
    const char** read;

    reference operator*() const { return *at; }
    Characters& operator++() {
        *read = ++at;
        return *this;
    }
    Characters operator++(int) {
        const Characters before = *this;
        ++*this;
        return before;
    }
    bool operator==(const Characters& other) const { return at == other.at; }
};

// "ORIGIN: line 3, column 5" of the character before `end`, as the library counts them; of the one
// before that where a value was ended by its line.
std::string place_of(const std::string& origin, std::string_view text, const char* end) {
    std::string_view before = text.substr(0, static_cast<size_t>(end - text.data()));
    if (before.ends_with('\n')) before.remove_suffix(1);
    return fmt::format("{}: line {}, column {}", origin,
                       1 + std::count(before.begin(), before.end(), '\n'),
                       before.size() - (before.rfind('\n') + 1));  // npos + 1 is 0
}

// Refuses what is too deep or too much, before anything is kept of it. (The library's callbacks
// while it parses would look through all of a list for each object in it.)
class Limits final : public nlohmann::json_sax<Json> {
public:
    // `most_names` of an object: ordered ones are searched from their beginning.
    Limits(std::string_view text, const std::string& origin, size_t most_names)
        : text_(text), origin_(origin), most_names_(most_names), read_(text.data()) {}

    void look_through() {
        Json::sax_parse(Characters{read_, &read_}, Characters{text_.data() + text_.size(), &read_},
                        this);
    }

    bool null() override { return value(); }
    bool boolean(bool) override { return value(); }
    bool number_integer(number_integer_t) override { return value(); }
    bool number_unsigned(number_unsigned_t) override { return value(); }
    bool number_float(number_float_t, const string_t&) override { return value(); }
    bool string(string_t&) override { return value(); }
    bool binary(binary_t&) override { return value(); }
    bool start_object(size_t) override { return open(); }
    bool start_array(size_t) override { return open(); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        if (++names_[depth_] > most_names_)
            refuse(fmt::format("an object of more than {} names", most_names_));
        if (depth_ == 1 && !outermost_.insert(name).second)
            refuse(fmt::format("the name \"{}\" is there twice", name));
        return true;
    }
    // What is no JSON is told by the parsing, which has no place of a number that is none.
    bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
        if (dynamic_cast<const nlohmann::json::out_of_range*>(&error))
            refuse(plain_words(error.what()));
        return false;
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw UserError("{}: {}", place_of(origin_, text_, read_), what);
    }
    bool value() {
        if (++values_ > kMostJsonValues)
            refuse(fmt::format("more than {} values", kMostJsonValues));
        return true;
    }
    bool open() {
        if (++depth_ > kMostJsonDepth)
            refuse(fmt::format("values are more than {} levels inside each other", kMostJsonDepth));
        names_[depth_] = 0;
        return value();
    }
    bool close() {
        --depth_;
        return true;
    }

    const std::string_view text_;
    const std::string& origin_;
    const size_t most_names_;
    const char* read_;
    size_t depth_ = 0, values_ = 0;
    std::array<size_t, kMostJsonDepth + 1> names_{};  // in the object open at each depth
    std::unordered_set<std::string> outermost_;
};

template <class AnyJson>
AnyJson parse(std::string_view text, const std::string& origin, std::string_view fix,
              size_t most_names) {
    // The library takes it as the end.
    if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
        throw UserError("{}: no JSON: a character of code 0{}{}",
                        place_of(origin, text, text.data() + nul + 1), fix.empty() ? "" : "; ",
                        fix);
    Limits(text, origin, most_names).look_through();
    try {
        return AnyJson::parse(text.begin(), text.end());
    } catch (const typename AnyJson::exception& error) {
        throw UserError("{}: {}{}{}", origin, plain_words(error.what()), fix.empty() ? "" : "; ",
                        fix);
    }
}

}  // namespace

namespace {

// And its bytes.
std::pair<Descriptor, int64_t> open_regular(const std::filesystem::path& path) {
    // Not blocking: a pipe would wait for a writer.
    Descriptor file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) refuse(path, errno);
    if (S_ISDIR(status.st_mode)) throw UserError("{}: is a folder, expected a file", path.string());
    if (!S_ISREG(status.st_mode))
        throw UserError("{}: is a pipe or a device, expected a regular file", path.string());
    note_input(path);
    return {std::move(file), status.st_size};
}

}  // namespace

void copy_regular_file(const std::filesystem::path& path, std::ostream& to, int64_t bytes) {
    const auto [file, found] = open_regular(path);
    const int64_t size = bytes < 0 ? found : bytes;
    int64_t copied = 0;
    for (bool is_whole = false; !is_whole;) {
        const std::optional<std::string> part = read_bytes(file, size_t{1} << 20);
        if (!part) refuse(path, errno);
        copied += std::ssize(*part);
        is_whole = part->empty();
        if (!to.write(part->data(), std::ssize(*part))) return;  // its writer says why
    }
    if (copied != size)
        throw UserError(
            "{}: it had {} bytes and has {} now: it was truncated or replaced; copy it again",
            path.string(), size, copied);
}

std::string read_regular_file(const std::filesystem::path& path, int64_t most_bytes) {
    const auto [file, size] = open_regular(path);
    if (size > most_bytes)
        throw UserError("{}: has {} bytes; such files have at most {}", path.string(), size,
                        most_bytes);
    // Fewer bytes where it became shorter.
    std::optional<std::string> text = read_bytes(file, static_cast<size_t>(size));
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
