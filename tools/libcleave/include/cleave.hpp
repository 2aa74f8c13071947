// SPDX-License-Identifier: Apache-2.0
// libcleave in C++ (17 or newer): classes that own the handles of cleave.h, and exceptions for its
// statuses. Header only; everything goes through the C ABI, so that compilers of different age and
// flags agree.
//
//   cleave::Plan plan(cleave::Graph::import("model.onnx"),
//   cleave::Machine::devices("sim:h100[0-3]")); for (cleave_step_info step :
//   plan.steps(CLEAVE_DECODE)) ... plan.export_to("onnx", "out");
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cleave.h"

namespace cleave {

// A call that failed: what() says what and how to mend it; json() has each device's deficit where a
// model does not fit.
class Failure : public std::runtime_error {
public:
    Failure(cleave_status status, const char* text, std::string json)
        : std::runtime_error(text), status_(status), json_(std::move(json)) {}
    cleave_status status() const noexcept { return status_; }
    bool does_not_fit() const noexcept { return status_ == CLEAVE_DOES_NOT_FIT; }
    const std::string& json() const noexcept { return json_; }

private:
    cleave_status status_;
    std::string json_;
};

namespace detail {

inline void check(cleave_status status) {
    if (status != CLEAVE_OK) throw Failure(status, cleave_last_error(), cleave_last_error_json());
}

template <auto Free>
struct Freer {
    template <class T>
    void operator()(T* handle) const noexcept {
        Free(handle);
    }
};
template <class T, auto Free>
using Handle = std::unique_ptr<T, Freer<Free>>;

// The string that `call` gives through its last argument.
template <class Call, class... Args>
std::string text(Call call, Args... args) {
    char* text = nullptr;
    check(call(args..., &text));
    Handle<char, cleave_string_free> owner(text);
    return text;
}

}  // namespace detail

class Graph {
public:
    static Graph import(const std::string& path, bool weights_may_be_absent = false) {
        cleave_import_options options{};
        options.struct_size = sizeof options;
        options.weights_may_be_absent = weights_may_be_absent;
        Graph graph;
        cleave_graph* made = nullptr;
        detail::check(cleave_graph_import(path.c_str(), &options, &made));
        graph.handle_.reset(made);
        return graph;
    }
    static Graph shape(const std::string& name, const char* dtype = nullptr) {
        Graph graph;
        cleave_graph* made = nullptr;
        detail::check(cleave_graph_from_shape(name.c_str(), dtype, &made));
        graph.handle_.reset(made);
        return graph;
    }
    // Empty, for add().
    static Graph named(const std::string& name) {
        Graph graph;
        cleave_graph* made = nullptr;
        detail::check(cleave_graph_new(name.c_str(), &made));
        graph.handle_.reset(made);
        return graph;
    }

    // `op.struct_size` and `op.inputs` are filled in here. Gives the operator's index.
    size_t add(cleave_operator op, const std::vector<size_t>& inputs) {
        op.struct_size = sizeof op;
        op.inputs = inputs.data();
        op.num_inputs = inputs.size();
        size_t index = 0;
        detail::check(cleave_graph_add_operator(handle_.get(), &op, &index));
        return index;
    }
    size_t size() const {
        size_t count = 0;
        detail::check(cleave_graph_num_operators(handle_.get(), &count));
        return count;
    }
    std::string_view name(size_t op) const {
        const char* name = nullptr;
        detail::check(cleave_graph_operator_name(handle_.get(), op, &name));
        return name;
    }
    std::string text() const { return detail::text(cleave_graph_to_text, handle_.get()); }
    const cleave_graph* get() const noexcept { return handle_.get(); }

private:
    Graph() = default;
    detail::Handle<cleave_graph, cleave_graph_free> handle_;
};

class Machine {
public:
    static Machine devices(const std::string& list) {
        return make(cleave_machine_from_devices, list);
    }
    static Machine load(const std::string& path) { return make(cleave_machine_load, path); }
    static Machine json(const std::string& text) { return make(cleave_machine_from_json, text); }

