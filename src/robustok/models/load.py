"""Load any causal language model, from a folder first and only then from the hub.

A model is loaded in the precision that the device computes fastest in. The choice depends on the
hardware and on the size of the model alone, so that a repeated run has the same bits. Low-rank
adapters are added with the paper's numbers as the default, and merged where a folder has them.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from robustok.checks import Settings, option
from robustok.errors import RobustokError, check_choice
from robustok.models.scored import CausalModel, ScoredModel
from robustok.models.served import ServedModel
from robustok.models.small import END_OF_TEXT
from robustok.runtime.files import write_json
from robustok.runtime.hub import (
    check_hub_name,
    hub_arguments,
    hub_failure,
    is_packaged,
    is_served,
    own_tokenizer,
    packaged_folder,
    packaged_hint,
    split_revision,
)
from robustok.runtime.packages import require
from robustok.tokenizer.sources import (
    auto_tokenizer,
    companions,
    names_class,
    tokenizer_files,
    whole_file,
)
from robustok.tokenizer.vocabulary import PROBES, Vocabulary, check_vocabulary

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PRECISIONS = ("auto", "float32", "bfloat16")
# Parameters from which the products outweigh the conversions between the two types.
_LEAST = 50_000_000

Overflow = Literal["error", "drop", "left", "canonical"]
OVERFLOW = get_args(Overflow)  # what to do with a row that is longer than the longest input


def overflow_option() -> Any:
    """A field of what to do with rows that are too long, in every setting that has it."""
    return option(
        "rows longer than the model's max_length: error, drop, left or canonical",
        default="error",
        metavar="POLICY",
        choices=OVERFLOW,
        noun="overflow policy",
        panel="Model",
    )


def devices() -> list[str]:
    """The devices that torch sees, the processor first."""
    import torch

    names = ["cpu"]
    names += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return names


def resolve_precision(precision: str, parameters: int, *, device: str = "cpu") -> str:
    """The precision to compute in, of one of ``PRECISIONS``: ``"float32"`` or ``"bfloat16"``.

    ``"auto"`` is bfloat16 where the type of device computes in it faster, and float32 elsewhere; on
    a processor, models of fewer than 50 million parameters stay in float32.
    """
    check_choice("precision", precision, PRECISIONS)
    if precision != "auto":
        return precision
    if device == "cpu":
        native = parameters >= _LEAST and _fast_bfloat16()
    else:
        import torch

        native = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if native else "float32"


def _fast_bfloat16() -> bool:
    """Whether products of bfloat16 are faster than those of float32 on the processor, by its flags.

    Faster with AMX, and with AVX512_BF16 on AMD; Intel's AVX512_BF16 has half the speed.
    """
    import torch

    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    intel = "Intel" in capabilities.get("cpu_name", "")
    return bool(capabilities.get("amx_bf16") or (capabilities.get("avx512_bf16") and not intel))


_log = logging.getLogger(__name__)
_LARGE = 3_000_000_000  # parameters, which would take 12 GB in float32
CAUSAL = ("ForCausalLM", "LMHeadModel", "DoubleHeadsModel", "ForConditionalGeneration")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def load_model(
    path_or_name: str | Path,
    *,
    dtype: str = "auto",
    device: str | None = None,
) -> PreTrainedModel:
    """Load a causal language model for evaluation.

    >>> model.save_pretrained("runs/model")
    >>> type(load_model("runs/model")).__name__
    'LlamaForCausalLM'

    Args:
        path_or_name: a folder, which is read without a request to the hub; a hub name with or
            without ``@revision``; or ``smollm2-135m`` or ``gemma3-270m``, small pre-trained models
            of the package index (extra ``small``). For a folder with LoRA weights, the adapter is
            merged into its base model.
        dtype: ``"auto"`` (default): what the device computes fastest in
            (:func:`~robustok.models.load.resolve_precision`), and as saved for quantized models
            and those of three billion parameters and more; or a name such as ``"float32"`` or
            ``"bfloat16"``.
        device: name of a torch device; by default ``"cuda"`` where torch sees one, else ``"cpu"``.
            A quantized model stays where its library puts it.

    No Python code of the model runs. Raises RobustokError for a model that is missing, damaged or
    not a causal language model, and for weights that are missing or not finite.
    """
    require("torch", "transformers")
    import torch

    if device is None:  # not MPS, which has no float64, in which scores are summed
        device = "cuda" if torch.cuda.is_available() else "cpu"
    with loading("model", path_or_name):
        lora = has_lora(path_or_name)
        base = base_of_lora(path_or_name) if lora else path_or_name
        model = _from_pretrained(base, dtype, device)
        if lora:
            model = merge_lora(model, path_or_name)
        if not getattr(model, "is_quantized", False):
            model = model.to(device)  # type: ignore[arg-type]
    _check_numbers(model, path_or_name)
    return model.eval()


def open_model(name: str | Path, *, dtype: str = "auto") -> CausalModel:
    """A model to score: one behind a server where its name is an address, else a loaded one.

    >>> model.save_pretrained("runs/model")
    >>> type(open_model("runs/model")).__name__
    'LlamaForCausalLM'

    Args:
        name: address of a server such as ``http://127.0.0.1:8000/v1``, or what
            :func:`load_model` takes.
        dtype: type of the weights of a loaded model, as :func:`load_model` takes it.

    Raises RobustokError as :func:`load_model` and :class:`ServedModel` do.
    """
    return ServedModel(str(name)) if is_served(name) else load_model(name, dtype=dtype)


@contextmanager
def loading(kind: str, path_or_name: str | Path) -> Iterator[None]:
    """Turn what a library raises into one line; ``kind`` is what is loaded, such as "model"."""
    try:
        yield
    except (RobustokError, ModuleNotFoundError):  # the latter: an extra that is not installed
        raise
    except Exception as e:  # whatever the libraries raise
        reason, hint = hub_failure(e), packaged_hint(path_or_name)
        if reason.endswith("the local cache does not have it"):
            reason = f"no folder has this name, {reason}"
        raise RobustokError(f"could not load the {kind} '{path_or_name}': {reason}{hint}") from e


def _from_pretrained(path_or_name: str | Path, dtype: str, device: str) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    check_model(path_or_name)
    name, where = hub_arguments(path_or_name)
    config = load_config(path_or_name)
    _check_causal(config, path_or_name)
    if dtype == "auto":
        dtype = _fastest_type(config, device)
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        name, dtype=dtype, use_safetensors=True, output_loading_info=True, **where
    )
    model, info = loaded
    missing = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if missing:
        raise RobustokError(
            f"the weights of '{path_or_name}' lack {len(missing)} of the model's ({missing[0]}): "
            "the file is damaged, or it is no causal language model"
        )
    model.hub_revision = split_revision(path_or_name)[1]  # for an adapter that is added
    return model


def _fastest_type(config: Any, device: str) -> str:
    """``"float32"`` or ``"bfloat16"``, as the device computes faster, or ``"auto"``: as saved.

    Decided before the weights are read: ``to`` would also round the frequencies of positions.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if getattr(config, "quantization_config", None) is not None:
        return "auto"
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    size = empty.num_parameters()
    if size >= _LARGE:
        return "auto"
    return resolve_precision("auto", size, device=torch.device(device).type)


