// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "planner/plan/plan_queries.h"
#include "planner/view/plan_text.h"
#include "runtime/base/control_characters.h"
#include "runtime/base/errors.h"
#include "runtime/base/path_state.h"
#include "runtime/base/thread_team.h"
#include "runtime/engine/replica_engines.h"
#include "tools/cli/failure.h"
#include "tools/cli/groups.h"
#include "tools/cli/hosts.h"
#include "tools/cli/planning.h"
#include "tools/cli/spelling.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"
#include "tools/commands/serving.h"
#include "tools/inspect/inspection.h"
#include "tools/inspect/page_data.h"
#include "tools/serve/grammar.h"
#include "tools/serve/server.h"

namespace cleave::tools {
namespace {

constexpr int64_t kDefaultBatch = 16;

struct ServeArguments {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    RunFlags run;
    ServeFlags passes;
    serve::ServerOptions server;
    std::string tokenizer, name;
    int port = 8080;
    int64_t max_queue = 1024;
    double drain_seconds = 30;
};

// Of the first SIGINT or SIGTERM on the server drains, of the second one it ends.
std::atomic<int> ends_asked{0};
void ask_for_end(int) { ++ends_asked; }

class EndSignals {
public:
    EndSignals() {
        struct sigaction action = {};
        action.sa_handler = ask_for_end;
        sigaction(SIGINT, &action, &old_[0]);
        sigaction(SIGTERM, &action, &old_[1]);
    }
    ~EndSignals() {
        sigaction(SIGINT, &old_[0], nullptr);
        sigaction(SIGTERM, &old_[1], nullptr);
    }
    EndSignals(const EndSignals&) = delete;
    EndSignals& operator=(const EndSignals&) = delete;

private:
    struct sigaction old_[2];
};

// "models/bundled" and "models/bundled/model.onnx" serve "bundled".
std::string served_name(const ServeArguments& flags, const LoadedModel& model) {
    if (!flags.name.empty()) return flags.name;
    const auto folder = real_path(model.folder).filename();
    return folder.empty() ? std::string("model") : folder.string();
}

serve::ServedModel served_model(const ServeArguments& flags, const TextModel& text) {
    serve::ServedModel served;
    served.name = served_name(flags, text.model);
    served.tokenizer = text.tokenizer.get();
    served.chat = text.chat;
    if (!served.chat)
        served.no_chat = fmt::format(
            "{} has no chat_template.jinja and no \"chat_template\" in tokenizer_config.json; "
            "/v1/completions takes plain text",
            served.name);
    served.stop_ids = text.stop_ids;
    return served;
}

// One line, drawn anew each second, where somebody looks at it.
void show_state(const runtime::EngineGroup& engines, int64_t* tokens) {
    const runtime::EngineStatistics now = engines.statistics();
    const int64_t blocks = engines.kv_blocks();
    redraw_line(fmt::format("{:>4} running, {:>4} waiting, {:>8} tokens/s, KV {:>3} %",
                            now.scheduler.running, now.scheduler.waiting, now.new_tokens - *tokens,
                            100 * now.scheduler.blocks_held / std::max<int64_t>(1, blocks)));
    *tokens = now.new_tokens;
}

// The one replica of several whose device has failed is told of once, while others serve.
void tell_of_faults(const runtime::EngineGroup& engines, std::vector<bool>& told) {
    told.resize(engines.size());
    for (size_t r = 0; r < engines.size(); ++r) {
        const std::string fault = engines.statistics_of(r).fault;
        if (fault.empty() || told[r]) continue;
        told[r] = true;
        redraw_line("");
        say("replica {} of {} is dead, and the others go on: {}\n", r, engines.size(), fault);
    }
}

// Why nothing can be served any more; empty: it can. `ask`: the other hosts whether they live.
std::string why_over(const runtime::EngineGroup& engines, bool ask) {
    const std::string hosts = why_hosts_failed(ask);
    return hosts.empty() ? engines.statistics().fault : hosts;
}

// RFC 3986: an IPv6 address is in brackets.
std::string url_host(const std::string& host) {
    return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

// A connection is a descriptor, and the usual soft limit is 1024.
void raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

void run_serve(ServeArguments flags) {
    raise_descriptor_limit();
    if (follows(flags.run, flags.drivers)) return;
    note_threads(flags.run);
    flags.server.port = static_cast<uint16_t>(flags.port);
    // One that cannot be had is told before a model is loaded, which may take minutes.
    {
        const serve::HttpServer can_be_had(flags.server.host, flags.server.port, {}, {});
    }
    TextModel text = load_text_model(flags.model, flags.plan, flags.tokenizer, "serve", "serve");
    serve::ServedModel served = served_model(flags, text);
    if (!text.model.plan && flags.plan.batch == 0 && flags.plan.concurrency == 0)
        flags.plan.batch = kDefaultBatch;
    planner::Plan plan = plan_text_model(text, flags.model, flags.plan, flags.run, flags.drivers);
    served.vocab = plan.graph.config.vocab_size;
    served.context = plan.workload.context;
    served.grammars =
        std::make_shared<serve::Grammars>(*served.tokenizer, served.vocab, served.stop_ids);

    RunFlags run = flags.run;
    run.threads = runtime::threads_of_each(run.threads, plan.num_replicas());
    const runtime::ReplicaEngines opened(
        plan, served.tokenizer,
        [&](planner::Plan& one) { return open_session(one, run, flags.drivers); },
        [&](const planner::Plan& one) {
            runtime::EngineOptions options;
            options.scheduler = scheduler_options(flags.passes, one);
            options.scheduler.max_queue = flags.max_queue;
            options.scheduler.groups = runtime::default_groups(one, run.threads);
            return options;
        });
    const runtime::EngineGroup& engines = opened.group();
    const EndSignals signals;
    flags.server.plan_json = [&plan] {
        return planner::plan_to_json(plan, spell_for_command_line);
    };
    flags.server.plan_page = [&plan] { return inspection_page(inspect_plan(plan)); };
    serve::Server server(engines, plan, served, flags.server);
    if (!engines.runs_alone().empty()) say("{}\n", engines.runs_alone());
    say("{}: {} sequences at once{}, {} tokens each\n", served.name,
        planner::sequences_at_once(plan),
        engines.size() > 1 ? fmt::format(" on {} replicas", engines.size()) : "",
        plan.workload.context);
    say("listening on http://{}:{}\n", url_host(flags.server.host), server.port());

    int64_t tokens = 0;
    std::vector<bool> told;
    std::string over;
    while (ends_asked == 0 && (over = why_over(engines, false)).empty()) {
        for (int i = 0; i < 10 && ends_asked == 0; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        if (engines.size() > 1) tell_of_faults(engines, told);
        show_state(engines, &tokens);
    }
    // mpirun ends ranks by SIGTERM, too, once one of them has died.
    if (over.empty()) over = why_over(engines, true);
    if (!over.empty()) {
        redraw_line("");
        say_failure(over);  // before devices end what they are at
        throw UserError("{}", over);
    }
    redraw_line("");
    say("ending: {} requests are left\n", engines.statistics().requests);
    if (!server.drain(std::chrono::duration<double>(flags.drain_seconds),
                      [] { return ends_asked > 1; }))
        say("some requests were cancelled\n");
}

}  // namespace

void add_serve(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<ServeArguments>(ServeArguments{.drivers = drivers});
    CLI::App* command =
        app.add_subcommand("serve", "serve a model over HTTP, behind OpenAI's interface");
    add_model_flags(*command, flags->model);
    command
        ->add_option("--host", flags->server.host,
                     "address to listen at; default: 127.0.0.1, this machine alone")
        ->type_name("ADDRESS")
        ->group(kServerGroup);
    command->add_option("--port", flags->port, "port; 0: a free one; default: 8080")
        ->check(whole_number(0, 65535))
        ->group(kServerGroup);
    command
        ->add_option("--api-key", flags->server.api_key,
                     "every route but /health asks for it; default: $CLEAVE_API_KEY, else none")
        ->envname("CLEAVE_API_KEY")
        ->check(CLI::Validator(
            [](const std::string& key) {
                return has_control_characters(key)
                           ? std::string("it has a control character, which no client can send")
                           : std::string();
            },
            ""))
        ->type_name("KEY")
        ->group(kServerGroup);
    command
        ->add_option("--name", flags->name,
                     "the model's name for clients; default: that of its folder")
        ->type_name("NAME")
        ->group(kServerGroup);
    command
        ->add_option("--tokenizer", flags->tokenizer,
                     "tokenizer.json, tokenizer.model, or their folder; default: beside the model")
        ->type_name("PATH")
        ->group(kServerGroup);
    command
        ->add_option("--max-queue", flags->max_queue,
                     "requests that wait, before others are told to come again; default: 1024")
        ->check(whole_number(1, 1 << 20))
        ->group(kForExperts);
    command
        ->add_option("--drain-seconds", flags->drain_seconds,
                     "after SIGTERM, for requests under way; a second one ends; default: 30")
        ->check(real_number(0, 86400))
        ->group(kForExperts);
    command
        ->add_flag("--overcommit", flags->passes.overcommit,
                   "start requests before their last token has room, and preempt")
        ->group(kForExperts);
    command
        ->add_option("--pass-ms", flags->passes.pass_ms,
                     "as many tokens a pass as take so long by the plan's own costs; default: "
                     "--prefill-chunk, at least --batch")
        ->check(real_number(1e-6, 1e6))
        ->type_name("MS")
        ->group(kForExperts);
    add_plan_flags(*command, flags->plan);
    add_run_flags(*command, flags->run);
    add_keep_packed(*command, flags->run);
    command->footer("Example: cleave serve models/bundled --devices host --port 8080");
    command->callback([flags] { run_serve(*flags); });
}

}  // namespace cleave::tools
