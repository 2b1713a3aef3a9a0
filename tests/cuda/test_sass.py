"""cmake/sass.py reads machine code as cuobjdump prints it, counts what comments wish for, and says what is not met."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "cmake" / "sass.py"
if not CHECK.is_file():
    pytest.skip("needs the source tree", allow_module_level=True)
sys.path.insert(0, str(CHECK.parent))

import sass  # noqa: E402

# A loop that multiplies pairs of what it loads, by nvcc 13.0 for sm_80, from cuobjdump 13.2.
RECORDED = """\

	code for sm_80
	.target	sm_80

		Function : _Z8togetherPK5uint4Pfi
	.headerflags	@"EF_CUDA_SM80 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM80)"
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;  /* 0x00000a00ff017624 */
                    /* 0x000fe400078e00ff */
        /*0010*/                   S2R R0, SR_TID.X ;  /* 0x0000000000007919 */
                    /* 0x000e220000002100 */
        /*0020*/                   IMAD.MOV.U32 R5, RZ, RZ, 0x4 ;  /* 0x00000004ff057424 */
                    /* 0x000fe200078e00ff */
        /*0030*/                   ULDC.64 UR4, c[0x0][0x118] ;  /* 0x0000460000047ab9 */
                    /* 0x000fe20000000a00 */
        /*0040*/                   BSSY B0, 0x150 ;  /* 0x0000010000007945 */
                    /* 0x000fe20003800000 */
        /*0050*/                   HFMA2.MMA R7, -RZ, RZ, 0, 0 ;  /* 0x00000000ff077435 */
                    /* 0x000fe200000001ff */
        /*0060*/                   ISETP.GE.AND P0, PT, R0.reuse, c[0x0][0x170], PT ;  /* 0x00005c0000007a0c */
                    /* 0x041fe20003f06270 */
        /*0070*/                   IMAD.WIDE.U32 R4, R0, R5, c[0x0][0x168] ;  /* 0x00005a0000047625 */
                    /* 0x000fd800078e0005 */
        /*0080*/               @P0 BRA 0x140 ;  /* 0x000000b000000947 */
                    /* 0x000fea0003800000 */
        /*0090*/                   IMAD.MOV.U32 R3, RZ, RZ, 0x10 ;  /* 0x00000010ff037424 */
                    /* 0x000fe200078e00ff */
        /*00a0*/                   MOV R7, RZ ;  /* 0x000000ff00077202 */
                    /* 0x000fc60000000f00 */
        /*00b0*/                   IMAD.WIDE R2, R0, R3, c[0x0][0x160] ;  /* 0x0000580000027625 */
                    /* 0x000fca00078e0203 */
        /*00c0*/                   LDG.E R6, [R2.64+0x204] ;  /* 0x0002040402067981 */
                    /* 0x0000a8000c1e1900 */
        /*00d0*/                   LDG.E R8, [R2.64] ;  /* 0x0000000402087981 */
                    /* 0x0000a2000c1e1900 */
        /*00e0*/                   IADD3 R0, R0, 0x40, RZ ;  /* 0x0000004000007810 */
                    /* 0x000fc80007ffe0ff */
        /*00f0*/                   ISETP.GE.AND P0, PT, R0, c[0x0][0x170], PT ;  /* 0x00005c0000007a0c */
                    /* 0x000fe40003f06270 */
        /*0100*/                   IADD3 R2, P1, R2, 0x400, RZ ;  /* 0x0000040002027810 */
                    /* 0x001fc80007f3e0ff */
        /*0110*/                   IADD3.X R3, RZ, R3, RZ, P1, !PT ;  /* 0x00000003ff037210 */
                    /* 0x000fe20000ffe4ff */
        /*0120*/                   FFMA R7, R6, R8, R7 ;  /* 0x0000000806077223 */
                    /* 0x004fcc0000000007 */
        /*0130*/              @!P0 BRA 0xc0 ;  /* 0xffffff8000008947 */
                    /* 0x000fea000383ffff */
        /*0140*/                   BSYNC B0 ;  /* 0x0000000000007941 */
                    /* 0x000fea0003800000 */
        /*0150*/                   STG.E [R4.64], R7 ;  /* 0x0000000704007986 */
                    /* 0x000fe2000c101904 */
        /*0160*/                   EXIT ;  /* 0x000000000000794d */
                    /* 0x000fea0003800000 */
        /*0170*/                   BRA 0x170;  /* 0xfffffff000007947 */
                    /* 0x000fc0000383ffff */
