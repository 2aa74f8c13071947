// SPDX-License-Identifier: Apache-2.0
// A parsed template. Built by the parser, read by the evaluator, never changed between.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/jinja/value.h"

namespace cleave::runtime::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind {
    kConstant,   // constant
    kName,       // name
    kList,       // children
    kTuple,      // children
    kDict,       // children: key, value, key, value, ...
    kAttribute,  // children[0] . name
    kItem,       // children[0] [ children[1] ]
    kSlice,    // children[0] [ children[1] : children[2] : children[3] ], each of the three may be
               // null
    kCall,     // children[0] ( children[1..], named )
    kFilter,   // children[0] | name ( children[1..], named ); children[0] is null in a block's
               // filter
    kTest,     // children[0] is name ( children[1..], named )
    kNot,      // not children[0]
    kNegate,   // - children[0]
    kPlus,     // + children[0]
    kAnd,      // children[0] and children[1]
    kOr,       // children[0] or children[1]
    kBinary,   // children[0] name children[1], name one of + - * / // % **
    kConcat,   // children, joined as text
    kCompare,  // children[0] operators[0] children[1] operators[1] ...
    kConditional,  // children[1] if children[0] else children[2], which may be null
};

struct Expr {
    ExprKind kind;
    int line = 0;
    int depth = 1;  // of the tree below
    std::string name;
    Value constant;
    std::vector<ExprPtr> children;
    std::vector<std::pair<std::string, ExprPtr>> named;
    std::vector<std::string> operators;
};

// What an assignment or a loop sets: a name, a namespace's attribute, or several of them.
struct Target {
    std::string name;
    std::string attribute;      // not empty: name.attribute
    std::vector<Target> parts;  // not empty: each takes one of the value's items
};

struct Parameter {
    std::string name;
    ExprPtr otherwise;  // null: no default
};

enum class StmtKind {
    kText,      // text
    kOutput,    // expr
    kIf,        // expr, body, other
    kFor,       // target in expr if condition: body; other when there was no item
    kSet,       // target = expr
    kSetBlock,  // target = body, through expr (a filter) when there is one
    kMacro,     // text(parameters): body
    kWith,      // parameters with their values, body
    kFilter,    // body through expr (a filter)
    kGroup,     // body
    kBreak,
    kContinue,
};

struct Stmt {
    StmtKind kind;
    int line = 0;
    std::string text;
    ExprPtr expr;
    ExprPtr condition;
    Target target;
    std::vector<Parameter> parameters;
    std::vector<Stmt> body;
    std::vector<Stmt> other;
};

}  // namespace cleave::runtime::jinja
