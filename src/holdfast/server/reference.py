"""The reference for people: one page made from the schema, with no script and nothing from afar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}
code{background:#8882;padding:.1em .3em;border-radius:.2em}
h2{border-top:1px solid #8884;padding-top:1rem;margin-top:2rem}
dt{font-weight:600;margin-top:.5rem}dd{margin-left:1.5rem}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"""

_KEY = """\
<p>Every request but <code>/health</code> has to show the key:
<code>Authorization: Bearer …</code>. The same, for machines, is at
<code>/openapi.json</code>.</p>"""


def page(schema: Mapping[str, Any]) -> str:
    info = schema["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>",
        "<meta name=viewport content='width=device-width'>",
        f"<style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info.get('description', ''))}</p>",
        _KEY,
    ]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts += _operation(path, method, operation)
    return "\n".join(parts)


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
    yield f"<p>{escape(operation.get('summary') or '')}"
    if told := operation.get("description"):
        yield f" {escape(told)}"
    yield "</p><dl>"
    for one in operation.get("parameters", ()):
        where = f"{one['name']} ({one['in']})"
        yield f"<dt>{escape(where)}</dt><dd>{escape(one.get('description', ''))}</dd>"
    for status, answer in operation.get("responses", {}).items():
        yield f"<dt>{escape(status)}</dt><dd>{escape(answer.get('description', ''))}</dd>"
    yield "</dl>"
