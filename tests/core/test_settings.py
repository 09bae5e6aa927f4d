import logging
from pathlib import Path

import pytest
from pydantic import BaseModel, Field, SecretStr

from corelm.errors import ConfigurationError
from corelm.plugins import PluginHost, PluginRecord, Registration
from corelm.settings import Settings, bootstrap, check_flags, compose, fields_of, help_text, load_settings, sources


class WebSettings(BaseModel):
    host: str = "localhost"
    port: int = Field(8000, ge=0, description="Where to listen.")
    keys: list[SecretStr] = []
    token: SecretStr | None = None
    limits: tuple[int, ...] = ()


class TapeSettings(BaseModel):
    reel: str
    speed: float = 1.0


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def host():
    record = PluginRecord(name="test", distribution="dist", version="1")
    host = PluginHost()
    host.plugins = [record, PluginRecord(name="lost", distribution="dist", version="1", failure="ImportError")]
    for kind, name, model in [("frontend", "web", WebSettings), ("executor", "tape", TapeSettings)]:
        host.registrations[kind][name] = Registration(
            kind=kind, name=name, factory=print, settings=model, summary="", unavailable=None, plugin=record
        )
    return host


def problems(host, argv=(), **overrides):
    with pytest.raises(ConfigurationError) as caught:
        load_settings(host, argv, overrides)
    return str(caught.value).splitlines()


def test_defaults(host):
    settings = load_settings(host)
    assert isinstance(settings, Settings)
    assert (settings.model, settings.executor, settings.max_num_seqs) == ("smollm2", "auto", 64)
    assert settings.plugin("web") == WebSettings()
    assert settings.plugin("unheard_of") is None
    assert settings.plugin("model") is None


def test_flag_over_variable_over_file_over_default(host, monkeypatch):
    Path("corelm.toml").write_text("max_num_seqs = 1\nblock_size = 1\n[web]\nport = 1\nhost = 'file'\n")
    assert load_settings(host).web.port == 1
    monkeypatch.setenv("CORELM_WEB_PORT", "2")
    monkeypatch.setenv("CORELM_MAX_NUM_SEQS", "2")
    settings = load_settings(host)
    assert (settings.web.port, settings.max_num_seqs, settings.block_size) == (2, 2, 1)
    settings = load_settings(host, ["--web.port", "3", "--max-num-seqs=3"])
    assert (settings.web.port, settings.max_num_seqs, settings.web.host) == (3, 3, "file")
    settings = load_settings(host, ["--web.port", "3"], {"web": {"port": 4}, "model": "x"})
    assert (settings.web.port, settings.max_num_seqs, settings.model) == (4, 2, "x")
    origin = {key: source for key, (_, source) in sources(settings).items()}
    assert origin["web.port"] == "keyword web.port"
    assert origin["max_num_seqs"] == "variable CORELM_MAX_NUM_SEQS"
    assert origin["web.host"] == "key web.host in corelm.toml"
    assert origin["dtype"] == "default"


@pytest.mark.parametrize("text", ["a,b", " a , b,", '["a", "b"]'])
def test_lists_are_json_or_have_commas(host, monkeypatch, text):
    for variable in ("CORELM_SERVED_MODEL_NAME", "CORELM_WEB_KEYS"):
        monkeypatch.setenv(variable, text)
    settings = load_settings(host)
    assert settings.served_model_name == ["a", "b"]
    assert [key.get_secret_value() for key in settings.web.keys] == ["a", "b"]


def test_a_list_of_one_and_a_list_in_a_flag(host, monkeypatch):
    monkeypatch.setenv("CORELM_WEB_LIMITS", "5")
    assert load_settings(host).web.limits == (5,)
    settings = load_settings(host, ["--web.limits", "1,2", "--served-model-name", "a", "--served-model-name", "b"])
    assert (settings.web.limits, settings.served_model_name) == ((1, 2), ["a", "b"])


def test_a_broken_list_is_an_error_that_names_the_variable(host, monkeypatch):
    monkeypatch.setenv("CORELM_SERVED_MODEL_NAME", '["a"')
    [line] = problems(host)
    assert line.startswith("variable CORELM_SERVED_MODEL_NAME: input should be a valid list")


