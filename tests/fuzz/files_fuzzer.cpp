// SPDX-License-Identifier: Apache-2.0
// Files that no other target reads, told apart by how they begin: .npy; entries of the kernels'
// cache, whose digest is put right here; cubins; otherwise texts: traces of requests, PTX.
#include <cstdlib>

#include "codegen/compile/backend.h"
#include "codegen/compile/gpu_objects.h"
#include "codegen/compile/object_cache.h"
#include "runtime/base/hash.h"
#include "runtime/engine/serve_trace.h"
#include "tests/fuzz/harness.h"
#include "tools/cli/machine_load.h"
#include "tools/cli/npy.h"

namespace {

using namespace cleave;
namespace fs = std::filesystem;

// What is read is written and read again: the same tensor.
void read_npy_file(std::string_view bytes) {
    const fs::path path = fuzz::write_file(bytes, "tensor.npy");
    const runtime::Tensor tensor = tools::read_npy("tensor", path.string());
    tools::write_npy(tensor, path.string());
    const runtime::Tensor again = tools::read_npy("tensor", path.string());
    if (again.shape != tensor.shape || again.data != tensor.data) std::abort();
}

// The key of an entry is outside of it, and its digest is not cryptographic: neither is a guard.
void read_cache_entry(std::string_view bytes) {
    std::string entry(bytes);
    entry += Digest().add(bytes).hex() + std::string(8, 0);  // made from no text
    const fs::path path = fuzz::write_file(entry, "key.o");
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    codegen::CacheContents contents = codegen::cache_contents(path.parent_path().string());
    codegen::read_names(contents);
    const codegen::ObjectCache cache(path.parent_path().string());
    for (const codegen::CacheEntry& each : contents.entries)
        if (auto kernel = cache.find(each.key, each.name)) cache.store(each.key, *kernel);
}

void measure(std::string_view bytes) {
    codegen::CompiledKernel kernel;
    kernel.name = "kernel";
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    kernel.object.assign(first, first + bytes.size());
    codegen::measure_cubin(kernel, "");
}

void read_text(std::string_view text) {
    codegen::CompiledKernel kernel;
    codegen::count_in_ptx(kernel, text);
    codegen::measure_cubin(kernel, text);
    tools::parse_cpu_ticks(std::string(text));
    fuzz::try_to([&] { runtime::parse_trace(text, "trace.csv"); });
    fuzz::try_to([&] { runtime::trace_at_rate(std::string(text)); });
}

}  // namespace

// Of a compilation, which no input here comes to.
void cleave::codegen::throw_does_not_compile(std::string_view, std::string_view, std::string_view,
                                             std::string_view) {
    std::abort();
}

void cleave::fuzz::run_input(std::string_view bytes) {
    if (bytes.starts_with("\x93NUMPY")) return read_npy_file(bytes);
    if (bytes.starts_with("CLEAVEO3")) return read_cache_entry(bytes);
    if (bytes.starts_with("\x7f"
                          "ELF"))
        return measure(bytes);
    read_text(bytes);
}
