"""SGLang: a general plug-in that guards the ids of every request before they are scheduled.

Written against the documented interface of the entry-point group ``sglang.srt.plugins`` and its
HookRegistry. It hooks the one method that all routes and the offline engine call, so it also covers
prompts that do not come over HTTP.
"""

from __future__ import annotations

from typing import Any

from robustok.integrations.serving.prompts import PromptGuard, as_ids

TARGET = "sglang.srt.managers.tokenizer_manager.TokenizerManager.generate_request"


def register() -> None:
    """Register the hook, with the policy that the environment describes.

    Does nothing where ``ROBUSTOK_GUARD_TOKENIZER`` is not set, since SGLang loads every installed
    plug-in unless ``SGLANG_PLUGINS`` names others.
    """
    import os

    if not os.environ.get("ROBUSTOK_GUARD_TOKENIZER"):
        return
    from sglang.srt.plugins.hook_registry import (  # type: ignore[import-not-found]
        HookRegistry,
        HookType,
    )

    HookRegistry.register(TARGET, input_hook(PromptGuard.from_environment()), HookType.BEFORE)


def input_hook(prompts: PromptGuard) -> Any:
    """A hook of type BEFORE for ``TokenizerManager.generate_request(self, obj, request)``.

    Args:
        prompts: the policy. Its refusals are ValueErrors, which SGLang answers with 400.

    ``obj.input_ids`` is one sequence or a list of them; None where the request has text.
    """

    def before(manager: Any, obj: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        ids = getattr(obj, "input_ids", None)
        if ids is not None and len(ids):
            single = as_ids(ids) is not None
            judged = prompts.judge([ids] if single else ids)
            prompts.counters.add("requests", "ids")
            obj.input_ids = judged[0] if single else judged
        return (manager, obj, *args), kwargs

    return before
