"""Small files of training runs, valid and hostile: the state of a checkpoint, metrics, configurations."""

from __future__ import annotations

import json
from pathlib import Path

from seeds_gguf import Seed

BOUNDS = Path(__file__).resolve().parents[1] / "bounds.json"

STATE = {
    "format": "nncuda training state",
    "version": 1,
    "step": 3,
    "data_position": 24,
    "data_windows": 100,
    "seconds": 1.5,
    "train": {"steps": 9, "warmup_steps": 2, "learning_rate": 1e-3},
    "held_out_loss": 2.5,
}


def state(**change: object) -> bytes:
    """`STATE` with changes."""
    return json.dumps({**STATE, **change}).encode()


def bounded() -> list[Seed]:
    """The numbers of tests/bounds.json, at their bounds and beyond; and whole numbers of 31 and 62 bits."""
    found = []
    for name, bounds in json.loads(BOUNDS.read_text(encoding="utf-8"))["state"].items():
        found += [Seed(f"valid_{name}_{end}", state(**{name: bounds[end]}), None) for end in ("least", "most")]
        for word, value in (("below", bounds["least"] - 0.5), ("above", bounds["most"] * 2)):
            found.append(
                Seed(f"{name}_{word}", state(**{name: value}), f"{name} is {value!r}; it must be {bounds['rule']}")
            )
    for name, least, most in (("step", 0, 2**31 - 1), ("data_position", 0, 2**62 - 1), ("data_windows", 1, 2**62 - 1)):
        found.append(Seed(f"valid_{name}_most", state(**{name: most}), None))
        for word, value in (("below", least - 1), ("above", most + 1), ("far_above", 2**70)):
            rule = f"{name} is {value}; it must be a whole number, from {least} to {most}"
            found.append(Seed(f"{name}_{word}", state(**{name: value}), rule))
    return found


def states() -> list[Seed]:
    """training.json of checkpoints."""
    f16, scaling = {"precision": "f16"}, {"scale": 1024.0, "good_steps": 2, "skipped": 1}
    count = "it must be a whole number, from"
    return [
        Seed("valid", state(), None),
        Seed("valid_not_evaluated", state(held_out_loss=None), None),
        Seed("valid_loss_that_is_none", state(held_out_loss=float("nan")), None),
        Seed("valid_loss_without_end", state(held_out_loss=float("inf")), None),
        Seed("valid_f16", state(train=f16, loss_scaling=scaling), None),
        Seed("nothing", b"", "is not JSON"),
        Seed("list", b"[]", "is not a JSON object"),
        Seed("key_twice", state()[:-1] + b', "step": 4}', "the key 'step' is twice"),
        Seed("seconds_of_400_digits", state(seconds=10**400), "seconds is 1000"),
        *bounded(),
        Seed("seconds_of_text", state(seconds="1"), "seconds is '1'; it must be a number, from 0 to 1e+12"),
        Seed("seconds_of_a_bool", state(seconds=True), "seconds is True; it must be a number, from 0 to 1e+12"),
        Seed("format_of_others", state(format="notes"), "is not a training state of nncuda"),
        Seed("format_of_a_list", state(format=["x"]), "is not a training state of nncuda"),
        Seed("version_2", state(version=2), "is a training state of version 2; this program reads version 1"),
        Seed("version_of_an_object", state(version={}), "is a training state of version {}"),
        Seed(
            "entry_missing", json.dumps({**STATE, "step": None}).replace('"step": null, ', "").encode(), "missing, or"
        ),
        Seed("entry_of_nobody", state(more=1), "some are missing, or should not be there"),
        Seed("step_of_a_float", state(step=3.0), f"step is 3.0; {count} 0 to 2147483647"),
        Seed("step_infinite", state().replace(b'"step": 3', b'"step": 1e999'), f"step is inf; {count} 0 to 2147483647"),
        Seed("loss_of_400_digits", state(held_out_loss=10**400), "held_out_loss is 1000"),
        Seed("loss_of_text", state(held_out_loss="2.5"), "held_out_loss is '2.5'"),
        Seed("steps_for_ever", state(train={"steps": 2**70}), f"steps is 1180591620717411303424; {count} 1"),
        Seed("steps_of_400_digits", state(train={"steps": 10**400}), "steps is 1000"),
        Seed("rate_of_400_digits", state(train={"learning_rate": 10**400}), "learning_rate is 1000"),
        Seed("steps_0", state(train={"steps": 0}), f"steps is 0; {count} 1 to 2147483647"),
        Seed("beta_of_1_5", state(train={"beta1": 1.5}), "beta1 is 1.5; it must be a number, from 0 to 0.999999"),
        Seed("option_of_nobody", state(train={"x" * 9999: 1}), "there is no training option 'xxx"),
        Seed("options_of_text", state(train="x"), "train is not an object"),
        Seed("valid_adapter", state(train={"lora_rank": 4}, base={"folder": "x", "weights_sha256": "0"}), None),
        Seed("adapter_of_nothing", state(train={"lora_rank": 4}), "has no base; its lora_rank is 4"),
        Seed(
            "base_of_no_adapter", state(base={"folder": "x", "weights_sha256": "0"}), "has a base; its lora_rank is 0"
        ),
        Seed(
            "base_of_a_list", state(train={"lora_rank": 4}, base=["x"] * 9999), "it must have folder and weights_sha256"
        ),
        Seed(
            "base_of_numbers", state(train={"lora_rank": 4}, base={"folder": 3, "weights_sha256": 4}), "base is {'fol"
        ),
        Seed("scaling_without_f16", state(loss_scaling=scaling), "has a loss_scaling"),
        Seed("scaling_missing", state(train=f16), "has no loss_scaling"),
        Seed("scaling_of_a_list", state(train=f16, loss_scaling=[1] * 9999), "loss_scaling is [1, 1"),
        Seed("scale_of_400_digits", state(train=f16, loss_scaling={**scaling, "scale": 10**400}), "scaling is 1000"),
        Seed("scaling_of_one_entry", state(train=f16, loss_scaling={"scale": 1.0}), "must have scale, good_steps and"),
        Seed(
            "scale_of_text",
            state(train=f16, loss_scaling={**scaling, "scale": "big"}),
            "scale of loss_scaling is 'big'",
        ),
        Seed("scale_beyond_the_largest", state(train=f16, loss_scaling={**scaling, "scale": 2.0**25}), "to 2^24"),
        Seed(
            "half_a_step", state(train=f16, loss_scaling={**scaling, "good_steps": 0.5}), "good_steps of loss_scaling"
        ),
        Seed("scaling_of_bf16", state(train={"precision": "bf16"}, loss_scaling=scaling), "its precision is bf16"),
        Seed("more_skipped_than_done", state(train=f16, loss_scaling={**scaling, "skipped": 4}), "skipped of loss"),
    ]


