// SPDX-License-Identifier: Apache-2.0
#include "planner/simulate.h"

#include <algorithm>
#include <cmath>

#include "planner/cost.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

class Simulation {
public:
    Simulation(const Plan& plan, Phase& phase)
        : plan_(plan), phase_(phase), queues_(plan.machine.devices.size()) {
        members_.reserve(phase.steps.size());
        for (size_t i = 0; i < phase.steps.size(); ++i) {
            members_.push_back(members_of(phase.steps[i]));
            for (DeviceId d : members_.back()) queues_[d.index()].push_back(static_cast<int>(i));
        }
        head_.assign(queues_.size(), 0);
        busy_.assign(queues_.size(), 0);
    }

    int64_t run() {
        for (size_t d = 0; d < queues_.size(); ++d) try_start(DeviceId(d));
        size_t done = 0;
        while (!running_.empty()) {
            share_domains();
            double next = INFINITY;
            for (const Running& r : running_) next = std::min(next, r.remaining * r.slowdown);
            now_ += next;
            std::vector<int> finished;
            for (Running& r : running_) {
                r.remaining -= next / r.slowdown;
                if (r.remaining <= 1e-6) finished.push_back(r.step);
            }
            std::erase_if(running_, [](const Running& r) { return r.remaining <= 1e-6; });
            std::sort(finished.begin(), finished.end());
            for (int step : finished) finish(step);
            done += finished.size();
        }
        CHECK(done == phase_.steps.size())
            << done << " of " << phase_.steps.size() << " steps could run";
        return std::llround(now_);
    }

    const std::vector<int64_t>& busy() const { return busy_; }

private:
    struct Running {
        int step;
        double remaining, slowdown;
    };

    std::vector<DeviceId> members_of(const Step& step) const {
        std::vector<DeviceId> members;
        if (const Compute* c = step.compute()) members = {c->device};
        if (const Transfer* t = step.transfer())
            members = {phase_.values[t->source.index()].device,
                       phase_.values[t->destination.index()].device};
        if (const Collective* c = step.collective()) {
            members = c->group;
            for (PlacedId id : c->contributions)
                members.push_back(phase_.values[id.index()].device);
        }
        std::sort(members.begin(), members.end());
        members.erase(std::unique(members.begin(), members.end()), members.end());
        return members;
    }

    // Starts the device's next step when all its members have reached it.
    void try_start(DeviceId device) {
        const auto& queue = queues_[device.index()];
        if (head_[device.index()] >= queue.size()) return;
        int step = queue[head_[device.index()]];
        for (DeviceId d : members_[step])
            if (head_[d.index()] >= queues_[d.index()].size() ||
                queues_[d.index()][head_[d.index()]] != step)
                return;
        phase_.steps[step].start_ns = std::llround(now_);
        running_.push_back(
            {step, static_cast<double>(std::max<int64_t>(1, phase_.steps[step].predicted_ns)),
             1.0});
    }

    void finish(int step) {
        for (DeviceId d : members_[step]) {
            busy_[d.index()] += std::llround(now_) - phase_.steps[step].start_ns;
            ++head_[d.index()];
        }
        std::vector<DeviceId> members = members_[step];
        for (DeviceId d : members) {
            // A step shared by two of these members must start once.
            const auto& queue = queues_[d.index()];
            if (head_[d.index()] >= queue.size()) continue;
            int next = queue[head_[d.index()]];
            bool started = std::any_of(running_.begin(), running_.end(),
                                       [&](const Running& r) { return r.step == next; });
            if (!started) try_start(d);
        }
    }

    void share_domains() {
        if (plan_.machine.domains.empty()) return;
        std::vector<double> wanted(plan_.machine.domains.size(), 0.0);
        auto each_member = [&](const Running& r, auto&& visit) {
            for (DeviceId d : members_[r.step]) {
                const Device& device = plan_.machine.device(d);
                if (device.memory_domain >= 0)
                    visit(static_cast<size_t>(device.memory_domain), device);
            }
        };
        for (const Running& r : running_)
            each_member(r, [&](size_t domain, const Device& d) {
                wanted[domain] += static_cast<double>(d.memory_bandwidth);
            });
        for (Running& r : running_) {
            r.slowdown = 1.0;
            each_member(r, [&](size_t domain, const Device&) {
                auto has = static_cast<double>(
                    std::max<int64_t>(1, plan_.machine.domains[domain].bandwidth));
                r.slowdown = std::max(r.slowdown, wanted[domain] / has);
            });
        }
    }

