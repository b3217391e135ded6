import pytest

from holdfast.config.models import TTFB, default_model, first_event, key_in, limits, read_models
from holdfast.config.tables import Setting, Table, shown
from holdfast.core.watchdog import Patience
from holdfast.errors import ConfigError
from holdfast.models.catalog import Price

KEY = "sk-live-0123456789abcdef"
ENVIRON = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": "ak-0123456789abcdef"}
VARIABLE = "put it in a variable of the environment and name that in api_key_env"


def file(main=None, default=None, **others):
    values = {"models": {"main": {"wire": "openai-chat", "model": "m"} | (main or {}), **others}}
    if default is not None:
        values["default_model"] = default
    return Table(Setting("holdfast.toml: ", values), "models default_model")


def model(environ=ENVIRON, **main):
    return read_models(file(main, backup={"wire": "demo"}), environ)["main"]


def refusal(environ=ENVIRON, **main):
    with pytest.raises(ConfigError) as caught:
        model(environ, **main)
    assert KEY not in str(caught.value)
    return str(caught.value)


def test_a_model_is_what_its_table_says():
    found = model(
        wire="anthropic",
        model="claude-x",
        base_url="https://h/v1/",
        api_key_env="OPENAI_API_KEY",
        fallback=["backup"],
        stream=False,
        window=1000,
        price={"input": 1, "output": 2, "cached": 0.5},
        headers={"x-tenant": " ada "},
        concurrency=3,
        patience={"connect": 1, "first": 2, "between": 3, "whole": 4},
        retry={"attempts": 5, "total": 0, "hedge": 20, "hedge_to": "fallback"},
        options={"temperature": 0.5, "stop": ["x"]},
    )
    assert (found.name, found.wire, found.model) == ("main", "anthropic", "claude-x")
    assert (found.base_url, found.key_env, found.key) == ("https://h/v1", "OPENAI_API_KEY", KEY)
    assert (found.fallback, found.stream, found.window) == (("backup",), False, 1000)
    assert found.price == Price(input=1, output=2, cached=0.5)
    assert (found.headers, found.concurrency) == ({"x-tenant": "ada"}, 3)
    assert found.patience == Patience(connect=1, first=2, between=3, whole=4)
    assert (found.grows, found.attempts, found.total) == ((), 5, 0)
    assert (found.hedge, found.hedge_to) == (20, "backup")
    assert found.options == {"temperature": 0.5, "stop": ["x"]}


def test_a_model_has_defaults():
    found = model(model="gpt-5.5")
    assert (found.base_url, found.key) == ("https://api.openai.com/v1", KEY)
    assert (found.stream, found.fallback, found.headers, found.options) == (True, (), {}, {})
    assert (found.window, found.price) == (1_050_000, Price(5.0, 30.0, 0.5))
    assert (found.concurrency, found.attempts, found.total) == (0, 4, 600)
    assert (found.hedge, found.hedge_to) == (0, "")
    assert found.patience == Patience(connect=30, first=45, between=120, whole=1800)
    assert found.grows == ("first", "between", "whole")


def test_a_wire_leads_home_with_the_key_for_it():
    found = model(wire="anthropic")
    assert found.base_url == "https://api.anthropic.com/v1"
    assert (found.key_env, found.key) == ("ANTHROPIC_API_KEY", ENVIRON["ANTHROPIC_API_KEY"])


def test_no_key_goes_to_an_address_that_nobody_meant_it_for():
    found = model(base_url="https://elsewhere/v1")
    assert (found.key, found.key_env) == ("", "")


@pytest.mark.parametrize(
    ("wire", "url"),
    [
        ("openai-chat", "https://api.openai.com/v1"),
        ("openai-responses", "https://api.openai.com/v1/"),
        ("anthropic", "https://api.anthropic.com/v1"),
    ],
)
def test_the_usual_address_written_out_keeps_its_usual_key(wire, url):
    assert model(wire=wire, base_url=url) == model(wire=wire)
    assert model(wire=wire, base_url=url).key


