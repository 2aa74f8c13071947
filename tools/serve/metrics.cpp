// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/metrics.h"

#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "planner/plan/kv_room.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"

namespace cleave::serve {
namespace {

using Family = prometheus::MetricFamily;
using Labels = std::map<std::string, std::string>;
using Seconds = prometheus::Histogram::BucketBoundaries;

// Each some two and a half times the one before.
Seconds up_to_minutes() {
    return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120};
}

}  // namespace

struct Metrics::Impl {
    prometheus::Registry registry;
    Labels labels;
    std::string kv_device;                  // that bounds the pool
    double decode_seconds = 0;              // of a pass of all sequences, predicted
    std::map<std::string, double> busy_of;  // devices in it, shares of 1, predicted
    // Of each replica: the devices of its stages, and all their names.
    std::vector<std::vector<std::vector<size_t>>> stages;
    std::vector<std::vector<std::string>> devices;
    prometheus::Histogram *queue, *first_token, *token, *prefill, *decode, *whole;

    prometheus::Histogram* histogram(const std::string& name, const std::string& help) {
        return &prometheus::BuildHistogram()
                    .Name("cleave:" + name)
                    .Help(help)
                    .Labels(labels)
                    .Register(registry)
                    .Add({}, up_to_minutes());
    }

    // What is counted elsewhere, as it is now.
    struct Told {
        std::vector<Family> families;
        const Labels& labels;

        void add(const std::string& name, const std::string& help, prometheus::MetricType type,
                 double value, const Labels& more = {}) {
            // Metrics that differ by label alone follow each other.
            if (families.empty() || families.back().name != "cleave:" + name)
                families.emplace_back().name = "cleave:" + name;
            Family& family = families.back();
            family.help = help;
            family.type = type;
            prometheus::ClientMetric& metric = family.metric.emplace_back();
            for (const auto& [key, text] : labels) metric.label.push_back({key, text});
            for (const auto& [key, text] : more) metric.label.push_back({key, text});
            (type == prometheus::MetricType::Gauge ? metric.gauge.value : metric.counter.value) =
                value;
        }
        void gauge(const std::string& name, const std::string& help, double value,
                   const Labels& more = {}) {
            add(name, help, prometheus::MetricType::Gauge, value, more);
        }
        void counter(const std::string& name, const std::string& help, int64_t value,
                     const Labels& more = {}) {
            add(name + "_total", help, prometheus::MetricType::Counter, static_cast<double>(value),
                more);
        }
    };
    void add_busy(const runtime::EngineGroup& engines, Told& told) const;
};

// What was measured: of a stage, the mean of its devices.
void Metrics::Impl::add_busy(const runtime::EngineGroup& engines, Told& told) const {
    std::vector<runtime::EngineStatistics> each;
    for (size_t r = 0; r < engines.size(); ++r) each.push_back(engines.statistics_of(r));
    for (size_t r = 0; r < each.size(); ++r)
        for (size_t i = 0; i < each[r].busy_seconds.size(); ++i)
            if (each[r].busy_seconds[i])
                told.add("device_busy_seconds_total",
                         "in launches, without waits for other devices",
                         prometheus::MetricType::Counter, *each[r].busy_seconds[i],
                         {{"device", devices.at(r).at(i)}});
    for (size_t r = 0; r < each.size(); ++r)
        for (size_t stage = 0; stage < stages.at(r).size(); ++stage) {
            const std::vector<std::optional<double>>& busy = each[r].busy_seconds;
            double seconds = 0;
            const std::vector<size_t>& of_stage = stages[r][stage];
            for (const size_t device : of_stage)
                seconds +=
                    device < busy.size() ? busy[device].value_or(std::nan("")) : std::nan("");
            if (std::isnan(seconds) || each[r].active_seconds <= 0) continue;
            Labels of{{"stage", std::to_string(stage)}};
            if (each.size() > 1) of["replica"] = std::to_string(r);
            told.gauge("stage_busy_ratio",
                       "of the time in which a pass was in flight: in launches of its devices",
                       seconds / static_cast<double>(of_stage.size()) / each[r].active_seconds, of);
        }
}

