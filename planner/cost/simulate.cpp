// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/simulate.h"

#include <algorithm>
#include <cmath>

#include "planner/cost/launch_times.h"
#include "planner/cost/link_times.h"
#include "planner/cost/serving.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

class Simulation {
public:
    // `fixed_ns`: the part of each step's time that no domain slows. Each device runs its steps
    // `passes` times in order, as the executor does; start times are those of the first pass.
    Simulation(const Plan& plan, Phase& phase, const LinkTable& links,
               std::vector<int64_t> fixed_ns, size_t passes = 1)
        : plan_(plan),
          phase_(phase),
          links_(links),
          fixed_ns_(std::move(fixed_ns)),
          queues_(plan.machine.devices.size()),
          passes_(passes) {
        members_.reserve(phase.steps.size());
        for (size_t i = 0; i < phase.steps.size(); ++i) {
            members_.push_back(members_of(phase.steps[i]));
            for (DeviceId d : members_.back()) queues_[d.index()].push_back(static_cast<int>(i));
        }
        head_.assign(queues_.size(), 0);
        busy_.assign(queues_.size(), 0);
        started_.assign(phase.steps.size(), 0);
        ended_.assign(phase.steps.size(), 0);
    }

    int64_t run() {
        for (size_t d = 0; d < queues_.size(); ++d) try_start(DeviceId(d));
        size_t done = 0;
        while (!running_.empty()) {
            share_domains();
            double next = INFINITY;
            for (const Running& r : running_)
                next = std::min(next, r.fixed > 0 ? r.fixed : r.remaining * r.slowdown);
            now_ += next;
            std::vector<int> finished;
            auto is_done = [](const Running& r) { return r.fixed <= 0 && r.remaining <= 1e-6; };
            for (Running& r : running_) {
                if (r.fixed > 0) {
                    r.fixed -= next;
                    if (r.fixed <= 1e-6) r.fixed = 0;
                } else {
                    r.remaining -= next / r.slowdown;
                }
                if (is_done(r)) finished.push_back(r.step);
            }
            std::erase_if(running_, is_done);
            std::sort(finished.begin(), finished.end());
            for (int step : finished) finish(step);
            done += finished.size();
        }
        CLEAVE_CHECK(done == phase_.steps.size() * passes_)
            << done << " of " << phase_.steps.size() * passes_ << " steps could run";
        return std::llround(now_);
    }

    const std::vector<int64_t>& busy() const { return busy_; }
    // By step, in the latest pass.
    const std::vector<int64_t>& ended() const { return ended_; }

private:
    // What is left of a step: its fixed part first, then what shares a domain with others.
    struct Running {
        int step;
        double fixed, remaining, slowdown;
        LinkTable::Demand want;
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

    // The device's next step and the pass that it is of; -1 after the last.
    std::pair<int, size_t> next_of(DeviceId device) const {
        const auto& queue = queues_[device.index()];
        size_t head = head_[device.index()];
        if (head >= queue.size() * passes_) return {-1, passes_};
        return {queue[head % queue.size()], head / queue.size()};
    }

    // Starts the device's next step when all its members have reached it.
    void try_start(DeviceId device) {
        auto [step, pass] = next_of(device);
        if (step < 0) return;
        for (DeviceId d : members_[step])
            if (next_of(d) != std::pair(step, pass)) return;
        if (pass == 0) phase_.steps[step].start_ns = std::llround(now_);
        started_[step] = std::llround(now_);
        int64_t fixed = fixed_ns_[static_cast<size_t>(step)];
        int64_t shared =
            std::max<int64_t>(fixed > 0 ? 0 : 1, phase_.steps[step].predicted_ns - fixed);
        running_.push_back(
            {step, static_cast<double>(fixed), static_cast<double>(shared), 1.0, demand(step)});
    }

