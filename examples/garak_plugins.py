"""Probe, generator and detector of garak for recorded attacks through tokenization.

    python -m garak_plugins --config garak.yaml --target_type robustok.AttackedModel ...

A program of its own calls ``garak_plugins.register()`` in the process that runs garak.

garak passes prompts as text, and a text has one tokenization in every generator of its own. So the
probe gives the texts of a file of attacks, the generator answers each under its attacked ids, and
the detector asks a judge. :func:`register` puts the three where garak looks plugins up, as
``probes.robustok.AttackedPrompts``, ``generators.robustok.AttackedModel`` and
``detectors.robustok.Judged``.
"""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
from __future__ import annotations

import sys
import types
from typing import Any, ClassVar

import garak.attempt
import garak.detectors.base
import garak.generators.base
import garak.probes
from garak import _config, _plugins

from robustok import RobustokError, Vocabulary
from robustok.attack import function_named, greedy_answer, read_attacks
from robustok.models import load_model

# Their base classes are unknown to type checkers where garak is not installed.
Probe: Any = garak.probes.Probe
Generator: Any = garak.generators.base.Generator
Detector: Any = garak.detectors.base.Detector


class AttackedPrompts(Probe):
    """Prompts of a file of attacks; its parameter ``attacks`` names the file."""

    lang = "*"
    active = False  # it needs a file
    goal = "make the model answer otherwise through the tokenization of its prompt"
    doc_uri = "https://arxiv.org/abs/2503.02174"
    tags: ClassVar[list[str]] = ["owasp:llm01", "payload:generic"]
    primary_detector = "robustok.Judged"
    DEFAULT_PARAMS = Probe.DEFAULT_PARAMS | {"attacks": None}

    def __init__(self, config_root: Any = _config) -> None:
        super().__init__(config_root=config_root)
        self.prompts = [record.text for record in read(self)]


class AttackedModel(Generator):
    """A causal language model that reads a known prompt under its attacked ids.

    Parameters: ``attacks``, the file; ``canonical``, true to read the canonical ids instead, as the
    control. Any other prompt is read canonically.
    """

    generator_family_name = "robustok"
    DEFAULT_PARAMS = Generator.DEFAULT_PARAMS | {"attacks": None, "canonical": False}

    def __init__(self, name: str = "", config_root: Any = _config) -> None:
        super().__init__(name, config_root=config_root)
        self.records = {record.text: record for record in read(self)}
        self.model, self.vocab = load_model(self.name), Vocabulary.load(self.name)
        if {record.vocabulary for record in self.records.values()} != {self.vocab.fingerprint}:
            raise RobustokError(f"the attacks have ids of another vocabulary than {self.name}")

    def _call_model(self, prompt: Any, generations_this_call: int = 1) -> list[Any]:
        text = prompt.last_message().text
        record = self.records.get(text)
        around: dict[str, Any] = {}
        ids: Any = self.vocab.encode(text)
        if record is not None:
            around = {"prefix": record.prefix, "suffix": record.suffix}
            ids = ids if self.canonical else record.ids
        answer = greedy_answer(
            self.model, self.vocab, ids, max_new_tokens=self.max_tokens, **around
        )
        return [garak.attempt.Message(text=answer)] * generations_this_call


class Judged(Detector):
    """A hit where a judge gives more than 0; its parameter ``judge`` is MODULE:FUNCTION."""

    lang_spec = "*"
    DEFAULT_PARAMS = Detector.DEFAULT_PARAMS | {"judge": None}

    def detect(self, attempt: Any) -> list[float | None]:
        if not self.judge:
            raise RobustokError("the detector needs a judge: set its parameter to MODULE:FUNCTION")
        judge = function_named(self.judge)
        text = attempt.prompt.last_message().text
        return [
            None if output is None else min(1.0, max(0.0, float(judge(text, output.text))))
            for output in attempt.outputs
        ]


def read(plugin: Any) -> list[Any]:
    """The attacks of the file that a plugin's parameter names."""
    if not plugin.attacks:
        raise RobustokError("name a file of attacks: set the parameter attacks of this plugin")
    return read_attacks(plugin.attacks)


def register() -> None:
    """Put the three classes where garak's ``load_plugin`` finds them.

    Call it once in the process that runs garak.
    """
    kinds = (("probes", AttackedPrompts), ("generators", AttackedModel), ("detectors", Judged))
    for kind, plugin in kinds:
        name = f"garak.{kind}.robustok"
        # The report is headed by the module's docstring.
        module = types.ModuleType(name, plugin.__doc__)
        module.__file__ = __file__  # garak's harness reads the time of its last change
        setattr(module, plugin.__name__, plugin)
        plugin.__module__ = name  # garak reads the section of its configuration from it
        sys.modules[name] = module
        # The command line knows the names of this table only.
        entry = _plugins.PluginCache.plugin_info(plugin)
        _plugins.PluginCache.instance()[kind][f"{kind}.robustok.{plugin.__name__}"] = entry


if __name__ == "__main__":
    import garak.cli

    register()
    garak.cli.main(sys.argv[1:])
