"""Chat templates: what they give. What one may not do: tests/fuzz/seeds_tokenizers.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nncuda.bench import random_tokenizer
from nncuda.formats import FormatError
from nncuda.tokenizer import Tokenizer
from nncuda.tokenizer.chat_template import (
    ChatTemplate,
    special_names,
    template_from_folder,
    template_from_gguf,
)

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "Bye"},
]


def render(template: str | None, **options: object) -> str:
    return ChatTemplate(template, "model", begin="<s>", end="</s>").render(TALK, **options)  # type: ignore[arg-type]


def test_a_model_without_a_template_gets_a_plain_one() -> None:
    assert render(None) == "Be brief.\n\nUser: Hi\nAssistant: Yes?\nUser: Bye\nAssistant:"
    assert render(None, add_generation_prompt=False).endswith("User: Bye\n")
    assert ChatTemplate(None, "model").plain and not ChatTemplate("x", "model").plain


def test_templates_get_what_transformers_gives_them() -> None:
    # Of the kind that Llama 2 and ChatML models have.
    llama2 = (
        "{% for message in messages %}{% if message.role == 'user' %}"
        "{{ bos_token + '[INST] ' + message.content | trim + ' [/INST]' }}"
        "{% elif message.role == 'assistant' %}{{ ' ' + message.content + eos_token }}{% endif %}{% endfor %}"
    )
    assert render(llama2) == "<s>[INST] Hi [/INST] Yes?</s><s>[INST] Bye [/INST]"
    # A block alone on its line leaves nothing of the line behind.
    lines = (
        "  {% for one in messages %}\n{{ one.role }}\n  {% if loop.index == 2 %}{% break %}{% endif %}\n{% endfor %}"
    )
    assert render(lines) == "system\nuser\n"
    assert render("{{ {'ü': [1, none]} | tojson }}{{ [1] | tojson(indent=1) }}") == '{"ü": [1, null]}[\n 1\n]'
    assert re.fullmatch(r"20\d\d", render("{{ strftime_now('%Y') }}"))
    assert render("{% generation %}{{ x }}{% endgeneration %}", variables={"x": "made"}) == "made"
    assert render("{% if tools is none and documents is none %}yes{% endif %}") == "yes"
    assert render("{% if tools is defined %}{{ tools | tojson }}{% endif %}", variables={"tools": [{}]}) == "[{}]"
    with pytest.raises(FormatError, match="model: the chat template fails: TemplateError: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_a_template_that_does_not_end_is_ended() -> None:
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    template = ChatTemplate(loop + "{{ x }}", "model", seconds=1.0)
    with pytest.raises(FormatError, match=r"ran for more than 1 s"):
        template.render(TALK)
    good = ChatTemplate("{{ messages[0].content }}", "model")
    assert [good.render(TALK) for _ in range(3)] == ["Be brief."] * 3


def test_a_text_longer_than_a_pipe_comes_back() -> None:
    content = "é\n" * 300_000
    template = ChatTemplate("{{ messages[0].content }}", "model")
    assert template.render([{"role": "user", "content": content}]) == content


def test_where_folders_keep_their_template(tmp_path: Path) -> None:
    assert template_from_folder(tmp_path) is None and special_names(tmp_path) == {"begin": "", "end": ""}
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "one"}))
    assert template_from_folder(tmp_path) == "one" and special_names(tmp_path) == {"begin": "<s>", "end": "</s>"}
    several = [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]
    path.write_text(json.dumps({"chat_template": several}))
    assert template_from_folder(tmp_path) == "three"
    path.write_text(json.dumps({"chat_template": several[:1]}))
    with pytest.raises(FormatError, match="none of them named 'default'"):
        template_from_folder(tmp_path)
    path.write_text(json.dumps({"chat_template": 7}))
    with pytest.raises(FormatError, match="neither a string nor a list"):
        template_from_folder(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("four")
    assert template_from_folder(tmp_path) == "four"
    assert template_from_gguf({"tokenizer.chat_template": "five"}, "m.gguf") == "five"
    with pytest.raises(FormatError, match="is not a string"):
        template_from_gguf({"tokenizer.chat_template": 5}, "m.gguf")


def test_ids_begin_once() -> None:
    tokenizer = Tokenizer(random_tokenizer.sentencepiece_model(500))
    for template in ("{{ bos_token }}a{{ eos_token }}", "a{{ eos_token }}"):
        ids = ChatTemplate(template, "model", begin="<s>", end="</s>").ids(tokenizer, TALK)
        assert ids[0] == 1 and ids[-1] == 2 and 1 not in ids[1:]
    plain = ChatTemplate(None, "model", begin="<s>", end="</s>")
    assert 2 not in plain.ids(tokenizer, [{"role": "user", "content": "a</s>"}])
    ids = plain.ids(tokenizer, [{"role": "system", "content": "<s>"}])  # what strangers write is no begin id
    assert ids[0] == 1 and 1 not in ids[1:]
