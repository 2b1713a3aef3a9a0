"""Gradients of attention in 16 bits where few terms make a sum, by the rule of the golden fixtures.

There the roundings on the way to a gradient are as large as that of the gradient itself, and do not average out: with
P and dS rounded to 16 bits before their products, a third of these tests fail.
"""

from __future__ import annotations

import pytest
from cases import attention
from cases.case import Arguments, Case, Draw, stored
from expected import fixture

from nncuda.golden import Runner
from nncuda.reference import attention as reference

#: batch, q_len, kv_len, heads, kv_heads, head_dim, causal, and by how much scores are larger than usual: a sharper
#: softmax has fewer keys that count.
CALLS = (
    (1, 1, 2, 1, 1, 8, 0, 1.0),
    (4, 2, 4, 7, 7, 8, 0, 1.0),
    (1, 1, 3, 1, 1, 64, 0, 1.0),
    (1, 3, 2, 2, 1, 128, 1, 1.0),
    (1, 80, 80, 1, 1, 64, 0, 8.0),
)
DRAWS = 8


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_backward_of_few_terms(runner: Runner, call: tuple[float, ...], dtype: str) -> None:
    *shape, sharp = call
    made = {case.name: case for case in attention.of_shape(dtype, *shape) if case.kernel == "flash_attention_backward"}
    (plain,) = (case for name, case in made.items() if name.endswith("-ld0"))

    def recipe(d: Draw) -> Arguments:
        args = plain.recipe(d)
        args["q"] = stored(args["q"] * sharp, dtype)
        saved = reference.flash_attention(*(args[name] for name in ("q", "k", "v", "batch", "scale", "causal")))
        return {**args, "out": stored(saved["out"], dtype), "lse": stored(saved["lse"])}

    problems = []
    for draw in range(DRAWS):
        outcomes = runner.run(fixture(Case(plain.kernel, f"{plain.name}-sharp{sharp:g}-{draw}", recipe, plain.dtypes)))
        assert {outcome.output for outcome in outcomes} == {"dq", "dk", "dv"}
        problems += [str(outcome) for outcome in outcomes if outcome.problem]
    assert not problems, "\n".join(problems)