def test_an_empty_variable_is_not_set(host, monkeypatch):
    monkeypatch.setenv("CORELM_MAX_MODEL_LEN", "")
    assert load_settings(host).max_model_len is None


def test_every_problem_has_a_line_that_names_the_source_and_the_value(host, monkeypatch):
    Path("corelm.toml").write_text("max_model_len = 0\n")
    monkeypatch.setenv("CORELM_DTYPE", "float8")
    lines = problems(host, ["--max-num-seqs", "0", "--web.port", "-1"], iteration_timeout_s="soon")
    assert len(lines) == 5
    for start, value in [
        ("key max_model_len in corelm.toml: ", "not 0"),
        ("variable CORELM_DTYPE: ", "not 'float8'"),
        ("flag --max-num-seqs: ", "not '0'"),
        ("flag --web.port: ", "not '-1'"),
        ("keyword iteration_timeout_s: ", "not 'soon'"),
    ]:
        assert any(line.startswith(start) and line.endswith(value) for line in lines), (start, lines)


def test_secrets_are_never_shown(host, monkeypatch):
    monkeypatch.setenv("CORELM_WEB_KEYS", "hunter2")
    monkeypatch.setenv("CORELM_WEB_TOKEN", "hunter2")
    settings = load_settings(host)
    assert settings.web.token.get_secret_value() == "hunter2"
    assert "hunter2" not in f"{settings!r} {sources(settings)}"
    monkeypatch.setenv("CORELM_WEB_KEYS", '[["hunter2"]]')
    [line] = problems(host)
    assert line.startswith("variable CORELM_WEB_KEYS: ")
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [("CORELM_MODLE", "CORELM_MODEL"), ("CORELM_WEB_PROT", "CORELM_WEB_PORT"), ("CORELM_PORT", "CORELM_WEB_PORT")],
)
def test_a_variable_that_nothing_reads_is_an_error(host, monkeypatch, variable, nearest):
    monkeypatch.setenv(variable, "1")
    assert problems(host) == [f"nothing reads the variable {variable}; did you mean {nearest!r}?"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CORELM_PORT", "tcp://10.0.0.1:8000"),
        ("CORELM_SERVICE_HOST", "10.0.0.1"),
        ("CORELM_SERVICE_PORT", "8000"),
        ("CORELM_SERVICE_PORT_HTTP", "8000"),
        ("CORELM_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
        ("CORELM_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("CORELM_WEB_SERVICE_HOST", "10.0.0.1"),
        ("CORELM_WEB_PORT_80_TCP_PROTO", "tcp"),
    ],
)
def test_what_an_orchestrator_sets_is_ignored_with_a_warning(host, monkeypatch, caplog, variable, value):
    monkeypatch.setenv(variable, value)
    assert load_settings(host).web == WebSettings()
    service = "corelm-web" if "WEB" in variable else "corelm"
    assert f"{variable}={value!r} is ignored: it looks like what an orchestrator sets" in caplog.text
    assert f"a service named {service!r}" in caplog.text
    assert "enableServiceLinks" in caplog.text


def test_a_setting_that_an_orchestrator_overwrote_is_an_error_with_the_remedy(host, monkeypatch):
    monkeypatch.setenv("CORELM_WEB_PORT", "tcp://10.0.0.1:80")
    [line] = problems(host)
    assert line.startswith("CORELM_WEB_PORT='tcp://10.0.0.1:80' looks like what an orchestrator sets for a service")
    assert "'corelm-web'" in line
    assert line.endswith("or set CORELM_WEB_PORT yourself")


def test_settings_of_a_plugin_that_is_not_loaded_only_warn(host, monkeypatch, caplog):
    monkeypatch.setenv("CORELM_LOST_SPEED", "1")
    Path("corelm.toml").write_text("[lost]\nspeed = 1\n")
    load_settings(host)
    assert "CORELM_LOST_SPEED is ignored: plugin 'lost' is not loaded" in caplog.text
    assert "'lost' in corelm.toml is ignored: plugin 'lost' is not loaded" in caplog.text.replace(".speed", "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("modle = 'x'", "unknown key 'modle' in corelm.toml; did you mean 'model'?"),
        ("[web]\nprot = 1", "unknown key 'web.prot' in corelm.toml; did you mean 'web.port'?"),
        ("config = 'x'", "unknown key 'config' in corelm.toml"),
        ("web = 3", "unknown key 'web' in corelm.toml"),
    ],
)
def test_an_unknown_key_in_the_file_is_an_error(host, text, line):
    Path("corelm.toml").write_text(text)
    assert problems(host) == [line]


