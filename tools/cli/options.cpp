// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/options.h"

#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "importer/weights/formats.h"
#include "planner/machine/fabric.h"
#include "planner/plan/workload_request.h"
#include "runtime/base/errors.h"
#include "runtime/base/suggest.h"
#include "tools/cli/groups.h"
#include "tools/cli/other_names.h"

namespace cleave::tools {
namespace {

// More than any machine or model has; keeps products of them far from overflow.
constexpr int64_t kMostDevices = 1024, kMostBatch = 1 << 20, kMostTokens = int64_t{1} << 30;

std::atomic<int> interruptibles{0};

}  // namespace

CancelToken& cancel_token() {
    static CancelToken token;
    return token;
}

Interruptible::Interruptible() { ++interruptibles; }
Interruptible::~Interruptible() { --interruptibles; }
bool Interruptible::active() noexcept { return interruptibles.load() > 0; }

void add_wiring(CLI::App& app, planner::Wiring& wiring, const std::string& group) {
    app.add_option("--fabric", wiring.fabric,
                   "what joins the nodes of sim: devices: " + planner::fabric_names() +
                       "; default: that of their servers")
        ->type_name("NAME")
        ->group(group);
    app.add_option("--pcie-group", wiring.pcie_group,
                   "so many PCIe cards of a node share one x16 link (a switch, a root); default: "
                   "each has its own, and times say what one link for all would make of them")
        ->check(whole_number(1, kMostDevices))
        ->group(group);
    app.add_option_function<double>(
           "--sum-skew", [&wiring](double us) { wiring.sum_skew_ns = std::llround(us * 1e3); },
           "microseconds that a sum of GPUs waits for the last of them, for each doubling of their "
           "number: 0 as the best engines have it (default), 2 as most")
        ->type_name("US")
        ->check(real_number(0, static_cast<double>(planner::kMostSumSkewNs) / 1e3))
        ->group(group);
}

CLI::Validator whole_number(int64_t least, int64_t most) {
    auto check = [=](const std::string& text) -> std::string {
        int64_t value = 0;
        auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc() && end == text.data() + text.size() && value >= least &&
            value <= most)
            return {};
        return fmt::format("{} is not possible: expected a whole number from {} to {}", text, least,
                           most);
    };
    return CLI::Validator(check, fmt::format("{}..{}", least, most));
}

CLI::Validator real_number(double least, double most) {
    auto check = [=](const std::string& text) -> std::string {
        char* end = nullptr;
        double value = std::strtod(text.c_str(), &end);
        if (!text.empty() && *end == 0 && value >= least && value <= most)
            return {};  // NaN is refused, too
        return fmt::format("{} is not possible: expected a number from {} to {}", text, least,
                           most);
    };
    return CLI::Validator(check, fmt::format("{}..{}", least, most));
}

void add_model_flags(CLI::App& app, ModelFlags& flags, bool required) {
    app.add_option("MODEL", flags.model,
                   "an .onnx file, a folder with one, a Hugging Face folder, a GGUF file, a plan "
                   "that was saved, a shape name (llama-3-8b, ...) or a config.json")
        ->required(required);
    app.add_option("--weights", flags.weights,
                   "none: the file's external data may be absent (plan only); default: any")
        ->check(CLI::IsMember({"any", "none"}))
        ->group(kForExperts);
}

CLI::Validator number_or_auto(int64_t most) {
    const CLI::Validator number = whole_number(1, most);
    return CLI::Validator(
        [number](std::string& text) { return text == "auto" ? std::string() : number(text); },
        "N|auto");
}

