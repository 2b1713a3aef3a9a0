"""Which tests are near a source: the likeliest to notice a mistake in it."""

from __future__ import annotations

import re

_REFUSALS = "abi/test_bad_* abi/test_sentences abi/test_aliasing"
#: For the first of these that the path begins with: names of test files, patterns of `Path.glob`, and what the names of
#: the tests in them must have, behind "-k", as pytest has it; `\\1` is the family.
_NEAR = {
    r"cuda/cpu/quant_gemm": "kernels/test_quant_gemm golden/test_golden golden/test_large -k quant",
    r"cuda/cpu/(attention_page|paged_cache|kvcache_paged)": (
        "kernels/test_attention_paged kernels/test_kvcache_paged golden/test_golden golden/test_large -k paged"
    ),
    r"cuda/cpu/(quant|ternary|gemm|attention|decode|loss|random)": (
        r"kernels/test_\1* golden/test_golden golden/test_large golden/test_pieces -k \1"
    ),
    r"cuda/cpu/(kvcache|moe|rmsnorm)": r"golden/test_golden golden/test_large golden/test_pieces -k \1",
    r"cuda/cpu/(softmax|rope|embedding|elementwise|optimizer)": (
        r"kernels/test_rows_\1 golden/test_golden golden/test_large golden/test_pieces -k \1"
    ),
    r"cuda/cpu/": "kernels/test_rows_* kernels/test_simd golden/test_pieces",
    r"cuda/(runtime/(graph|stream|profile|trace|memory|context|pool|arena)|cpu_device/)": (
        "abi/test_context abi/test_graph abi/test_stream abi/test_profile abi/test_memory abi/test_threads"
    ),
    r"cuda/(abi/(data|random)|numbers/philox)": "kernels/test_random reference/test_philox abi/test_sentences",
    r"cuda/abi/(attention|decode|gemm|loss|quant|ternary)(_checks)?\.": rf"kernels/test_\1* {_REFUSALS}",
    r"cuda/abi/(kvcache|moe|rmsnorm)(_checks)?\.": rf"golden/test_golden {_REFUSALS}",
    r"cuda/abi/(softmax|rope|embedding|elementwise|optimizer)(_checks)?\.": rf"kernels/test_rows_\1 {_REFUSALS}",
    r"cuda/comm/(nccl|rendezvous|hmac)": "comm/test_rendezvous comm/test_nccl",
    r"cuda/comm/mpi": "comm/test_mpi",
    r"cuda/comm/experts": "comm/test_experts comm/test_queued",
    r"cuda/comm/(schedule|tree)": "comm/test_expert_schedule comm/test_tree comm/test_collectives",
    r"cuda/comm/(reduce|shards)": "comm/test_shards comm/test_collectives comm/test_parts comm/test_failures",
    r"cuda/comm/(part|collective)": "comm/test_parts comm/test_collectives comm/test_queued comm/test_failures",
    r"cuda/comm/": "comm/test_tree comm/test_collectives comm/test_update comm/test_queued comm/test_failures",
    r"cuda/kernels/": "abi/test_measuring gpu/test_gpu_workspaces",  # the C there lays out workspaces
    r"cuda/numbers/": "kernels/test_simd kernels/test_random kernels/test_rows_optimizer kernels/test_quant*",
    r"cuda/(abi|runtime)/": "abi/test_[!p]*",  # test_package compiles everything once more
    r"python/nncuda/binding/": (
        "python/test_header_reader python/test_call_sizes python/test_kernels python/test_exchange tools/* "
        "abi/test_header"
    ),
    r"python/nncuda/cli/": "python/test_cli python/test_chat python/test_plan_memory",
    r"python/nncuda/formats/\w*gguf": "python/test_gguf python/test_convert python/test_formats",
    r"python/nncuda/(formats/text|tokenizer/)": (
        "python/test_tokenizers python/test_chat_template tokenizer/test_tokenizer_fixtures"
    ),
    r"python/nncuda/(convert|formats)/ternary": "python/test_ternary_files interop/test_ternary_bytes",
    r"python/nncuda/formats/": "python/test_formats python/test_saving python/test_hostile_files",
    r"python/nncuda/(golden|reference)/": "reference/* golden/test_fixtures golden/test_golden kernels/test_rows_*",
    r"python/nncuda/infer/": (
        "python/test_generate python/test_engine python/test_drawing python/test_language_model python/test_pages "
        "python/test_chat"
    ),
    r"python/nncuda/(models/(moe|config|parameters)|layers)": (
        "python/test_training_step python/test_router python/test_generate"
    ),
    r"python/nncuda/models/": "python/test_stored_models python/test_convert python/test_gguf",
    r"python/nncuda/report/": "python/test_report",
    r"python/nncuda/(train/(replicas|aborting)|device/comm)": (
        "python/test_replicas comm/test_collectives comm/test_experts comm/test_expert_schedule comm/test_training"
    ),
    r"python/nncuda/train/plan": "python/test_plan_memory",
    r"python/nncuda/train/(checkpoint|divergence|moments)": r"python/test_\1 python/test_run",
    r"python/nncuda/train/": "python/test_training_step python/test_run python/test_precision",
    r"python/nncuda/": (
        "python/test_tensor* python/test_context_object python/test_kernels python/test_token_ids python/test_doctor"
    ),
}

#: Who else may notice, by the suffix of the source.
_FAR = {
    "c": "kernels/* abi/test_[!p]* golden/*",
    "h": "kernels/* abi/test_[!p]* golden/*",
    "py": "python/* reference/* golden/* kernels/*",
}


def near(path: str) -> list[str]:
    """The tests that are near a source: patterns from the folder tests, and perhaps -k and what names must have."""
    family, tests = next((found, tests) for pattern, tests in _NEAR.items() if (found := re.match(pattern, path)))
    return family.expand(tests).split()


def far(path: str) -> list[str]:
    """Tests of other parts too, for what the near ones let pass."""
    return _FAR[path.rpartition(".")[2]].split()
