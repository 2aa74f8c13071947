// SPDX-License-Identifier: Apache-2.0
// Expressions.
#include <fmt/format.h>

#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/nesting.h"
#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/strings.h"

namespace cleave::runtime::jinja {

namespace {

bool compares(const std::string& op, const Value& a, const Value& b) {
    if (op == "==") return equal(a, b);
    if (op == "!=") return !equal(a, b);
    if (op == "in") return contains(b, a);
    if (op == "not in") return !contains(b, a);
    if (op == "<") return less(a, b);
    if (op == ">") return less(b, a);
    if (op == "<=") return less(a, b) || equal(a, b);
    return less(b, a) || equal(a, b);
}

}  // namespace

Value Evaluator::evaluate(const Expr& expr, const ScopePtr& scope) {
    const Nesting nesting(*this, expr.line);
    try {
        return evaluate_kind(expr, scope);
    } catch (TemplateError& error) {
        if (error.line == 0) error.line = expr.line;
        throw;
    }
}

Value Evaluator::evaluate_kind(const Expr& expr, const ScopePtr& scope) {
    const auto child = [&](size_t i) { return evaluate(*expr.children[i], scope); };
    switch (expr.kind) {
        case ExprKind::kConstant: return expr.constant;
        case ExprKind::kName: return evaluate_name(expr, *scope);
        case ExprKind::kList:
        case ExprKind::kTuple:
            return Value::list(evaluate_children(expr, scope), expr.kind == ExprKind::kTuple);
        case ExprKind::kDict: return evaluate_dict(expr, scope);
        case ExprKind::kAttribute: return attribute(child(0), expr.name);
        case ExprKind::kItem: {
            const Value object = child(0);
            return item(object, child(1));
        }
        case ExprKind::kSlice: return evaluate_slice(expr, scope);
        case ExprKind::kCall: return evaluate_call(expr, scope);
        case ExprKind::kFilter: return evaluate_filter(expr, scope);
        case ExprKind::kTest: {
            const Value value = child(0);
            return apply_test(expr.name, value, evaluate_arguments(expr, scope));
        }
        case ExprKind::kNot: return !child(0).truthy();
        case ExprKind::kNegate: return binary("-", Value(0), child(0));
        case ExprKind::kPlus: return binary("+", Value(0), child(0));
        case ExprKind::kAnd: {
            Value left = child(0);
            return left.truthy() ? child(1) : left;
        }
        case ExprKind::kOr: {
            Value left = child(0);
            return left.truthy() ? left : child(1);
        }
        case ExprKind::kBinary: {
            const Value left = child(0);
            return binary(expr.name, left, child(1));
        }
        case ExprKind::kConcat: return evaluate_concat(expr, scope);
        case ExprKind::kCompare: return evaluate_compare(expr, scope);
        case ExprKind::kConditional:
            if (child(0).truthy()) return child(1);
            if (expr.children[2]) return child(2);
            return Value::undefined("the value of an 'if' without 'else'");
    }
    throw TemplateError("an expression of no known kind");
}

Value Evaluator::evaluate_name(const Expr& expr, const Scope& scope) const {
    const Value* value = scope.find(expr.name);
    return value ? *value : Value::undefined(expr.name);
}

std::vector<Value> Evaluator::evaluate_children(const Expr& expr, const ScopePtr& scope) {
    std::vector<Value> items;
    for (const ExprPtr& child : expr.children) items.push_back(evaluate(*child, scope));
    return items;
}

Value Evaluator::evaluate_dict(const Expr& expr, const ScopePtr& scope) {
    auto dict = std::make_shared<Dict>();
    for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
        const Value key = evaluate(*expr.children[i], scope);
        dict->set(key, evaluate(*expr.children[i + 1], scope));
    }
    return dict;
}

Value Evaluator::evaluate_slice(const Expr& expr, const ScopePtr& scope) {
    const Value object = evaluate(*expr.children[0], scope);
    std::optional<int64_t> bounds[3];
    for (size_t i = 0; i < 3; ++i) {
        if (!expr.children[i + 1]) continue;
        const Value bound = evaluate(*expr.children[i + 1], scope);
        if (!bound.is_none()) bounds[i] = integer_of(bound, 0, "a slice's bound");
    }
    return slice(object, bounds[0], bounds[1], bounds[2].value_or(1));
}

Arguments Evaluator::evaluate_arguments(const Expr& expr, const ScopePtr& scope) {
    Arguments arguments;
    for (size_t i = 1; i < expr.children.size(); ++i) {
        arguments.positional.push_back(evaluate(*expr.children[i], scope));
    }
    for (const auto& [name, value] : expr.named)
        arguments.named.emplace_back(name, evaluate(*value, scope));
    return arguments;
}

Value Evaluator::evaluate_call(const Expr& expr, const ScopePtr& scope) {
    const Value function = evaluate(*expr.children[0], scope);
    if (const Undefined* missing = function.get<Undefined>()) {
        throw TemplateError(fmt::format("'{}' is undefined and cannot be called", missing->name));
    }
    if (!function.callable()) {
        throw TemplateError(
            fmt::format("a value of type {} cannot be called", function.type_name()));
    }
    return function.callable()->call(evaluate_arguments(expr, scope));
}

Value Evaluator::evaluate_filter(const Expr& expr, const ScopePtr& scope) {
    const Value value = expr.children[0] ? evaluate(*expr.children[0], scope) : Value(*block_text_);
    return apply_filter(expr.name, value, evaluate_arguments(expr, scope));
}

Value Evaluator::evaluate_compare(const Expr& expr, const ScopePtr& scope) {
    Value left = evaluate(*expr.children[0], scope);
    for (size_t i = 0; i < expr.operators.size(); ++i) {
        Value right = evaluate(*expr.children[i + 1], scope);
        if (!compares(expr.operators[i], left, right)) return false;
        left = std::move(right);
    }
    return true;
}

Value Evaluator::evaluate_concat(const Expr& expr, const ScopePtr& scope) {
    std::string text;
    for (const ExprPtr& child : expr.children) append_text(text, evaluate(*child, scope).str());
    return text;
}

}  // namespace cleave::runtime::jinja
