#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/chat_cases.json: templates of ours, and what the real Jinja makes of them with the settings of Hugging
Face's apply_chat_template (sandboxed, trim_blocks, lstrip_blocks, loop controls). Written with jinja2 3.1.6.
A case whose "out" is null is one that Jinja refuses."""
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

MESSAGES = [{"role": "system", "content": "You are  helpful. "},
            {"role": "user", "content": "Hello, \"world\" <b> \u00e9\U0001F642\n"},
            {"role": "assistant", "content": " Hi! "}, {"role": "user", "content": "bye"}]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

# Each line tries one part of the language.
LANGUAGE = [
    r'''{% for i in [1,2,3] %}{% if i==1 %}{% set x = 5 %}{% endif %}[{{ x }}]{% endfor %}''',
    r'''{% set x=0 %}{% for i in range(3) %}{{x}}{% set x = x+1 %}{{x}}{% endfor %}{{x}}''',
    r'''{{ 1 }}{{ 1.0 }}{{ 1e20 }}{{ 1.5e-7 }}{{ 3//2 }}{{ -3//2 }}{{ -3 % 2 }}{{ 3/2 }}{{ 2**10 }}{{ 2**-1 }}{{ 7 % -3 }}{{ 7.5 // 2 }}''',
    r'''{{ true }}{{ none }}{{ [1,'a',"it's",none,1.5] }}{{ {'a':1,"b":[2]} }}{{ (1,) }}{{ (1,2) }}{{ () }}''',
    r'''{{ 'a' ~ 1 ~ none }}{{ 'x' * 3 }}{{ [1]*2 }}{{ [1]+[2] }}{{ 'abc'[1] }}{{ 'abc'[-1] }}{{ 'héllo'[1:3] }}{{ 'abc'[::-1] }}{{ [1,2,3][1:] }}{{ [1,2,3][:-1] }}{{ 'abc'[5:] }}''',
    r'''{{ 1 if false }}|{{ undefinedvar }}|{{ undefinedvar is defined }}|{{ messages[99] is defined }}|{{ messages[0].foo is undefined }}''',
    r'''{{ undefinedvar.foo }}''',
    r'''{{ undefinedvar + 1 }}''',
    r'''{{ messages[0].role }}{{ messages[0]['role'] }}{{ messages|length }}{{ messages[-1]['content']|trim }}''',
    r'''{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem.role if loop.previtem is defined }}{{ loop.nextitem.role if not loop.last }}{{ loop.cycle('a','b') }}{{ loop.depth }}{% for q in [1] %}{{ loop.depth }}{% endfor %}{% endfor %}''',
    r'''{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% else %}none{% endfor %}{% for m in [] %}x{% else %}empty{% endfor %}''',
    r'''{% for k, v in {'a':1,'b':2}.items() %}{{k}}={{v}},{% endfor %}{% for k in {'a':1} %}{{k}}{% endfor %}{% for c in 'héy' %}{{c}}.{% endfor %}''',
    r'''{% set ns = namespace(x=1, y='b') %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z is defined }}''',
    r'''{% macro f(a, b=2, c='x') %}<{{a}}{{b}}{{c}}>{% endmacro %}{{ f(1) }}{{ f(1, c='y') }}{{ f(b=3, a=0) }}{{ f() }}{{ f(1,2,3)|upper }}''',
    r'''{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(5) }}''',
    r'''{% macro g(a) %}{{ a }}{{ outer }}{% endmacro %}{% set outer = 'O' %}{{ g(1) }}''',
    r'''{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1,2) }}''',
    r'''{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}''',
    r'''{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set t = 1, 2 %}{{ t }}''',
    r'''{% set x %}block {{ 1 }}{% endset %}[{{ x }}]{% set y | upper | trim %} abc {% endset %}[{{ y }}]''',
    r'''{% filter upper %}abc {{ 'x' }}{% endfilter %}{% filter replace('a','b')|upper %}aaa{% endfilter %}''',
    r'''{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a }}''',
    r'''{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i > 5 %}{% break %}{% endif %}{{ i }}{% endfor %}''',
    r'''{% generation %}gen{{ 1 }}{% endgeneration %}''',
    r'''{% raw %}{{ x }}{% if %}{% endraw %}after{%- raw -%}  a {{ b }} {%- endraw -%}  c''',
    r'''{# comment #}a{#- c -#}  b  {# multi''',
    r'''{{ ' a b '.strip() }}{{ 'xxaxx'.strip('x') }}{{ 'a,b,c'.split(',') }}{{ 'a,b,c'.split(',',1) }}{{ ' a  b '.split() }}{{ 'a,b,c'.rsplit(',',1) }}{{ ' a  b c'.split(None,1) }}{{ 'a b  c '.rsplit(None,1) }}{{ 'a\nb\r\nc'.splitlines() }}''',
    r'''{{ 'abc'.startswith('a') }}{{ 'abc'.endswith(('x','c')) }}{{ 'aXbX'.replace('X','-',1) }}{{ 'abc'.find('c') }}{{ 'abc'.find('z') }}{{ 'abcabc'.rfind('b') }}{{ 'aaa'.count('a') }}{{ '-'.join(['a','b']) }}{{ 'abc'.upper() }}{{ 'hello world'.title() }}{{ 'hELLO'.capitalize() }}{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}''',
    r'''{{ '12'.isdigit() }}{{ 'ab1'.isalnum() }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ ''.isspace() }}{{ 'AB'.isupper() }}{{ 'a1'.islower() }}''',
    r'''{{ {'a':1}.get('a') }}{{ {'a':1}.get('b') }}{{ {'a':1}.get('b', 5) }}{{ {'a':1}.keys()|list }}{{ {'a':1}.values()|list }}{{ {'a':1}.items()|list }}''',
    r'''{{ {'items':3}.items() | list }}{{ {'items':3}['items'] }}{{ {'x':3}.x }}''',
    r'''{{ messages|tojson }}''',
    r'''{{ messages|tojson(indent=2) }}{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=2) }}''',
    r'''{{ {'b':1,'a':[1.0,true,none,"é\n\t\"\\"]}|tojson }}{{ {'b':1,'a':'é🙂'}|tojson(ensure_ascii=true, sort_keys=true) }}{{ [1,2]|tojson(separators=(',',':')) }}{{ {1:2, 1.5:3, none:4, true:5}|tojson }}''',
    r'''{{ 'a b'|title }}{{ 'hello wORLD-foo (bar'|title }}{{ 'hELLO x'|capitalize }}{{ 'x'|default('y') }}{{ u|default('y') }}{{ ''|default('y') }}{{ ''|default('y', true) }}{{ u|d }}{{ none|default('n') }}''',
    r'''{{ [1,2,3]|join(', ') }}{{ messages|join('|', attribute='role') }}{{ 'abc'|join('-') }}{{ [1,2]|first }}{{ []|first }}{{ 'abc'|last }}{{ 'abc'|list }}{{ [3,1,2]|sort }}{{ ['b','A','c']|sort }}{{ ['b','A','c']|sort(reverse=true, case_sensitive=true) }}{{ [1,2,3]|reverse|list }}{{ 'abc'|reverse }}''',
    r'''{{ [1,2,2,1]|unique|list }}{{ ['a','A']|unique|list }}{{ [1,5,3]|max }}{{ [1,5,3]|min }}{{ [1,2,3]|sum }}{{ messages|map(attribute='role')|list }}{{ ['a','b']|map('upper')|list }}{{ messages|selectattr('role','equalto','user')|list|length }}{{ messages|rejectattr('role','==','user')|map(attribute='role')|join(',') }}{{ [0,1,'',2]|select|list }}{{ [1,2,3]|select('odd')|list }}{{ [1,2,3]|reject('odd')|list }}{{ messages|selectattr('tool_calls','defined')|list }}{{ [{'a':1},{'a':0}]|selectattr('a')|list }}''',
    r'''{{ {'b':1,'a':2}|dictsort }}{{ {'b':1,'a':2}|dictsort(by='value') }}{{ {'b':1}|items|list }}{{ {'b':1,'a':2}|length }}''',
    r'''{{ '12'|int }}{{ 'x'|int }}{{ 'x'|int(5) }}{{ 3.9|int }}{{ '3.5'|float }}{{ 'x'|float }}{{ -3|abs }}{{ 2.5|round }}{{ 3.14159|round(2) }}{{ 2.1|round(0,'ceil') }}{{ '3.7'|int }}{{ '1e3'|float }}{{ none|int }}''',
    r'''{{ 'a\nb\n\nc'|indent(2) }}{{ 'a\nb'|indent(2, true) }}{{ 'a\nb'|indent('> ') }}{{ 'a b c'|wordcount }}{{ '<a&"\'>'|e }}{{ '<a>'|safe }}{{ 5|string + 'x' }}''',
    r'''{{ 1 is odd }}{{ 2 is even }}{{ 4 is divisibleby 2 }}{{ 'a' is string }}{{ 1 is number }}{{ 1 is integer }}{{ 1.0 is float }}{{ true is boolean }}{{ {} is mapping }}{{ [] is sequence }}{{ 'a' is iterable }}{{ none is none }}{{ true is true }}{{ 1 is true }}{{ 'a' is in ['a'] }}{{ 1 is eq 1 }}{{ 1 is sameas 1 }}{{ 1 is not none }}{{ f is callable }}{{ range is callable }}{{ 'a' is lower }}{{ [] is string }}{{ true is number }}{{ true is integer }}{{ {} is sequence }}{{ {} is iterable }}{{ none is iterable }}''',
    r'''{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' in 'abc' }}{{ 'a' not in 'abc' }}{{ 'role' in messages[0] }}{{ 1 in [1,2] }}{{ not 1 == 2 }}{{ 1 == 1.0 }}{{ '1' == 1 }}{{ none == none }}{{ [1] == [1] }}{{ {'a':1} == {'a':1} }}{{ true == 1 }}{{ u == u2 }}{{ u == none }}''',
    r'''{{ 1 and 2 }}{{ 0 or 'x' }}{{ '' or none or [] }}{{ not '' }}{{ 1 or 2 and 3 }}''',
    r'''{{ 'a' 'b' }}{{ "tab\tnl\\n\x41\u00e9\'" }}{{ 'q"' }}{{ '\q' }}''',
    r'''{{ 1 + 2 * 3 - 4 / 2 }}{{ (1 + 2) * 3 }}{{ -2 ** 2 }}{{ 2 ** 3 ** 2 }}{{ 1 ~ 2 + 3 }}{{ -1|abs }}{{ 'a'|upper ~ 'b' }}{{ 5 - -3 }}{{ +3 }}''',
    r'''{{ 'yes' if 1 == 1 else 'no' }}{{ 'a' if 0 else 'b' if 0 else 'c' }}''',
    r'''{{ range(5)|list }}{{ range(1,10,3)|list }}{{ range(3,0,-1)|list }}{{ dict(a=1,b=2) }}{% set j = joiner(',') %}{{ j() }}a{{ j() }}b{{ strftime_now('%d %b %Y') }}''',
    r'''{{ raise_exception('boo') }}''',
    r'''{{ foo() }}''',
    r'''{{ messages.append(1) }}''',
    r'''{%- if true -%}   x   {%- endif -%}   y''',
    r'''  {%+ if true %} keep{% endif %}''',
    r'''a  {%- if true %}  b{% endif +%}''',
    r'''{{- 'x' -}}  y  {{ 'z' }}''',
    r'''{{ {'a': {'b': {}}} }}{{ {'a':{}}}}''',
    r'''{{ messages[0].content.strip().upper()|lower }}''',
    r'''{{ [1,2,3].index(2) }}{{ [1,1].count(1) }}{{ [[1,2],[3]]|sum(start=[]) }}''',
    r'''{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m.role] %}{% endfor %}{{ ns.l }}''',
    r'''{% set x = 1 if true else 2 %}{{ x }}{% set d = {'k': 'v'} %}{{ d.k }}{{ d['k'] }}{{ d.missing }}|{{ d.missing|default('m') }}''',
    r'''{% for a, b in [[1,2],[3,4]] %}{{ a }}{{ b }}{% endfor %}{% for a in [1,2],[3] %}{{ a }}{% endfor %}''',
    r'''{{ messages[0] }}''',
    r'''{{ '%s' }}{{ "{{ x }}" }}{{ '}}' }}{{ '%}' }}''',
    r'''{{ none.foo is defined }}{{ none.foo }}{{ 5 .foo }}''',
    r'''{{ true + 1 }}{{ 1 / 0 }}''',
    r'''{{ [1,2][true] }}{{ 'abc'|length }}{{ u|length }}{{ 5|length }}''',
    r'''{{ [3,'a']|sort }}''',
    r'''{{ 'a' < 1 }}''',
    r'''{{ u|upper }}{{ u|trim }}{{ u|list }}{{ u|join }}{{ u|tojson }}''',
    r'''{% if u %}x{% endif %}{% for i in u %}x{% endfor %}{{ 'a' in u }}''',
    r'''{% for i in none %}x{% endfor %}''',
    r'''{% for i in 5 %}x{% endfor %}''',
    r'''{% set u.x = 5 %}''',
    r'''{% set messages.x = 5 %}''',
    r'''{{ 1 is foo }}''',
    r'''{{ 1|foo }}''',
    r'''{% foo %}''',
    r'''{% if 1 %}''',
    r'''{{ 'unclosed }}''',
    r'''{{ 1''',
    r'''{# unclosed''',
    r'''{% for x in [1] %}{{ loop.changed(x) }}{{ loop.changed(1) }}{% endfor %}''',
    r'''{{ ('a','b')|list }}{{ ('a' if 1 else 'b')|upper }}{{ (1,2)[0] }}{{ 'a.b'.split('.')[-1] }}{{ 'x'.split('</think>')[-1].lstrip('\n') }}''',
    r'''{%- for m in messages -%}{%- if m['role'] == 'user' -%}''',
    r'''{{ '<|user|>\n' + m['content'] + eos_token }}''',
    r'''{%- endif -%}{%- endfor -%}''',
    r'''{{ messages[::-1][0].role }}{{ messages[1:]|length }}{{ messages[:2][-1].role }}{{ 'abcdef'[1:5:2] }}{{ [1,2,3,4][::2] }}{{ 'abc'[2:0:-1] }}{{ [1,2,3][-2:] }}''',
    r'''{{ bos_token }}{{ pad_token }}{{ loop is defined }}''',
    r'''{{ ['x', 'y'] | map('replace', 'x', 'z') | list }}{{ [{'a':{'b':1}}]|map(attribute='a.b')|list }}{{ [{'a':1},{}]|map(attribute='a', default=0)|list }}{{ [[1,2]]|map('first')|list }}{{ [{'f':2},{'f':1}]|sort(attribute='f') }}''',
    r'''{{ 1_000 }}{{ 'abc'.replace('', '-') }}{{ 'a' | indent }}{{ 3 | round }}{{ 1e3 }}{{ 0.1 + 0.2 }}{{ 100.0 }}{{ 1e16 }}{{ 123456789.123 }}''',
    r'''{% if not messages is defined %}a{% else %}b{% endif %}{% if messages is defined and messages is not none %}c{% endif %}{% if 'x' is string and not 1 is string %}d{% endif %}{{ 'y' if messages[0].role is defined else 'n' }}''',
    r'''{{ '{}-{}'.format(1,'b') }}{{ '{a}{{}}'.format(a=none) }}{{ '{0}{0}'.format('x') }}''',
    r'''{{ '%s-%d' % ('a', 2) }}{{ '%s' % 'b' }}{{ '%s%%'|format(3) }}{{ '%r' % 'x' }}''',
    r'''{{ none|selectattr('x')|list }}{{ none|map('upper')|list }}{{ none|select|list }}''',
]

# White space between tags.
SPACES = ["{% if messages %}\n  yes\n{% endif %}\n  {% if 0 %}\nx\n{% elif 1 %}\nelif\n{% else %}\ny\n{% endif %}\nend\n","a\n  {%+ if true %} keep{% endif %}\na  {%- if true %}  b{% endif +%}\nc\n\n","{{- 'x' -}}  y  {{ 'z' }}\nnext\n   {# c #}\n  {#- d -#}  \n x","{# multi\nline #}\nc\r\nd\re\n\n","\n\n  {% set x = 1 %}  \n  {{ x }}\n  {% raw %}\n  {{ y }}\n  {% endraw %}\nz","{% for m in messages %}\n    {% if m.role == 'user' %}\n        {{ m.content }}\n    {% endif %}\n{% endfor %}\n","{%- for m in messages -%}{%- if m['role'] == 'user' -%}\n{{ '<|user|>\\n' + m['content'] + eos_token }}\n{%- endif -%}{%- endfor -%}\n","  {% if 1 %}a{% endif %}  {% if 1 %}b{% endif %}\n","{% macro a() %}\n  x\n{% endmacro %}\n[{{ a() }}]\n", "{% set x %}\n a\n{% endset %}\n{{ x }}","{{ 'a'\n }}{% if 1\n%}\nb{% endif %}", "x{% if 1 %}\r\ny{% endif %}\r\n", "   {{ 1 }}\n   {%- if 1 %}\n\n z {% endif -%}\n\n q", "{{ 1 -}}\n   {% if 1 %}a{% endif %}"]

# In the manner of the templates that the families carry.
FAMILIES = {
    "llama 2": """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}
{% else %}{% set rest = messages %}{% set system = false %}{% endif %}
{% for message in rest %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{% if loop.index0 == 0 and system != false %}
{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}
{% else %}{% set content = message['content'] %}{% endif %}
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}""",
    "llama 3": """{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}{{- system }}{{- "<|eot_id|>" }}
{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) }}{%- endfor %}{%- endif %}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "chatml": """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nHi<|im_end|>\\n' }}{% endif %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "qwen 3": """{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.multi_step = false %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "assistant" and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + ('!' if loop.index0 > ns.last else '') + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}""",
    "gemma": """{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first = messages[0]['content'] + '\\n\\n' -%}{%- set loop_messages = messages[1:] -%}
{%- else -%}{%- set first = "" -%}{%- set loop_messages = messages -%}{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}{%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\\n'}}{%- endif -%}
""",
    "macros": """{%- macro turn(role, content, end=eos_token) -%}
[{{ role|upper }}]{{ caller_is_absent|default('-') }}{{ content|trim|indent(2) }}{{ end }}
{%- endmacro -%}
{%- set user = messages | selectattr('role', 'equalto', 'user') | list -%}
{{- user | length }} {{ user | map(attribute='content') | map('trim') | join(' / ') }}
{% for m in messages %}{{ turn(m.role, m.content, end='|' if not loop.last else eos_token) }}{% endfor %}""",
}


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks the assistant's text; renders what is inside."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("inside"), [], [], body).set_lineno(line)

    def inside(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: f"<{form}>"
    return env


def case(env, name, template, messages, add_generation_prompt=True, **variables):
    values = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": add_generation_prompt,
              **SPECIAL, **variables}
    try:
        out = env.from_string(template).render(**values)
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, ZeroDivisionError, AttributeError):
        out = None
    return {"name": name, "template": template, "messages": messages, "add_generation_prompt": add_generation_prompt,
            "variables": variables, "out": out}


def main():
    env = environment()
    cases = [case(env, "language", template, MESSAGES) for template in LANGUAGE]
    cases += [case(env, "spaces", template, MESSAGES) for template in SPACES]
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {}, "required": ["x"]}}]
    for name, template in FAMILIES.items():
        for messages in [MESSAGES, MESSAGES[1:], MESSAGES[:2], MESSAGES[2:]]:
            cases.append(case(env, name, template, messages))
            cases.append(case(env, name, template, messages, False, tools=tools, enable_thinking=False))
    cases.append(case(env, "gemma", FAMILIES["gemma"], [{"role": "user", "content": [{"text": " a "}, {"text": "b"}]}]))
    document = {"written_with": {"jinja2": jinja2.__version__}, "special_tokens": SPECIAL, "cases": cases}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace('{"name"', '\n{"name"')
    path = pathlib.Path(__file__).parent / "data" / "chat_cases.json"
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