Metrics::Metrics(const planner::Plan& plan, const std::string& model)
    : impl_(std::make_unique<Impl>()) {
    Impl& m = *impl_;
    m.labels = {{"model_name", model}};
    if (const auto bound = planner::kv_bound(plan))
        m.kv_device = plan.machine.device(bound->device).name;
    const auto decode_ns = static_cast<double>(plan.prediction.decode_ns_per_token);
    m.decode_seconds = decode_ns / 1e9;
    for (int64_t r = 0; r < plan.num_replicas(); ++r) {
        const planner::Plan& one = planner::find_replica(plan, r).make;
        std::vector<std::string>& names = m.devices.emplace_back();
        for (const planner::DeviceInfo& device : planner::replica_machine(plan, r).devices)
            names.push_back(device.name);
        const std::vector<int64_t>& busy_ns = one.prediction.decode_busy_ns;
        const auto pass_ns = static_cast<double>(one.prediction.decode_ns_per_token);
        for (size_t i = 0; i < busy_ns.size() && pass_ns > 0; ++i)
            m.busy_of[names.at(i)] = static_cast<double>(busy_ns[i]) / pass_ns;
        std::vector<std::vector<size_t>>& stages = m.stages.emplace_back();
        for (const planner::Stage& stage : one.stages) {
            std::vector<size_t>& indices = stages.emplace_back();
            for (const planner::DeviceId id : stage.devices) indices.push_back(id.index());
        }
    }
    m.queue = m.histogram("request_queue_time_seconds", "from arrival to the first pass");
    m.prefill = m.histogram("request_prefill_time_seconds", "from there to the first token");
    m.first_token = m.histogram("time_to_first_token_seconds", "from arrival to the first token");
    m.decode = m.histogram("request_decode_time_seconds", "from the first token to the last");
    m.token = m.histogram("request_time_per_output_token_seconds",
                          "of a request's tokens after the first, their mean");
    m.whole = m.histogram("e2e_request_latency_seconds", "from arrival to the last token");
}

Metrics::~Metrics() = default;

void Metrics::add(const runtime::RequestUsage& usage) {
    Impl& m = *impl_;
    m.queue->Observe(usage.queue_seconds);
    m.prefill->Observe(usage.prefill_seconds);
    m.first_token->Observe(usage.queue_seconds + usage.prefill_seconds);
    m.decode->Observe(usage.decode_seconds);
    if (usage.new_tokens > 1)
        m.token->Observe(usage.decode_seconds / static_cast<double>(usage.new_tokens - 1));
    m.whole->Observe(usage.queue_seconds + usage.prefill_seconds + usage.decode_seconds);
}

std::string Metrics::text(const runtime::EngineGroup& engines, size_t connections) const {
    const runtime::EngineStatistics statistics = engines.statistics();
    const runtime::SchedulerStatistics& scheduler = statistics.scheduler;
    Impl::Told told{impl_->registry.Collect(), impl_->labels};
    told.gauge("num_requests_running", "sequences that have a slot",
               static_cast<double>(scheduler.running));
    told.gauge("num_requests_waiting", "requests that wait for their first pass, and preempted",
               static_cast<double>(scheduler.waiting));
    told.gauge(
        "kv_cache_usage_perc", "blocks of the KV pool that sequences hold; 1 is all",
        static_cast<double>(scheduler.blocks_held) / static_cast<double>(engines.kv_blocks()),
        {{"kv_bound_device", impl_->kv_device}});
    told.gauge("connections", "clients that are connected", static_cast<double>(connections));
    told.gauge("oldest_pass_seconds", "that the oldest pass in flight has lasted; 0: idle",
               statistics.oldest_pass_seconds);
    told.counter("num_preemptions", "sequences whose blocks were taken", scheduler.preemptions);
    told.counter("prefix_cache_queries", "tokens of prompts that could have been found",
                 scheduler.prefix_queries);
    told.counter("prefix_cache_hits", "of these, found", scheduler.prefix_hits);
    told.counter("prompt_tokens", "of accepted requests", statistics.prompt_tokens);
    told.counter("generation_tokens", "given to clients", statistics.new_tokens);
    told.counter("admission_rejections", "requests that were refused", statistics.refused);
    told.counter("iteration_tokens", "tokens of all passes", scheduler.tokens);
    told.counter("passes", "that have ended", statistics.passes);
    told.add("pass_seconds_total", "from submission to result, of all passes",
             prometheus::MetricType::Counter, statistics.pass_seconds);
    told.gauge("decode_pass_seconds_predicted",
               "of a decode pass of all sequences, by the plan's costs", impl_->decode_seconds);
    for (const auto& [device, share] : impl_->busy_of)
        told.gauge("decode_busy_ratio_predicted", "of that pass; 1 is all of it", share,
                   {{"device", device}});
    impl_->add_busy(engines, told);
    for (size_t i = 0; i < statistics.finished.size(); ++i)
        told.counter(
            "request_success", "texts that have ended", statistics.finished[i],
            {{"finished_reason",
              std::string(runtime::finish_reason_name(static_cast<runtime::FinishReason>(i)))}});
    return prometheus::TextSerializer().Serialize(told.families);
}

}  // namespace cleave::serve
