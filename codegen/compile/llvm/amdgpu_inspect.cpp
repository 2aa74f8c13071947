// SPDX-License-Identifier: Apache-2.0
// Reads an AMD code object: the metadata note of one kernel (LLVM's "User Guide for AMDGPU
// Backend", "Code object V3 and above metadata") and the instructions of its entry. Nothing in the
// object is trusted: it may be another compiler's.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <llvm/BinaryFormat/ELF.h>
#include <llvm/BinaryFormat/MsgPackDocument.h>
#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstPrinter.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/compile/llvm/abi.h"
#include "codegen/compile/llvm/amdgpu.h"
#include "codegen/compile/llvm/target.h"

#define CLEAVE_EXPORT extern "C" __attribute__((visibility("default")))

namespace cleave::llvm_backend {

namespace {

using Elf = object::ELFObjectFile<object::ELF64LE>;

// The note's text, empty when there is none.
StringRef metadata_note(const Elf& object) {
    const auto& file = object.getELFFile();
    auto headers = file.program_headers();
    if (!headers) {
        consumeError(headers.takeError());
        return {};
    }
    for (const auto& header : *headers) {
        if (header.p_type != ELF::PT_NOTE) continue;
        Error error = Error::success();
        StringRef found;
        for (const auto& note : file.notes(header, error))
            if (note.getName() == "AMDGPU" && note.getType() == ELF::NT_AMDGPU_METADATA)
                found = note.getDescAsStringRef(header.p_align);
        consumeError(std::move(error));
        if (!found.empty()) return found;
    }
    return {};
}

int64_t number(msgpack::MapDocNode& map, StringRef key) {
    auto at = map.find(key);
    if (at == map.end()) return 0;
    if (at->second.getKind() == msgpack::Type::UInt)
        return static_cast<int64_t>(at->second.getUInt());
    return at->second.getKind() == msgpack::Type::Int ? at->second.getInt() : 0;
}

bool read_metadata(const Elf& object, StringRef entry, cleave_llvm_amdgpu_report* report) {
    msgpack::Document document;
    StringRef note = metadata_note(object);
    if (note.empty() || !document.readFromBlob(note, false) || !document.getRoot().isMap())
        return false;
    msgpack::MapDocNode root = document.getRoot().getMap();
    auto kernels = root.find("amdhsa.kernels");
    if (kernels == root.end() || !kernels->second.isArray()) return false;
    for (msgpack::DocNode& node : kernels->second.getArray()) {
        if (!node.isMap()) continue;
        msgpack::MapDocNode kernel = node.getMap();
        auto name = kernel.find(".name");
        if (name == kernel.end() || !name->second.isString() || name->second.getString() != entry)
            continue;
        report->vgprs = number(kernel, ".vgpr_count");
        report->agprs = number(kernel, ".agpr_count");
        report->sgprs = number(kernel, ".sgpr_count");
        report->vgpr_spills = number(kernel, ".vgpr_spill_count");
        report->sgpr_spills = number(kernel, ".sgpr_spill_count");
        report->lds_bytes = number(kernel, ".group_segment_fixed_size");
        report->private_bytes = number(kernel, ".private_segment_fixed_size");
        return true;
    }
    return false;
}

// The entry's code.
StringRef code_of(const Elf& object, StringRef entry) {
    for (const object::ELFSymbolRef symbol : object.symbols()) {
        Expected<StringRef> name = symbol.getName();
        Expected<uint64_t> address = symbol.getAddress();
        Expected<object::section_iterator> section = symbol.getSection();
        if (!name || !address || !section) {
            consumeError(name.takeError());
            consumeError(address.takeError());
            consumeError(section.takeError());
            continue;
        }
        if (*name != entry || *section == object.section_end() || !(*section)->isText()) continue;
        Expected<StringRef> contents = (*section)->getContents();
        if (!contents) {
            consumeError(contents.takeError());
            continue;
        }
        uint64_t offset = *address - (*section)->getAddress();
        if (offset < contents->size()) return contents->substr(offset, symbol.getSize());
    }
    return {};
}

bool is_matrix(StringRef mnemonic) {
    for (StringRef prefix : {"v_mfma", "v_smfmac", "v_wmma", "v_swmmac"})
        if (mnemonic.starts_with(prefix)) return true;
    return false;
}

// "name count\n" for every matrix instruction in `code`, or nothing when it cannot be disassembled
// to its end.
std::optional<std::string> count_matrix_instructions(StringRef code, const char* arch) {
    std::unique_ptr<MCSubtargetInfo> subtarget = amdgpu_subtarget(arch);
    std::string error;
    const Target* target = TargetRegistry::lookupTarget(kAmdgpuTriple, error);
    if (!subtarget || !target || code.empty()) return std::nullopt;
    const Triple triple(kAmdgpuTriple);
    std::unique_ptr<MCRegisterInfo> registers(target->createMCRegInfo(kAmdgpuTriple));
    std::unique_ptr<MCAsmInfo> assembly(
        target->createMCAsmInfo(*registers, kAmdgpuTriple, MCTargetOptions()));
    std::unique_ptr<MCInstrInfo> instructions(target->createMCInstrInfo());
    MCContext context(triple, assembly.get(), registers.get(), subtarget.get());
    std::unique_ptr<MCDisassembler> disassembler(target->createMCDisassembler(*subtarget, context));
    std::unique_ptr<MCInstPrinter> printer(target->createMCInstPrinter(
        triple, assembly->getAssemblerDialect(), *assembly, *instructions, *registers));
    if (!disassembler || !printer) return std::nullopt;
    std::map<std::string, int64_t> counts;
    ArrayRef<uint8_t> bytes(reinterpret_cast<const uint8_t*>(code.data()), code.size());
    for (uint64_t at = 0; at < bytes.size();) {
        MCInst instruction;
        uint64_t size = 0;
        if (disassembler->getInstruction(instruction, size, bytes.slice(at), at, nulls()) ==
            MCDisassembler::Fail)
            return std::nullopt;
        StringRef mnemonic(printer->getMnemonic(&instruction).first);
        if (is_matrix(mnemonic)) ++counts[mnemonic.trim().str()];
        at += size;
    }
    std::string text;
    for (const auto& [name, count] : counts) text += name + " " + std::to_string(count) + "\n";
    return text;
}

}  // namespace
}  // namespace cleave::llvm_backend

using namespace cleave::llvm_backend;

CLEAVE_EXPORT int cleave_llvm_amdgpu_inspect(const void* object, size_t size, const char* entry,
                                             const char* arch, cleave_llvm_amdgpu_report* report) {
    *report = cleave_llvm_amdgpu_report{};
    const auto in_use = use_llvm();
    llvm::StringRef bytes(static_cast<const char*>(object), size);
    auto file = Elf::create(llvm::MemoryBufferRef(bytes, entry));
    if (!file) {
        report->log = copy_text("no ELF object: " + llvm::toString(file.takeError()));
        return 0;
    }
    if (!read_metadata(*file, entry, report)) {
        report->log = copy_text("it has no metadata of kernel " + std::string(entry));
        return 0;
    }
    llvm::StringRef code = code_of(*file, entry);
    report->code_bytes = static_cast<int64_t>(code.size());
    std::optional<std::string> counts = count_matrix_instructions(code, arch);
    if (counts) report->matrix_instructions = copy_text(*counts);
    report->log = copy_text(counts ? "" : "its code cannot be disassembled");
    return 1;
}
