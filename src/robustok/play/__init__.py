"""The playground: an interactive page about the tokenizations of a text, served locally."""

from robustok.runtime.packages import require

require("torch", "starlette", "uvicorn")

from robustok.play.server import application, serve

__all__ = ["application", "serve"]
