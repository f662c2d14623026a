"""The former place of the middleware."""

from robustok.integrations.serving import GuardMiddleware as GuardMiddleware
