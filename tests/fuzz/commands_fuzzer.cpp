// SPDX-License-Identifier: Apache-2.0
// Command lines, a word a line, parsed as `cleave` parses them: every command with every option, of
// which nothing is carried out. `plan` and `run` are parsed once more for what stands behind their
// shared options, and each word goes through the parsers of options' values.
#include <algorithm>
#include <string>
#include <vector>

#include "planner/ask/sweep.h"
#include "planner/machine/device_list.h"
#include "planner/plan/workload_request.h"
#include "runtime/engine/serve_trace.h"
#include "tests/fuzz/harness.h"
#include "tools/cli/arguments.h"
#include "tools/cli/csv_flags.h"
#include "tools/cli/options.h"
#include "tools/cli/sampling_flags.h"
#include "tools/cli/spelling.h"
#include "tools/commands/commands.h"

namespace {

using namespace cleave;

struct Flags {
    tools::ModelFlags model;
    tools::PlanFlags plan;
    tools::RunFlags run;
    tools::CsvFlags csv;
    tools::SamplingFlags sampling;
};

void add_shared(CLI::App& app, Flags& flags) {
    app.require_subcommand(1);
    CLI::App* plan = app.add_subcommand("plan", "decide what runs where");
    tools::add_model_flags(*plan, flags.model);
    tools::add_plan_flags(*plan, flags.plan);
    tools::add_csv_flags(*plan, flags.csv, {"summary", "steps"});
    CLI::App* run = app.add_subcommand("run", "a prompt to its answer");
    tools::add_model_flags(*run, flags.model);
    tools::add_plan_flags(*run, flags.plan);
    tools::add_run_flags(*run, flags.run);
    tools::add_sampling_flags(*run, flags.sampling);
}

void read_flags(const Flags& flags) {
    fuzz::try_to([&] { tools::plan_options(flags.plan); });
    fuzz::try_to([&] { tools::sampling_options(flags.sampling); });
    fuzz::try_to([&] { tools::dtype_flag("--dtype", flags.plan.dtype); });
    fuzz::try_to([&] { planner::parse_devices(flags.plan.devices); });
}

struct Parsed {};

// True where the words are a command line; help and errors are spelled as a user reads them.
bool parse(CLI::App& app, std::vector<std::string> words) {
    words = tools::ready_arguments(app, std::move(words));
    std::reverse(words.begin(), words.end());
    try {
        app.parse(std::move(words));
        return true;
    } catch (const Parsed&) {
        return true;
    } catch (const CLI::CallForAllHelp&) {
        app.help("", CLI::AppFormatMode::All);
    } catch (const CLI::CallForHelp&) {
        app.help();
    } catch (const CLI::ParseError& error) {
        tools::spell_for_command_line(error.what());
    }
    return false;
}

void parse_line(const std::vector<std::string>& words) {
    static runtime::Drivers drivers;  // which nothing asks
    CLI::App all{"Cleave", "cleave"};
    tools::add_commands(all, drivers);
    all.parse_complete_callback([] { throw Parsed{}; });  // before any command is carried out
    fuzz::try_to([&] { parse(all, words); });
    Flags flags;
    CLI::App shared{"Cleave", "cleave"};
    add_shared(shared, flags);
    fuzz::try_to([&] {
        if (parse(shared, words)) read_flags(flags);
    });
}

void read_value(const std::string& word) {
    fuzz::try_to([&] { planner::device_entries(word); });
    fuzz::try_to([&] { planner::devices_on_hosts(planner::parse_devices(word), {"a", "b"}); });
    fuzz::try_to([&] { planner::parse_axis(word); });
    fuzz::try_to([&] { planner::parse_pin(word); });
    fuzz::try_to([&] { runtime::trace_at_rate(word); });
    planner::parse_size(word);
    tools::spell_for_command_line(word);
}

}  // namespace

void cleave::fuzz::run_input(std::string_view bytes) {
    std::vector<std::string> words;
    while (!bytes.empty() && words.size() < 64) {
        const size_t end = std::min(bytes.find('\n'), bytes.size());
        words.emplace_back(bytes.substr(0, end));
        bytes.remove_prefix(std::min(end + 1, bytes.size()));
        // What a process is given ends at a zero.
        words.back().resize(std::min(words.back().find('\0'), words.back().size()));
    }
    for (const std::string& word : words) read_value(word);
    parse_line(words);
}
