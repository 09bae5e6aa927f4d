"""What a model directory's files say."""

import logging

import pytest
from hf_tiny import byte_level_backend, load
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing

from corelm.api import Chat, ConfigurationError, InvalidRequestError, ModelLoadError

HELLO = Chat(messages=[{"role": "user", "content": "hi"}])


def shown(tokenizer, chat=HELLO):
    return tokenizer.decode(tokenizer.render_chat(chat), skip_special_tokens=False)


def test_end_tokens_are_the_union_of_all_files(make_dir, caplog):
    backend = byte_level_backend()
    backend.add_special_tokens(["<|eot_id|>"])
    ids = backend.token_to_id
    path = make_dir(
        backend,
        config={"eos_token_id": ids("<s>")},
        generation_config={"eos_token_id": [ids("</s>"), 10_000_000, -1, None]},
        tokenizer_config={"eos_token": {"content": "<|im_start|>"}, "chat_template": "{{ '<|im_end|>' }}"},
    )
    with caplog.at_level(logging.INFO, "corelm_hf"):
        tokenizer = load(path)
    assert tokenizer.eos_token_ids == {ids(text) for text in ("<s>", "</s>", "<|im_start|>", "<|im_end|>")}
    for source in ("config.json", "generation_config.json", "tokenizer_config.json", "the chat template"):
        assert source in caplog.text


@pytest.mark.parametrize("eos", ["</s>", {"content": "</s>", "special": True}])
def test_eos_of_tokenizer_config_alone(make_dir, eos):
    tokenizer = load(make_dir(byte_level_backend(), tokenizer_config={"eos_token": eos}))
    assert tokenizer.eos_token_ids == {tokenizer.special_tokens["</s>"]}


def test_no_end_token_at_all(make_dir):
    assert load(make_dir(byte_level_backend())).eos_token_ids == frozenset()


def test_named_token_becomes_special(make_dir):
    backend = byte_level_backend()
    backend.add_tokens([AddedToken("<end>", special=False)])
    tokenizer = load(make_dir(backend, tokenizer_config={"eos_token": "<end>", "pad_token": "<not there>"}))
    assert "<end>" in tokenizer.special_tokens
    assert "<not there>" not in tokenizer.special_tokens
    assert tokenizer.decode(tokenizer.encode("a<end>")) == "a"


def test_vocab_size_covers_added_tokens(make_dir):
    backend = byte_level_backend()
    backend.add_tokens(["<one>", "<two>"])
    assert load(make_dir(backend)).vocab_size == backend.token_to_id("<two>") + 1


def test_prefix_comes_from_the_file(make_dir):
    backend = byte_level_backend()
    bos = backend.token_to_id("<s>")
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    backend.enable_truncation(2)
    backend.enable_padding(length=50)
    tokenizer = load(make_dir(backend))
    plain = tokenizer.encode("the quick brown fox", add_special_tokens=False)
    assert tokenizer.encode("the quick brown fox") == [bos, *plain]
    assert tokenizer.decode(plain) == "the quick brown fox"


def test_chat_does_not_double_bos(make_dir):
    backend = byte_level_backend()
    bos = backend.token_to_id("<s>")
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    path = make_dir(
        backend, "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
        tokenizer_config={"bos_token": "<s>", "eos_token": {"content": "</s>"}},
    )  # fmt: skip
    assert shown(load(path)) == "<s>hi</s>"


def test_order_of_template_sources(make_dir, tmp_path):
    config = {"chat_template": "from config"}
    backend = byte_level_backend()
    assert shown(load(make_dir(backend, tokenizer_config=config))) == "from config"
    named = {"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "from list"}]}
    assert shown(load(make_dir(backend, tokenizer_config=named))) == "from list"
    path = make_dir(backend, "from file", tokenizer_config=config)
    assert shown(load(path)) == "from file"
    own = tmp_path / "own.jinja"
    own.write_text("from setting é", encoding="utf-8")
    assert shown(load(path, chat_template=own)) == "from setting é"


def test_no_template(make_dir):
    with pytest.raises(InvalidRequestError, match=r"no chat template.*CORELM_HF_CHAT_TEMPLATE"):
        load(make_dir(byte_level_backend())).render_chat(HELLO)


def test_template_setting_is_wrong(make_dir, tmp_path):
    with pytest.raises(ConfigurationError, match=r"CORELM_HF_CHAT_TEMPLATE.*No such file"):
        load(make_dir(byte_level_backend()), chat_template=tmp_path / "none.jinja")


@pytest.mark.parametrize("source", ["{% for %}", "{{ x | no_such_filter }}", "{% if x %}"])
def test_template_syntax_error_names_its_source(make_dir, source):
    with pytest.raises(ModelLoadError, match=r"chat_template\.jinja, line 1"):
        load(make_dir(byte_level_backend(), source))


def test_missing_or_broken_files(make_dir):
    with pytest.raises(ModelLoadError, match=r"no tokenizer\.json"):
        load(make_dir())
    path = make_dir(byte_level_backend())
    (path / "tokenizer_config.json").write_text("[1]")
    with pytest.raises(ModelLoadError, match=r"tokenizer_config\.json: it holds no JSON object"):
        load(path)
    (path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelLoadError, match=r"cannot read .*tokenizer\.json"):
        load(path)