"""


def code(*rows: tuple[int, str, int | None, set[int]], symbol: str = "_Z4loadPf", arch: str = "sm_90a") -> str:
    """What cuobjdump prints of instructions: address, text, the scoreboard it sets, those that it waits for."""
    text = f"\tcode for {arch}\n\t\tFunction : {symbol}\n"
    for at, said, sets, waits in rows:
        word = (7 if sets is None else sets) << 46 | sum(1 << i for i in waits) << 52
        text += f"        /*{at:04x}*/ {said} ;  /* 0x{at:016x} */\n  /* 0x{word:016x} */\n"
    return text


def only(text: str) -> sass.Kernel:
    (kernel,) = sass.parse(text)
    return kernel


def count(text: str, item: str) -> int:
    """What a wish counts in the one kernel of a text."""
    (wish,) = sass.wishes(f"// sass: load: at least 1 {item}")
    return sass.measure(only(text), wish)


def test_a_recorded_kernel() -> None:
    kernel = only(RECORDED)
    assert (kernel.symbol, kernel.arch, len(kernel.code)) == ("_Z8togetherPK5uint4Pfi", "sm_80", 24)
    first, second, product = (kernel.code[at // 16] for at in (0xC0, 0xD0, 0x120))
    assert first.opcode == second.opcode == "LDG.E" and first.operands == "R6, [R2.64+0x204]"
    assert first.sets == second.sets == 2 and product.waits == {2} and product.sets is None
    assert kernel.code[0x80 // 16].predicate == "@P0" and kernel.code[0x80 // 16].target == 0x140
    inside, heads = kernel.loops()
    assert inside == {*range(0xC0, 0x140, 16), 0x170} and heads == {0xC0, 0x170}
    assert sass.under_way(kernel, "LDG") == 2 and sass.under_way(kernel, "LDG.128") == 0


LOADS = [(0x10 * i, f"LDG.E.128 R{4 * i}, desc[UR4][R2.64]", 2 + i % 2, set()) for i in range(4)]
USE = (0x40, "FFMA R30, R0, R4, R30", None, {2, 3})
AGAIN = (0x50, "@P0 BRA 0x0", None, set())
END = (0x60, "EXIT", None, set())


def test_loads_before_the_first_use_are_under_way_together() -> None:
    assert count(code(*LOADS, USE, AGAIN, END), "LDG.128 under way") == 4
    assert count(code(*LOADS, USE, AGAIN, END), "LDG.64 under way") == 0


def test_a_wait_in_between_ends_that() -> None:
    waiting = [*LOADS[:2], (0x20, LOADS[2][1], 2, {2}), *LOADS[3:]]
    assert count(code(*waiting, USE, AGAIN, END), "LDG.128 under way") == 3
    by_number = [*LOADS[:3], (0x30, "DEPBAR.LE SB2, 0x1", None, set()), (0x38, LOADS[3][1], 3, set())]
    assert count(code(*by_number, USE, AGAIN, END), "LDG.128 under way") == 3


def test_each_load_in_a_branch_of_its_own() -> None:
    """Two branches that load, and wait for it before they end, or do not."""

    def branches(waits: set[int]) -> str:
        return code(
            (0x00, "@P1 BRA 0x40", None, set()),
            (0x10, "LDG.E.U16 R0, [R2.64]", 2, set()),
            (0x20, "HADD2.F32 R0, -RZ, R0.H0_H0", None, {2}),
            (0x30, "BRA 0x60", None, set()),
            (0x40, "LDG.E.128 R0, [R2.64]", 2, set()),
            (0x50, "HADD2.F32 R0, -RZ, R0.H0_H0", None, waits),
            (0x60, "LDG.E.128 R4, [R2.64]", 3, set()),
            (0x70, "FFMA R30, R0, R4, R30", None, {2, 3}),
            (0x80, "@P0 BRA 0x0", None, set()),
            (0x90, "EXIT", None, set()),
        )

    assert count(branches({2}), "LDG.128 under way") == 1
    assert count(branches(set()), "LDG.128 under way") == 2


def test_loads_before_a_loop_are_none_of_its_own() -> None:
    loop = (0x40, LOADS[0][1], 2, set()), (0x50, USE[1], None, {2}), (0x60, "@P0 BRA 0x40", None, set())
    assert count(code(*LOADS, *loop, (0x70, "EXIT", None, set())), "LDG.128 under way") == 1


def test_a_path_out_of_line_makes_no_loop() -> None:
    """A wait for a barrier is tried again behind the end of the kernel, and comes back."""
    text = code(
        (0x00, "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", None, set()),
        (0x10, "@!P0 BRA 0x50", None, set()),
        (0x20, "CALL.REL.NOINC 0x30", None, set()),
        (0x30, "STG.E [R2.64], R0", None, set()),
        (0x40, "EXIT", None, set()),
        (0x50, "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", None, set()),
        (0x60, "@!P0 BRA 0x50", None, set()),
        (0x70, "BRA 0x20", None, set()),
    )
    assert count(text, "CALL") == 1 and count(text, "CALL in loops") == 0
    assert only(text).loops() == ({0x50, 0x60}, {0x50})


def softmax(first: str) -> str:
    """A step of attention: the last wait stands where it was written, or where ptxas moved it to."""
    products = ["HGMMA.64x128x16.F32.BF16 R24, R120, gdesc[UR4], RZ, !UPT", "WARPGROUP.DEPBAR.LE gsb0, 0x1"]
    powers = ["MUFU.EX2 R22, R22", "FADD R1, R22, R1", "MUFU.EX2 R161, R161"]
    wait = ["WARPGROUP.DEPBAR.LE gsb0, 0x0"]
    rows = products + (powers + wait if first == "powers" else wait + powers)
    return code(*((0x10 * i, row, None, set()) for i, row in enumerate(rows)))


def test_what_runs_between_two_waits() -> None:
    assert count(softmax("powers"), "MUFU.EX2 between waits") == 2
    assert count(softmax("wait"), "MUFU.EX2 between waits") == 0


@pytest.mark.parametrize(("at", "out"), [(0, 1), (1, 1), (2, 0), (3, 0), (4, 1)])
def test_products_out_of_turn(at: int, out: int) -> None:
    """Where ptxas may move the first of two products to: before the turn, and behind it."""
    rows = [
        "UMOV UR4, 0x1",
        "BAR.SYNC.DEFER_BLOCKING R22, 0x100",
        "HGMMA.64x64x16.F32 R8, gdesc[UR8], R8",
        "BAR.ARV R9, 0x100",
    ]
    rows.insert(at, "HGMMA.64x128x16.F32 R24, gdesc[UR4], RZ, !UPT")
    text = code(*((0x10 * i, row, None, set()) for i, row in enumerate(rows)))
    assert count(text, "HGMMA out of turn") == out


def test_the_comment() -> None:
    text = (
        "/* sass: turn<nn_bf16, 64> on sm_80, sm_90a: at least 2 LDG.128 under way, no CALL in loops */\n"
        " * sass: fill: at most 168 registers\n  // it said sass: none: no CALL\n"
    )
    first, second, third = sass.wishes(text, "turn.cu")
    assert first.name == second.name == "turn<nn_bf16, 64>" and first.archs == {"sm_80", "sm_90a"}
    assert (first.bound, first.number, first.counted) == ("at least", 2, "LDG.128 under way")
    assert (second.bound, second.number, second.counted) == ("at most", 0, "CALL in loops")
    assert (third.name, third.number, third.what, third.counted) == ("fill", 168, None, "registers")
    assert first.concerns("_Z4turnI", "void turn<nn_bf16, 64>(int)", "sm_80")
    assert first.concerns("_Z4turnI", "void turn<nn_bf16, 64, true>(int)", "sm_80")
    assert not first.concerns("_Z4turnI", "void turn<nn_bf16, 641>(int)", "sm_80")
    assert not first.concerns("_Z4turnI", "void turn<nn_bf16, 64>(int)", "sm_90")
    assert third.concerns("_Z4fillv", "fill()", "sm_75") and not third.concerns("_Z5fillsv", "fills()", "sm_75")


@pytest.mark.parametrize("said", ["at least 4", "no registers", "few CALL", "no CALL in branches", "no call"])
def test_a_wish_that_is_none(said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(said))):
        list(sass.wishes(f"// sass: fill: {said}\n", "fill.cu"))


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cuobjdump that prints the object that it is given."""
    tool = tmp_path / "bin" / "cuobjdump"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\n[ "$1" = -sass ] || exit 1\nfor object; do :; done\ncat "$object"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    return tmp_path


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("wish", "met"), [("at least 4", True), ("at least 5", False), ("at most 3", False)])
def test_one_object(tools: Path, wish: str, met: bool) -> None:
    source, made = tools / "load.cu", tools / "load.cubin"
    source.write_text(f"// sass: load on sm_90a: {wish} LDG.128 under way\n")
    made.write_text(code(*LOADS, USE, AGAIN, END))
    result = run(CHECK, made, source)
    assert f"sm_90a load(float*): 4 LDG.128 under way ({wish})" in result.stdout
    assert (result.returncode == 0) == met and ("error: load.cu: sm_90a" in result.stderr) == (not met)


