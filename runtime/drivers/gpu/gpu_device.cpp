// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/gpu/gpu_device.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/errors.h"
#include "runtime/drivers/gpu/gpu_kernels.h"
#include "runtime/drivers/gpu/gpu_waits.h"
#include "runtime/drivers/gpu/pinned_ring.h"
#include "runtime/drivers/gpu/stream_points.h"
#include "runtime/drivers/host/host_memory.h"
#include "runtime/drivers/host/reduce.h"

namespace cleave::runtime {

std::string lower_case(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

std::string peers_text(const std::string& from, const std::string& to) {
    return fmt::format("{}, which is to reach the memory of {}", from, to);
}

std::string vendor_error(const char* name, const char* text, int code) {
    const std::string called = name ? name : fmt::format("error {}", code);
    return text && called != text ? fmt::format("{} ({})", called, text) : called;
}

namespace {

using Clock = std::chrono::steady_clock;

// Of sums and downloads through the host: the copy of one piece runs while the host takes the last.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

int64_t nanoseconds_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
        .count();
}

class GpuDevice final : public Device, public DeviceStream {
public:
    GpuDevice(std::shared_ptr<GpuDriver> driver, int ordinal, const planner::DeviceInfo& info,
              const GpuDeviceOptions& options)
        : driver_(std::move(driver)),
          context_(driver_->open(ordinal, info.name)),
          ordinal_(ordinal),
          info_(info),
          options_(options),
          waits_(driver_, ordinal, options.settle_time),
          points_(*context_, waits_),
          kernels_(*driver_, *context_, waits_, info_),
          ring_(
              *context_, [this](int64_t bytes) { return pin(bytes); },
              [this](GpuEvent event) { await(event); }) {}

    ~GpuDevice() override {
        waits_.set_check(nullptr);
        settle();
        if (waits_.must_be_left()) {
            leave_context();
            return;
        }
        drop_captures();
        kernels_.unload();
        // Kernels of every card may read and write pinned memory: to free it waits for all of them.
        const bool pinned_can_go = !driver_->left_alone().works();
        ring_.release();
        points_.release();
        for (std::vector<GpuEvent>* events : {&out_events_, &fences_, &mark_events_})
            for (GpuEvent event : *events) try_to([&] { context_->destroy_event(event); });
        for (const auto& [memory, bytes] : pinned_)
            if (pinned_can_go) {
                driver_->pinned().remove(memory);
                try_to([&] { context_->free_pinned(memory); });
            }
        for (const auto& [address, block] : blocks_) try_to([&] { context_->free(address); });
        if (!pinned_can_go) leave_context();  // with which its pinned memory would go
    }

    const planner::DeviceInfo& info() const override { return info_; }
    DeviceStream* stream() override { return this; }

    DeviceAddress allocate(int64_t bytes, const std::string& what) override {
        return take(bytes, what, false);
    }
    DeviceAddress allocate_exchange(int64_t bytes, const std::string& what) override {
        return take(bytes, what, true);
    }

    void free(DeviceAddress address) override {
        auto found = blocks_.find(address);
        CLEAVE_CHECK(found != blocks_.end())
            << "freeing memory that " << info_.name << " does not own";
        synchronize();
        context_->free(address);
        allocated_ -= found->second;
        blocks_.erase(found);
    }

    int64_t allocated_bytes() const override { return allocated_; }
    int64_t peak_allocated_bytes() const override { return peak_; }

    void fill(DeviceAddress address, int64_t bytes, uint8_t value) override {
        if (bytes > 0) on_stream().fill(address, bytes, value);
    }

    // The source has been read when it returns, the copy is on the stream.
    void upload(DeviceAddress destination, std::span<const std::byte> source) override {
        if (ring_.holds(source)) {
            if (!source.empty())
                on_stream().copy_in(source.data(), destination, line(source.size()));
            return;
        }
        for (size_t at = 0; at < source.size();) {
            const size_t size = std::min<size_t>(source.size() - at, PinnedRing::kBlockBytes);
            const std::span<std::byte> space = ring_.take(static_cast<int64_t>(size));
            std::memcpy(space.data(), source.data() + at, size);
            on_stream().copy_in(space.data(), destination + at, line(size));
            at += size;
        }
    }
    void download(DeviceAddress source, std::span<std::byte> destination) override {
        stream_out(source, static_cast<int64_t>(destination.size()),
                   [&](int64_t at, std::span<const std::byte> piece) {
                       std::memcpy(destination.data() + at, piece.data(), piece.size());
                   });
        if (!destination.empty()) ++synchronizations_;
    }

    void load(std::vector<codegen::CompiledKernel> kernels) override {
        drop_captures();
        kernels_.load(std::move(kernels));
        // Now, not at the first download: an allocation of pinned memory may wait for the kernels
        // of the card's other logical devices, which may wait for this one's (CUDA C++ Programming
        // Guide, "Implicit synchronization").
        for (int64_t block : {0, 1}) out_block(block, kPieceBytes);
        ring_.take(kPieceBytes);
        // So may an event's, for all that is written of it.
        ring_.make_events();
        points_.make_fences();
        make_events(fences_, kFences, false);
    }
    void expect_launch(int kernel, const codegen::Launch& launch) override {
        kernels_.expect_launch(kernel, launch);
    }
    void launch(int kernel, std::span<const uint64_t> args, const std::array<int64_t, 3>& grid,
                const codegen::Launch& launch) override {
        on_stream();
        kernels_.launch(kernel, args, grid, launch);
    }

    // To memory that the driver has not pinned it is done when it returns.
    void copy_out(DeviceAddress source, std::byte* destination, const Rectangle& r) override {
        if (r.rows <= 0 || r.row_bytes <= 0) return;
        if (driver_->pinned().holds(destination, span_of(r, r.destination_stride)))
            return on_stream().copy_out(source, destination, r);
        CLEAVE_CHECK(!capturing_) << "memory that is not pinned in a capture of " << info_.name;
        in_pieces(r, [&](int64_t from, int64_t to, const Rectangle& piece) {
            const std::span<std::byte> block = out_block(0, piece.rows * piece.row_bytes);
            on_stream().copy_out(source + static_cast<DeviceAddress>(from), block.data(),
                                 {piece.rows, piece.row_bytes, r.source_stride, piece.row_bytes});
            points_.record(out_events_[0]);
            await(out_events_[0]);
            for (int64_t row = 0; row < piece.rows; ++row)
                std::memcpy(destination + to + row * r.destination_stride,
                            block.data() + row * piece.row_bytes,
                            static_cast<size_t>(piece.row_bytes));
        });
    }
    // From memory that the driver has not pinned, such as a host's or another vendor's, through the
    // ring: then the source has been read when it returns.
    void copy_in(const std::byte* source, DeviceAddress destination, const Rectangle& r) override {
        if (r.rows <= 0 || r.row_bytes <= 0) return;
        if (driver_->pinned().holds(source, span_of(r, r.source_stride)))
            return on_stream().copy_in(source, destination, r);
        CLEAVE_CHECK(!capturing_) << "memory that is not pinned in a capture of " << info_.name;
        in_pieces(r, [&](int64_t from, int64_t to, const Rectangle& piece) {
            const std::span<std::byte> block = ring_.take(piece.rows * piece.row_bytes);
            for (int64_t row = 0; row < piece.rows; ++row)
                std::memcpy(block.data() + row * piece.row_bytes,
                            source + from + row * r.source_stride,
                            static_cast<size_t>(piece.row_bytes));
            on_stream().copy_in(
                block.data(), destination + static_cast<DeviceAddress>(to),
                {piece.rows, piece.row_bytes, piece.row_bytes, r.destination_stride});
        });
    }

    // Staged through the host, which adds: always right, on any vendor's devices.
    void reduce(std::span<const std::byte* const> sources, DeviceAddress residual,
                DeviceAddress destination, int64_t count, DType dtype,
                const Arrive& arrive) override {
        const int64_t bytes = dtype_bytes(dtype, count);
        std::vector<const std::byte*> at_piece(sources.size());
        const auto add = [&](int64_t at, int64_t size, const std::byte* with) {
            arrive(at + size);
            for (size_t s = 0; s < sources.size(); ++s) at_piece[s] = sources[s] + at;
            const std::span<std::byte> sum = ring_.take(size);
            reduce_elements(at_piece, with, sum.data(), 0, size / dtype_bytes(dtype, 1), dtype);
            on_stream().copy_in(sum.data(), destination + static_cast<DeviceAddress>(at),
                                line(sum.size()));
        };
        if (residual)
            return stream_out(residual, bytes, [&](int64_t at, std::span<const std::byte> piece) {
                add(at, static_cast<int64_t>(piece.size()), piece.data());
            });
        for (int64_t at = 0; at < bytes; at += kPieceBytes)
            add(at, std::min(kPieceBytes, bytes - at), nullptr);
    }

    void synchronize() override {
        waits_.until([&] { return context_->is_idle(); });
        points_.saw_all_done();
        ++synchronizations_;
    }

    // Devices of one driver: logical ones of one card share its memory, others need the driver's
    // word.
    Supports supports_peer_copy(const Device& other) const override {
        const auto* peer = dynamic_cast<const GpuDevice*>(&other);
        if (!peer || peer->driver_ != driver_)
            return {false,
                    fmt::format("{} and {} have different drivers", info_.name, other.info().name)};
        if (peer->ordinal_ != ordinal_ && !driver_->has_peer_access(ordinal_, peer->ordinal_))
            return {false, fmt::format("the driver gives {} no access to {}'s memory", info_.name,
                                       other.info().name)};
        return {true, {}};
    }
    void enable_peer_access(Device& other) override {
        auto* peer = dynamic_cast<GpuDevice*>(&other);
        if (!peer || peer->driver_ != driver_) return Device::enable_peer_access(other);
        if (peer->ordinal_ == ordinal_) return;
        peer->waits_.add_reached_by(ordinal_);
        context_->enable_peer_access(*peer->context_);
    }

    int64_t kernel_nanoseconds(int64_t nanoseconds) const override {
        constexpr int64_t kTakenHz = 100'000'000, kHz = 1000;
        const int64_t hz = driver_->facts(ordinal_).timer_hz;
        return hz > 0 ? nanoseconds / (kTakenHz / kHz) * (hz / kHz) : nanoseconds;
    }

    // Pinned memory has one address for the host and for kernels (unified addressing).
    std::span<std::byte> mailbox() override {
        if (mailbox_.empty()) mailbox_ = pinned_memory(kMailboxBytes);
        return mailbox_;
    }

    // ---- DeviceStream -----------------------------------------------------------------------

    void set_wait_check(std::function<void()> check) override {
        waits_.set_check(std::move(check));
    }
    uint64_t ended_calls() const override { return waits_.ended_calls(); }
    uint64_t synchronizations() const override { return synchronizations_; }
    uint64_t points() const override { return points_.asked(); }
    uint64_t passed_points() const override { return points_.passed(); }

    void settle() noexcept override {
        if (capturing_) abandon_capture();
        waits_.settle(*context_);
    }

    void copy_within(DeviceAddress source, DeviceAddress destination, const Rectangle& r) override {
        if (r.rows > 0 && r.row_bytes > 0) on_stream().copy_within(source, destination, r);
    }
    Supports overlap_launches(bool wanted) override { return context_->overlap_launches(wanted); }
    uint64_t overlapped_launches() const override { return context_->overlapped_launches(); }

    int64_t free_bytes() override { return context_->free_bytes(); }
    void make_current() override { context_->make_current(); }
    void* native_stream() override { return context_->native_stream(); }

    void begin_capture() override {
        context_->begin_capture();
        capturing_ = true;
    }
    int end_capture() override {
        capturing_ = false;
        captures_.push_back(context_->end_capture());
        return static_cast<int>(captures_.size()) - 1;
    }
    void abandon_capture() noexcept override {
        capturing_ = false;
        context_->abandon_capture();
    }
    void bring(int capture) override { context_->bring(graph_of(capture)); }
    void replay(int capture) override { on_stream().replay(graph_of(capture)); }
    void drop_captures() override {
        for (GpuGraph graph : captures_) try_to([&] { context_->destroy_graph(graph); });
        captures_.clear();
    }

    // The first of a row of marks is set against the host's clock, which is read before the mark is
    // asked for: a row then never begins before the one before it ended, however late a wait ends.
    void mark() override {
        if (marks_ == 0) {
            reserve_marks(1);
            synchronize();
            origin_ns_ = nanoseconds_now();
            on_stream().record(mark_events_[0]);
        }
        reserve_marks(++marks_);
        on_stream().record(mark_events_[marks_]);
    }
    void reserve_marks(size_t count) override { make_events(mark_events_, count + 1, true); }
    std::vector<int64_t> take_marks() override {
        synchronize();
        std::vector<int64_t> times;
        for (size_t i = 1; i <= marks_; ++i)
            times.push_back(
                origin_ns_ +
                static_cast<int64_t>(context_->elapsed_ms(mark_events_[0], mark_events_[i]) * 1e6));
        marks_ = 0;
        return times;
    }

    void place_fence(int i) override {
        make_events(fences_, static_cast<size_t>(i) + 1, false);
        points_.record(fences_[static_cast<size_t>(i)]);
    }
    void await_fence(int i) override { await(fences_.at(static_cast<size_t>(i))); }

    std::span<std::byte> upload_space(int64_t bytes) override { return ring_.take(bytes); }

    std::span<std::byte> pinned_memory(int64_t bytes) override {
        std::byte* memory = pin(bytes);
        driver_->pinned().add(memory, std::max<int64_t>(bytes, 1));
        std::memset(memory, 0, static_cast<size_t>(bytes));
        return {memory, static_cast<size_t>(bytes)};
    }

private:
    // It goes with the process.
    void leave_context() { [[maybe_unused]] auto* left = context_.release(); }

    // Pinned memory that goes with the device, also when the wait for it is given up.
    std::byte* pin(int64_t bytes) {
        std::byte* memory = nullptr;
        waits_.call([context = context_.get(),
                     bytes] { return context->allocate_pinned(std::max<int64_t>(bytes, 1)); },
                    [&](std::byte* given) {
                        memory = given;
                        if (given) pinned_.emplace_back(given, bytes);
                    });
        if (!memory)
            throw DeviceError(fmt::format("allocating {} bytes of pinned host memory", bytes),
                              "the host has none left", info_.name);
        return memory;
    }

    static Rectangle line(size_t bytes) {
        const auto n = static_cast<int64_t>(bytes);
        return {1, n, n, n};
    }

    GpuGraph graph_of(int capture) const {
        CLEAVE_CHECK(capture >= 0 && static_cast<size_t>(capture) < captures_.size())
            << "capture " << capture << " of " << captures_.size() << " on " << info_.name;
        return captures_[static_cast<size_t>(capture)];
    }

    // From the first byte of a rectangle to the last.
    static int64_t span_of(const Rectangle& r, int64_t stride) {
        return (r.rows - 1) * stride + r.row_bytes;
    }

    // Rows of `r`, or parts of one that is large, as many at once as a piece holds; `act` gets
    // where they begin on both sides, and how many there are of how many bytes.
    template <class Act>
    static void in_pieces(const Rectangle& r, Act act) {
        const int64_t rows = std::max<int64_t>(1, kPieceBytes / r.row_bytes);
        for (int64_t row = 0; row < r.rows; row += rows)
            for (int64_t at = 0; at < r.row_bytes; at += kPieceBytes)
                act(row * r.source_stride + at, row * r.destination_stride + at,
                    {std::min(rows, r.rows - row), std::min(kPieceBytes, r.row_bytes - at), 0, 0});
    }

    DeviceAddress take(int64_t bytes, const std::string& what, bool exchange) {
        CLEAVE_CHECK(!capturing_) << what << " is allocated on " << info_.name
                                  << " while it captures";
        const auto refuse = [&](const std::string& why) {
            return DeviceError(fmt::format("allocating {} bytes for {}", bytes, what), why,
                               info_.name);
        };
        if (info_.memory_bytes > 0 && bytes > info_.memory_bytes - allocated_)
            throw refuse(fmt::format("only {} of its {} bytes are left",
                                     info_.memory_bytes - allocated_, info_.memory_bytes));
        std::optional<DeviceAddress> address;
        waits_.call(
            [context = context_.get(), exchange, size = std::max<int64_t>(bytes, 1)] {
                return exchange ? context->allocate_exchange(size) : context->allocate(size);
            },
            [&](const std::optional<DeviceAddress>& given) {
                address = given;
                if (given) blocks_[*given] = bytes;
            });
        if (!address)
            throw refuse(fmt::format(
                "the driver has {} bytes free, the plan counts on {} bytes of which {} are used; "
                "another program may hold the rest",
                context_->free_bytes(), info_.memory_bytes, allocated_));
        CLEAVE_CHECK(*address % 256 == 0)
            << info_.name << " gave an address that is not aligned to 256";
        allocated_ += bytes;
        peak_ = std::max(peak_, allocated_);
        if (options_.poison) fill(*address, bytes, kPoisonByte);
        return *address;
    }

    // For one more operation there.
    GpuContext& on_stream() {
        if (!capturing_) points_.before_operation();
        return *context_;
    }
    void await(GpuEvent event) { points_.await(event); }
    void make_events(std::vector<GpuEvent>& events, size_t count, bool timed) {
        while (events.size() < count) events.push_back(context_->make_event(timed));
    }

    // Copies from the device piece by piece; `take` gets each, in pinned memory, while the next is
    // on its way.
    template <class Take>
    void stream_out(DeviceAddress source, int64_t bytes, Take take) {
        const int64_t pieces = (bytes + kPieceBytes - 1) / kPieceBytes;
        const auto piece_at = [&](int64_t i) {
            return out_block(i % 2, std::min(bytes, kPieceBytes))
                .first(static_cast<size_t>(std::min(kPieceBytes, bytes - i * kPieceBytes)));
        };
        const auto start = [&](int64_t i) {
            const std::span<std::byte> piece = piece_at(i);
            on_stream().copy_out(source + static_cast<DeviceAddress>(i * kPieceBytes), piece.data(),
                                 line(piece.size()));
            points_.record(out_events_[static_cast<size_t>(i % 2)]);
        };
        if (pieces > 0) start(0);
        for (int64_t i = 0; i < pieces; ++i) {
            if (i + 1 < pieces) start(i + 1);
            await(out_events_[static_cast<size_t>(i % 2)]);
            take(i * kPieceBytes, piece_at(i));
        }
    }
    std::span<std::byte> out_block(int64_t which, int64_t bytes) {
        std::span<std::byte>& block = out_[static_cast<size_t>(which)];
        make_events(out_events_, 2, false);
        if (static_cast<int64_t>(block.size()) < bytes)
            block = pinned_memory(bytes > kPieceBytes / 16 ? kPieceBytes : kPieceBytes / 16);
        return block;
    }

    std::shared_ptr<GpuDriver> driver_;
    std::unique_ptr<GpuContext> context_;
    int ordinal_;
    planner::DeviceInfo info_;
    GpuDeviceOptions options_;
    GpuWaits waits_;
    StreamPoints points_;
    GpuKernels kernels_;
    PinnedRing ring_;
    std::vector<std::pair<std::byte*, int64_t>> pinned_;  // the ring's, too
    std::span<std::byte> mailbox_;
    std::array<std::span<std::byte>, 2> out_;
    std::vector<GpuEvent> out_events_, fences_;
    std::map<DeviceAddress, int64_t> blocks_;
    int64_t allocated_ = 0, peak_ = 0;
    uint64_t synchronizations_ = 0;
    bool capturing_ = false;
    std::vector<GpuGraph> captures_;
    std::vector<GpuEvent> mark_events_;  // the first is the origin
    size_t marks_ = 0;
    int64_t origin_ns_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_gpu_device(std::shared_ptr<GpuDriver> driver, int ordinal,
                                        const planner::DeviceInfo& info,
                                        const GpuDeviceOptions& options) {
    return std::make_unique<GpuDevice>(std::move(driver), ordinal, info, options);
}

}  // namespace cleave::runtime
