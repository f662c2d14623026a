"""How each kind of cell is done. A function gets the cell, its folder and its inputs' folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from robustok.files import read_json, write_json, write_rows, write_whole
from robustok.study.plan import Cell
from robustok.study.schema import Training
from robustok.study.text import learned_from, read_corpus, write_corpus
from robustok.tasks import (
    Item,
    cute,
    frequent_words,
    langgame,
    read_items,
    write_items,
)

Progress = Callable[[int, int], None]
Summary = dict[str, Any]
MAKERS = {"langgame": langgame, "cute": cute}


def make_data(cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress) -> Summary:
    fields = cell.fields
    words = fields["words"]
    words = frequent_words(words) if isinstance(words, int) else words
    make = MAKERS[fields["kind"]]
    for split in ("train", "test"):
        items = make(words, fields[split], seed=fields["seed"], split=split)
        write_items(folder / f"{split}.jsonl", items)
        progress(1 if split == "train" else 2, 2)
    return {"words": len(words), "train": fields["train"], "test": fields["test"]}


def read_one_benchmark(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    source = cell.files.get("file", cell.fields["name"])
    items = read_items(source, limit=cell.fields["items"])
    write_items(folder / "test.jsonl", items)
    return {"items": len(items)}


def make_tokenizer(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    from robustok.models import train_tokenizer

    if "name" in cell.fields:
        write_json(folder / "name.json", cell.files["name"])
        vocab = _vocabulary({"tokenizer": folder})
        return {"size": vocab.size, "fingerprint": vocab.fingerprint}
    if "data" in inputs:
        items = read_items(inputs["data"] / "train.jsonl")
        texts = [item.query + item.answer for item in items]
    else:
        texts = learned_from(cell.fields["text"], cell.files)
    tokenizer = train_tokenizer(texts, cell.fields["size"])
    write_whole(folder / "tokenizer.json", tokenizer.to_str())
    return {"size": tokenizer.get_vocab_size()}


def make_corpus(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    return write_corpus(cell.fields, cell.files, _vocabulary(inputs), folder, progress)


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


def load_base_model(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    """A model that exists stays where it is; that it loads is seen before anything is trained."""
    from robustok.models import load_model

    write_json(folder / "name.json", cell.files["name"])
    return {"parameters": load_model(cell.files["name"]).num_parameters()}


def make_pretrained_model(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    """A small model from random weights, trained on text or on the task with its tokenizer."""
    from robustok.models import Shape, small_model
    from robustok.special_tokens import end_of_text

    shape = Shape(**cell.fields["model"])
    vocab = _vocabulary(inputs)
    end_id = end_of_text(vocab, cell.fields.get("end_of_text"))
    model = small_model(vocab.size, shape, seed=cell.fields["seed"], end_id=end_id)
    return _train(cell, model, folder, inputs, progress)


def make_finetuned_model(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    from robustok.models import add_lora, load_model

    model = load_model(_model_of(inputs), dtype="float32")
    if cell.fields["lora"]:
        model = add_lora(model, seed=cell.fields["seed"], **cell.fields["lora"])
    return _train(cell, model, folder, inputs, progress)


def _train(
    cell: Cell, model: Any, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    """Train on questions, drawn anew at every step and the answer alone in the loss, or on text."""
    from robustok.models import save_tokenizer
    from robustok.samplers import sampler
    from robustok.training import finetune, pretrain

    fields = cell.fields
    vocab = _vocabulary(inputs)
    settings: dict[str, Any] = {
        name: fields[field.serialization_alias or name]
        for name, field in Training.model_fields.items()
    }
    settings |= {"seed": fields["seed"], "out": folder / "model", "progress": progress}
    draw = sampler(fields["scheme"], vocab)
    if "corpus" in inputs:
        text = read_corpus(inputs["corpus"])
        settings["end"] = fields.get("end_of_text")
        training = pretrain(model, vocab, text, sampler=draw, **settings)
    else:
        items = read_items(inputs["data"] / "train.jsonl")
        # A question that splitting makes too long keeps its canonical tokens, and is counted.
        training = finetune(model, vocab, items, sampler=draw, overflow="canonical", **settings)
    # Beside its weights, so that the folder is a model that every other command takes as it is.
    save_tokenizer(_tokenizer_of(inputs), folder / "model")
    return {
        "parameters": model.num_parameters(),
        "last_loss": training.losses[-1][1] if training.losses else None,
        "tokens": training.tokens,
        "overflowed": training.overflowed,
    }


def measure_perplexity(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    from robustok.evaluation import perplexity
    from robustok.models import load_model

    result = perplexity(
        load_model(_model_of(inputs)),
        _vocabulary(inputs),
        read_json(inputs["corpus"] / "held_out.json"),
        cell.fields["query"],
        seed=cell.fields["seed"],
        progress=progress,
    )
    return asdict(result)


def measure_embeddings(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    from robustok.evaluation import embedding_distances
    from robustok.models import load_model

    fields = cell.fields
    result = embedding_distances(
        load_model(_model_of(inputs)),
        _vocabulary(inputs),
        frequent_words(fields["words"]),
        draws=fields["draws"],
        seed=fields["seed"],
        name=_named(cell.inputs["model"]),
        progress=progress,
    )
    return {"query": "embeddings", "layers": result.table()}


def _named(model: Cell) -> str:
    """A model's name in a figure of many: a base is not taken for what was trained from it."""
    return model.trained if model.kind == "finetune" else "before fine-tuning"


