// SPDX-License-Identifier: Apache-2.0
#include "tests/support/notation.h"

#include <algorithm>
#include <cctype>
#include <functional>

namespace cleave::test {

using namespace planner;

namespace {

bool is_word_char(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_.:/@+-*~%&|!?<>$;()^'").find(c) != std::string_view::npos;
}

// Where a word that begins at `at` ends; brackets belong to it behind its first letter: host[0].
size_t end_of_word(std::string_view text, size_t at) {
    const size_t begin = at;
    if (at < text.size() && text[at] == '#') ++at;
    while (at < text.size()) {
        if (is_word_char(text[at])) {
            ++at;
        } else if (text[at] == '[' && at > begin) {
            size_t close = at + 1;
            while (close < text.size() && is_word_char(text[close])) ++close;
            if (close == text.size() || text[close] != ']') break;
            at = close + 1;
        } else {
            break;
        }
    }
    return at;
}

bool number(std::string_view text, int64_t& x) {
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), x);
    return stop == text.data() + text.size() && error == std::errc();
}

constexpr std::string_view kHexDigits = "0123456789abcdef";

// What begins at a place of the text, as nodes.
class Parser {
public:
    using Fail = std::function<void(size_t at, const std::string& message)>;
    Parser(std::string_view text, const Fail& fail) : text_(text), fail_at_(fail) {}

    // Lines with their parts.
    std::vector<Node> lines() {
        std::vector<Node> lines;
        std::vector<std::vector<Node>*> open{&lines};
        while (at_ < text_.size()) {
            indent_ = indent_at(at_);
            at_ += indent_;
            if (is_comment(at_)) at_ = std::min(text_.find('\n', at_), text_.size());
            if (peek() != '\n' && at_ < text_.size()) {
                Node node = node_here(Node::Kind::kRecord);
                if (indent_ % 2 != 0 || indent_ / 2 >= open.size())
                    fail("a line begins two spaces behind the one that it is a part of");
                node.text = word();
                items(node, '\n');
                open.resize(indent_ / 2 + 1);
                open.back()->push_back(std::move(node));
                open.push_back(&open.back()->back().parts);
            }
            ++at_;
        }
        return lines;
    }

private:
    char peek() const { return at_ < text_.size() ? text_[at_] : '\n'; }
    [[noreturn]] void fail(const std::string& message) const {
        fail_at_(at_, message);
        throw InternalError("a failure returned");
    }
    bool is_comment(size_t at) const { return text_.substr(at, 2) == "# "; }
    size_t indent_at(size_t at) const {
        return std::min(text_.find_first_not_of(' ', at), text_.size()) - at;
    }
    // Over spaces, and on to a line that goes on.
    void skip_space() {
        while (peek() == ' ') ++at_;
        if (at_ >= text_.size() || peek() != '\n') return;
        const size_t indent = indent_at(at_ + 1), next = at_ + 1 + indent;
        if (indent >= indent_ + 4 && next < text_.size() && text_[next] != '\n' &&
            !is_comment(next))
            at_ = next;
    }
    Node node_here(Node::Kind kind) const {
        Node node;
        node.kind = kind;
        node.at = at_;
        return node;
    }
    std::string word() {
        const size_t end = end_of_word(text_, at_);
        if (end == at_) fail("a word, \"text\", [..] or {..} is wanted here");
        std::string word(text_.substr(at_, end - at_));
        at_ = end;
        return word;
    }
    void items(Node& record, char close) {
        while (true) {
            skip_space();
            if (peek() == close) break;
            if (peek() == '\n') fail("'}' is missing");
            const size_t end = end_of_word(text_, at_);
            const bool named = end < text_.size() && text_[end] == '=';
            record.names.emplace_back(named ? text_.substr(at_, end - at_) : "");
            if (named) at_ = end + 1;
            record.items.push_back(value());
        }
        if (close != '\n') ++at_;
    }
    Node value() {
        if (peek() == '[') return list();
        if (peek() == '"') return text();
        Node node = node_here(Node::Kind::kWord);
        if (peek() != '{') node.text = word();
        if (peek() == '{') {
            ++at_;
            node.kind = Node::Kind::kRecord;
            items(node, '}');
        }
        return node;
    }
    Node list() {
        Node node = node_here(Node::Kind::kList);
        ++at_;
        for (skip_space(); peek() != ']'; skip_space()) {
            if (!node.items.empty()) {
                if (peek() != ',') fail("',' or ']' is wanted here");
                ++at_;
                skip_space();
            }
            node.items.push_back(value());
        }
        ++at_;
        return node;
    }
    Node text() {
        Node node = node_here(Node::Kind::kText);
        ++at_;
        while (peek() != '"') {
            if (peek() == '\n') fail("'\"' is missing");
            char c = text_[at_++];
            if (c == '\\') {
                const size_t high = kHexDigits.find(peek());
                const size_t low =
                    at_ + 1 < text_.size() ? kHexDigits.find(text_[at_ + 1]) : std::string::npos;
                if (high == std::string::npos || low == std::string::npos)
                    fail("two digits of a byte are wanted behind '\\'");
                c = static_cast<char>(16 * high + low);
                at_ += 2;
            }
            node.text += c;
        }
        ++at_;
        return node;
    }

