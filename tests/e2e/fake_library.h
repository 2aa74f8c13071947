// SPDX-License-Identifier: Apache-2.0
// NCCL for whole models: its fake on the streams of fake cards, and plans that go by it.
#pragma once

#include <dlfcn.h>

#include <string>

#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "tests/e2e/support.h"
#include "tests/support/fake_gpus.h"

namespace cleave::test {

// The fake of NCCL as the process's, on the streams of fake cards.
class InstalledLibrary {
public:
    explicit InstalledLibrary(const InstalledFake& cards)
        : handle_(::dlopen(CLEAVE_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL)) {
        reinterpret_cast<void (*)(InstalledFake::CurrentDevice)>(::dlsym(handle_, "fake_reset"))(
            cards.current_device());
    }
    ~InstalledLibrary() { ::dlclose(handle_); }
    InstalledLibrary(const InstalledLibrary&) = delete;
    InstalledLibrary& operator=(const InstalledLibrary&) = delete;
    int calls(const char* name) const {
        return reinterpret_cast<int (*)(const char*)>(::dlsym(handle_, "fake_calls"))(name);
    }
    // What a rank takes of its card when it is opened, and with its first operation.
    void memory(const InstalledFake& cards, int64_t to_open, int64_t to_connect) const {
        reinterpret_cast<void (*)(InstalledFake::TakeMemory, int64_t, int64_t)>(
            ::dlsym(handle_, "fake_memory"))(cards.take_memory(), to_open, to_connect);
    }
    std::string log() const {
        return reinterpret_cast<const char* (*)()>(::dlsym(handle_, "fake_log"))();
    }
    void fail(const char* name, int nth) const {
        reinterpret_cast<void (*)(const char*, int, int)>(::dlsym(handle_, "fake_fail"))(name, nth,
                                                                                         1);
    }

private:
    Environment named_{"CLEAVE_NCCL_LIBRARY", CLEAVE_FAKE_NCCL};
    void* handle_;
};

// Of cards that do not reach each other's memory.
inline planner::Plan plan_apart(const importer::Graph& graph, const std::string& devices, int tp,
                                DType activations = DType::kF32) {
    planner::Machine machine = machine_at_hand(devices);
    for (planner::Link& link : machine.links) {
        if (link.kind == planner::LinkKind::kSameMemory) continue;
        link.kind = planner::LinkKind::kPcie;
        link.peer_access = false;
    }
    planner::PlanOptions options;
    options.tensor_parallel = tp;
    options.pipeline_stages = 1;
    planner::Workload workload = all_logits_workload(2, 32, 32);
    workload.activation_dtype = activations;
    return planner::make_plan(graph, machine, workload, options);
}

}  // namespace cleave::test
