// SPDX-License-Identifier: Apache-2.0
// Records of a plan, or beside one, as lines of the notation (tests/support/notation.h).
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/notation_types.h"

namespace cleave::test {

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
    void line(std::string_view kind, const T& record, int depth = 0) {
        const size_t begin = text_.size();
        text_.append(2 * static_cast<size_t>(depth), ' ').append(kind);
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
        auto name = field_names<T>.begin();
        visit_fields(record, [&](const auto& field) { part(*name++, field, depth); });
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
    void part(std::string_view name, const T& field, int depth) {
        if constexpr (std::is_same_v<T, planner::Phase>) decode_ = name == "decode";
        if constexpr (is_record<T>) {
            if (!same(field, T())) line(name, field, depth);
        } else if constexpr (is_records<T>) {
            if (name.ends_with('s')) name.remove_suffix(1);
            constexpr List list = list_of<typename T::value_type>;
            for (size_t i = 0; i < field.size(); ++i)
                line(list == List::kNone || names_.unique(in_phase(list), i)
                         ? std::string(name)
                         : fmt::format("{} #{}", name, i),
                     field[i], depth);
        }
    }
    // Its name, its variant, then what differs from the usual.
    template <bool kPartsApart, class T>
    void fields(const T& record) {
        const auto& names = field_names<T>;
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

}  // namespace cleave::test
