// SPDX-License-Identifier: Apache-2.0
// The cubin's `.nv.info` sections hold records {u8 format, u8 attribute, u16 size or value,
// payload}. NVIDIA does not document them; the numbers below were read from cubins of NVRTC 13.0,
// and tests hold what they give against ptxas's log.
#include "codegen/compile/gpu_objects.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "codegen/compile/llvm_library.h"

namespace cleave::codegen {

namespace {

constexpr uint8_t kAttributeFrameSize = 0x11, kAttributeRegisters = 0x2f;
constexpr uint8_t kFormatSized =
    0x04;  // a payload of that many bytes follows; others are four bytes in all
constexpr size_t kElfHeader = 64, kSectionHeader = 64, kSymbol = 24;
constexpr uint16_t kMachineCuda = 190;
constexpr int64_t kReservedShared = 1024;

template <class T>
T read(std::string_view bytes, size_t at) {
    T value{};
    if (at <= bytes.size() && sizeof(T) <= bytes.size() - at)
        std::memcpy(&value, bytes.data() + at, sizeof(T));
    return value;
}

std::string_view text_at(std::string_view table, size_t at) {
    if (at >= table.size()) return {};
    return table.substr(at, table.find('\0', at) - at);
}

// The sections of a 64-bit little-endian ELF file, clipped to the file.
class ElfSections {
public:
    struct Section {
        std::string_view name, bytes;
        uint64_t size = 0;  // also of sections without bytes in the file
        bool has_bytes = true;
    };

    explicit ElfSections(std::string_view file) {
        if (file.size() < kElfHeader || !file.starts_with("\177ELF\2\1")) return;
        machine = read<uint16_t>(file, 18);
        auto at = read<uint64_t>(file, 40);
        auto count = read<uint16_t>(file, 60), names = read<uint16_t>(file, 62);
        for (size_t i = 0; i < count; ++i) {
            size_t header = at + i * kSectionHeader;
            if (header > file.size() || file.size() - header < kSectionHeader) return;
            Section section;
            section.has_bytes = read<uint32_t>(file, header + 4) != 8;  // SHT_NOBITS
            auto offset = read<uint64_t>(file, header + 24);
            section.size = read<uint64_t>(file, header + 32);
            if (section.has_bytes && offset <= file.size())
                section.bytes = file.substr(offset, section.size);
            name_offsets_.push_back(read<uint32_t>(file, header));
            sections.push_back(section);
        }
        if (names >= sections.size()) return;
        for (size_t i = 0; i < sections.size(); ++i)
            sections[i].name = text_at(sections[names].bytes, name_offsets_[i]);
    }

    const Section* find(std::string_view name) const {
        for (const Section& section : sections)
            if (section.name == name) return &section;
        return nullptr;
    }

