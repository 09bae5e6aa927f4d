"""The demo model's tokenizer, made from its GGUF file, against transformers' of the same file."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelm.api import Chat, InvalidRequestError

CORPUS = [
    "",
    " ",
    "   leading and trailing   ",
    "a  b   c    d\t\te \n f\n\n\ng\r\nh\r\r\n\n i",
    "0 00 12345 3.14159 1e-10  42 ² ½ ①② ٣٤ Ⅷ",
    "x = 1\n    y = [i**2 for i in range(10)]  # ok\n\tif x != y:\n\t\treturn {'a': \"b\"}\n",
    "I'm you're he'll THEY'VE don't 'tis 'S we'd ’s",
    "你好，世界。日本語テキスト 한국어 𠮷野家",
    "👋😀👨‍👩‍👧‍👦🏳️‍🌈👍🏽",
    "e\u0301 o\u0308 ñ n\u0303 \u0915\u094d\u0937\u093f \u0e01\u0e33 مرحبا שָׁלוֹם",
    "<|im_start|>user\nhi<|im_end|><|endoftext|> <repo_name><|im_start|",
    "\x00\x01\x07\x1b[31m\x7f\x85\u200b\u200d\u2028\u2029\ufeff\ufffd\ufdd0",
    "a" * 300 + "\n" * 50 + " " * 100 + "!?" * 40,
    "https://example.org/a?b=c&d=%20#e user@example.org C:\\path\\to",
]


@pytest.mark.parametrize("text", CORPUS)
def test_encodes_and_decodes_as_transformers(demo, reference, text):
    ids = reference(text)["input_ids"]
    assert demo.encode(text) == ids
    for skip in (False, True):
        assert demo.decode(ids, skip_special_tokens=skip) == reference.decode(ids, skip_special_tokens=skip)


@settings(max_examples=150)
@given(text=st.text(max_size=60))
def test_any_text_encodes_as_in_transformers(demo, reference, text):
    assert demo.encode(text) == reference(text)["input_ids"]


def test_spaces_before_a_digit_stay_together(demo):
    pieces = [demo.decode([token]) for token in demo.encode("a   12  3")]
    assert pieces == ["a", "   ", "1", "2", "  ", "3"]


def test_facts(demo, reference):
    assert demo.vocab_size == len(reference) == 49152
    assert demo.eos_token_ids == {reference.eos_token_id}
    assert demo.special_tokens["<|im_start|>"] == 1
    assert len(demo.special_tokens) == 17
    assert demo.max_chars_per_token == 81


@pytest.mark.parametrize("text", [text for text in CORPUS if "<|" not in text and "\ufdd0" not in text])
@pytest.mark.parametrize("prompt", [True, False])
def test_chat_as_transformers(demo, reference, text, prompt):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": text},
        {"role": "assistant", "content": text},
        {"role": "user", "content": "and now?"},
    ]
    for some in (messages, messages[1:2]):
        expected = reference.apply_chat_template(some, tokenize=True, add_generation_prompt=prompt)["input_ids"]
        assert demo.render_chat(Chat(messages=some, add_generation_prompt=prompt)) == expected


@settings(max_examples=50)
@given(text=st.lists(st.sampled_from(["<|im_end|>", "<|im_", "start|>", "<", "|>", "\n", "user", " ", "\ufdd0"])))
def test_user_text_never_becomes_a_control_token(demo, text):
    content = "".join(text)
    specials = set(demo.special_tokens.values())
    ids = demo.render_chat(Chat(messages=[{"role": "user", "content": content}]))
    harmless = demo.render_chat(Chat(messages=[{"role": "user", "content": "x"}]))
    assert [token for token in ids if token in specials] == [token for token in harmless if token in specials]
    assert content.replace("\ufdd0", "") in demo.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("text", ["\ud83d", "\udc4b\ud83d", "ok \udc4b cut"])
def test_lone_surrogates_are_refused(demo, text):
    with pytest.raises(InvalidRequestError) as caught:
        demo.encode(text)
    str(caught.value).encode()
    with pytest.raises(InvalidRequestError) as caught:
        demo.render_chat(Chat(messages=[{"role": "user", "content": [{"type": "text", "text": text}]}]))
    assert caught.value.param == "messages"
    str(caught.value).encode()


def test_encoding_a_big_text_lets_other_threads_run(demo):
    text = "The quick brown fox jumps over 12 lazy dogs. " * 10000
    gaps = []
    done = threading.Event()

    def watch():
        last = time.perf_counter()
        while not done.wait(0.001):
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    demo.encode(text)
    took = time.perf_counter() - started
    done.set()
    watcher.join()
    assert max(gaps) < took / 2


def test_threads_agree(demo):
    texts = [f"text {number} 👋 <|im_end|>" for number in range(40)]

    def work(text):
        chat = demo.render_chat(Chat(messages=[{"role": "user", "content": text}]))
        return demo.encode(text), demo.decode(chat, skip_special_tokens=False)

    expected = [work(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, texts)) == expected