    void finish(int step) {
        ended_[static_cast<size_t>(step)] = std::llround(now_);
        // A transfer between hosts is under way while both of its devices work on other passes.
        const bool on_the_way = phase_.steps[static_cast<size_t>(step)].transfer() &&
                                !links_.on_one_host(members_[step]) &&
                                links_.runs_here(members_[step]);
        const int64_t idle = on_the_way ? fixed_ns_[static_cast<size_t>(step)] : 0;
        for (DeviceId d : members_[step]) {
            busy_[d.index()] += std::llround(now_) - started_[step] - idle;
            ++head_[d.index()];
        }
        std::vector<DeviceId> members = members_[step];
        for (DeviceId d : members) {
            // A step shared by two of these members must start once.
            int next = next_of(d).first;
            if (next < 0) continue;
            bool started = std::any_of(running_.begin(), running_.end(),
                                       [&](const Running& r) { return r.step == next; });
            if (!started) try_start(d);
        }
    }

    void share_domains() {
        if (plan_.machine.domains.empty()) return;
        std::vector<double> wanted(plan_.machine.domains.size(), 0.0);
        auto shares = [](const Running& r) { return r.fixed <= 0 && r.want.domain >= 0; };
        for (const Running& r : running_)
            if (shares(r))
                wanted[static_cast<size_t>(r.want.domain)] += static_cast<double>(r.want.bandwidth);
        for (Running& r : running_) {
            r.slowdown = 1.0;
            if (!shares(r)) continue;
            auto domain = static_cast<size_t>(r.want.domain);
            auto has =
                static_cast<double>(std::max<int64_t>(1, plan_.machine.domains[domain].bandwidth));
            r.slowdown = std::max(1.0, wanted[domain] / has);
        }
    }

    // What a step wants of the memory or the links that it shares with others.
    LinkTable::Demand demand(int step) const {
        if (plan_.machine.domains.empty()) return {};
        if (const Compute* c = phase_.steps[static_cast<size_t>(step)].compute()) {
            const DeviceInfo& device = plan_.machine.device(c->device);
            return {device.memory_domain, device.memory_bandwidth};
        }
        return links_.demand(members_[static_cast<size_t>(step)]);
    }

    const Plan& plan_;
    Phase& phase_;
    const LinkTable& links_;
    std::vector<int64_t> fixed_ns_;
    std::vector<std::vector<int>> queues_;
    size_t passes_ = 1;
    std::vector<size_t> head_;      // by device, over all passes
    std::vector<int64_t> started_;  // by step, in its latest pass
    std::vector<int64_t> ended_;
    std::vector<std::vector<DeviceId>> members_;
    std::vector<Running> running_;
    std::vector<int64_t> busy_;
    double now_ = 0;
};

// Host devices of each stage: they share the threads.
std::vector<size_t> host_widths(const Plan& plan) {
    std::vector<size_t> widths;
    for (const Stage& stage : plan.stages)
        widths.push_back(static_cast<size_t>(std::count_if(
            stage.devices.begin(), stage.devices.end(),
            [&](DeviceId d) { return plan.machine.device(d).kind == DeviceKind::kHost; })));
    return widths;
}

// Fills each step's time alone; the result is the part of each that no domain slows.
class StepTimes {
public:
    StepTimes(const Analysis& analysis, const Plan& plan, const Workload& workload,
              const LinkTable& links)
        : plan_(plan),
          workload_(workload),
          links_(links),
          launches_(analysis, plan.machine, workload),
          widths_(host_widths(plan)),
          group_of_(analysis.graph.ops.size(), 0) {
        for (size_t g = 0; g < analysis.groups.size(); ++g)
            for (OpId id : analysis.groups[g].ops) group_of_[id.index()] = g;
    }

