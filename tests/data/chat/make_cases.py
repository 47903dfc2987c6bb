#!/usr/bin/env python3
"""Writes cases.json: templates and variables with what python jinja2 makes of them, set up as transformers does.

Needs jinja2 3.1. Run it in this folder: python3 make_cases.py
"""
import datetime
import json

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2025, 2, 3, 14, 5, 9)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


ENV = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
ENV.filters["tojson"] = tojson
ENV.globals["raise_exception"] = raise_exception
ENV.globals["strftime_now"] = NOW.strftime

TEMPLATES = {
    # Turns with a folded-in system text, roles that must alternate.
    "turns": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Roles must take turns: user, assistant, user") }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<turn>' + role + '\\n' + (prefix if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for part in message['content'] -%}
            {{ '<picture>' if part['type'] == 'image' else part['text'] | trim }}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Content of unknown type") }}
    {%- endif -%}
    {{ '</turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<turn>model\\n' }}{%- endif -%}
""",
    # Headers, dates, tools as JSON in the first user message, one tool call at a time.
    "headers": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<h>system</h>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: tools\\n" }}
{%- endif %}
{{- "Today: " + date_string + "\\n" + system + "<end>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<h>' + message['role'] + '</h>\\n' + (message['content'] | string) | trim + '<end>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("Only one tool call at once") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}<end>" }}
    {%- else %}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{% for tool in tools or [] %}
    {{ tool | tojson(indent=4) }}
{% endfor %}
{%- if add_generation_prompt %}
    {{- '<h>assistant</h>\\n\\n' }}
{%- endif %}
""",
    # Thinking, tool answers grouped in one turn, the last query found from behind.
    "thinking": """{%- if tools %}
    {{- '<|s|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|e|>\\n" }}
{%- elif messages and messages[0].role == 'system' %}
    {{- '<|s|>system\\n' + messages[0].content + '<|e|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<answer>') and message.content.endswith('</answer>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|s|>' + message.role + '\\n' + content + '<|e|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {% generation %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|s|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|s|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '\\n<call>{"name": "' ~ call.name ~ '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}</call>' }}
        {%- endfor %}
        {{- '<|e|>\\n' }}
        {% endgeneration %}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|s|>user' }}{%- endif %}
        {{- '\\n<answer>\\n' ~ message.content ~ '\\n</answer>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|e|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|s|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    # Tools as TypeScript through recursive macros.
    "typescript": """{%- macro type_of(spec, required, depth=0) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}{{ type_of(spec['items'], [], depth=depth+1) ~ "[]" }}{%- else -%}any[]{%- endif -%}
    {%- elif spec.type is iterable and spec.type is not string -%}
        {{ spec.type | join(" | ") }}
    {%- elif spec.oneOf -%}
        {%- for variant in spec.oneOf -%}
            {{ type_of(variant, []) }}{{ " | " if not loop.last }}
        {%- endfor -%}
    {%- elif spec.type == "string" -%}
        {{ '"' + spec.enum|join('" | "') + '"' if spec.enum else "string" }}
        {%- if spec.nullable %} | null{% endif %}
    {%- elif spec.type in ["number", "integer"] -%}number
    {%- elif spec.type == "object" and spec.properties -%}
        {{- "{" }}
        {% for name, inner in spec.properties.items() -%}
            {{ "  " * depth ~ name }}{{ "?" if name not in (required or []) }}: {{ type_of(inner, spec.required, depth + 1) }}
            {%- if inner.default is defined %} // default: {{ inner.default if inner.default is not string else '"%s"' % inner.default }}{% endif -%}
            {{- ",\\n" if not loop.last else "\\n" -}}
        {%- endfor -%}
        {{- "}" -}}
    {%- else -%}any{%- endif -%}
{%- endmacro -%}
{%- macro wrapped(title) -%}[{{ title|upper }}: {{ caller(title|length) }}]{%- endmacro -%}
namespace functions {
{% for tool in tools or [] if tool.function is defined %}
// {{ tool.function.description | replace("\\n", "\\n// ") }}
type {{ tool.function.name }} = {{ type_of(tool.function.parameters, tool.function.parameters.required, 1) }};
{% else %}
// nothing
{% endfor %}
}
{% for message in messages %}
{%- call(size) wrapped(message.role) %}{{ message.content|default("-", true)|string|indent(2)|truncate(40) }}/{{ size }}{% endcall %}
{% if loop.index > 4 %}{% break %}{% endif %}
{% endfor %}
{%- filter upper %}{% if add_generation_prompt %}go{% else %}stop{% endif %}{% endfilter %}
""",
    # Documents, dates, sorting and every loop variable.
    "lists": """{%- set roles = messages | map(attribute='role') | list -%}
{{ roles | unique | sort | join(',') }}|{{ roles | length }}|{{ strftime_now('%A %-d %B %Y %H:%M %j %y %p') }}
{% for m in messages | selectattr('role', 'in', ['user', 'assistant']) -%}
{{ loop.index }}/{{ loop.length }} {{ loop.revindex0 }} {{ loop.cycle('a', 'b') }} {{ loop.changed(m.role) }} {{ loop.previtem.role | default('none') }} {{ loop.nextitem.role if not loop.last }}
{% endfor %}
{% for key, value in (documents or [{}])[0] | dictsort %}{{ key }}={{ value }};{% endfor %}
{%- for d in documents %}
  Document {{ loop.index0 }}: {{ d.title | title }} {{ d.items() | list }} {{ d }}
{%- else %} no documents {% endfor %}
{% set seen = namespace(n=0, all=[]) %}
{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{% set seen.n = seen.n + 1 %}{% set seen.all = seen.all + [m.role[0]] %}{% endfor %}
{{ seen.n }} {{ seen.all }} {{ messages | groupby('role') | map('first') | list }}
{% set text %}  {{ messages | tojson }}  {% endset %}{{ text | trim | length }}
""",
}

SYSTEM = {"role": "system", "content": "You are  kind.\n"}
USER = {"role": "user", "content": " Hello <b> & \"friends\" 😀 "}
REPLY = {"role": "assistant", "content": "Grüß Gott!\n"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather.\nNow.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "e.g. 'Zürich' <x>"},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c", "nullable": True},
                "days": {"type": "integer", "default": 3},
                "tags": {"type": "array", "items": {"type": "string"}},
                "deep": {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "any"}}, "required": ["a"]},
                "either": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            },
            "required": ["place"],
        },
    },
}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"place": "Zürich", "days": 2, "x": None, "y": True, "f": 1.5, "big": 1e30, "list": [1, "a", {}]}}}
CONVERSATIONS = {
    "one": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, REPLY, USER],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "look "}, {"type": "image"}]}],
    "thinking": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"}, USER, {"role": "assistant", "content": "done", "reasoning_content": "so\n"}],
    "tools": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "{\"t\": 20}"}, {"role": "tool", "content": "21"}, REPLY],
    "two calls": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}],
    "text arguments": [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 1}"}}]}],
    "wrong order": [REPLY, USER],
    "number": [{"role": "user", "content": 7}],
    "nothing": [],
}
VARIANTS = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "tools": [WEATHER], "enable_thinking": False},
    {"tools": None, "date_string": "26 Jul 2024", "documents": [{"title": "a tale", "text": "x"}, {"n": 1.0}]},
]

# One expression each, in {{ }}.
EXPRESSIONS = r"""
1 + 2 * 3 ** 2 ** 1 - -4
7 // 2, -7 // 2, 7 % -3, -7.5 % 2, 7 / 2, 2 ** -1, 2 ** 0.5
1e16, 1e15, 1.5e-5, 0.0001, 123456789.123, 1e22, -0.0, 1_000, 0x1f, 100000000000000000000
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, true == 1, "a" < "b", [1, 2] < [1, 3]
not true or false and x, not (1 in [1, 2]), 3 not in [1], "a" in "cat"
"a" ~ 1 ~ none ~ true ~ 1.0 ~ [1, "b"] ~ {"k": none} ~ (1,) ~ ()
"%s is %d and %.2f %5s|%-5s|%05d %x %%" % ("a", 3, 2.5, "b", "c", 42, 255)
"%(a)s-%(b)s" % {"a": 1, "b": "x"}
"{} {1}".format(1, "b")
"{0} {}".format(1, "b")
"{} {:>4}|{:<4}|{:^5}|{name!r:>6}".format(1, "b", "c", 2.5, name="z"), "{0:.3f} {1:,} {0}{{}} {2[0]} {2[1]}".format(1, 1234567, ["x", "y"])
"abc"[0], "abc"[-1], "abc"[5], "abcdef"[1:4], "abcdef"[::-1], "abcdef"[-2:], "äöü"[1:], [1, 2, 3, 4][::2], (1, 2, 3)[1:]
" a b  c ".split(), "a,b,c".split(",", 1), "a b c".rsplit(None, 1), "a--b".split("--"), "".split(), "".split(",")
"xxaxx".strip("x"), " a ".lstrip() ~ "|", " a ".rstrip() ~ "|", "a\nb\r\nc".splitlines(), "a\n".splitlines(true)
"hello".replace("l", "L", 1), "hello"|replace("l", ""), "abc".replace("", "-"), "Hello World".title(), "they're bill's"|title, "foo bar"|capitalize
"abc".startswith(("x", "a")), "abc".endswith("c"), "abc".find("c"), "abc".rfind("z"), "abcabc".count("bc"), "abc".index("b")
"a-b".partition("-"), "a-b-c".rpartition("-"), "7".zfill(3), "-7".zfill(4), "a".center(4, "*"), "a".ljust(3) ~ "|", "a".rjust(3)
"1".isdigit(), "a1".isalnum(), "a".isalpha(), " ".isspace(), "A".isupper(), "a".islower(), "ß".upper(), "ÀÉ".lower(), "x".removeprefix("x"), "x.y".removesuffix(".y")
"-".join(["a", "b"]), [1, 2, 3]|join("-"), [{"a": 1}, {"a": 2}]|join(",", attribute="a")
{"a": 1, "b": [1, 2]}.items()|list, {"a": 1}.keys(), {"a": 1}.values()|list, {"a": 1}.get("b", 5), {"a": 1}.get("z")
{"b": 1, "a": 2}|dictsort, {"b": 1, "a": 2}|dictsort(by="value", reverse=true), {"a": 1}|items|list
[3, 1, 2]|sort, [3, 1, 2]|sort(reverse=true), ["b", "A", "c"]|sort, ["b", "A"]|sort(case_sensitive=true), [1, 2, 3]|sum, [1, 5, 3]|max, [4, 2]|min
[1, 2, 3]|first, [1, 2, 3]|last, []|first, "abc"|first, [1, 2, 3]|reverse|list, "abc"|reverse, [1, 1, 2]|unique|list
[1, 2, 3, 4, 5]|batch(2)|list, [1, 2, 3, 4, 5]|batch(2, 0)|list, [1, 2, 3, 4, 5]|slice(2)|list
[1, 2, 3]|select("odd")|list, [1, 2, 3]|reject("odd")|list, [0, 1]|select|list, ["a", "b"]|map("upper")|list, [{"a": {"b": 1}}]|map(attribute="a.b")|list
[{"a": 1}, {}]|map(attribute="a", default="z")|list, [{"a": 1}, {"a": 2}]|selectattr("a", "gt", 1)|list, [{"a": 1}, {}]|rejectattr("a")|list
none|default("x"), missing|default("x"), ""|default("x", true), missing|d, 0|default(1)
"3"|int, "x"|int, "x"|int(5), "3.7"|int, 3.9|int, "ff"|int(0, 16), "2.5"|float, "x"|float, true|int, 3|float
2.5|round, 3.5|round, 2.675|round(2), 2.1|round(0, "ceil"), 2.9|round(method="floor"), 7|round, -3|abs, 12345.678|round(-2)
"<a href='x'>&\""|e, "<"|escape|e, "<"|safe, "a b/ü"|urlencode, {"a b": "c&"}|urlencode
("<b>"|safe) + "<i>", "<i>" + ("<b>"|safe), ("<b>"|safe) ~ "<i>", ("<%s>"|safe) % "<i>", ("<b>"|safe)|upper, ("a<b"|safe).replace("a", "<"), "<b>"|safe|replace("b", "<") + "<", ("{}<"|safe).format("<"), ("<"|safe).join(["<", "a"]), ("<b>"|safe)[0] + "<", ("<"|safe) * 2 + ">", ("a<b"|safe).split("<"), "<"|safe|tojson + "<", "<"|safe|trim + "<", {"a": "<"|e}|tojson
"a\nb\n\nc"|indent, "a\nb"|indent(2, true), "a\n\nb"|indent(1, blank=true), "one two three"|wordcount, "one two three four"|truncate(10), "abcdefghijklmnop"|truncate(8, true, "~")
"%s-%s"|format("a", 1), "abc"|center(7), "abc"|length, [1]|count, {"a": 1}|length, 3|string ~ "x", " x "|trim, "xyx"|trim("x")
{"a": "é<>&'\"\n\t\u0001", "b": [1, 2.0, none, true], "c": {}}|tojson, [1, {"a": []}]|tojson(indent=2), {"b": 1, "a": 2}|tojson(sort_keys=true)
{"a": [1, 2]}|tojson(separators=(",", ":")), "é😀"|tojson(true), [1, [2]]|tojson(indent="--"), {1: 2, none: 3, true: 4}|tojson
x is defined, x is undefined, none is none, 1 is number, 1.5 is float, true is integer, true is boolean, "a" is string, {} is mapping, [] is sequence, "a" is iterable, range is callable
3 is odd, 4 is even, 9 is divisibleby 3, 9 is divisibleby(2), "a" is in ["a"], 1 is eq 1, 1 is ne 2, 2 is gt 1, "A" is upper, "a" is lower, 1 is sameas 1, "upper" is filter, "odd" is test, not x is defined
range(5)|list, range(1, 10, 3)|list, range(3), dict(a=1, b=2), dict([("x", 1)]), namespace(a=1).a, namespace(a=1).b is defined
"a" if false, "a" if true else "b", ("a" if false) is defined, (x or "y"), 1 and 2, 0 or none
"it's", ["it's"], ['say "hi"'], ["both ' and \""], ["tab\t nl\n bs\\ nul\x00 é \u200b 😀"], {"a": {"b": ("c",)}}
'a' 'b' "c", "\x41\u00e9\t|\q\101", [1, 2,], {"a": 1,}, (1, 2)
x, x ~ "a", x|length, x|list, x == y, x in [1], [x], x|upper
"abc".upper, [1].append(2)
1 + "a"
"a" + 1
[1] + "a"
x.y
x["y"]
{"a": 1}.b.c
none.foo.bar
"a" * "b"
1 < "a"
"a"|int + none
5|length
1 / 0
5 % 0
missing()
"abc".nope()
[1, 2]|join(",", 3)|nope
1 is nope
{"a": 1}.update({"b": 2})
none|list
"x" * 3, [0] * 2, 2 * "ab", "ab" * 0
range(1000000)
"abc"|format(1)
[1, "a"]|sort
{[1]: 2}
3|items|list
x|tojson
"a".join([1])
[3, 4][7].x
loop
cycler("a", "b").next(), joiner("|")() ~ "."
""".strip().split("\n")

STATEMENTS = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a {%- if true %} b {%+ endif -%} c",
    "  {{ 1 }}\n  {# note #}\n  {#- note -#}\n x {%+ if true %} y\n{% endif %}\n\n",
    "{% raw %}{{ x }} {% if %}{% endraw %} {%- raw -%} {# y #} {%- endraw +%} z\n",
    "line\r\nnext\rlast\n\n",
    "{% for i in [1, 2, 3] if i > 1 %}{{ loop.index }}{{ i }}{% else %}none{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}",
    "{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for i in 5 %}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i + 10 %}{{ x }}{% endfor %}{{ x }}",
    "{% set a, b = 1, 'z' %}{{ a }}{{ b }}{% set ns = namespace() %}{% set ns.v = [a] %}{{ ns.v }}",
    "{% set x.y = 1 %}",
    "{% set block | upper | replace('A', 'o') %}a{{ 1 }}b{% endset %}[{{ block }}]",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }} {{ m(1, 3, 4, 5, d=6) }} {{ m(b=1) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{{ x }}{% endcall %}{{ m() }}",
    "{% macro a(n) %}{{ n }}{{ b(n - 1) if n > 0 }}{% endmacro %}{% macro b(n) %}-{{ a(n) }}{% endmacro %}{{ a(3) }}",
    "{% set v = 1 %}{% macro m() %}{{ v }}{% endmacro %}{% set v = 2 %}{{ m() }}{{ m(*[], **{}) }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% filter replace('a', 'b')|upper %}banana{% endfilter %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}",
    "{% for a in 'äb' %}{% for b in [1, 2] %}{{ a }}{{ b }}{{ loop.last }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% if x %}a{% elif y %}b{% elif not z %}c{% else %}d{% endif %}{% print 1, 'a' %}",
    "{{ raise_exception('Stop: ' ~ 1 + 1) }}",
    "\n\n{{ raise_exception('On line three') }}",
    "{% if false %}{{ 1|nofilter }}{% endif %}ok",
    "{% set g = [1, 2]|map('string') %}{{ g|list }}{{ g|list }}{{ 'yes' if g }}",
    "{% set s = 'abc' %}{{ s.upper().lower().title() }}{{ s[1].upper() }}{{ {'items': 1}['items'] }}{{ {'items': 1}.items is callable }}",
    "{{ 1 }",
    "{% if %}",
    "{% for %}",
    "{% nope %}",
    "{{ 'a }}",
    "{% if true %}",
    "{# open",
    "{{ (1 }}",
    "{{ a b }}",
    "{% endif %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{{ {}|tojson|length }}{{ [[]]|tojson(indent=1) }}",
]


def expected(template, variables):
    try:
        compiled = ENV.from_string(template)
    except jinja2.TemplateSyntaxError:
        return {"rejected": True}
    try:
        return {"text": compiled.render(**variables)}
    except Exception as error:
        return {"error": str(error)}


def main():
    templates, cases = [], []

    def add(name, template, variables):
        if template not in templates:
            templates.append(template)
        cases.append({"name": name, "template": templates.index(template), "variables": variables,
                      **expected(template, variables)})

    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    for title, template in TEMPLATES.items():
        for conversation, messages in CONVERSATIONS.items():
            for i, variant in enumerate(VARIANTS):
                add(f"{title}, {conversation}, {i}", template, {"messages": messages, **tokens, **variant})
    for expression in EXPRESSIONS:
        add(expression, "{{ " + expression + " }}", {})
    for statement in STATEMENTS:
        add(statement, statement, {})
    with open("cases.json", "w", encoding="utf-8") as out:
        json.dump({"templates": templates, "cases": cases}, out, ensure_ascii=False, indent=0)
        out.write("\n")
    print(len(cases), "cases,", sum("text" in c for c in cases), "with text")


if __name__ == "__main__":
    main()
