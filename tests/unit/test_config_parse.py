"""Configuration: defaults, merging, and refusals that name the file and the key."""

from __future__ import annotations

import dataclasses
import json
import tomllib

import pytest

from stoker.config import limits
from stoker.config.parse import parse
from stoker.config.schema import AdapterConfig, Config, ModelConfig, QuotaConfig
from stoker.core import frames
from stoker.errors import ConfigInvalid
from stoker.events.runner import Generate, to_body

MODEL = '[models.tiny]\npath = "/m/tiny.gguf"\n'


def _parse(*texts: str) -> Config:
    return parse([(f"{n}.toml", tomllib.loads(text)) for n, text in enumerate(texts)])


def _refused(*texts: str) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as caught:
        _parse(*texts)
    assert caught.value.message.startswith("cannot read configuration: ")
    return caught.value


def test_no_files_mean_the_defaults() -> None:
    assert parse([]) == Config()


def test_every_field_of_the_schema_has_a_reader_and_no_other() -> None:
    config = Config()
    for name, readers in limits.SECTIONS.items():
        fields = {item.name for item in dataclasses.fields(getattr(config, name))}
        assert set(readers) == fields, name
    models = {item.name for item in dataclasses.fields(ModelConfig)} - {"name"}
    assert set(limits.MODEL) == models
    sections = {item.name for item in dataclasses.fields(Config)}
    sections -= {"models", "default_model", "adapters", "users", "groups", "folder"}
    adapters = {item.name for item in dataclasses.fields(AdapterConfig)} - {"name"}
    assert set(limits.ADAPTER) == adapters
    assert set(limits.QUOTA) == {item.name for item in dataclasses.fields(QuotaConfig)}
    assert set(limits.SECTIONS) == sections


def test_a_later_file_wins_key_by_key() -> None:
    config = _parse(
        "[runner]\nslots = 2\nthreads = 3\n" + MODEL + "mlock = true\n",
        "[runner]\nthreads = 1\n[models.tiny]\ncontext_tokens = 99\n",
    )
    assert (config.runner.slots, config.runner.threads) == (2, 1)
    assert config.models == (ModelConfig("tiny", "/m/tiny.gguf", context_tokens=99, mlock=True),)


def test_merging_leaves_the_callers_tables_alone() -> None:
    first = {"runner": {"slots": 2}}
    parse([("a", first), ("b", {"runner": {"threads": 1}})])
    assert first == {"runner": {"slots": 2}}


def test_labels_of_several_files_come_together() -> None:
    config = _parse(
        '[device]\nlabels = {site = "north", ring = "late"}\n', '[device.labels]\nring = "canary"\n'
    )
    assert config.device.labels == {"site": "north", "ring": "canary"}


def test_an_error_names_the_file_that_set_the_key() -> None:
    error = _refused("[runner]\nslots = 2\n", "[runner]\nthreads = 9999\n")
    assert error.message == (
        "cannot read configuration: 1.toml: runner.threads: 9999 is outside 0..512"
    )
    assert error.details == {"path": "runner.threads", "file": "1.toml"}


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("[runner]\nslot = 1", "runner.slot", "did you mean slots"),
        ("[runer]\nslots = 1", "runer", "did you mean runner"),
        ("qqq = 1", "qqq", "unknown key"),
        ("runner = 3", "runner", "expected a table"),
        ("[runner]\nslots = true", "runner.slots", "whole number"),
        ("[runner]\nslots = 0", "runner.slots", "outside 1..64"),
        ("[runner]\nengine = 'gpt'", "runner.engine", "not one of llama, echo"),
        ("[runner]\nheartbeat_timeout_s = nan", "runner.heartbeat_timeout_s", "outside"),
        ("[daemon]\nstate_dir = 'here'", "daemon.state_dir", "absolute"),
        ("[daemon]\nbus = 'sistem'", "daemon.bus", "not system, session"),
        ("[daemon]\nstate_dir = '/a\\u0000b'".replace("'", '"'), "daemon.state_dir", "NUL"),
        ("[device]\nid = 'a/b'", "device.id", "device's id"),
        ("[device]\nlabels = {site = 7}", "device.labels.site", "expected a string"),
        ("[device]\nlabels = {site = ''}", "device.labels.site", "printable"),
        ("[device]\nlabels = {'a b' = 'x'}", "device.labels.a b", "label's name"),
        ("[device]\nlabels = {region = 'x'}", "device.labels.region", "device.region"),
        ("[thermal]\nwall_c = 8.5", "thermal.wall_c", "colder"),
        ("[thermal]\nwall_c = 300.0", "thermal.wall_c", "125"),
        ("[thermal]\nwall_c = -5.0", "thermal.wall_c", "0"),
        ("[thermal]\nlaw = 'pid'", "thermal.law", "step-table"),
        ("[thermal]\ngain_w_per_k = -0.1", "thermal.gain_w_per_k", "0"),
        ("[thermal]\nreset_s = -7.0", "thermal.reset_s", "0.5"),
        ("[thermal]\nreset_s = nan", "thermal.reset_s", "outside"),
        ("[thermal]\nmargin_k = -1.0", "thermal.margin_k", "0"),
        ("[thermal]\nsensors = ['cpu', 'cpu']", "thermal.sensors[1]", "twice"),
        ("[thermal]\nsensors = ['']", "thermal.sensors[0]", "name"),
        ("[thermal]\nperiod_min_s = 0.001", "thermal.period_min_s", "0.01"),
        ("[thermal]\nperiod_max_s = 60.0", "thermal.period_max_s", "5"),
        ("[thermal]\nperiod_min_s = 5.1", "thermal.period_min_s", "5"),
        ("[thermal]\nboard = '../etc'", "thermal.board", "board's name"),
        ("[access]\nadmin_group = ''", "access.admin_group", "group's name"),
        ("[models.tiny]\nmmap = true", "models.tiny.path", "missing"),
        ("[models.tiny]\npath = ''", "models.tiny.path", "absolute"),
        (MODEL + "patth = 1", "models.tiny.patth", "did you mean path"),
        (MODEL + "kv_type = 'q5'", "models.tiny.kv_type", "not one of"),
        ('[models."a b"]\npath = "/x"', "models.a b", "model's name"),
        ("[models]\ntiny = 1", "models.tiny", "expected a table"),
        ("[models]\ndefault = 'big'\n" + MODEL, "models.default", "known models: tiny"),
        ("[models]\ndefault = 'big'", "models.default", "known models: none"),
        ("[inference]\nmax_tokens = 9000", "inference.max_tokens", "above max_tokens_limit 8192"),
        ("[inference]\nmax_tokens_limit = 10", "inference.max_tokens_limit", "512 is above"),
        ("[restart]\nbackoff_cap_s = 0.05", "restart.backoff_cap_s", "0.1 is above"),
        ("[thermal]\nperiod_min_s = 5", "thermal.period_min_s", "above period_max_s"),
        ("[runner]\nslots = 32\nbatch_tokens = 16", "runner.batch_tokens", "less than slots 32"),
    ],
)
def test_what_cannot_be_right_is_refused(text: str, path: str, reason: str) -> None:
    error = _refused(text)
    assert error.details["path"] == path
    assert error.details["file"] == "0.toml"
    assert reason in error.message