def load_config(path_or_name: str | Path) -> Any:
    """The configuration of a model of a folder or the hub, without its weights.

    Raises RobustokError for a model that is missing or damaged.
    """
    from transformers import AutoConfig

    name, where = hub_arguments(path_or_name)
    with loading("model", path_or_name):
        return AutoConfig.from_pretrained(name, **where)


def _check_causal(config: Any, path_or_name: str | Path) -> None:
    """Refuse classifiers and masked language models, which would get a head of random weights.

    Of an encoder-decoder, the decoder would be read alone.
    """
    names = [name for name in config.architectures or () if "For" in name or "LMHead" in name]
    is_causal = not names or any(name.endswith(CAUSAL) for name in names)
    if not is_causal or getattr(config, "is_encoder_decoder", False):
        name = names[0] if names else type(config).__name__
        raise RobustokError(
            f"'{path_or_name}' holds a {name}, not a causal language model: give one that "
            "predicts the next token"
        )


def _check_numbers(model: PreTrainedModel, path_or_name: str | Path) -> None:
    import torch

    for name, weights in model.named_parameters():
        if weights.is_meta or not weights.is_floating_point() or weights.element_size() < 2:
            continue
        low, high = torch.aminmax(weights.detach())
        if weights.numel() and not (low.isfinite() and high.isfinite()):
            raise RobustokError(
                f"the model '{path_or_name}' has weights that are not finite numbers ({name}): "
                "it is damaged, or its training diverged"
            )


