// SPDX-License-Identifier: Apache-2.0
// Plans and their parts as text, which is read back: what the goldens of passes are written in.
//
//     graph tiny dtype=f16            a line is a record: its kind, its name, FIELD=VALUE ..
//       value x shape=[num_tokens, 64]     two spaces more: a part of the record above
//       op q linear{has_bias=true} inputs=[x] outputs=[y] weights=[q.weight, q.bias]
//     # a comment; four spaces more than a line has: the line goes on
//
// VALUE: a number, a word, "text", BEGIN..END, [VALUE, ..], {FIELD=VALUE ..}; a variant is the name
// of its type, with {..} where a field is set, and its field is not named. A field that has its
// default value is left out.
// Operators, values, devices, buffers .. are referred to by name: x@host[0] is the value x on a
// device, +x@host[0] a summand of it, and #7 the eighth of its list where a name is not unique.
//
// Always: read(print(plan)) == plan, in every field; equal plans give equal text. Records follow
// the structs (tests/support/fields.h): a new field needs nothing here.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/plan/plan.h"
#include "runtime/base/errors.h"
#include "tests/support/fields.h"

namespace cleave::test {

// ---- What differs from type to type ----

// clang-format off
// Lists whose elements are referred to.
enum class List : uint8_t {
    kNone, kOps, kValues, kWeights, kTables, kFiles, kDevices,  // names of their own
    kBuffers, kShards, kRopes, kSlabs, kPrefill, kDecode,       // names made of those
    kCount
};
template <class T>
inline constexpr List list_of = List::kNone;  // of an index, or of the record that it refers to
template <> inline constexpr List list_of<importer::OpId> = List::kOps;
template <> inline constexpr List list_of<importer::Op> = List::kOps;
template <> inline constexpr List list_of<importer::ValueId> = List::kValues;
template <> inline constexpr List list_of<importer::Value> = List::kValues;
template <> inline constexpr List list_of<importer::WeightId> = List::kWeights;
template <> inline constexpr List list_of<importer::Weight> = List::kWeights;
template <> inline constexpr List list_of<importer::RopeTableId> = List::kTables;
template <> inline constexpr List list_of<importer::RopeTable> = List::kTables;
template <> inline constexpr List list_of<importer::FileId> = List::kFiles;
template <> inline constexpr List list_of<importer::SourceFile> = List::kFiles;
template <> inline constexpr List list_of<planner::DeviceId> = List::kDevices;
template <> inline constexpr List list_of<planner::DeviceInfo> = List::kDevices;
template <> inline constexpr List list_of<planner::BufferId> = List::kBuffers;
template <> inline constexpr List list_of<planner::Buffer> = List::kBuffers;
template <> inline constexpr List list_of<planner::WeightShardId> = List::kShards;
template <> inline constexpr List list_of<planner::WeightShard> = List::kShards;
template <> inline constexpr List list_of<planner::RopeShardId> = List::kRopes;
template <> inline constexpr List list_of<planner::RopeShard> = List::kRopes;
template <> inline constexpr List list_of<planner::KvSlabId> = List::kSlabs;
template <> inline constexpr List list_of<planner::KvSlab> = List::kSlabs;
template <> inline constexpr List list_of<planner::PlacedId> = List::kPrefill;
template <> inline constexpr List list_of<planner::PlacedValue> = List::kPrefill;

// Records whose records are lines below theirs.
template <class T>
inline constexpr bool has_parts = false;
template <> inline constexpr bool has_parts<planner::Plan> = true;
template <> inline constexpr bool has_parts<importer::Graph> = true;
template <> inline constexpr bool has_parts<planner::Machine> = true;
template <> inline constexpr bool has_parts<planner::Phase> = true;
template <> inline constexpr bool has_parts<planner::Why> = true;

// clang-format on
// What a record has in the fields that its text leaves out.
template <class T>
T left_out(const T&) {
    return {};
}
template <class T>
inline constexpr bool has_usual =
    std::is_same_v<T, importer::Weight> || std::is_same_v<T, importer::Op>;
importer::Weight left_out(const importer::Weight& weight);  // the whole of what is stored
importer::Op left_out(const importer::Op& op);              // the kind of its attributes

template <class T>
inline constexpr bool is_word =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string> ||
    is_a<T, Index> || std::is_same_v<T, importer::Range> || std::is_same_v<T, importer::Dim> ||
    std::is_same_v<T, planner::Amount> || std::is_same_v<T, std::vector<std::byte>>;
template <class T>
inline constexpr bool is_record =
    std::is_class_v<T> && std::is_aggregate_v<T> && !is_word<T> && !is_array<T>;
template <class T>
inline constexpr bool is_records = false;
template <class T>
inline constexpr bool is_records<std::vector<T>> = is_record<T>;

// Where a field is written: a record's name first, a variant next, neither with FIELD=.
enum class Place : uint8_t { kName, kVariant, kNamed };
template <class T>
constexpr Place place_of(std::string_view field) {
    if (std::is_same_v<T, std::string> && field == "name") return Place::kName;
    return is_a<T, std::variant> ? Place::kVariant : Place::kNamed;
}

// ---- Names ----

// What the elements of a plan's lists are called; "" where only their position tells them apart.
class Names {
public:
    explicit Names(const planner::Plan& plan);
    std::string of(List list, int32_t position) const;
    bool unique(List list, size_t position) const;
    int32_t find(List list, const std::string& name) const;  // -1: there is none

private:
    void add(List list, std::vector<std::string> names);
    std::vector<std::string> names_[static_cast<size_t>(List::kCount)];
    std::map<std::string, int32_t> found_[static_cast<size_t>(List::kCount)];
};

// ---- Printing ----

std::string quoted(const std::string& text);  // only where it is no word
std::string word(importer::Range range);
std::string word(const importer::Dim& dim);
std::string word(const planner::Amount& amount);
std::string word(const std::vector<std::byte>& bytes);

class Printer {
public:
    explicit Printer(const planner::Plan& plan) : names_(plan) {}

