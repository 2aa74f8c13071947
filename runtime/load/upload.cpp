// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/upload.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "importer/weights/read_transposed.h"
#include "importer/weights/weight_reader.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/rounding.h"
#include "runtime/base/thread_team.h"
#include "runtime/base/threads.h"
#include "runtime/device/async_device.h"
#include "runtime/device/bounded_waits.h"
#include "runtime/load/packed_copy.h"
#include "runtime/load/read_ahead.h"

namespace cleave::runtime {

namespace {

using namespace planner;
using importer::RopeTable;
using importer::Weight;
using importer::WeightReader;

// Where chunks of shards are cut and converted, before their upload: of a GPU its pinned memory, in
// which the next chunk is made while the last is still copied.
class Chunks {
public:
    explicit Chunks(Device& device) : stream_(device.stream()) {}
    int64_t bytes() const { return stream_ ? kOfStream : kOfHost; }
    std::span<std::byte> take(int64_t bytes) {
        if (stream_) return stream_->upload_space(bytes);
        own_.resize(static_cast<size_t>(bytes));
        return own_;
    }

private:
    // Large enough to amortise a call; of the host, small enough to stay in the second-level cache
    // between cut and upload.
    static constexpr int64_t kOfHost = int64_t{1} << 20, kOfStream = int64_t{4} << 20;
    DeviceStream* stream_;
    std::vector<std::byte> own_;
};

// What all devices' uploads share.
class Uploads {
public:
    Uploads(const Plan& plan, std::span<const std::unique_ptr<Device>> devices,
            const UploadOptions& options)
        : options_(options), held_(std::make_shared<Held>(plan)) {
        if (options.keep_packed) held_->packed.emplace(plan, devices, held_->reader);
        for (const WeightShard& shard : plan.weights)
            if (devices[shard.device.index()])
                total_ += kept(shard).empty() ? moved_bytes(plan, shard) : std::ssize(kept(shard));
    }

    // Without the room between the parts of a quantised one.
    static int64_t moved_bytes(const Plan& plan, const WeightShard& shard) {
        const Weight& weight = plan.graph.weight(shard.weight);
        if (!stays_quantized(weight, shard.dtype)) return shard_bytes(plan, shard);
        const auto l = quantized_layout(importer::quantized_format(weight), shard.rows.size(),
                                        shard.columns.size());
        return shard.rows.size() * (l.row_bytes + l.scale_row_bytes + l.zero_row_bytes);
    }

    const WeightReader& reader() const { return held_->reader; }
    PackedCopy* packed() const { return held_->packed ? &*held_->packed : nullptr; }
    // The shard in a packed copy; nothing where there is none.
    std::span<const std::byte> kept(const WeightShard& shard) const {
        return packed() ? packed()->find(shard) : std::span<const std::byte>();
    }
    // What a shard is read from.
    std::span<const std::byte> source(const WeightShard& shard) const {
        const auto copy = kept(shard);
        return copy.empty() ? reader().stored_bytes(shard.weight, shard.rows) : copy;
    }
    // Of what is used in place.
    std::shared_ptr<const void> owner() const { return held_; }

    void throw_if_failed() const {
        if (failed_.load(std::memory_order_relaxed)) throw Cancelled();
    }
    int64_t moved() const { return moved_.load(std::memory_order_relaxed); }
    void advance(int64_t bytes) {
        if (options_.cancel) options_.cancel->throw_if_cancelled();
        throw_if_failed();
        moved_.fetch_add(bytes, std::memory_order_relaxed);
        std::lock_guard lock(mutex_);
        done_ += bytes;
        if (options_.progress) options_.progress(done_, total_);
    }

    // The first exception wins; the others only stopped because of it.
    void fail(std::exception_ptr error) {
        std::lock_guard lock(mutex_);
        if (!error_) error_ = std::move(error);
        failed_.store(true, std::memory_order_relaxed);
    }
    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

private:
    struct Held {
        explicit Held(const Plan& plan) : reader(plan.graph) {}
        WeightReader reader;
        std::optional<PackedCopy> packed;
    };
    const UploadOptions& options_;
    std::shared_ptr<Held> held_;
    std::mutex mutex_;
    int64_t done_ = 0, total_ = 0;
    std::atomic<int64_t> moved_{0};  // as done_, for who waits
    std::atomic<bool> failed_{false};
    std::exception_ptr error_;
};

// One device's shards, in the plan's order: each in chunks of rows, which threads cut and convert
// together.
class DeviceUpload {
public:
    DeviceUpload(const Plan& plan, Arenas& arenas, DeviceId id, Device& device, Uploads& uploads,
                 int threads)
        : plan_(plan),
          arenas_(arenas),
          device_(device),
          uploads_(uploads),
          chunks_(device),
          team_(threads, false) {
        for (const WeightShard& shard : plan.weights)
            if (shard.device == id && shard.buffer.valid()) shards_.push_back(&shard);
        std::vector<ReadAhead::Span> spans;
        for (const WeightShard* shard : shards_) spans.push_back(uploads.source(*shard));
        ahead_.emplace(std::move(spans));
    }

