"""Cases of the random numbers."""

from .case import FLOATS, case

PLACES = ((1, 0, 0, 0), (5, 1, 0, 0), (16, -3, 7, 2), (33, 2**40 + 5, -1, 2**33), (67, 42, 3, 2**32 - 4))


def cases():
    for n, seed, stream, offset in PLACES:
        place = {"n": n, "seed": seed, "stream": stream, "offset": offset}
        label = f"n{n}-seed{seed}-stream{stream}-offset{offset}"
        yield case("random_bits", label, lambda d, p=place: dict(p))
        for dtype in FLOATS:
            yield case("uniform", label, lambda d, p=place: {**p, "low": -0.5, "high": 2.25}, dtype)
            yield case("normal", label, lambda d, p=place: {**p, "mean": 0.25, "std": 0.02}, dtype)
            yield case("normal", f"{label}-standard", lambda d, p=place: {**p, "mean": 0.0, "std": 1.0}, dtype)
    for dtype in FLOATS:
        place = {"n": 9, "seed": 1, "stream": 1, "offset": 1}
        yield case("uniform", "point", lambda d, p=place: {**p, "low": 3.0, "high": 3.0}, dtype)
        yield case("normal", "point", lambda d, p=place: {**p, "mean": -2.0, "std": 0.0}, dtype)
