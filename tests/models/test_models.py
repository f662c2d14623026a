import io
import json
import os
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
from tests.training.conftest import tiny, tune
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Gemma3Config,
)

import robustok as rt
from robustok.errors import RobustokError
from robustok.models import (
    ARCHITECTURES,
    SHAPES,
    Lora,
    Shape,
    add_lora,
    check_fit,
    load,
    load_model,
    load_tokenizer,
    small_model,
    train_tokenizer,
)
from robustok.models.load import resolve_precision

TEXTS = ["the lower the better, the better the lower"] * 5


def test_a_trained_tokenizer_holds_every_byte_and_encodes_any_text():
    vocab = rt.Vocabulary.load(train_tokenizer(TEXTS, 280))
    assert {bytes([b]) for b in range(256)} <= set(vocab.tokens)
    for text in ("the lower", "naïve 🦜\n\t", " two  spaces "):
        assert vocab.decode_bytes(vocab.encode(text)) == text.encode()
    assert len(vocab.encode("the")) == 1
    assert train_tokenizer(TEXTS, 280).to_str() == train_tokenizer(iter(TEXTS), 280).to_str()


def test_the_papers_tiny_llm_has_its_shape():
    config = small_model(300, SHAPES["tiny-llm"].scaled(0.25), seed=0).config
    assert config.tie_word_embeddings
    full = SHAPES["tiny-llm"]
    assert (full.layers, full.width, full.heads, full.kv_heads) == (8, 512, 16, 4)
    assert (full.feed_forward, full.max_length) == (1320, 512)
    # A quarter: 4 of 16 heads of width 32, in groups of 4 still.
    assert (config.hidden_size, config.num_attention_heads) == (128, 4)
    assert (config.num_key_value_heads, config.num_hidden_layers) == (1, 2)


def test_a_seed_gives_the_same_weights_and_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    a, b, c = (small_model(300, "quick", seed=s) for s in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(a.model.embed_tokens.weight, b.model.embed_tokens.weight)
    assert not torch.equal(a.model.embed_tokens.weight, c.model.embed_tokens.weight)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_same_sizes_in_every_architecture(architecture):
    shape = Shape(3, 32, 4, 4, 64, 48, architecture=architecture)
    model, again = (small_model(300, shape, seed=1) for _ in range(2))
    assert model.config.model_type.removesuffix("_text") == architecture
    assert (model.config.num_hidden_layers, model.config.hidden_size) == (3, 32)
    assert model.config.max_position_embeddings == 48
    head = model.get_output_embeddings()
    assert head is not None and head.weight is model.get_input_embeddings().weight
    assert all(map(torch.equal, model.parameters(), again.parameters()))
    ids = torch.arange(48)[None]
    changed = torch.cat([torch.full((1, 1), 99), ids[:, 1:]], 1)
    with torch.no_grad():  # the last position sees the first, through windows too
        a, b = (model(x, attention_mask=torch.ones_like(x)).logits[0, -1] for x in (ids, changed))
    assert not torch.equal(a, b)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tmp: load_model(tmp), "no config.json"),
        (lambda tmp: load_model(tmp / "none"), "no file or folder"),
        (lambda tmp: small_model(300, "qick", seed=0), "did you mean 'quick'"),
        (lambda tmp: Shape(1, 10, 4, 4, 8, 8), "does not split"),
        (lambda tmp: Shape(1, 32, 4, 3, 8, 8), "do not share"),
        (lambda tmp: Shape(1, 32, 4, 4, 8, 8, architecture="gpt"), "did you mean 'gpt2'"),
        (lambda tmp: Shape(1, 32, 4, 2, 8, 8, architecture="gpt2"), "as many key-value heads"),
        (lambda tmp: SHAPES["quick"].scaled(0), "scale 0"),
        (lambda tmp: train_tokenizer(TEXTS, 256), "257"),
    ],
)
def test_bad_input_is_one_line(tmp_path, call, message):
    with pytest.raises(RobustokError, match=message):
        call(tmp_path)


def test_a_vocabulary_larger_than_the_model_is_refused():
    vocab = rt.Vocabulary.load(train_tokenizer(TEXTS, 280))
    check_fit(small_model(vocab.size, "quick", seed=0), vocab)
    with pytest.raises(RobustokError, match="embeddings"):
        check_fit(small_model(vocab.size - 1, "quick", seed=0), vocab)


def saved(folder):
    small_model(300, Shape(2, 16, 2, 2, 32, 64), seed=0).save_pretrained(folder)
    return folder / "model.safetensors"


def damage(file, *, old=b"", new=b"", cut=None):
    data = file.read_bytes()
    file.write_bytes(data.replace(old, new, 1) if old else data[:cut])


@pytest.mark.parametrize("cut", [-100, 100, 5, 0])
def test_truncated_weights_are_one_line(tmp_path, cut):
    damage(saved(tmp_path), cut=cut)
    with pytest.raises(RobustokError, match="could not load the model") as error:
        load_model(tmp_path)
    assert "\n" not in str(error.value)


