// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/packed_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/base/hash.h"
#include "runtime/base/own_folder.h"
#include "runtime/base/path_state.h"
#include "runtime/base/reason.h"
#include "runtime/base/rounding.h"

namespace cleave::runtime {

using namespace planner;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMagic = "CLEAVEP1", kSuffix = ".packed";
constexpr int64_t kPage = 4096;
constexpr int64_t kAlignment = 256;  // of a buffer in an arena

void add(Digest& digest, const importer::DataRef& data) {
    digest.add(data.file.valid() ? static_cast<int64_t>(data.file.index()) : -1)
        .add(static_cast<int64_t>(data.offset))
        .add(static_cast<int64_t>(data.length));
}

// All that says which bytes of the model's files a weight is, and what becomes of them.
void add(Digest& digest, const importer::Weight& w, const importer::WeightReader& reader) {
    digest.add(w.name).add(static_cast<int64_t>(w.shape.size()));
    for (int64_t n : w.shape) digest.add(n);
    for (int64_t n : w.source_shape) digest.add(n);
    add(digest, w.data);
    if (w.data.blob.valid()) digest.add(reader.bytes(w.data));
    const importer::Quantization& q = w.quantization;
    for (const importer::DataRef& part : {q.scales, q.zero_points}) {
        add(digest, part);
        if (part.blob.valid()) digest.add(reader.bytes(part));
    }
    for (const int64_t n :
         {static_cast<int64_t>(w.dtype), static_cast<int64_t>(w.packing), int64_t{w.transposed},
          w.rows.begin, w.rows.end, w.columns.begin, w.columns.end, q.block, int64_t{q.axis},
          static_cast<int64_t>(q.scale_dtype), int64_t{q.scales_transposed}, q.scale_count,
          static_cast<int64_t>(q.zero_point_dtype), int64_t{q.zero_points_in_words},
          int64_t{q.zero_offset}, q.scale_rows, int64_t{q.dynamic_activations},
          q.rounded_from ? static_cast<int64_t>(*q.rounded_from) : -1,
          w.gguf ? static_cast<int64_t>(*w.gguf) : -1})
        digest.add(n);
}

std::string times_of(const struct stat& s) {
    return fmt::format("{} {}.{:09} {}.{:09}", s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                       s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
}

// Of the program that packs: another one may round otherwise.
std::string this_program() {
    struct stat status{};
    return ::stat("/proc/self/exe", &status) == 0 ? times_of(status) : "unknown";
}

// The model's folder and name as parts of a file's name.
std::string plain_name(const importer::Graph& graph) {
    std::string out;
    for (const std::string& name :
         {fs::path(graph.path).parent_path().filename().string(), graph.name}) {
        for (const char c : name.substr(0, 64)) {
            const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                                  c == '_' || (c == '.' && !out.empty());
            out += is_plain ? c : '_';
        }
        if (!name.empty()) out += '.';
    }
    return out;
}

// What a copy is of: its content, what packed it, and the model's files as they are. UserError
// where one of them is not there.
std::string text_of(const importer::Graph& graph, const std::string& content) {
    std::string text = fmt::format("{}\nprogram {}\n", content, this_program());
    for (const importer::SourceFile& file : graph.files) {
        struct stat status{};
        if (file.present && ::stat(file.path.c_str(), &status) != 0)
            throw UserError("{}: {}", file.path, last_error().message());
        text += fmt::format("file {} {}\n", file.present ? times_of(status) : "absent", file.path);
    }
    return text;
}

// The header: the magic, the text's size and the text.
std::string header(const std::string& text) {
    const auto size = static_cast<int64_t>(text.size());
    std::string out(kMagic);
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    return out + text;
}

}  // namespace

int64_t shard_columns(const Plan& plan, const WeightShard& shard) {
    return plan.graph.weight(shard.weight).shape.size() < 2 ? 1 : shard.columns.size();
}

int64_t shard_bytes(const Plan& plan, const WeightShard& shard) {
    const importer::Weight& weight = plan.graph.weight(shard.weight);
    if (!importer::stays_quantized(weight, shard.dtype))
        return dtype_bytes(shard.dtype, shard.rows.size() * shard_columns(plan, shard));
    return importer::quantized_layout(importer::quantized_format(weight), shard.rows.size(),
                                      shard.columns.size())
        .bytes;
}

bool reads_mapped(const Device& device) {
    return device.info().kind == DeviceKind::kHost && !device.info().is_numa_node();
}

std::span<const std::byte> in_place(const importer::WeightReader& reader, const Device& device,
                                    const WeightShard& shard) {
    if (!reads_mapped(device)) return {};
    return reader.stored_as_read(shard.weight, shard.rows, shard.columns, shard.dtype);
}

PackedCopy::PackedCopy(const Plan& plan, std::span<const std::unique_ptr<Device>> devices,
                       const importer::WeightReader& reader)
    : plan_(plan), folder_(cache_folder("packed")), offsets_(plan.weights.size(), -1) {
    int64_t end = 0;
    for (size_t s = 0; s < plan.weights.size(); ++s) {
        const WeightShard& shard = plan.weights[s];
        const auto& device = devices[shard.device.index()];
        const int64_t bytes = shard.buffer.valid() ? shard_bytes(plan, shard) : 0;
        if (!device || bytes == 0 || !in_place(reader, *device, shard).empty()) continue;
        offsets_[s] = end;
        end = round_up(end + bytes, kAlignment);
    }
    if (end == 0) return;
    const std::string digest = content(reader);
    name_ = fmt::format("{}{}{}", plain_name(plan.graph), digest, kSuffix);
    const std::string start = header(text_of(plan.graph, digest));
    const int64_t first = round_up(static_cast<int64_t>(start.size()), kPage);
    for (int64_t& offset : offsets_)
        if (offset >= 0) offset += first;
    bytes_ = first + end + kAlignment;  // who reads whole vectors reads a few bytes further
    if (folder_.empty()) {
        why_not_ = kNoCachePlace;
        return;
    }
    make_own_folders(folder_);
    opened_ = open_own(folder_, why_not_);
    if (opened_ && !find_kept(start)) begin(start);
}

PackedCopy::~PackedCopy() = default;

std::string PackedCopy::content(const importer::WeightReader& reader) const {
    Digest digest;
    for (const importer::SourceFile& file : plan_.graph.files) digest.add(file.path);
    for (const WeightShard& shard : plan_.weights) {
        if (offset_of(shard) < 0) continue;
        add(digest, plan_.graph.weight(shard.weight), reader);
        for (const int64_t n :
             {shard.rows.begin, shard.rows.end, shard.columns.begin, shard.columns.end,
              static_cast<int64_t>(shard.dtype), offset_of(shard)})
            digest.add(n);
    }
    return digest.hex();
}

bool PackedCopy::find_kept(const std::string& start) {
    struct stat status{};
    if (::fstatat(opened_.get(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode) || !is_own(status) || status.st_size != bytes_)
        return false;
    MappedFile kept((folder_ / name_).string());
    if (std::ssize(kept.bytes()) != bytes_ ||
        std::memcmp(kept.bytes().data(), start.data(), start.size()) != 0)
        return false;
    kept_.emplace(std::move(kept));
    ::utimensat(opened_.get(), name_.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);  // used now
    return true;
}

void PackedCopy::begin(const std::string& start) {
    struct statvfs disk{};
    if (::fstatvfs(opened_.get(), &disk) == 0 &&
        static_cast<uint64_t>(bytes_) > uint64_t{disk.f_bavail} * disk.f_frsize) {
        why_not_ =
            fmt::format("{} has no room for {} bytes; remove old copies", folder_.string(), bytes_);
        return;
    }
    clear_the_way(opened_.get(), name_);
    made_.emplace(name_, 0600, opened_.get());
    made_->stream().write(start.data(), static_cast<std::streamsize>(start.size()));
}

std::span<const std::byte> PackedCopy::find(const WeightShard& shard) const {
    if (!kept_) return {};
    const int64_t offset = offset_of(shard);
    if (offset < 0) return {};
    return kept_->bytes().subspan(static_cast<size_t>(offset),
                                  static_cast<size_t>(shard_bytes(plan_, shard)));
}

void PackedCopy::write(const WeightShard& shard, int64_t offset, std::span<const std::byte> part) {
    const int64_t first = offset_of(shard);
    if (!made_ || first < 0) return;
    const std::lock_guard lock(mutex_);
    made_->stream().seekp(first + offset);
    made_->stream().write(reinterpret_cast<const char*>(part.data()),
                          static_cast<std::streamsize>(part.size()));
}

std::string PackedCopy::commit() {
    if (kept_ || bytes_ == 0) return "";
    if (made_) {
        made_->stream().seekp(bytes_ - 1);
        made_->stream().put('\0');
        const std::error_code error = made_->commit();
        made_.reset();
        if (!error)
            return fmt::format("packed weights, {} bytes, are kept in {}", bytes_,
                               (folder_ / name_).string());
        why_not_ = fmt::format("{}: {}", folder_.string(), error.message());
    }
    return fmt::format("packed weights are not kept: {}", why_not_);
}

int64_t PackedEntries::bytes() const {
    int64_t sum = 0;
    for (const OwnFile& entry : entries) sum += entry.bytes;
    return sum;
}

namespace {

// Calls use(entries, the opened folder), whose error is of the folder.
template <class Use>
PackedEntries with_entries(const Use& use) {
    PackedEntries all{cache_folder("packed"), {}};
    if (all.folder.empty()) throw UserError("no packed weights: {}", kNoCachePlace);
    if (!is_there(all.folder)) return all;
    std::string why;
    const Descriptor opened = open_own(all.folder, why);
    if (!opened) throw UserError("no packed weights: {}", why);
    std::error_code error;
    all.entries = files_of(opened.get(), kSuffix, error);
    if (!error) error = use(all, opened.get());
    if (error) throw UserError("{}: {}", all.folder.string(), error.message());
    return all;
}

}  // namespace

PackedEntries packed_entries() {
    return with_entries([](const PackedEntries&, int) { return std::error_code(); });
}

PackedEntries clear_packed() {
    return with_entries([](PackedEntries& all, int folder) {
        while (!all.entries.empty()) {
            if (::unlinkat(folder, all.entries.front().name.c_str(), 0) != 0 && errno != ENOENT)
                return last_error();
            all.entries.erase(all.entries.begin());
        }
        return std::error_code();
    });
}

}  // namespace cleave::runtime
