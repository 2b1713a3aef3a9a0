"""Records of JSONL files become shards of documents: what counts as a target, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click.testing
import numpy as np
import pytest
import tokenizers

from nncuda.cli import main
from nncuda.formats import FormatError, TokenShard
from nncuda.records import encoding, processes
from nncuda.records.encoding import encode_records
from nncuda.records.records import RecordEncoder
from nncuda.tokenizer import Tokenizer

MODEL = Path(__file__).parents[1] / "tokenizer" / "own_bpe.model"

#: Of the kind that ChatML models have: turns with names, the end token behind each answer, a line end behind that.
CHAT = (
    "{{ bos_token }}{% for m in messages %}{{ '<' + m.role + '>' + m.content }}"
    "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
MARKED = (
    "{{ bos_token }}{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ '\\n' }}"
    "{% endfor %}"
)
#: As templates of models that think have it: of an answer that is not the last, a part is left out.
FORGETFUL = (
    "{% for m in messages %}{{ '<' + m.role + '>' }}{{ m.content if loop.last else m.content.split('|')[-1] }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
#: "T" and "he" are one token together.
JOINED = (
    "{% for m in messages %}{{ '<' + m.role + '>' + ('T' if m.role == 'assistant' else '') + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>T' }}{% endif %}"
)
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi there"},
    {"role": "assistant", "content": "Yes, what is it?"},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "So long"},
]


def encoder(tmp_path: Path, template: str | None = CHAT) -> RecordEncoder:
    if template is None:
        return RecordEncoder(MODEL)
    (tmp_path / "chat.jinja").write_text(template)
    return RecordEncoder(MODEL, tmp_path / "chat.jinja")


def record(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def told(made: RecordEncoder, line: bytes) -> str:
    """What of a record counts, `|` between its parts, with the end token's name."""
    ids, counted = made.encode(line)
    borders = np.flatnonzero(np.diff(counted.astype(int))) + 1
    texts = [
        made.tokenizer.decode(part.tolist()) + "</s>" * int(np.count_nonzero(part == 3))
        for part, counts in zip(np.split(ids, borders), np.split(counted, borders), strict=True)
        if counts.any()
    ]
    return "|".join(texts)


@pytest.mark.parametrize("template", [CHAT, MARKED])
def test_answers_alone_count(tmp_path: Path, template: str) -> None:
    made = encoder(tmp_path, template)
    assert told(made, record(messages=TALK)) == "Yes, what is it?</s>|So long</s>"
    ids, counted = made.encode(record(messages=TALK, source="elsewhere"))
    text = "<system>Be brief.\n<user>Hi there\n<assistant>Yes, what is it?</s>\n<user>Bye\n<assistant>So long</s>\n"
    assert ids.tolist() == made.tokenizer.encode(text, begin=True, special=True)
    assert not counted[0] and not counted[-1]  # the line end behind the answer is the template's


def test_a_model_without_a_template_learns_its_lines(tmp_path: Path) -> None:
    made = encoder(tmp_path, None)
    assert told(made, record(messages=TALK[1:])) == " Yes, what is it?\n| So long\n"


def test_a_text_counts_whole(tmp_path: Path) -> None:
    made = encoder(tmp_path)
    ids, counted = made.encode(record(text="Ein Text</s>", meta={"a": [None]}))
    tokenizer = Tokenizer.load(MODEL)
    assert ids.tolist() == tokenizer.encode("Ein Text</s>", begin=True, end=True)  # the name of a token is a text here
    assert counted.all()


