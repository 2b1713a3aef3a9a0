"""ONNX's own operator tests (onnx.backend.test), run through our kernels wherever an operator maps.

The `onnx` package carries each test as a one-node model with inputs and expected outputs; 1.19.1 is the last release
with them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_operators import OPERATORS, NotMapped

import nncuda

_NODES = Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
# What each dtype rounds to; sums of the tests' sizes stay within a few of these.
_RELATIVE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def _cases() -> list[str]:
    """Tests with a single node of an operator that we map; the others need no model to be loaded to be left out."""
    names = []
    for folder in sorted(_NODES.iterdir()):
        model = folder / "model.onnx"
        if folder.name.endswith(("_expanded", "_expanded_ver18")) or not model.exists():
            continue
        graph = onnx.load(model).graph
        if len(graph.node) == 1 and graph.node[0].op_type in OPERATORS:
            names.append(folder.name)
    return names


def _load(path: Path) -> np.ndarray:
    return numpy_helper.to_array(onnx.load_tensor(path))


@pytest.mark.parametrize("name", _cases())
def test_node(ctx: nncuda.Context, name: str) -> None:
    graph = onnx.load(_NODES / name / "model.onnx").graph
    node = graph.node[0]
    data = _NODES / name / "test_data_set_0"
    given = {i.name: _load(data / f"input_{n}.pb") for n, i in enumerate(graph.input)}
    wanted = {o.name: _load(data / f"output_{n}.pb") for n, o in enumerate(graph.output)}
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    attributes = {key: value.decode() if isinstance(value, bytes) else value for key, value in attributes.items()}
    try:
        results = OPERATORS[node.op_type](ctx, attributes, [given.get(i) for i in node.input])
    except NotMapped as reason:
        pytest.skip(f"not one of ours: {reason}")
    compared = 0
    for output, result in zip(node.output, results, strict=False):
        if not output:
            continue
        expected = wanted[output]
        assert result.shape == expected.shape
        if expected.dtype.kind in "iu":
            np.testing.assert_array_equal(result, expected)
        else:
            relative = _RELATIVE[str(expected.dtype)]
            both = [np.asarray(side, np.float64) for side in (result, expected)]
            finite = np.abs(both[1][np.isfinite(both[1])])
            np.testing.assert_allclose(*both, rtol=4 * relative, atol=relative * float(finite.max(initial=0.0)))
        compared += 1
    assert compared == sum(bool(output) for output in node.output), "an output that was asked for was not computed"


def test_every_operator_has_tests_that_run() -> None:
    """A renamed test or a changed attribute must not silently empty the list."""
    names = _cases()
    assert len(names) > 100
    found = {onnx.load(_NODES / name / "model.onnx").graph.node[0].op_type for name in names}
    assert found == set(OPERATORS)