def evaluate_model(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    from robustok.evaluation import evaluate
    from robustok.models import load_model
    from robustok.samplers import sampler

    fields = cell.fields
    vocab = _vocabulary(inputs)
    items, context = _asked(cell, inputs, vocab)
    result = evaluate(
        load_model(_model_of(inputs)),
        vocab,
        items,
        sampler(fields["query"], vocab),
        draws=fields["draws"],
        seed=fields["seed"],
        context=context,
        overflow="left",
        progress=progress,
    )
    return _measured(result, items, folder)


def attack_model(
    cell: Cell, folder: Path, inputs: Mapping[str, Path], progress: Progress
) -> Summary:
    from robustok.evaluation import attack_items
    from robustok.models import load_model

    fields = cell.fields
    vocab = _vocabulary(inputs)
    items, context = _asked(cell, inputs, vocab)
    result = attack_items(
        load_model(_model_of(inputs)),
        vocab,
        items,
        distances=tuple(fields["distances"]),
        start=fields["start"],
        steps=fields["steps"],
        objective=fields["objective"],
        seed=fields["seed"],
        context=context,
        progress=progress,
    )
    return _measured(result, items, folder) | {"start_accuracy": result.start_accuracy}


def _asked(cell: Cell, inputs: Mapping[str, Path], vocab: Any) -> tuple[list[Item], Any]:
    """The questions, and the solved examples before them: of the training questions if there are
    any, else the last ones, which are then not asked."""
    from robustok.evaluation import solved_examples

    fields = cell.fields
    items = read_items(inputs["data"] / "test.jsonl")
    if "context" not in fields:
        return items[: fields["items"]], None
    training, shots = inputs["data"] / "train.jsonl", fields["shots"]
    if training.is_file():
        solved = read_items(training)[:shots]
    else:
        items, solved = items[:-shots], items[-shots:]
    context = solved_examples(vocab, solved, fields["context"], seed=fields["seed"])
    return items[: fields["items"]], context


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
    } | ({"overflowed": result.overflowed} if getattr(result, "overflowed", 0) else {})


def _vocabulary(inputs: Mapping[str, Path]) -> Any:
    from robustok.vocabulary import Vocabulary

    return Vocabulary.load(_tokenizer_of(inputs))


def _tokenizer_of(inputs: Mapping[str, Path]) -> str:
    named = inputs["tokenizer"] / "name.json"
    return read_json(named) if named.is_file() else str(inputs["tokenizer"] / "tokenizer.json")


def _model_of(inputs: Mapping[str, Path]) -> str | Path:
    named = inputs["model"] / "name.json"
    return read_json(named) if named.is_file() else inputs["model"] / "model"


KINDS: dict[str, Callable[[Cell, Path, Mapping[str, Path], Progress], Summary]] = {
    "data": make_data,
    "benchmark": read_one_benchmark,
    "tokenizer": make_tokenizer,
    "examples": make_examples,
    "corpus": make_corpus,
    "base": load_base_model,
    "pretrain": make_pretrained_model,
    "finetune": make_finetuned_model,
    "evaluate": evaluate_model,
    "attack": attack_model,
    "perplexity": measure_perplexity,
    "embeddings": measure_embeddings,
}