    size_t size() const {
        size_t count = 0;
        detail::check(cleave_machine_num_devices(handle_.get(), &count));
        return count;
    }
    std::string json() const { return detail::text(cleave_machine_to_json, handle_.get()); }
    const cleave_machine* get() const noexcept { return handle_.get(); }

private:
    template <class Call>
    static Machine make(Call call, const std::string& argument) {
        Machine machine;
        cleave_machine* made = nullptr;
        detail::check(call(argument.c_str(), &made));
        machine.handle_.reset(made);
        return machine;
    }
    Machine() = default;
    detail::Handle<cleave_machine, cleave_machine_free> handle_;
};

// Files of an export, in memory.
struct File {
    std::string name, contents;
};

class Plan {
public:
    Plan(const Graph& graph, const Machine& machine, cleave_plan_options options = {}) {
        options.struct_size = sizeof options;
        cleave_plan* made = nullptr;
        detail::check(cleave_plan_make(graph.get(), machine.get(), &options, &made));
        handle_.reset(made);
    }
    static Plan load(const std::string& path) {
        Plan plan;
        cleave_plan* made = nullptr;
        detail::check(cleave_plan_load(path.c_str(), &made));
        plan.handle_.reset(made);
        return plan;
    }
    void save(const std::string& path) const {
        detail::check(cleave_plan_save(handle_.get(), path.c_str()));
    }
    void verify() const { detail::check(cleave_plan_verify(handle_.get(), nullptr)); }

    cleave_plan_info info() const { return get<cleave_plan_info>(cleave_plan_get_info); }
    std::vector<cleave_device_info> devices() const {
        return all<cleave_device_info>(info().num_devices, cleave_plan_get_device);
    }
    std::vector<cleave_stage_info> stages() const {
        return all<cleave_stage_info>(info().num_stages, cleave_plan_get_stage);
    }
    std::vector<cleave_step_info> steps(cleave_phase phase) const {
        const cleave_plan_info known = info();
        std::vector<cleave_step_info> steps(phase == CLEAVE_PREFILL ? known.num_prefill_steps
                                                                    : known.num_decode_steps);
        for (size_t i = 0; i < steps.size(); ++i) {
            steps[i].struct_size = sizeof steps[i];
            detail::check(cleave_plan_get_step(handle_.get(), phase, i, &steps[i]));
        }
        return steps;
    }

    std::string text() const { return detail::text(cleave_plan_to_text, handle_.get()); }
    std::string json() const { return detail::text(cleave_plan_to_json, handle_.get()); }

    void export_to(const std::string& format, const std::string& folder) const {
        detail::check(cleave_plan_export_to(handle_.get(), format.c_str(), folder.c_str()));
    }
    // The files; `manifest`, where given, becomes manifest.json.
    std::vector<File> export_files(const std::string& format,
                                   std::string* manifest = nullptr) const {
        cleave_export* made = nullptr;
        detail::check(cleave_plan_export(handle_.get(), format.c_str(), &made));
        detail::Handle<cleave_export, cleave_export_free> exported(made);
        size_t count = 0;
        detail::check(cleave_export_num_files(made, &count));
        std::vector<File> files;
        for (size_t i = 0; i < count; ++i) {
            const char *name = nullptr, *data = nullptr;
            size_t size = 0;
            detail::check(cleave_export_file(made, i, &name, &data, &size));
            files.push_back({name, std::string(data, size)});
        }
        const char* json = nullptr;
        detail::check(cleave_export_manifest(made, &json));
        if (manifest) *manifest = json;
        return files;
    }
    const cleave_plan* get() const noexcept { return handle_.get(); }

private:
    Plan() = default;

    template <class Info, class Call, class... Args>
    Info get(Call call, Args... args) const {
        Info info{};
        info.struct_size = sizeof info;
        detail::check(call(handle_.get(), args..., &info));
        return info;
    }
    template <class Info, class Call>
    std::vector<Info> all(size_t count, Call call) const {
        std::vector<Info> list;
        for (size_t i = 0; i < count; ++i) list.push_back(get<Info>(call, i));
        return list;
    }
    detail::Handle<cleave_plan, cleave_plan_free> handle_;
};

}  // namespace cleave
