"""What the four calls of a session consist of: their parts, in order, each with a limit.

A part is a process of its own, since a kernel's fault ends all use of the GPU by its process. Limits are for what
hangs, and those of a call add up to less than it may take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

from variants import BUNDLED, VARIANTS

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = sorted(
    path.name for path in (ROOT / "tests/golden").iterdir() if path.is_dir() and any(path.glob("*.safetensors"))
)
#: Seconds that a call may take, and those of them that stay for its beginning (packages, libraries) and its end.
CALL_SECONDS, OWN_SECONDS = 480, 60


@dataclass(frozen=True)
class Part:
    """`command` begins with "nncuda" (this package's command line) or "python", or with a program. {out} is the folder
    whose files are kept, {scratch} one whose files are not, {lib} that of the libraries. `needs` are programs without
    which the part is left out, and files that an earlier part makes; `variant` names another library than the usual."""

    name: str
    seconds: int
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    variant: str = ""
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """Parts of which so many run at once. What is timed has the machine to itself."""

    parts: tuple[Part, ...]
    together: int = 1

    @property
    def seconds(self) -> int:
        """The most that it takes."""
        return math.ceil(len(self.parts) / self.together) * max((part.seconds for part in self.parts), default=0)


def one(name: str, seconds: int, *command: str, needs: tuple[str, ...] = (), **settings: str) -> Batch:
    return Batch((Part(name, seconds, command, needs, settings=settings),))


def calls(quick: bool = False, rebuild: str = "band16") -> dict[str, list[Batch]]:
    """The batches of each call by its name. `quick` has tiny sizes, to try this out; `rebuild` is the variant that the
    fourth call makes."""
    plan = {"1": right(), "2": fast(), "3": whole(), "4": last(rebuild)}
    return {name: [_quick(batch) for batch in batches] for name, batches in plan.items()} if quick else plan


#: Programs that take --quick; sizes of models; and what stands for all of its kind where many run at once.
_TIMED = ("bench", "nncuda.bench.random_decode", "tests/gpu/six_kernels.py", "tests/gpu/fixed_order.py")
_SMALL = {"tinyllama": "tiny"}
_FEW = ("verify random", "verify rope", "test_gpu_trace", "memcheck gemm", "model tinyllama")
#: One stored model shows as much as three; and of contexts some tests ask the driver, which an emulated GPU has not.
_ALIKE = ("decode tinyllama f16", "decode bitnet", "test_gpu_context")
#: Limits are for a GPU; an emulated one is slower.
_SLOWER = 4


def _quick(batch: Batch) -> Batch:
    def tiny(part: Part) -> Part:
        timed = any(word in _TIMED for word in part.command)
        command = tuple(_SMALL.get(word, word).replace("6.9 B", "tiny whole") for word in part.command)
        for name in ("small, bf16", "1 B parameters, bf16"):
            command = tuple(word.replace(name, "tiny, bf16") for word in command)
        return replace(part, command=(*command, "--quick") if timed else command, seconds=_SLOWER * part.seconds)

    few = [part for part in batch.parts if (part.name in _FEW if batch.together > 1 else part.name not in _ALIKE)]
    return replace(batch, parts=tuple(map(tiny, few)))


def verify(record: bool, variant: str = "", families: list[str] = FAMILIES) -> list[Part]:
    """The golden tests, a family a process."""

    def recorded(family: str) -> tuple[str, ...]:
        return ("--record", f"{{out}}/verified-{family}.json") if record else ()

    return [
        Part(
            f"verify {family}{variant and f' of {variant}'}",
            20,
            ("nncuda", "verify", "--device", "cuda", "--family", family, *recorded(family)),
            variant=variant,
        )
        for family in families
    ]


def right() -> list[Batch]:
    """Is it right: the golden tests, tests/gpu, and the kernels with most to go wrong under compute-sanitizer."""
    alone, large = (ROOT / f"tests/gpu/test_gpu_{name}.py" for name in ("context", "large"))
    others = sorted(set((ROOT / "tests/gpu").glob("test_gpu_*.py")) - {alone, large})
    pytest = ("python", "-m", "pytest", "-v", "--no-header", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=60")

    def tests(file: Path, seconds: int = 45) -> Part:
        return Part(file.stem, seconds, (*pytest, f"tests/gpu/{file.name}"))

    sanitized = [
        Part(
            f"{tool} {kernel}",
            100,
            ("bash", "tests/gpu/sanitize.sh", tool),
            needs=("compute-sanitizer",),
            settings={"KERNELS": kernel, "SECONDS_EACH": "90"},
        )
        for tool in ("memcheck", "racecheck")
        for kernel in ("gemm", "flash_attention", "gemm_quant")
    ]
    changed = [part for name in BUNDLED for part in verify(False, name, [VARIANTS[name].family])]
    return [
        one("doctor", 20, "nncuda", "doctor"),
        Batch((*verify(record=True), *changed), together=6),
        Batch(tuple(map(tests, others)), together=7),
        Batch((tests(alone),)),  # it reads how much of the GPU's memory is free
        Batch((tests(large, 100), *sanitized), together=7),
    ]


def bench(name: str, seconds: int, *only: str, variant: str = "") -> Batch:
    """Lines of the benchmark beside torch."""
    own = f"{name}{variant and f' of {variant}'}"
    words = [word for text in only for word in ("--only", text)]
    command = ("nncuda", "bench", "--device", "cuda", "--against", "torch", *words)
    file = f"{{out}}/{own.replace(' ', '-')}.json"
    return Batch((Part(own, seconds, (*command, "--json", file), variant=variant),))


#: Kernels whose counters are wanted, not those that make their inputs: each is run once for every few counters.
COUNTED = "gemm|flash|backward|rows_kernel|paged|piece|merge"


def fast() -> list[Batch]:
    """Is it fast: kernels, with the library and with its variants; counters of six of them."""
    changed = [bench(f"variant {VARIANTS[name].family}", 30, *VARIANTS[name].lines, variant=name) for name in BUNDLED]
    counters = ("ncu", "--clock-control", "none", "--csv", "--page", "raw", "--log-file", "{out}/ncu.csv")
    sections = ("SpeedOfLight", "WarpStateStats", "LaunchStats")
    return [
        bench("products", 25, "products bf16", "products f32", "products tf32"),
        bench("grouped", 20, "grouped_gemm"),
        bench("attention", 40, "flash_attention"),
        bench("memory", 70, "element-wise", "rows ", "experts ", "optimizer"),
        bench("stored", 50, "products with stored weights", "paged attention"),
        *changed,
        bench("ternary", 45, "products with ternary weights"),
        one(
            "counters",
            60,
            *counters,
            *(word for section in sections for word in ("--section", section)),
            "--kernel-name",
            f"regex:{COUNTED}",
            "{python}",
            "tests/gpu/six_kernels.py",
            needs=("ncu",),
        ),
    ]


def whole() -> list[Batch]:
    """Whole programs: training steps, decoding of stored models, several ranks."""
    made = [
        Part(f"model {shape}", 45, ("python", "-m", "nncuda.bench.random_model", f"{{scratch}}/{shape}",
             "--shape", shape, "--dtype", dtype))
        for shape, dtype in (("tinyllama", "f16"), ("bitnet-2b-4t", "bf16"))
    ]  # fmt: skip
    smaller = ("nncuda", "quantize", "{scratch}/tinyllama", "{scratch}/tinyllama-q4_0.gguf", "--format", "q4_0")
    decoding = ("nncuda", "bench", "--device", "cuda", "--rounds", "2", "--model")
    stored = [("tinyllama f16", "tinyllama"), ("tinyllama q4_0", "tinyllama-q4_0.gguf"), ("bitnet", "bitnet-2b-4t")]
    return [
        bench("step small", 40, "training step of small, bf16"),
        bench("step 1B", 60, "training step of 1 B parameters, bf16"),
        one("step 6.9B", 40, "nncuda", "bench", "--device", "cuda", "--only", "training step of 6.9 B",
            "--json", "{out}/step-6.9B.json"),
        Batch(tuple(made), together=2),
        one("quantize", 15, *smaller, needs=("{scratch}/tinyllama/model.safetensors",)),
        *(
            one(f"decode {name}", 38, *decoding, f"{{scratch}}/{model}", "--json",
                f"{{out}}/decode-{name.replace(' ', '-')}.json", needs=(f"{{scratch}}/{model}",))
            for name, model in stored
        ),
        one("decode 6.9b", 25, "python", "-m", "nncuda.bench.random_decode", "6.9b", "--device", "cuda",
            "--json", "{out}/decode-6.9b.json"),
        one("fixed order", 30, "python", "tests/gpu/fixed_order.py", "{out}/fixed-order.json"),
        one("ranks", 40, "python", "tests/gpu/session_ranks.py", needs=("nccl",)),
    ]  # fmt: skip


def last(rebuild: str) -> list[Batch]:
    """A variant made on the machine, and the record of what was verified."""
    variant = VARIANTS[rebuild]
    made = f"{{scratch}}/libnncuda-{rebuild}.so"
    changed = [
        *(Batch((part,)) for part in verify(False, rebuild, [variant.family])),
        bench(f"variant {variant.family}", 50, *variant.lines, variant=rebuild),
    ]
    return [
        one("rebuild", 150, "python", "tests/gpu/variants.py", rebuild, made, needs=("nvcc", "cc")),
        *(replace(batch, parts=tuple(replace(part, needs=(made,)) for part in batch.parts)) for batch in changed),
        bench(f"usual {variant.family}", 50, *variant.lines),
        Batch(tuple(verify(record=True)), together=6),
    ]
