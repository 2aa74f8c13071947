// SPDX-License-Identifier: Apache-2.0
// Code objects and launches of the fakes. Kernels see only the memory that their device may reach.
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "runtime/simt/simt.h"
#include "tests/runtime_fakes/fake_gpu.h"

namespace cleave::fake {

namespace {

void break_down(int device, const std::string& finding) {
    const std::lock_guard lock(state().mutex);
    if (state().fault_of(device)) return;
    state().faults[static_cast<size_t>(device)] = kIllegalAddress;
    state().finding = finding;
}

// Bytes of an object file: the end of what its section headers name.
size_t object_size(const void* image) {
    const auto* header = static_cast<const Elf64_Ehdr*>(image);
    const auto* bytes = static_cast<const std::byte*>(image);
    size_t end = header->e_shoff + size_t{header->e_shnum} * header->e_shentsize;
    for (size_t i = 0; i < header->e_shnum; ++i) {
        Elf64_Shdr section;
        std::memcpy(&section, bytes + header->e_shoff + i * header->e_shentsize, sizeof section);
        if (section.sh_type != SHT_NOBITS)
            end = std::max<size_t>(end, section.sh_offset + section.sh_size);
    }
    return end;
}

// Whether the test wants this run of a kernel to go wrong; then it has.
bool goes_wrong(const std::string& name) {
    bool hangs = false;
    {
        const std::lock_guard lock(state().mutex);
        if (state().trip.empty() || !name.starts_with(state().trip)) return false;
        if (state().trip_stream >= 0 && state().trip_stream != running_stream->number())
            return false;
        if (--state().trip_after != 0) return false;
        hangs = state().trip_hangs;
    }
    if (!hangs) {
        break_down(running_stream->device, "the kernel that the test chose");
    } else {
        {
            const std::lock_guard lock(state().mutex);
            ++state().calls["hangs"];
        }
        running_stream->hangs = true;
        ++state().hanging[static_cast<size_t>(running_stream->device)];
        if (hang_of_process()) ::kill(::getpid(), SIGINT);
        while (!state().released && !running_stream->is_closing())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        running_stream->hangs = false;
        --state().hanging[static_cast<size_t>(running_stream->device)];
    }
    return true;
}

// The fakes' own kernels: "add_words" of address, value, count; any other name does nothing.
void run_own(const std::string& name, const std::vector<uint64_t>& args) {
    if (name != "add_words") return;
    auto* words = reinterpret_cast<uint64_t*>(args[0]);
    for (uint64_t i = 0; i < args[2]; ++i) words[i] += args[1];
}

}  // namespace

struct Program {
    Program(const codegen::CompiledKernel& kernel, const codegen::GpuArch& arch)
        : simt(kernel, arch) {}
    runtime::simt::SimtProgram simt;
};

int load_module(Module** module, const void* image) {
    if (!image) return kInvalidValue;
    auto made = std::make_unique<Module>();
    made->device = current_device;
    if (std::memcmp(image, ELFMAG, SELFMAG) == 0) {
        if (static_cast<const Elf64_Ehdr*>(image)->e_machine != EM_X86_64) return kNoBinary;
        const auto* bytes = static_cast<const std::byte*>(image);
        made->object.assign(bytes, bytes + object_size(image));
    } else {
        made->image = static_cast<const char*>(image);
    }
    *module = made.get();
    state().modules.insert(made.release());
    return 0;
}

int unload_module(Call& call, void* handle) {
    auto* module = static_cast<Module*>(handle);
    if (state().modules.count(module) == 0) return kInvalidValue;
    settle(call, {module->device});
    state().modules.erase(module);
    for (Function* function : state().functions)
        if (function->module == module) function->program.reset();
    delete module;
    return 0;
}

// To load a kernel may wait for all that runs (CUDA Programming Guide, "Lazy Loading").
int find_function(Call& call, Function** function, void* handle, const char* name, const Card& card,
                  int most_shared) {
    auto* module = static_cast<Module*>(handle);
    if (state().modules.count(module) == 0) return kInvalidValue;
    if (state().loads_wait)
        if (const int code = wait_for_device(call, module->device); code) return code;
    auto made = std::make_unique<Function>(Function{module, name, most_shared, nullptr});
    if (module->object.empty()) {
        if (module->image != name) return kNotFound;
    } else {
        codegen::CompiledKernel kernel;
        kernel.name = name;
        kernel.object = module->object;
        try {
            made->program = std::make_shared<Program>(kernel, codegen::gpu_arch(card.arch));
        } catch (const std::exception& error) {
            state().finding = error.what();
            return kNotFound;
        }
    }
    *function = made.get();
    state().functions.push_back(made.release());
    return 0;
}

// Of both vendors the first attribute is how many threads a block may have.
int find_attribute(int* value, int attribute, Function* function) {
    if (attribute != 0 || state().modules.count(function->module) == 0) return kInvalidValue;
    *value = state().most_threads;
    return 0;
}

// Arguments are read at once, as the drivers do.
int launch(Function* function, const Shape& shape, void* stream, void** arguments) {
    Stream* s = find_stream(stream);
    const auto& [grid, block, shared] = shape;
    const bool empty = !grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2];
    // A block's third axis has 64 threads at most (CUDA C++ Programming Guide, technical
    // specifications).
    if (!s || empty || block[0] * block[1] * block[2] > 1024 || block[2] > 64 ||
        static_cast<int>(shared) > function->most_shared || function->module->device != s->device)
        return kInvalidValue;
    state().launched[static_cast<size_t>(s->device)] = true;
    const std::shared_ptr<Program> program = function->program;
    const size_t count = program                         ? program->simt.record().num_args
                         : function->name == "add_words" ? 3
                                                         : 0;
    std::vector<uint64_t> args;
    for (size_t i = 0; i < count; ++i) args.push_back(*static_cast<uint64_t*>(arguments[i]));
    if (!program) {
        s->submit([name = function->name, args] {
            if (!goes_wrong(name)) run_own(name, args);
        });
        s->last_launch = function->name;
        return 0;
    }
    s->submit([program, args, shape, device = s->device, name = function->name] {
        if (goes_wrong(name)) return;
        runtime::simt::LaunchOptions options;
        options.owner = owner_of(device);
        std::vector<uint32_t> peers{kPinnedOwner, pool_owner_of(device)};
        {
            const std::lock_guard lock(state().mutex);
            for (const auto& [from, to] : state().peers)
                if (from == device) peers.push_back(owner_of(to));
            for (const auto& [from, to] : state().pool_peers)
                if (from == device) peers.push_back(pool_owner_of(to));
        }
        options.peers = peers;
        try {
            thread_local runtime::simt::Engine engine(1);
            const auto report =
                engine.launch(program->simt, args, {shape.grid[0], shape.grid[1], shape.grid[2]},
                              {static_cast<int>(shape.block[0]), static_cast<int>(shape.block[1]),
                               static_cast<int>(shape.block[2])},
                              shape.shared_bytes, options);
            if (!report.clean()) break_down(device, report.finding->text());
        } catch (const std::exception& error) {
            break_down(device, error.what());
        }
    });
    s->last_launch = function->name;
    return 0;
}

std::string launched_last(void* stream) {
    const Stream* s = find_stream(stream);
    return s && !s->last_launch.empty() ? s->last_launch : "nothing";
}

}  // namespace cleave::fake
