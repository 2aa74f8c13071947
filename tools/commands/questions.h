// SPDX-License-Identifier: Apache-2.0
// What the commands that ask a plan share: PLAN, a .plan file or a MODEL with the flags of `plan`;
// the figures of a plan as JSON, and of two side by side as a table.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "planner/ask/case.h"
#include "planner/ask/figures.h"
#include "planner/plan/text_table.h"
#include "runtime/cards/drivers.h"
#include "tools/cli/csv_flags.h"
#include "tools/cli/options.h"

namespace cleave::tools {

using Json = nlohmann::ordered_json;

struct QuestionFlags {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    bool json = false;
    CsvFlags csv;
};

// `tables`: those of --csv.
void add_question_flags(CLI::App& app, QuestionFlags& flags,
                        const std::vector<std::string>& tables);

struct Questioned {
    planner::Plan plan;
    // What it was made of; of a .plan file, what the file has of it.
    std::optional<planner::Case> asked;
};
// `with_case`: the question plans again. UserError as of `plan`.
Questioned plan_in_question(const QuestionFlags& flags, bool with_case);

// What a question plans again that shows no plan of its own: the request of the flags, or of a
// .plan file.
planner::Case case_in_question(const QuestionFlags& flags);

Json figures_json(const planner::Figures& figures);
Json parts_json(const planner::TimeParts& parts);
// Of what does not fit, or a rule forbids: {"fits", "refusal", "lacks_memory", "devices", "fixes"}.
Json outcome_json(const planner::Outcome& outcome);

// What figures rest on, as JSON has it: the network's words, or null, and the names of the classes.
void add_grounds(const planner::Grounds& grounds, Json& figures);
// The rows of a table with the network's words in each.
Json with_network(Json rows, const planner::Grounds& grounds);
// Below a text's tables: what the figures of all these plans rest on.
void show_rests_on(const std::vector<const planner::Grounds*>& plans);

// With flags as the command line has them.
void print_json(const Json& json);
// A list of objects as CSV, a row an element: a name for each key, of objects inside
// "room_kv_tokens". No tables of a list without elements.
std::vector<planner::NamedTable> tables_of(const std::vector<std::pair<std::string, Json>>& lists);
// "plan" and the figures of each.
Json figure_rows(const std::vector<std::pair<std::string, const planner::Figures*>>& plans);
// Writes the JSON or the tables; false where neither was asked for, and text is.
bool show_data(bool as_json, const CsvFlags& csv, const Json& json,
               const std::vector<std::pair<std::string, Json>>& lists);
// The answer, wrapped as all text is; one line into a file or a pipe.
void show_answer(const std::string& answer);
void show_table(const planner::TextTable& table);
// Of a table with a row for each thing that differs: of very many the first ones and the last.
constexpr size_t kMostRows = 12;

// Elements of one key together, in the order of their first ones: alike devices are one row.
template <class Element, class Key>
std::vector<std::vector<Element>> folded(const std::vector<Element>& all, Key key) {
    std::map<decltype(key(all[0])), size_t> at;
    std::vector<std::vector<Element>> groups;
    for (const Element& one : all) {
        const auto [found, fresh] = at.try_emplace(key(one), groups.size());
        if (fresh) groups.emplace_back();
        groups[found->second].push_back(one);
    }
    return groups;
}

// Rows of figures, a column a plan.
planner::TextTable figures_table(const std::vector<std::string>& heads,
                                 const std::vector<const planner::Figures*>& plans);

inline double in_ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }
std::string milliseconds(int64_t ns);  // "14.2 ms", "-" for 0

}  // namespace cleave::tools
