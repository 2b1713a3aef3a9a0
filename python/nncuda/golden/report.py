"""What a run of the golden tests came to, a kernel a line."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from .runner import Outcome

DTYPES = ("f32", "f16", "bf16", "i32")


class Report:
    """Gathers outcomes."""

    def __init__(self) -> None:
        self.failures: list[Outcome] = []
        self._cases: dict[tuple[str, str], set[str]] = {}
        self._shares: dict[tuple[str, str], dict[str, float]] = {}

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            key = outcome.fixture.family, outcome.fixture.kernel
            self._cases.setdefault(key, set()).add(outcome.fixture.name)
            shares = self._shares.setdefault(key, {})
            dtype = outcome.fixture.dtype.split("-")[0]
            shares[dtype] = max(shares.get(dtype, 0.0), outcome.share)
            if outcome.problem:
                self.failures.append(outcome)

    @property
    def cases(self) -> int:
        return sum(len(names) for names in self._cases.values())

    @property
    def largest_share(self) -> float:
        """The largest part of a tolerance that any output used."""
        return max((share for shares in self._shares.values() for share in shares.values()), default=0.0)

    def family(self, name: str) -> tuple[int, int]:
        """Cases of a family, and how many of them failed."""
        cases = sum(len(names) for (family, _), names in self._cases.items() if family == name)
        return cases, len({outcome.fixture.id for outcome in self.failures if outcome.fixture.family == name})

    def family_share(self, name: str) -> float:
        """The largest part of a tolerance that a family used."""
        shares = [max(by.values(), default=0.0) for (family, _), by in self._shares.items() if family == name]
        return max(shares, default=0.0)

    def failed_cases(self) -> set[str]:
        return {outcome.fixture.id for outcome in self.failures}

    def table(self, title: str) -> Table:
        """Part of the tolerance that the worst output used, a kernel and dtype. "exact" where none was given."""
        table = Table(title=title, title_justify="left")
        for heading in ("family", "kernel", "cases", *DTYPES):
            table.add_column(heading, justify="left" if heading in ("family", "kernel") else "right")
        table.add_column("")
        failed = {(outcome.fixture.family, outcome.fixture.kernel) for outcome in self.failures}
        for key, shares in self._shares.items():
            cells = [
                "" if dtype not in shares else f"{shares[dtype]:.0%}" if shares[dtype] else "0" for dtype in DTYPES
            ]
            verdict = "[red]failed[/red]" if key in failed else "[green]passed[/green]"
            table.add_row(*key, str(len(self._cases[key])), *cells, verdict)
        return table
