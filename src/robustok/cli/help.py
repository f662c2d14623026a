"""Help that lists the schemes, those of installed packages included."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

SCHEMES = "<schemes>"  # in the help of an option: replaced by the names of all schemes


class Command(TyperCommand):
    """A command that looks for packages with schemes only when its help is printed."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for param in self.params:
            text = getattr(param, "help", None)
            if text and SCHEMES in text:
                from robustok.samplers.registry import schemes

                param.help = text.replace(SCHEMES, ", ".join(schemes()))  # type: ignore[attr-defined]
        super().format_options(ctx, formatter)