def check_model(path_or_name: str | Path) -> None:
    """Raise RobustokError for a path without a folder, and for a folder without a model.

    A valid hub name passes, whether or not the hub has it.
    """
    folder = Path(path_or_name)
    if folder.is_dir():
        if not (folder / "config.json").is_file() and not has_lora(folder):
            raise RobustokError(f"'{folder}' holds no model: it has no config.json")
    else:
        check_hub_name(str(path_or_name), "model")


def load_tokenizer(path_or_name: str | Path) -> PreTrainedTokenizerBase:
    """Load transformers' own tokenizer of a model, for its chat template.

    >>> save_tokenizer("tokenizer.json", "runs/model")
    >>> type(load_tokenizer("runs/model")).__name__
    'TokenizersBackend'

    Args:
        path_or_name: a model folder, a hub name with or without ``@revision``,
            ``smollm2-135m`` or ``demo``. A folder is read without asking the hub.

    Raises RobustokError where there is no tokenizer that transformers can load.
    """
    with loading("tokenizer of", path_or_name):
        if own := own_tokenizer(path_or_name):
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast(tokenizer_file=str(own), **_roles(own))
        return auto_tokenizer(path_or_name)


def save_tokenizer(source: str | Path, folder: str | Path) -> None:
    """Copy a model's tokenizer to the folder of its trained weights.

    >>> save_tokenizer("tokenizer.json", "runs/model")
    >>> rt.Vocabulary.load("runs/model").size == vocab.size
    True

    Args:
        source: a tokenizer.json, a folder or a hub name; files are copied unchanged where a folder
            names the class of its tokenizer.
        folder: folder of the model.

    A SentencePiece or tiktoken file is copied only where the folder then gives the same ids; a
    warning says where it is not. Raises RobustokError if there is no tokenizer.
    """
    if is_packaged(source):
        source = packaged_folder(str(source))
    source, folder = own_tokenizer(source) or Path(source), Path(folder)
    whole = source if source.is_file() else whole_file(source)
    if whole is not None and (whole == source or not companions(source)):
        is_json = whole.suffix == ".json" and whole.name != "tekken.json"
        copy = folder / ("tokenizer.json" if is_json else whole.name)
        shutil.copyfile(whole, copy)
        _name_class(folder)
        if not is_json and not _are_alike(whole, folder):
            copy.unlink()
            _log.warning(
                "%s has no tokenizer, since transformers would read %s otherwise than its own "
                "library does: name %s as the tokenizer wherever the model is used",
                folder,
                whole.name,
                whole,
            )
    elif whole is not None and names_class(source):
        for path in (*tokenizer_files(source), source / "chat_template.jinja"):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
    else:  # config.json decides, which is another one in the new folder
        load_tokenizer(str(source)).save_pretrained(str(folder))


def _are_alike(file: Path, folder: Path) -> bool:
    """Whether a folder with a copy of a tokenizer's file gives the ids that the file gives."""
    try:
        rows = [Vocabulary.load(source).encode_batch(PROBES) for source in (file, folder)]
    except RobustokError:
        return False
    return all(np.array_equal(a, b) for a, b in zip(*rows, strict=True))


def _name_class(folder: Path) -> None:
    """Make transformers read tokenizer.json as it is, and say which token ends a text."""
    file = folder / "tokenizer.json"
    if file.is_file():
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **_roles(file)}
        write_json(folder / "tokenizer_config.json", config)