    std::string_view text_;
    const Fail& fail_at_;
    size_t at_ = 0, indent_ = 0;
};

}  // namespace

// ---- What differs from type to type ----

importer::Weight left_out(const importer::Weight& weight) {
    importer::Weight usual;
    usual.source_shape = weight.shape;
    if (weight.transposed) std::reverse(usual.source_shape.begin(), usual.source_shape.end());
    if (!weight.shape.empty()) usual.rows = {0, weight.shape[0]};
    if (weight.shape.size() > 1) usual.columns = {0, weight.shape[1]};
    usual.initializers = {weight.name};
    return usual;
}

importer::Op left_out(const importer::Op& op) {
    importer::Op usual;
    usual.kind = static_cast<importer::OpKind>(op.attrs.index());
    // Always told: it says the kind.
    if (op.attrs.index() == 0) usual.attrs.emplace<importer::AddAttrs>();
    return usual;
}

// ---- Names ----

Names::Names(const Plan& plan) {
    const Graph& g = plan.graph;
    auto named = [](const auto& list, auto name) {
        std::vector<std::string> names;
        for (const auto& x : list) names.push_back(name(x));
        return names;
    };
    auto own = [](const auto& x) { return x.name; };
    add(List::kOps, named(g.ops, own));
    add(List::kValues, named(g.values, own));
    add(List::kWeights, named(g.weights, own));
    add(List::kTables, named(g.rope_tables, own));
    add(List::kFiles, named(g.files, [](const auto& x) { return x.path; }));
    add(List::kDevices, named(plan.machine.devices, own));
    auto on = [&](List list, int32_t thing, DeviceId device) {
        const std::string name = of(list, thing), where = of(List::kDevices, device.value);
        const bool plain = quoted(name) == name && quoted(where) == where;
        return plain && name[0] != '#' && where[0] != '#' ? name + "@" + where : "";
    };
    // "batch.slots@host[0]": unique where a device has one buffer of the role.
    add(List::kBuffers, named(plan.buffers, [&](const Buffer& b) {
            const std::string where = of(List::kDevices, b.device.value);
            return where[0] == '#' ? "" : std::string(buffer_role_name(b.role)) + "@" + where;
        }));
    add(List::kShards, named(plan.weights, [&](const WeightShard& s) {
            return on(List::kWeights, s.weight.value, s.device);
        }));
    add(List::kRopes, named(plan.rope_tables, [&](const RopeShard& s) {
            return on(List::kTables, s.table.value, s.device);
        }));
    add(List::kSlabs, named(plan.kv_slabs, [&](const KvSlab& s) {
            return on(List::kValues, s.state.value, s.device);
        }));
    for (const bool decode : {false, true})
        add(decode ? List::kDecode : List::kPrefill,
            named(plan.phase(!decode).values, [&](const PlacedValue& v) {
                const std::string name = on(List::kValues, v.value.value, v.device);
                return v.partial && !name.empty() ? "+" + name : name;
            }));
}

void Names::add(List list, std::vector<std::string> names) {
    auto& found = found_[static_cast<size_t>(list)];
    std::map<std::string, int> count;
    for (const std::string& name : names) ++count[name];
    for (size_t i = 0; i < names.size(); ++i) {
        if (names[i].empty() || count[names[i]] > 1)
            names[i].clear();
        else
            found[names[i]] = static_cast<int32_t>(i);
    }
    names_[static_cast<size_t>(list)] = std::move(names);
}

bool Names::unique(List list, size_t position) const {
    const auto& names = names_[static_cast<size_t>(list)];
    return position < names.size() && !names[position].empty();
}

std::string Names::of(List list, int32_t position) const {
    if (position < 0) return "none";
    const auto i = static_cast<size_t>(position);
    return unique(list, i) ? quoted(names_[static_cast<size_t>(list)][i])
                           : fmt::format("#{}", position);
}

int32_t Names::find(List list, const std::string& name) const {
    const auto& found = found_[static_cast<size_t>(list)];
    const auto at = found.find(name);
    return at == found.end() ? -1 : at->second;
}

// ---- Printing ----

std::string quoted(const std::string& text) {
    if (!text.empty() && text != "none" && text[0] != '#' && end_of_word(text, 0) == text.size())
        return text;
    std::string all = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte > 0x7e || c == '"' || c == '\\')
            all += fmt::format("\\{:02x}", byte);
        else
            all += c;
    }
    return all + "\"";
}

std::string word(Range range) {
    return range.end == kWhole ? fmt::format("{}..", range.begin)
                               : fmt::format("{}..{}", range.begin, range.end);
}

// "num_tokens", "64"; "x:64" for what has both.
std::string word(const importer::Dim& dim) {
    if (dim.symbol.empty()) return fmt::format("{}", dim.value);
    return quoted(dim.value == -1 ? dim.symbol : fmt::format("{}:{}", dim.symbol, dim.value));
}

