from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import PromptTuningConfig, get_peft_model
from tests.oracles.models import ARCHITECTURES, FALLBACKS, VOCABULARY, tiny_model
from tests.oracles.scoring import checked_scores, score_naively

from robustok import Ragged, RobustokError
from robustok.scoring import Request, engine, forward, modes, score, score_many, scoring_mode

OPTIONS = [[5], [6, 7], [6, 8, 9], [1, 2, 3, 4]]


def neighbors(count: int, length: int = 24) -> list[list[int]]:
    rng = np.random.default_rng(0)
    base = rng.integers(0, VOCABULARY, length).tolist()
    rows = [base]
    for _ in range(count):
        i = int(rng.integers(0, length))
        middle = rng.integers(0, VOCABULARY, int(rng.integers(1, 4))).tolist()
        rows.append(base[:i] + middle + base[i + 1 :])
    return rows


PREFIX = np.random.default_rng(1).integers(0, VOCABULARY, 17).tolist()


@pytest.mark.parametrize("name", [*ARCHITECTURES, *FALLBACKS])
@pytest.mark.parametrize("prefix", [[], [3], PREFIX], ids=["none", "start", "long"])
def test_equals_one_sequence_at_a_time(
    name: str, prefix: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modes, "row_width", lambda model, prefix: 40)  # several levels
    model = tiny_model(name)
    scores = checked_scores(model, neighbors(12), OPTIONS, prefix, max_batch_tokens=100)
    assert np.ptp(scores.log_probs) > 1  # the model tells the inputs apart
    assert scores.log_probs.dtype == np.float64
    assert scores.mode == ("plain" if name in FALLBACKS else "tree")


@pytest.mark.parametrize("prefix", [PREFIX[:5], PREFIX], ids=["short", "some long"])
def test_longrope_rotates_each_sequence_by_its_own_length(prefix: list[int]) -> None:
    questions = [row[:22] if n % 2 else [*row[:22], *[7] * 6] for n, row in enumerate(neighbors(9))]
    checked_scores(tiny_model("longrope"), questions, OPTIONS[:2], prefix)


@pytest.mark.parametrize("prefix", [[], PREFIX], ids=["none", "some long"])
def test_dynamic_rope_rotates_each_sequence_by_its_own_length(prefix: list[int]) -> None:
    model = tiny_model("dynamic")
    row = neighbors(0, 80)[0]
    questions = [row[:length] for length in (60, 20, 38, 39, 40, 41, 61, 23, 22, 45)]
    wanted = np.zeros((len(questions), 2))
    with torch.no_grad():
        for i, question in enumerate(questions):
            for c, option in enumerate(([5], [6, 7])):
                model(input_ids=torch.tensor([[1]]))  # resets what a longer one has left
                ids = [*prefix, *question, *option]
                logits = model(input_ids=torch.tensor([ids[:-1]])).logits[0]
                log_probs = torch.log_softmax(logits, dim=-1)[-len(option) :]
                wanted[i, c] = sum(log_probs[j, token] for j, token in enumerate(option))
    for _ in range(2):  # whatever was read before
        result = score(model, questions, [[5], [6, 7]], prefix)
        np.testing.assert_allclose(result.log_probs, wanted, atol=1e-4, rtol=0)
    alone = score(model, questions[1:2], [[5], [6, 7]], prefix)
    np.testing.assert_allclose(alone.log_probs, wanted[1:2], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_half_precision_stays_close(name: str) -> None:
    model = tiny_model(name).to(torch.bfloat16)
    questions = neighbors(6)
    result = score(model, questions, OPTIONS, PREFIX)
    whole = score_naively(model, questions, OPTIONS, PREFIX)
    exact = score_naively(model.float(), questions, OPTIONS, PREFIX)
    # Shared work must be no less exact than whole sequences in the same precision.
    error, usual = np.abs(result.log_probs - exact).max(), np.abs(whole - exact).max()
    assert error <= 2 * usual + 2e-2
    assert result.mode == "tree"


trees = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12)
answers = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), min_size=1, max_size=3)
MODEL = {}