namespace {

void add_device_flags(CLI::App& app, PlanFlags& flags) {
    std::vector<std::string> objectives;
    for (const planner::ObjectiveRow& row : planner::kObjectives) objectives.emplace_back(row.name);
    app.add_option("--devices", flags.devices,
                   "'host[0-3]', cuda, 'cuda[4,5]', 'hip[0-7]', 'sim:h100[0-7]', "
                   "'simt:gfx90a[0]', joined by commas (quotes keep a shell from reading the "
                   "brackets); default: every GPU found, else host")
        ->type_name("LIST")
        ->group(kPlanGroup);
    app.add_option("--machine", flags.machine_file,
                   "devices and links from a file, as cleave devices -o FILE writes one")
        ->type_name("FILE.json")
        ->group(kPlanGroup);
    app.add_option("--tp", flags.tensor_parallel,
                   "tensor-parallel shards of every stage; default: the planner chooses")
        ->check(whole_number(1, kMostDevices))
        ->group(kPlanGroup);
    app.add_option("--pp", flags.pipeline_stages, "pipeline stages; default: the planner chooses")
        ->check(whole_number(1, kMostDevices))
        ->group(kPlanGroup);
    app.add_option(
           "--objective", flags.objective,
           "what the plan is best at: latency, the time of a token; throughput, tokens/s "
           "of many users; memory, the fewest devices that hold the model; fleet, the fewest "
           "that serve --concurrency, or with --price the cheapest; default: latency")
        ->check(CLI::IsMember(objectives))
        ->group(kPlanGroup);
    app.add_option("--concurrency", flags.concurrency,
                   "with --objective throughput or fleet: users at once, each with KV for a whole "
                   "context; default: --batch, of throughput else as many as the devices hold")
        ->check(whole_number(1, kMostBatch))
        ->group(kPlanGroup);
    app.add_option("--pin", flags.pins,
                   "'layers.0-15=cuda[0]' or 'embedding=host[0]'; may be repeated")
        ->type_name("WHAT=DEVICE")
        ->allow_extra_args(false)
        ->group(kPlanGroup);
    add_wiring(app, flags.wiring, kForExperts);
    app.add_option(
           "--replicas", flags.replicas,
           "with --objective throughput or fleet: copies of the model on equal parts of the "
           "devices; default: auto, the planner chooses")
        ->check(number_or_auto(kMostDevices))
        ->group(kForExperts);
    app.add_option(
           "--max-ttft", flags.max_ttft,
           "with --objective throughput or fleet: to a user's first token, at most; default: no "
           "limit")
        ->check(real_number(0.001, 1e9))
        ->type_name("MS")
        ->group(kForExperts);
    app.add_option(
           "--max-tpot", flags.max_tpot,
           "with --objective throughput or fleet: for each further token, at most; default: no "
           "limit")
        ->check(real_number(0.001, 1e9))
        ->type_name("MS")
        ->group(kForExperts);
    app.add_option(
           "--price", flags.prices,
           "of an hour, in any currency: 'h100=2.5' of a model, 'host=0.1' of a kind, or of "
           "one device; the plan then has its cost; may be repeated")
        ->type_name("MODEL=PRICE")
        ->allow_extra_args(false)
        ->group(kForExperts);
    app.add_flag("--ignore-affinities", flags.ignore_affinities,
                 "do not take the devices that the ONNX file's nodes name as pins")
        ->group(kForExperts);
    app.add_flag("--whole-layers", flags.whole_layers,
                 "cut the model between layers only, never between a layer's attention and its MLP")
        ->group(kForExperts);
    app.add_flag("--no-metis", flags.no_metis, "search over the plain topological order only")
        ->group(kForExperts);
}

// "auto" is what is taken where the option is not given.
CLI::Validator auto_is_default() {
    return CLI::Validator(
        [](std::string& text) {
            if (text == "auto") text.clear();
            return std::string();
        },
        "");
}

void add_workload_flags(CLI::App& app, PlanFlags& flags) {
    app.add_option("--batch", flags.batch, "sequences at once; default: 1")
        ->check(whole_number(1, kMostBatch))
        ->group(kWorkloadGroup);
    app.add_option("--context", flags.context,
                   "longest sequence, prompt and new tokens, which sizes the KV cache; default: "
                   "4096, or the model's limit where that is less")
        ->check(whole_number(1, kMostTokens))
        ->group(kWorkloadGroup);
    app.add_option("--prompt-tokens", flags.prompt_tokens,
                   "prompt length that times are quoted for; default: 512, in a context of at most "
                   "512 half of it")
        ->check(whole_number(1, kMostTokens))
        ->group(kWorkloadGroup);
    app.add_option("--dtype", flags.dtype,
                   fmt::format("weights on devices: f32, f16, bf16 (converted as shards are cut), "
                               "{} (quantised as shards are cut); default: as stored",
                               importer::quantized_type_names(true)))
        ->transform(auto_is_default())
        ->type_name("TYPE")
        ->group(kWorkloadGroup);
    app.add_option("--kv-dtype", flags.kv_dtype,
                   "KV cache: f32, f16, bf16, f8e4m3, int8; default: the weights' type where it "
                   "has 16 bits or more")
        ->transform(auto_is_default())
        ->type_name("TYPE")
        ->group(kWorkloadGroup);
    app.add_option("--prefill-chunk", flags.prefill_chunk,
                   "tokens in one prefill pass; default: 512")
        ->check(whole_number(1, kMostTokens))
        ->group(kForExperts);
    app.add_option("--activation-dtype", flags.activation_dtype,
                   "activations on GPUs, what sums and transfers move with them: f32, f16, bf16; "
                   "default: f32")
        ->check(CLI::IsMember({"f32", "f16", "bf16"}))
        ->type_name("TYPE")
        ->group(kForExperts);
    app.add_option(
           "--compute", flags.compute,
           "products on hosts: exact, activations stay f32; fast, they are rounded to bf16 for "
           "weights of bf16, to int8 in groups of 32 for integers; default: fast where all "
           "devices are hosts")
        ->check(CLI::IsMember({"exact", "fast"}))
        ->group(kForExperts);
    app.add_option("--kv-tokens", flags.kv_tokens,
                   "tokens that the KV cache has room for, of all sequences together; auto: all "
                   "that is left on the devices; default: batch x context")
        ->check(number_or_auto(kMostTokens))
        ->group(kForExperts);
}

}  // namespace

