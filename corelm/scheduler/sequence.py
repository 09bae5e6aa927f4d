"""A sequence as the scheduler keeps it, and the read-only face that policies see."""

from typing import Any

from corelm.sampling import SamplingParams


class Sequence:
    """Tokens, blocks and progress of one request. Only the scheduler changes it."""

    __slots__ = (
        "arrival",
        "block_hashes",
        "block_ids",
        "cached_tokens",
        "key",
        "max_tokens",
        "num_computed",
        "preemptions",
        "priority",
        "prompt_len",
        "request_id",
        "sampling",
        "seq_id",
        "tenant",
        "token_ids",
        "view",
    )

    def __init__(
        self,
        *,
        seq_id: int,
        request_id: str,
        prompt: list[int],
        max_tokens: int,
        sampling: SamplingParams,
        arrival: float,
        priority: int = 0,
        tenant: str | None = None,
    ) -> None:
        self.seq_id = seq_id
        self.request_id = request_id
        self.token_ids = prompt
        self.prompt_len = len(prompt)
        self.max_tokens = max_tokens
        self.sampling = sampling
        self.arrival = arrival
        self.priority = priority
        self.tenant = tenant
        self.num_computed = 0
        """Positions whose keys and values are in the KV cache."""
        self.block_ids: list[int] = []
        self.block_hashes: list[bytes] = []
        """Of its full blocks, as far as the prefix cache was asked about them."""
        self.cached_tokens: int | None = None
        """Prompt tokens that the prefix cache had when the sequence was first admitted; None before."""
        self.preemptions = 0
        self.key: Any = None
        self.view = SequenceView(self)

    @property
    def num_output(self) -> int:
        return len(self.token_ids) - self.prompt_len


class SequenceView:
    """Implements `corelm.api.RequestView` on a sequence."""

    __slots__ = ("_sequence",)

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence

    @property
    def request_id(self) -> str:
        return self._sequence.request_id

    @property
    def arrival(self) -> float:
        return self._sequence.arrival

    @property
    def priority(self) -> int:
        return self._sequence.priority

    @property
    def tenant(self) -> str | None:
        return self._sequence.tenant

    @property
    def prompt_tokens(self) -> int:
        return self._sequence.prompt_len

    @property
    def output_tokens(self) -> int:
        return self._sequence.num_output

    @property
    def max_tokens(self) -> int:
        return self._sequence.max_tokens

    @property
    def num_blocks(self) -> int:
        return len(self._sequence.block_ids)

    @property
    def preemptions(self) -> int:
        return self._sequence.preemptions
