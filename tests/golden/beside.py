"""The fixtures of this folder, unless the environment names another: never those of an older installation."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from nncuda.golden import Fixture, find_folder, read_folder
from nncuda.golden.fixtures import ENVIRONMENT_VARIABLE

#: By family and kernel.
BY_KERNEL: dict[tuple[str, str], list[Fixture]] = defaultdict(list)
for _fixture in read_folder(find_folder(os.environ.get(ENVIRONMENT_VARIABLE, Path(__file__).parent))):
    BY_KERNEL[_fixture.family, _fixture.kernel].append(_fixture)
