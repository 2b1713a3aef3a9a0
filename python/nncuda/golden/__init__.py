"""The golden tests: every kernel against the results of `nncuda.reference` that are stored in fixtures.

`fixtures` reads them, `runner` calls the library with them, `report` says how much of each tolerance was used. The list
of cases is what the folder holds, so a new fixture is tested with no new code.
"""

from nncuda.golden.fixtures import Fixture, FixtureError, find_folder, read_folder
from nncuda.golden.runner import Outcome, Runner

__all__ = ["Fixture", "FixtureError", "Outcome", "Runner", "find_folder", "read_folder"]
