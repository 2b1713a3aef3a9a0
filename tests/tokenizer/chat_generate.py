"""Fixtures of chat templates: what Python gives for each template and each conversation.

    python tests/tokenizer/chat_generate.py

README.md beside this file says what the files hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chat_templates import CONVERSATIONS, TEMPLATES
from tokenizer_generate import lines

from nncuda.formats import FormatError
from nncuda.tokenizer.chat_template import PLAIN, ChatTemplate

FOLDER = Path(__file__).parent / "chat"


def rendered(template: ChatTemplate, messages: list[dict[str, Any]], variables: dict[str, Any]) -> dict[str, Any]:
    """`text`, or `refused` by raise_exception, or `fails` with an error of Jinja's."""
    prompt = variables.get("add_generation_prompt", True)
    others = {name: value for name, value in variables.items() if name != "add_generation_prompt"}
    try:
        return {"text": template.render(messages, add_generation_prompt=prompt, variables=others)}
    except FormatError as error:
        problem = str(error).split("the chat template fails: ", 1)[1]
        kind, _, words = problem.partition(": ")
        return {"refused": words} if kind == "TemplateError" else {"fails": kind}


def files() -> dict[str, str]:
    """Name and content of each file."""
    cases = [
        {"name": name, "messages": messages, "variables": variables}
        for name, (messages, variables) in CONVERSATIONS.items()
    ]
    found = {"conversations.json": lines(cases, 2) + "\n"}
    for name, text in {**TEMPLATES, "plain": PLAIN}.items():
        template = ChatTemplate(text, "model", begin="<s>", end="</s>")
        made = {case: rendered(template, messages, variables) for case, (messages, variables) in CONVERSATIONS.items()}
        found[f"{name}.json"] = lines({"template": text, "rendered": made}, 2) + "\n"
    return found


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, content in files().items():
        (FOLDER / name).write_text(content, encoding="ascii")


if __name__ == "__main__":
    main()