class Executed:
    """A pickle that leaves a file where it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "adapter_model.bin"])
def test_no_pickle_is_loaded(tmp_path, name):
    saved(tmp_path / "model").unlink()
    folder, executed = tmp_path / "model", tmp_path / "executed"
    if name == "adapter_model.bin":
        saved(tmp_path / "base")
        adapter = {"peft_type": "LORA", "base_model_name_or_path": str(tmp_path / "base")}
        (folder / "adapter_config.json").write_text(json.dumps(adapter))
    torch.save({"lm_head.weight": Executed(executed)}, folder / name)
    with pytest.raises(RobustokError) as error:
        load_model(folder)
    assert "\n" not in str(error.value)
    assert not executed.exists()


def test_a_model_that_needs_another_package_is_one_line(tmp_path):
    config = saved(tmp_path).with_name("config.json")
    quantized = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    config.write_text(json.dumps(json.loads(config.read_text()) | quantized))
    with pytest.raises(RobustokError, match=r"could not load the model .*bitsandbytes"):
        load_model(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_a_flipped_key_in_the_header_is_not_replaced_by_random_weights(tmp_path):
    damage(saved(tmp_path), old=b"layers.1.mlp.up_proj", new=b"layers.1.mlp.uq_proj")
    with pytest.raises(RobustokError, match=r"lack 1 of the model's .*up_proj"):
        load_model(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    model = small_model(300, Shape(1, 16, 2, 2, 32, 64), seed=0)
    with torch.no_grad():
        model.model.norm.weight[3] = value
    model.save_pretrained(tmp_path)
    with pytest.raises(RobustokError, match=r"not finite numbers \(model\.norm\.weight\)"):
        load_model(tmp_path)


SIZES = {"vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("kind", "maker", "name"),
    [
        ("llama", AutoModelForSequenceClassification, "LlamaForSequenceClassification"),
        ("bert", AutoModelForMaskedLM, "BertForMaskedLM"),
        ("bart", AutoModelForSeq2SeqLM, "BartForConditionalGeneration"),
    ],
)
def test_what_is_no_causal_language_model_is_refused(tmp_path, kind, maker, name, tied):
    config = AutoConfig.for_model(kind, **SIZES, intermediate_size=32, tie_word_embeddings=tied)
    maker.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(RobustokError, match=f"holds a {name}, not a causal language model"):
        load_model(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_a_model_without_a_head_is_refused(tmp_path):
    config = AutoConfig.for_model("llama", **SIZES, intermediate_size=32, tie_word_embeddings=False)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(RobustokError, match=r"lack 1 of the model's .*lm_head"):
        load_model(tmp_path)


def test_the_python_code_of_a_folder_does_not_run(tmp_path, monkeypatch):
    saved(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {
        "AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(RobustokError, match="could not load the model"):
        load_model(tmp_path)
    assert not (tmp_path / "ran").exists()


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_hub_name_is_pinned_to_the_commit_of_the_cache(tmp_path, monkeypatch):
    refs = tmp_path / "models--owner--name" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text(COMMIT)
    (refs.parent / "snapshots" / COMMIT).mkdir(parents=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    load.pinned.cache_clear()
    assert load.pinned("owner/name") == f"owner/name@{COMMIT}"
    assert load.pinned(f"owner/name@{COMMIT}") == f"owner/name@{COMMIT}"
    assert load.pinned("owner/name@v2") == "owner/name@v2"
    assert load.pinned("owner/other") == "owner/other"
    assert load.pinned(str(tmp_path)) == str(tmp_path)
    load.pinned.cache_clear()


def test_a_revision_reaches_the_loader(monkeypatch):
    calls = []

    def load(name, **options):
        calls.append((name, options["revision"], options["trust_remote_code"]))
        raise OSError("offline")

    monkeypatch.setattr(AutoConfig, "from_pretrained", load)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", load)
    for call in (load_model, load_tokenizer):
        with pytest.raises(RobustokError, match="offline"):
            call("owner/name@v2")
    assert calls == [("owner/name", "v2", False)] * 2


def test_an_adapter_names_the_revision_of_its_base(tmp_path, monkeypatch):
    def loaded(name, **_):
        model = tiny()
        model.name_or_path = name
        return model, {"missing_keys": [], "mismatched_keys": []}

    monkeypatch.setattr(AutoConfig, "from_pretrained", lambda *_, **__: tiny().config)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", loaded)
    for number, name in enumerate(("owner/name@v2", "owner/name")):
        folder = tmp_path / str(number)
        add_lora(load_model(name), seed=0).save_pretrained(folder, save_embedding_layers=False)
        assert load.base_of_lora(folder) == name


IDS = torch.tensor([[5, 6, 7]])
LARGE = 135_000_000


def base(folder):
    tiny().save_pretrained(folder)
    return load_model(folder)


def logits(model):
    with torch.inference_mode():
        return model.eval()(IDS).logits


def test_only_the_adapter_is_trained_and_it_loads_merged(tmp_path):
    before = logits(base(tmp_path / "base"))
    model = add_lora(load_model(tmp_path / "base"), seed=0)
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in n and ("q_proj" in n or "v_proj" in n) for n in trained)
    torch.testing.assert_close(logits(model), before)
    done = tune(tmp_path / "out", model)
    assert done.losses[-1][1] < done.losses[0][1]
    assert not (tmp_path / "out" / "model.safetensors").exists()
    merged = load_model(tmp_path / "out")
    torch.testing.assert_close(logits(merged), logits(model))
    assert not torch.allclose(logits(merged), before, atol=1e-3)
    again = add_lora(load_model(tmp_path / "base"), seed=0)
    assert tune(tmp_path / "out", again) == done
    torch.testing.assert_close(logits(again), logits(model))
    with pytest.raises(RobustokError, match="seed = 0, not 1"):
        tune(tmp_path / "out", add_lora(load_model(tmp_path / "base"), seed=1), seed=1)
    with pytest.raises(RobustokError, match="an adapter made with another seed"):
        tune(tmp_path / "out", add_lora(load_model(tmp_path / "base"), seed=1))


@pytest.mark.filterwarnings("ignore")
def test_a_tuned_prompt_is_one_line(tmp_path):
    saved(tmp_path / "base")
    tuning = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    peft.get_peft_model(load_model(tmp_path / "base"), tuning).save_pretrained(tmp_path / "prompt")
    with pytest.raises(RobustokError, match="is a tuned prompt, which cannot be merged"):
        load_model(tmp_path / "prompt")


def test_an_unknown_architecture_has_no_adapter(tmp_path, monkeypatch):
    model = base(tmp_path)
    with pytest.raises(RobustokError, match="rank is 0"):
        add_lora(model, Lora(rank=0), seed=0)
    monkeypatch.setattr(type(model.config), "model_type", "unknown")
    with pytest.raises(RobustokError, match="use peft's get_peft_model"):
        add_lora(model, seed=0)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch):
    """A function that gives the processor these capabilities for the test."""

    def pretend(**flags: bool | str) -> None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags, raising=False)

    return pretend


@pytest.mark.parametrize(
    ("name", "flag", "large"),
    [
        ("AMD EPYC", "avx512_bf16", "bfloat16"),
        ("Intel Xeon", "avx512_bf16", "float32"),  # without AMX
        ("Intel Xeon", "amx_bf16", "bfloat16"),
        ("Intel Xeon", "avx512_vnni", "float32"),
    ],
)
def test_bfloat16_is_chosen_for_large_models_where_it_is_faster(
    processor, name: str, flag: str, large: str
) -> None:
    processor(cpu_name=name, avx512_f=True, **{flag: True})
    assert resolve_precision("auto", LARGE) == large
    assert resolve_precision("auto", 1_000_000) == "float32"
    assert [resolve_precision(p, LARGE) for p in ("float32", "bfloat16")] == ["float32", "bfloat16"]
    with pytest.raises(RobustokError, match="unknown precision"):
        resolve_precision("half", 1)


@pytest.mark.parametrize("supported", [True, False])
def test_a_gpu_takes_bfloat16_where_it_has_it(monkeypatch, supported: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    expected = "bfloat16" if supported else "float32"
    assert resolve_precision("auto", 1_000_000, device="cuda") == expected
    assert resolve_precision("auto", LARGE, device="mps") == "float32"


def test_a_model_is_loaded_in_the_type_that_the_processor_computes_fastest_in(
    processor, monkeypatch, tmp_path
) -> None:
    small_model(300, Shape(1, 16, 2, 2, 32, 64), seed=0).bfloat16().save_pretrained(tmp_path)
    processor()
    model = load_model(tmp_path)
    assert model.dtype == torch.float32
    kept = load_model(tmp_path, dtype="bfloat16")
    assert kept.dtype == torch.bfloat16
    for one, other in zip(model.parameters(), kept.parameters(), strict=True):
        assert torch.equal(one, other.float())
    monkeypatch.setattr(load, "_LEAST", 0)
    processor(avx512_bf16=True)
    native = load_model(tmp_path)
    assert native.dtype == torch.bfloat16
    # Positions above 256 are no numbers of bfloat16, so their frequencies stay as they are.
    assert dict(native.named_buffers())["model.rotary_emb.inv_freq"].dtype == torch.float32
    processor()
    monkeypatch.setattr(load, "_LARGE", 1)
    assert load_model(tmp_path).dtype == torch.bfloat16  # as saved


def test_a_model_that_sees_images_has_its_start_token_in_the_configuration_of_text():
    model: Any = SimpleNamespace(config=Gemma3Config(text_config={"bos_token_id": 7}))
    assert load.config_token(model, "bos_token_id", "eos_token_id") == 7