def test_the_demo_needs_nothing():
    (found,) = read_models(
        Table(Setting("", {"models": {"d": {"wire": "demo"}}}), "models"), {}
    ).values()
    assert (found.model, found.base_url, found.key) == ("demo", "", "")
    assert found.price == Price(0.0, 0.0, 0.0)
    assert model(wire="demo", model="x", base_url="http://h").base_url == "http://h"


def test_models_keep_the_order_of_the_file_and_none_is_none():
    assert list(read_models(file(b={"wire": "demo"}, a={"wire": "demo"}), ENVIRON)) == [
        "main",
        "b",
        "a",
    ]
    assert read_models(Table(Setting("", {}), "models"), {}) == {}


def test_a_price_for_cached_input_is_that_for_any_unless_it_is_set():
    assert model(price={"input": 2, "output": 4}).price == Price(2, 4, 2)
    written = {"input": 2, "output": 4, "cached": 1, "written": 3}
    assert model(price=written).price == Price(2, 4, 1, 3)


# --- what is refused -------------------------------------------------------------------


NUMBER = "a number of seconds, 0 to switch it off"
COUNT = "a whole number, 1 or more"
MODEL = "the endpoint's own name for the model, as in gpt-5.5"
URL = "an address with a host that begins with http:// or https://"
HEDGE = '"off" or a number of seconds above 0'