def metrics() -> list[Seed]:
    """metrics.jsonl of runs. Lines that are not records are left out of a report, and a note says so."""
    record = {"step": 1, "loss": 2.5, "expert_shares": [[0.5, 0.5]], "grad_norm": 1.0, "seconds": 0.5}
    lines = [json.dumps({**record, "step": step}).encode() for step in range(1, 5)]
    hostile = (
        b"[" * 100_000, b'{"step": 1, "loss": %s}' % (b"9" * 5000), b'{"step": 1, "step": 2}', b'{"step": "1"}',
        b"\xff", b'{"step": 2, "loss": %s}' % (b"9" * 400), b'{"step": %s}' % (b"9" * 400), b'{"step": NaN}',
        b'{"step": 1e999}',
    )  # fmt: skip
    return [
        Seed("valid", b"\n".join([*lines, b""]), None),
        Seed("valid_cut_off", b"\n".join(lines)[:-9], None),
        Seed("valid_with_what_is_none", b"\n".join([lines[0], *hostile, lines[1], b""]), None),
        Seed("nothing", b"", "holds no record of a step yet"),
        Seed("nothing_that_is_one", b"\n".join(hostile[:5]), "holds no record of a step yet"),
    ]


def mistakes() -> dict[str, tuple[str, str]]:
    """What people write, and the line that says so."""
    count, share = "it must be a whole number, from 1 to 2147483647", "it must be a number, from 0 to"
    return {
        "table_of_nobody": ("[models]\nx = 1", "line 1: has 'models'; it may have the tables [model], [train]"),
        "option_nearly_one": ("[model]\n# layers\nlayers = 3", "line 3: there is no model option 'layers'; did you"),
        "option_far_from_all": ("[train]\ncolour = 3", "line 2: there is no training option 'colour'; `train --help`"),
        "option_of_the_model": ("[train]\nhead_dim = 8", "line 2: there is no training option 'head_dim'; it belongs"),
        "option_of_training": ("[model]\nsteps = 8", "line 2: there is no model option 'steps'; it belongs under"),
        "preset_nearly_one": ("[model]\npreset = 'smal'", "line 2: there is no preset 'smal'; there are 6.9b, demo"),
        "name_in_quotes": ("[train]\nsteps = 1\n[model]\n'num_heads'=0", f"line 4: num_heads is 0; {count}"),
        "table_in_quotes": ("[ 'train' ]\nbeta1 = 2", "line 2: beta1 is 2; it must be a number, from 0 to 0.999999"),
        "table_by_dots": ("model.num_heads = 0", f"line 1: num_heads is 0; {count}"),
        "table_in_line": ("\nmodel = { num_heads = 0 }", f"line 2: num_heads is 0; {count}"),
        "table_below_an_option": ("\n[model.num_heads]\nx = 0", "line 2: num_heads is {'x': 0}; it must be"),
        "text_for_a_count": ("[train]\n\n  steps = 'many'", f"line 3: steps is 'many'; {count}"),
        "fraction_for_a_count": ("[train]\nbatch_size = 2.0", f"line 2: batch_size is 2.0; {count}"),
        "truth_for_a_count": ("[train]\nsteps = true", f"line 2: steps is True; {count}"),
        "steps_0": ("[train]\nsteps = 0", f"line 2: steps is 0; {count}"),
        "number_for_a_truth": ("[model]\nnorm_topk_prob = 1", "line 2: norm_topk_prob is 1; it must be true or false"),
        "rate_not_a_number": ("[train]\nlearning_rate = nan", f"line 2: learning_rate is nan; {share} 1e+30"),
        "rate_infinite": ("[train]\nlearning_rate = inf", f"line 2: learning_rate is inf; {share} 1e+30"),
        "rate_negative": ("[train]\nlearning_rate = -0.5", f"line 2: learning_rate is -0.5; {share} 1e+30"),
        "beta_of_1": ("[train]\nbeta2 = 1", f"line 2: beta2 is 1; {share} 0.999999"),
        "share_above_1": ("[train]\nmin_rate_share = 1.5", f"line 2: min_rate_share is 1.5; {share} 1"),
        "eps_0": ("[train]\neps = 0.0", "line 2: eps is 0.0; it must be a number, from 1e-30 to 1"),
        "clip_0": ("[train]\nclip_norm = 0.0", "line 2: clip_norm is 0.0; it must be a number, from 1e-30 to 1e+30"),
        "heads_in_no_groups": ("[model]\nnum_kv_heads = 3", "line 2: num_kv_heads is 3; it must be a divisor of"),
        "head_of_9": ("[model]\nhead_dim = 9", "line 2: head_dim is 9; it must be a multiple of 8, at most 256"),
        "more_choices_than_experts": ("[model]\nexperts_per_token = 99", "line 2: experts_per_token is 99; it must be"),
        "reach_below_the_context": ("[model]\nextended_context = 31", "line 2: extended_context is 31; it must be"),
        "capacity_0": ("[model]\ncapacity_factor = 0", "line 2: capacity_factor is 0; it must be a number, from 1e-06"),
    }


