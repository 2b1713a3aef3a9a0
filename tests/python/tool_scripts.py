"""Answers that call tools, in the form of each template, for models that write what they are told."""

from __future__ import annotations

_TOOLS = "{% if tools %}[TOOLS] {{ tools | tojson }}\n{% endif %}"
_MESSAGES = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}"
    "{% for call in m.tool_calls %}" + "{begin}" + '{"name": "{{ call.function.name }}", "{key}": '
    "{{ call.function.arguments | tojson }}}{% endfor %}"
    "{% if m.tool_call_id %} for {{ m.tool_call_id }} {{ m.name }}{% endif %}\n{% endfor %}"
)

#: By the names of forms. The text of the last message is the name of a script.
TEMPLATES = {
    name: _TOOLS + _MESSAGES.replace("{begin}", begin).replace("{key}", key) + "{{ messages[-1].content }}"
    for name, begin, key in (
        ("hermes", "<tool_call>", "arguments"),
        ("llama", "<|python_tag|>", "parameters"),
        ("mistral", "[TOOL_CALLS]", "arguments"),
    )
}

#: Texts that begin calls and are control tokens, as those of Llama and Mistral are.
CONTROLS = {"hermes": [], "llama": ["<|python_tag|>"], "mistral": ["[TOOL_CALLS]"]}

SCRIPTS = {
    "hermes": {
        "<two>": ["Let me", " see.", "\n", "<tool", "_call>", '\n{"na', 'me": "sail", "argu', 'ments": {"to"', ': "se',
                  'a 🌊", "far": ', "[1, 2.", "5]", "}", "}\n</tool", '_call>\n<tool_call>{"name": "stop",',
                  ' "arguments": {}', "}</tool_", "call>", "\n\n"],
        "<none>": ["<tool_call>", '{"name": "other", ', '"arguments": {}}', "</tool_call>", " is no", " call"],
        "<wrong>": ['<tool_call>{"name": "stop", "arguments": {"a', '": ', "oh no", "}}</tool_call> So."],
        "<cut>": ['<tool_call>{"name": "sail", "arguments": ', '{"to": "the', " wide", " sea"],
    },
    "llama": {
        "<two>": ["<|python_tag|>", '{"name": "sa', 'il", "parameters": {"to', '": "sea"}}', "; ",
                  '{"type": "function", "name": "stop", "parameters": {}}'],
        "<none>": ['{"sea": ', '"wide"}'],
        "<wrong>": ['{"name": "stop", "parameters": {"a": tr', "u}}"],
        "<cut>": ['{"name": "sail", "parameters": ', '{"to": "the', " wide", " sea"],
    },
    "mistral": {
        "<two>": ["Let me see. ", "[TOOL_CALLS]", ' [{"name": "sail", "arguments": {"to":', ' "sea"}', '}, {"name"',
                  ': "stop", "arguments": {', '}, "id": "123456789"}', "]"],
        "<none>": ["[1, 2]", " are numbers."],
        "<wrong>": ['[{"name": "stop", "arguments": {}}]'],
        "<cut>": ["The sea", " is wide"],
    },
}  # fmt: skip

TOOLS = [
    {"type": "function", "function": {
        "name": "sail", "description": "Sails to a \"place\" ö", "strict": False, "parameters": {
            "type": "object", "required": ["to"], "properties": {
                "to": {"type": "string"}, "far": {"enum": [1, 2.5, None, True, -0.0, 1e30]}}}}},
    {"function": {"description": None, "name": "stop"}, "type": "function"},
]  # fmt: skip
