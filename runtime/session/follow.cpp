// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/follow.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <new>

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include "planner/file/plan_file.h"
#include "planner/machine/device_list.h"
#include "planner/machine/join_machines.h"
#include "planner/machine/machine_file.h"
#include "planner/verify/verify.h"
#include "runtime/base/mapped_file.h"
#include "runtime/hosts/measure.h"

namespace cleave::runtime {

using namespace planner;

namespace {

// Commands of rank 0.
const std::string kDescribe = "d", kOpen = "o", kOpenTraced = "t";

// Of a larger file so many bytes are compared, in parts that are spread evenly.
constexpr size_t kCompared = size_t{4} << 30, kPart = size_t{1} << 20;

// The digest of a plan's files, then the plan.
struct GivenPlan {
    std::string digest, plan;
};

GivenPlan given_plan(const std::string& bytes) {
    const size_t end = bytes.find('\n');
    return {bytes.substr(0, end), bytes.substr(end + 1)};
}

Plan checked_plan(const HostJob& job, const std::string& bytes) {
    const GivenPlan given = given_plan(bytes);
    Plan plan = parse_plan(given.plan, "the plan of " + job.name(0));
    verify_plan(plan);
    if (digest_of_files(plan) != given.digest)
        throw UserError(
            "the model's files are not those of {}: they have other contents; copy {} from there",
            job.name(0), plan.graph.path);
    return plan;
}

// Every rank's part of a machine; whole on rank 0.
Machine described(HostJob& job, const std::string& list, const DescribeDevices& describe) {
    Machine mine;
    std::string objection;
    try {
        mine = describe(list);
    } catch (const Cancelled&) {
        throw;
    } catch (const Error& error) {
        objection = error.what();
    }
    job.vote(objection);
    const std::vector<std::string> all = job.gather(machine_to_json(mine));
    const auto rates = measure_links(job);
    if (job.rank() != 0) return mine;
    std::vector<HostMachine> hosts;
    std::vector<std::string> order;
    for (int r = 0; r < job.size(); ++r) {
        hosts.push_back({job.hosts()[static_cast<size_t>(r)],
                         parse_machine(all[static_cast<size_t>(r)], job.name(r))});
        for (const DeviceInfo& device : hosts.back().machine.devices) order.push_back(device.name);
    }
    if (!list.empty()) {
        order.clear();
        for (const DeviceSpec& spec : devices_on_hosts(parse_devices(list), job.hosts()))
            order.push_back(spec.text);
    }
    return join_machines(hosts, rates, order);
}

}  // namespace

std::string digest_of_files(const Plan& plan) {
    std::vector<bool> used(plan.graph.files.size(), false);
    for (const WeightShard& shard : plan.weights)
        if (const auto file = plan.graph.weight(shard.weight).data.file; file.valid())
            used[file.index()] = true;
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> digest(XXH3_createState(),
                                                                          XXH3_freeState);
    if (!digest) throw std::bad_alloc();
    XXH3_128bits_reset(digest.get());
    const auto add = [&](const void* bytes, size_t size) {
        XXH3_128bits_update(digest.get(), bytes, size);
    };
    for (size_t f = 0; f < used.size(); ++f) {
        if (!used[f]) continue;
        const importer::SourceFile& file = plan.graph.files[f];
        std::error_code error;
        const auto size = std::filesystem::file_size(file.path, error);
        if (error)
            throw UserError("{}: {}; every host of a run reads the weights from its own copy",
                            file.path, error.message());
        if (size != file.size)
            throw UserError("{} has {} bytes here, and {} where the plan was made", file.path, size,
                            file.size);
        const MappedFile mapped(file.path);
        const auto bytes = mapped.bytes();
        const std::string name = std::filesystem::path(file.path).filename().string();
        add(name.c_str(), name.size() + 1);
        add(&file.size, sizeof file.size);
        const size_t step = std::max(kPart, bytes.size() / (kCompared / kPart));
        for (size_t at = 0; at < bytes.size(); at += step)
            add(bytes.data() + at, std::min(kPart, bytes.size() - at));
        if (!bytes.empty()) {
            const auto last = bytes.last(std::min(kPart, bytes.size()));
            add(last.data(), last.size());
        }
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(digest.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string plan_message(const Plan& plan, bool record_trace) {
    return (record_trace ? kOpenTraced : kOpen) + digest_of_files(plan) + "\n" +
           serialize_plan(plan);
}

Machine machine_of_run(HostJob& job, const std::string& list, const DescribeDevices& describe) {
    job.send_others(Message::kCommand, kDescribe + list);
    return described(job, list, describe);
}

void end_run(HostJob& job) { job.send_others(Message::kCommand, ""); }

void follow(HostJob& job, const SessionOptions& options, const DescribeDevices& describe) {
    for (;;) {
        std::string bytes = job.receive(0, Message::kCommand);
        if (bytes.empty()) return;
        const std::string command = bytes.substr(0, 1);
        bytes.erase(0, 1);
        if (command == kDescribe) {
            described(job, bytes, describe);
            continue;
        }
        std::optional<Plan> plan;
        std::string objection;
        try {
            plan = checked_plan(job, bytes);
        } catch (const Cancelled&) {
            throw;
        } catch (const Error& error) {
            objection = error.what();
        }
        if (!objection.empty()) job.vote(objection);
        SessionOptions mine = options;
        mine.record_trace = command == kOpenTraced;
        Session session(*plan, mine);
        session.follow();
    }
}

}  // namespace cleave::runtime
