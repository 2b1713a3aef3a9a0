"""Rotary position embedding. Su et al. 2021, "RoFormer"."""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs

__all__ = ["rope_backward", "rope_forward", "rope_freqs", "rope_freqs_scaled", "rope_qk"]

ROUNDINGS = {
    "rope_freqs": 1,  # computed in float64, rounded
    "rope_freqs_scaled": 1,
    "rope_forward": 3,
    "rope_qk": 3,
    "rope_backward": 3,
}

HALF = 0
INTERLEAVED = 1


def rope_freqs(positions: int, head_dim: int, first: int, base: float, ntk_alpha: float) -> Outputs:
    """Cosine and sine of the angle p b^(-2i/head_dim), b = base ntk_alpha^(head_dim/(head_dim-2)).

    Su et al. 2021, eq. 15; the base from bloc97 2023, "NTK-aware scaled RoPE".
    """
    b = base if ntk_alpha == 1 else base * ntk_alpha ** (head_dim / (head_dim - 2))
    frequency = b ** (-2 * np.arange(head_dim // 2) / head_dim)
    angle = np.arange(first, first + positions)[:, None] * frequency
    return {"cosine": np.cos(angle), "sine": np.sin(angle)}


def rope_freqs_scaled(
    positions: int,
    head_dim: int,
    first: int,
    base: float,
    ntk_alpha: float,
    scale: float,
    factors: Array | None = None,
) -> Outputs:
    """rope_freqs of the angles times ``scale``, divided by ``factors``.

    Chen et al. 2023, "Extending Context Window"; Dubey et al. 2024, "The Llama 3 Herd of Models", section 3.4.
    """
    b = base if ntk_alpha == 1 else base * ntk_alpha ** (head_dim / (head_dim - 2))
    divisor = 1.0 if factors is None else factors.astype(np.float64)
    frequency = scale * b ** (-2 * np.arange(head_dim // 2) / head_dim) / divisor
    angle = np.arange(first, first + positions)[:, None] * frequency
    return {"cosine": np.cos(angle), "sine": np.sin(angle)}


def _pairs(head_dim: int, layout: int) -> tuple[slice, slice]:
    half = head_dim // 2
    return (slice(0, half), slice(half, head_dim)) if layout == HALF else (slice(0, None, 2), slice(1, None, 2))


def rope_forward(x: Array, cosine: Array, sine: Array, positions: Array, layout: int) -> Outputs:
    """(u, v) -> (u cos - v sin, v cos + u sin) for each pair of each head. Su et al. 2021, eq. 34."""
    c, s = cosine[positions][:, None], sine[positions][:, None]
    first, second = _pairs(x.shape[-1], layout)
    u, v = x[..., first], x[..., second]
    y = np.empty_like(x)
    y[..., first] = u * c - v * s
    y[..., second] = v * c + u * s
    return {"y": y}


def rope_qk(q: Array, k: Array, cosine: Array, sine: Array, positions: Array, layout: int) -> Outputs:
    """rope_forward of queries and keys."""
    return {
        "q": rope_forward(q, cosine, sine, positions, layout)["y"],
        "k": rope_forward(k, cosine, sine, positions, layout)["y"],
    }


def rope_backward(dy: Array, cosine: Array, sine: Array, positions: Array, layout: int) -> Outputs:
    """The transpose of a rotation is the rotation by the opposite angle."""
    return {"dx": rope_forward(dy, cosine, -sine, positions, layout)["y"]}
