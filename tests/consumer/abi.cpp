// SPDX-License-Identifier: Apache-2.0
// What cleave.h promises of misuse, of structs of another age, and of threads. Prints each promise
// that does not hold.
#include <cleave/cleave.hpp>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

int failures = 0;

void expect(bool holds, const char* promise) {
    if (holds) return;
    std::printf("does not hold: %s (last error: %s)\n", promise, cleave_last_error());
    ++failures;
}

bool error_has(const char* piece) { return std::strstr(cleave_last_error(), piece) != nullptr; }

void statuses() {
    cleave_machine* machine = nullptr;
    expect(cleave_machine_from_devices("sim:h1000", &machine) == CLEAVE_INVALID_INPUT && !machine &&
               error_has("h1000") && error_has("h100"),
           "an unknown device is the input's fault and is named");
    expect(cleave_machine_from_devices(nullptr, &machine) == CLEAVE_INVALID_ARGUMENT &&
               error_has("devices"),
           "a null string is the call's fault and is named");
    expect(cleave_machine_from_devices("host", nullptr) == CLEAVE_INVALID_ARGUMENT,
           "a null result is refused");
    expect(cleave_machine_from_json("{\"devices\": 3}", &machine) == CLEAVE_INVALID_INPUT &&
               error_has("devices"),
           "a machine's JSON is checked");
    expect(cleave_plan_verify(nullptr, nullptr) == CLEAVE_INVALID_ARGUMENT,
           "a null plan is refused");
    cleave_graph* graph = nullptr;
    expect(cleave_graph_import("no-such-file.onnx", nullptr, &graph) == CLEAVE_INVALID_INPUT &&
               !graph && error_has("no-such-file.onnx"),
           "a missing file is named");
    expect(cleave_graph_new("a\x1b[2Jb", &graph) == CLEAVE_INVALID_INPUT && !graph &&
               error_has("'a?[2Jb' has control characters"),
           "names have no control characters");
    expect(cleave_machine_from_devices("sim:h100", &machine) == CLEAVE_OK && !*cleave_last_error(),
           "a call that succeeds leaves no error");
    cleave_machine_free(machine);
    cleave_machine_free(nullptr);
    cleave_plan_free(nullptr);
    expect(!cleave_format_name(cleave_num_formats()) && cleave_format_name(0),
           "formats can be listed");
    expect(cleave_objective_name(CLEAVE_MEMORY) == std::string("memory") &&
               !cleave_objective_name(1000),
           "objectives can be listed");
}

void sizes() {
    cleave::Graph graph = cleave::Graph::shape("stories-260k");
    cleave::Machine machine = cleave::Machine::devices("sim:h100[0-1]");
    struct Newer {
        cleave_plan_options known;
        int64_t unknown;
    } newer{};
    newer.known.struct_size = sizeof newer;
    newer.known.tensor_parallel = 2;
    cleave_plan* plan = nullptr;
    expect(cleave_plan_make(graph.get(), machine.get(), &newer.known, &plan) == CLEAVE_OK,
           "a newer caller's options are taken while what is new in them is zero");
    cleave_plan_free(plan);
    newer.unknown = 1;
    expect(cleave_plan_make(graph.get(), machine.get(), &newer.known, &plan) ==
                   CLEAVE_INVALID_ARGUMENT &&
               !plan,
           "and refused when it is not");
    cleave_plan_options older{};
    older.struct_size = offsetof(cleave_plan_options, pipeline_stages);
    older.tensor_parallel = 2;
    older.pipeline_stages = 77;  // beyond what this caller knows: not read
    expect(cleave_plan_make(graph.get(), machine.get(), &older, &plan) == CLEAVE_OK,
           "an older caller's are taken");
    older.struct_size = 0;
    cleave_plan* other = nullptr;
    expect(
        cleave_plan_make(graph.get(), machine.get(), &older, &other) == CLEAVE_INVALID_ARGUMENT &&
            error_has("struct_size"),
        "a size that is not set is refused");
    older.struct_size = sizeof older - 3;  // in the middle of a field, which may be a pointer
    expect(
        cleave_plan_make(graph.get(), machine.get(), &older, &other) == CLEAVE_INVALID_ARGUMENT &&
            error_has("struct_size"),
        "a size in the middle of a field is refused");
    struct {
        cleave_plan_info known;
        int64_t beyond;
    } info{};
    info.known.struct_size = offsetof(cleave_plan_info, num_stages);
    info.known.num_stages = 55;
    expect(cleave_plan_get_info(plan, &info.known) == CLEAVE_OK && info.known.num_devices == 2 &&
               info.known.num_stages == 55,
           "a struct is filled up to the size that the caller knows");
    cleave_step_info step{};
    step.struct_size = sizeof step;
    expect(cleave_plan_get_step(plan, CLEAVE_DECODE, 1u << 20, &step) == CLEAVE_INVALID_ARGUMENT,
           "an index beyond the end is refused");
    cleave_plan_free(plan);
}