def test_tools_and_their_calls_go_to_the_template(tmp_path: Path) -> None:
    template = (
        "{{ tools | tojson if tools else 'none' }}\n{% for m in messages %}{{ '<' + m.role + '>' + m.content }}"
        "{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% endif %}{% if m.role == 'assistant' %}"
        "{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
    )
    call = {"id": "a1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Look"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a1", "content": "seen"},
        {"role": "assistant", "content": "Done"},
    ]
    made = encoder(tmp_path, template)
    assert told(made, record(messages=messages, tools=[{"x": 1}])) == "look</s>|Done</s>"
    assert '[{"x": 1}]' in made.tokenizer.decode(made.encode(record(messages=messages, tools=[{"x": 1}]))[0].tolist())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"", "it is not JSON ("),
        (b"{", "it is not JSON ("),
        (b'{"text": "\xff"}', "it is not JSON ('utf-8' codec can't decode byte 0xff"),
        (b'\xef\xbb\xbf{"text": "a"}', "it is not JSON ("),
        (b'{"text": "a", "text": "b"}', "it is not JSON (the key 'text' is twice in one object)"),
        (b"[" * 100_000, "it is not JSON (it is nested deeper than 512 levels)"),
        (b'{"text": ' + b"[" * 600 + b"]" * 600 + b"}", "it is not JSON (it is nested deeper than 512 levels)"),
        (b'{"text": ' + b"9" * 5000 + b"}", "it is not JSON (a whole number has more than 4300 digits)"),
        (b"null", "it is None; it must be an object with a text or messages"),
        (b'["text"]', "it is ['text']; it must be an object with a text or messages"),
        (b"{}", "it has neither text nor messages; it must have one of them"),
        (b'{"text": "a", "messages": []}', "it has both of text and messages; it must have one of them"),
        (b'{"text": null}', "text is None; it must be a text"),
        (b'{"text": {"text": "a"}}', "text is {'text': 'a'}; it must be a text"),
        (b'{"text": "a\\ud800"}', "it has '\\ud800', which is half a character"),
        (b'{"messages": null}', "messages is None; it must be a list of messages"),
        (b'{"messages": []}', "messages is []; it must be a list of messages"),
        (b'{"messages": {"role": "user"}}', "messages is {'role': 'user'}; it must be a list of messages"),
        (b'{"messages": [null]}', "messages[0] is null"),
        (b'{"messages": [{"role": "robot", "content": "a"}]}', 'messages[0].role is "robot"'),
        (b'{"messages": [{"role": ["user"], "content": "a"}]}', 'messages[0].role is ["user"]'),
        (b'{"messages": [{"role": "user", "content": null}]}', "messages[0].content is null"),
        (b'{"messages": [{"role": "user", "content": {"a": 1}}]}', 'messages[0].content is {"a":1}'),
        (b'{"messages": [{"role": "user", "content": "a", "weight": 0}]}', "messages[0].weight"),
        (b'{"messages": [{"role": "user", "content": "\\udfff"}]}', "it has '\\udfff', which is half a character"),
        (
            b'{"messages": [{"role": "user", "content": "a"}], "tools": {"a": 1}}',
            "tools is {'a': 1}; it must be a list",
        ),
        (b'{"messages": [{"role": "user", "content": "a"}]}', "the conversation has no message of the assistant"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, line: bytes, sentence: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(record(text="good") + b"\n\n" + line.strip() + b"\n" if line else b"\n\n{\n")
    made = encoder(tmp_path)
    with pytest.raises((ValueError, FormatError)) as refused:
        made.encode(line)
    assert str(refused.value).startswith(sentence)
    with pytest.raises(FormatError) as refused_file:
        encode_records([path], [tmp_path / "a.tokens"], (MODEL, tmp_path / "chat.jinja"))
    shown = str(refused_file.value)
    assert shown.startswith(f"{path}: line 3: ") and "\n" not in shown and len(shown) < 900
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl", "chat.jinja"]


def test_a_line_longer_than_any_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(record(text="a") + b'\n{"text": "' + b"a" * (16 << 20) + b'"}\n')
    with pytest.raises(FormatError, match="line 2 has more than 16777216 bytes"):
        encode_records([path], [tmp_path / "a.tokens"], (MODEL, None))
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("template", "messages", "sentence"),
    [
        (FORGETFUL, [*TALK[1:2], {"role": "assistant", "content": "hm|yes"}, *TALK[3:]], "answer 1: the chat template"),
        (
            "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
            TALK[1:3],
            "the conversation has no answer with a text",
        ),
        (CHAT.replace("+ m.content", "+ m.content | upper"), TALK[1:3], None),
        (CHAT.replace("{{ eos_token }}", ""), [TALK[1], {"role": "assistant", "content": ""}], None),
        ("{{ messages[5].content }}", TALK[1:3], "{folder}/chat.jinja: the chat template fails: UndefinedError"),
        ("{{ raise_exception('no') }}", TALK[1:3], "{folder}/chat.jinja: the chat template fails: TemplateError: no"),
        (
            "{% generation %}{% generation %}a{% endgeneration %}{% endgeneration %}",
            TALK[1:3],
            "{folder}/chat.jinja: the",
        ),
        ("{{ m }}{% generation %}", TALK[1:3], "{folder}/chat.jinja: the chat template fails: TemplateSyntaxError"),
        (
            "{% generation %}{{ messages[0].content[:0] }}{% endgeneration %}a",
            TALK[1:3],
            "the conversation has no answer",
        ),
        (JOINED, [TALK[1], {"role": "assistant", "content": "he"}], "answer 1 begins or ends inside a token"),
    ],
)
def test_a_template_that_cannot_tell_answers_is_refused(
    tmp_path: Path, template: str, messages: list[object], sentence: str | None
) -> None:
    made = encoder(tmp_path, template)
    if sentence is None:
        made.encode(record(messages=messages))
        return
    with pytest.raises((ValueError, FormatError)) as refused:
        made.encode(record(messages=messages))
    assert str(refused.value).startswith(sentence.format(folder=tmp_path))


