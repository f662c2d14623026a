"""robustok pretrain and finetune: train a model on tokenizations drawn anew at every step."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import click

from robustok import training
from robustok.checks import Settings
from robustok.cli.options import TEXTS, Argument, folder_option, option, sample_by_option
from robustok.cli.printing import print_json
from robustok.cli.terminal import bar
from robustok.errors import RobustokError, check_choice
from robustok.models import SHAPES, add_lora, load_model, small_model
from robustok.runtime.display import counted
from robustok.runtime.files import JsonObject
from robustok.samplers import schedule
from robustok.tasks import read_questions, read_texts
from robustok.tokenizer.vocabulary import Vocabulary, end_of_text, start_token_ids
from robustok.training.recipe import (
    PRESETS,
    Finetuning,
    Recipe,
    check_output,
    save_tokenizers,
)


@dataclass(frozen=True, kw_only=True)
class _Preset(Settings):
    preset: str | None = option(
        f"the paper's settings: {', '.join(PRESETS)}", default=None, metavar="NAME"
    )


@dataclass(frozen=True, kw_only=True)
class _Pretraining(_Preset, Recipe):
    shape: str = option(
        "tiny-llm (the paper's) or quick",
        default="tiny-llm",
        metavar="NAME",
        choices=SHAPES,
        noun="model shape",
    )
    scale: float = option("factor of the shape's width and depth, such as 0.25", default=1.0)
    end: str | None = option(
        "token after each document  [default: the tokenizer's end of text]",
        default=None,
        metavar="TOKEN",
    )


@dataclass(frozen=True, kw_only=True)
class _Finetuning(_Preset, Finetuning):
    lora: bool = option(
        "train low-rank adapters, as the paper's, instead of all weights", default=False
    )
    start_token: str | None = option(
        "special token before every question  [default: none]", default=None, metavar="TOKEN"
    )


def pretrain(
    texts: Annotated[tuple[Path, ...], Argument("TEXTS", TEXTS)],
    tokenizer: str,
    scheme: str,
    seed: int,
    *,
    out: Path = folder_option("folder of the trained model", required=True),
    settings: Annotated[dict, _Pretraining],
    sample_by: str = sample_by_option(),
    as_json: bool = False,
) -> None:
    """Train a small model on drawn tokenizations.

    It has the Llama architecture and starts from random weights. The same call goes on after an
    interruption, also under `accelerate launch -m robustok pretrain ...`.
    """
    plan = _Pretraining.of(_with_preset(settings))
    check_output(out, tokenizer)
    vocab = Vocabulary.load(tokenizer)
    draw = schedule(scheme, vocab)
    end_id = end_of_text(vocab, plan.end)
    shape = SHAPES[plan.shape].scaled(plan.scale)
    with bar(f"pretrain {draw.spec}") as progress:
        done = training.pretrain(
            small_model(vocab.size, shape, seed=seed, end_id=end_id),
            vocab,
            read_texts(texts, sample_by=sample_by),
            sampler=draw,
            seed=seed,
            out=out,
            end=end_id,
            progress=progress,
            **_fields(plan, Recipe),
        )
    save_tokenizers(tokenizer, out)
    _print(done, draw.spec, out, as_json)


def finetune(
    model: str,
    *,
    items: str = option(
        "JSON Lines with question, choices and label, or with prompt and answer; or a benchmark "
        "on the hub",
        metavar="FILE",
    ),
    tokenizer: str | None = option(
        "that of the model  [default: its own]", "--tokenizer", "-t", default=None, metavar="PATH"
    ),
    scheme: str,
    seed: int,
    out: Path = folder_option("folder of the trained model", required=True),
    settings: Annotated[dict, _Finetuning],
    as_json: bool = False,
) -> None:
    """Fine-tune MODEL on drawn tokenizations.

    The question is drawn with SCHEME, the answer stays canonical and is alone in the loss. A
    strength may change as it trains: 'stochastok(alpha=0.1->1)'. The same call goes on after an
    interruption, also under `accelerate launch -m robustok finetune ...`.
    Evaluate with the same --start-token.
    """
    plan = _Finetuning.of(_with_preset(settings))
    check_output(out, model, tokenizer)
    questions = read_questions(items)
    vocab = Vocabulary.load(tokenizer or model)
    draw = schedule(scheme, vocab)
    trained: Any = load_model(model, dtype="float32", device="cpu")
    if plan.lora:
        trained = add_lora(trained, seed=seed)
    prefix = tuple(start_token_ids(vocab, plan.start_token))
    with bar(f"finetune {draw.spec}") as progress:
        done = training.finetune(
            trained,
            vocab,
            questions,
            sampler=draw,
            seed=seed,
            out=out,
            progress=progress,
            **_fields(plan.replaced(prefix=prefix), Finetuning),
        )
    save_tokenizers(tokenizer or model, out)
    _print(done, draw.spec, out, as_json)


def _fields(plan: Any, settings: Any) -> dict[str, Any]:
    return {one.name: getattr(plan, one.name) for one in fields(settings)}


def _with_preset(given: JsonObject) -> JsonObject:
    """The preset's settings, replaced by those that are given."""
    settings = given
    if "preset" in given:
        settings = asdict(PRESETS[check_choice("preset", given["preset"], PRESETS)]) | given
    needed = ("steps", "batch_size", "learning_rate")
    if missing := [f"--{n.replace('_', '-')}" for n in needed if n not in settings]:
        raise RobustokError(f"give {' and '.join(missing)}, or a --preset ({', '.join(PRESETS)})")
    return settings


def _print(done: Any, spec: str, out: Path, as_json: bool) -> None:
    speed = done.tokens_per_second
    if as_json:
        print_json({**vars(done), "scheme": spec, "tokens_per_second": speed})
        return
    last = f"last loss {done.losses[-1][1]:.3f}, " if done.losses else ""
    steps = counted(done.steps, "step")
    click.echo(f"{steps} in {done.precision}, {last}{speed:,.0f} tokens/s: {out}")
