"""A sequence as the scheduler keeps it, and the read-only face that policies see."""

from collections.abc import Callable
from typing import Any

from corelm.contracts.frontend import RequestOptions
from corelm.sampling import SamplingParams


class Sequence:
    """Tokens, blocks and progress of one choice of a request. Only the scheduler changes it."""

    __slots__ = (
        "allowed",
        "arrival",
        "bad_words",
        "block_hashes",
        "block_ids",
        "cached_tokens",
        "charged",
        "embed",
        "end_token_ids",
        "epoch",
        "in_flight",
        "key",
        "lockstep",
        "max_tokens",
        "num_computed",
        "num_sent",
        "options",
        "paused",
        "preemptions",
        "probe",
        "prompt_len",
        "request_id",
        "sampling",
        "seq_id",
        "swap_ids",
        "swapped_tokens",
        "token_ids",
        "untold",
        "view",
    )

    def __init__(
        self,
        *,
        seq_id: int,
        request_id: str,
        token_ids: list[int],
        max_tokens: int,
        sampling: SamplingParams,
        arrival: float,
        prompt_len: int | None = None,
        options: RequestOptions = RequestOptions(),
        bad_words: tuple[tuple[int, ...], ...] = (),
        end_token_ids: tuple[int, ...] = (),
        lockstep: bool = False,
        embed: bool = False,
        allowed: bytes | None = None,
    ) -> None:
        self.seq_id = seq_id
        self.request_id = request_id
        """Unique among the sequences that live."""
        self.token_ids = token_ids
        self.prompt_len = len(token_ids) if prompt_len is None else prompt_len
        self.max_tokens = max_tokens
        self.sampling = sampling
        self.arrival = arrival
        self.options = options
        self.bad_words = bad_words
        self.end_token_ids = end_token_ids
        self.lockstep = lockstep
        """Whether it pauses after each token, for someone to decide how it goes on."""
        self.embed = embed
        """Whether the executor gives the embedding of its prompt."""
        self.allowed = allowed
        """What its next token may be, as a mask; None if it has no grammar. It is not planned past an unknown token."""
        self.paused = False
        self.num_computed = 0
        """Positions whose keys and values are in the KV cache once every submitted step is done."""
        self.in_flight = 0
        """Tokens that submitted steps will sample for it."""
        self.epoch = 0
        """Goes up when the sequence loses its blocks; results of steps from before mean nothing."""
        self.block_ids: list[int] = []
        self.num_sent: int | None = None
        """How many of `block_ids` the executor was told; None if it does not know the sequence."""
        self.untold: tuple[int, ...] = ()
        """The last of its tokens, which a grammar forces, while the executor was not told of them."""
        self.swap_ids: list[int] = []
        self.swapped_tokens = 0
        """Positions whose keys and values `swap_ids` hold."""
        self.block_hashes: list[bytes] = []
        """Of its full blocks, as far as the prefix cache was asked about them."""
        self.cached_tokens: int | None = None
        """Prompt tokens that did not have to be computed when the sequence first ran; None before."""
        self.charged = 0
        """Positions that the policy was told of as served."""
        self.preemptions = 0
        self.key: Any = None
        self.probe: Callable[[Sequence], int] = lambda sequence: 0
        """Tells how many of its tokens the prefix cache has."""
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
        return self._sequence.options.priority

    @property
    def tenant(self) -> str | None:
        return self._sequence.options.tenant

    @property
    def session(self) -> str | None:
        return self._sequence.options.session

    @property
    def deadline(self) -> float | None:
        seconds = self._sequence.options.deadline_s
        return None if seconds is None else self._sequence.arrival + seconds

    @property
    def prompt_tokens(self) -> int:
        return self._sequence.prompt_len

    @property
    def cached_prefix_tokens(self) -> int:
        return self._sequence.probe(self._sequence)

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
