// SPDX-License-Identifier: Apache-2.0
// What the notation (tests/support/notation.h) has to know of types: which fields are words, which
// records have parts on lines of their own, what a record leaves out, and what things are called.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
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

}  // namespace cleave::test