    uint16_t machine = 0;
    std::vector<Section> sections;

private:
    std::vector<uint32_t> name_offsets_;
};

std::string_view bytes_of(const CompiledKernel& kernel) {
    return {reinterpret_cast<const char*>(kernel.object.data()), kernel.object.size()};
}

// The value of {symbol, value} records of `attribute` whose symbol is `index`.
std::optional<int64_t> attribute_of(std::string_view info, uint8_t attribute, uint32_t index) {
    for (size_t at = 0; at + 4 <= info.size();) {
        auto format = read<uint8_t>(info, at), kind = read<uint8_t>(info, at + 1);
        auto size = read<uint16_t>(info, at + 2);
        at += 4;
        if (format != kFormatSized) continue;
        if (kind == attribute && size >= 8 && read<uint32_t>(info, at) == index)
            return read<uint32_t>(info, at + 4);
        at += size;
    }
    return std::nullopt;
}

std::optional<uint32_t> symbol_index(const ElfSections& elf, std::string_view name) {
    const auto *symbols = elf.find(".symtab"), *names = elf.find(".strtab");
    if (!symbols || !names) return std::nullopt;
    for (size_t i = 0; (i + 1) * kSymbol <= symbols->bytes.size(); ++i)
        if (text_at(names->bytes, read<uint32_t>(symbols->bytes, i * kSymbol)) == name)
            return static_cast<uint32_t>(i);
    return std::nullopt;
}

// "..., 16 bytes spill stores, 24 bytes spill loads": the stores of the one kernel in the log.
std::optional<int64_t> spills_of(std::string_view log) {
    size_t at = log.find(" bytes spill stores");
    if (at == std::string_view::npos) return std::nullopt;
    size_t begin = log.find_last_not_of("0123456789", at - 1);
    begin = begin == std::string_view::npos ? 0 : begin + 1;
    int64_t value = 0;
    std::from_chars(log.data() + begin, log.data() + at, value);
    return value;
}

}  // namespace

void measure_cubin(CompiledKernel& kernel, std::string_view log) {
    ElfSections elf(bytes_of(kernel));
    const auto* info = elf.find(".nv.info");
    const auto* code = elf.find(".text." + kernel.name);
    std::optional<uint32_t> symbol = symbol_index(elf, kernel.name);
    if (elf.machine != kMachineCuda || !info || !code || !symbol) return;
    std::optional<int64_t> registers = attribute_of(info->bytes, kAttributeRegisters, *symbol);
    std::optional<int64_t> frame = attribute_of(info->bytes, kAttributeFrameSize, *symbol);
    if (!registers || !frame) return;
    const auto* shared = elf.find(".nv.shared." + kernel.name);
    Resources& r = kernel.measured;
    r.registers = *registers;
    r.stack_bytes = *frame;
    r.spill_bytes = spills_of(log).value_or(*frame);
    r.shared_bytes = shared ? static_cast<int64_t>(shared->size) : 0;
    // From sm_90 on the section begins with what the system keeps, which the limit of a block
    // leaves out.
    if (r.shared_bytes >= kReservedShared && elf.find(".nv.shared.reserved.0"))
        r.shared_bytes -= kReservedShared;
    r.code_bytes = static_cast<int64_t>(code->size);
    r.known = true;
}

void count_in_ptx(CompiledKernel& kernel, std::string_view ptx) {
    if (ptx.empty()) return;
    kernel.counted_in = "ptx";
    for (size_t at = 0; at < ptx.size();) {
        size_t end = std::min(ptx.find('\n', at), ptx.size());
        std::string_view line = ptx.substr(at, end - at);
        line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
        if (line.starts_with("mma.") || line.starts_with("wgmma.mma") ||
            line.starts_with("wmma.mma"))
            ++kernel.matrix_instructions[std::string(line.substr(0, line.find_first_of(" \t{;")))];
        at = end + 1;
    }
}

void measure_code_object(CompiledKernel& kernel, const GpuArch& arch) {
    const LlvmLibrary& llvm = find_llvm_library();
    if (!llvm.available) return;
    cleave_llvm_amdgpu_report report{};
    const bool read =
        llvm.amdgpu_inspect(kernel.object.data(), kernel.object.size(), kernel.name.c_str(),
                            std::string(arch.name).c_str(), &report) != 0;
    if (read) {
        Resources& r = kernel.measured;
        r.registers = report.vgprs;
        // Spilled scalar registers go to lanes of vector registers, and to memory only when those
        // spill.
        r.spill_bytes = 4 * report.vgpr_spills;
        r.stack_bytes = report.private_bytes;
        r.shared_bytes = report.lds_bytes;
        r.code_bytes = report.code_bytes;
        r.known = true;
    }
    if (report.matrix_instructions) {
        kernel.counted_in = "disassembly";
        kernel.matrix_instructions = parse_counts(report.matrix_instructions);
        llvm.free_log(report.matrix_instructions);
    }
    llvm.free_log(report.log);
}

std::map<std::string, int64_t> parse_counts(std::string_view text) {
    std::map<std::string, int64_t> counts;
    for (size_t at = 0; at < text.size();) {
        size_t end = std::min(text.find('\n', at), text.size());
        std::string_view line = text.substr(at, end - at);
        size_t space = line.find(' ');
        if (space != std::string_view::npos) {
            int64_t count = 0;
            std::from_chars(line.data() + space + 1, line.data() + line.size(), count);
            counts[std::string(line.substr(0, space))] = count;
        }
        at = end + 1;
    }
    return counts;
}

}  // namespace cleave::codegen
