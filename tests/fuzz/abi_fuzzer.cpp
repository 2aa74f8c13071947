// SPDX-License-Identifier: Apache-2.0
// Sequences of calls of the C ABI (tools/libcleave/include/cleave.h), as other languages make them:
// handles of any state, null where something is needed, structs of any size with any numbers in
// them. Handles that were freed are not used again: that is the caller's part.
// A failed call has a text and gives no handle; none is an internal error; a plan that is made is
// proved, and is the same after it was saved and read.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/c_abi.h"
#include "tests/fuzz/harness.h"

namespace {

using namespace cleave::fuzz;
namespace fs = std::filesystem;

// Plans of more take longer than a thousand other calls.
constexpr size_t kMostOperators = 12, kMostDevices = 4, kMostCalls = 40, kMostHandles = 4;

void take_text(cleave_status status, char* text) {
    if (good(status) != (text != nullptr)) wrong("a text without success, or success without");
    cleave_string_free(text);
}

// Handles of one type, freed at the end.
template <class Handle, void (*kFree)(Handle*)>
class Handles {
public:
    // Null where there is none, and now and then.
    Handle* pick(Bytes& from) {
        if (all_.empty() || from.ConsumeProbability<float>() < 0.05F) return nullptr;
        return all_[from.ConsumeIntegralInRange<size_t>(0, all_.size() - 1)].get();
    }
    // Of a call that makes one.
    void keep(cleave_status status, Handle* made) {
        if (good(status) != (made != nullptr))
            wrong("a handle without success, or success without");
        if (made) all_.emplace_back(made);
        if (all_.size() > kMostHandles) all_.erase(all_.begin());
    }
    void free_one(Bytes& from) {
        if (!all_.empty())
            all_.erase(all_.begin() + from.ConsumeIntegralInRange<ptrdiff_t>(
                                          0, static_cast<ptrdiff_t>(all_.size()) - 1));
    }

private:
    struct Free {
        void operator()(Handle* handle) const { kFree(handle); }
    };
    std::vector<std::unique_ptr<Handle, Free>> all_;
};

class Calls {
public:
    explicit Calls(Bytes& from)
        : from_(from), folder_(cleave::fuzz::write_file("", "calls").parent_path()) {}

    void run() {
        using Call = void (Calls::*)();
        static constexpr Call kCalls[] = {
            &Calls::new_graph,    &Calls::add_operator,  &Calls::add_operator,
            &Calls::add_operator, &Calls::shape,         &Calls::import,
            &Calls::graph_texts,  &Calls::devices,       &Calls::machine_texts,
            &Calls::machine_json, &Calls::make_plan,     &Calls::make_plan,
            &Calls::look,         &Calls::save_and_load, &Calls::plan_texts,
            &Calls::export_plan,  &Calls::export_files,  &Calls::free_some,
            &Calls::names};
        for (size_t i = 0; i < kMostCalls && from_.remaining_bytes() > 0; ++i)
            (this->*from_.PickValueInArray(kCalls))();
    }

private:
    int64_t number() {
        constexpr int64_t kEnds[] = {0, 1, 2, 8, 64, 4096, -1, INT32_MAX, INT64_MAX, INT64_MIN};
        return from_.ConsumeBool() ? from_.PickValueInArray(kEnds)
                                   : from_.ConsumeIntegral<int16_t>();
    }

    void new_graph() {
        cleave_graph* made = nullptr;
        const char* name = strings_.pick(from_, {"graph"});
        graphs_.keep(cleave_graph_new(name, &made), made);
    }
    void shape() {
        cleave_graph* made = nullptr;
        const char* name = strings_.pick(from_, {"stories-260k", "stories-15m"});
        const char* dtype = strings_.pick(from_, {"f32", "bf16", "int4", "f8e4m3"});
        graphs_.keep(cleave_graph_from_shape(name, dtype, &made), made);
    }
    void import() {
        const std::string path =
            cleave::fuzz::write_file(from_.ConsumeRandomLengthString(256), "model.onnx").string();
        cleave_graph* made = nullptr;
        OfAnyAge<cleave_import_options> options(from_, {.weights_may_be_absent = 1});
        const char* given = from_.ConsumeBool() ? path.c_str() : strings_.pick(from_, {""});
        graphs_.keep(cleave_graph_import(given, options.get(), &made), made);
    }
    void add_operator() {
        cleave_graph* graph = graphs_.pick(from_);
        size_t count = 0;
        if (!good(cleave_graph_num_operators(graph, &count)) || count >= kMostOperators) return;
        cleave_operator op{};
        const std::string fresh = "op" + std::to_string(count);
        op.name = from_.ConsumeProbability<float>() < 0.9F ? fresh.c_str()
                                                           : strings_.pick(from_, {"op0"});
        op.type = strings_.pick(from_, {"matmul"});
        op.layer = from_.ConsumeIntegralInRange<int32_t>(-1, 5);
        op.sharding = from_.ConsumeIntegralInRange<int32_t>(-1, CLEAVE_ELEMENTWISE + 1);
        op.split_units = from_.ConsumeBool() ? 0 : number();
        constexpr int64_t kWidths[] = {64, 64, 64, 16, 1};
        op.columns = from_.ConsumeBool() ? from_.PickValueInArray(kWidths) : number();
        op.dtype = strings_.pick(from_, {"f32", "f16", "bf16"});
        op.rows_are_tokens = from_.ConsumeBool();
        for (int64_t* field :
             {&op.flops_per_token, &op.flops, &op.weight_bytes, &op.bytes_per_token, &op.bytes})
            *field = number();
        std::vector<size_t> inputs(from_.ConsumeIntegralInRange<size_t>(0, 3));
        for (size_t& input : inputs) input = from_.ConsumeIntegralInRange<size_t>(0, count);
        op.inputs = inputs.empty() ? nullptr : inputs.data();
        op.num_inputs = inputs.size();
        size_t index = 0;
        OfAnyAge<cleave_operator> given(from_, op);
        if (good(cleave_graph_add_operator(graph, given.get(),
                                           from_.ConsumeBool() ? &index : nullptr)) &&
            index > count)
            wrong("an operator's index beyond the end");
    }
    void graph_texts() {
        const cleave_graph* graph = graphs_.pick(from_);
        char* text = nullptr;
        take_text(cleave_graph_to_text(graph, &text), text);
        const char* name = nullptr;
        const auto at = from_.ConsumeIntegralInRange<size_t>(0, kMostOperators);
        if (good(cleave_graph_operator_name(graph, at, &name)) && std::strlen(name) > (1U << 20))
            wrong("a name without an end");
    }

