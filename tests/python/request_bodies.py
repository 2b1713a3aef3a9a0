"""Bodies of requests to a server: any JSON at all, in any field of a route, beside what the route needs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from nncuda.serve.api import API

NAMES = sorted({entry["name"] for entry in API["fields"]})
TEXTS = st.one_of(st.sampled_from(["small", "user", "text", "the sea", "", "0", "12"]), st.text(max_size=20))
KEYS = [
    "role", "content", "type", "text", "include_usage", "id", "status", "phase", "annotations", "logprobs", "format",
    "name", "function", "parameters", "strict", "schema", "json_schema", "call_id", "arguments", "output", "tool_calls",
]  # fmt: skip
KINDS = [
    "message", "input_text", "output_text", "text", "function", "function_call", "function_call_output", "json_object",
    "json_schema",
]  # fmt: skip
ROLES = ["system", "developer", "user", "assistant", "tool"]

#: What each route needs.
GOOD: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "the sea"},
    "chat": {"messages": [{"role": "user", "content": "the sea"}]},
    "responses": {"input": "the sea"},
    "embeddings": {"input": "the sea"},
    "tokenize": {"prompt": "the sea"},
    "detokenize": {"tokens": [1, 2]},
}


def json_values(longest: int) -> st.SearchStrategy[Any]:
    """Any JSON, with whole numbers of up to so many digits."""
    whole = st.one_of(
        st.integers(-3, 300), st.integers(-(10**longest) + 1, 10**longest - 1), st.just(10 ** (longest - 1))
    )
    numbers = st.one_of(whole, st.floats(allow_nan=False, allow_infinity=False))
    return st.recursive(
        st.one_of(st.none(), st.booleans(), numbers, TEXTS),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.one_of(TEXTS, st.sampled_from(KEYS)), inner),
            st.fixed_dictionaries({"role": st.one_of(st.sampled_from(ROLES), TEXTS), "content": inner}),
            st.fixed_dictionaries(
                {"type": st.sampled_from(KINDS)}, optional={key: inner for key in KEYS if key != "type"}
            ),
        ),
        max_leaves=8,
    )


def changes(longest: int, most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Values for at most so many fields, most of which are fields of some route."""
    return st.dictionaries(st.one_of(st.sampled_from(NAMES), TEXTS), json_values(longest), max_size=most)


#: Lines that requests are made of, and bytes that none has.
LINES = st.sampled_from(
    [
        *(line.encode() + b"\r\n" for line in (
            "POST /v1/completions HTTP/1.1", "GET /health HTTP/1.1", "host: localhost", "connection: close", "5", "0",
            "", "content-type: application/json", "content-length: 5", "content-length: 99", "expect: 100-continue",
            " :", "transfer-encoding: chunked", "upgrade: websocket",
        )),
        b"{}", b'{"prompt"',
    ]
)  # fmt: skip
RAW = st.lists(st.one_of(LINES, LINES, LINES, st.binary(max_size=20)), max_size=12).map(b"".join)
