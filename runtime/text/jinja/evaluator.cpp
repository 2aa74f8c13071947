// SPDX-License-Identifier: Apache-2.0
// Statements.
#include "runtime/text/jinja/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/text/jinja/nesting.h"
#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/strings.h"

namespace cleave::runtime::jinja {

namespace {

// The variable `loop` inside a `for`.
Value loop_variable(const std::vector<Value>& items, size_t index,
                    const std::shared_ptr<std::vector<Value>>& last_changed) {
    auto loop = std::make_shared<Dict>();
    const auto at = static_cast<int64_t>(index);
    const auto size = static_cast<int64_t>(items.size());
    loop->entries = {
        {"index", at + 1},
        {"index0", at},
        {"revindex", size - at},
        {"revindex0", size - at - 1},
        {"first", index == 0},
        {"last", index + 1 == items.size()},
        {"length", size},
        {"depth", 1},  // of recursive loops, which are refused
        {"depth0", 0},
        {"previtem", index > 0 ? items[index - 1] : Value::undefined("loop.previtem")},
        {"nextitem",
         index + 1 < items.size() ? items[index + 1] : Value::undefined("loop.nextitem")},
        {"cycle", make_function("cycle",
                                [index](const Arguments& a) -> Value {
                                    if (a.positional.empty())
                                        throw TemplateError("loop.cycle needs arguments");
                                    return a.positional[index % a.positional.size()];
                                })},
        {"changed", make_function("changed",
                                  [last_changed](const Arguments& a) -> Value {
                                      const bool same = !last_changed->empty() &&
                                                        equal(Value::list(*last_changed),
                                                              Value::list(a.positional));
                                      *last_changed = a.positional;
                                      return !same;
                                  })},
    };
    loop->is_namespace = true;  // attributes only: `loop.items` is no method
    return loop;
}

}  // namespace

const Value* Scope::find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->outer.get()) {
        spend(scope->names.size());
        for (const auto& [known, value] : scope->names) {
            if (known == name) return &value;
        }
    }
    return nullptr;
}

void Scope::set(const std::string& name, Value value) {
    spend(names.size());
    for (auto& [known, old] : names) {
        if (known == name) {
            old = std::move(value);
            return;
        }
    }
    names.emplace_back(name, std::move(value));
}

std::string Evaluator::render(const std::vector<Stmt>& body,
                              std::vector<std::pair<std::string, Value>> variables) {
    const auto global = std::make_shared<Scope>();
    global->names = std::move(variables);
    const auto scope = std::make_shared<Scope>(global);
    std::string out;
    run(body, scope, out);
    // Macros hold their scope and their scope holds them: cut the circle.
    scope->names.clear();
    return out;
}

Evaluator::Flow Evaluator::run(const std::vector<Stmt>& body, const ScopePtr& scope,
                               std::string& out) {
    for (const Stmt& stmt : body) {
        const Nesting nesting(*this, stmt.line);
        try {
            const Flow flow = run_statement(stmt, scope, out);
            if (flow != Flow::kNormal) return flow;
        } catch (TemplateError& error) {
            if (error.line == 0) error.line = stmt.line;
            throw;
        }
    }
    return Flow::kNormal;
}

Evaluator::Flow Evaluator::run_statement(const Stmt& stmt, const ScopePtr& scope,
                                         std::string& out) {
    switch (stmt.kind) {
        case StmtKind::kText: append_text(out, stmt.text); break;
        case StmtKind::kOutput: append_text(out, evaluate(*stmt.expr, scope).str()); break;
        case StmtKind::kIf:
            return run(evaluate(*stmt.expr, scope).truthy() ? stmt.body : stmt.other, scope, out);
        case StmtKind::kFor: return run_for(stmt, scope, out);
        case StmtKind::kSet: assign(stmt.target, evaluate(*stmt.expr, scope), *scope); break;
        case StmtKind::kSetBlock: assign(stmt.target, Value(capture(stmt, scope)), *scope); break;
        case StmtKind::kMacro: define_macro(stmt, scope); break;
        case StmtKind::kWith: run_with(stmt, scope, out); break;
        case StmtKind::kFilter: append_text(out, capture(stmt, scope)); break;
        case StmtKind::kGroup: return run(stmt.body, std::make_shared<Scope>(scope), out);
        case StmtKind::kBreak: return Flow::kBreak;
        case StmtKind::kContinue: return Flow::kContinue;
    }
    return Flow::kNormal;
}

