"""A connection of the playground's server, closed after a timeout without a request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 10.0  # for the head of a request to come, from the connection or the last response on


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 with a deadline for the head of each request.

    uvicorn ends idle connections only after a response. One that never sends a request, or sends it
    byte by byte, would hold its file descriptor for good.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._restart()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._restart()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _restart(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(SECONDS, self._expire)

    def _expire(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if not answering and not self.transport.is_closing():
            self.transport.close()