def configurations() -> list[Seed]:
    """Configurations in TOML."""
    valid = '[model]\npreset = "small"\nnum_layers = 2\nrope_base = 5000.0\n[train]\nsteps = 9\nclip_norm = "none"\n'
    seeds = {
        "valid": (valid, None),
        "valid_empty": ("", None),
        "not_toml": ("[model", "is not TOML"),
        "nested": ("a = " + "[\n" * 30_000, "it is nested too deeply"),
        "name_of_many_dots": (
            "[model]\n" + "a." * 9000 + "b = 1",
            "line 2 has 18005 bytes; a line may have at most 2048",
        ),
        "names_of_many_dots": ("[model]\n" + "".join(f"{'a.' * 1000}b{n} = 1\n" for n in range(30)), "option 'a'"),
        "too_long": ("#\n" * 40_000, "has 80000 bytes; a file of its kind may have at most 65536"),
        "preset_of_a_list": ("[model]\npreset = [1]", "there is no preset [1]"),
        "preset_of_a_table": ("[model.preset]\na = 1", "there is no preset {'a': 1}"),
        "number_of_1000_digits": ("[train]\nsteps = " + "9" * 1000, "steps is 9999"),
        "number_of_2000_digits": ("[train]\nsteps = 0x" + "f" * 2000, "steps is 1737"),
        "base_near_0": ("[model]\nrope_base = 5e-324", "rope_base is 5e-324; it must be a number, from 1 to 1e+12"),
        "date": ("[train]\nsteps = 1979-05-27", "it must be a whole number"),
        "base_of_a_table": ("[model]\nrope_base.x = 3", "line 2: rope_base is {'x': 3}; it must be a number, from 1"),
        **mistakes(),
    }
    out = [Seed(name, text.encode(), expected) for name, (text, expected) in seeds.items()]
    out.append(Seed("not_utf8", b"[model]\n\xff", "is not TOML"))
    return out