def test_an_unknown_keyword_is_an_error(host):
    assert problems(host, max_seqs=1) == ["unknown setting 'max_seqs'; did you mean 'max_num_seqs'?"]


@pytest.mark.parametrize("flag", ["--prt", "--web.prt=3", "--max-num-seq"])
def test_an_unknown_flag_is_an_error(host, flag):
    [line] = problems(host, [flag])
    assert line.startswith(f"unknown flag {flag.split('=')[0]}; did you mean '--")


@pytest.mark.parametrize("argv", [["--web.port"], ["serve"]])
def test_words_that_make_no_flag_are_an_error(host, argv):
    [line] = problems(host, argv)
    assert argv[0] in line


def test_the_file_is_named_by_flag_or_variable(host, monkeypatch):
    Path("a.toml").write_text("block_size = 1")
    Path("b.toml").write_text("block_size = 2")
    monkeypatch.setenv("CORELM_CONFIG", "a.toml")
    assert load_settings(host).block_size == 1
    assert load_settings(host, ["--config", "b.toml"]).block_size == 2
    assert problems(host, ["--config", "c.toml"]) == ["cannot read the settings file c.toml: No such file or directory"]
    Path("b.toml").write_text("block_size =")
    [line] = problems(host, ["--config", "b.toml"])
    assert line.startswith("the settings file b.toml is not valid TOML: ")


def test_a_setting_without_default_is_asked_for_only_when_it_is_needed(host, monkeypatch):
    settings = load_settings(host)
    with pytest.raises(ConfigurationError, match=r"tape.reel must be set: flag --tape.reel, variable CORELM_TAPE_REEL"):
        settings.plugin("tape")
    assert "tape.reel must be set" in problems(host, ["--tape.speed", "2"])[0]
    monkeypatch.setenv("CORELM_TAPE_REEL", "left")
    assert load_settings(host).plugin("tape") == TapeSettings(reel="left")


def test_bootstrap_reads_only_what_is_needed_before_plugins(monkeypatch):
    Path("corelm.toml").write_text("block_plugins = ['x']\n[web]\nport = 1\n")
    monkeypatch.setenv("CORELM_WEB_PORT", "tcp://nonsense")
    monkeypatch.setenv("CORELM_PLUGINS", "a,b")
    first = bootstrap(["--help", "--web.port", "3", "--log-level", "error", "--unheard-of"])
    assert (first.plugins, first.block_plugins, first.log_level) == (["a", "b"], ["x"], "error")
    assert bootstrap(overrides={"plugins": ["c"]}).plugins == ["c"]


def test_help_lists_every_flag_with_its_variable(host):
    model = compose(host.settings_models())
    text = help_text(model, "corelm run")
    joined = "".join(text.split())
    for field in fields_of(model):
        assert f"\n  {field.flag} " in text
        assert f"[env:{field.variable}]" in joined
    assert "web options:" in text


def test_every_setting_of_the_core_is_described():
    assert all(field.info.description for field in fields_of(Settings))


def test_loading_settings_says_nothing_when_all_is_well(host, caplog):
    with caplog.at_level(logging.DEBUG):
        load_settings(host)
    assert not caplog.records


@pytest.mark.parametrize("argv", [["--model="], ["--model", ""], ["--served-model-name="]])
def test_an_empty_flag_is_refused(argv):
    with pytest.raises(ConfigurationError, match="needs a value"):
        check_flags([], argv)
