"""Chat templates in the forms that published models have, and conversations to try them on.

They are written for these tests, each with what its kind is known for: how it walks through messages, what it refuses,
which of Jinja's and Python's means it uses.
"""

# ruff: noqa: E501 (lines of templates)

from __future__ import annotations

from typing import Any

# Instructions in brackets; the system's message inside the first; turns must alternate. (Llama 2)
INSTRUCTIONS = """\
{% if messages[0]['role'] == 'system' %}
    {% set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}
    {% set turns = messages[1:] %}
{% else %}
    {% set system = '' %}
    {% set turns = messages %}
{% endif %}
{% for turn in turns %}
    {% if (turn['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Turns of user and assistant must alternate.') }}
    {% endif %}
    {% set text = system + turn['content'] if loop.first else turn['content'] %}
    {% if turn['role'] == 'user' %}
{{ bos_token ~ '[INST] ' ~ text.strip() ~ ' [/INST]' }}
    {%- else %}
{{ ' ' ~ text.strip() ~ ' ' ~ eos_token }}
    {%- endif %}
{% endfor %}
"""

# Headers around roles, a date, tools as JSON in the first turn. (Llama 3)
HEADERS = """\
{{- bos_token }}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Date: " + (date_string | default("26 Jul 2024")) + "\\n\\n" }}
{{- system + "<|eot_id|>" }}
{%- if tools is not none and messages | length > 0 %}
    {%- set first = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first + "<|eot_id|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role not in ('ipython', 'tool') and not message.tool_calls %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message and message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception("Only one call at a time.") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# Marks around turns, nothing else. (ChatML)
MARKS = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Marks, a usual system message, tools by their JSON, answers of tools in one turn. (Qwen 2.5)
TOOLS = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You help.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# Thoughts are cut out of older answers, found from the end; a switch for them. (Qwen 3)
THOUGHTS = """\
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# The model is "model"; the system's message before the first text; parts of a message. (Gemma)
PARTS = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first = "" -%}
    {%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Roles must be user, assistant, user, and so on") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""

# One line, else-ifs by role. (Phi 3)
ROLES = (
    "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\\n' + "
    "message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + "
    "'<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"
)

# Messages picked by filters, tools before the last question, a namespace that counts. (Mistral)
PICKED = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate user/assistant") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val | tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}
            {{- out[:-1] }}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string + "}[/TOOL_RESULTS]" }}
    {%- endif %}
{%- endfor %}
"""

# Macros that render types of arguments. (Command R, Hermes)
MACROS = """\
{%- macro json_to_python_type(spec) %}
    {%- set names = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
    {%- if names[spec.type] is defined %}
        {{- names[spec.type] }}
    {%- elif spec.type == "array" %}
        {{- "list[" + json_to_python_type(spec['items']) + "]" }}
    {%- elif spec.type == "object" %}
        {{- "dict" }}
    {%- else %}
        {{- "Any" }}
    {%- endif %}
{%- endmacro %}
{%- for tool in tools | default([], true) %}
    {%- set f = tool.function %}
    {{- "def " + f.name + "(" }}
    {%- for name, spec in f.parameters.properties | items %}
        {{- name + ": " + json_to_python_type(spec) }}
        {%- if name not in f.parameters.required %}
            {{- " = None" }}
        {%- endif %}
        {{- ", " if not loop.last else "" }}
    {%- endfor %}
    {{- ") - " + f.description | replace("\\n", " ") | upper + "\\n" }}
{%- endfor %}
{%- for message in messages if message.role != 'system' %}
{{ loop.index ~ '/' ~ loop.length }} {{ message.role | title }}: {{ message.content }}
{% endfor %}
"""

# What is left: blocks for training, loop controls, filters, methods, tests, slices, formats.
MEANS = """\
{# A comment, {% which %} is {{ nothing }} #}
{% for message in messages %}
  {% generation %}{{ message.role | capitalize }}{% endgeneration %}
  {%- if message.role == 'tool' %}{% continue %}{% endif %}
  {%- if loop.index > 6 %}{% break %}{% endif %}
  {{ '|' ~ loop.index ~ loop.revindex ~ loop.first ~ loop.last ~ loop.cycle('a', 'b') }}
{% else %}
nobody
{% endfor %}
{% set roles = messages | map(attribute='role') | list %}
{{ roles }} {{ roles | unique | join(', ') }} {{ roles | first }} {{ roles | last }} {{ roles | length }}
{{ roles | reject('equalto', 'user') | list | count }} {{ 'user' in roles }} {{ roles[1:3] }} {{ roles[-1] }}
{{ none }} {{ true }} {{ 1.5 }} {{ 3 // 2 }} {{ 3 / 2 }} {{ 2 ** 8 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ [1, 2] + [3] }}
{{ {'a': 1, "b": [none, true, 'é']} }} {{ {'b': 1, 'a': 2} | dictsort }} {{ ('x', 1) }} {{ 'it\\'s' | string }}
{{ '%s is %d' | format('x', 3) }} {{ '{} {}'.format('a', 'b') }} {{ 'ab' * 2 }} {{ 'a,b,c'.split(',') }} {{ 'x'.join(['1', '2']) }}
{{ 'ab cd'.title() }} {{ ' x '.strip() }}| {{ 'aXbX'.replace('X', '-', 1) }} {{ 'abc'.find('c') }} {{ 'Abc'.upper().lower() }}
{{ 'think</think>x'.partition('</think>')[2] }} {{ 'a.b.c'.rpartition('.')[0] }} {{ 'unhappy'.removeprefix('un') }} {{ 'x.py'.removesuffix('.py') }}
{{ [3, 1, 2] | sort }} {{ [1, 2, 3] | sum }} {{ [1, 2, 3] | max }} {{ [1, 2, 3, 4] | batch(2) | list }} {{ 'abc' | reverse }} {{ 3.7 | int }} {{ '5' | int + 1 }}
{{ undefined_name is defined }} {{ undefined_name | default('gone') }}{{ undefined_name }} {{ messages is sequence }} {{ 1 is odd }} {{ {} is mapping }}
{{ 'yes' if undefined_name else 'no' }} {{ (1, 2) == (1, 2) }} {{ 'a' < 'b' }} {{ not false and true or false }} {{ 1 if true }}
{{ {'z': 1, 'a': [1.0, 1e30, -0.5, "\\u0001\\"\\\\/é\\n\\t"]} | tojson }} {{ {'z': {}, 'a': []} | tojson(indent=2, sort_keys=true) }} {{ [1, {'b': none}] | tojson(separators=(',', ':')) }}
{% set ns = namespace(total=0, text='') %}{% for i in range(3) %}{% set ns.total = ns.total + i %}{% set ns.text = ns.text ~ i %}{% endfor %}{{ ns.total }} {{ ns.text }}
{% filter upper %}shouted{% endfilter %} {% set block %}kept {{ 1 }}{% endset %}{{ block }} {% raw %}{{ raw }}{% endraw %}
{% with a = 1 %}{{ a }}{% endwith %} {% if messages and messages[0] is not none %}some{% endif %} {{- '  left' }}   {{- ' stripped' -}}   .
{% macro greet(name, mark='!') %}Hello {{ name }}{{ mark }}{% endmacro %}{{ greet('you') }} {{ greet('me', mark='?') }}
{%+ if true %}  kept indent{% endif +%}

end
"""

TEMPLATES: dict[str, str] = {
    "instructions": INSTRUCTIONS,
    "headers": HEADERS,
    "marks": MARKS,
    "tools": TOOLS,
    "thoughts": THOUGHTS,
    "parts": PARTS,
    "roles": ROLES,
    "picked": PICKED,
    "macros": MACROS,
    "means": MEANS,
}

_WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'What the weather\nis like: "now" & <here>',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Ort, z. B. München"},
                "days": {"type": "integer"},
                "units": {"type": "array", "items": {"type": "string"}},
                "exact": {"type": "boolean"},
                "where": {"type": "object"},
            },
            "required": ["city"],
        },
        "return": {"type": "string"},
    },
}
_CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2}},
}

#: By name: messages, and further variables.
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "one_question": ([{"role": "user", "content": '  Hi, "you" & <me>\'s  '}], {}),
    "without_prompt": (
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}],
        {"add_generation_prompt": False},
    ),
    "system_and_turns": (
        [
            {"role": "system", "content": "Be brief.\nBe kind. ü"},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "  Yes?\n"},
            {"role": "user", "content": "Bye 👋"},
        ],
        {},
    ),
    "two_questions": ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], {}),
    "tools": (
        [
            {"role": "system", "content": "You know the weather."},
            {"role": "user", "content": "Köln?"},
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "content": '{"rain": 0.5}', "name": "weather"},
            {"role": "tool", "content": "dry", "name": "weather"},
            {"role": "assistant", "content": "Dry."},
            {"role": "user", "content": "Thanks"},
        ],
        {"tools": [_WEATHER, _WEATHER], "date_string": "1 Jan 2030"},
    ),
    "thoughts": (
        [
            {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": "<think>\nAdd.\n</think>\n\n2"},
            {"role": "user", "content": "And 2 + 2?"},
            {"role": "assistant", "content": "4", "reasoning_content": "Add again.\n"},
        ],
        {"enable_thinking": False},
    ),
    "parts": (
        [
            {"role": "system", "content": [{"type": "text", "text": "See."}]},
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What is it? "}]},
        ],
        {},
    ),
    "odd_contents": (
        [
            {"role": "user", "content": "{{ 1 }} {% raw %} \\n \u2028 \x00 \x7f"},
            {"role": "assistant", "content": ""},
            {"role": "user", "content": "\n"},
        ],
        {},
    ),
    "nothing": ([], {}),
}
