// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/iree/iree.h"

#include <map>
#include <memory>

#include <nlohmann/json.hpp>

#include "planner/export/layers.h"
#include "planner/export/model/iree/lower_module.h"
#include "planner/export/model/notes.h"
#include "planner/export/model/runners.h"
#include "planner/plan/kv_room.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using Json = nlohmann::ordered_json;

std::string file_of(DeviceId device) { return iree_device(device) + ".safetensors"; }

const char* safetensors_type(DType dtype) {
    switch (dtype) {
        case DType::kF32: return "F32";
        case DType::kF16: return "F16";
        case DType::kBF16: return "BF16";
        default: break;
    }
    CLEAVE_CHECK(false) << "an exported tensor of " << dtype_name(dtype);
    return "";
}

// https://github.com/huggingface/safetensors: the header's length, the header as JSON, the bytes
// without gaps.
void write_safetensors(const TensorFile& file, std::ostream& out) {
    Json header = Json::object();
    for (const auto& t : file.tensors())
        header[t->name] = {{"dtype", safetensors_type(t->dtype)},
                           {"shape", t->shape},
                           {"data_offsets", {t->offset, t->offset + t->length}}};
    std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
    text.append((64 - (text.size() + 8) % 64) % 64, ' ');
    for (int i = 0; i < 8; ++i) out.put(static_cast<char>(text.size() >> (8 * i)));
    out << text;
    file.write(out);
}

// How IREE calls a device's driver: the compiler's name, and the runtime's.
struct Driver {
    const char *compile, *run;
    const char* back_end;  // a flag that chooses its code generator; null: the driver has one
    const char* target;    // the flag of its architecture
};
Driver driver_of(const DeviceInfo& device) {
    if (is_gpu_of(device, Vendor::kNvidia)) return {"cuda", "cuda", nullptr, "--iree-cuda-target"};
    if (is_gpu_of(device, Vendor::kAmd)) return {"hip", "hip", nullptr, "--iree-rocm-target"};
    return {"local", "local-task", "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu"};
}

// NVIDIA's architectures that IREE 3.13 has a description of (--iree-cuda-target): tried one by
// one.
constexpr int kKnownSm[] = {60, 70, 75, 80, 86, 89, 120};

// The newest that it knows and the GPU, "sm_90a", is not older than: newer GPUs take its PTX.
std::string known_sm(const DeviceInfo& device) {
    const int sm = std::stoi(device.arch.substr(3));
    int known = 0;
    for (int candidate : kKnownSm)
        if (candidate <= sm) known = candidate;
    if (known == 0)
        throw UserError("$format iree: {} is {}, and IREE makes code for sm_{} and newer",
                        device.name, device.arch, kKnownSm[0]);
    return fmt::format("sm_{}", known);
}

// The code generator's target is one for all devices of a driver: of NVIDIA's GPUs the oldest.
std::string target_of(const Plan& plan, const Driver& driver) {
    std::string target;
    for (const DeviceInfo& d : plan.machine.devices) {
        if (driver.compile != std::string_view(driver_of(d).compile)) continue;
        const bool nvidia = is_gpu_of(d, Vendor::kNvidia);
        const std::string one = nvidia ? known_sm(d) : d.arch;
        if (target.empty() || (nvidia && std::stoi(one.substr(3)) < std::stoi(target.substr(3))))
            target = one;
        if (!nvidia && one != target)
            throw UserError(
                "$format iree: {} is {} and others are {}, and iree-compile makes code for one "
                "AMD architecture; plan for GPUs of one",
                d.name, one, target);
    }
    return target;
}

// IREE 3.13 finds no kind of memory for what devices of two drivers exchange ("failed to legalize
// operation 'hal.allocator.resolve_memory_properties'").
void one_driver(const Plan& plan) {
    const DeviceInfo& first = plan.machine.devices[0];
    for (const DeviceInfo& d : plan.machine.devices)
        if (driver_of(d).compile != std::string_view(driver_of(first).compile))
            throw UserError(
                "$format iree: {} is a device of '{}' and {} one of '{}', and iree-compile 3.13 "
                "has no memory that both reach; plan for devices of one",
                first.name, driver_of(first).compile, d.name, driver_of(d).compile);
}

struct Flags {
    std::vector<std::string> compile, run;
};

