"""What the server says of itself. True only for what there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.config import Settings
from holdfast.engine.means import Means
from holdfast.errors import StoreError
from holdfast.server.metrics import Metrics
from holdfast.server.service import Service

_ENDPOINTS = {
    "run_submission": ("POST", "/v1/runs"),
    "run_list": ("GET", "/v1/runs"),
    "run_status": ("GET", "/v1/runs/{run_id}"),
    "run_events": ("GET", "/v1/runs/{run_id}/events"),
    "run_journal": ("GET", "/v1/runs/{run_id}/journal"),
    "run_approval": ("POST", "/v1/runs/{run_id}/approval"),
    "run_steer": ("POST", "/v1/runs/{run_id}/steer"),
    "run_stop": ("POST", "/v1/runs/{run_id}/stop"),
    "session_list": ("GET", "/v1/sessions"),
    "session_create": ("POST", "/v1/sessions"),
    "session_status": ("GET", "/v1/sessions/{session_id}"),
    "session_change": ("PATCH", "/v1/sessions/{session_id}"),
    "session_delete": ("DELETE", "/v1/sessions/{session_id}"),
    "session_restore": ("POST", "/v1/sessions/{session_id}/restore"),
    "session_messages": ("GET", "/v1/sessions/{session_id}/messages"),
    "session_queue": ("GET", "/v1/sessions/{session_id}/queue"),
    "session_queue_edit": ("PATCH", "/v1/sessions/{session_id}/queue/{message_id}"),
    "session_queue_remove": ("DELETE", "/v1/sessions/{session_id}/queue/{message_id}"),
    "session_events": ("GET", "/v1/sessions/{session_id}/events"),
    "session_list_events": ("GET", "/v1/events"),
    "session_export": ("GET", "/v1/sessions/{session_id}/export"),
    "session_import": ("POST", "/v1/sessions/import"),
    "sessions": ("GET", "/api/sessions"),
    "session": ("GET", "/api/sessions/{session_id}"),
    "session_history": ("GET", "/api/sessions/{session_id}/messages"),
    "session_chat": ("POST", "/api/sessions/{session_id}/chat"),
    "session_chat_stream": ("POST", "/api/sessions/{session_id}/chat/stream"),
    "models": ("GET", "/v1/models"),
    "chat_completions": ("POST", "/v1/chat/completions"),
    "responses": ("POST", "/v1/responses"),
    "response": ("GET", "/v1/responses/{id}"),
    "response_cancel": ("POST", "/v1/responses/{id}/cancel"),
    "response_delete": ("DELETE", "/v1/responses/{id}"),
    "response_input_items": ("GET", "/v1/responses/{id}/input_items"),
    "toolsets": ("GET", "/v1/toolsets"),
    "metrics": ("GET", "/metrics"),
    "openapi": ("GET", "/openapi.json"),
}

_FEATURES: Mapping[str, bool | str] = {
    "run_submission": True,
    "run_status": True,
    "run_list": True,
    "run_events_sse": True,
    "run_events_resumable": True,
    "run_steer": True,
    "run_stop": True,
    "run_approval_response": True,
    "run_idempotency": True,
    "approval_events": True,
    "approval_identity_v1": True,
    "tool_progress_events": True,
    "chat_completions": True,
    "chat_completions_streaming": True,
    "responses_api": True,
    "responses_streaming": True,
    "session_continuity_header": "X-Hermes-Session-Id",
    "session_resources": True,
    "session_chat": True,
    "session_chat_streaming": True,
    "session_queue": True,
    "session_events_resumable": True,
    "session_export": True,
    "session_fork": False,
}


@dataclass(frozen=True)
class About:
    service: Service
    settings: Settings
    means: Means
    version: str
    numbers: Metrics
    #: How commands are contained.
    jail: Callable[[], dict[str, Any]] | None = None

    def health(self) -> dict[str, str]:
        return {"status": "ok", "platform": "holdfast", "version": self.version}

    async def detailed(self) -> dict[str, Any]:
        checks = {"store": await self._store(), "model": "ok" if self.means.models else "missing"}
        well = all(check == "ok" for check in checks.values())
        return {
            "status": "ok" if well else "degraded",
            "platform": "holdfast",
            "version": self.version,
            "gateway_state": "draining" if self.service.draining.is_set() else "running",
            "readiness": {"status": "ready" if well else "not_ready", "checks": checks},
            "models": list(self.means.models),
            "tools": list(self.means.tools),
            "jail": self.jail()
            if self.jail
            else {"status": "none", "detail": "there are no tools"},
            "pid": os.getpid(),
        }

    async def _store(self) -> str:
        broken: StoreError | None = getattr(self.means.store, "broken", None)
        if broken:
            return "broken"
        if getattr(self.means.store, "full", False):
            return "full"
        try:
            await self.means.store.census()
        except StoreError:
            return "unavailable"
        return "ok"

    def capabilities(self) -> dict[str, Any]:
        return {
            "object": "hermes.api_server.capabilities",
            "platform": "holdfast",
            "version": self.version,
            "model": self.settings.default_model,
            "auth": {"type": "bearer", "required": self.settings.server.auth == "token"},
            "runtime": {
                "mode": "server_agent",
                "tool_execution": "server",
                "split_runtime": False,
                "description": "The server carries the agent; clients follow it.",
            },
            "features": {**_FEATURES, "cors": bool(self.settings.server.cors_origins)},
            "endpoints": {
                name: {"method": method, "path": path}
                for name, (method, path) in _ENDPOINTS.items()
            },
        }

    def toolsets(self) -> dict[str, Any]:
        tools = [
            {
                "name": tool.spec.name,
                "description": tool.spec.description,
                "writes": tool.spec.writes,
                "network": tool.spec.network,
            }
            for tool in self.means.tools.values()
        ]
        whole = {
            "name": "agent",
            "label": "Agent",
            "description": "All tools that a run may use.",
            "enabled": True,
            "configured": True,
            "tools": tools,
        }
        return {"object": "list", "platform": "holdfast", "data": [whole] if tools else []}

    async def metrics(self) -> tuple[bytes, str]:
        """The numbers, and what kind of text they are."""
        # Takes a while to load, and is needed by few.
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        census, readers = await self.means.store.census(), len(self.service.readers)
        registry = self.numbers.registry(census, readers=readers, lines=self.means.lines)
        return generate_latest(registry), CONTENT_TYPE_LATEST
