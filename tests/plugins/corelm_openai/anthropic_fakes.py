"""An engine to test Anthropic's API with, and what its replies look like."""

import json

from openai_fakes import FakeEngine

from corelm.api import Chat


class ChatEngine(FakeEngine):
    """Knows which conversation the tokens that it is given were made of."""

    def __init__(self):
        super().__init__()
        self._chats = {}

    async def tokenize(self, prompt, **options):
        if isinstance(prompt, list):
            return prompt
        token_ids = await super().tokenize(prompt, **options)
        if isinstance(prompt, Chat):
            self._chats[tuple(token_ids)] = prompt
        return token_ids

    async def generate(self, prompt, params, **options):
        return await super().generate(self._chats[tuple(prompt)], params, **options)

    @property
    def chat(self):
        """The last conversation."""
        return self.calls[-1]["prompt"]


def message(**values):
    """A request's body."""
    return {
        "model": "fake",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "a b"}],
        **values,
    }


def named_events(text):
    """The events of a stream, decoded; each must be a line with its type, a line of JSON, and an empty line."""
    lines = text.splitlines()
    assert lines[2::3] == [""] * (len(lines) // 3)
    assert all(line.startswith("data: ") for line in lines[1::3])
    events = [json.loads(line[6:]) for line in lines[1::3]]
    assert lines[::3] == [f"event: {event['type']}" for event in events]
    return events


def assert_anthropic_error(response, status, kind="invalid_request_error"):
    """`response` is an error in Anthropic's shape; returns its message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.keys() == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert body["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
    assert body["error"].keys() == {"type", "message"}
    assert body["error"]["type"] == kind
    return body["error"]["message"]
