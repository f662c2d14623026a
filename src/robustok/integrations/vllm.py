"""vLLM: an endpoint plug-in that puts the guard in front of its OpenAI-compatible server.

Written against the documented protocol of the entry-point group ``vllm.endpoint_plugins``. Releases
without that group take ``--middleware robustok.integrations.asgi.GuardMiddleware``.
"""

from __future__ import annotations

from typing import Any

from robustok.integrations.asgi import GuardMiddleware
from robustok.integrations.serving.prompts import PromptGuard


class GuardPlugin:
    """Adds :class:`GuardMiddleware` to the server's application.

    vLLM loads it where ``VLLM_PLUGINS`` names ``robustok``, and makes it without arguments. The
    policy is the one that the environment describes (:meth:`PromptGuard.from_environment`), so that
    a wrong one stops the server at its start.
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