@given(trees, answers, st.lists(st.integers(0, 2), max_size=4), st.integers(1, 9))
@settings(max_examples=20)
def test_random_trees_of_questions(
    questions: list[list[int]], options: list[list[int]], prefix: list[int], max_batch_tokens: int
) -> None:
    model = MODEL.setdefault("llama", tiny_model("llama", 10))
    result = checked_scores(model, questions, options, prefix, max_batch_tokens=max_batch_tokens)
    whole = sum(len(prefix) + len(q) + len(o) for q in questions for o in options)
    assert result.tokens_naive == whole


def test_many_requests_are_those_of_each_alone() -> None:
    model = tiny_model("llama")
    rows = neighbors(8)
    fields: list[Any] = [
        (rows[:3], OPTIONS),
        (rows[3:5], [[1], [2]], PREFIX),
        (rows[5:6], OPTIONS[:2]),
        ([], OPTIONS),
        (rows[6:], [[9, 9], [3]], PREFIX),
    ]
    requests = [Request(Ragged.from_rows(questions), *others) for questions, *others in fields]
    for request, scores in zip(requests, score_many(model, requests), strict=True):
        alone = score(model, request.questions, request.options, request.prefix)
        np.testing.assert_allclose(scores.log_probs, alone.log_probs, atol=1e-5, rtol=0)
        assert scores.log_probs.shape == (len(request.questions), len(request.options))
        assert scores.tokens_naive == alone.tokens_naive


@pytest.mark.parametrize(("count", "length"), [(1, 24), (10, 40), (40, 24), (39, 60), (150, 30)])
def test_only_nodes_of_the_prefix_tree_are_computed(count: int, length: int) -> None:
    model = tiny_model("llama")
    questions = neighbors(count, length)
    result = score(model, questions, OPTIONS, PREFIX)
    sequences = [(*PREFIX, *q, *o)[:-1] for q in questions for o in OPTIONS]
    nodes = len({s[:n] for s in sequences for n in range(1, len(s) + 1)})
    assert nodes <= result.tokens_computed <= 1.1 * nodes
    assert result.tokens_naive == sum(len(s) + 1 for s in sequences)


def test_a_context_is_computed_once_in_several_calls() -> None:
    model = tiny_model("gemma3")
    prefix_cache: dict = {}

    def scored(questions: list[list[int]], prefix: list[int]) -> Any:
        request = Request(Ragged.from_rows(questions), OPTIONS, prefix)
        return score_many(model, [request], prefix_cache=prefix_cache)[0]

    first, again = (scored(neighbors(3), PREFIX) for _ in range(2))
    assert first.tokens_computed - again.tokens_computed == len(PREFIX) - 1
    assert np.array_equal(first.log_probs, again.log_probs)
    for start in range(10):  # others push it out; nothing is mistaken for it
        prefix = [start, *PREFIX[1:]]
        wanted = score_naively(model, [[5, 6]], OPTIONS, prefix)
        np.testing.assert_allclose(scored([[5, 6]], prefix).log_probs, wanted, atol=1e-4, rtol=0)
    assert len(prefix_cache) <= 4


def test_logits_are_computed_only_where_they_are_read() -> None:
    model = tiny_model("gpt2")
    questions = neighbors(20)
    score(model, questions, OPTIONS)  # tests the model
    rows = []
    hook = model.lm_head.register_forward_hook(
        lambda module, inputs, output: rows.append(output.shape[:-1].numel())
    )
    score(model, questions, OPTIONS)
    hook.remove()
    reads = {(*q, *o[:j]) for q in questions for o in OPTIONS for j in range(len(o))}
    assert sum(rows) == len(reads)


