// SPDX-License-Identifier: Apache-2.0
// Lines of the notation (tests/support/notation.h) into records.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/errors.h"
#include "tests/support/notation_types.h"

namespace cleave::test {

// A value as it is written, or a line: a record of a kind, with its parts.
struct Node {
    enum class Kind : uint8_t { kWord, kText, kList, kRecord };
    Kind kind = Kind::kWord;
    std::string text;                // of a word or text; a record's kind
    std::vector<std::string> names;  // of a record's items: the fields, "" where none is named
    std::vector<Node> items;
    std::vector<Node> parts;
    size_t at = 0;       // in the text
    bool taken = false;  // read into a record
};

// Reads lines into records. Everything wrong is a UserError that begins "ORIGIN:LINE:COLUMN: ".
// References are resolved at last, so that lines may be in any order; until then the records that
// were read must neither move nor grow.
class Reader {
public:
    Reader(std::string text, std::string origin);

    // The lines that are parts of `record`, and the line of its kind.
    template <class T>
    void read(T& record) {
        for (Node& line : lines_)
            if (line.text == type_name<T>()) fields(take(line), record);
        parts(lines_, record);
    }
    // Into the names of `plan`. UserError for a name that is none and a line that nobody read.
    void resolve(const planner::Plan& plan);

private:
    struct Reference {
        int32_t* position;
        List list;
        std::string name;
        bool quoted;  // never a position
        size_t at;
    };

    [[noreturn]] void fail(size_t at, const std::string& message) const;
    [[noreturn]] void fail(const Node& node, const std::string& message) const {
        fail(node.at, message);
    }
    static Node& take(Node& line) {
        line.taken = true;
        return line;
    }
    void refuse_untaken(const std::vector<Node>& lines) const;