    void devices() {
        cleave_machine* made = nullptr;
        const char* list =
            strings_.pick(from_, {"host", "host[0-1]", "sim:h100[0]", "sim:h100[0-1]",
                                  "sim:rtx4090[0],host[0]", "sim:mi300x[0-1]"});
        machines_.keep(cleave_machine_from_devices(list, &made), made);
    }
    void machine_texts() {
        char* text = nullptr;
        take_text(cleave_machine_to_json(machines_.pick(from_), &text), text);
    }
    // What was written, with some bytes changed or not, is read.
    void machine_json() {
        char* written = nullptr;
        if (!good(cleave_machine_to_json(machines_.pick(from_), &written))) return;
        std::string json = written;
        cleave_string_free(written);
        for (int changes = from_.ConsumeIntegralInRange<int>(0, 3); changes > 0; --changes)
            json[from_.ConsumeIntegralInRange<size_t>(0, json.size() - 1)] =
                static_cast<char>(from_.ConsumeIntegral<uint8_t>());
        cleave_machine* made = nullptr;
        if (from_.ConsumeBool()) {
            machines_.keep(cleave_machine_from_json(json.c_str(), &made), made);
        } else {
            const std::string path = cleave::fuzz::write_file(json, "machine.json").string();
            machines_.keep(cleave_machine_load(path.c_str(), &made), made);
        }
    }

    void make_plan() {
        const cleave_graph* graph = graphs_.pick(from_);
        const cleave_machine* machine = machines_.pick(from_);
        size_t devices = 0;
        if (good(cleave_machine_num_devices(machine, &devices)) && devices > kMostDevices) return;
        cleave_plan_options options{};
        options.objective = from_.ConsumeIntegralInRange<int32_t>(-1, CLEAVE_FLEET + 1);
        options.tensor_parallel = from_.ConsumeIntegralInRange<int32_t>(-1, 4);
        options.pipeline_stages = from_.ConsumeIntegralInRange<int32_t>(-1, 4);
        options.no_metis = from_.ConsumeBool();
        options.seed = number();
        for (int64_t* field : {&options.batch, &options.context, &options.prompt_tokens,
                               &options.prefill_chunk, &options.kv_tokens})
            *field = from_.ConsumeProbability<float>() < 0.8F ? 0 : number();
        options.dtype = strings_.pick(from_, {"f32", "bf16", "int4", "f8e4m3"});
        options.kv_dtype = strings_.pick(from_, {"f32", "f8e4m3", "int8"});
        options.compute = strings_.pick(from_, {"exact", "fast"});
        std::vector<const char*> pins(from_.ConsumeIntegralInRange<size_t>(0, 2));
        for (const char*& pin : pins)
            pin =
                strings_.pick(from_, {"layers.0=host[0]", "op0=sim:h100[1]", "layers.0-1=host[1]"});
        options.pins = pins.empty() ? nullptr : pins.data();
        options.num_pins = pins.size();
        cleave_plan* made = nullptr;
        OfAnyAge<cleave_plan_options> given(from_, options);
        const cleave_status status =
            cleave_plan_make(graph, machine, from_.ConsumeBool() ? given.get() : nullptr, &made);
        plans_.keep(status, made);
        if (!made) return;
        char* violations = nullptr;
        if (!good(cleave_plan_verify(made, &violations)) || violations) wrong(violations);
    }

