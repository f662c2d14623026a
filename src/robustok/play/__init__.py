"""One page to play with the tokenizations of a text, served on this machine."""

from robustok.play.server import allowed_hosts, application, serve

__all__ = ["allowed_hosts", "application", "serve"]