    template <class T>
    void parts(std::vector<Node>& lines, T& record) {
        auto name = field_names<T>.begin();
        visit_fields(record, [&](auto& field) { part(lines, std::string(*name++), field); });
    }
    template <class T>
    // NOLINTNEXTLINE(performance-unnecessary-value-param): of records it is changed
    void part(std::vector<Node>& lines, std::string name, T& field) {
        if constexpr (std::is_same_v<T, planner::Phase>) decode_ = name == "decode";
        if constexpr (is_records<T>)
            if (name.ends_with('s')) name.pop_back();
        std::vector<Node*> found;
        for (Node& line : lines)
            if (line.text == name) found.push_back(&line);
        if constexpr (is_record<T>) {
            if (found.size() > 1) fail(*found[1], fmt::format("a second {}", name));
            for (Node* line : found) whole_line(*line, 0, field);
        } else if constexpr (is_records<T>) {
            if (found.empty()) return;
            field.resize(found.size());
            for (size_t i = 0; i < found.size(); ++i) whole_line(*found[i], i, field[i]);
        }
    }
    template <class T>
    void whole_line(Node& line, size_t position, T& record) {
        take(line);
        if (!line.items.empty() && line.names[0].empty() && line.items[0].text.starts_with('#')) {
            if (line.items[0].text != fmt::format("#{}", position))
                fail(line.items[0], fmt::format("this is #{} of its list", position));
            line.items.erase(line.items.begin());
            line.names.erase(line.names.begin());
        }
        fields(line, record);
        if constexpr (has_parts<T>) parts(line.parts, record);
    }
    template <class T>
    void fields(Node& node, T& record) {
        if (node.kind != Node::Kind::kRecord)
            fail(node, "a record {FIELD=VALUE ..} is wanted here");
        const auto& names = field_names<T>;
        std::vector<bool> given(names.size());
        for (const Place place : {Place::kName, Place::kVariant, Place::kNamed}) {
            size_t i = 0;
            visit_fields(record, [&]<class F>(F& field) {
                const std::string_view name = names[i++];
                if (place_of<F>(name) != place) return;
                for (size_t n = 0; n < node.items.size(); ++n) {
                    if (node.items[n].taken ||
                        node.names[n] != (place == Place::kNamed ? name : std::string_view()))
                        continue;
                    if (given[i - 1]) {
                        if (place != Place::kNamed) break;
                        fail(node.items[n], fmt::format("{} is given twice", name));
                    }
                    value(node.items[n], field);
                    given[i - 1] = node.items[n].taken = true;
                }
            });
        }
        for (size_t n = 0; n < node.items.size(); ++n)
            if (!node.items[n].taken)
                fail(node.items[n],
                     fmt::format("there is no field '{}'; a {} has: {}", node.names[n],
                                 type_name<T>(), fmt::join(names, ", ")));
        if constexpr (has_usual<T>) {
            const T usual = left_out(record);
            size_t i = 0;
            with_fields(record, [&](auto&... field) {
                with_fields(usual, [&](const auto&... other) {
                    ((given[i++] ? void() : void(field = other)), ...);
                });
            });
        }
    }
    template <class T>
    void value(Node& node, T& x) {
        if constexpr (is_word<T>) {
            if (node.kind != Node::Kind::kWord && node.kind != Node::Kind::kText)
                fail(node, "a word or a number is wanted here");
            word(node, x);
        } else if constexpr (is_a<T, std::vector>) {
            x.resize(list(node).size());
            for (size_t i = 0; i < x.size(); ++i) value(node.items[i], x[i]);
        } else if constexpr (is_array<T>) {
            if (list(node).size() != x.size()) fail(node, fmt::format("{} are wanted", x.size()));
            for (size_t i = 0; i < x.size(); ++i) value(node.items[i], x[i]);
        } else if constexpr (is_a<T, std::optional>) {
            value(node, x.emplace());
        } else if constexpr (is_a<T, std::variant>) {
            variant(node, x, std::make_index_sequence<std::variant_size_v<T>>());
        } else {
            fields(node, x);
        }
    }
    std::vector<Node>& list(Node& node) const {
        if (node.kind != Node::Kind::kList) fail(node, "a list [VALUE, ..] is wanted here");
        return node.items;
    }
    template <class V, size_t... I>
    void variant(Node& node, V& x, std::index_sequence<I...>) {
        bool found = false;
        auto alternative = [&]<size_t J>(std::integral_constant<size_t, J>) {
            using A = std::variant_alternative_t<J, V>;
            if (node.text != type_name<A>()) return;
            found = true;
            A& a = x.template emplace<J>();
            if (node.kind == Node::Kind::kRecord) fields(node, a);
        };
        (alternative(std::integral_constant<size_t, I>()), ...);
        if (!found)
            fail(node,
                 fmt::format("'{}' is none of {}", node.text,
                             fmt::join({type_name<std::variant_alternative_t<I, V>>()...}, ", ")));
    }
    template <class T>
    void word(const Node& node, T& x) {
        if constexpr (is_a<T, Index>) {
            if (node.kind == Node::Kind::kText || node.text != "none")
                references_.push_back(
                    {&x.value, list_of<T> == List::kPrefill && decode_ ? List::kDecode : list_of<T>,
                     node.text, node.kind == Node::Kind::kText, node.at});
        } else if constexpr (std::is_enum_v<T>) {
            const std::vector<std::string>& names = enumerators<T>();
            const auto at = std::find(names.begin(), names.end(), node.text);
            if (at == names.end())
                fail(node, fmt::format("'{}' is none of {}", node.text, fmt::join(names, ", ")));
            x = static_cast<T>(at - names.begin());
        } else if constexpr (std::is_same_v<T, bool>) {
            if (node.text != "true" && node.text != "false") fail(node, "true or false is wanted");
            x = node.text == "true";
        } else if constexpr (std::is_arithmetic_v<T>) {
            const char* end = node.text.data() + node.text.size();
            const auto [stop, error] = std::from_chars(node.text.data(), end, x);
            if (stop != end || error != std::errc())
                fail(node, fmt::format("'{}' is no number that fits here", node.text));
        } else if constexpr (std::is_same_v<T, std::string>) {
            x = node.text;
        } else {
            if (!parse(node.text, x))
                fail(node, fmt::format("'{}' is not of this kind", node.text));
        }
    }
    static bool parse(const std::string& text, importer::Range& range);
    static bool parse(const std::string& text, importer::Dim& dim);
    static bool parse(const std::string& text, planner::Amount& amount);
    static bool parse(const std::string& text, std::vector<std::byte>& bytes);

    std::string text_, origin_;
    std::vector<Node> lines_;
    std::vector<Reference> references_;
    bool decode_ = false;
};

}  // namespace cleave::test