def test_out_of_memory_halves_max_batch_tokens_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    questions = neighbors(30)
    wanted = score(model, questions, OPTIONS).log_probs
    tried: list[int] = []
    run = modes.TreePass.run

    def full_above_64(self, rows, output_nodes, keep_states):
        tried.append(rows.nodes.size)
        if rows.nodes.size > 64:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return run(self, rows, output_nodes, keep_states)

    monkeypatch.setattr(modes, "row_width", lambda model, prefix: 32)
    monkeypatch.setattr(modes.TreePass, "run", full_above_64)
    result = score(model, questions, OPTIONS, max_batch_tokens=512).log_probs
    np.testing.assert_allclose(result, wanted, atol=1e-5, rtol=0)
    assert max(tried) > 64 >= min(tried)


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("mode", ("tree", "plain"))
@pytest.mark.parametrize(("read", "computed"), [(60, None), (4, None), (None, 20)])
def test_out_of_memory_in_the_output_layer_halves_its_rows(
    mode: str,
    in_blocks: bool,
    read: int | None,
    computed: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At most so many rows fit, where they are read or where the logits are computed."""
    model = tiny_model("llama")
    questions = neighbors(30)
    wanted = score(model, questions, OPTIONS, PREFIX).log_probs
    log_probs_of = modes.log_probs_of
    held: list[int] = []

    def outputs_at(*args, **inputs):
        outputs = forward.outputs_at(*args, **inputs)
        held.append(len(outputs.values))
        return outputs

    def full(outputs, rows, tokens):
        if (read and len(outputs.values) > read) or (computed and held[-1] > computed):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return log_probs_of(outputs, rows, tokens)

    monkeypatch.setattr(engine, "scoring_mode", lambda *_, **__: mode)
    monkeypatch.setattr(forward, "_uses_blocks", lambda *others: in_blocks)
    monkeypatch.setattr(modes, "outputs_at", outputs_at)
    monkeypatch.setattr(modes, "log_probs_of", full)
    result = score(model, questions, OPTIONS, PREFIX, max_batch_tokens=256).log_probs
    np.testing.assert_allclose(result, wanted, atol=1e-5, rtol=0)


def test_where_one_row_is_too_much_rows_are_cut_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    questions = neighbors(10)
    wanted = score(model, questions, OPTIONS, PREFIX).log_probs
    forward = modes.TreePass._forward
    passed: list[int] = []

    def full_above_10(self, ids, *others):
        if ids.size > 10:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")
        passed.append(ids.size)
        return forward(self, ids, *others)

    monkeypatch.setattr(modes.TreePass, "_forward", full_above_10)
    result = score(model, questions, OPTIONS, PREFIX).log_probs
    np.testing.assert_allclose(result, wanted, atol=1e-5, rtol=0)
    assert passed


def test_other_errors_of_a_model_are_not_taken_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self, rows, output_nodes, keep_states):
        raise RuntimeError("shapes do not match")

    model = tiny_model("llama")
    score(model, [[1, 2]], [[3]])  # tests the model
    monkeypatch.setattr(modes.TreePass, "run", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        score(model, [[1, 2]], [[3]])


@pytest.mark.parametrize("vocabulary", [120, 6000])  # of whole rows of logits, and in blocks
def test_a_model_with_outputs_of_no_id_is_refused(vocabulary: int) -> None:
    """Prompt tuning: the scores were those of the positions of its own tokens."""
    tuning = PromptTuningConfig(num_virtual_tokens=5, task_type="CAUSAL_LM")
    model: Any = get_peft_model(tiny_model("llama", vocabulary), tuning)
    with pytest.raises(RobustokError, match="12 outputs for 7 ids, as with prompt tuning"):
        score(model, [[5, 6, 7], [5, 9, 11]], [[1], [2, 3, 4]], [3])


def test_training_mode_and_gradients_are_left_as_they_were() -> None:
    model = tiny_model("gpt2").train()  # GPT-2 drops out by default
    first = score(model, [[1, 2, 3]], [[4]]).log_probs
    assert model.training
    assert np.array_equal(first, score(model, [[1, 2, 3]], [[4]]).log_probs)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("questions", "options", "prefix", "message"),
    [
        ([[1]], [[]], None, "at least one token"),
        ([[1]], [], None, "at least one token"),
        ([[]], [[1]], None, "empty question"),
        ([[VOCABULARY]], [[1]], None, "own vocabulary"),
        ([[1]], [[VOCABULARY]], None, "own vocabulary"),
        ([[-1]], [[1]], None, "own vocabulary"),
        ([[1]], [[-1]], None, "token id -1 .* own vocabulary"),
        ([[1]], [[5.9], [6]], None, "token ids are integers, not float64"),
        ([[1]], [5, 6], None, "flat list"),
        ([[1]], [" up", " rain"], None, "not str"),
        ([[1]], [[[5, 6]], [[6, 7]]], None, "flat list"),
        ([[1]], " up", None, "give a list"),
        ([[1]], [[5], [6]], [3.7, 4.2], "token ids are integers"),
        ([[1]], [[5], [6]], "abc", "not str"),
        ([[1]], [[5], [6]], [2**40], "is not from"),
    ],
)
def test_errors_say_what_to_do(questions, options, prefix, message) -> None:
    with pytest.raises(RobustokError, match=message):
        score(tiny_model("llama"), questions, options, prefix)
    for tokens in (0, -1, 2.5):
        with pytest.raises(RobustokError, match="max_batch_tokens"):
            score(tiny_model("llama"), [[1]], [[2]], max_batch_tokens=tokens)  # type: ignore
    with pytest.raises(RobustokError, match="256 positions"):
        score(tiny_model("gpt2"), [[1] * 300], [[2]])


# A vocabulary of 5,000 ids, for which the output layer is computed in blocks.
LARGE_QUESTIONS = [[1, 2, 3], [1, 2, 4, 4999], [7]]
LARGE_OPTIONS = [[5], [2047, 2048], [4096, 4999, 0], [4999]]


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3", "bloom", "mamba"])
def test_blocks_of_a_large_vocabulary_give_the_log_probs_of_all_logits(name: str) -> None:
    model = tiny_model(name, 5000)
    assert np.ptp(checked_scores(model, LARGE_QUESTIONS, LARGE_OPTIONS, [9, 8]).log_probs) > 1


def test_an_output_layer_with_a_bias() -> None:
    model = tiny_model("llama", 5000)
    weight = model.lm_head.weight
    model.lm_head = torch.nn.Linear(32, 5000)
    torch.nn.init.normal_(model.lm_head.bias)
    model.lm_head.weight = weight
    checked_scores(model, LARGE_QUESTIONS, LARGE_OPTIONS)


def test_the_log_sum_exp_of_a_block() -> None:
    logits = torch.randn(3, 70) * 50
    logits[1] = -torch.inf  # tokens that a bias rules out
    logits[2, 1:] = -torch.inf
    wanted, out = torch.logsumexp(logits, -1), torch.empty(3)
    forward._log_sum_exp_(logits.clone(), out)
    torch.testing.assert_close(out, wanted)


def test_logits_that_a_model_changes_are_not_computed_in_blocks() -> None:
    model = tiny_model("gemma3", 5000)
    assert forward._uses_blocks(model, model.lm_head)
    capped = tiny_model("gemma3", 5000)
    capped.config.final_logit_softcapping = 2.0
    assert not forward._uses_blocks(capped, capped.lm_head)
    uncapped = score_naively(model, LARGE_QUESTIONS, LARGE_OPTIONS)
    assert (
        np.abs(checked_scores(capped, LARGE_QUESTIONS, LARGE_OPTIONS).log_probs - uncapped).max()
        > 0.1
    )


def test_no_whole_row_of_logits_is_computed_in_blocks() -> None:
    model = tiny_model("llama", 5000)
    scoring_mode(model)
    forward._uses_blocks(model, model.lm_head)
    rows = []
    hook = model.lm_head.register_forward_hook(
        lambda module, inputs, output: rows.append(output.shape[:-1].numel())
    )
    score(model, LARGE_QUESTIONS, LARGE_OPTIONS)
    hook.remove()
    assert rows
    assert not any(rows)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", [*ARCHITECTURES, *FALLBACKS])
def test_a_gpu_agrees_in_full_and_in_half_precision(name: str) -> None:
    model = tiny_model(name)
    questions = neighbors(12)
    wanted = score_naively(model, questions, OPTIONS, PREFIX)
    model = model.cuda()
    result = score(model, questions, OPTIONS, PREFIX)
    np.testing.assert_allclose(result.log_probs, wanted, atol=1e-3, rtol=0)
    halved = tiny_model(name).to(torch.bfloat16)
    halved = halved.cuda()
    whole = score(halved, questions[:1], OPTIONS[:1], PREFIX)
    packed_with_others = score(halved, questions, OPTIONS, PREFIX)
    difference = np.abs(whole.log_probs - packed_with_others.log_probs[:1, :1]).max()
    assert difference <= 2e-2 * max(1.0, np.abs(whole.log_probs).max())