// A promise without its flag does not compile, and an ordinal counts within its driver: every
// device is declared.
Flags device_flags(const Plan& plan) {
    Flags flags;
    std::map<std::string, int> ordinals;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
        const DeviceInfo& device = plan.machine.devices[d];
        const Driver driver = driver_of(device);
        const int ordinal = ordinals[driver.compile]++;
        flags.compile.push_back(fmt::format("--iree-hal-target-device={}={}[{}]",
                                            iree_device(DeviceId(d)), driver.compile, ordinal));
        const bool counted = driver.back_end == nullptr;
        flags.run.push_back(counted ? fmt::format("--device={}://{}", driver.run, device.index)
                                    : fmt::format("--device={}", driver.run));
        if (ordinal > 0) continue;
        if (driver.back_end) {
            flags.compile.emplace_back(driver.back_end);
            flags.compile.push_back(fmt::format("{}=host", driver.target));
        } else if (const std::string target = target_of(plan, driver); !target.empty()) {
            flags.compile.push_back(fmt::format("{}={}", driver.target, target));
        }
    }
    return flags;
}

std::vector<std::string> notes(const Plan& plan, bool expanded) {
    std::vector<std::string> notes{
        kLogitsOfEveryToken,
        "Fusion, tiles and launches are IREE's own: an operator of the plan's launches runs on the "
        "device that the plan names, in kernels that IREE cuts.",
        "A ring is written as a sum on its first device and copies of it: the same bytes, other "
        "links."};
    for (const DeviceInfo& d : plan.machine.devices)
        if (d.kind == DeviceKind::kSimt) {
            notes.push_back(fmt::format("{} is the CPU to IREE: a local device.", d.name));
            break;
        }
    if (plan.workload.batch > 1)
        notes.emplace_back(
            "A call of the module is of one sequence: those of a batch run one after the other, "
            "each with keys and values of its own.");
    add_f32_notes(plan, expanded, notes);
    return notes;
}

// What run.py needs to know.
std::string module_json(const Plan& plan, const IreeModule& module, const Flags& flags,
                        const std::vector<std::shared_ptr<TensorFile>>& data) {
    Json json{{"model", plan.graph.name},
              {"vocab_size", plan.graph.config.vocab_size},
              {"context", plan.workload.context},
              {"batch", plan.workload.batch},
              {"transfers", module.transfers},
              {"devices", Json::array()},
              {"ids", Json::array()},
              {"parameters", Json::object()}};
    for (const std::string& flag : flags.run)
        json["devices"].push_back(flag.substr(std::string_view("--device=").size()));
    for (DeviceId d : module.id_devices) json["ids"].push_back(d.index());
    for (size_t d = 0; d < data.size(); ++d)
        if (!data[d]->tensors().empty())
            json["parameters"][iree_device(DeviceId(d))] = file_of(DeviceId(d));
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

ExportResult export_iree(const Plan& plan) {
    check_exportable(plan);
    if (!has_whole_contexts(plan))
        throw UserError(
            "$format iree: the module keeps a whole context of each sequence, {} tokens, and the "
            "plan's KV pool has {}; plan without $kv_tokens",
            plan.workload.batch * plan.workload.context, kv_tokens(plan.kv_pool.num_blocks));
    one_driver(plan);
    const Schedule schedule = make_schedule(plan);
    auto reader = std::make_shared<importer::WeightReader>(plan.graph);
    std::vector<std::shared_ptr<TensorFile>> data;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d)
        data.push_back(std::make_shared<TensorFile>(plan, reader, 1));
    IreeModule module = lower_module(plan, schedule, data);

    ExportResult result;
    const Flags flags = device_flags(plan);
    std::vector<std::string> compile{"iree-compile", "model.mlir", "-o", "model.vmfb"};
    std::vector<std::string> run{"iree-run-module", "--module=model.vmfb"};
    compile.insert(compile.end(), flags.compile.begin(), flags.compile.end());
    run.insert(run.end(), flags.run.begin(), flags.run.end());
    result.files.push_back({"model.mlir", std::move(module.text)});
    bool expanded = false;
    for (size_t d = 0; d < data.size(); ++d) {
        if (data[d]->tensors().empty()) continue;
        const DeviceId id(d);
        expanded = expanded || data[d]->expanded();
        result.files.push_back({file_of(id), {}, [file = data[d]](std::ostream& out) {
                                    write_safetensors(*file, out);
                                }});
        run.push_back(fmt::format("--parameters={}={}", iree_device(id), file_of(id)));
    }
    run.emplace_back("--function=forward");
    for (size_t i = 0; i < module.id_devices.size(); ++i) run.emplace_back("--input=3xi32=1 2 3");
    run.emplace_back("--input=0");                               // past
    if (plan.workload.batch > 1) run.emplace_back("--input=0");  // sequence
    run.emplace_back("--output=@logits.npy");
    result.commands = {compile, run};
    result.files.push_back({"module.json", module_json(plan, module, flags, data)});
    result.files.push_back({"run.py", std::string(iree_runner())});
    result.not_expressed = notes(plan, expanded);
    return result;
}

}  // namespace cleave::planner
