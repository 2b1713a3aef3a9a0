"""What Python's Jinja makes of small templates, for the readers of templates that are not Python's.

    python tests/tokenizer/jinja_generate.py           writes anew what becomes of the templates that lie in the file

A new one is an object {"template": …} at its end. README.md beside this file says what the file holds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizer_generate import lines

from nncuda.formats import FormatError
from nncuda.tokenizer.chat_template import ChatTemplate

PATH = Path(__file__).parent / "jinja" / "snippets.json"


def rendered(template: str, values: dict[str, Any]) -> dict[str, Any]:
    """`text`, or `fails` with the name of the error."""
    variables = {name: value for name, value in values.items() if name != "messages"}
    try:
        made = ChatTemplate(template, "snippet", begin="<s>", end="</s>")
        return {"template": template, "text": made.render(values["messages"], variables=variables)}
    except FormatError as error:
        return {"template": template, "fails": str(error).split("the chat template fails: ", 1)[1].partition(":")[0]}


def content() -> str:
    """The file, with what becomes of its templates now."""
    held = json.loads(PATH.read_text(encoding="ascii"))
    snippets = [rendered(snippet["template"], held["values"]) for snippet in held["snippets"]]
    return lines({"values": held["values"], "snippets": snippets}, 2) + "\n"


if __name__ == "__main__":
    PATH.write_text(content(), encoding="ascii")
