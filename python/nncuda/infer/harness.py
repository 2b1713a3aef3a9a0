"""A `LanguageModel` as lm-evaluation-harness asks one: for log-likelihoods and texts. Needs lm-eval, the extra `eval`.

The harness asks transformers' models with windows as long as their context. Here the token that a window predicts last
is a part of the prompt as well, so a window is one token shorter; give transformers `max_length=context - 1`, and both
are asked the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..extras import ExtraMissing, left_out
from .sampling import Sampling

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
    from tqdm import tqdm
except ModuleNotFoundError as error:
    raise ExtraMissing(left_out("eval", "nncuda eval")) from error

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

    from .language_model import LanguageModel

#: Tokens that a task gets written which does not say how many, as of transformers' models in the harness.
USUAL_TOKENS = 256
#: Prompts given to the engine together: more than run at once, so that its batch stays full.
_TOGETHER = 512
_T = TypeVar("_T")
#: Options of a task's generation, beside its length and stop strings, that are options of `Sampling`.
_DRAWING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class HarnessModel(TemplateLM):  # type: ignore[misc]  # lm-eval has no types
    """`model`, for `lm_eval.simple_evaluate(model=HarnessModel(model), ...)`. The model stays the caller's.

    Prompts of one call run together, and what is said of each depends on that prompt alone. Texts that are sampled are
    drawn with `seed` + the number of the request.
    """

    def __init__(self, model: LanguageModel, *, seed: int = 0):
        super().__init__()
        if model.tokenizer is None:
            raise ValueError(f"{model.stored.path} has no tokenizer; tasks are texts")
        self._model, self._tokens, self._seed = model, model.tokenizer, seed
        self._template = model.stored.chat_template

    @property
    def max_length(self) -> int:
        """The most tokens that a window predicts."""
        return self._model.context - 1

    @property
    def eot_token_id(self) -> int:
        """The id that ends a text."""
        ids = self.tok_encode(self._template.end, add_special_tokens=False) if self._template.end else []
        return ids[0] if len(ids) == 1 else min(self._tokens.end_ids)

    @property
    def prefix_token_id(self) -> int:
        """What a text stands behind that has nothing before it: the id that begins one, or else that which ends one."""
        return self._tokens.begin_id if self._tokens.begin_id >= 0 else self.eot_token_id

    @property
    def tokenizer_name(self) -> str:
        """What the harness keeps its requests under."""
        return str(self._model.stored.path)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Ids of a text as transformers gives them: names of control tokens are these tokens, and the begin id comes
        first where the tokenizer adds it, once."""
        tokens = self._tokens
        written = tokens.begin_id >= 0 and string.startswith(tokens.piece(tokens.begin_id))
        begin = tokens.adds_begin and not written if add_special_tokens is None else add_special_tokens
        return tokens.encode(string, begin=begin and tokens.begin_id >= 0, special=True)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """Of each text after another, as ids: its log-likelihood, and whether each token is the likeliest."""
        windows = []
        for _, before, text in requests:
            if len(text) > self.max_length:
                raise ValueError(f"a text to predict has {len(text)} tokens; the context leaves {self.max_length}")
            windows.append(([*before, *text][-self.max_length - 1 :], len(text)))
        found = []
        with self._progress(len(windows), "log-likelihoods", disable_tqdm) as bar:
            for some in _pieces(windows):
                together: list[tuple[float, bool]] = [(0.0, True)] * len(some)
                for event in self._model.generate([ids for ids, _ in some], 0, prompt_logprobs=1):
                    ids, count = some[event.prompt]
                    scores = (event.prompt_logprobs or ())[len(ids) - count :]
                    pairs = [(one, token) for one, token in zip(scores, ids[len(ids) - count :], strict=True) if one]
                    likeliest = all(one.top[0][0] == token for one, token in pairs)
                    together[event.prompt] = math.fsum(one.logprob for one, _ in pairs), likeliest
                    bar.update()
                found += together
        return found

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of each whole text, by windows of `max_length` that share no predicted token."""
        windows: list[tuple[Any, list[int], list[int]]] = []
        counts = []
        for request in requests:
            ids = self.tok_encode(request.args[0])
            pairs = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, context_len=1)
            own = [(None, *make_disjoint_window(pair)) for pair in pairs]
            windows += own
            counts.append(len(own))
        found = iter(self._loglikelihood_tokens(windows, disable_tqdm))
        return [math.fsum(number for number, _ in itertools.islice(found, count)) for count in counts]

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """The continuation of each text, up to the first of its stop strings. ValueError for an option that this engine
        does not have."""
        texts = [""] * len(requests)
        # The engine takes one length and one set of stop strings for what runs together.
        alike: dict[tuple[int, tuple[str, ...]], list[tuple[int, list[int], Sampling]]] = {}
        for number, request in enumerate(requests):
            context, options = request.args
            length, stops, sampling = self._drawing(options, number)
            ids = self.tok_encode(context)[-(self._model.context - length) :]
            alike.setdefault((length, stops), []).append((number, ids, sampling))
        with self._progress(len(requests), "texts", disable_tqdm) as bar:
            for (length, stops), group in alike.items():
                for some in _pieces(group):
                    prompts, samplings = [ids for _, ids, _ in some], [sampling for *_, sampling in some]
                    for event in self._model.generate(prompts, length, samplings, stop=stops):
                        texts[some[event.prompt][0]] += event.text
                        bar.update(event.finish is not None)
        return texts

    def _drawing(self, options: Mapping[str, Any], number: int) -> tuple[int, tuple[str, ...], Sampling]:
        """How many tokens, up to which strings, and how: what a task says of a request."""
        given = dict(normalize_gen_kwargs(dict(options), USUAL_TOKENS))
        length, stops, drawn = given.pop("max_gen_toks"), given.pop("until"), given.pop("do_sample", False)
        if unknown := sorted(given.keys() - set(_DRAWING)):
            raise ValueError(f"a task asks for the generation option {unknown[0]}, which is not among {_DRAWING}")
        if not 0 < length < self._model.context:
            raise ValueError(f"a task asks for {length} tokens; it can have 1 to {self._model.context - 1}")
        values: dict[str, Any] = {name: given[name] for name in _DRAWING if given.get(name) is not None}
        if not drawn:
            values["temperature"] = 0.0
        return length, tuple(stop for stop in stops if stop), Sampling(**values, seed=self._seed + number)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template that `apply_chat_template` uses, for the harness's records; None when none is asked for."""
        if isinstance(chat_template, str):
            raise ValueError(f"the model has one chat template, and none that is named {chat_template}")
        return self._template.template if chat_template else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The text of a conversation; without `add_generation_prompt` it ends with the last message, to go on there."""
        text = self._template.render(chat_history, add_generation_prompt=add_generation_prompt)
        if add_generation_prompt:
            return text
        last = chat_history[-1]["content"].strip()
        return text[: text.rindex(last) + len(last)]

    def _progress(self, total: int, what: str, disabled: bool) -> Any:
        return tqdm(total=total, desc=what, unit="request", disable=True if disabled else None)  # None: off a terminal


def _pieces(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (values[first : first + _TOGETHER] for first in range(0, len(values), _TOGETHER))