    const Plan& plan_;
    Phase& phase_;
    std::vector<std::vector<int>> queues_;
    std::vector<size_t> head_;
    std::vector<std::vector<DeviceId>> members_;
    std::vector<Running> running_;
    std::vector<int64_t> busy_;
    double now_ = 0;
};

// Time of each step alone.
void predict_steps(const Analysis& analysis, const Plan& plan, const LinkTable& links, Phase& phase,
                   bool is_prefill) {
    BatchPoint point = is_prefill ? prefill_point(plan.workload) : decode_point(plan.workload);
    std::vector<DType> dtypes;
    dtypes.reserve(analysis.groups.size());
    for (const FusedGroup& group : analysis.groups)
        dtypes.push_back(compute_dtype(analysis, group, plan.workload));
    std::vector<int> group_of(analysis.graph.ops.size(), -1);
    for (size_t g = 0; g < analysis.groups.size(); ++g)
        for (OpId id : analysis.groups[g].ops) group_of[id.index()] = static_cast<int>(g);
    for (Step& step : phase.steps) {
        if (const Compute* c = step.compute()) {
            LaunchAmounts amounts{c->flops, c->weight_bytes, c->activation_bytes};
            step.predicted_ns =
                launch_ns(plan.machine.device(c->device), dtypes[group_of[c->ops[0].index()]],
                          amounts, point, is_prefill);
        } else if (const Transfer* t = step.transfer()) {
            step.predicted_ns =
                links.transfer_ns(phase.values[t->source.index()].device,
                                  phase.values[t->destination.index()].device, at(t->bytes, point));
        } else if (const Collective* c = step.collective()) {
            if (c->op == CollectiveOp::kAllReduce) {
                step.predicted_ns =
                    links.all_reduce_ns(c->group, at(c->bytes, point), c->implementation);
            } else {
                std::vector<DeviceId> from;
                for (PlacedId id : c->contributions)
                    from.push_back(phase.values[id.index()].device);
                step.predicted_ns = links.gather_ns(from, c->group[0], at(c->bytes, point));
            }
        }
    }
}

}  // namespace

int64_t generated_tokens(const Workload& w) {
    return std::max<int64_t>(1, w.context - w.prompt_tokens);
}

int64_t objective_ns(const Prediction& p, int64_t prefill_busy_ns, const Workload& w,
                     Objective objective) {
    int64_t generated = generated_tokens(w);
    if (objective != Objective::kThroughput)
        return p.decode_ns_per_token + p.prefill_ns / generated;
    int64_t busiest = 0;
    for (int64_t busy : p.decode_busy_ns) busiest = std::max(busiest, busy);
    return busiest + prefill_busy_ns * num_prefill_passes(w) / generated;
}

void simulate(const Analysis& analysis, Plan& plan) {
    LinkTable links(plan.machine);
    predict_steps(analysis, plan, links, plan.prefill, true);
    predict_steps(analysis, plan, links, plan.decode, false);
    Simulation prefill(plan, plan.prefill);
    int64_t first_pass = prefill.run();
    int64_t busiest = 0;
    for (int64_t busy : prefill.busy()) busiest = std::max(busiest, busy);
    // Chunks follow each other through the stages: after the first, one leaves in the busiest stage's time.
    plan.prediction.prefill_ns = first_pass + (num_prefill_passes(plan.workload) - 1) * busiest;
    Simulation decode(plan, plan.decode);
    plan.prediction.decode_ns_per_token = decode.run();
    plan.prediction.decode_busy_ns = decode.busy();
    plan.prediction.objective_ns =
        objective_ns(plan.prediction, busiest, plan.workload, plan.options.objective);
}

}  // namespace cleave::planner