// "4096+64t+8o+2k": per token, output and key.
std::string word(const Amount& amount) {
    std::string text;
    auto add = [&](int64_t n, const char* unit) {
        if (n != 0) text += fmt::format("{}{}{}", text.empty() || n < 0 ? "" : "+", n, unit);
    };
    add(amount.constant, "");
    add(amount.per_token, "t");
    add(amount.per_output, "o");
    add(amount.per_key, "k");
    return text.empty() ? "0" : text;
}

std::string word(const std::vector<std::byte>& bytes) {
    std::string text = "x";
    for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
    return text;
}

void Printer::end_line(size_t begin) {
    const size_t indent = std::string_view(text_).find_first_not_of(' ', begin) - begin;
    bool in_text = false;
    for (size_t at = begin, space = 0; at < text_.size(); ++at) {
        if (text_[at] == '"') in_text = !in_text;
        if (text_[at] == ' ' && !in_text && at > begin + indent) space = at;
        if (at - begin < 100 || space == 0) continue;
        text_.replace(space, 1, "\n" + std::string(indent + 4, ' '));
        begin = space + 1;
        at = begin + indent + 3;
        space = 0;
        in_text = false;
    }
    text_ += '\n';
}

std::string print(const Plan& plan) {
    Printer printer(plan);
    printer.whole(plan);
    return printer.text();
}

// ---- Reading ----

Reader::Reader(std::string text, std::string origin)
    : text_(std::move(text)), origin_(std::move(origin)) {
    const Parser::Fail failing = [this](size_t at, const std::string& message) {
        fail(at, message);
    };
    lines_ = Parser(text_, failing).lines();
}

void Reader::fail(size_t at, const std::string& message) const {
    const std::string_view before = std::string_view(text_).substr(0, at);
    throw UserError("{}:{}:{}: {}", origin_, 1 + std::count(before.begin(), before.end(), '\n'),
                    at - (before.rfind('\n') + 1) + 1, message);
}

void Reader::refuse_untaken(const std::vector<Node>& lines) const {
    for (const Node& line : lines) {
        if (!line.taken) fail(line, fmt::format("'{}' is no part of this", line.text));
        refuse_untaken(line.parts);
    }
}

void Reader::resolve(const Plan& plan) {
    refuse_untaken(lines_);
    std::stable_sort(references_.begin(), references_.end(),
                     [](const Reference& a, const Reference& b) { return a.list < b.list; });
    // Names of buffers and what follows are made of those before them.
    Names names(plan);
    bool renamed = false;
    for (const Reference& r : references_) {
        if (r.list >= List::kBuffers && !renamed) {
            names = Names(plan);
            renamed = true;
        }
        int64_t position = -1;
        if (!r.quoted && r.name.starts_with('#') && number(r.name.substr(1), position)) {
            *r.position = static_cast<int32_t>(position);
        } else {
            *r.position = names.find(r.list, r.name);
            if (*r.position < 0) fail(r.at, fmt::format("there is no '{}', or several", r.name));
        }
    }
    references_.clear();
}

bool Reader::parse(const std::string& text, Range& range) {
    const size_t dots = text.find("..");
    if (dots == std::string::npos) return false;
    range.end = kWhole;
    return number(text.substr(0, dots), range.begin) &&
           (dots + 2 == text.size() || number(text.substr(dots + 2), range.end));
}

bool Reader::parse(const std::string& text, importer::Dim& dim) {
    dim = importer::Dim();
    if (number(text, dim.value)) return true;
    dim.value = -1;
    const size_t colon = text.rfind(':');
    if (colon != std::string::npos && number(text.substr(colon + 1), dim.value))
        dim.symbol = text.substr(0, colon);
    else
        dim.symbol = text;
    return true;
}

bool Reader::parse(const std::string& text, Amount& amount) {
    amount = {};
    for (size_t at = 0; at < text.size();) {
        const size_t unit = std::min(text.find_first_not_of("0123456789", at + 1), text.size());
        int64_t n = 0;
        if (!number(text.substr(at, unit - at), n)) return false;
        const char c = unit < text.size() ? text[unit] : '\0';
        at = unit + (c == 't' || c == 'o' || c == 'k' ? 1 : 0);
        (c == 't'   ? amount.per_token
         : c == 'o' ? amount.per_output
         : c == 'k' ? amount.per_key
                    : amount.constant) += n;
    }
    return !text.empty();
}

bool Reader::parse(const std::string& text, std::vector<std::byte>& bytes) {
    if (text.empty() || text[0] != 'x' || text.size() % 2 == 0) return false;
    for (size_t i = 1; i < text.size(); i += 2) {
        const size_t high = kHexDigits.find(text[i]), low = kHexDigits.find(text[i + 1]);
        if (high == std::string::npos || low == std::string::npos) return false;
        bytes.push_back(static_cast<std::byte>(16 * high + low));
    }
    return true;
}

Plan read_plan(const std::string& text, const std::string& origin) {
    Reader reader(text, origin);
    Plan plan;
    reader.read(plan);
    reader.resolve(plan);
    return plan;
}

}  // namespace cleave::test
