"""The playground: an interactive page about the tokenizations of a text, served locally."""

from robustok.play.server import allowed_hosts, application, serve

__all__ = ["allowed_hosts", "application", "serve"]