    std::vector<int64_t> predict(Phase& phase, bool is_prefill) {
        std::vector<int64_t> fixed;
        fixed.reserve(phase.steps.size());
        for (Step& step : phase.steps) {
            LaunchCosts::Time t;
            if (const Compute* c = step.compute())
                t = launches_.time(c->device, group_of_[c->ops[0].index()],
                                   {c->flops, c->weight_bytes, c->activation_bytes}, is_prefill,
                                   widths_[static_cast<size_t>(step.stage)], c->activations);
            else
                t = communication(phase, step, launches_.point(is_prefill));
            step.predicted_ns = t.ns;
            fixed.push_back(t.fixed_ns);
        }
        return fixed;
    }

private:
    // Latency is fixed: it uses no bandwidth.
    LaunchCosts::Time communication(const Phase& phase, const Step& step, const PassPoint& point) {
        if (const Transfer* t = step.transfer()) {
            DeviceId from = phase.values[t->source.index()].device;
            DeviceId to = phase.values[t->destination.index()].device;
            return {links_.transfer_ns(from, to, t->bytes.at(point)),
                    links_.transfer_ns(from, to, 0)};
        }
        const Collective& c = *step.collective();
        int64_t bytes = c.bytes.at(point);
        if (c.op == CollectiveOp::kAllReduce) {
            // Layers repeat: the last one's time is most often this one's.
            if (c.group != last_group_ || c.form() != last_form_ || bytes != last_bytes_)
                last_ = {links_.all_reduce_ns(c.group, bytes, c.form()),
                         links_.all_reduce_ns(c.group, 0, c.form())};
            last_group_ = c.group;
            last_form_ = c.form();
            last_bytes_ = bytes;
            return {last_.ns + norm_ns(phase, c, point), last_.fixed_ns};
        }
        std::vector<DeviceId> from;
        for (PlacedId id : c.contributions) from.push_back(phase.values[id.index()].device);
        return {links_.gather_ns(from, c.group, bytes), links_.gather_ns(from, c.group, 0)};
    }

    // Of a norm that rides on a sum, on its slowest member: it writes its result and reads its
    // weight; what it normalises is in registers.
    int64_t norm_ns(const Phase& phase, const Collective& c, const PassPoint& point) const {
        int64_t slowest = 0;
        for (size_t m = 0; m < c.weights.size(); ++m) {
            const importer::Value& value =
                plan_.graph.value(phase.values[c.outputs[c.group.size() + m].index()].value);
            const WeightShard& weight = plan_.weights[c.weights[m].index()];
            const int64_t bytes = value_bytes(value, 0, workload_).at(point) +
                                  dtype_bytes(weight.dtype, weight.rows.size());
            const auto rate = static_cast<double>(
                std::max<int64_t>(1, plan_.machine.device(c.group[m]).memory_bandwidth));
            slowest =
                std::max<int64_t>(slowest, std::llround(static_cast<double>(bytes) * 1e9 / rate));
        }
        return slowest;
    }

    const Plan& plan_;
    const Workload& workload_;
    const LinkTable& links_;
    LaunchCosts launches_;
    std::vector<size_t> widths_, group_of_;
    std::vector<DeviceId> last_group_;
    SumForm last_form_ = SumForm::kOneShot;
    int64_t last_bytes_ = -1;
    LaunchCosts::Time last_;
};

// Rank 0 of a run on several hosts, which has the first device, says to the others that a pass
// begins, and hears from the output device's which tokens it gave. Where the first stage is rank
// 0's, the others know long before their turn.
int64_t messages_ns(const Plan& plan, const LinkTable& links) {
    const DeviceId first(0);
    const auto way = [&](DeviceId from, DeviceId to) {
        const DeviceId both[] = {from, to};
        return links.on_one_host(both) || !links.runs_here(both) ? 0
                                                                 : links.transfer_ns(from, to, 0);
    };
    if (plan.stages.empty() || !plan.output_device.valid()) return 0;
    int64_t begins = 0;
    for (DeviceId d : plan.stages.front().devices) begins = std::max(begins, way(first, d));
    return begins + way(plan.output_device, first);
}

// All passes of the prompts, of the workload that `times` has. Chunks follow each other through the
// stages: after the first, one leaves in the busiest stage's time. A device with several stages
// ends its part of a chunk before it begins the next one, and others wait for it.
PhaseTimes prefill_times(const Plan& plan, Phase& phase, const Workload& workload,
                         const LinkTable& links, StepTimes& times) {
    const std::vector<int64_t> fixed = times.predict(phase, true);
    Simulation first(plan, phase, links, fixed);
    PhaseTimes all{first.run(), first.busy()};
    const int64_t passes = num_prefill_passes(workload);
    int64_t each = *std::max_element(all.busy_ns.begin(), all.busy_ns.end());
    if (passes > 1 && has_virtual_stages(plan))
        each = std::max(each, Simulation(plan, phase, links, fixed, 2).run() - all.whole_ns);
    all.whole_ns += (passes - 1) * each;
    for (int64_t& busy : all.busy_ns) busy *= passes;
    all.whole_ns += messages_ns(plan, links);
    return all;
}

// One prompt alone.
PhaseTimes prompt_times(const Analysis& analysis, const Plan& plan, const LinkTable& links) {
    Workload workload = plan.workload;
    workload.batch = 1;
    Phase phase = plan.prefill;  // its steps' times are these
    StepTimes times(analysis, plan, workload, links);
    return prefill_times(plan, phase, workload, links, times);
}

PhaseTimes decode_times(const Analysis& analysis, const Plan& plan, const LinkTable& links,
                        int64_t sequences) {
    Workload workload = plan.workload;
    workload.batch = sequences;
    Phase phase = plan.decode;
    StepTimes times(analysis, plan, workload, links);
    Simulation decode(plan, phase, links, times.predict(phase, false));
    const int64_t whole = decode.run() + messages_ns(plan, links);
    return {whole, decode.busy()};
}

}  // namespace

