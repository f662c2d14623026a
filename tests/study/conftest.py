"""Studies of seconds, and the run of one, that several files of tests share."""

import json
from pathlib import Path
from typing import Any

import pytest

from robustok.runtime.inputs import read_rows
from robustok.study import Study, load_study, run_study

QUICK = (Path(__file__).parent / "study.yaml").read_text(encoding="utf-8")
TRAINING = {"schemes": ["canonical"], "steps": 1, "batch_size": 8, "learning_rate": 1e-3}
TINY: dict[str, Any] = {
    "name": "tiny",
    "title": "A study of seconds",
    "seed": 0,
    "task": {"kind": "langgame", "format": "short", "words": 40, "train": 64, "test": 12},
    "tokenizer": {"size": 300},
    "model": {
        "layers": 1, "width": 16, "heads": 2, "kv_heads": 2, "feed_forward": 32, "max_length": 512,
    },
    "pretrain": TRAINING,
    "finetune": TRAINING | {"schemes": ["uniform"]},
    "evaluate": {"eval_schemes": ["canonical"], "items": 12, "draws": 1},
}  # fmt: skip


def tiny_text(**sections: Any) -> str:
    """The YAML of a tiny study; the fields of each section replace its own, None removes one."""
    study = dict(TINY)
    for name, value in sections.items():
        study[name] = study.get(name, {}) | value if isinstance(value, dict) else value
    return json.dumps({name: value for name, value in study.items() if value is not None})


def tiny(**sections: Any) -> Study:
    return load_study(tiny_text(**sections), "tiny.yaml")


def rows_of(folder: Path, *fields: str) -> list[dict[str, Any]]:
    """The rows of results.jsonl with these fields, or all without the seconds that they took."""
    rows = read_rows(folder / "results.jsonl")
    for row in rows:
        del row["seconds"], row["model"]["training_seconds"]
    return [{field: row[field] for field in fields or row} for row in rows]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of the tiny study. Tests copy it before they change it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run_study(tiny(), folder)
    return folder
