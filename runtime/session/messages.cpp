// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/messages.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

static_assert(std::endian::native == std::endian::little);

class Writer {
public:
    template <class T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    template <class T>
    void put_list(const std::vector<T>& values) {
        static_assert(std::is_trivially_copyable_v<T>);
        put(static_cast<int64_t>(values.size()));
        bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    }
    void put_text(const std::string& text) {
        put(static_cast<int64_t>(text.size()));
        bytes += text;
    }
    std::string bytes;
};

class Reader {
public:
    explicit Reader(const std::string& all) : bytes_(all) {}
    void end() const {
        CLEAVE_CHECK(at_ == bytes_.size()) << bytes_.size() - at_ << " bytes too many";
    }

    template <class T>
    T take() {
        T value{};
        copy(&value, sizeof value);
        return value;
    }
    template <class T>
    std::vector<T> take_list() {
        std::vector<T> values(length(sizeof(T)));
        copy(values.data(), values.size() * sizeof(T));
        return values;
    }
    std::string take_text() {
        std::string text(length(1), 0);
        copy(text.data(), text.size());
        return text;
    }

private:
    size_t length(size_t each) {
        const auto count = take<int64_t>();
        CLEAVE_CHECK(count >= 0 && static_cast<uint64_t>(count) <= (bytes_.size() - at_) / each)
            << "a list of " << count << " in a message of " << bytes_.size() << " bytes";
        return static_cast<size_t>(count);
    }
    void copy(void* to, size_t size) {
        CLEAVE_CHECK(size <= bytes_.size() - at_)
            << "a message of " << bytes_.size() << " bytes ends early";
        if (size > 0) std::memcpy(to, bytes_.data() + at_, size);
        at_ += size;
    }
    const std::string& bytes_;
    size_t at_ = 0;
};

}  // namespace

std::string encode(const SessionMessage& message) {
    Writer w;
    w.put(message.call);
    if (message.call != SessionCall::kPass) return w.bytes;
    const Batch& b = message.batch;
    w.put(message.wanted);
    w.put(b.is_prefill);
    for (const auto* list :
         {&b.token_ids, &b.positions, &b.slots, &b.sequence_starts, &b.output_rows, &b.blocks})
        w.put_list(*list);
    w.put_list(b.copies);
    return w.bytes;
}

SessionMessage decode_session_message(const std::string& bytes) {
    Reader r(bytes);
    SessionMessage message;
    message.call = r.take<SessionCall>();
    if (message.call != SessionCall::kPass) return message;
    Batch& b = message.batch;
    message.wanted = r.take<PassResults>();
    b.is_prefill = r.take<bool>();
    for (auto* list :
         {&b.token_ids, &b.positions, &b.slots, &b.sequence_starts, &b.output_rows, &b.blocks})
        *list = r.take_list<int32_t>();
    b.copies = r.take_list<BlockCopy>();
    r.end();
    return message;
}

std::string encode(const PassResult& result) {
    Writer w;
    w.put(result.ticket);
    w.put_list(result.logits);
    w.put_list(result.tokens);
    return w.bytes;
}

PassResult decode_result(const std::string& bytes) {
    Reader r(bytes);
    PassResult result;
    result.ticket = r.take<Ticket>();
    result.logits = r.take_list<float>();
    result.tokens = r.take_list<int32_t>();
    r.end();
    return result;
}

std::string encode(const RankReport& report) {
    Writer w;
    for (int64_t number : {report.transferred_bytes, report.loaded_bytes, report.payload_bytes,
                           report.message_bytes})
        w.put(number);
    w.put(static_cast<int64_t>(report.peak_memory.size()));
    for (const auto& [device, bytes] : report.peak_memory) {
        w.put_text(device);
        w.put(bytes);
    }
    w.put_list(report.events);
    return w.bytes;
}

RankReport decode_report(const std::string& bytes) {
    Reader r(bytes);
    RankReport report;
    for (int64_t* number : {&report.transferred_bytes, &report.loaded_bytes, &report.payload_bytes,
                            &report.message_bytes})
        *number = r.take<int64_t>();
    const auto devices = r.take<int64_t>();
    for (int64_t d = 0; d < devices; ++d) {
        std::string name = r.take_text();
        report.peak_memory.emplace_back(std::move(name), r.take<int64_t>());
    }
    report.events = r.take_list<TraceEvent>();
    r.end();
    return report;
}

std::string encode_time(int64_t now_ns) {
    Writer w;
    w.put(now_ns);
    return w.bytes;
}

int64_t decode_time(const std::string& bytes) {
    Reader r(bytes);
    const auto now_ns = r.take<int64_t>();
    r.end();
    return now_ns;
}

std::string encode_busy(const std::vector<std::optional<double>>& seconds) {
    Writer w;
    for (size_t device = 0; device < seconds.size(); ++device) {
        if (!seconds[device]) continue;
        w.put(static_cast<int64_t>(device));
        w.put(*seconds[device]);
    }
    return w.bytes;
}

void decode_busy(const std::string& bytes, size_t devices,
                 std::vector<std::optional<double>>& all) {
    Reader r(bytes);
    for (size_t n = bytes.size() / (sizeof(int64_t) + sizeof(double)); n > 0; --n) {
        const auto device = static_cast<size_t>(r.take<int64_t>());
        CLEAVE_CHECK(device < devices) << "busy seconds of device " << device;
        all.resize(std::max(all.size(), device + 1));
        all[device] = r.take<double>();
    }
    r.end();
}

}  // namespace cleave::runtime