void add_plan_flags(CLI::App& app, PlanFlags& flags) {
    add_device_flags(app, flags);
    add_workload_flags(app, flags);
}

void add_run_flags(CLI::App& app, RunFlags& flags) {
    app.add_option("--threads", flags.threads,
                   "threads of all host devices together; default: one a core")
        ->check(whole_number(1, kMostDevices))
        ->group(kPlanGroup);
    app.add_option("--cpu-arch", flags.cpu_arch,
                   "compile host kernels for this LLVM CPU name; default: this machine's")
        ->type_name("NAME")
        ->group(kForExperts);
    app.add_flag(
           "--reproducible", flags.reproducible,
           "hosts: a sequence's logits have the same bits alone, in a batch, and in chunks of "
           "any size; decode of up to 8 sequences is slower")
        ->group(kForExperts);
    app.add_option("--nvrtc", flags.nvrtc,
                   "NVRTC for NVIDIA GPUs: libnvrtc.so.*, or a folder with it; default: "
                   "$CLEAVE_NVRTC, the CUDA toolkit, the Python environment, the loader's search")
        ->type_name("PATH")
        ->group(kForExperts);
}

void add_keep_packed(CLI::App& app, RunFlags& flags) {
    app.add_flag("--keep-packed", flags.keep_packed,
                 "keep the weights as devices hold them in the cache, and begin with them the next "
                 "time: worth it where --dtype rounds them at each start (cleave cache lists and "
                 "removes them)")
        ->group(kPlanGroup);
}

DType dtype_flag(const std::string& flag, const std::string& value) {
    if (std::optional<DType> dtype = parse_dtype(value)) return *dtype;
    std::vector<std::string> names;
    for (const OtherType& type : other_types()) {
        if (type.name == value) return type.dtype;
        names.emplace_back(type.name);
    }
    for (const DTypeRow& row : kDTypes) names.emplace_back(row.name);
    throw UserError(
        "{} {}: no such dtype{}; supported are {}, also by other tools' names, as fp16, bfloat16, "
        "fp8, q8_0, q4_0",
        flag, value, did_you_mean(value, names), importer::weight_dtype_names());
}

planner::PlanOptions plan_options(const PlanFlags& flags) {
    planner::PlanOptions options;
    options.tensor_parallel = flags.tensor_parallel;
    options.pipeline_stages = flags.pipeline_stages;
    options.objective = planner::parse_objective(flags.objective);
    const bool serves = planner::row_of(options.objective).serves;
    if (flags.replicas.empty() || flags.replicas == "auto")
        options.replicas = serves ? 0 : 1;
    else
        options.replicas = std::stoi(flags.replicas);
    if (!serves && (flags.concurrency > 0 || flags.max_ttft > 0 || flags.max_tpot > 0))
        throw UserError(
            "--concurrency, --max-ttft and --max-tpot are of many users: give --objective "
            "throughput or fleet, or --batch");
    if (flags.concurrency > 0 && flags.batch > 0)
        throw UserError("--concurrency {} and --batch {} both say how many are at once; give one",
                        flags.concurrency, flags.batch);
    options.most_users = serves && flags.concurrency == 0 && flags.batch == 0;
    options.max_ttft_ns = std::llround(flags.max_ttft * 1e6);
    options.max_tpot_ns = std::llround(flags.max_tpot * 1e6);
    options.use_metis = !flags.no_metis;
    options.whole_layers = flags.whole_layers;
    for (const std::string& pin : flags.pins) options.pins.push_back(planner::parse_pin(pin));
    return options;
}

}  // namespace cleave::tools
