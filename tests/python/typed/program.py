"""A program as a user would write it. It is not run: `mypy --strict` must find nothing wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
from typing_extensions import assert_type

import nncuda
from nncuda import (
    ArgumentError,
    Context,
    DeviceError,
    DeviceNotFoundError,
    Error,
    Event,
    Graph,
    LanguageModel,
    LibraryError,
    MoEConfig,
    MoETransformer,
    OutOfMemoryError,
    OutOfRangeError,
    Profile,
    Sampling,
    StateError,
    Stream,
    Tensor,
    Trace,
    TrainConfig,
    Trainer,
    UnsupportedError,
    from_dlpack,
    generate,
    kernels,
)
from nncuda.infer import CacheFullError, TextGenerator, generate_batch, room
from nncuda.infer import Event as Token
from nncuda.models import (
    PRESETS,
    LlamaConfig,
    ParameterArena,
    ParameterLayout,
    ParameterSpec,
    Rope,
    StoredModel,
    StoredTensors,
    config_from_mixtral,
    config_to_mixtral,
    initialize,
    parameters_from_mixtral,
)
from nncuda.train import (
    Checkpoint,
    MetricsLog,
    StepResult,
    TokenWindows,
    TrainingRun,
    list_checkpoints,
    load_model,
    read_metrics,
    resolve_checkpoint,
)

DType = Literal["f32", "f16", "bf16", "i32", "i8", "i64", "u8"]


def tensors(ctx: Context) -> None:
    x = ctx.tensor([[1.0, 2.0]], "bf16")
    for other in (np.float32, np.dtype("float16"), ml_dtypes.bfloat16, "float32"):
        ctx.zeros((2, 3), other)
    ctx.empty(3, np.float32)
    ctx.host_array([3, np.int64(4)], "i32")
    assert_type(x.dtype, DType)
    assert_type(x.shape, tuple[int, ...])
    assert_type(x.item(), float | int)
    assert_type(x + x * 2 - x / 3, Tensor)
    assert_type(-x, Tensor)
    assert_type(2 * x, Tensor)
    x += 1
    assert_type(x[0], Tensor)
    assert_type(x[0:2].T.reshape(-1).to("f32"), Tensor)
    assert_type(list(x), list[Tensor])
    assert_type(memoryview(x).nbytes, int)
    x[0] = np.zeros(2)
    array: np.ndarray[Any, Any] = np.asarray(x)
    assert_type(from_dlpack(array, ctx), Tensor)
    assert_type(nncuda.__version__, str)


def kernel_calls(x: Tensor, weight: Tensor) -> None:
    assert_type(kernels.softmax(x), Tensor)
    assert_type(kernels.rmsnorm(x, weight, eps=1e-6), Tensor)
    assert_type(kernels.rmsnorm(x, weight, eps=1e-6, rstd=True), tuple[Tensor, Tensor])
    assert_type(kernels.rmsnorm_residual(x, x, weight, eps=1e-6), tuple[Tensor, Tensor])
    assert_type(kernels.softmax_topk(x, k=2), tuple[Tensor, Tensor, Tensor])
    assert_type(kernels.cast(x, dtype_y="bf16"), Tensor)
    assert_type(kernels.normal(ctx=x.ctx, n=(3, 4), seed=1, dtype=np.float32), Tensor)
    assert_type(kernels.gemm_epilogue(x, weight, activation="silu"), Tensor)
    assert_type(kernels.ROPE_HALF, int)


def contexts() -> None:
    with Context("auto", threads=2, isa="avx2") as ctx:
        with ctx.capture() as graph:
            kernels.silu(ctx.zeros(3))
        assert_type(graph, Graph)
        graph.launch()
        stream, event = ctx.stream(), ctx.event()
        assert_type(stream, Stream)
        assert_type(event, Event)
        with ctx.profile() as profile, ctx.trace() as trace:
            pass
        assert_type(profile, Profile)
        assert_type(trace, Trace)
        assert_type(ctx.memory_info(), tuple[int, int])


def models(ctx: Context) -> None:
    config = MoEConfig.preset("small")
    model = MoETransformer(ctx, config, seed=1, precision="bf16")
    assert_type(model.forward([[1, 2]]), Tensor)
    assert_type(model.evaluate(np.zeros((1, 2), np.int64), ctx.tensor([[1, 2]])), tuple[float, int])
    assert_type(model.state_dict(), dict[str, Tensor])
    for name, tensor in model.parameters():
        assert_type(name, str)
        assert_type(tensor, Tensor)
    model.save(Path("folder"))
    assert_type(MoETransformer.load("folder"), MoETransformer)
    arena = ParameterArena(ctx, ParameterLayout(config))
    initialize(arena, config, 1)
    assert_type(list(ParameterLayout(config)), list[ParameterSpec])
    assert_type(config_from_mixtral(config_to_mixtral(config)), MoEConfig)
    parameters_from_mixtral(arena.arrays())
    assert_type(StoredModel.open("model.gguf").config, LlamaConfig)
    assert_type(StoredModel.open("model.gguf").config.rope, Rope)
    assert_type(StoredModel.open("model.gguf").tensors, StoredTensors)
    assert_type(PRESETS, dict[str, dict[str, object]])


def training(model: MoETransformer, ids: list[list[int]]) -> float:
    trainer = Trainer(model, TrainConfig(steps=3, moments="f8"))
    result = trainer.train_step(input_ids=ids, targets=ids)
    assert_type(result, StepResult)
    trainer.save_checkpoint("folder")
    assert_type(Trainer.load("folder", model.ctx).step, int)
    checkpoint = Checkpoint(resolve_checkpoint("run"))
    assert_type(checkpoint.trainer(model.ctx), Trainer)
    assert_type(list_checkpoints("run"), list[Path])
    assert_type(load_model("run", model.ctx)[0], MoETransformer)
    run = TrainingRun.resume("run", model.ctx, "data")
    assert_type(run.data, TokenWindows)
    with MetricsLog("run", 0) as log:
        log.write({"loss": 1.0})
    print(read_metrics("run"))
    return result.loss


def generation(model: MoETransformer, texts: TextGenerator) -> None:
    assert_type(generate(model, [1, 2], 3, Sampling(temperature=0.5)), Iterator[int])
    assert_type(generate_batch(model, [[1], np.array([2])], 3), Iterator[list[int | None]])
    assert_type(texts.stream("Once", 3), Iterator[str])
    assert_type(room(model, 3), int)
    with LanguageModel.load("model.gguf", device="cpu") as language_model:
        prompts: list[str | list[int]] = ["a", [1, 2]]
        for event in language_model.generate(prompts, 3):
            assert_type(event, Token)
            assert_type(event.text, str)
        assert_type(language_model.complete("a"), str)
        assert_type(language_model.complete(["a", "b"]), list[str])
        assert_type(language_model.complete([1, 2]), str)
        assert_type(language_model.stream("a", stop="."), Iterator[str])
        assert_type(language_model.chat([{"role": "user", "content": "a"}]), Iterator[str])


def errors(call: Callable[[], None]) -> Error | None:
    try:
        call()
    except (ArgumentError, DeviceError, DeviceNotFoundError, LibraryError, OutOfMemoryError) as error:
        return error
    except (OutOfRangeError, StateError, UnsupportedError) as error:
        assert_type(error.status, int)
        return error
    except CacheFullError:
        pass
    return None