void exceptions() {
    try {
        cleave::Plan plan(cleave::Graph::shape("llama-2-70b"),
                          cleave::Machine::devices("sim:rtx4090[0-1]"));
        expect(false, "what does not fit is refused");
    } catch (const cleave::Failure& failure) {
        expect(failure.does_not_fit() &&
                   failure.json().find("deficit_bytes") != std::string::npos &&
                   std::strstr(failure.what(), "sim:rtx4090[1]"),
               "what does not fit comes with each device's deficit");
        expect(!std::strstr(failure.what(), "--") && !std::strchr(failure.what(), '$') &&
                   failure.json().find("\"dtype ") != std::string::npos,
               "and with ways out that name the fields of cleave_plan_options");
    }
    cleave::Graph graph = cleave::Graph::named("g");
    cleave_operator op{};
    op.name = "a";
    op.columns = 12;
    op.split_units = 5;
    const auto refused = [&](const std::vector<size_t>& inputs, const char* piece) {
        try {
            graph.add(op, inputs);
            return false;
        } catch (const cleave::Failure& failure) {
            return failure.status() == CLEAVE_INVALID_INPUT &&
                   std::strstr(failure.what(), piece) != nullptr;
        }
    };
    expect(refused({}, "5 equal units"), "units that do not divide the columns are refused");
    op.split_units = 0;
    expect(refused({3}, "3"), "an input that is not there is refused");
    expect(graph.add(op, {}) == 0 && refused({}, "one of that name"),
           "a name that is taken is refused");
    op.name = "b";
    op.sharding = CLEAVE_BY_INPUT;
    expect(refused({}, "has none"), "an operator divided by its input has one");
}

// Different handles from many threads, and one plan read by all; each thread has its own last
// error.
void threads() {
    const cleave::Plan shared(cleave::Graph::shape("stories-260k"),
                              cleave::Machine::devices("sim:h100"));
    const std::string expected = shared.json();
    std::vector<std::thread> workers;
    std::vector<int> wrong(4, 0);
    for (int t = 0; t < 4; ++t)
        workers.emplace_back([&, t] {
            const std::string device = "sim:none" + std::to_string(t);
            cleave_machine* machine = nullptr;
            wrong[t] +=
                cleave_machine_from_devices(device.c_str(), &machine) != CLEAVE_INVALID_INPUT;
            std::this_thread::yield();
            wrong[t] += !error_has(device.c_str());
            cleave::Plan own(cleave::Graph::shape("stories-260k"),
                             cleave::Machine::devices("sim:h100"));
            wrong[t] += own.json() != expected || shared.json() != expected;
        });
    for (std::thread& worker : workers) worker.join();
    for (int count : wrong) expect(count == 0, "threads do not disturb each other");
}

}  // namespace

int main() {
    expect(cleave_abi_version() == CLEAVE_ABI_VERSION, "header and library are of one age");
    statuses();
    sizes();
    exceptions();
    threads();
    return failures ? 1 : 0;
}
