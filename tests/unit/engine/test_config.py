"""Configuration: five layers, one checked result, and errors that name the key, the layer and the remedy."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from rstream import config
from rstream.config import Config, known_keys, load, parse_set
from rstream.errors import ConfigError


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "rstream.yaml"


def test_without_any_layer_everything_is_the_default() -> None:
    settings = load(environment={})
    assert settings.config == Config()
    assert dict(settings.origins) == {}
    assert {origin for _, _, origin in settings.rows()} == {"default"}
    assert [key for key, _, _ in settings.rows()] == known_keys()


def test_each_layer_wins_over_the_one_below(file: pathlib.Path) -> None:
    file.write_text("spares: 3\nbatch:\n  window: 30\n")
    layers: list[tuple[str, dict[str, Any]]] = [
        ("topology", {"topology": {"spares": 2, "batch.window": 20}}),
        (f"file {file}", {"file": file}),
        ("environment", {"environment": {"RSTREAM_SPARES": "4", "RSTREAM_BATCH__WINDOW": "40"}}),
        ("flag", {"flags": {"spares": 5, "batch.window": 50}}),
    ]
    given: dict[str, Any] = {"environment": {}}
    for number, (origin, layer) in enumerate(layers, start=2):
        given = {**given, **layer}
        settings = load(**given)
        assert settings.config.spares == number
        assert settings.config.batch.window == number * 10
        assert settings.origins["spares"] == settings.origins["batch.window"] == origin
    without_flags = load(**{**given, "flags": None})
    assert without_flags.config.spares == 4


def test_layers_merge_key_by_key(file: pathlib.Path) -> None:
    file.write_text("batch: {window: 7}\n")
    settings = load(topology={"batch": {"max_tuples": 5}}, file=file, environment={}, flags={"seed": "9"})
    assert (settings.config.batch.max_tuples, settings.config.batch.window, settings.config.seed) == (5, 7, 9)
    rows = {key: (value, origin) for key, value, origin in settings.rows()}
    assert rows["batch.max_tuples"] == (5, "topology")
    assert rows["batch.window"] == (7, f"file {file}")
    assert rows["batch.window_bytes"][1] == "default"


@pytest.mark.parametrize("content", ["", "# nothing\n", "{}"])
def test_an_empty_file_sets_nothing(file: pathlib.Path, content: str) -> None:
    file.write_text(content)
    assert load(file=file, environment={}).config == Config()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"topology": {"polcy": "es"}},
            "the topology's config: unknown key 'polcy'; the nearest known one is 'policy'",
        ),
        ({"flags": {"batch.windw": 1}}, "--set: unknown key 'batch.windw'; the nearest known one is 'batch.window'"),
        (
            {"environment": {"RSTREAM_WORKRS": "1"}},
            "environment variable RSTREAM_WORKRS: unknown key 'workrs'; the nearest known one is 'workers'",
        ),
        ({"flags": {"batch": 1}}, "--set: unknown key 'batch'; the nearest known one is 'batch."),
        ({"flags": {"workers": 0}}, "workers (flag): input should be greater than or equal to 1, got 0"),
        (
            {"topology": {"on_error": "no"}},
            "on_error (topology): input should be 'fail', 'skip' or 'dead_letter', got 'no'",
        ),
        (
            {"environment": {"RSTREAM_BATCH__WINDOW": "many"}},
            "batch.window (environment): input should be a valid integer, unable to parse",
        ),
        ({"environment": {"RSTREAM_POLICY": "[es"}}, "environment variable RSTREAM_POLICY: '[es' is no value"),
    ],
)
def test_a_wrong_key_or_value_is_one_line_with_its_layer(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(**{"environment": {}, **given})
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"workers: [1", "is not valid YAML: .*line"),
        (b"\xff\xfe\x00", "is not valid YAML"),
        (b"- a\n- b\n", "wanted keys and values, got a list"),
        (b"just text", "wanted keys and values, got a str"),
        (b"batch:\n  wnidow: 3\n", "unknown key 'batch.wnidow'; the nearest known one is 'batch.window'"),
        (b"5: 3\n", "unknown key '5'"),
    ],
)
def test_a_bad_file_is_one_line_with_its_path(file: pathlib.Path, content: bytes, message: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load(file=file, environment={})
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot read config file no/such\.yaml: No such file"):
        load(file="no/such.yaml", environment={})


def test_variables_with_our_prefix_that_are_no_settings_are_let_be() -> None:
    assert load(environment={"RSTREAM_VERBOSE": "1", "OTHER": "x"}).config == Config()


def test_the_real_environment_is_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSTREAM_SEED", "77")
    assert load().config.seed == 77


def test_set_options_are_read_as_yaml() -> None:
    assert parse_set(["workers=3", "policy=es", "slow_call_ms=1.5", "nodes=", "coordinator.store=s3://a=b"]) == {
        "workers": 3,
        "policy": "es",
        "slow_call_ms": 1.5,
        "nodes": None,
        "coordinator.store": "s3://a=b",
    }


@pytest.mark.parametrize("pair", ["workers", "=3", ""])
def test_a_set_option_without_key_or_value_is_refused(pair: str) -> None:
    with pytest.raises(ConfigError, match="--set wants key=value, got"):
        parse_set([pair])


def test_a_set_option_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--set policy=\[es: '\[es' is no value"):
        parse_set(["policy=[es"])


def test_every_key_is_described() -> None:
    for key, field in config.fields():
        assert field.description, key
        assert field.description.endswith("."), key


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 3  # type: ignore[misc]


def test_settings_by_step_are_read_from_any_layer() -> None:
    assert load(topology={"pools": {"count": 4}}, environment={}).config.pools == {"count": 4}
    assert load(flags={"pools": {"count": 2}}, environment={}).config.pools == {"count": 2}
