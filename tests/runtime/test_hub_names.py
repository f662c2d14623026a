"""A mistyped path is refused at once; the hub is asked for valid names only."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import robustok as rt
from robustok.models import load_model, load_tokenizer
from robustok.runtime.hub import is_unreachable

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