@pytest.mark.parametrize(
    ("main", "said"),
    [
        ({"wire": "grpc"}, 'wire is "grpc"; it must be one of openai-chat, openai-responses, anthropic, demo'),
        ({"wire": 5}, "wire is 5; it must be one of openai-chat, openai-responses, anthropic, demo"),
        ({"model": ""}, f'model is ""; it must be {MODEL}'),
        ({"model": 5}, f"model is 5; it must be {MODEL}"),
        ({"base_url": "h/v1"}, f'base_url is "h/v1"; it must be {URL}'),
        ({"base_url": f"https://ada:{KEY}@h"}, "base_url has an @ in it; an address must not hold a name or a password"),
        ({"base_url": "https://h/v1/responses"}, "base_url ends in /responses; leave that off, it is added to each call"),
        ({"api_key": KEY}, f"api_key is set; a key never stands in the file: {VARIABLE}"),
        ({"api_key_env": KEY}, f"api_key_env is not the name of a variable; a key never stands in the file: {VARIABLE}"),
        ({"api_key_env": "abcdef0123456789"}, f"api_key_env is not the name of a variable; a key never stands in the file: {VARIABLE}"),
        ({"api_key_env": ""}, f"api_key_env is not the name of a variable; a key never stands in the file: {VARIABLE}"),
        ({"api_key_env": 5}, f"api_key_env is not the name of a variable; a key never stands in the file: {VARIABLE}"),
        ({"api_key_env": "MY_KEY"}, "api_key_env names MY_KEY, and that is not set in the environment"),
        ({"fallback": ["main"]}, 'fallback names "main", which is the model itself'),
        ({"fallback": ["other"]}, 'fallback names "other", and no model has that name; there is backup, main'),
        ({"fallback": ["backup", "backup"]}, 'fallback names "backup" twice'),
        ({"fallback": "backup"}, 'fallback is "backup"; it must be a list of names of models'),
        ({"fallback": [5]}, "fallback[1] is 5; it must be a text without blanks around it"),
        ({"stream": 1}, "stream is 1; it must be true or false"),
        ({"window": -1}, "window is -1; it must be a whole number, 0 or more"),
        ({"price": 5}, "price is 5; it must be a table"),
        ({"price": {"input": 1}}, "price.output is missing; it must be a price for a million tokens"),
        ({"price": {"output": 1}}, "price.input is missing; it must be a price for a million tokens"),
        ({"price": {"input": 1, "output": 1, "cached": -1}}, "price.cached is -1; it must be a price for a million tokens"),
        ({"price": {"input": 1, "output": 1, "written": "x"}}, 'price.written is "x"; it must be a price for a million tokens'),
        ({"headers": {"Authorization": f"Bearer {KEY}"}}, f"headers.Authorization is set; a key never stands in the file: {VARIABLE}"),
        ({"headers": {"x y": "z"}}, 'headers."x y" has a name that no header can have'),
        ({"headers": {"x": "a\nb"}}, "headers.x has a value that no header can have; it must be a text in ASCII"),
        ({"headers": {"x": 5}}, "headers.x has a value that no header can have; it must be a text in ASCII"),
        ({"headers": []}, "headers is a list; it must be a table"),
        ({"concurrency": 0}, f"concurrency is 0; it must be {COUNT}"),
        ({"concurrency": True}, f"concurrency is true; it must be {COUNT}"),
        ({"patience": {"first": "soon"}}, f'patience.first is "soon"; it must be {NUMBER}'),
        ({"patience": {"between": -1}}, f"patience.between is -1; it must be {NUMBER}"),
        ({"patience": {"whole": float("nan")}}, f"patience.whole is nan; it must be {NUMBER}"),
        ({"patience": {"connect": True}}, f"patience.connect is true; it must be {NUMBER}"),
        ({"patience": {"firstt": 1}}, "patience.firstt is not a setting; did you mean first?"),
        ({"patience": 45}, "patience is 45; it must be a table"),
        ({"retry": {"attempts": 0}}, f"retry.attempts is 0; it must be {COUNT}"),
        ({"retry": {"total": float("inf")}}, "retry.total is inf; it must be a number of seconds, 0 for no limit"),
        ({"retry": {"hedge": 0}}, f"retry.hedge is 0; it must be {HEDGE}"),
        ({"retry": {"hedge": "on"}}, f'retry.hedge is "on"; it must be {HEDGE}'),
        ({"retry": {"hedge": -5}}, f"retry.hedge is -5; it must be {HEDGE}"),
        ({"retry": {"hedge": True}}, f"retry.hedge is true; it must be {HEDGE}"),
        ({"retry": {"hedge_to": "x"}}, 'retry.hedge_to is "x"; it must be one of same, fallback'),
        ({"retry": {"hedge_to": "fallback"}}, "retry.hedge_to is fallback, and the model has none"),
        ({"options": 5}, "options is 5; it must be a table"),
        ({"options": {"a": float("nan")}}, "options.a is nan; it must be something that JSON can say"),
        ({"mdel": "x"}, "mdel is not a setting; did you mean model?"),
        ({"temperature": 1}, "temperature is not a setting; the settings here are wire, model, base_url, api_key_env, fallback, stream, window, price, headers, concurrency, patience, retry, options"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_model_is_said_in_a_sentence(main, said):
    assert refusal(**main) == f"holdfast.toml: models.main.{said}"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"model": "m"}, "wire is missing; it must be one of openai-chat, openai-responses, anthropic, demo"),
        ({"wire": "anthropic"}, f"model is missing; it must be {MODEL}"),
    ],
)  # fmt: skip
def test_what_a_model_cannot_do_without_is_missed(table, said):
    values = Table(Setting("holdfast.toml: ", {"models": {"main": table}}), "models")
    with pytest.raises(ConfigError) as caught:
        read_models(values, ENVIRON)
    assert str(caught.value) == f"holdfast.toml: models.main.{said}"


def test_a_model_that_is_no_table_is_refused():
    values = Table(Setting("holdfast.toml: ", {"models": {"main": "gpt-5.5"}}), "models")
    with pytest.raises(ConfigError, match=r'models.main is "gpt-5.5"; it must be a table$'):
        read_models(values, {})


@pytest.mark.parametrize("name", ["", "a b", "a\n", "x" * 101])
def test_a_name_that_could_not_be_asked_for_is_refused(name):
    with pytest.raises(ConfigError) as caught:
        read_models(file(**{name: {"wire": "demo"}}), ENVIRON)
    assert str(caught.value) == (
        f"holdfast.toml: models.{shown(name) if name != 'x' * 101 else name}"
        " has a name that cannot be used; use letters, digits and . : / @ + - _"
    )


def test_a_key_left_out_is_looked_for_where_it_usually_is():
    assert refusal({}) == (
        "holdfast.toml: models.main.api_key_env is left out, which means OPENAI_API_KEY,"
        " and that is not set in the environment"
    )
    assert refusal({"OPENAI_API_KEY": " "}).endswith("and that is not set in the environment")