Evaluator::Flow Evaluator::run_for(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
    std::vector<Value> items = iterate(evaluate(*stmt.expr, scope));
    if (stmt.condition) {
        std::vector<Value> kept;
        for (const Value& element : items) {
            const auto inner = std::make_shared<Scope>(scope);
            assign(stmt.target, element, *inner);
            if (evaluate(*stmt.condition, inner).truthy()) kept.push_back(element);
        }
        items = std::move(kept);
    }
    if (items.empty()) return run(stmt.other, scope, out);
    const auto changed = std::make_shared<std::vector<Value>>();
    constexpr size_t kTurn = 4 * Budget::kNode;  // what its variable `loop` costs to make
    for (size_t i = 0; i < items.size(); ++i) {
        spend(kTurn);
        const auto inner = std::make_shared<Scope>(scope);
        inner->set("loop", loop_variable(items, i, changed));
        assign(stmt.target, items[i], *inner);
        const Flow flow = run(stmt.body, inner, out);
        inner->names.clear();
        if (flow == Flow::kBreak) break;
    }
    return Flow::kNormal;
}

void Evaluator::run_with(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
    const auto inner = std::make_shared<Scope>(scope);
    for (const Parameter& parameter : stmt.parameters) {
        inner->set(parameter.name, evaluate(*parameter.otherwise, scope));
    }
    run(stmt.body, inner, out);
    inner->names.clear();
}

void Evaluator::define_macro(const Stmt& stmt, const ScopePtr& scope) {
    const std::weak_ptr<Scope> home = scope;
    scope->set(stmt.text, make_function(stmt.text, [this, &stmt, home](const Arguments& arguments) {
                   const ScopePtr found = home.lock();
                   if (!found)
                       throw TemplateError(
                           fmt::format("the macro '{}' is used outside its scope", stmt.text));
                   return call_macro(stmt, found, arguments);
               }));
}

Value Evaluator::call_macro(const Stmt& stmt, const ScopePtr& scope, const Arguments& arguments) {
    const auto inner = std::make_shared<Scope>(scope);
    if (arguments.positional.size() > stmt.parameters.size()) {
        throw TemplateError(fmt::format("the macro '{}' takes {} arguments, {} are given",
                                        stmt.text, stmt.parameters.size(),
                                        arguments.positional.size()));
    }
    for (const auto& [name, value] : arguments.named) {
        const auto known = [&name = name](const Parameter& p) { return p.name == name; };
        if (std::none_of(stmt.parameters.begin(), stmt.parameters.end(), known)) {
            throw TemplateError(
                fmt::format("the macro '{}' has no argument '{}'", stmt.text, name));
        }
        inner->set(name, value);
    }
    for (size_t i = 0; i < stmt.parameters.size(); ++i) {
        const Parameter& parameter = stmt.parameters[i];
        if (i < arguments.positional.size()) {
            inner->set(parameter.name, arguments.positional[i]);
            continue;
        }
        const auto is_set = [&](const auto& entry) { return entry.first == parameter.name; };
        if (std::any_of(inner->names.begin(), inner->names.end(), is_set)) continue;
        inner->set(parameter.name, parameter.otherwise ? evaluate(*parameter.otherwise, inner)
                                                       : Value::undefined(parameter.name));
    }
    std::string out;
    run(stmt.body, inner, out);
    inner->names.clear();
    return out;
}

std::string Evaluator::capture(const Stmt& stmt, const ScopePtr& scope) {
    std::string text;
    run(stmt.body, std::make_shared<Scope>(scope), text);
    if (!stmt.expr) return text;
    const std::string* outer = std::exchange(block_text_, &text);
    std::string filtered = evaluate(*stmt.expr, scope).str();
    block_text_ = outer;
    return filtered;
}

void Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
    if (target.parts.empty() && target.attribute.empty()) return scope.set(target.name, value);
    if (target.parts.empty()) {
        const Value* object = scope.find(target.name);
        const auto* dict = object ? object->get<std::shared_ptr<Dict>>() : nullptr;
        if (!dict || !(*dict)->is_namespace) {
            throw TemplateError(fmt::format(
                "'{}' is no namespace; only a namespace's attributes can be set", target.name));
        }
        (*dict)->set(Value(target.attribute), value);
        return;
    }
    const std::vector<Value> items = iterate(value);
    if (items.size() != target.parts.size()) {
        throw TemplateError(
            fmt::format("{} values for {} names", items.size(), target.parts.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
}

}  // namespace cleave::runtime::jinja
