"""Mistakes that `mypy --strict` finds in a program, each with the code of its error."""

from __future__ import annotations

import nncuda
from nncuda import Context, LanguageModel, MoEConfig, MoETransformer, Sampling, Tensor, TrainConfig, Trainer, kernels
from nncuda.infer import generate


def dtypes(ctx: Context, x: Tensor) -> None:
    ctx.zeros((2, 3), "f31")  # error: arg-type
    ctx.tensor([1], dtype="float64")  # error: arg-type
    ctx.empty(3, None)  # error: arg-type
    x.to("half")  # error: arg-type
    kernels.cast(x, dtype_y="i32")  # error: arg-type
    kernels.gemm(x, x, dtype_c="f33")  # error: arg-type
    if x.dtype == "f64":  # error: comparison-overlap
        pass


def attributes(ctx: Context, x: Tensor, model: MoETransformer, trainer: Trainer) -> None:
    print(x.shap)  # error: attr-defined
    x.cuda()  # error: attr-defined
    ctx.sync()  # error: attr-defined
    nncuda.tensor([1])  # error: attr-defined
    nncuda.zeros(3)  # error: attr-defined
    kernels.relu(x)  # error: attr-defined
    model.eval()  # error: attr-defined
    trainer.step()  # error: operator


def calls(x: Tensor, model: MoETransformer, language_model: LanguageModel) -> None:
    kernels.softmax([1.0])  # error: arg-type
    kernels.rmsnorm(x, x)  # error: call-overload
    kernels.gemm_epilogue(x, x, activation="relu")  # error: arg-type
    kernels.rmsnorm(x, x, eps=1e-6, rstd=True).numpy()  # error: attr-defined
    print(x == x)  # error: operator
    x / x  # error: operator
    x + "1"  # error: operator
    x[0, 1]  # error: index
    generate(model, "text", 3)  # error: arg-type
    language_model.generate(3)  # error: arg-type
    language_model.stream("a", stops=".")  # error: call-arg
    MoEConfig(hidden=3)  # error: call-arg
    TrainConfig(precision="f64")  # error: arg-type
    Sampling(top_k="3")  # error: arg-type
    MoETransformer.load("folder", "cuda")  # error: arg-type
