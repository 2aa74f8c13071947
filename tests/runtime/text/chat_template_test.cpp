// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <random>

#include "runtime/text/chat_template.h"
#include "tests/runtime/text/cases.h"

using cleave::runtime::ChatMessage;
using cleave::runtime::ChatOptions;
using cleave::runtime::ChatTemplate;
using cleave::runtime::load_chat_template;
using namespace cleave::test;

namespace {

/// Written by make_chat_cases.py with jinja2 3.1.6.
const nlohmann::ordered_json& chat_cases() {
    static const auto kDocument =
        nlohmann::ordered_json::parse(std::ifstream(text_data() / "chat_cases.json"));
    return kDocument;
}

std::string rendered(const std::string& source) {
    return ChatTemplate(source, "test.jinja").render(std::vector<ChatMessage>());
}

ChatOptions options_of(const nlohmann::ordered_json& entry) {
    ChatOptions options;
    options.add_generation_prompt = entry.at("add_generation_prompt");
    options.variables = entry.at("variables");
    options.strftime_now = [](const std::string& format) { return "<" + format + ">"; };
    return options;
}

std::string render(const std::string& source) {
    return ChatTemplate(source, "test.jinja").render(nlohmann::ordered_json::array());
}

}  // namespace

TEST_CASE("chat templates render as jinja2 renders them, and what it refuses is an error",
          "[runtime][text]") {
    const auto special =
        chat_cases().at("special_tokens").get<std::map<std::string, std::string>>();
    for (const auto& entry : chat_cases().at("cases")) {
        CAPTURE(entry.at("name").get<std::string>(), entry.at("template").get<std::string>());
        const auto run = [&] {
            return ChatTemplate(entry.at("template"), "test.jinja", special)
                .render(entry.at("messages"), options_of(entry));
        };
        if (entry.at("out").is_null()) {
            CHECK(contains(user_error(run), "test.jinja, line"));
        } else {
            CHECK(run() == entry.at("out").get<std::string>());
        }
    }
}

TEST_CASE("messages are a role and a text", "[runtime][text]") {
    const ChatTemplate chat(
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}",
        "test.jinja", {{"bos_token", "<s>"}});
    const std::vector<ChatMessage> messages = {{"system", "be brief"}, {"user", "hi\xFF"}};
    CHECK(chat.render(messages) == "<s><system>be brief<user>hi\uFFFD<assistant>");
    ChatOptions options;
    options.add_generation_prompt = false;
    CHECK(chat.render(messages, options) == "<s><system>be brief<user>hi\uFFFD");
}

TEST_CASE("a construct that is not supported is named with its line", "[runtime][text]") {
    const std::pair<const char*, const char*> cases[] = {
        {"a\n{% block x %}{% endblock %}",
         "line 2 of the chat template: the tag 'block' is not supported"},
        {"{% include 'x' %}", "the tag 'include' is not supported (supported: if, for,"},
        {"{% call f() %}{% endcall %}", "the tag 'call' is not supported"},
        {"{% for x in y recursive %}{% endfor %}", "a recursive loop is not supported"},
        {"\n\n{{ 1|urlize }}",
         "line 3 of the chat template: the filter 'urlize' is not supported (supported: trim,"},
        {"{{ 1 is filter }}", "the test 'filter' is not supported (supported: defined,"},
        {"{{ f(*x) }}", "unpacking arguments with '*' is not supported"},
        {"{{ [].append(1) }}", "the method list.append() is not supported"},
        {"{{ 'x'.encode() }}", "the method str.encode() is not supported"},
        {"{{ '%5d' % 1 }}", "'%5' in a text is not supported"},
        {"{{ '{:>3}'.format(1) }}", "the field '{:>3}' is not supported"},
        {"{% if 1 %}\n{{ 2 }}", "the template ends before 'endif'"},
        {"{% endfor %}", "'endfor' without its beginning"},
        {"{{ 'x }}", "a string that begins here has no end"},
        {"\n{{ x", "line 2 of the chat template: a tag that begins here has no end '}}'"},
        {"{# x", "the comment '{#' has no end"},
        {"{{ ? }}", "unexpected character '?'"},
        {"{{ (1] }}", "unexpected ']'"},
        {"{{ 1 2 }}", "expected '}}', found '2'"},
        {"{% break %}", "'break' outside of a loop"},
        {"{{ x.y }}", "'x' is undefined, so it has no 'y'"},
        {"{{ x() }}", "'x' is undefined and cannot be called"},
        {"{{ x + 1 }}", "'x' is undefined and cannot be an operand of '+'"},
        {"{{ raise_exception('no system role') }}",
         "the template refuses this conversation: no system role"},
        {"{{ raise_exception('a\\ncleave: b') }}", "refuses this conversation: a cleave: b"},
        {"{{ 1 // 0 }}", "division by zero"},
        {"{{ 9223372036854775807 + 1 }}", "does not fit in 64 bits"},
        {"{{ range(1000000) }}", "a range of more than 100000 numbers"},
    };
    for (const auto& [source, message] : cases) {
        CAPTURE(source);
        const std::string found = user_error([&source = source] { render(source); });
        CAPTURE(found);
        CHECK(contains(found, message));
        CHECK(contains(found, "test.jinja, line "));
    }
}

