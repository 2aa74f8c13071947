// SPDX-License-Identifier: Apache-2.0
// Renders a parsed template.
// In: the statements and the variables they may read. Out: the text. Scopes are Jinja's: a `set`
// inside a loop, a macro or a block with a scope of its own is not seen outside it; `if` has no
// scope. An Evaluator renders once; the statements must outlive it and every macro that it made.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/jinja/ast.h"

namespace cleave::runtime::jinja {

struct Scope {
    explicit Scope(std::shared_ptr<Scope> outer_scope = nullptr) : outer(std::move(outer_scope)) {}

    const Value* find(const std::string& name) const;
    void set(const std::string& name, Value value);

    std::vector<std::pair<std::string, Value>> names;
    std::shared_ptr<Scope> outer;
};

class Evaluator {
public:
    // Throws TemplateError, with the line.
    std::string render(const std::vector<Stmt>& body,
                       std::vector<std::pair<std::string, Value>> variables);

private:
    enum class Flow { kNormal, kBreak, kContinue };
    using ScopePtr = std::shared_ptr<Scope>;
    class Nesting;

    // evaluator.cpp
    Flow run(const std::vector<Stmt>& body, const ScopePtr& scope, std::string& out);
    Flow run_statement(const Stmt& stmt, const ScopePtr& scope, std::string& out);
    Flow run_for(const Stmt& stmt, const ScopePtr& scope, std::string& out);
    void run_with(const Stmt& stmt, const ScopePtr& scope, std::string& out);
    void define_macro(const Stmt& stmt, const ScopePtr& scope);
    Value call_macro(const Stmt& stmt, const ScopePtr& scope, const Arguments& arguments);
    std::string capture(const Stmt& stmt, const ScopePtr& scope);
    void assign(const Target& target, const Value& value, Scope& scope);

    // evaluate.cpp
    Value evaluate(const Expr& expr, const ScopePtr& scope);
    Value evaluate_kind(const Expr& expr, const ScopePtr& scope);
    Value evaluate_name(const Expr& expr, const Scope& scope) const;
    Value evaluate_dict(const Expr& expr, const ScopePtr& scope);
    Value evaluate_slice(const Expr& expr, const ScopePtr& scope);
    Value evaluate_call(const Expr& expr, const ScopePtr& scope);
    Value evaluate_filter(const Expr& expr, const ScopePtr& scope);
    Value evaluate_compare(const Expr& expr, const ScopePtr& scope);
    Value evaluate_concat(const Expr& expr, const ScopePtr& scope);
    std::vector<Value> evaluate_children(const Expr& expr, const ScopePtr& scope);
    Arguments evaluate_arguments(const Expr& expr, const ScopePtr& scope);

    const std::string* block_text_ = nullptr;  // what a block's filter is applied to
    int depth_ = 0;
};

}  // namespace cleave::runtime::jinja