    // Read again, it is the same plan.
    void save_and_load() {
        const cleave_plan* plan = plans_.pick(from_);
        const std::string path = (folder_ / "saved.plan").string();
        // Nowhere else: a path of any bytes would be a file somewhere.
        if (from_.ConsumeProbability<float>() < 0.1F) {
            const char* nowhere = from_.PickValueInArray({"", "/dev/full", "/no/such/folder/plan"});
            if (good(cleave_plan_save(plan, nowhere))) wrong("saved where nothing can be");
        }
        if (!good(cleave_plan_save(plan, path.c_str()))) return;
        const std::string saved = text_of(plan);
        cleave_plan* read = nullptr;
        const cleave_status status = cleave_plan_load(path.c_str(), &read);
        plans_.keep(status, read);
        if (!read || text_of(read) != saved) wrong("another plan was read than was saved");
    }
    static std::string text_of(const cleave_plan* plan) {
        char* text = nullptr;
        if (!good(cleave_plan_to_text(plan, &text))) wrong("a plan without a text");
        const std::unique_ptr<char, void (*)(char*)> owned(text, cleave_string_free);
        return text;
    }
    void plan_texts() {
        const cleave_plan* plan = plans_.pick(from_);
        char* text = nullptr;
        const cleave_status status = from_.ConsumeBool() ? cleave_plan_to_text(plan, &text)
                                                         : cleave_plan_to_json(plan, &text);
        take_text(status, text);
    }

    // Everything that the four functions tell, at any index.
    void look() {
        const cleave_plan* plan = plans_.pick(from_);
        OfAnyAge<cleave_plan_info> info(from_, {});
        if (!good(cleave_plan_get_info(plan, info.get()))) return;
        const auto index = from_.ConsumeIntegralInRange<size_t>(0, 40);
        OfAnyAge<cleave_device_info> device(from_, {});
        good(cleave_plan_get_device(plan, index, device.get()));
        OfAnyAge<cleave_stage_info> stage(from_, {});
        good(cleave_plan_get_stage(plan, index, stage.get()));
        cleave_step_info step{};
        step.struct_size = sizeof step;
        const auto phase = from_.ConsumeIntegralInRange<int32_t>(-1, 2);
        if (!good(cleave_plan_get_step(plan, phase, index, &step))) return;
        for (size_t i = 0; i < step.num_devices; ++i)
            if (step.devices[i] > kMostDevices) wrong("a step of a device that is not there");
        for (const char* text : {step.value, step.implementation, step.collective})
            if (!text) wrong("a step without a text");
    }

    void export_plan() {
        const cleave_plan* plan = plans_.pick(from_);
        const size_t formats = cleave_num_formats();
        const char* format = cleave_format_name(from_.ConsumeIntegralInRange<size_t>(0, formats));
        if (from_.ConsumeBool()) {
            cleave_export* made = nullptr;
            exports_.keep(cleave_plan_export(plan, format, &made), made);
            return;
        }
        const fs::path folder = folder_ / "exported";
        good(cleave_plan_export_to(plan, format, folder.c_str()));
        std::error_code ignored;
        fs::remove_all(folder, ignored);
    }
    void export_files() {
        const cleave_export* exported = exports_.pick(from_);
        size_t count = 0;
        const char* manifest = nullptr;
        if (!good(cleave_export_num_files(exported, &count)) ||
            !good(cleave_export_manifest(exported, &manifest)))
            return;
        const auto at = from_.ConsumeIntegralInRange<size_t>(0, count);
        const char *name = nullptr, *data = nullptr;
        size_t size = 0;
        if (good(cleave_export_file(exported, at, &name, &data, &size)) != (at < count))
            wrong("a file at the end, or none before it");
        if (at < count && std::string(data, size).size() != size) wrong("a file's bytes");
    }

    void free_some() {
        switch (from_.ConsumeIntegralInRange<int>(0, 3)) {
            case 0: return graphs_.free_one(from_);
            case 1: return machines_.free_one(from_);
            case 2: return plans_.free_one(from_);
            default: return exports_.free_one(from_);
        }
    }
    void names() {
        const size_t formats = cleave_num_formats();
        const auto at = from_.ConsumeIntegralInRange<size_t>(0, 2 * formats);
        if ((cleave_format_name(at) != nullptr) != (at < formats) ||
            (cleave_format_summary(at) != nullptr) != (at < formats) ||
            (cleave_objective_name(at) != nullptr) != (at <= CLEAVE_FLEET))
            wrong("names end where they say");
    }

    Bytes& from_;
    const fs::path folder_;
    Strings strings_;
    Handles<cleave_graph, cleave_graph_free> graphs_;
    Handles<cleave_machine, cleave_machine_free> machines_;
    Handles<cleave_plan, cleave_plan_free> plans_;
    Handles<cleave_export, cleave_export_free> exports_;
};

}  // namespace

void cleave::fuzz::run_input(std::string_view bytes) {
    Bytes from(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    Calls(from).run();
}
