"""One page to play with the tokenizations of a text, served on this machine."""

from robustok.play.server import application, serve

__all__ = ["application", "serve"]
