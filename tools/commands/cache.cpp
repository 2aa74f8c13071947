// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "codegen/compile/object_cache.h"
#include "planner/plan/text_table.h"
#include "runtime/load/packed_copy.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

using Json = nlohmann::ordered_json;

struct CacheArguments {
    bool list = false, clear = false, json = false;
    std::optional<int64_t> limit;
};

std::string kernels(size_t count) {
    return planner::count_text(static_cast<int64_t>(count), "kernel");
}

std::string utc(std::chrono::system_clock::time_point time) {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                       fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

void show_json(const codegen::CacheContents& all, const runtime::PackedEntries& packed,
               int64_t freed) {
    Json document{{"folder", all.folder.string()},
                  {"limit_bytes", all.limit},
                  {"bytes", all.bytes()},
                  {"freed_bytes", freed},
                  {"entries", Json::array()}};
    for (const codegen::CacheEntry& entry : all.entries)
        document["entries"].push_back({{"key", entry.key},
                                       {"name", entry.name},
                                       {"compiler", entry.compiler},
                                       {"bytes", entry.bytes},
                                       {"last_used", utc(entry.used)}});
    document["packed"] = {
        {"folder", packed.folder.string()}, {"bytes", packed.bytes()}, {"entries", Json::array()}};
    for (const OwnFile& entry : packed.entries)
        document["packed"]["entries"].push_back(
            {{"file", entry.name}, {"bytes", entry.bytes}, {"last_used", utc(entry.used)}});
    show("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
}

void show_entries(const codegen::CacheContents& all) {
    planner::TextTable table("<><<<", "");
    table.row({"last used", "size", "kernel", "compiler", "key"});
    for (const codegen::CacheEntry& entry : all.entries)
        table.row({utc(entry.used), format_bytes(entry.bytes),
                   entry.name.empty() ? "(damaged)" : entry.name, entry.compiler, entry.key});
    show_text(table.text(terminal_width()));
}

std::string copies(size_t count) {
    return count == 1 ? "1 copy of weights" : fmt::format("{} copies of weights", count);
}

void show_packed(const runtime::PackedEntries& packed) {
    if (packed.entries.empty()) return;
    planner::TextTable table("<><", "");
    table.row({"last used", "size", "packed weights"});
    for (const OwnFile& entry : packed.entries)
        table.row({utc(entry.used), format_bytes(entry.bytes), entry.name});
    show_text(table.text(terminal_width()));
}

void run_cache(const CacheArguments& flags) {
    const codegen::CacheContents before = codegen::cache_contents();
    const runtime::PackedEntries packed_before = runtime::packed_entries();
    codegen::CacheContents all = before;
    runtime::PackedEntries packed = packed_before;
    if (flags.clear) all = codegen::clear_cache();
    if (flags.clear) packed = runtime::clear_packed();
    if (flags.limit) all = codegen::limit_cache(*flags.limit);
    const int64_t freed = before.bytes() - all.bytes() + packed_before.bytes() - packed.bytes();
    if (flags.json || flags.list) codegen::read_names(all);
    if (flags.json) return show_json(all, packed, freed);
    if (flags.list) show_entries(all);
    if (flags.list) show_packed(packed);
    if (flags.clear || flags.limit) {
        std::string removed = kernels(before.entries.size() - all.entries.size());
        if (packed.entries.size() < packed_before.entries.size())
            removed += " and " + copies(packed_before.entries.size() - packed.entries.size());
        show("{} removed, {} freed\n", removed, format_bytes(freed));
    }
    show("{}: {}, {} of at most {}\n", all.folder.string(), kernels(all.entries.size()),
         format_bytes(all.bytes()), format_bytes(all.limit));
    if (!packed.entries.empty())
        show("{}: {}, {}, under no limit\n", packed.folder.string(), copies(packed.entries.size()),
             format_bytes(packed.bytes()));
}

// "2GiB" or "500MB", as their number of bytes.
CLI::Validator size_in_bytes() {
    const auto convert = [](std::string& text) -> std::string {
        std::string bytes = text;
        bool is_size = false;
        try {
            is_size = CLI::AsSizeValue(true)(bytes).empty();
        } catch (const CLI::Error&) {
            is_size = false;
        }
        if (!is_size)
            return fmt::format(
                "'{}' is no size, or too large a one: give a number of bytes, or of a unit: 500MB, "
                "4GiB",
                text);
        text = bytes;
        return "";
    };
    return {convert, ""};
}

}  // namespace

void add_cache(CLI::App& app) {
    auto flags = std::make_shared<CacheArguments>();
    CLI::App* command =
        app.add_subcommand("cache", "compiled kernels and packed weights kept on disk");
    command->add_flag("--list", flags->list, "each one, used longest ago first");
    auto* clear = command->add_flag("--clear", flags->clear, "remove all");
    command
        ->add_option("--limit", flags->limit,
                     "bytes of all kernels together, from now on: 500MB, 4GiB; those used longest "
                     "ago go")
        ->transform(size_in_bytes())
        ->check(whole_number(0, std::numeric_limits<int64_t>::max()))
        ->excludes(clear);
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->footer("Example: cleave cache --limit 2GiB --list");
    command->callback([flags] { run_cache(*flags); });
}

}  // namespace cleave::tools
