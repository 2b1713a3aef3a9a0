"""Cases of digests: sizes around the vector, each width, places behind 2^32, sums that begin with something."""

import numpy as np

from .case import case

PLACES = ((1, 0), (3, 5), (16, 0), (67, 2**32 - 20), (130, 2**40 + 3))


def elements(d, n, first, width, sums):
    x = d.integers(n, width, high=256).astype(np.uint8)
    return {"x": x, "sums": np.array(sums, np.int64), "first": first}


def cases():
    for width in (1, 2, 4):
        for n, first in PLACES:
            yield case("digest", f"width{width}-n{n}-first{first}", elements, "", n, first, width, (0, 0))
        yield case("digest", f"width{width}-begun", elements, "", 9, 0, width, (-(2**63), 2**62 + 1))