    void run() {
        for (shard_ = 0; shard_ < shards_.size(); ++shard_) {
            const WeightShard& shard = *shards_[shard_];
            if (shard.rows.empty() || shard_columns(plan_, shard) == 0) continue;
            const auto stored = in_place(uploads_.reader(), device_, shard);
            const auto kept = uploads_.kept(shard);
            if (!stored.empty())
                use_in_place(shard, stored);
            else if (!kept.empty())
                use_kept(shard, kept);
            else if (stays_quantized(weight(shard), shard.dtype))
                send_quantized(shard);
            else
                send_dense(shard);
        }
    }

private:
    const Weight& weight(const WeightShard& shard) const {
        return plan_.graph.weight(shard.weight);
    }

    // read(begin, end) of the chunk's rows by all threads, in parts of whole tiles of what lies
    // transposed.
    template <class Read>
    void read_rows(const WeightShard& shard, Range rows, int64_t row_bytes, Read read) {
        const Range so_far{shard.rows.begin, rows.end};
        ahead_->about_to_read(shard_, uploads_.reader().stored_bytes(shard.weight, so_far).size());
        constexpr int64_t kBytes = int64_t{128} << 10;
        const int64_t grain =
            round_up(std::max<int64_t>(1, kBytes / row_bytes), importer::kTransposedTileRows);
        std::mutex mutex;
        std::exception_ptr error;
        team_.split(
            rows.size(),
            [&](int64_t begin, int64_t end, int) {
                try {
                    read(begin, end);
                } catch (...) {
                    std::lock_guard lock(mutex);
                    error = std::current_exception();
                }
            },
            grain);
        if (error) std::rethrow_exception(error);
    }

    // All of it is brought in: the first pass does not wait for pages one by one.
    void use_in_place(const WeightShard& shard, std::span<const std::byte> stored) {
        constexpr size_t kPiece = size_t{64} << 20;
        constexpr int64_t kGrain = int64_t{1} << 20;
        for (size_t at = 0; at < stored.size(); at += kPiece) {
            const auto piece = stored.subspan(at, std::min(kPiece, stored.size() - at));
            ahead_->about_to_read(shard_, at + piece.size());
            team_.split(
                static_cast<int64_t>(piece.size()),
                [&](int64_t begin, int64_t end, int) {
                    bring_in(piece.subspan(static_cast<size_t>(begin),
                                           static_cast<size_t>(end - begin)));
                },
                kGrain);
            uploads_.advance(static_cast<int64_t>(piece.size()));
        }
        arenas_.place(shard.buffer, stored.data());
    }

    // On the host where it is mapped; other devices and NUMA nodes get it as it is.
    void use_kept(const WeightShard& shard, std::span<const std::byte> kept) {
        if (reads_mapped(device_)) return use_in_place(shard, kept);
        const auto most = static_cast<size_t>(chunks_.bytes());
        for (size_t at = 0; at < kept.size(); at += most) {
            const auto part = kept.subspan(at, std::min(most, kept.size() - at));
            const auto chunk = chunks_.take(static_cast<int64_t>(part.size()));
            std::ranges::copy(part, chunk.begin());
            device_.upload(arenas_.address(shard.buffer) + at, chunk);
            uploads_.advance(static_cast<int64_t>(part.size()));
        }
    }

    void send(const WeightShard& shard, int64_t offset, std::span<const std::byte> bytes) {
        if (bytes.empty()) return;
        device_.upload(arenas_.address(shard.buffer) + static_cast<DeviceAddress>(offset), bytes);
        if (uploads_.packed()) uploads_.packed()->write(shard, offset, bytes);
    }