@pytest.mark.parametrize("bus", ["system", "session", "unix:path=/run/b", "tcp:host=::1,port=1"])
def test_buses_and_addresses_are_taken(bus: str) -> None:
    assert _parse(f'[daemon]\nbus = "{bus}"').daemon.bus == bus


def test_models_are_in_the_order_of_their_names_and_default_stays_apart() -> None:
    config = _parse('[models.b]\npath = "/b"\n[models.a]\npath = "/a"\n[models]\ndefault = "b"\n')
    assert [model.name for model in config.models] == ["a", "b"]
    assert config.default_model == "b"


def test_a_table_of_a_user_or_group_takes_the_rest_from_everybodys() -> None:
    config = _parse(
        "[quotas]\nqueued_jobs = 7\n[users.alice]\ntokens_per_minute = 60\n[groups.students]\n",
        '[groups.aged]\nhighest_class = "background"\n',
    )
    assert config.users == {"alice": QuotaConfig(queued_jobs=7, tokens_per_minute=60)}
    assert list(config.groups) == ["students", "aged"]  # the files' order, not the alphabet's
    assert config.groups["students"] == config.quotas
    assert config.groups["aged"] == QuotaConfig(highest_class="background", queued_jobs=7)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('[users."a b"]\n', "users.a b"),
        ("[users]\nalice = 3\n", "users.alice"),
        ("[groups.g]\nslots = 3\n", "groups.g.slots"),
        ('[quotas]\nhighest_class = "urgent"\n', "quotas.highest_class"),
        ("[runner]\nslots = 60\nparked_slots = 5\n", "runner.parked_slots"),
    ],
)
def test_a_slip_in_a_quota_is_refused_where_it_stands(text: str, path: str) -> None:
    assert _refused(text).details["path"] == path


def test_a_scalar_in_place_of_a_table_is_refused_where_it_stands() -> None:
    error = _refused("[runner]\nslots = 2", "runner = 1")
    assert error.details["file"] == "1.toml"


def test_tables_nested_beyond_reason_are_refused() -> None:
    assert "too deep" in _refused("[" + ".".join("a" * 40) + "]\nb = 1").message


def test_too_many_models_are_refused() -> None:
    many = "".join(f'[models.m{n}]\npath = "/x"\n' for n in range(65))
    assert "more than 64 models" in _refused(many).message


def test_the_largest_request_of_six_byte_characters_fits_into_a_frame() -> None:
    """An encoder that refuses it would take the inference loop along."""
    largest = 2 << 20
    _parse(f"[inference]\nmax_request_bytes = {largest}\n")
    _refused(f"[inference]\nmax_request_bytes = {largest + 1}\n")
    frames.encode(to_body(Generate(job="j", prompt="\x01" * largest, max_tokens=1)))


def test_the_largest_request_of_a_file_fits_into_a_frame() -> None:
    """Its characters come as JSON already: none gets longer on the way."""
    largest = 14 << 20
    _parse(f"[inference]\nmax_request_fd_bytes = {largest}\n")
    _refused(f"[inference]\nmax_request_fd_bytes = {largest + 1}\n")
    for char in ("\x01", '"', "\x7f", "é", "\u2028"):
        written = json.dumps(char, ensure_ascii=False).encode()[1:-1]
        text = char * (largest // len(written))
        frames.encode(to_body(Generate(job="j", prompt=text, max_tokens=1)))


def test_aliases_are_other_names_of_one_model_each() -> None:
    config = _parse('[models.a]\npath = "/a"\naliases = ["x", "y"]\n[models.b]\npath = "/b"\n')
    assert config.models[0].aliases == ("x", "y")
    for lines in (
        '[models.a]\npath = "/a"\naliases = ["b"]\n[models.b]\npath = "/b"\n',
        '[models.a]\npath = "/a"\naliases = ["x"]\n[models.b]\npath = "/b"\naliases = ["x"]\n',
        '[models.a]\npath = "/a"\naliases = ["a"]\n',
        '[models.a]\npath = "/a"\naliases = ["x", "x"]\n',
        '[models.a]\npath = "/a"\naliases = ["not a name"]\n',
    ):
        assert ".aliases[" in _refused(lines).message