def _roles(file: Path) -> dict[str, str]:
    """The roles of the end-of-text token, which a tokenizer.json does not say."""
    is_known = END_OF_TEXT in file.read_text(encoding="utf-8")
    roles = ("bos_token", "eos_token", "pad_token") if is_known else ()
    return dict.fromkeys(roles, END_OF_TEXT)


def max_length_of(model: PreTrainedModel) -> int | None:
    """The model's longest input, in tokens; None where its configuration has none."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


def config_token(model: PreTrainedModel, *names: str) -> int | None:
    """The first id that a model's configuration has under these names, such as "bos_token_id"."""
    config = model.config.get_text_config()  # of a model that sees images, too
    values = (getattr(config, name, None) for name in names)
    return next((value for value in values if isinstance(value, int) and value >= 0), None)


def check_fit(model: PreTrainedModel, vocab: Vocabulary) -> None:
    """Raise RobustokError where the vocabulary has ids that the model has no embedding for.

    >>> from robustok.models import small_model
    >>> try:
    ...     check_fit(small_model(270, "quick", seed=0), vocab)
    ... except RobustokError as error:
    ...     print(error)
    the vocabulary has 278 ids but the model 270 embeddings: give the model's own tokenizer

    Args:
        model: a causal language model of transformers.
        vocab: the vocabulary of the ids that it will see.
    """
    rows = len(model.get_input_embeddings().weight)  # type: ignore[arg-type]
    if check_vocabulary(vocab).size > rows:
        raise RobustokError(
            f"the vocabulary has {vocab.size} ids but the model {rows} embeddings: "
            "give the model's own tokenizer"
        )


def check_local(model: CausalModel, what: str) -> PreTrainedModel:
    """The model, or RobustokError where it is served; ``what`` needs its weights or its states."""
    if isinstance(model, ScoredModel):
        raise RobustokError(
            f"{what} a model of this process, and {model} is behind a server: give its folder"
        )
    return model


def model_fingerprint(model: PreTrainedModel) -> str:
    """A short hash of the configuration and of every weight, as numbers of 32 bits.

    Empty in a process that holds no weights, as all but the first before they are sharded.
    """
    digest = hashlib.blake2b(model.config.to_json_string().encode(), digest_size=8)
    for name, weights in model.named_parameters():
        if weights.is_meta:
            return ""
        digest.update(name.encode())
        digest.update(weights.detach().float().cpu().contiguous().numpy().data)
    return digest.hexdigest()


@lru_cache
def pinned(name: str, kind: str = "model") -> str:
    """A hub name with its present commit, ``owner/name@commit``; paths stay as they are.

    Asks the hub, or else its cache on this machine. The name comes back unchanged where neither
    knows it. ``kind`` is "model" or "dataset".
    """
    if Path(name).exists() or is_packaged(name) or own_tokenizer(name):
        return name
    repository, revision = split_revision(name)
    if revision and _COMMIT.fullmatch(revision):
        return name
    commit = _present_commit(repository, revision, kind)
    return f"{repository}@{commit}" if commit else name


def _present_commit(repository: str, revision: str | None, kind: str) -> str | None:
    from huggingface_hub import HfApi, snapshot_download

    api = HfApi()
    # The client raises many kinds of errors; loading reports what is wrong.
    with suppress(Exception):
        return api.repo_info(repository, revision=revision, repo_type=kind, timeout=10).sha
    with suppress(Exception):
        cached = snapshot_download(
            repository, revision=revision, repo_type=kind, local_files_only=True
        )
        return Path(cached).name
    return None


@dataclass(frozen=True)
class Lora(Settings):
    """Low-rank adapters instead of all weights; the defaults are the paper's.

    >>> Lora(rank=16)
    Lora(rank=16, alpha=32.0, dropout=0.05)

    Raises RobustokError for a value out of range.
    """

    rank: int = option("rank of the adapters", default=8, min=1)
    alpha: float = option("scale of the adapters, divided by the rank", default=32.0, gt=0)
    dropout: float = option(
        "probability that an input of an adapter is set to zero", default=0.05, min=0, lt=1
    )


