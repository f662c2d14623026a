"""How each kind of cell is done. A function gets the cell, its folder and its inputs' folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robustok.study.config import Training
from robustok.study.plan import Cell
from robustok.study.store import write_json, write_rows, write_whole
from robustok.tasks import Item, frequent_words, langgame, read_items, write_items

Progress = Callable[[int, int], None]
Summary = dict[str, Any]


def make_data(cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress) -> Summary:
    fields = cell.fields
    words = fields["words"]
    words = frequent_words(words) if isinstance(words, int) else words
    for split in ("train", "test"):
        items = langgame(words, fields[split], seed=fields["seed"], split=split)
        write_items(folder / f"{split}.jsonl", items)
        progress(1 if split == "train" else 2, 2)
    return {"words": len(words), "train": fields["train"], "test": fields["test"]}


def make_tokenizer(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    from robustok.models import train_tokenizer

    items = read_items(inputs["data"] / "train.jsonl")
    texts = [item.query + item.answer for item in items]
    tokenizer = train_tokenizer(texts, cell.fields["size"])
    write_whole(folder / "tokenizer.json", tokenizer.to_str())
    return {"size": tokenizer.get_vocab_size()}


def make_examples(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    """Draws of every scheme for a few texts, as the bytes of their tokens."""
    from robustok.samplers import sampler

    vocab = _vocabulary(inputs)
    fields = cell.fields
    shown = []
    for text in fields["texts"]:
        for scheme in fields["schemes"]:
            draw = sampler(scheme, vocab)
            count = 1 if scheme == "canonical" else fields["draws"]
            rows = draw.sample_batch([text], seed=fields["seed"], draws=count)
            pieces = [[vocab.tokens[i].decode("latin-1") for i in row] for row in rows]
            shown.append({"text": text, "scheme": scheme, "draws": pieces})
    write_json(folder / "examples.json", shown)
    return {"texts": len(fields["texts"])}


def make_base_model(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    """A small model from random weights, trained on the task with its tokenizer."""
    from robustok.models import Shape, tiny_llama

    shape = Shape(**cell.fields["model"])
    model = tiny_llama(_vocabulary(inputs).size, shape, seed=cell.fields["seed"])
    return _train(cell, model, folder, inputs, progress)


def make_finetuned_model(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    from robustok.models import load_model

    model = load_model(inputs["model"] / "model")
    return _train(cell, model, folder, inputs, progress)


def _train(
    cell: Cell, model: Any, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    """Train with the question drawn anew at every step and the answer alone in the loss."""
    from robustok.samplers import sampler
    from robustok.training import finetune

    fields = cell.fields
    vocab = _vocabulary(inputs)
    training = finetune(
        model,
        vocab,
        read_items(inputs["data"] / "train.jsonl"),
        sampler=sampler(fields["scheme"], vocab),
        seed=fields["seed"],
        out=folder / "model",
        progress=progress,
        **{name: fields[name] for name in Training.model_fields},
    )
    # Beside its weights, so that the folder is a model that every other command takes as it is.
    tokenizer = (inputs["tokenizer"] / "tokenizer.json").read_bytes()
    write_whole(folder / "model" / "tokenizer.json", tokenizer)
    return {
        "parameters": model.num_parameters(),
        "last_loss": training.losses[-1][1] if training.losses else None,
        "tokens": training.tokens,
    }


def evaluate_model(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    from robustok.evaluation import evaluate
    from robustok.models import load_model
    from robustok.samplers import sampler

    fields = cell.fields
    vocab = _vocabulary(inputs)
    items = read_items(inputs["data"] / "test.jsonl")[: fields["items"]]
    result = evaluate(
        load_model(inputs["model"] / "model"),
        vocab,
        items,
        sampler(fields["query"], vocab),
        draws=fields["draws"],
        seed=fields["seed"],
        progress=progress,
    )
    return _measured(result, items, folder)


def attack_model(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    from robustok.evaluation import attack_items
    from robustok.models import load_model

    fields = cell.fields
    items = read_items(inputs["data"] / "test.jsonl")[: fields["items"]]
    result = attack_items(
        load_model(inputs["model"] / "model"),
        _vocabulary(inputs),
        items,
        distances=tuple(fields["distances"]),
        start=fields["start"],
        steps=fields["steps"],
        objective=fields["objective"],
        seed=fields["seed"],
        progress=progress,
    )
    return _measured(result, items, folder) | {"start_accuracy": result.start_accuracy}


def _measured(result: Any, items: Sequence[Item], folder: Path) -> Summary:
    write_rows(folder / "items.jsonl", result.table())
    return {
        "query": result.query,
        "accuracy": result.accuracy,
        "low": result.low,
        "high": result.high,
        "n": result.n,
        "draws": result.draws,
        "chance": sum(1 / len(item.choices) for item in items) / len(items),
    }


def _vocabulary(inputs: Mapping[str, Path]) -> Any:
    from robustok.vocabulary import Vocabulary

    return Vocabulary.load(str(inputs["tokenizer"] / "tokenizer.json"))


KINDS: dict[str, Callable[[Cell, Path, Mapping[str, Path], Progress], Summary]] = {
    "data": make_data,
    "tokenizer": make_tokenizer,
    "examples": make_examples,
    "pretrain": make_base_model,
    "finetune": make_finetuned_model,
    "evaluate": evaluate_model,
    "attack": attack_model,
}