    // A record as a line, its parts below it.
    template <class T>
    void line(const std::string& kind, const T& record, int depth = 0) {
        const size_t begin = text_.size();
        text_ += std::string(static_cast<size_t>(2 * depth), ' ') + kind;
        fields<has_parts<T>>(record);
        end_line(begin);
        if constexpr (has_parts<T>) parts(record, depth + 1);
    }
    // The same, the parts beside it; no line for a record that has nothing to say itself.
    template <class T>
    void whole(const T& record) {
        const size_t begin = text_.size();
        text_ += type_name<T>();
        const size_t empty = text_.size();
        fields<true>(record);
        text_.size() == empty ? text_.resize(begin) : end_line(begin);
        parts(record, 0);
    }
    // Its parts alone.
    template <class T>
    void parts(const T& record, int depth = 0) {
        const auto names = field_names<T>();
        auto name = names.begin();
        visit_fields(record, [&](const auto& field) { part(std::string(*name++), field, depth); });
    }
    // What the values of steps are called depends on the phase.
    void in_decode(bool decode) { decode_ = decode; }
    template <class T>
    std::string value_text(const T& x) {
        std::string kept = std::move(text_);
        text_.clear();
        value(x);
        std::swap(kept, text_);
        return kept;
    }
    const std::string& text() const { return text_; }

private:
    template <class T>
    void part(std::string name, const T& field, int depth) {
        if constexpr (std::is_same_v<T, planner::Phase>) decode_ = name == "decode";
        if constexpr (is_record<T>) {
            if (!same(field, T())) line(name, field, depth);
        } else if constexpr (is_records<T>) {
            if (name.ends_with('s')) name.pop_back();
            constexpr List list = list_of<typename T::value_type>;
            for (size_t i = 0; i < field.size(); ++i)
                line(list == List::kNone || names_.unique(in_phase(list), i)
                         ? name
                         : fmt::format("{} #{}", name, i),
                     field[i], depth);
        }
    }
    // Its name, its variant, then what differs from the usual.
    template <bool kPartsApart, class T>
    void fields(const T& record) {
        const auto names = field_names<T>();
        const T usual = left_out(record);
        for (const Place place : {Place::kName, Place::kVariant, Place::kNamed}) {
            auto name = names.begin();
            with_fields(record, [&](const auto&... field) {
                with_fields(usual, [&](const auto&... other) {
                    (one_field<kPartsApart>(place, *name++, field, other), ...);
                });
            });
        }
    }
    template <bool kPartsApart, class T>
    void one_field(Place place, std::string_view name, const T& field, const T& usual) {
        if constexpr (kPartsApart && (is_record<T> || is_records<T>)) return;
        if (place_of<T>(name) != place || (place != Place::kName && same(field, usual))) return;
        if (text_.back() != '{') text_ += ' ';
        if (place == Place::kNamed) text_ += std::string(name) + '=';
        value(field);
    }
    template <class T>
    void value(const T& x) {
        if constexpr (std::is_same_v<T, std::string>) {
            text_ += quoted(x);
        } else if constexpr (std::is_enum_v<T>) {
            text_ += enumerators<T>().at(static_cast<size_t>(x));
        } else if constexpr (std::is_arithmetic_v<T>) {
            text_ += fmt::format("{}", x);
        } else if constexpr (is_a<T, Index>) {
            text_ += names_.of(in_phase(list_of<T>), x.value);
        } else if constexpr (is_word<T>) {
            text_ += word(x);
        } else if constexpr (is_a<T, std::vector> || is_array<T>) {
            text_ += '[';
            for (size_t i = 0; i < x.size(); ++i) {
                if (i > 0) text_ += ", ";
                value(x[i]);
            }
            text_ += ']';
        } else if constexpr (is_a<T, std::optional>) {
            value(*x);
        } else if constexpr (is_a<T, std::pair>) {
            value(std::vector{x.first, x.second});
        } else if constexpr (is_a<T, std::variant>) {
            std::visit(
                [&]<class A>(const A& a) {
                    text_ += type_name<A>();
                    if (!same(a, A())) value(a);
                },
                x);
        } else {
            text_ += '{';
            fields<false>(x);
            text_ += '}';
        }
    }
    // Breaks the line that begins there at column 100.
    void end_line(size_t begin);
    List in_phase(List list) const {
        return list == List::kPrefill && decode_ ? List::kDecode : list;
    }

    Names names_;
    std::string text_;
    bool decode_ = false;
};

// A whole plan.
std::string print(const planner::Plan& plan);

// ---- Reading ----

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
        const auto names = field_names<T>();
        auto name = names.begin();
        visit_fields(record, [&](auto& field) { part(lines, std::string(*name++), field); });
    }
    template <class T>
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
        const auto names = field_names<T>();
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

// A whole plan.
planner::Plan read_plan(const std::string& text, const std::string& origin);

}  // namespace cleave::test
