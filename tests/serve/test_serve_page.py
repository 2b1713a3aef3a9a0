"""The page at /: one file that needs nothing else, and a chat in a real browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, find_browser
from small_server import CONTEXT, Running, serving

from nncuda.tokenizer import Tokenizer

Until = Callable[[Callable[[], bool]], None]

PAGE = Path(__file__).resolve().parents[2] / "go/serve/page.html"
needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed (apt install chromium)")


def test_it_is_served_unless_it_is_not_to_be(tokenizer: Tokenizer, running: Running) -> None:
    with serving(tokenizer, page=True, keys=["secret"]) as (other, _):
        status, headers, body = other.request("GET", "/")
        assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
        assert body == PAGE.read_bytes()
    assert running.get("/")[0] == 404


def test_it_needs_nothing_else_and_allows_itself_nothing_else() -> None:
    page = PAGE.read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == directives["base-uri"] == directives["form-action"] == "'none'"
    assert directives["connect-src"] == "'self'"
    for tag in ("script", "style"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        name = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert directives[f"{tag}-src"] == f"'sha256-{name}'", "run `make generate`"
    assert not re.findall(r"""(?:src|href)=["'](?!data:)|url\(|@import|https?:|innerHTML|eval\(""", page)


class Chat:
    """The page in a browser, and a person at it."""

    def __init__(self, browser: Browser, running: Running, wait: Until, width: int = 1000, scheme: str = "light"):
        self.browser, self.wait = browser, wait
        self.origin = f"http://127.0.0.1:{running.port}"
        browser.show(width, 800, scheme)
        browser.open(self.origin + "/")

    def value(self, expression: str) -> Any:
        return self.browser.evaluate(f"({expression}) ?? null")

    def fill(self, name: str, value: object) -> None:
        self.value(f"document.getElementById({json.dumps(name)}).value = {json.dumps(str(value))}")

    def press(self, key: str, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            code = {"Enter": 13, "Escape": 27, "Tab": 9}[key]
            self.browser.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more
            )

    def write(self, text: str) -> None:
        """Types into what has the focus, and sends it."""
        self.browser.call("Input.insertText", text=text)
        self.press("Enter", "\r")

    def until(self, expression: str) -> None:
        self.wait(lambda: bool(self.value(f"!!({expression})")))

    def texts(self) -> list[str]:
        return self.value("[...document.querySelectorAll('.turn .text')].map(one => one.textContent)")

    def done(self) -> None:
        self.until("document.getElementById('send').textContent === 'Send' && "
                   "document.querySelectorAll('.turn.assistant').length > 0")  # fmt: skip

    def check(self, expected: tuple[str, ...] = ()) -> None:
        """It complained of nothing else, and asked nobody else."""
        complaints = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        found = [json.dumps(event) for event in self.browser.events if event["method"] in complaints]
        assert [event for event in found if not any(one in event for one in expected)] == []
        asked = [event["params"]["request"]["url"] for event in self.browser.events
                 if event["method"] == "Network.requestWillBeSent"]  # fmt: skip
        assert all(url.startswith((self.origin + "/", "data:")) for url in asked), asked


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    assert program is not None
    with Browser(program, tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def shown(tokenizer: Tokenizer) -> Iterator[Running]:
    with serving(tokenizer, page=True) as (found, _):
        yield found


@needs_browser
def test_a_conversation(browser: Browser, shown: Running, wait: Until) -> None:
    chat = Chat(browser, shown, wait)
    chat.until("document.getElementById('model').textContent !== 'Chat'")
    assert chat.value("document.getElementById('model').textContent") == f"small, context {CONTEXT}"
    assert chat.value("document.activeElement.id") == "message"
    for name, value in (("temperature", 0), ("max_completion_tokens", 8), ("system", "sail")):
        chat.fill(name, value)
    chat.write("the sea")
    chat.done()
    messages = [{"role": "system", "content": "sail"}, {"role": "user", "content": "the sea"}]
    answer = "".join(shown.model.chat(messages, 8))
    assert chat.texts() == ["the sea", answer]
    figures = chat.value("document.querySelector('.figures').textContent")
    assert re.fullmatch(r"\d+ \+ \d+ tokens · [\d.]+ tokens/s · first after [\d.]+ s( · cut: .*)?", figures), figures
    chat.write("and waves?")
    chat.until("document.querySelectorAll('.turn.assistant .figures:not(:empty)').length === 2")
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "and waves?"}]
    assert chat.texts()[2:] == ["and waves?", "".join(shown.model.chat(messages, 8))]
    live = r"/^0 running · 0 waiting · cache 0 % · first token [\d.]+ ms · between tokens [\d.]+ ms$/"
    chat.until(f"{live}.test(document.getElementById('live').textContent)")
    chat.value("document.getElementById('clear').click()")
    assert chat.texts() == [] and not chat.value("document.getElementById('hint').hidden")
    chat.check()