    void send_dense(const WeightShard& shard) {
        const int64_t row_bytes = dtype_bytes(shard.dtype, shard_columns(plan_, shard));
        const int64_t rows_per_chunk = std::max<int64_t>(1, chunks_.bytes() / row_bytes);
        for (int64_t row = shard.rows.begin; row < shard.rows.end; row += rows_per_chunk) {
            const Range rows{row, std::min(shard.rows.end, row + rows_per_chunk)};
            const std::span<std::byte> chunk = chunks_.take(rows.size() * row_bytes);
            read_rows(shard, rows, row_bytes, [&](int64_t begin, int64_t end) {
                uploads_.reader().read(shard.weight, {row + begin, row + end}, shard.columns,
                                       shard.dtype, rows_of(chunk, begin, end, row_bytes));
            });
            send(shard, (row - shard.rows.begin) * row_bytes, chunk);
            uploads_.advance(static_cast<int64_t>(chunk.size()));
        }
    }

    // Codes, scales and zero points of some rows at a time, each to its own part of the buffer.
    void send_quantized(const WeightShard& shard) {
        const auto format = importer::quantized_format(weight(shard));
        const auto l = quantized_layout(format, shard.rows.size(), shard.columns.size());
        CLEAVE_CHECK(l.bytes <= plan_.buffer(shard.buffer).size)
            << weight(shard).name << " takes " << l.bytes << " bytes";
        const int64_t row_bytes = l.row_bytes + l.scale_row_bytes + l.zero_row_bytes;
        const int64_t rows_per_chunk = std::max<int64_t>(1, chunks_.bytes() / row_bytes);
        for (int64_t row = 0; row < shard.rows.size(); row += rows_per_chunk) {
            const int64_t count = std::min(shard.rows.size() - row, rows_per_chunk);
            const std::span<std::byte> all = chunks_.take(count * row_bytes);
            const auto part = [&](int64_t before, int64_t size) {
                return all.subspan(static_cast<size_t>(count * before),
                                   static_cast<size_t>(count * size));
            };
            const importer::QuantizedParts parts{
                part(0, l.row_bytes), part(l.row_bytes, l.scale_row_bytes),
                part(l.row_bytes + l.scale_row_bytes, l.zero_row_bytes)};
            const int64_t first = shard.rows.begin + row;
            read_rows(shard, {first, first + count}, row_bytes, [&](int64_t begin, int64_t end) {
                uploads_.reader().read_quantized(
                    shard.weight, {first + begin, first + end}, shard.columns,
                    {rows_of(parts.codes, begin, end, l.row_bytes),
                     rows_of(parts.scales, begin, end, l.scale_row_bytes),
                     rows_of(parts.zero_points, begin, end, l.zero_row_bytes)});
            });
            send(shard, row * l.row_bytes, parts.codes);
            send(shard, l.scales_offset + row * l.scale_row_bytes, parts.scales);
            send(shard, l.zeros_offset + row * l.zero_row_bytes, parts.zero_points);
            uploads_.advance(static_cast<int64_t>(all.size()));
        }
    }

    static std::span<std::byte> rows_of(std::span<std::byte> all, int64_t begin, int64_t end,
                                        int64_t row_bytes) {
        return all.subspan(static_cast<size_t>(begin * row_bytes),
                           static_cast<size_t>((end - begin) * row_bytes));
    }

