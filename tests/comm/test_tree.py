"""How work is shared out over ranks, and in which order sums over replicas are added."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import gradients, summed, tree_sum

import nncuda


@pytest.mark.parametrize("grain", [1, 3, 64])
@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 1000])
def test_shards_are_neighbours_of_whole_grains(count, grain):
    grains = -(-count // grain)
    for parts in (*range(1, 10), 1000):
        shards = [nncuda.shard(count, grain, parts, part) for part in range(parts)]
        assert [begin for begin, _ in shards] == [min(p * grains // parts * grain, count) for p in range(parts)]
        assert [end for _, end in shards] == [*(begin for begin, _ in shards[1:]), count]


def test_shards_of_the_largest_sizes():
    most = 2**63 - 1
    assert nncuda.shard(most, 1, most, most - 1) == (most - 1, most)
    assert nncuda.shard(most, 1, 3, 1) == (most // 3, most // 3 * 2)
    assert nncuda.shard(most, most, 2, 1) == (0, most)


@pytest.mark.parametrize("arguments", [(-1, 1, 1, 0), (1, 0, 1, 0), (1, 1, 0, 0), (1, 1, 1, 1), (1, 1, 1, -1)])
def test_shards_that_cannot_be(arguments):
    with pytest.raises(nncuda.ArgumentError):
        nncuda.shard(*arguments)


@pytest.mark.parametrize("arguments", [(0, 0, 0), (4, -1, 0), (4, 2, 1), (4, 0, 4), (4, 5, 5)])
def test_replicas_that_cannot_be(arguments):
    with pytest.raises(nncuda.ArgumentError):
        nncuda.replica_merges(*arguments)


@pytest.mark.parametrize("replicas", [*range(1, 18), 33, 64, 100])
def test_one_rank_adds_the_tree(replicas):
    g = gradients(replicas, 50)
    with nncuda.Context(threads=1) as ctx:
        (total,) = summed(ctx, g, 0, replicas)
        np.testing.assert_array_equal(total.numpy(), tree_sum(g))
    if replicas > 3:  # the order shows: the test could fail
        assert (np.add.reduce(g, 0, np.float32) != tree_sum(g)).any()


def test_a_rank_puts_few_sums_aside():
    """Two for each level of the tree at most: one before and one behind the middle."""
    for replicas in range(1, 70):
        for first in range(replicas):
            depth = 0
            for replica in range(first, replicas):
                depth += 1 - nncuda.replica_merges(replicas, first, replica)
                assert 1 <= depth <= max(2 * (replicas - 1).bit_length(), 1)
