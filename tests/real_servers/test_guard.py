"""The middleware in front of real vLLM, and the fields that vLLM's own package takes ids in."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.real_servers.conftest import post, vllm_server
from tests.real_servers.sglang_fields import sglang_fields

import robustok as rt
from robustok.guard.layouts import read_rollouts
from robustok.integrations.bodies import OTHER, fields_of, known_path

TEXT = "the quick brown fox jumps over the lazy dog"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
# As docs/serving.md, beside a route of prime-rl that answers with what reached it.
GUARDED = """
import json

import robustok as rt
from robustok.integrations.asgi import GuardMiddleware
from robustok.integrations.serving import PromptGuard

PROMPTS = PromptGuard(rt.Vocabulary.load(MODEL), policy="repair", max_length=200)


class Guard(GuardMiddleware):
    def __init__(self, app):
        super().__init__(app, PROMPTS)


class Tokens:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"] != "/v1/chat/completions/tokens":
            return await self.app(scope, receive, send)
        body = (await receive())["body"]
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
"""


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return rt.Vocabulary.load("demo")


@pytest.fixture(scope="module")
def server(
    vllm_python: str, vllm_environment: dict[str, str], vocab: rt.Vocabulary,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:  # fmt: skip
    from transformers import PreTrainedTokenizerFast

    from robustok.models import Shape, small_model

    model = tmp_path_factory.mktemp("vllm") / "model"
    small_model(vocab.size, Shape(2, 64, 2, 2, 160, 256), seed=0).save_pretrained(model)
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=vocab.data.library, chat_template=TEMPLATE, eos_token="<|endoftext|>"
    )
    tokenizer.save_pretrained(model)
    guarded = model.parent / "guarded.py"
    guarded.write_text(GUARDED.replace("MODEL", repr(str(model)), 1))
    places = os.pathsep.join([str(model.parent), vllm_environment["PYTHONPATH"]])
    options = ("--middleware", "guarded.Tokens", "--middleware", "guarded.Guard")
    environment = vllm_environment | {"PYTHONPATH": places}
    with vllm_server(vllm_python, environment, model, *options) as running:
        yield running.address


@pytest.fixture(scope="module")
def drawn(vocab: rt.Vocabulary) -> list[int]:
    ids = rt.sampler("uniform", vocab).sample(TEXT, seed=0).tolist()
    assert not rt.Guard(vocab).check(ids).canonical
    return ids


def test_repair_gives_the_model_the_canonical_ids(
    server: str, vocab: rt.Vocabulary, drawn: list[int]
) -> None:
    canonical = vocab.encode(TEXT).tolist()
    body = {"max_tokens": 1, "temperature": 0, "return_token_ids": True}
    for prompt in (TEXT, canonical, drawn):
        status, answer = post(f"{server}/v1/completions", body | {"prompt": prompt})
        assert (status, answer["usage"]["prompt_tokens"]) == (200, len(canonical))
        assert answer["choices"][0]["prompt_token_ids"] == canonical
    chat = body | {
        "messages": [{"role": "user", "content": "a"}],
        "kv_transfer_params": {"prompt_token_ids": drawn},
    }
    status, answer = post(f"{server}/v1/chat/completions", chat)
    assert (status, answer["usage"]["prompt_tokens"]) == (200, len(canonical))


def test_answers_are_read_as_rollouts(server: str, vocab: rt.Vocabulary, tmp_path: Path) -> None:
    body = {"prompt": [TEXT, "a"], "max_tokens": 3, "return_token_ids": True}
    _, answer = post(f"{server}/v1/completions", body)
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    rollouts = list(read_rollouts(tmp_path / "answers.jsonl"))
    texts, choices = body["prompt"], answer["choices"]
    expected = [
        [*vocab.encode(text), *choice["token_ids"]]
        for text, choice in zip(texts, choices, strict=True)
    ]
    (sequences,) = (rollout.sequences for rollout in rollouts)
    assert [ids.tolist() for ids, _ in sequences] == expected
    assert [[part.role for part in parts] for _, parts in sequences] == [
        ["prompt", "completion"]
    ] * 2


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/completions", {"prompt": [60000]}, "prompt"),
        ("/v1/completions", {"prompt": [[5], [-1]]}, "prompt[1]"),
        ("/v1/completions", {"prompt": "a", "stop_token_ids": [60000]}, "stop_token_ids"),
        ("/v1/completions", {"prompt": "a", "logit_bias": {"60000": 1}}, "logit_bias"),
        ("/v1/completions", {"prompt": "a", "Prompt": [5]}, "Prompt"),
        ("/v1/chat/completions", {"messages": [], "kv_transfer_params": {
            "prompt_token_ids": [60000]}}, "kv_transfer_params.prompt_token_ids"),
        ("/inference/v1/generate", {"token_ids": [60000]}, "token_ids"),
        ("/v1/chat/completions/tokens", {"messages": [], "tokens": [60000]}, "tokens"),
        ("/detokenize", {"tokens": [60000]}, "tokens"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_field(server: str, path: str, body: Any, field: str) -> None:
    status, answer = post(server + path, body)
    assert (status, answer["error"]["param"]) == (400, field)


def test_tokens_of_prime_rl_are_judged(server: str, vocab: rt.Vocabulary, drawn: list[int]) -> None:
    body = {"messages": [{"role": "user", "content": TEXT}], "tokens": drawn}
    status, answer = post(f"{server}/v1/chat/completions/tokens", body)
    assert (status, answer["tokens"]) == (200, vocab.encode(TEXT).tolist())


def test_text_passes_and_the_counters_are_on_the_page_that_is_scraped(
    server: str, vocab: rt.Vocabulary, drawn: list[int]
) -> None:
    status, answer = post(f"{server}/tokenize", {"prompt": TEXT, "add_special_tokens": False})
    assert (status, answer["tokens"]) == (200, vocab.encode(TEXT).tolist())
    assert post(f"{server}/detokenize", {"tokens": drawn}) == (200, {"prompt": TEXT})
    post(f"{server}/v1/completions", {"prompt": drawn, "max_tokens": 1})
    with urlopen(f"{server}/metrics", timeout=60) as page:
        metrics = page.read().decode()
    assert 'robustok_guard_sequences_total{kind="repaired"}' in metrics


def test_the_table_has_every_field_with_ids_of_the_package(
    vllm_python_or_this: str, vllm_environment: dict[str, str]
) -> None:
    script = Path(__file__).with_name("vllm_fields.py")
    done = subprocess.run(
        [vllm_python_or_this, str(script)], env=vllm_environment, capture_output=True, text=True,
        timeout=600, check=True,
    )  # fmt: skip
    routes = json.loads(done.stdout.splitlines()[-1])
    assert len(routes) > 20 and "prompt" in routes["/v1/completions"]
    missing = [(p, f) for p, fields in routes.items() for f in fields if not is_known(p, f)]
    assert missing == [], "fields of vLLM with lists of integers that ROWS has not"


def test_the_table_has_every_field_with_ids_of_sglang() -> None:
    package = os.environ.get("ROBUSTOK_SGLANG")
    if not package:
        pytest.skip("ROBUSTOK_SGLANG does not name the folder of the package sglang")
    routes = sglang_fields(Path(package))
    assert len(routes) > 20 and "input_ids" in routes["/generate"]
    missing = [(p, f) for p, fields in routes.items() for f in fields if not is_known(p, f)]
    assert missing == [], "fields of SGLang with lists of integers that ROWS has not"


def is_known(path: str, field: str) -> bool:
    node = fields_of(known_path(path))
    for name in field.split("."):
        if node.kind == OTHER and name not in node.below:
            return True
        if name not in node.below:
            return False
        node = node.below[name]
    return node.kind is not None


@pytest.fixture
def vllm_python_or_this(request: pytest.FixtureRequest) -> str:
    if importlib.util.find_spec("vllm") is not None:
        return sys.executable
    return request.getfixturevalue("vllm_python")