def add_lora(model: PreTrainedModel, lora: Lora = Lora(), *, seed: int) -> PeftModel:
    """Freeze a model and add low-rank adapters, which alone are trained and saved.

    >>> light = add_lora(model, seed=0)
    >>> light.num_parameters(only_trainable=True) < 0.02 * light.num_parameters()
    True

    Args:
        model: a causal language model of transformers; it is changed in place.
        lora: rank, scale and dropout of the adapters.
        seed: any integer that torch accepts; it decides the initial weights of the adapters.

    The layers are peft's choice for the architecture (``q_proj`` and ``v_proj`` of a Llama).
    :func:`load_model` on the trained folder merges the adapter into its base model, which must
    still be where it was loaded from.

    Raises RobustokError for an architecture without default LoRA layers in peft, and for a model
    into which :func:`load_model` merged an adapter: the new one would belong to its base.
    Source: the paper's table "Supervised fine-tuning for Hugging Face models".
    """
    import torch
    from peft import LoraConfig, TaskType, get_peft_model

    if merged := getattr(model, "merged_adapter", None):
        raise RobustokError(
            f"the model has the LoRA weights of '{merged}', which a new adapter would lose: train "
            "all weights, or save it with save_pretrained and load that folder"
        )
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]
        lora_dropout=lora.dropout,
        task_type=TaskType.CAUSAL_LM,
    )
    with torch.random.fork_rng(), _quiet():
        torch.manual_seed(seed)
        try:
            revision = getattr(model, "hub_revision", None)
            light = get_peft_model(model, config, revision=revision)
        except ValueError as e:
            reason = str(e).strip().split("\n")[0]
            raise RobustokError(f"cannot add LoRA: {reason}; use peft's get_peft_model") from e
    base = config.base_model_name_or_path
    if base and Path(base).is_dir():  # to be found from any working directory
        config.base_model_name_or_path = str(Path(base).resolve())
    return light  # type: ignore[return-value]


def has_lora(path_or_name: str | Path) -> bool:
    """Whether this is a folder of LoRA weights, which belong to a base model elsewhere."""
    return (Path(path_or_name) / "adapter_config.json").is_file()


def base_of_lora(folder: str | Path) -> str:
    """The path or name, with its revision, of the model that a folder's LoRA weights belong to."""
    from peft import PeftConfig

    config = PeftConfig.from_pretrained(str(folder))
    base = str(config.base_model_name_or_path)
    return f"{base}@{config.revision}" if config.revision and not Path(base).exists() else base


def merge_lora(model: PreTrainedModel, folder: str | Path) -> PreTrainedModel:
    """The base model with the LoRA weights of a folder added into its own."""
    from peft import PeftModel
    from peft.utils import SAFETENSORS_WEIGHTS_NAME

    if not (Path(folder) / SAFETENSORS_WEIGHTS_NAME).is_file():  # else peft loads a pickle
        raise RobustokError(f"'{folder}' has no {SAFETENSORS_WEIGHTS_NAME}: save the adapter anew")
    with _quiet(), warnings.catch_warnings():
        warnings.filterwarnings("error", "Found missing adapter keys")
        try:
            tuned: Any = PeftModel.from_pretrained(model, str(folder))
        except UserWarning:
            raise RobustokError(
                f"the adapter in '{folder}' lacks weights: the file is damaged"
            ) from None
        if tuned.active_peft_config.is_prompt_learning:
            raise RobustokError(
                f"the adapter in '{folder}' is a tuned prompt, which cannot be merged into "
                "weights: give a model without it, or with LoRA"
            )
        merged: Any = tuned.merge_and_unload()
    for weights in merged.parameters():  # frozen while they had an adapter
        weights.requires_grad_(weights.is_floating_point())
    merged.merged_adapter = str(folder)
    return merged


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a warning that peft causes: it reads an attribute that transformers renamed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        yield
