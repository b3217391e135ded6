from pathlib import Path

import pytest

from holdfast.config.settings import DEMO, ModelSettings, ServerSettings, Settings
from holdfast.core.usage import Budget
from holdfast.core.watchdog import Patience


def test_settings_do_not_change():
    settings = Settings(Path("/x"))
    with pytest.raises(AttributeError):
        settings.data = Path("/y")
    for mapping in (settings.models, settings.mcp, DEMO.headers, DEMO.options):
        with pytest.raises(TypeError):
            mapping["x"] = 1


def test_without_anything_set_there_is_the_demo_and_the_usual_limits():
    settings = Settings(Path("/x"))
    assert settings.models == {"demo": DEMO}
    assert settings.default_model == "demo"
    assert settings.budget == Budget(turns=90)
    assert DEMO.patience == Patience(connect=30, first=45, between=120, whole=1800)
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8642)


def test_what_is_nobody_s_business_is_not_in_a_repr():
    secret = "hunter2hunter2"
    model = ModelSettings("main", "anthropic", "x", key=secret, headers={"x-tenant": secret})
    server = ServerSettings(key=secret)
    assert secret not in repr(Settings(Path("/x"), models={"main": model}, server=server))