bool has_virtual_stages(const Plan& plan) {
    std::vector<bool> seen(plan.machine.devices.size());
    for (const Stage& stage : plan.stages)
        for (DeviceId d : stage.devices) {
            if (seen[d.index()]) return true;
            seen[d.index()] = true;
        }
    return false;
}

int64_t generated_tokens(const Workload& w) {
    return std::max<int64_t>(1, w.context - w.prompt_tokens);
}

void simulate(const Analysis& analysis, Plan& plan) {
    LinkTable links(plan.machine);
    StepTimes times(analysis, plan, plan.workload, links);
    Prediction& p = plan.prediction;
    const PhaseTimes prefill = prefill_times(plan, plan.prefill, plan.workload, links, times);
    p.prefill_ns = prefill.whole_ns;
    Simulation decode(plan, plan.decode, links, times.predict(plan.decode, false));
    p.decode_ns_per_token = decode.run() + messages_ns(plan, links);
    p.decode_busy_ns = decode.busy();
    const ObjectiveRow& objective = row_of(plan.options.objective);
    if (objective.serves) {
        const PhaseTimes one = prompt_times(analysis, plan, links);
        p.serving = serving_of(plan, prefill, one.whole_ns, [&](int64_t sequences) {
            return decode_times(analysis, plan, links, sequences);
        });
        p.objective_ns = p.serving.tpot_ns;
        return;
    }
    const int64_t generated = generated_tokens(plan.workload);
    const auto busiest = [](const PhaseTimes& t) { return *std::ranges::max_element(t.busy_ns); };
    p.objective_ns =
        objective.score({p.decode_ns_per_token + p.prefill_ns / generated,
                         busiest({0, p.decode_busy_ns}) + busiest(prefill) / generated});
}

Workload workload_of_pass(Workload workload, const PassExtent& pass) {
    if (pass.is_prefill) {
        const int64_t outputs = std::clamp<int64_t>(pass.outputs, 1, pass.tokens);
        const int64_t passes = std::max<int64_t>(1, 2 * pass.keys * outputs / pass.tokens);
        workload.batch = outputs;
        workload.prompt_tokens = passes * pass.tokens / outputs;
        workload.prefill_chunk = pass.tokens;
        workload.context = workload.prompt_tokens + 1;
    } else {
        workload.batch = pass.tokens;
        workload.prompt_tokens = workload.context = std::max<int64_t>(1, pass.keys - 1);
    }
    workload.all_logits = false;
    return workload;
}

std::vector<StepSpan> step_spans(const Analysis& analysis, const Plan& plan, bool is_prefill,
                                 const Workload& workload) {
    const LinkTable links(plan.machine);
    StepTimes times(analysis, plan, workload, links);
    Phase phase = plan.phase(is_prefill);  // its steps' times are these
    const std::vector<int64_t> fixed = times.predict(phase, is_prefill);
    Simulation pass(plan, phase, links, fixed);
    pass.run();
    std::vector<StepSpan> spans(phase.steps.size());
    for (size_t i = 0; i < spans.size(); ++i)
        spans[i] = {phase.steps[i].start_ns, pass.ended()[i],
                    std::min(fixed[i], phase.steps[i].predicted_ns)};
    return spans;
}

PhaseTimes decode_times(const Analysis& analysis, const Plan& plan, int64_t sequences) {
    return decode_times(analysis, plan, LinkTable(plan.machine), sequences);
}

}  // namespace cleave::planner
