"""README.md of a measured model: metadata that hubs read, how to load it, and what was measured."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robustok.models.load import has_lora
from robustok.report.frame import Results
from robustok.report.style import Row
from robustok.report.tables import accuracy_table, compared
from robustok.report.write import shown_schemes
from robustok.runtime.display import markdown_table
from robustok.runtime.files import read_json_or_none, write_whole
from robustok.study.run import worst_rows
from robustok.tasks.benchmarks import HUB
from robustok.training.recipe import RECORD, loading, may_write_card, trained_on, write_card

_METRICS = ("accuracy", "consistency")
_FIGURES = {
    "teaser": "Accuracy by the strength of the perturbation",
    "attacks": "Accuracy under attack",
    "curve": "Accuracy under attack by the tokenizations scored",
}
_READING = (
    "Accuracy in percent on questions whose tokenization is canonical, drawn at random or chosen "
    "by an attack, with 95% intervals over the questions; beside it the change from the canonical "
    "tokenizations of the same questions, in points."
)


def write_readme(rows: Sequence[Row], run: Path) -> Path | None:
    """Write README.md beside the weights of a local model, or else into the folder of the run.

    A README.md that was not written here, or was changed since, stays: then the next folder gets
    it. The page of blanks that peft writes beside an adapter is replaced.
    Returns the path, or None where both folders have one that stays.

    Args:
        rows: rows of results.jsonl of the run, all of one model, as the report reads them.
        run: folder of the run, which has report.md and figures/.
    """
    model = Path(rows[0]["model"]["name"])
    folders = [folder for folder in (model, run) if folder.is_dir()]
    folder = next((folder for folder in folders if may_write_card(folder)), None)
    if folder is None:
        return None
    is_served = any(row.get("precision") == "served" for row in rows)
    record = {} if is_served else read_json_or_none(model / RECORD) or {}
    results = Results(rows)
    shown = shown_schemes(results)
    measured = [row for row in (*rows, *worst_rows(rows)) if row["eval_scheme"] in shown]
    parts = [
        f"---\n{_metadata(measured, model, record, is_served)}\n---\n",
        f"# {model.name}\n\nAsked behind a server.\n" if is_served else loading(model),
        trained_on(record),
        "## Robustness to the tokenization\n",
        f"{_READING}\n",
        _table(results, shown),
        *_figures(run / "figures", folder),
        f"\nMeasured with robustok {rows[0]['versions']['robustok']}: `robustok study run "
        f"{rows[0]['study']} --model {model.name}`.",
    ]
    _write_eval_results(measured, folder)
    return write_card(folder, "\n".join(filter(None, parts)))


def _table(results: Results, shown: Sequence[str]) -> str:
    """A line for each task: canonical questions, the most perturbed ones and the worst attack."""
    schemes, table = compared(results), accuracy_table(results)
    columns = [n for n, scheme in enumerate(schemes, 1) if scheme in shown]
    tasks = [results.models[name]["task"] for name in results.names]
    lines = [
        [task, *(line[n] for n in columns)] for task, line in zip(tasks, table.texts, strict=True)
    ]
    return markdown_table(["task", *(table.head[n] for n in columns)], lines)


def _figures(figures: Path, folder: Path) -> list[str]:
    """The figures as images of the page, copied beside it."""
    shown = {name: title for name, title in _FIGURES.items() if (figures / f"{name}.png").exists()}
    for name in shown:
        copy = folder / "figures" / f"{name}.png"
        copy.parent.mkdir(exist_ok=True)
        if not copy.exists() or not copy.samefile(figures / copy.name):
            shutil.copyfile(figures / copy.name, copy)
    return [f"\n![{title}](figures/{name}.png)" for name, title in shown.items()]


def _metadata(rows: Sequence[Row], model: Path, record: Any, is_served: bool) -> str:
    """The metadata of a model as YAML: what it is made of, and what was measured."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="multiple-choice",
            dataset_type=HUB[row["task"]].path if row["task"] in HUB else row["task"],
            dataset_name=row["task"],
            metric_type=metric,
            metric_value=round(row[metric], 4),
            metric_name=f"{metric}, {row['eval_scheme']}",
        )
        for row in rows
        for metric in _METRICS
        if metric in row
    ]
    return ModelCardData(
        model_name=model.name,
        base_model=_base_model(model, record),
        library_name=None if is_served else "peft" if has_lora(model) else "transformers",
        pipeline_tag="text-generation",
        tags=["robustok", "tokenization", "robustness"],
        eval_results=results,
    ).to_yaml()


def _write_eval_results(rows: Sequence[Row], folder: Path) -> None:
    """Write the accuracies on benchmarks of the hub to .eval_results/, which the hub shows."""
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    entries = [
        EvalResultEntry(
            dataset_id=HUB[row["task"]].path,
            task_id=row["task"],
            value=round(100 * row["accuracy"], 2),
            notes=f"accuracy in percent, tokenization of the questions: {row['eval_scheme']}",
        )
        for row in rows
        if row.get("task") in HUB and "accuracy" in row
    ]
    if entries:
        text = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False)
        (folder / ".eval_results").mkdir(exist_ok=True)
        write_whole(folder / ".eval_results" / "robustok.yaml", text)


def _base_model(model: Path, record: Any) -> str | None:
    """The hub name of the model that one was trained from, where its folder names it."""
    adapter: Any = read_json_or_none(model / "adapter_config.json") or {}
    name = record.get("base_model") or adapter.get("base_model_name_or_path") or ""
    is_hub_name = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) and not Path(name).exists()
    return name if is_hub_name else None