@pytest.mark.parametrize("value", [f"{KEY} x", f"{KEY}\nx", f"{KEY}ä"])
def test_a_key_is_one_word_in_plain_letters(value):
    assert refusal({"OPENAI_API_KEY": value}) == (
        "OPENAI_API_KEY holds blanks or signs that cannot be part of a key"
    )


def test_blanks_around_a_key_are_no_part_of_it():
    assert key_in("K", {"K": f" {KEY}\n"}) == KEY
    assert key_in("K", {}) == ""


# --- the default -----------------------------------------------------------------------


def default(table):
    return default_model(table, read_models(table, ENVIRON))


def test_the_default_is_the_one_named_else_main_else_the_first():
    assert default(file(other={"wire": "demo"}, default="other")) == "other"
    assert default(file(other={"wire": "demo"})) == "main"
    table = Table(
        Setting("", {"models": {"b": {"wire": "demo"}, "a": {"wire": "demo"}}}),
        "models default_model",
    )
    assert default(table) == "b"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("gone", 'is "gone", and no model has that name; there is main'),
        (5, "is 5; it must be the name of a model"),
    ],
)
def test_a_default_that_is_not_there_is_refused(value, said):
    with pytest.raises(ConfigError) as caught:
        default(file(default=value))
    assert str(caught.value) == f"holdfast.toml: default_model {said}"


# --- patience --------------------------------------------------------------------------


def test_a_limit_that_is_set_does_not_grow():
    found = model(patience={"between": 10})
    assert found.grows == ("first", "whole")
    assert found.patience.between == 10


def test_a_silent_reasoner_is_given_ten_minutes():
    for name in ("o3-pro", "gpt-5.5-pro", "claude-sonnet-5-5"):
        found = model(model=name)
        assert found.patience == Patience(connect=30, first=600, between=600, whole=1800)
        assert found.grows == ("first", "between", "whole")


def test_an_endpoint_on_this_machine_is_given_a_quarter_of_an_hour():
    found = model(base_url="http://localhost:1234/v1")
    assert found.patience == Patience(connect=30, first=900, between=120, whole=1800)
    both = model(base_url="http://127.0.0.1/v1", model="deepseek-r1:8b")
    assert both.patience == Patience(connect=30, first=900, between=600, whole=1800)


def test_what_is_set_counts_even_for_those_who_take_long():
    found = model(model="o1", base_url="http://localhost/v1", patience={"first": 5, "between": 0})
    assert found.patience == Patience(connect=30, first=5, between=0, whole=1800)
    assert found.grows == ("whole",)


def test_the_environment_counts_before_the_file_on_the_responses_wire_alone():
    environ = ENVIRON | {TTFB: "12.5"}
    found = model(environ, wire="openai-responses", patience={"first": 5})
    assert (found.patience.first, found.grows) == (12.5, ("between", "whole"))
    assert model(environ, patience={"first": 5}).patience.first == 5
    assert model(environ).grows == ("first", "between", "whole")


def test_zero_in_the_environment_switches_the_limit_off():
    found = model(ENVIRON | {TTFB: "0"}, wire="openai-responses")
    assert (found.patience.first, found.grows) == (0, ("between", "whole"))


def test_a_bad_limit_in_the_file_is_refused_even_if_the_environment_counts():
    said = refusal(ENVIRON | {TTFB: "1"}, wire="openai-responses", patience={"first": "soon"})
    assert said == f'holdfast.toml: models.main.patience.first is "soon"; it must be {NUMBER}'


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf", " ", "1e3", "9" * 20])
def test_a_bad_value_in_the_environment_is_refused_by_name(value):
    with pytest.raises(ConfigError) as caught:
        read_models(Table(Setting("", {}), "models"), {TTFB: value})
    said = "a very large number" if value == "9" * 20 else f'"{value}"'
    assert str(caught.value) == f"{TTFB} is {said}; it must be {NUMBER}"


def test_an_empty_value_in_the_environment_is_none():
    assert first_event({TTFB: ""}) is None
    assert limits(None, wire="openai-responses", model="m", url="").patience.first == 45