TEST_CASE("templates that would run away are stopped", "[runtime][text]") {
    CHECK(contains(user_error([] { render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"); }),
                   "too often"));
    CHECK(contains(user_error([] {
                       render("{{ " + std::string(9999, '(') + "1" + std::string(9999, ')') +
                              " }}");
                   }),
                   "nested too deeply"));
    CHECK(contains(user_error([] { render("{{ 1" + std::string(100'000, '+') + "1 }}"); }),
                   "nested too deeply"));
    std::string sum = "{{ 1";
    for (int i = 0; i < 5000; ++i) sum += " + 1";
    CHECK(contains(user_error([&] { render(sum + " }}"); }), "nested too deeply"));
    std::string blocks;
    for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}";
    CHECK(contains(user_error([&] { render(blocks); }), "nested too deeply"));
    CHECK(contains(user_error([] { render("{{ 'x' * 1000000000000 }}"); }), "too long"));
    CHECK(contains(user_error([] {
                       render(
                           "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x "
                           "~ n.x %}{% endfor %}");
                   }),
                   "too long"));
    CHECK(contains(user_error([] {
                       render(
                           "{% set n = namespace(x=[]) %}{% for i in range(90000) %}{% set n.x = "
                           "[n.x] %}{% endfor %}");
                   }),
                   "nested too deeply"));
    CHECK(render("{% set n = namespace() %}{% set n.n = n %}{{ n is defined }}") == "True");
    CHECK(contains(user_error([] { render("{% set n = namespace() %}{% set n.n = n %}{{ n }}"); }),
                   "too deeply"));
}

TEST_CASE("templates that would work for ever are stopped", "[runtime][text]") {
    for (const char* source :
         {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
          "{% for a in range(60) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
          "{% for a in range(9999) %}{% if range(99999) %}{% endif %}{% endfor %}",
          "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
          "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = ns.x + [i] %}"
          "{% endfor %}",
          "{{ range(99999)|map('string')|unique|list|length }}",
          "{% for i in range(9999) %}{% if 'a' * 60000000 %}{% endif %}{% endfor %}",
          "{% set x = 'a' * 60000000 %}{% for i in range(9999) %}{% if x % () %}{% endif %}{% "
          "endfor %}",
          "{% for i in range(999) %}{% if ('a' * 2000000 ~ 'b') in ('a' * 4000000) %}{% endif %}"
          "{% endfor %}",
          "{% set a = 'x' * 4000000 %}{% set b = 'x' * 4000000 %}{% for i in range(9999) %}"
          "{% if a == b %}{% endif %}{% endfor %}",
          "{% set a = 'x' * 4000000 %}{% set b = 'x' * 4000000 %}{% for i in range(9999) %}"
          "{% if a < b %}{% endif %}{% endfor %}",
          "{% set x = ['A' * 4000000] * 999 %}{% for i in x %}{% if i is upper %}{% endif %}"
          "{% endfor %}",
          "{% set x = ['A' * 4000000] * 999 %}{% for i in x %}{% for j in x %}{% endfor %}"
          "{% endfor %}",
          "{% set x = ['y'] * 99999 %}{% for i in range(9999) %}{% if 'x'.startswith(x) %}"
          "{% endif %}{% endfor %}",
          "{{ (['A' * 4000000] * 9999)|sort|length }}",
          "{{ (['A' * 4000000] * 9999)|unique|list|length }}"}) {
        CAPTURE(source);
        const std::string error = user_error([&] { rendered(source); });
        CHECK(contains(error, "too much work"));
    }
}

TEST_CASE("templates whose values would not fit in memory are stopped", "[runtime][text]") {
    const std::string doubled = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}";
    for (const std::string& source : std::vector<std::string>{
             doubled + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
             doubled + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x + [] }}",
             doubled + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
             doubled + "{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x }}",
             doubled + "{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
             doubled + "{% set ns.x = '{0}{0}'.format(ns.x) %}{% endfor %}",
             std::string("{% set ns = namespace(x='a') %}{% for i in range(60) %}") +
                 "{% set ns.x = ns.x.replace('a', 'aa') %}{% endfor %}",
             "{{ ','.join(['x' * 4000000] * 9999) }}", "{{ (['x'] * 99999)|join('x' * 4000000) }}",
             "{{ ('\\n' * 99999)|indent('x' * 4000000, true, true) }}",
             "{{ ('&' * 4000000)|e|e|e|e|e|e|e|e|length }}",
             "{{ ([1] * 99999)|tojson(separators=('x' * 4000000, ':')) }}",
             "{{ (['x'] * 9999)|map(attribute='a.' * 4000000)|list|length }}",
             "{{ ('a ' * 2000000).split()|length }}", "{{ ('a' * 4000000)|list|length }}",
             "{{ strftime_now('%c' * 4000000) }}"}) {
        CAPTURE(source);
        const std::string error = user_error([&] { rendered(source); });
        CHECK((contains(error, "too much work") || contains(error, "too long") ||
               contains(error, "too many parts")));
    }
}

TEST_CASE("searches in long texts take time by their length", "[runtime][text]") {
    CHECK(rendered("{{ ('a' * 4000000).count('a' * 2000000 ~ 'b') }}") == "0");
    CHECK(rendered("{{ ('a' * 4000000).rfind('b' ~ 'a' * 2000000) }}") == "-1");
    CHECK(rendered("{{ ('a' * 4000000).rsplit('b' ~ 'a' * 2000000)|length }}") == "1");
    CHECK(rendered("{{ ('ab' * 400000).strip('b' * 400000 ~ 'a')|length }}") == "0");
    CHECK(rendered("{{ ('a ' * 200000).split()|length }}") == "200000");
    CHECK(rendered("{{ ('a ' * 200000).rsplit(none, 199998)|first }}") == "a a");
    CHECK(rendered("{{ ('ab' * 2000000)[-3:] }}{{ ('ab' * 2000000)[1] }}") == "babb");
}

TEST_CASE("parts of texts are Python's from both ends", "[runtime][text]") {
    CHECK(rendered("{{ 'aaa'.rsplit('aa') }}{{ 'a,b,c'.rsplit(',', 1) }}") ==
          "['a', '']['a,b', 'c']");
    CHECK(rendered("{{ '\u00e4\u00f6\u00e4'.rfind('\u00e4') }}{{ 'aaa'.rfind('aa') }}"
                   "{{ 'ab'.rfind('') }}") == "212");
    CHECK(rendered("{{ 'h\u00e4llo'[1:3] }}{{ 'h\u00e4llo'[::-1] }}{{ 'h\u00e4llo'[-2:1] }}"
                   "{{ 'h\u00e4llo'[4:0:-2] }}{{ 'h\u00e4llo'[-4] }}") ==
          "\u00e4loll\u00e4hol\u00e4");
    CHECK(rendered("{{ [1,2,3,4][3:0:-2] }}{{ [1,2,3][5:] }}{{ [1,2,3][::9] }}") == "[4, 2][][1]");
}

TEST_CASE("damaged templates render or are refused, and never crash", "[runtime][text]") {
    std::mt19937 draw(5);
    const auto& cases = chat_cases().at("cases");
    for (int i = 0; i < 1500; ++i) {
        const auto& entry = cases[draw() % cases.size()];
        auto source = entry.at("template").get<std::string>();
        for (int k = 0; k < 3 && !source.empty(); ++k) {
            const size_t at = draw() % source.size();
            if (k == 0)
                source.erase(at, draw() % 4);
            else if (k == 1)
                source.insert(at, source.substr(draw() % source.size(), draw() % 6));
            else
                source[at] = "{}%#-+'\"()[]|.,:=~ \nax0"[draw() % 23];
        }
        CAPTURE(source);
        try {
            ChatTemplate(source, "test.jinja").render(entry.at("messages"), options_of(entry));
        } catch (const cleave::UserError& error) {
            CHECK(contains(error.what(), "test.jinja, line "));
        }
    }
}

TEST_CASE("the template beside a tokenizer is found in both of its places", "[runtime][text]") {
    const TemporaryFolder folder;
    CHECK_FALSE(load_chat_template(folder.path()).has_value());
    const auto write = [&](const nlohmann::json& config) {
        write_file(folder.path() / "tokenizer_config.json", config.dump());
    };
    const std::vector<ChatMessage> none;
    write({{"bos_token", {{"content", "<s>"}}}});
    CHECK_FALSE(load_chat_template(folder.path()).has_value());
    write({{"bos_token", {{"content", "<s>"}}}, {"chat_template", "A{{ bos_token }}"}});
    CHECK(load_chat_template(folder.path())->render(none) == "A<s>");
    write(
        {{"chat_template",
          {{{"name", "tool_use"}, {"template", "T"}}, {{"name", "default"}, {"template", "D"}}}}});
    CHECK(load_chat_template(folder.path() / "tokenizer.json")->render(none) == "D");
    write({{"chat_template", {{{"name", "rag"}, {"template", "T"}}}}});
    CHECK(contains(user_error([&] { load_chat_template(folder.path()); }),
                   "'default' (there are: rag)"));
    write_file(folder.path() / "chat_template.jinja", "J\n");
    CHECK(load_chat_template(folder.path())->render(none) == "J");
}
