"""What a cell costs: seconds on one core for the progress bars, hours on a GPU for the list."""

from __future__ import annotations

from collections.abc import Sequence

from robustok.study.schema import Adversary, Embeddings, Pretraining, Study, Training

CORE = 1e11  # floating-point operations a second of one core on small models
GPU = 3e14  # and of one large accelerator in bfloat16, at a third of its peak
QUESTION = 45  # tokens of a question with its answer
NEIGHBORS = 80  # tokenizations an attack scores in a step
STEPS = 3  # that it takes before it wins or gives up


def parameters(study: Study) -> float:
    """About how many parameters a study's model has.

    A named model says so itself or is taken for a billion.
    """
    model = study.model
    if model.name is not None:
        return model.parameters or 1e9
    sizes = model.sizes()
    width, size = sizes["width"], study.tokenizer.size if study.tokenizer else None
    keys = width // sizes["heads"] * sizes["kv_heads"]
    block = 2 * width * width + 2 * width * keys + 3 * width * sizes["feed_forward"]
    return sizes["layers"] * block + (1 if sizes["tied"] else 2) * (size or 50_257) * width


def training_tokens(study: Study, training: Training, scheme: str) -> float:
    """About how many tokens a training takes: full contexts of text, or questions."""
    rows = float(training.steps * training.batch_size)
    if isinstance(training, Pretraining) and training.source == "corpus":
        return rows * (study.model.context or 512)
    # Drawn tokenizations are about twice as long as the canonical ones.
    return rows * QUESTION * (1 if scheme == "canonical" else 2)


def training_work(study: Study, training: Training, scheme: str) -> float:
    return 6 * parameters(study) * training_tokens(study, training, scheme) / CORE


def evaluation_work(study: Study, questions: int) -> float:
    return 2 * parameters(study) * 2 * QUESTION * questions / CORE + 0.5


def attack_work(study: Study, attack: Adversary) -> float:
    # The neighbors of a tokenization share most of their tokens.
    scored = attack.items * min(attack.steps, STEPS) * NEIGHBORS * QUESTION / 3
    return 2 * parameters(study) * scored * len(attack.distances) / CORE + 1


def perplexity_work(study: Study) -> float:
    documents = study.corpus.measured if study.corpus else 0
    return 2 * parameters(study) * documents * 2_500 / CORE + 0.5


def embeddings_work(study: Study, asked: Embeddings) -> float:
    # A word has few tokens, and its tokenizations share them.
    return 2 * parameters(study) * asked.words * asked.draws * 3 / CORE + 2


def gpu_hours(work: Sequence[float]) -> float:
    """Hours on one accelerator for cells of this many seconds on one core."""
    return sum(work) * CORE / GPU / 3600
