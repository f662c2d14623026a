"""The step of datatrove, in a pipeline of real worker processes."""

import json
from pathlib import Path

import numpy as np
import pytest

import robustok as rt

pytest.importorskip("datatrove")
pytestmark = pytest.mark.filterwarnings("ignore")  # of datatrove

TEXTS = [f"the quick brown fox number {i} jumps over the lazy dog" for i in range(40)]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_files_of_a_pipeline_have_drawn_ids(tmp_path: Path, workers: int) -> None:
    from datatrove.executor import LocalPipelineExecutor  # pyright: ignore[reportMissingImports]
    from datatrove.pipeline.readers import JsonlReader  # pyright: ignore[reportMissingImports]

    from robustok.integrations.datatrove import StochasticDocumentTokenizer
    from robustok.runtime.hub import own_tokenizer

    demo = str(own_tokenizer("demo"))
    (tmp_path / "in").mkdir()
    for part in range(2):
        rows = [json.dumps({"text": text, "id": text}) for text in TEXTS[part::2]]
        (tmp_path / "in" / f"{part}.jsonl").write_text("\n".join(rows))
    step = StochasticDocumentTokenizer(
        str(tmp_path / "out"), demo, scheme="uniform", draw_seed=3, epoch=1,
        eos_token="<|endoftext|>", shuffle_documents=False,
    )  # fmt: skip
    LocalPipelineExecutor(
        pipeline=[JsonlReader(str(tmp_path / "in")), step], tasks=2, workers=workers,
        logging_dir=str(tmp_path / "logs"),
    ).run()  # fmt: skip
    vocab = rt.Vocabulary.load("demo")
    (end,) = vocab.special
    written: dict[str, list[int]] = {}
    for path in sorted((tmp_path / "out").glob("*.ds")):
        tokens = np.fromfile(path, np.uint16)
        for row in np.split(tokens, np.flatnonzero(tokens == end) + 1):
            if len(row):
                assert row[-1] == end
                written[vocab.decode(row[:-1])] = row[:-1].tolist()
    from tokenizers import Tokenizer

    drawing = rt.stochastic(Tokenizer.from_file(demo), "uniform", seed=3)
    drawing.set_epoch(1)
    assert written == {text: drawing.encode(text).ids for text in TEXTS}
    assert written != {text: vocab.encode(text).tolist() for text in TEXTS}
