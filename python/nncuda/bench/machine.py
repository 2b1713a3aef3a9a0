"""What a file of figures says of where and when they were measured."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import Any

from .. import __version__
from ..binding import library
from ..device import Context


def machine_of(ctx: Context) -> dict[str, Any]:
    """What a file of figures says of where and when it was made."""
    loaded = library.load()
    found: dict[str, Any] = {
        "nncuda": __version__,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "python": platform.python_version(),
    }
    if ctx.device_type != 1:
        return found | {"gpu": loaded.device_text(ctx.device_type, ctx.device_index), "build": loaded.build_info}
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line.partition(":") for line in cpuinfo.read_text().splitlines()]
        told = {name.strip(): value.strip() for name, _, value in reversed(lines)}
        model = told.get("model name", model)
        if "cpu family" in told:  # of a virtual machine the name may say less
            model = f"{model}, family {told['cpu family']}, model {told.get('model', '?')}"
    return found | {"processor": model, "cores": os.cpu_count(), "isa": ctx.isa}
