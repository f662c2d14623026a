"""Plug-ins that put the guard into vLLM and SGLang.

Written against the documented interfaces of the entry-point groups ``vllm.endpoint_plugins`` and
``sglang.srt.plugins``. The policy is the one that the environment describes
(:meth:`PromptGuard.from_environment`), so that a wrong one stops the server at its start.
"""

from __future__ import annotations

import os
from typing import Any

from robustok.integrations.asgi import GuardMiddleware
from robustok.integrations.serving.bodies import Refused
from robustok.integrations.serving.prompts import PromptGuard

SGLANG_TARGET = "sglang.srt.managers.tokenizer_manager.TokenizerManager.generate_request"


class VllmPlugin:
    """Adds :class:`GuardMiddleware` to the application of vLLM's OpenAI-compatible server.

    vLLM loads it where ``VLLM_PLUGINS`` names ``robustok``, and makes it without arguments.
    Releases without that group take ``--middleware robustok.integrations.asgi.GuardMiddleware``.
    """

    name = "robustok"
    required_tasks = None  # any server that takes prompts

    def attach_router(self, app: Any) -> None:
        """Add the middleware.

        Args:
            app: the FastAPI application, before it starts.
        """
        app.add_middleware(GuardMiddleware, prompts=PromptGuard.from_environment())

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Nothing: the guard needs no engine.

        Args:
            engine_client: unused.
            state: unused.
            args: unused.
        """


def register_sglang() -> None:
    """Hook the one method that all routes of SGLang and its offline engine call.

    So it also covers prompts that do not come over HTTP. Does nothing where
    ``ROBUSTOK_GUARD_TOKENIZER`` is not set, since SGLang loads every installed plug-in unless
    ``SGLANG_PLUGINS`` names others.
    """
    if not os.environ.get("ROBUSTOK_GUARD_TOKENIZER"):
        return
    from sglang.srt.plugins.hook_registry import (  # type: ignore[import-not-found]
        HookRegistry,
        HookType,
    )

    HookRegistry.register(
        SGLANG_TARGET, input_hook(PromptGuard.from_environment()), HookType.BEFORE
    )


def input_hook(prompts: PromptGuard) -> Any:
    """A hook of type BEFORE for ``TokenizerManager.generate_request(self, obj, request)``.

    Args:
        prompts: the policy. Its refusals are ValueErrors, which SGLang answers with 400.

    ``obj.input_ids`` is one sequence or a list of them; None where the request has text.
    """

    def before(manager: Any, obj: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        ids = getattr(obj, "input_ids", None)
        if ids is not None and len(ids):
            single = not hasattr(ids[0], "__len__")
            prompts.counters.add("requests", "ids")
            try:
                judged = prompts.judge([ids] if single else ids)
            except Refused as refused:
                prompts.counters.add("refused", refused.reason)
                raise
            obj.input_ids = judged[0] if single else judged
        return (manager, obj, *args), kwargs

    return before
