// SPDX-License-Identifier: Apache-2.0
#include "planner/export_model/iree/iree.h"

#include <map>
#include <memory>

#include <nlohmann/json.hpp>

#include "planner/export_model/iree/lower_module.h"
#include "planner/export_model/notes.h"
#include "planner/export_model/runners.h"
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
    CHECK(false) << "an exported tensor of " << dtype_name(dtype);
    return "";
}

// https://github.com/huggingface/safetensors: the header's length, the header as JSON, the bytes without gaps.
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
};
Driver driver_of(DeviceKind kind) {
    switch (kind) {
        case DeviceKind::kCuda: return {"cuda", "cuda", nullptr};
        case DeviceKind::kHip: return {"hip", "hip", nullptr};
        default: return {"local", "local-task", "--iree-hal-local-target-device-backends=llvm-cpu"};
    }
}

struct Flags {
    std::vector<std::string> compile, run;
};

// A promise without its flag does not compile, and an ordinal counts within its driver: every device is declared.
Flags device_flags(const Plan& plan) {
    Flags flags;
    std::map<std::string, int> ordinals;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
        const Device& device = plan.machine.devices[d];
        const Driver driver = driver_of(device.kind);
        const int ordinal = ordinals[driver.compile]++;
        flags.compile.push_back(fmt::format("--iree-hal-target-device={}={}[{}]",
                                            iree_device(DeviceId(d)), driver.compile, ordinal));
        const bool counted = driver.back_end == nullptr;
        flags.run.push_back(counted ? fmt::format("--device={}://{}", driver.run, device.index)
                                    : fmt::format("--device={}", driver.run));
        if (ordinal > 0) continue;
        if (driver.back_end) {
            flags.compile.emplace_back(driver.back_end);
            flags.compile.emplace_back("--iree-llvmcpu-target-cpu=host");
        } else if (!device.arch.empty()) {
            flags.compile.push_back(
                fmt::format("--iree-{}-target={}", driver.compile, device.arch));
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
    for (const Device& d : plan.machine.devices)
        if (d.kind == DeviceKind::kSim || d.kind == DeviceKind::kSimt) {
            notes.push_back(fmt::format(
                "{} is no device of IREE's: it is a local one in the flags; replace local[..] by "
                "cuda[..] or hip[..] for a real one.",
                d.name));
            break;
        }
    add_f32_notes(plan, expanded, notes);
    return notes;
}

void check_workload(const Plan& plan) {
    if (plan.workload.batch != 1)
        throw UserError(
            "--format iree writes a module for one sequence, but the plan is for a batch of {}; "
            "use --batch 1",
            plan.workload.batch);
}

// What run.py needs to know.
std::string module_json(const Plan& plan, const IreeModule& module, const Flags& flags,
                        const std::vector<std::shared_ptr<TensorFile>>& data) {
    Json json{{"model", plan.graph.name},         {"vocab_size", plan.graph.config.vocab_size},
              {"context", plan.workload.context}, {"transfers", module.transfers},
              {"devices", Json::array()},         {"ids", Json::array()},
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
    check_exportable_weights(plan);
    check_workload(plan);
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
    run.emplace_back("--input=0");  // past
    run.emplace_back("--output=@logits.npy");
    result.commands = {compile, run};
    result.files.push_back({"module.json", module_json(plan, module, flags, data)});
    result.files.push_back({"run.py", std::string(iree_runner())});
    result.not_expressed = notes(plan, expanded);
    return result;
}

}  // namespace cleave::planner