def test_a_wish_for_a_kernel_that_is_gone(tools: Path) -> None:
    source, made = tools / "load.cu", tools / "load.cubin"
    source.write_text("// sass: store: no CALL\n")
    made.write_text(code(*LOADS, USE, AGAIN, END))
    result = run(CHECK, made, source)
    assert result.returncode == 1 and "there is no store" in result.stderr


NOTES = """\
ptxas info    : Compiling entry function '_Z4loadPf' for 'sm_90a'
ptxas info    : Function properties for _Z4loadPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 364 bytes cmem[0]
"""


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("load: at least 4 LDG.128 under way, no CALL, at most 40 registers", ""),
        ("load: at least 5 LDG.128 under way", "4 LDG.128 under way (at least 5)"),
        ("load: at most 39 registers", "40 registers (at most 39)"),
        ("load: at least 40 registers, at most 40 registers", ""),
        ("load: at least 41 registers", "40 registers (at least 41)"),
        ("store: no CALL", "a wish for the machine code of store, but there is no such kernel"),
        ("load on sm_80: no CALL", "a wish for the machine code of load, but there is no such kernel"),
    ],
)
def test_a_whole_build(tools: Path, wish: str, said: str) -> None:
    """cmake/ptxas_report.py, which `make cuda` runs, asks for the same beside its own."""
    objects, sources = tools / "build" / "kernels", tools / "sources"
    objects.mkdir(parents=True)
    sources.mkdir()
    (sources / "load.cu").write_text(f"// sass: {wish}\n")
    (objects / "load.cu.o.ptxas").write_text("seconds 7\n" + NOTES)
    (objects / "load.cu.o").write_text(code(*LOADS, USE, AGAIN, END))
    result = run(CHECK.parent / "ptxas_report.py", tools / "build", sources)
    assert (result.returncode == 0) == (not said) and said in result.stderr, result.stderr
    assert "wished: sm_90a load(float*): " in (tools / "build" / "ptxas.txt").read_text() or "no such" in said


def test_an_object_without_that_machine_code_fails(tools: Path) -> None:
    objects, sources = tools / "build", tools / "sources"
    objects.mkdir()
    sources.mkdir()
    (sources / "load.cu").write_text("// sass: load: no CALL\n")
    (objects / "load.cu.o.ptxas").write_text(NOTES)
    (objects / "load.cu.o").write_text("")
    result = run(CHECK.parent / "ptxas_report.py", objects, sources)
    assert result.returncode == 1 and "load.cu.o.ptxas has no machine code of load" in result.stderr