    const Plan& plan_;
    Arenas& arenas_;
    Device& device_;
    Uploads& uploads_;
    Chunks chunks_;
    ThreadTeam team_;
    std::vector<const WeightShard*> shards_;
    std::optional<ReadAhead> ahead_;
    size_t shard_ = 0;
};

std::vector<float> rope_table_from_weights(const RopeTable& table, const WeightReader& reader,
                                           int64_t positions) {
    int64_t half = table.rotary_dim / 2;
    if (table.max_positions < positions) {
        throw UserError(
            "the rotary table '{}' ends at position {}, but the context is {}; use $context {} or "
            "less",
            table.name, table.max_positions, positions, table.max_positions);
    }
    std::vector<float> values(static_cast<size_t>(2 * positions * half));
    auto bytes = std::as_writable_bytes(std::span(values));
    reader.read(table.cos, {0, positions}, {0, half}, DType::kF32, bytes.first(bytes.size() / 2));
    reader.read(table.sin, {0, positions}, {0, half}, DType::kF32, bytes.last(bytes.size() / 2));
    return values;
}

void upload_device(const Plan& plan, Arenas& arenas, DeviceId id, Device& device,
                   const std::vector<std::vector<float>>& rope_tables, Uploads& uploads,
                   int threads) {
    DeviceUpload(plan, arenas, id, device, uploads, threads).run();
    for (const RopeShard& shard : plan.rope_tables) {
        if (shard.device != id) continue;
        const std::vector<float>& values = rope_tables[shard.table.index()];
        CLEAVE_CHECK(static_cast<int64_t>(values.size() * sizeof(float)) <=
                     plan.buffer(shard.buffer).size)
            << "a rotary table of " << values.size() << " values in "
            << plan.buffer(shard.buffer).size << " bytes";
        device.upload(arenas.address(shard.buffer), std::as_bytes(std::span(values)));
    }
    device.synchronize();
}

// Each table that some device holds, by RopeTableId.
std::vector<std::vector<float>> make_rope_tables(const Plan& plan, const WeightReader& reader) {
    std::vector<std::vector<float>> tables(plan.graph.rope_tables.size());
    for (const RopeShard& shard : plan.rope_tables) {
        std::vector<float>& values = tables[shard.table.index()];
        if (!values.empty()) continue;
        const RopeTable& table = plan.graph.rope_table(shard.table);
        values = table.frequencies.empty()
                     ? rope_table_from_weights(table, reader, plan.workload.context)
                     : rope_table_from_frequencies(table, plan.workload.context);
    }
    return tables;
}

}  // namespace

std::vector<float> rope_table_from_frequencies(const RopeTable& table, int64_t positions) {
    size_t half = table.frequencies.size();
    size_t count = static_cast<size_t>(positions) * half;
    std::vector<float> values(2 * count);
    for (size_t p = 0; p < static_cast<size_t>(positions); ++p) {
        for (size_t i = 0; i < half; ++i) {
            double angle = static_cast<double>(p) * static_cast<double>(table.frequencies[i]);
            values[p * half + i] = static_cast<float>(std::cos(angle) * table.magnitude);
            values[count + p * half + i] = static_cast<float>(std::sin(angle) * table.magnitude);
        }
    }
    return values;
}

void check_weights_present(const Plan& plan) {
    for (const WeightShard& shard : plan.weights) {
        const Weight& weight = plan.graph.weight(shard.weight);
        if (!weight.data.has_data()) {
            throw UserError(
                "weight '{}' of {} has no data: a shape name, or a model without weights, can "
                "be planned but not run; give the model's own file ($write_model makes one with "
                "random weights)",
                weight.name, plan.graph.name);
        }
        if (weight.data.file.valid() && !plan.graph.files[weight.data.file.index()].present) {
            throw UserError(
                "weight '{}' lies in '{}', which is absent; put the file there to run the model",
                weight.name, plan.graph.files[weight.data.file.index()].path);
        }
    }
}

int64_t upload_weights(const Plan& plan, Arenas& arenas,
                       std::span<const std::unique_ptr<Device>> devices,
                       const UploadOptions& options) {
    Uploads uploads(plan, devices, options);
    arenas.keep(uploads.owner());
    std::vector<std::vector<float>> rope_tables = make_rope_tables(plan, uploads.reader());
    // More than a few would only wait for memory.
    const int cores = options.threads > 0 ? options.threads : available_cores();
    const auto here = std::count_if(devices.begin(), devices.end(), [](auto& d) { return !!d; });
    const int threads_of_device =
        std::clamp(cores / std::max<int>(1, static_cast<int>(here)), 1, 8);
    Threads threads;
    for (size_t d = 0; d < devices.size(); ++d) {
        if (!devices[d]) continue;  // another rank's
        threads.start([&, d] {
            try {
                const BoundedWaits bounded(
                    *devices[d], "bringing the weights", options.watchdog_seconds, options.cancel,
                    {[&] { uploads.throw_if_failed(); }, [&] { return uploads.moved(); }});
                upload_device(plan, arenas, DeviceId(d), *devices[d], rope_tables, uploads,
                              threads_of_device);
            } catch (...) {
                uploads.fail(std::current_exception());
            }
        });
    }
    threads.join();
    uploads.rethrow();
    const std::string line = uploads.packed() ? uploads.packed()->commit() : "";
    if (!line.empty() && options.note) options.note(line);
    return uploads.moved();
}

}  // namespace cleave::runtime