@needs_browser
def test_hostile_text_is_text(browser: Browser, shown: Running, wait: Until) -> None:
    chat = Chat(browser, shown, wait)
    chat.fill("max_completion_tokens", 2)
    hostile = "<img src=x onerror='alert(1)'><script>alert(2)</script>"
    chat.write(hostile)
    chat.done()
    assert chat.texts()[0] == hostile and chat.value("document.querySelectorAll('img').length") == 0
    chat.check()


@needs_browser
def test_escape_stops_an_answer(browser: Browser, tokenizer: Tokenizer, wait: Until) -> None:
    with serving(tokenizer, page=True, hold=True) as (running, steps):
        chat = Chat(browser, running, wait)
        chat.write("the sea")
        steps.allow(6)
        chat.until("document.querySelector('.turn.assistant .text')?.textContent")
        assert chat.value("document.getElementById('send').textContent") == "Stop"
        chat.press("Escape")
        chat.done()
        assert "stopped" in chat.value("document.querySelector('.figures').textContent")
        wait(lambda: running.server.service.running == 0 or bool(running.server.service._asked))
        steps.allow(1)
        wait(lambda: running.at_rest)
        chat.check()


@needs_browser
def test_what_goes_wrong_is_shown(browser: Browser, tokenizer: Tokenizer, wait: Until) -> None:
    with serving(tokenizer, page=True, keys=["secret"]) as (running, _):
        chat = Chat(browser, running, wait)
        chat.until("!document.getElementById('problem').hidden")
        assert chat.value("document.getElementById('problem').textContent") == "This server asks for an API key."
        assert chat.value("document.getElementById('settings').open")
        chat.fill("key", "secret")
        chat.value("document.getElementById('key').dispatchEvent(new Event('change'))")
        chat.until("document.getElementById('problem').hidden")
        chat.value("document.getElementById('message').focus()")
        chat.write("sea " * CONTEXT)
        chat.until("document.querySelector('.turn .problem')")
        problem = chat.value("document.querySelector('.turn .problem').textContent")
        assert re.fullmatch(rf"the prompt has \d+ tokens; the context has room for {CONTEXT}", problem)
        # The question is there again, to be made shorter.
        assert chat.value("document.getElementById('message').value") == ("sea " * CONTEXT).strip()
        chat.fill("temperature", 5)
        chat.fill("message", "the sea")
        chat.press("Enter", "\r")
        chat.until("document.activeElement.id === 'temperature'")
        chat.check(("status of 401", "status of 400"))


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(browser: Browser, shown: Running, wait: Until, scheme: str) -> None:
    """Nothing beyond the edge, what can be pressed is large enough, and text stands out from its ground."""
    chat = Chat(browser, shown, wait, 360, scheme)
    chat.fill("max_completion_tokens", 5)
    chat.write("the sea " + "x" * 200)
    chat.done()
    chat.value("document.getElementById('settings').open = true")
    assert chat.value("document.documentElement.scrollWidth") <= 360
    assert chat.value("Math.min(...[...document.querySelectorAll('button')].map(b => b.offsetHeight))") >= 40
    for selector in (".turn .text", ".turn .figures", ".turn h2", "#send", "#clear", "#model", "label"):
        colours = chat.value(f"""(() => {{
            const one = document.querySelector({json.dumps(selector)});
            let ground = one;
            while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
            return [getComputedStyle(one).color, getComputedStyle(ground).backgroundColor];
        }})()""")
        first, second = sorted(map(luminance, colours), reverse=True)
        assert (first + 0.05) / (second + 0.05) >= 4.5, (selector, colours)  # WCAG 2.2, 1.4.3
    grounds = chat.value("getComputedStyle(document.body).backgroundColor")
    assert (luminance(grounds) < 0.1) == (scheme == "dark")
    chat.check()


@needs_browser
def test_the_keyboard_reaches_everything(browser: Browser, shown: Running, wait: Until) -> None:
    chat = Chat(browser, shown, wait)
    chat.value("document.getElementById('settings').open = true")
    reached = set()
    for _ in range(20):
        chat.press("Tab")
        reached.add(chat.value("document.activeElement.id || document.activeElement.tagName"))
    names = {"turns", "message", "send", "clear", "SUMMARY", "system", "temperature", "top_p", "top_k", "seed", "key"}
    assert names <= reached
    unnamed = chat.value("[...document.querySelectorAll('input, textarea')].filter(one => !one.labels.length).length")
    assert unnamed == 0


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(…)` (WCAG 2.2)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
