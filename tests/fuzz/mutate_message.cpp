// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <limits>
#include <random>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "tests/fuzz/harness.h"

namespace cleave::fuzz {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::array<int64_t, 14> kNumbers = {0,
                                              1,
                                              -1,
                                              2,
                                              3,
                                              16,
                                              255,
                                              65536,
                                              int64_t{1} << 31,
                                              (int64_t{1} << 31) - 1,
                                              int64_t{1} << 32,
                                              int64_t{1} << 62,
                                              std::numeric_limits<int64_t>::max(),
                                              std::numeric_limits<int64_t>::min()};

class Mutation {
public:
    explicit Mutation(uint64_t seed) : random_(seed) {}

    void change(Message& message) {
        const Reflection& reflection = *message.GetReflection();
        std::vector<const FieldDescriptor*> fields;
        reflection.ListFields(message, &fields);
        // Fields that are not set are those with their type's zero.
        if (fields.empty() || below(8) == 0) {
            fields.clear();
            for (int i = 0; i < message.GetDescriptor()->field_count(); ++i)
                fields.push_back(message.GetDescriptor()->field(i));
        }
        if (fields.empty()) return;
        const FieldDescriptor& field = *fields[below(fields.size())];
        if (field.is_repeated())
            change_list(message, reflection, field);
        else
            change_field(message, reflection, field);
    }

private:
    size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

    // One of the bounds, or near what it was.
    int64_t number(int64_t was) {
        switch (below(4)) {
            case 0: return static_cast<int64_t>(static_cast<uint64_t>(was) + 1);
            case 1: return static_cast<int64_t>(static_cast<uint64_t>(was) * 2);
            case 2: return was / 2;
            default: return kNumbers[below(kNumbers.size())];
        }
    }
    std::string text(std::string was) {
        if (was.empty() || below(4) == 0) return std::string(below(200), 'x');
        const size_t at = below(was.size());
        if (below(2) == 0)
            was.erase(at);
        else
            was[at] = static_cast<char>(below(256));
        return was;
    }

    void change_list(Message& message, const Reflection& reflection, const FieldDescriptor& field) {
        const int size = reflection.FieldSize(message, &field);
        const size_t kind = below(10);
        if (size == 0) {
            if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
                reflection.AddMessage(&message, &field);
            return;
        }
        const auto at = static_cast<int>(below(static_cast<size_t>(size)));
        if (kind == 0) return reflection.RemoveLast(&message, &field);
        if (kind == 1) return reflection.SwapElements(&message, &field, at, size - 1);
        switch (field.cpp_type()) {
            case FieldDescriptor::CPPTYPE_MESSAGE:
                if (kind == 2)
                    reflection.AddMessage(&message, &field)
                        ->CopyFrom(reflection.GetRepeatedMessage(message, &field, at));
                else
                    change(*reflection.MutableRepeatedMessage(&message, &field, at));
                break;
            case FieldDescriptor::CPPTYPE_INT32:
                reflection.SetRepeatedInt32(
                    &message, &field, at,
                    static_cast<int32_t>(number(reflection.GetRepeatedInt32(message, &field, at))));
                break;
            case FieldDescriptor::CPPTYPE_INT64:
                reflection.SetRepeatedInt64(
                    &message, &field, at, number(reflection.GetRepeatedInt64(message, &field, at)));
                break;
            case FieldDescriptor::CPPTYPE_STRING:
                reflection.SetRepeatedString(
                    &message, &field, at, text(reflection.GetRepeatedString(message, &field, at)));
                break;
            default: reflection.RemoveLast(&message, &field);
        }
    }

    void change_field(Message& message, const Reflection& r, const FieldDescriptor& field) {
        switch (field.cpp_type()) {
            case FieldDescriptor::CPPTYPE_MESSAGE:
                if (below(16) == 0) return r.ClearField(&message, &field);
                return change(*r.MutableMessage(&message, &field));
            case FieldDescriptor::CPPTYPE_INT32:
                return r.SetInt32(&message, &field,
                                  static_cast<int32_t>(number(r.GetInt32(message, &field))));
            case FieldDescriptor::CPPTYPE_INT64:
                return r.SetInt64(&message, &field, number(r.GetInt64(message, &field)));
            case FieldDescriptor::CPPTYPE_UINT32:
                return r.SetUInt32(&message, &field,
                                   static_cast<uint32_t>(number(r.GetUInt32(message, &field))));
            case FieldDescriptor::CPPTYPE_UINT64:
                return r.SetUInt64(&message, &field,
                                   static_cast<uint64_t>(
                                       number(static_cast<int64_t>(r.GetUInt64(message, &field)))));
            case FieldDescriptor::CPPTYPE_BOOL:
                return r.SetBool(&message, &field, !r.GetBool(message, &field));
            case FieldDescriptor::CPPTYPE_ENUM:
                return r.SetEnumValue(&message, &field,
                                      static_cast<int>(number(r.GetEnumValue(message, &field))));
            case FieldDescriptor::CPPTYPE_STRING:
                return r.SetString(&message, &field, text(r.GetString(message, &field)));
            default: return r.ClearField(&message, &field);
        }
    }

    std::mt19937_64 random_;
};

}  // namespace

void mutate_message(Message& message, uint64_t seed) {
    Mutation mutation(seed);
    for (uint64_t i = 0; i <= seed % 3; ++i) mutation.change(message);
}

}  // namespace cleave::fuzz