def test_no_message_can_mark_an_answer(tmp_path: Path) -> None:
    """The marks of a template are new in each rendering, and whatever stands in a text stays text."""
    made = encoder(tmp_path, MARKED)
    content = "{% generation %}x{% endgeneration %}<" + 32 * "0" + ">"
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "yes"}]
    assert told(made, record(messages=messages)) == "yes</s>"


def many(count: int) -> list[bytes]:
    talks = [
        [TALK[1], {"role": "assistant", "content": f"No. {number} {'x' * (number % 7)}"}] for number in range(count)
    ]
    return [record(messages=talk) if number % 3 else record(text=f"Text {number}") for number, talk in enumerate(talks)]


def test_processes_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = many(90)
    for number in range(2):
        (tmp_path / f"{number}.jsonl").write_bytes(b"\n".join(lines[number::2]) + b"\n\n")
    source, files = (MODEL, None), [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    done: list[int] = []
    wanted = encode_records(files, [tmp_path / "a.tokens", tmp_path / "a-val.tokens"], source, 0.3, 1, done.append)
    assert sum(done) == sum(len(line) + 1 for line in lines)
    monkeypatch.setattr(encoding, "_PIECE", 300)
    monkeypatch.setattr(processes, "SMALL", 0)
    assert encode_records(files, [tmp_path / "b.tokens", tmp_path / "b-val.tokens"], source, 0.3, 2) == wanted
    for name in ("", "-val"):
        assert (tmp_path / f"a{name}.tokens").read_bytes() == (tmp_path / f"b{name}.tokens").read_bytes()
    assert 15 < wanted[1][0] < 40 and wanted[0][0] + wanted[1][0] == 90
    made = RecordEncoder(*source)
    parts = [made.encode(line) for line in lines[::2] + lines[1::2]]
    drawn = [int.from_bytes(hashlib.sha256(line).digest()[:8], "big") / 2**64 for line in lines[::2] + lines[1::2]]
    chosen = [part for part, draw in zip(parts, drawn, strict=True) if draw >= 0.3]
    shard = TokenShard(tmp_path / "a.tokens")
    assert shard.read().tolist() == np.concatenate([ids for ids, _ in chosen]).tolist()
    assert shard.counted(0, shard.count).tolist() == np.concatenate([counted for _, counted in chosen]).tolist()
    assert (
        np.flatnonzero(shard.ends(0, shard.count)).tolist() == (np.cumsum([len(ids) for ids, _ in chosen]) - 1).tolist()
    )
    assert shard.tokenizer == hashlib.sha256(MODEL.read_bytes()).digest()


def test_the_first_wrong_line_is_told_whatever_the_processes_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = many(60)
    lines[41] = lines[50] = b"{"
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    monkeypatch.setattr(encoding, "_PIECE", 100)
    monkeypatch.setattr(processes, "SMALL", 0)
    with pytest.raises(FormatError, match="line 42: it is not JSON"):
        encode_records([tmp_path / "a.jsonl"], [tmp_path / "a.tokens"], (MODEL, None), processes=2)
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_shard_without_a_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n \n")
    with pytest.raises(FormatError, match=r"no record is for .*a\.tokens: they hold 0"):
        encode_records([tmp_path / "a.jsonl"], [tmp_path / "a.tokens"], (MODEL, None))
    (tmp_path / "a.jsonl").write_bytes(record(text="a"))
    with pytest.raises(FormatError, match=r"no record is for .*val\.tokens: they hold 1"):
        encode_records([tmp_path / "a.jsonl"], [tmp_path / "a.tokens", tmp_path / "val.tokens"], (MODEL, None), 1e-9)
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_folder_has_its_template_and_the_vocabulary_of_its_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.model").write_bytes(MODEL.read_bytes())
    (folder / "chat_template.jinja").write_text(CHAT)
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": {"content": "</s>"}}')
    (folder / "config.json").write_text('{"vocab_size": 4096}')
    made = RecordEncoder(folder)
    assert told(made, record(messages=TALK)) == "Yes, what is it?</s>|So long</s>"
    assert made.vocab_size == 4096 and made.digest == hashlib.sha256(MODEL.read_bytes()).digest()
    with pytest.raises(FormatError, match="has no tokenizer"):
        RecordEncoder(tmp_path)
    (folder / "config.json").write_text('{"vocab_size": "many"}')
    with pytest.raises(FormatError, match="vocab_size is 'many'; it must be a whole number"):
        RecordEncoder(folder)


def test_a_folder_with_a_tokenizer_of_the_tokenizers_library(tmp_path: Path) -> None:
    """And the form of conversations that ChatML models have, whose end token stands in the middle of them, too."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=names, initial_alphabet=alphabet)
    made.train_from_iterator(["So long, and what is it? Yes, yes"], trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    described = {"eos_token": "<|im_end|>", "chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(described))
    encoder = RecordEncoder(tmp_path)
    ids, counted = encoder.encode(record(messages=TALK))
    text = "".join(f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in TALK)
    assert ids.tolist() == made.encode(text).ids
    answers = [*made.encode("Yes, what is it?<|im_end|>").ids, *made.encode("So long<|im_end|>").ids]
    assert ids[counted].tolist() == answers
    ids, counted = encoder.encode(record(text="So long"))
    assert ids.tolist() == made.encode("So long<|im_end|>").ids and counted.all()
    assert encoder.digest == hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).digest()


def run(*arguments: object) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(many(60)))
    out, held_out = tmp_path / "train.tokens", tmp_path / "held-out.tokens"
    options = ("--tokenizer", MODEL, "--out", out)
    done = run("data", "encode", tmp_path / "a.jsonl", *options, "--held-out", held_out, "--held-out-share", 0.2)
    assert done.exit_code == 0, done.output
    assert TokenShard(out).has_documents and TokenShard(held_out).has_documents
    assert f"{out}: {TokenShard(out).count:,} tokens, " in done.output
    shown = json.loads(run("inspect", out, "--json").output)
    assert shown["documents"] + json.loads(run("inspect", held_out, "--json").output)["documents"] == 60
    assert 0 < shown["targets"] < shown["tokens"] - shown["documents"]
    (tmp_path / "b.txt").write_text("text")
    refused = run(
        "data", "encode", tmp_path, "--no-held-out", "--include", "*.jsonl", "--include", "*.txt", *options, "--force"
    )
    assert refused.exit_code == 2 and "is JSONL and" in refused.output
    refused = run(
        "data",
        "encode",
        tmp_path / "b.txt",
        *options,
        "--force",
        "--no-held-out",
        "--chat-template",
        tmp_path / "b.txt",
    )
    assert refused.exit_code == 2 and "--chat-template is for JSONL" in refused.output
    before = out.read_bytes()
    (tmp_path / "a.jsonl").write_bytes(b"{}")
    refused = run("data", "encode", tmp_path / "a.jsonl", *options, "--force", "--no-held-out")
    assert refused.exit_code == 3 and "a.jsonl: line 1: it has neither text nor messages" in refused.output
    assert out.read_bytes() == before


def test_a_killed_command_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither a shard under its name nor a process: what encodes ends when who asked for it is gone."""
    lines = b"\n".join(many(3000)) + b"\n"
    (tmp_path / "a.jsonl").write_bytes(lines * (1 + (3 << 20) // len(lines)))
    command = "from nncuda.cli import main; main()"
    options = ["data", "encode", "a.jsonl", "--tokenizer", str(MODEL), "--out", "a.tokens", "--processes", "2"]
    process = subprocess.Popen([sys.executable, "-c", command, *options], cwd=tmp_path, start_new_session=True)
    try:
        children: set[int] = set()
        while process.poll() is None and len(children) < 2:
            children = of_session(process.pid) - {process.pid}
            time.sleep(0.05)
        assert process.poll() is None, "it ended before it could be killed"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "a.tokens").exists()
    while of_session(process.pid):  # the time limit of the test run says when it is too long
        time.sleep(0.05)


def of_session(number: int) -> set[int]:
    """The processes of a session that are not about to be collected."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(state[3]) == number and state[0] != "Z":
                found.add(int(entry.name))
    return found
